//! The program `outboard`: reads the command line, runs one command, and reports its error.
//!
//! It holds no logic of its own: every command calls a library. An error is one line on standard
//! error and a non-zero exit code.
//!
//! Modules in reading order: `cli` (the commands), `tour`, `cc`, `cast` and
//! `sbcast` with `launch` and `send_libs`, `active`, `fs`, `offload`, `run`, `perf`, `node` with
//! `services` and `log`, `key`, `status`, `top`, `parent` (ending with the parent process),
//! `generate`.

#![forbid(unsafe_code)]

mod active;
mod cast;
mod cc;
mod cli;
mod fs;
mod generate;
mod key;
mod launch;
mod log;
mod node;
mod offload;
mod parent;
mod perf;
mod quantity;
mod run;
mod sbcast;
mod send_libs;
mod services;
mod status;
mod status_line;
mod top;
mod tour;

use clap::Parser;
use cli::{Cli, Command};
use outboard_cluster::node as cluster_node;
use signal_hook::consts::SIGXFSZ;
use std::process::ExitCode;
use std::sync::Arc;

/// The result of a command; the error is a text for the user.
type Outcome = Result<(), Box<dyn std::error::Error>>;

/// What is asked for; ends the process where that cannot be told.
fn command() -> Command {
    let words = fs::words_of_program(std::env::args_os());
    let parsed = Cli::try_parse_from(words).inspect_err(cast::tell_wrong_words);
    parsed.unwrap_or_else(|error| error.exit()).command
}

fn main() -> ExitCode {
    // A file that would pass the limit of its length (`ulimit -f`) is an error of the write then,
    // and not this process's end. Programs that it starts have the system's behaviour.
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, Arc::default()) {
        eprintln!("outboard: cannot handle the signal SIGXFSZ: {error}");
    }
    let success = |()| ExitCode::SUCCESS;
    let outcome = match command() {
        Command::Tour(args) => tour::run(&args).map(success),
        Command::Cc(args) => cc::run(args),
        Command::Cast(args) => Ok(cast::run(args)),
        Command::Sbcast(args) => sbcast::run(&args),
        Command::CastReceiver { log } => launch::receive(log.as_deref()).map(success),
        Command::Active(command) => active::run(command).map(success),
        Command::Fs(command) => fs::run(command),
        Command::Offload(command) => offload::run(command),
        Command::OffloadCore { processor, cache } => {
            offload::serve_core(processor, cache).map(success)
        }
        Command::Perf(perf) => perf::run(perf).map(success),
        Command::Run(args) => run::run(args).map(success),
        Command::Node(args) => node::run(args).map(success),
        Command::Key(key) => key::run(key).map(success),
        Command::Status(args) => status::run(args).map(success),
        Command::Top(args) => top::run(args).map(success),
        Command::NodeService { name } => {
            services::name_process(&name);
            log::start(None).map(|()| cluster_node::serve(&name, services::SERVICES))
        }
        Command::SandboxSupervisor => Ok(outboard_compile::sandbox::supervisor_main()),
        Command::Generate { what, dir } => generate::run(what, &dir).map(success),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("outboard: {error}");
            ExitCode::FAILURE
        }
    }
}
