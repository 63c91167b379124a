//! A copy of the example `modules/packets` with a home of its own, and applications that run in it.

use crate::home::Home;
use outboard_testkit::PATIENCE;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../modules/packets");
/// The node in the layout files.
const NODE: &str = "127.0.0.1:7471";
const LOOK: Duration = Duration::from_millis(20);

pub(crate) fn signal(process: u32, signal: Signal) {
    let pid = Pid::from_raw(process.cast_signed()).expect("a process");
    kill_process(pid, signal).expect("sent");
}

/// Whether a process has ended; a zombie has.
pub(crate) fn is_over(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.is_empty() || rest.starts_with(" Z"))
}

/// The processes that a process has started.
fn children(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
    let list = |task: fs::DirEntry| fs::read_to_string(task.path().join("children"));
    let lists = tasks.flatten().filter_map(|task| list(task).ok());
    let pids: Vec<u32> = lists
        .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .map(|pid| pid.parse().expect("a number"))
        .collect();
    pids
}

/// See this file's first lines.
pub(crate) struct Playground {
    home: Home,
    /// Sockets of applications are here: their paths must be short.
    sockets: tempfile::TempDir,
}

impl Playground {
    pub(crate) fn new(name: &str) -> Self {
        let home = Home::new(&format!("offload-{name}"));
        let sockets = tempfile::tempdir().expect("a directory");
        copy(Path::new(EXAMPLE), &home.0);
        Self { home, sockets }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.0.join(name)
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.home.command(words);
        command.env("XDG_RUNTIME_DIR", self.sockets.path()).env("TMPDIR", self.sockets.path());
        command
    }

    fn offload(&self, words: &[&str]) -> Command {
        self.command(&[&["offload"], words].concat())
    }

    pub(crate) fn output(&self, words: &[&str]) -> Output {
        self.offload(words).stdin(Stdio::null()).output().expect("it ends")
    }

    /// What a command prints, which must succeed.
    pub(crate) fn told(&self, words: &[&str]) -> String {
        let output = self.output(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8(output.stdout).expect("text")
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.told(words)).expect("JSON")
    }

    /// What a command says when it fails, which it must with code 1.
    pub(crate) fn complaint(&self, words: &[&str]) -> String {
        let output = self.output(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    /// A processor that this process may run on.
    pub(crate) fn core(&self) -> String {
        let devices = self.json(&["devices", "--json"]);
        let names = devices.as_array().expect("a list").iter();
        let mut names = names.filter_map(|device| device["name"].as_str());
        names.find_map(|name| name.strip_prefix("core:")).expect("a core").to_owned()
    }

    /// A layout file of the example for this machine's core.
    pub(crate) fn on_core(&self, name: &str) -> String {
        let core = self.core();
        self.changed(name, "core", &|text| {
            text.replace("core:1", &format!("core:{core}"))
                .replace("cores = [1]", &format!("cores = [{core}]"))
        })
    }

    /// The same for a node.
    pub(crate) fn on_node(&self, name: &str, address: &str) -> String {
        self.changed(name, "node", &|text| text.replace(NODE, address))
    }

    /// The same without lines that say where offcodes run.
    pub(crate) fn unpinned(&self, name: &str) -> String {
        self.changed(name, "free", &|text| {
            let lines = text.lines().filter(|line| !line.starts_with("on = "));
            lines.map(|line| format!("{line}\n")).collect()
        })
    }

    fn changed(&self, name: &str, what: &str, change: &dyn Fn(&str) -> String) -> String {
        let text = fs::read_to_string(self.path(name)).expect("there");
        let name = format!("{what}-{name}");
        fs::write(self.path(&name), change(&text)).expect("written");
        name
    }

    /// A node that serves `offload`, with a new key of this home.
    pub(crate) fn node(&self) -> (OffloadNode, String) {
        self.node_with(&[])
    }

    /// The same with more words.
    pub(crate) fn node_with(&self, words: &[&str]) -> (OffloadNode, String) {
        let all = ["node", "--listen", "127.0.0.1:0", "--serve", "offload"];
        let mut command = self.command(&[&all, words].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        out.read_line(&mut line).expect("a line");
        let address = line.split(' ').nth(4).unwrap_or_else(|| panic!("{line}")).to_owned();
        (OffloadNode { child, is_killed: false }, address)
    }

    /// What an application prints when all packets are its input.
    pub(crate) fn pages(&self, layout: &str) -> Vec<String> {
        self.pages_with(layout, None).expect("it runs")
    }

    /// The same with another key; an error is what it says.
    pub(crate) fn pages_with(
        &self,
        layout: &str,
        key: Option<&str>,
    ) -> Result<Vec<String>, String> {
        let mut command = self.offload(&["run", layout]);
        if let Some(key) = key {
            command.env("OUTBOARD_KEY", key);
        }
        let output = self.fed(command);
        match output.status.success() {
            true => {
                let text = String::from_utf8(output.stdout).expect("text");
                Ok(text.lines().map(str::to_owned).collect())
            }
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    pub(crate) fn run_with_packets(&self, layout: &str, words: &[&str]) -> Output {
        let output = self.fed(self.offload(&[&["run", layout], words].concat()));
        assert!(output.status.success(), "{output:?}");
        output
    }

    fn fed(&self, mut command: Command) -> Output {
        let input = fs::File::open(self.path("packets.txt")).expect("there");
        command.stdin(input).output().expect("it ends")
    }

    /// Starts an application, which runs until it is stopped.
    pub(crate) fn start(&self, layout: &str, words: &[&str]) -> RunningApp<'_> {
        let mut command = self.offload(&[&["run", "--keep", layout], words].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let input = child.stdin.take().expect("piped");
        let mut output = child.stdout.take().expect("piped");
        // Pages are not looked at; whoever writes them must not wait.
        thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        let (sender, lines) = mpsc::channel();
        let errors = child.stderr.take().expect("piped");
        thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let app = RunningApp { place: self, child, input, lines, fed: 0 };
        for _ in 0..3 {
            app.wait_for_line("has started", PATIENCE);
        }
        // Its control socket was there before it printed that.
        app
    }

    /// Names of sockets that are there.
    pub(crate) fn sockets(&self) -> Vec<String> {
        let directory = self.sockets.path().join("outboard-offload");
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("copied")),
        }
    }
}

/// An application in the foreground of nobody.
pub(crate) struct RunningApp<'a> {
    place: &'a Playground,
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    /// Packets that it was given.
    fed: u64,
}

impl RunningApp<'_> {
    /// Gives it all packets, once more.
    pub(crate) fn feed_all(&mut self) {
        let packets = fs::read_to_string(self.place.path("packets.txt")).expect("there");
        self.input.write_all(packets.as_bytes()).expect("taken");
        self.fed += packets.lines().count() as u64;
    }

    /// What its counter says.
    pub(crate) fn total(&self) -> u64 {
        let total = self.place.told(&["call", "packets", "counter", "total"]);
        total.trim().parse().expect("a number")
    }

    pub(crate) fn wait_for_total(&self, wanted: u64, limit: Duration) {
        let until = Instant::now() + limit;
        loop {
            let total = self.total();
            if total == wanted {
                break;
            }
            assert!(total < wanted && Instant::now() < until, "{total} of {wanted}");
            thread::sleep(LOOK);
        }
        // Counters in `ps` come with heartbeats.
        let received = || {
            let all = self.place.json(&["ps", "packets", "--json"]);
            all[0]["offcodes"][0]["received"].as_u64().expect("a number")
        };
        while received() != self.fed {
            assert!(Instant::now() < until, "{} messages", received());
            thread::sleep(LOOK);
        }
    }

    pub(crate) fn wait_for_line(&self, words: &str, limit: Duration) {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(words) => return,
                Ok(_) => {}
                Err(error) => panic!("no line with {words:?}: {error}"),
            }
        }
    }

    pub(crate) fn json_pid(&self) -> Value {
        json!(self.child.id())
    }

    pub(crate) fn children(&self) -> Vec<u32> {
        children(self.child.id())
    }

    pub(crate) fn signal(&self, which: Signal) {
        signal(self.child.id(), which);
    }

    /// How it ended.
    pub(crate) fn end(&mut self, limit: Duration) -> ExitStatus {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                return status;
            }
            assert!(Instant::now() < until, "it does not end");
            thread::sleep(LOOK);
        }
    }
}

impl Drop for RunningApp<'_> {
    fn drop(&mut self) {
        let _over = self.child.kill();
        let _over = self.child.wait();
    }
}

/// A node, which must end in order when it is dropped, unless it was killed.
pub(crate) struct OffloadNode {
    child: Child,
    is_killed: bool,
}

impl OffloadNode {
    /// Kills it, and its service's process, as a machine that loses power does.
    pub(crate) fn kill(mut self) {
        self.is_killed = true;
        let services = children(self.child.id());
        self.child.kill().expect("killed");
        for service in services.into_iter().filter(|service| !is_over(*service)) {
            let pid = Pid::from_raw(service.cast_signed()).expect("a process");
            // It may have ended with its node.
            let _over = kill_process(pid, Signal::KILL);
        }
        let _over = self.child.wait();
    }
}

impl Drop for OffloadNode {
    fn drop(&mut self) {
        if self.is_killed {
            return;
        }
        let pid = Pid::from_child(&self.child);
        let _sent = kill_process(pid, Signal::TERM);
        let status = self.child.wait().expect("it is ours");
        assert!(status.success() || thread::panicking(), "it ends in order: {status}");
    }
}
