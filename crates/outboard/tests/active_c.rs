//! liboutboard_active.so.1 as programs in C use it: compiled by several compilers, run against a
//! node, which is killed, stopped and started as they ask. `cargo xtask test active-c` makes the
//! library first and runs this.

#[path = "../../active/tests/support/modules.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod modules;

use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any program takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(400);

const GCC: &[&str] = &["gcc", "-std=c99"];
const CLANG: &[&str] = &["clang", "-std=c99"];
const CPP: &[&str] = &["g++", "-x", "c++", "-std=c++17"];
/// Looks for memory that is lost, in the library too.
const SANITIZED: &[&str] =
    &["gcc", "-std=c99", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../active-c").join(name)
}

/// Where `cargo xtask libs` puts the libraries.
fn libraries() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_outboard")).with_file_name("lib")
}

/// What pkg-config says of the library.
fn flags() -> Vec<String> {
    let mut config = Command::new("pkg-config");
    config.args(["--cflags", "--libs", "outboard-active"]);
    config.env("PKG_CONFIG_PATH", libraries().join("pkgconfig"));
    let output = config.output().expect("pkg-config");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.split_whitespace().map(str::to_owned).collect()
}

/// A directory with a key, a node and the programs that use it.
struct Site {
    directory: tempfile::TempDir,
    node: Child,
    address: String,
}

impl Site {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let module = directory.path().join("basics.wasm");
        fs::write(module, modules::basics(0)).expect("written");
        let table = "[active]\ntime_ms = 60000\nexecutions = 8\n\n[active.regions.kv]\n\
                     size = \"1MiB\"\n\n[active.regions.table]\nsize = \"16MiB\"\n";
        fs::write(directory.path().join("node.toml"), table).expect("written");
        let made = outboard(directory.path(), &["key", "new"]).output().expect("started");
        assert!(made.status.success(), "{made:?}");
        let (node, address) = start(directory.path(), "127.0.0.1:0");
        Self { directory, node, address }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Compiles a program of `tests/c` or `examples`.
    fn compile(&self, compiler: &[&str], program: &str) -> PathBuf {
        let name = Path::new(program).file_stem().and_then(OsStr::to_str).expect("a name");
        let binary = self.path().join(format!("{name}.{}.{}", compiler[0], compiler.len()));
        let mut cc = Command::new(compiler[0]);
        cc.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-O1"]);
        cc.arg(source(program)).arg("-o").arg(&binary).args(flags()).arg("-lpthread");
        let output = cc.output().expect("a compiler");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler:?} {program}: {said}");
        binary
    }

    /// Runs a program to its end, does what it says on the way; what it printed besides.
    fn run(&mut self, binary: &Path, words: &[&str]) -> Vec<String> {
        let mut command = Command::new(binary);
        command.arg(&self.address).args(words).env("HOME", self.path());
        command.env("LD_LIBRARY_PATH", libraries()).env_remove("XDG_CONFIG_HOME");
        command.env_remove("OUTBOARD_KEY").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Running(command.spawn().expect("started"));
        let mut says = child.0.stdin.take().expect("piped");
        let lines = lines(child.0.stdout.take().expect("piped"));
        let (deadline, mut told) = (Instant::now() + LIMIT, Vec::new());
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match lines.recv_timeout(left) {
                Ok(line) if self.does(&line) => says.write_all(b"done\n").expect("it listens"),
                Ok(line) => told.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("{binary:?} takes too long"),
            }
        }
        let status = child.0.wait().expect("it ends");
        assert!(status.success(), "{binary:?}: {status}; it printed {told:?}");
        told
    }

    /// Does to the node what a program says.
    fn does(&mut self, word: &str) -> bool {
        match word {
            "kill service" => self.signal(Signal::KILL),
            "stop service" => self.signal(Signal::STOP),
            "continue service" => self.signal(Signal::CONT),
            "kill node" => {
                let service = self.service();
                self.node.kill().expect("it runs");
                self.node.wait().expect("it ends");
                // It ends by itself, a moment later.
                wait_for_end(service);
            }
            "start node" => self.node = start(self.path(), &self.address).0,
            _ => return false,
        }
        true
    }

    /// The process of the service; a moment after it was killed there is none.
    fn service(&self) -> Pid {
        let pid = self.node.id();
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let children = children.unwrap_or_default();
            let first = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
            if let Some(service) = first.and_then(Pid::from_raw) {
                return service;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the node has no service");
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.service(), signal).expect("it is there");
    }

    /// Runs one of the test programs.
    fn test(&mut self, compiler: &[&str], program: &str) {
        let binary = self.compile(compiler, &format!("tests/c/{program}.c"));
        let module = self.path().join("basics.wasm").display().to_string();
        let told = self.run(&binary, &["kv", &module]);
        assert_eq!(told, Vec::<String>::new());
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // It may have ended.
        let _killed = self.node.kill();
        let _ended = self.node.wait();
    }
}

/// A program that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, usually.
        let _killed = self.0.kill();
        let _ended = self.0.wait();
    }
}

fn outboard(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outboard"));
    command.args(words).current_dir(home).env("HOME", home);
    command.env("XDG_CACHE_HOME", home.join("cache"));
    for word in ["XDG_CONFIG_HOME", "OUTBOARD_KEY", "OUTBOARD_HOSTS", "SLURM_JOB_NODELIST"] {
        command.env_remove(word);
    }
    command
}

/// A node, and where it is.
fn start(home: &Path, address: &str) -> (Child, String) {
    let words = ["node", "--config", "node.toml", "--serve", "active", "--listen", address];
    let mut child = outboard(home, &words).stdout(Stdio::piped()).spawn().expect("started");
    let mut line = String::new();
    let mut said = BufReader::new(child.stdout.take().expect("piped"));
    said.read_line(&mut line).expect("a line");
    let address = line.split(' ').nth(4).unwrap_or_else(|| panic!("{line}")).to_owned();
    (child, address)
}

fn wait_for_end(process: Pid) {
    let deadline = Instant::now() + LIMIT;
    while kill_process(process, Signal::KILL).is_ok() {
        assert!(Instant::now() < deadline, "the service outlives its node");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The lines that a program prints, as they come.
fn lines(from: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            // The test may have failed.
            let _sent = sender.send(line);
        }
    });
    lines
}

#[test]
fn every_function_does_what_the_header_says_whichever_compiler_was_used() {
    for compiler in [GCC, CLANG, CPP, SANITIZED] {
        Site::new().test(compiler, "basics");
    }
}

#[test]
fn wrong_arguments_are_answered() {
    for compiler in [GCC, CPP] {
        Site::new().test(compiler, "nonsense");
    }
}

#[test]
fn nodes_and_services_may_end_with_calls_under_way() {
    Site::new().test(GCC, "ends");
}

#[test]
fn threads_take_turns_and_close_whenever_they_like() {
    Site::new().test(CLANG, "threads");
}

#[test]
fn clients_leave_nothing_behind() {
    Site::new().test(SANITIZED, "handles");
}

#[test]
fn forks_do_no_harm() {
    Site::new().test(GCC, "fork");
}

#[test]
fn the_example_says_what_the_documentation_shows() {
    let mut site = Site::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules/built/script.wasm");
    let script = script.display().to_string();
    // Once beforehand: a node that was built without optimisation compiles for seconds.
    let words = ["active", "exec", &script, "get", "u64:0", "text:x", "--limit", "200"];
    let words = [&words[..], &["--region", "table", "--node", &site.address]].concat();
    outboard(site.path(), &words).output().expect("started");
    let binary = site.compile(CLANG, "examples/visits.c");
    let told = site.run(&binary, &["table", &script]);
    let page = fs::read_to_string(source("../../docs/active-c.md")).expect("the page");
    assert!(page.contains(&told.join("\n")), "{told:?}");
    let text = fs::read_to_string(source("examples/visits.c")).expect("the example");
    assert!(page.contains(&text), "the page has another example");
    assert!(text.lines().count() < 80, "too long");
}
