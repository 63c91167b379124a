//! The shipped modules as a program of this machine (modules/native/driver.c): entries are executed
//! as lines of its standard input say.

use std::fs::DirEntry;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::SystemTime;

/// Every shipped module, each behind those that it imports.
pub(crate) const MODULES: [&str; 11] =
    ["empty", "alloc", "table", "list", "lock", "script", "topk", "blocks", "inode", "names", "fs"];

/// Options of the compiler: what the modules do must not depend on undefined behaviour.
const OPTIONS: &[&str] = &[
    "-std=gnu11",
    "-O1",
    "-g",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-DOB_NATIVE",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-I.",
    "-Iinclude",
    "-Ibuilt",
];

/// What came of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Done(Vec<u8>),
    Failed(i32, String),
    /// The engines say it in other words.
    Trap,
}

/// The directory of the modules' sources.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules")
}

/// The driver, running.
#[derive(Debug)]
pub(crate) struct NativeModules {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

/// The driver's program, compiled unless it is newer than its sources and these tests: each test
/// may be a process of its own.
fn driver() -> PathBuf {
    let modified = |path: &Path| path.metadata().and_then(|about| about.modified());
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let driver = directory.join("driver");
    let own = modified(&std::env::current_exe().expect("a path")).expect("a time");
    let is_fresh = |made: SystemTime| made > own && made > last_change(&sources());
    if !modified(&driver).is_ok_and(is_fresh) {
        let made = directory.join(format!("driver-{}", std::process::id()));
        let files = MODULES.iter().map(|name| format!("{name}/{name}.c"));
        let mut command = Command::new("cc");
        command.current_dir(sources()).args(OPTIONS).args(files);
        command.args(["native/host.c", "native/driver.c"]).arg("-o").arg(&made);
        assert!(command.status().expect("a C compiler").success(), "the modules compile natively");
        // Under one name, so that runs leave one program behind, and started by others' as well.
        std::fs::rename(made, &driver).expect("renamed");
    }
    driver
}

/// When anything in a directory was last changed.
fn last_change(directory: &Path) -> SystemTime {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let change = |entry: std::io::Result<DirEntry>| {
        let entry = entry.expect("an entry");
        let about = entry.metadata().expect("an entry");
        let own = about.modified().expect("a time");
        if about.is_dir() { own.max(last_change(&entry.path())) } else { own }
    };
    entries.map(change).max().unwrap_or(SystemTime::UNIX_EPOCH)
}

impl NativeModules {
    /// Starts the driver with a region of so many bytes.
    pub(crate) fn start(region_len: usize) -> Self {
        let mut command = Command::new(driver());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the driver starts");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let stdout = BufReader::new(stdout);
        let mut modules = Self { child, stdin, stdout };
        modules.settle(&format!("region {region_len}"));
        modules
    }

    /// Executes `MODULE.ENTRY`.
    pub(crate) fn execute(&mut self, name: &str, args: &[u8]) -> Came {
        let answer = self.ask(&format!("{name} {}", hex(args)));
        let (word, rest) = answer.split_once(' ').unwrap_or((&answer, ""));
        match word {
            "done" => Came::Done(bytes(rest)),
            "failed" => {
                let (code, text) = rest.split_once(' ').expect("a code and a text");
                Came::Failed(code.parse().expect("a number"), text.to_owned())
            }
            "trap" => Came::Trap,
            _ => panic!("the driver answers {answer:?}"),
        }
    }

    /// Bytes of the region.
    pub(crate) fn read(&mut self, offset: usize, len: usize) -> Vec<u8> {
        let answer = self.ask(&format!("read {offset} {len}"));
        bytes(answer.strip_prefix("done ").expect("bytes"))
    }

    /// Changes bytes of the region, as a peer does.
    pub(crate) fn write(&mut self, offset: usize, what: &[u8]) {
        self.settle(&format!("write {offset} {}", hex(what)));
    }

    /// Makes all bytes of the region zero.
    pub(crate) fn clear(&mut self, region_len: usize) {
        self.settle(&format!("region {region_len}"));
    }

    /// What time it is for what follows, in nanoseconds by both clocks.
    pub(crate) fn set_time(&mut self, now_ns: u64, seed: u64) {
        self.settle(&format!("time {now_ns} {now_ns} {seed}"));
    }

    fn settle(&mut self, line: &str) {
        assert_eq!(self.ask(line), "ok", "{line}");
    }

    fn ask(&mut self, line: &str) -> String {
        let stdin = self.stdin.as_mut().expect("open until it is dropped");
        let sent = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        let mut answer = String::new();
        let read = sent.and_then(|()| self.stdout.read_line(&mut answer));
        assert!(read.is_ok_and(|len| len > 0), "the driver ended at the line {line:.200}");
        answer.trim_end_matches('\n').to_owned()
    }
}

impl Drop for NativeModules {
    fn drop(&mut self) {
        self.stdin = None;
        let _ended = self.child.wait();
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

// Regions are long: no formatting of each byte.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

fn bytes(text: &str) -> Vec<u8> {
    let digit = |digit: u8| if digit > b'9' { digit - b'a' + 10 } else { digit - b'0' };
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
