//! The program: finds the compiler, asks the manager, and executes the manager's reply.
//!
//! It becomes the compiler if the manager says so, cannot be reached, ends or does not answer, so
//! that no build depends on the manager. It forks only to start a manager or a preprocessor.

use crate::place::ManagerPlace;
use crate::real::{Search, WrapperCall, is_own_name, search_path};
use crate::source;
use crate::start::{self, ManagerOrigin};
use crate::wire::{self, CompileRequest, REPLY_BYTES, Reply};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Signal, getpid, kill_process, umask};

/// The variable that holds the path of the compiler that runs locally: wrappers that it calls run
/// locally, too, without a second slot.
const NESTED: &str = "OUTBOARD_CC_NESTED";
/// After this long without a reply the wrapper asks whether the manager is alive.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How long a wrapper waits before it asks again, each time that a manager has ended under it.
const ENDED_PAUSES: [Duration; 4] = [
    Duration::from_millis(5),
    Duration::from_millis(20),
    Duration::from_millis(80),
    Duration::from_millis(320),
];
/// The exit code of shells for a command that does not exist.
const NOT_FOUND: u8 = 127;

/// The answer to `--help` alone.
const HELP: &str = "\
outboard-cc compiles on other machines: put it before a compiler's name.

Usage: outboard-cc COMPILER [ARGUMENTS]...
Example:
  export OUTBOARD_HOSTS='n[01-14]'
  outboard-cc gcc -c x.c
  make -j32 CC=\"outboard-cc gcc\" CXX=\"outboard-cc g++\"

A call that names no compiler (outboard-cc -c x.c) means cc. A link to this program by a compiler's
name stands for that compiler. What cannot run on a server of OUTBOARD_HOSTS runs locally;
OUTBOARD_CC_VERBOSE=1 says where each job ran, and why there. `outboard cc --help` has the other
variables, `outboard cc --stats` says what ran where.
";

/// Runs the wrapper with this process's arguments and environment; returns its exit code unless it
/// has become the compiler.
#[must_use]
pub fn run() -> ExitCode {
    if is_asked_for_help() {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let Some(call) = WrapperCall::of(env::args_os()) else {
        eprintln!("outboard-cc: no compiler is named; for example: outboard-cc gcc -c x.c");
        return ExitCode::FAILURE;
    };
    compile(&call)
}

/// Whether this program was called by its own name with `--help` alone.
fn is_asked_for_help() -> bool {
    let mut words = env::args_os();
    let is_own = words.next().is_some_and(|own| is_own_name(&own));
    is_own && words.next().is_some_and(|word| word == "--help") && words.next().is_none()
}

/// Runs one compiler; returns its exit code unless this process has become it.
#[must_use]
pub fn compile(call: &WrapperCall) -> ExitCode {
    let caller = env::var_os(NESTED);
    let Some(compiler) = Compiler::find(&call.name, caller.as_deref()) else {
        eprintln!(
            "outboard-cc: there is no {} in PATH except links to this wrapper",
            call.name.display()
        );
        return ExitCode::from(NOT_FOUND);
    };
    let arguments = &call.arguments;
    if caller.is_some() {
        return become_compiler(&compiler, arguments, None);
    }
    match ask_manager(&compiler, arguments) {
        Ok(NextStep::Done { status, stdout, stderr }) => finish(status, &stdout, &stderr),
        Ok(NextStep::Local(slot)) => become_compiler(&compiler, arguments, Some(&slot)),
        Err(error) if env::var_os(wire::FALLBACK).is_some_and(|value| value == "0") => {
            eprintln!("outboard-cc: not compiled because of {}=0: {error}", wire::FALLBACK);
            ExitCode::FAILURE
        }
        Err(error) => {
            if env::var_os(wire::VERBOSE).is_some() {
                eprintln!("outboard-cc: compiling locally: {error}");
            }
            become_compiler(&compiler, arguments, None)
        }
    }
}

/// The real compiler.
struct Compiler {
    path: PathBuf,
    /// Its first word.
    name: OsString,
}

impl Compiler {
    fn find(name: &OsStr, caller: Option<&OsStr>) -> Option<Self> {
        let path = search_path();
        let search = Search { path: &path, own: Path::new("/proc/self/exe"), caller };
        let path = search.find(name)?;
        let name = search.called(name, &path).to_owned();
        Some(Self { path, name })
    }
}

fn ask_manager(compiler: &Compiler, arguments: &[OsString]) -> io::Result<NextStep> {
    let place = ManagerPlace::of_user()?;
    let (reply, stream) = ask(&place, compiler, arguments)?;
    execute(reply, stream, &place, compiler)
}

/// What the wrapper must still do.
enum NextStep {
    /// Become the compiler; this connection holds the local slot.
    Local(UnixStream),
    /// Show the remote compiler's output and exit.
    Done { status: i32, stdout: Vec<u8>, stderr: Vec<u8> },
}

/// Executes the manager's replies up to the last one.
fn execute(
    reply: Reply,
    mut stream: UnixStream,
    place: &ManagerPlace,
    compiler: &Compiler,
) -> io::Result<NextStep> {
    let mut warnings = Vec::new();
    let mut reply = reply;
    loop {
        match reply {
            Reply::Local { why } => {
                let _ = io::stderr().write_all(&why);
                return Ok(NextStep::Local(stream));
            }
            Reply::Done { status, stdout, stderr } => {
                let stderr = [warnings, stderr].concat();
                return Ok(NextStep::Done { status, stdout, stderr });
            }
            Reply::Preprocess { words, beside } => {
                let made = source::preprocess(&compiler.path, &words, &beside, NESTED);
                // The compiler itself reports best what is wrong.
                let Ok((file, said)) = made else { return Ok(NextStep::Local(stream)) };
                source::hand_over(&stream, &file)?;
                warnings = said;
                drop(file);
                reply = read_reply(&mut stream, place)?;
            }
        }
    }
}

/// Sends the request. Returns the reply with the connection, which holds a local slot if one is
/// granted. If a manager that ran before ends without a reply, another is asked: the first was told
/// to end while this wrapper came.
fn ask(
    place: &ManagerPlace,
    compiler: &Compiler,
    arguments: &[OsString],
) -> io::Result<(Reply, UnixStream)> {
    let mut bytes = Vec::with_capacity(4096);
    request(compiler, arguments)?.emit(&mut bytes);
    let mut pauses = ENDED_PAUSES.iter();
    loop {
        let (stream, manager) = start::connect(place)?;
        match talk(stream, manager, place, &bytes) {
            Err(error) if manager == ManagerOrigin::Found && has_ended(&error) => {
                let Some(pause) = pauses.next() else { return Err(with_log(error, place)) };
                // The system closes what the manager had one by one, its socket perhaps last.
                thread::sleep(*pause);
            }
            reply => return reply.map_err(|error| with_log(error, place)),
        }
    }
}

fn with_log(error: io::Error, place: &ManagerPlace) -> io::Error {
    io::Error::new(error.kind(), format!("{error}; see {}", place.log().display()))
}

/// Whether a connection failed because the manager is no more.
fn has_ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Sends a request, and reads the first reply.
fn talk(
    mut stream: UnixStream,
    manager: ManagerOrigin,
    place: &ManagerPlace,
    request: &[u8],
) -> io::Result<(Reply, UnixStream)> {
    let reply = stream.write_all(request).and_then(|()| read_reply(&mut stream, place));
    // A manager that read the request before it ended has started properly: another one may, too.
    let has_read = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
    if manager == ManagerOrigin::Started
        && reply.as_ref().err().is_some_and(|error| !has_read(error))
    {
        start::note_failure(place);
    }
    Ok((reply?, stream))
}

fn request(compiler: &Compiler, arguments: &[OsString]) -> io::Result<CompileRequest> {
    // The umask can only be read by setting it.
    let mask = umask(rustix::fs::Mode::empty());
    umask(mask);
    let mut argv = Vec::with_capacity(1 + arguments.len());
    argv.push(compiler.name.clone());
    argv.extend_from_slice(arguments);
    Ok(CompileRequest {
        compiler: compiler.path.clone().into(),
        argv,
        cwd: env::current_dir()?.into_os_string(),
        env: env::vars_os().filter(|(name, _)| wire::is_wanted(name)).collect(),
        umask: mask.as_raw_mode(),
        terminal: io::stderr().is_terminal(),
    })
}

fn read_reply(stream: &mut UnixStream, place: &ManagerPlace) -> io::Result<Reply> {
    let mut head = [0; REPLY_BYTES];
    read_patiently(stream, &mut head, place)?;
    let unknown = |_| io::Error::other("the manager is another version");
    let mut reply = Reply::parse_head(&head).map_err(unknown)?;
    let texts = match &mut reply {
        Reply::Done { stdout, stderr, .. } => vec![stdout, stderr],
        Reply::Preprocess { words, beside } => vec![words, beside],
        Reply::Local { why } => vec![why],
    };
    texts.into_iter().try_for_each(|text| read_patiently(stream, text, place))?;
    Ok(reply)
}

/// Reads without a limit of time, as long as the manager is alive.
fn read_patiently(
    stream: &mut UnixStream,
    mut room: &mut [u8],
    place: &ManagerPlace,
) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    while !room.is_empty() {
        match stream.read(room) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => room = &mut room[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if start::answers(&place.socket()) => {}
            Err(_) => {
                start::note_silence(place);
                return Err(io::Error::other("the manager does not answer"));
            }
        }
    }
    Ok(())
}

fn finish(status: i32, stdout: &[u8], stderr: &[u8]) -> ExitCode {
    // If the outputs are closed, nothing can be shown.
    let _ = io::stdout().write_all(stdout).and_then(|()| io::stdout().flush());
    let _ = io::stderr().write_all(stderr);
    let status = ExitStatus::from_raw(status);
    if let Some(signal) = status.signal().and_then(Signal::from_named_raw) {
        let _ = kill_process(getpid(), signal);
    }
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Replaces this process by the compiler. Returns only if that fails.
fn become_compiler(
    compiler: &Compiler,
    arguments: &[OsString],
    slot: Option<&UnixStream>,
) -> ExitCode {
    let Compiler { path, name } = compiler;
    if let Some(slot) = slot {
        // If the connection closes at exec, the manager grants the slot again; this job still runs.
        let _ = fcntl_setfd(slot, FdFlags::empty());
    }
    let error = Command::new(path).arg0(name).args(arguments).env(NESTED, path).exec();
    eprintln!("outboard-cc: cannot run {}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::NotFound => ExitCode::from(NOT_FOUND),
        _ => ExitCode::from(NOT_FOUND - 1),
    }
}
