//! The program: finds the compiler, asks the manager, and does what it says.
//!
//! It becomes the compiler whenever the manager says so, cannot be reached or goes away, so that no
//! build depends on it. It forks only to start a manager.

use crate::place::Place;
use crate::real::{Call, Search};
use crate::source;
use crate::start::{self, Manager};
use crate::wire::{self, REPLY_OCTETS, Reply, Request};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Signal, getpid, kill_process, umask};

/// Set for a compiler that runs at home, to its path: what it calls in turn stays at home, too, and
/// holds no second slot.
const NESTED: &str = "OUTBOARD_CC_NESTED";
/// Set by people who want to know why a job runs at home without the manager's asking.
const VERBOSE: &str = "OUTBOARD_CC_VERBOSE";
/// What shells answer for a command that is not there.
const NOT_FOUND: u8 = 127;

/// Runs the wrapper with this process's arguments and environment; returns its exit code unless it
/// has become the compiler.
#[must_use]
pub fn run() -> ExitCode {
    let Some(call) = Call::of(env::args_os()) else {
        eprintln!("outboard-cc: name a compiler: outboard-cc gcc -c x.c");
        return ExitCode::FAILURE;
    };
    compile(&call)
}

/// Runs one compiler; returns its exit code unless this process has become it.
#[must_use]
pub fn compile(call: &Call) -> ExitCode {
    let caller = env::var_os(NESTED);
    let Some(compiler) = find(&call.name, caller.as_deref()) else {
        eprintln!("outboard-cc: there is no {} in PATH but links to this", call.name.display());
        return ExitCode::from(NOT_FOUND);
    };
    let arguments = &call.arguments;
    if caller.is_some() {
        return become_compiler(&compiler, arguments, None);
    }
    match ask(&compiler, arguments).and_then(|(reply, stream)| heed(reply, stream, &compiler)) {
        Ok(Verdict::Done { status, stdout, stderr }) => finish(status, &stdout, &stderr),
        Ok(Verdict::Home(slot)) => become_compiler(&compiler, arguments, Some(&slot)),
        Err(error) => {
            if env::var_os(VERBOSE).is_some() {
                eprintln!("outboard-cc: compiling at home: {error}");
            }
            become_compiler(&compiler, arguments, None)
        }
    }
}

/// What is left to be done.
enum Verdict {
    /// To become the compiler, with this token.
    Home(UnixStream),
    /// To show what it said.
    Done { status: i32, stdout: Vec<u8>, stderr: Vec<u8> },
}

/// Does what the manager says, until that is the end.
fn heed(reply: Reply, mut stream: UnixStream, compiler: &Path) -> io::Result<Verdict> {
    let mut warnings = Vec::new();
    let mut reply = reply;
    loop {
        match reply {
            Reply::Home => return Ok(Verdict::Home(stream)),
            Reply::Done { status, stdout, stderr } => {
                let stderr = [warnings, stderr].concat();
                return Ok(Verdict::Done { status, stdout, stderr });
            }
            Reply::Preprocess { words, beside } => {
                let made = source::preprocess(compiler, &words, &beside, NESTED);
                // Whatever is wrong the compiler itself can say best.
                let Ok((file, said)) = made else { return Ok(Verdict::Home(stream)) };
                source::hand_over(&stream, &file)?;
                warnings = said;
                drop(file);
                reply = read_reply(&mut stream)?;
            }
        }
    }
}

fn find(name: &OsStr, caller: Option<&OsStr>) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    Search { path: &path, own: Path::new("/proc/self/exe"), caller }.find(name)
}

/// Asks the manager. The connection comes with the reply: it is the token of a slot at home.
fn ask(compiler: &Path, arguments: &[OsString]) -> io::Result<(Reply, UnixStream)> {
    let place = Place::of_user()?;
    let (mut stream, manager) = start::connect(&place)?;
    let mut octets = Vec::with_capacity(4096);
    request(compiler, arguments)?.emit(&mut octets);
    let reply = stream.write_all(&octets).and_then(|()| read_reply(&mut stream));
    // One that has read the request before it went away has worked, and the next one may.
    let has_read = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
    if manager == Manager::Started && reply.as_ref().err().is_some_and(|error| !has_read(error)) {
        start::note_failure(&place);
    }
    let gone = |error| io::Error::other(format!("{error}; see {}", place.log().display()));
    Ok((reply.map_err(gone)?, stream))
}

fn request(compiler: &Path, arguments: &[OsString]) -> io::Result<Request> {
    // There is no way to look at the mask but to set it.
    let mask = umask(rustix::fs::Mode::empty());
    umask(mask);
    let mut argv = Vec::with_capacity(1 + arguments.len());
    argv.push(compiler.as_os_str().to_owned());
    argv.extend_from_slice(arguments);
    Ok(Request {
        compiler: compiler.into(),
        argv,
        cwd: env::current_dir()?.into_os_string(),
        env: env::vars_os().filter(|(name, _)| wire::is_wanted(name)).collect(),
        umask: mask.as_raw_mode(),
        terminal: io::stderr().is_terminal(),
    })
}

fn read_reply(stream: &mut UnixStream) -> io::Result<Reply> {
    let mut head = [0; REPLY_OCTETS];
    stream.read_exact(&mut head)?;
    let unknown = |_| io::Error::other("the manager is another version");
    let mut reply = Reply::parse_head(&head).map_err(unknown)?;
    if let Reply::Done { stdout: first, stderr: second, .. }
    | Reply::Preprocess { words: first, beside: second } = &mut reply
    {
        stream.read_exact(first)?;
        stream.read_exact(second)?;
    }
    Ok(reply)
}

fn finish(status: i32, stdout: &[u8], stderr: &[u8]) -> ExitCode {
    // Whoever closed them does not want to know.
    let _ = io::stdout().write_all(stdout).and_then(|()| io::stdout().flush());
    let _ = io::stderr().write_all(stderr);
    let status = ExitStatus::from_raw(status);
    if let Some(signal) = status.signal().and_then(Signal::from_named_raw) {
        let _ = kill_process(getpid(), signal);
    }
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Returns only when that fails.
fn become_compiler(compiler: &Path, arguments: &[OsString], slot: Option<&UnixStream>) -> ExitCode {
    if let Some(slot) = slot {
        // Without its token the manager may give the slot to another: no harm to this job.
        let _ = fcntl_setfd(slot, FdFlags::empty());
    }
    let error = Command::new(compiler).args(arguments).env(NESTED, compiler).exec();
    eprintln!("outboard-cc: cannot run {}: {error}", compiler.display());
    match error.kind() {
        io::ErrorKind::NotFound => ExitCode::from(NOT_FOUND),
        _ => ExitCode::from(NOT_FOUND - 1),
    }
}
