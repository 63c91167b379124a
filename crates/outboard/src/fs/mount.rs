//! `outboard fs mount` and `outboard fs umount`.
//!
//! Without `--foreground` the program starts itself once more: the second process mounts and
//! serves, and says so on a pipe; the first one ends then, or says why nothing is mounted.

use super::at::{FsHosts, connect};
use crate::{Outcome, log};
use clap::{Args, ValueEnum};
use outboard_fs::client::{FsClientOptions, FsVariant};
use outboard_fs::mount::{FsMount, FsMountOptions, MountEnd, unmount_at};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// How long a process that is told to end takes to send what its mount holds.
const SEND_MAX: Duration = Duration::from_secs(5);
/// What the process that serves says when it does.
const READY: &str = "mounted";

/// Mount a file system of a server on a directory.
///
/// Options: ro, allow_other, cache=strict|close-to-open|none, hard (requests wait for a server that
/// does not answer: the default), soft and timeo=SECONDS (they fail then), noexec; for root also
/// suid and dev.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs mount n01:/ shared -o soft,timeo=30
  outboard fs umount shared")]
pub(crate) struct MountArgs {
    /// The server and its root: HOST:/, HOST:PORT:/, or HOST,HOST:/ with the host of its replica.
    source: MountSource,
    /// The directory.
    directory: PathBuf,
    /// Options, with commas between them.
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// Read names and attributes by one-sided Reads, from a server that was started with
    /// --one-sided. Nothing of them is kept.
    #[arg(long)]
    one_sided: bool,
    /// active: what is changed is executed at the server. rdma: everything is done by one-sided
    /// verbs, on a file system that was started with --volatile.
    #[arg(long, value_enum, default_value_t = VariantChoice::Active, conflicts_with = "one_sided")]
    variant: VariantChoice,
    /// Serve in this process, until the file system is unmounted.
    #[arg(short, long)]
    foreground: bool,
    /// Serve in this process, and say on standard output when it is mounted.
    #[arg(long, hide = true)]
    daemon: bool,
}

/// How the file system is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum VariantChoice {
    /// By executions at the server.
    Active,
    /// By one-sided verbs.
    Rdma,
}

impl MountArgs {
    fn variant(&self) -> FsVariant {
        match (self.variant, self.one_sided) {
            (VariantChoice::Rdma, _) => FsVariant::Rdma,
            (VariantChoice::Active, true) => FsVariant::OneSided,
            (VariantChoice::Active, false) => FsVariant::Active,
        }
    }
}

/// Unmount a file system. Processes that have its files open keep them until they close them.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs umount shared")]
pub(crate) struct UmountArgs {
    /// The directory.
    directory: PathBuf,
}

/// Which server, or which servers that have it in turn.
#[derive(Clone, Debug)]
struct MountSource {
    hosts: FsHosts,
    text: String,
}

impl std::str::FromStr for MountSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let host = text.strip_suffix(":/").filter(|host| !host.is_empty());
        let host = host
            .ok_or("write HOST:/, HOST:PORT:/ or HOST,HOST:/: the root of a server is mounted")?;
        Ok(Self { hosts: host.parse()?, text: text.to_owned() })
    }
}

pub(crate) fn mount(args: MountArgs) -> Outcome {
    // A mistake is said here, and not by another process.
    let options = FsMountOptions::parse(&args.options.join(","))?;
    if args.variant == VariantChoice::Rdma && !args.daemon {
        eprintln!(
            "outboard: this file system is volatile and unprotected: it is gone when its node \
             ends, and whoever has the key may read and write all of it"
        );
    }
    match args.foreground || args.daemon {
        true => serve(&args, &options),
        false => start_daemon(),
    }
}

pub(crate) fn umount(args: &UmountArgs) -> Outcome {
    Ok(unmount_at(&args.directory)?)
}

fn serve(args: &MountArgs, options: &FsMountOptions) -> Outcome {
    log::start(None)?;
    if args.daemon {
        // It leads a session already where it was started by hand.
        let _session = rustix::process::setsid();
    }
    let (patience, variant) = (options.patience, args.variant());
    let of_client = FsClientOptions { patience, variant, ..FsClientOptions::default() };
    let client = connect(&args.source.hosts, of_client)?;
    let directory = std::fs::canonicalize(&args.directory)
        .map_err(|error| format!("{}: {error}", args.directory.display()))?;
    let mount = FsMount::mount(client, &directory, &args.source.text, options)?;
    end_on_signal(mount.end())?;
    if args.daemon {
        tell_ready()?;
    }
    Ok(mount.serve()?)
}

/// A signal gives the directory back; the process serves the files that are open until they are
/// closed. Where nothing is mounted any more, or cannot be unmounted, the process ends.
fn end_on_signal(end: MountEnd) -> Outcome {
    let (mut told, teller) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        pipe::register(signal, teller.try_clone()?)?;
    }
    let wait = move || {
        let mut one = [0];
        while told.read_exact(&mut one).is_ok() {
            let status = match end.unmount() {
                Ok(true) => continue,
                Ok(false) => 0,
                Err(error) => {
                    eprintln!("outboard: {error}; its files fail from now on");
                    1
                }
            };
            end.send_held(SEND_MAX);
            std::process::exit(status);
        }
    };
    thread::Builder::new().name("fs-signals".into()).spawn(wait)?;
    Ok(())
}

/// The process that has started this one may end; nobody reads what this one writes any more.
fn tell_ready() -> Outcome {
    let mut out = std::io::stdout();
    writeln!(out, "{READY}")?;
    out.flush()?;
    std::env::set_current_dir("/")?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}

/// Starts the process that serves, and waits until it does.
fn start_daemon() -> Outcome {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).arg("--daemon");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    if line.trim() == READY {
        return Ok(());
    }
    let mut said = String::new();
    if let Some(mut complaint) = child.stderr.take() {
        complaint.read_to_string(&mut said)?;
    }
    let status = child.wait()?;
    let said = said.trim().trim_start_matches("outboard: ");
    match said.is_empty() {
        true => Err(format!("the process that serves the mount ended: {status}").into()),
        false => Err(said.to_owned().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_host_and_its_root() {
        for good in ["n01:/", "n01:4791:/", "127.0.0.1:4791:/", "[::1]:4791:/", "n01,n02:4791:/"] {
            assert!(good.parse::<MountSource>().is_ok(), "{good}");
        }
        for bad in ["n01", ":/", "n01:/home", "n01,n02", "n[1-9]:/", ""] {
            assert!(bad.parse::<MountSource>().is_err(), "{bad}");
        }
    }
}
