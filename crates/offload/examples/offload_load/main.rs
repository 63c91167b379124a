//! Loads the library, for `cargo xtask bench offload`, which builds this with `--release` and runs
//! it. Prints one object of JSON. It checks nothing but that its offcodes answer.
//!
//! - `call BODY MS`: Calls from this thread to an offcode on `host`, one after the other; `BODY` is
//!   `builtin` or `wasm`.
//! - `channel FAR BYTES ROUNDS`: a ping-pong between an offcode on `host` and one on `FAR`, which
//!   is `host`, `core` (processor 1) or the address of a node.
//! - `end FAR BYTES ROUNDS`: the same between the application itself and an offcode.
//! - `load`: round trips until an offcode is created, its code known and unknown, by counting.
//! - `deploy CACHE ROUNDS`: 20 offcodes on 4 devices, and their end; `bare ROUNDS`: 3 processes of
//!   this program that end at once, created and joined.
//! - `move FAR ROUNDS`: an offcode with 1 MiB of state, from `host` to `FAR` and back.
//! - `source FAR RATE MS`: the processor time of a counter's messages at a rate.

mod call;
mod channel;
mod deploy;
mod load;
mod moves;
mod parts;
mod source;

use std::error::Error;
use std::path::Path;

pub(crate) type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let found = match words[..] {
        ["core", processor] => return core(processor, None),
        ["core", processor, cache] => return core(processor, Some(Path::new(cache))),
        ["idle"] => return Ok(()),
        ["call", body, ms] => call::run(body, ms.parse()?)?,
        ["channel", far, bytes, rounds] => channel::offcodes(far, bytes.parse()?, rounds.parse()?)?,
        ["end", far, bytes, rounds] => channel::application(far, bytes.parse()?, rounds.parse()?)?,
        ["load"] => load::run()?,
        ["deploy", cache, rounds] => deploy::run(Path::new(cache), rounds.parse()?)?,
        ["bare", rounds] => deploy::bare(rounds.parse()?)?,
        ["move", far, rounds] => moves::run(far, rounds.parse()?)?,
        ["source", far, rate, ms] => source::run(far, rate.parse()?, ms.parse()?)?,
        _ => return Err("see the first lines of examples/offload_load/main.rs".into()),
    };
    println!("{found}");
    Ok(())
}

/// A device `core`, on standard input; `any` is on no processor of its own.
fn core(processor: &str, cache: Option<&Path>) -> Result<(), Failure> {
    let socket = rustix::io::dup(std::io::stdin())?;
    let processor = if processor == "any" { None } else { Some(processor.parse()?) };
    Ok(outboard_offload::devices::serve_core(socket, processor, cache)?)
}
