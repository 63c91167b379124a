//! `outboard run`: puts our libibverbs.so.1 and librdmacm.so.1 before the distribution's and
//! becomes the program, so that its signals, exit status and terminal are its own.
//!
//! It changes only the environment; the libraries interpret it.

mod library;
mod program;
mod rpath;

use crate::Outcome;
use crate::perf::Switch;
use clap::{Args, ValueEnum};
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Run an RDMA program as it is, on software NICs instead of hardware.
///
/// The program gets Outboard's libibverbs and librdmacm and finds one device for each IPv4 address
/// of this machine. It needs no rights, no kernel module and no /dev/infiniband.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard run -- rping -s -a 127.0.0.1 -v
  outboard run --personality roce --devices eth0 --record trace.pcap --stats -- ib_write_bw")]
pub(crate) struct RunArgs {
    /// What the devices look like [default: OUTBOARD_PERSONALITY, or else iwarp].
    #[arg(long)]
    personality: Option<Personality>,
    /// Interfaces or addresses, with commas between, that become devices, in this order
    /// [default: OUTBOARD_DEVICES, or else all].
    #[arg(long, value_name = "LIST")]
    devices: Option<String>,
    /// Checksums on everything that goes over the wire, unless both ends turn them off
    /// [default: OUTBOARD_CRC, or else on].
    #[arg(long)]
    crc: Option<Switch>,
    /// Write what goes over the wire to this file, which Wireshark opens.
    #[arg(long, value_name = "FILE.pcap")]
    record: Option<PathBuf>,
    /// Print operations, bytes and errors of each queue pair when the program ends.
    #[arg(long)]
    stats: bool,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Personality {
    /// An iWARP NIC: connections by rdma_cm; talks iWARP, as Linux's siw does.
    Iwarp,
    /// An RoCE v2 device: connections by ibv_modify_qp as well; talks to Outboard only.
    Roce,
}

/// Returns only when the program cannot be started.
pub(crate) fn run(args: RunArgs) -> Outcome {
    // There is one: the command line's definition requires it.
    let (name, words) = args.words.split_first().ok_or_else(String::new)?;
    let path = program::find(name)?;
    program::check(&path)?;
    let directory = library::directory()?;
    if let Some(theirs) = rpath::before_ours(&path, &directory) {
        warn_of(&path, &theirs);
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(words);
    command.env("LD_LIBRARY_PATH", before(&directory, env::var_os("LD_LIBRARY_PATH")));
    settings(&mut command, &args)?;
    Err(format!("cannot start {}: {}", path.display(), command.exec()).into())
}

/// The program may do without those libraries, so this is no reason to refuse it.
fn warn_of(program: &Path, theirs: &Path) {
    eprintln!(
        "outboard: {} was linked with an RPATH, by which the loader takes {} before Outboard's; \
         `patchelf --remove-rpath` on a copy of the program removes it",
        program.display(),
        theirs.display()
    );
}

/// The loader's list with `directory` in front. It takes an empty entry for the current directory,
/// so there must be none.
fn before(directory: &Path, list: Option<OsString>) -> OsString {
    let mut all = directory.as_os_str().to_owned();
    if let Some(list) = list.filter(|list| !list.is_empty()) {
        all.push(":");
        all.push(list);
    }
    all
}

/// Settings that no option gives stay as the environment has them.
fn settings(command: &mut Command, args: &RunArgs) -> Outcome {
    let mut set = |name: &str, value: &OsStr| {
        command.env(name, value);
    };
    match args.personality {
        Some(Personality::Iwarp) => set("OUTBOARD_PERSONALITY", OsStr::new("iwarp")),
        Some(Personality::Roce) => set("OUTBOARD_PERSONALITY", OsStr::new("roce")),
        None => {}
    }
    if let Some(devices) = &args.devices {
        set("OUTBOARD_DEVICES", OsStr::new(devices));
    }
    if let Some(crc) = args.crc {
        set("OUTBOARD_CRC", OsStr::new(if crc == Switch::On { "on" } else { "off" }));
    }
    if let Some(record) = &args.record {
        // The program may change its directory before the first connection.
        let whole = std::path::absolute(record);
        let whole = whole.map_err(|error| format!("--record {}: {error}", record.display()))?;
        set("OUTBOARD_RECORD", whole.as_os_str());
    }
    if args.stats {
        set("OUTBOARD_STATS", OsStr::new("1"));
    }
    Ok(())
}
