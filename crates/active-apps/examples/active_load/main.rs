//! The work of `cargo xtask bench active`, one kind at a time: a client in one thread that measures
//! itself and prints one line of JSON. It starts no node.
//!
//! ```text
//! active_load pong                                      answers `ping`; prints its address
//! active_load ping ADDRESS WAIT MS                      8 bytes there and back, by Sends
//! active_load empty HOST REGION WAIT MS                 a module that does nothing
//! active_load empty HOST REGION CONNECTIONS DEPTH MS    the same on many connections
//! active_load reads HOST REGION WAIT MS                 plain Reads of 64 bytes
//! active_load burn HOST REGION CLIENTS MICROSECONDS MS  modules that take so long, from so many
//! active_load list HOST MODULES WAIT SIDE WHAT HOPS MS   behind so many nodes of a list
//! active_load table HOST MODULES WAIT SIDE WHAT BYTES MS entries of a hash table
//! active_load tables HOST MODULES WHAT BYTES CONNECTIONS DEPTH MS   the same on many connections
//! active_load scan HOST MODULES WAIT all|top MS          100 MB: read, or its largest records
//! active_load placed HOST MODULES WAIT remote|local|auto get|hops|top MS   where it is executed
//! active_load awake HOST REGION                         keeps a node's loop from sleeping
//! active_load probe HOST REGION WAIT MS                 each kind of request alone: what it costs
//! active_load flood HOST REGION MS                      Reads of 64 bytes, many at a time
//! active_load lock HOST MODULES WAIT SIDE CLIENTS MS    a lock, acquired and released
//! active_load topk HOST MODULES WAIT SIDE BYTES MS      the largest records of an array
//! ```
//!
//! SIDE is `plain` or `active`, WHAT `get` or `put`, MODULES the directory of built modules. WAIT
//! is `block`, `adaptive` or `spin`. Keys and trust come from the environment, as for every command
//! of Outboard.
//!
//! Modules in reading order: `timing` (samples), `session` (clients), `ping`, `many` (connections
//! at once), `calls`, `burn`, `shipped` (modules that come with Outboard), `list`,
//! `table`, `lock`, `scan`, `topk`, `placed`; `probe`.

#![forbid(unsafe_code)]

mod burn;
mod calls;
mod list;
mod lock;
mod many;
mod ping;
mod placed;
mod probe;
mod scan;
mod session;
mod shipped;
mod table;
mod timing;
mod topk;

use std::error::Error;
use std::process::ExitCode;

/// What ends this program.
pub(crate) type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("active_load {}: {error}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), Failure> {
    let found = match *words {
        ["pong"] => return ping::answer(),
        ["ping", address, wait, ms] => ping::ask(address, wait, ms)?,
        ["empty", host, region, wait, ms] => calls::empty(host, region, wait, ms)?,
        ["empty", host, region, connections, depth, ms] => {
            calls::empty_many(host, region, [connections, depth, ms])?
        }
        ["reads", host, region, wait, ms] => calls::reads(host, region, wait, ms)?,
        ["burn", host, region, clients, us, ms] => burn::all(host, region, [clients, us, ms])?,
        ["list", host, modules, wait, side, what, hops, ms] => {
            list::run([host, modules, wait], [side, what, hops, ms])?
        }
        ["table", host, modules, wait, side, what, bytes, ms] => {
            table::run([host, modules, wait], [side, what, bytes, ms])?
        }
        ["tables", host, modules, what, bytes, connections, depth, ms] => {
            table::many([host, modules], [what, bytes, connections, depth, ms])?
        }
        ["scan", host, modules, wait, what, ms] => scan::run([host, modules, wait], what, ms)?,
        ["placed", host, modules, wait, place, what, ms] => {
            placed::run([host, modules, wait], [place, what, ms])?
        }
        ["probe", host, region, wait, ms] => probe::run(host, region, wait, ms)?,
        ["awake", host, region] => calls::awake(host, region)?,
        ["flood", host, region, ms] => probe::flood(host, region, ms)?,
        ["lock", host, modules, wait, side, clients, ms] => {
            lock::run([host, modules, wait], [side, clients, ms])?
        }
        ["topk", host, modules, wait, side, bytes, ms] => {
            topk::run([host, modules, wait], [side, bytes, ms])?
        }
        _ => return Err("see the head of active_load/main.rs".into()),
    };
    println!("{found}");
    Ok(())
}
