//! A served file system and its mounts, for tests of `outboard fs`.

use crate::home::{Home, Node, is_closed};
use outboard_testkit::PATIENCE;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// A directory for compiled modules that all servers share, if they get to it: a first start
/// compiles for seconds. Never where other users could put code.
fn shared_cache() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR"));
    (!is_closed(built)).then(|| built.join("cache"))
}

/// A shell that reads a line, and then runs a command as the script says.
pub(crate) fn on_a_line(outboard: &Command, script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("read go || exit; {script}")]).arg(outboard.get_program());
    shell.args(outboard.get_args());
    outboard.get_current_dir().map(|directory| shell.current_dir(directory));
    for (name, value) in outboard.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    shell
}

/// Ends a worker, also where its test fails.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A server that waits to be started.
pub(crate) struct ReadyServer(Child);

impl ReadyServer {
    pub(crate) fn start(self) -> Served {
        let Self(mut child) = self;
        child.stdin.take().expect("piped").write_all(b"go\n").expect("told");
        Self(child).told()
    }

    fn told(self) -> Served {
        let Self(mut child) = self;
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        out.read_line(&mut line).expect("a line");
        let address = line.split(' ').nth(4).unwrap_or_else(|| panic!("{line}")).to_owned();
        Served { node: Node(child), address }
    }
}

/// A server of a file system, and where it is. Dropped, it must end in order.
pub(crate) struct Served {
    pub(crate) node: Node,
    pub(crate) address: String,
}

impl Served {
    pub(crate) fn start(home: &Home, more: &[&str]) -> Self {
        Self::at(home, "127.0.0.1:0", more)
    }

    pub(crate) fn at(home: &Home, listen: &str, more: &[&str]) -> Self {
        Self::ready(home, listen, more).start()
    }

    /// A server that will be started. Files of a mount that are open in a process have to be closed
    /// in what it starts, and wait for the server: a server is no such process' child.
    pub(crate) fn ready(home: &Home, listen: &str, more: &[&str]) -> ReadyServer {
        Self::ready_as(home, &["serve", "--store", "store"], listen, more)
    }

    /// As [`Self::ready`], of any store, as a server or as a replica.
    pub(crate) fn ready_as(
        home: &Home,
        words: &[&str],
        listen: &str,
        more: &[&str],
    ) -> ReadyServer {
        let common = ["--no-root-squash", "--listen", listen];
        let outboard = home.command(&[&["fs"], words, &common, more].concat());
        let mut shell = on_a_line(&outboard, "exec \"$0\" \"$@\"");
        // Those of `of_table` start with an empty cache.
        shell.envs(shared_cache().map(|cache| ("XDG_CACHE_HOME", cache)));
        ReadyServer(shell.spawn().expect("a shell"))
    }

    /// A node with a table of its own, on a machine with other users: alice is in the group team,
    /// bob is not.
    pub(crate) fn of_table(home: &Home, table: &str) -> Self {
        let about = "[fs]\nstore = \"STORE\"\nsize = \"64MiB\"\nroot_squash = false\n";
        let about = about.replace("STORE", home.0.join("store").to_str().expect("text"));
        let config = format!("serve = [\"fs\"]\n{about}{table}");
        fs::write(home.0.join("node.toml"), config).expect("written");
        let users =
            "root:x:0:0::/:/bin/sh\nalice:x:4001:4001::/:/bin/sh\nbob:x:4002:4002::/:/bin/sh\n";
        fs::write(home.0.join("passwd"), users).expect("written");
        fs::write(home.0.join("group"), "root:x:0:\nteam:x:4100:alice\n").expect("written");
        let script =
            "mount --bind passwd /etc/passwd && mount --bind group /etc/group && exec \"$@\"";
        let outboard = home.command(&["node", "--config", "node.toml", "--listen", "127.0.0.1:0"]);
        let mut shell = Command::new("unshare");
        shell.args(["-m", "sh", "-c", script, "sh"]).arg(outboard.get_program());
        shell.args(outboard.get_args()).current_dir(&home.0).env("HOME", &home.0);
        shell.env("XDG_CACHE_HOME", home.0.join("cache"));
        let child = shell.stdout(Stdio::piped()).spawn().expect("unshare");
        ReadyServer(child).told()
    }

    /// The processes of its services.
    pub(crate) fn services(&self) -> Vec<u32> {
        let pid = self.node.0.id();
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let list = list.expect("children");
        list.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
    }

    pub(crate) fn kill_service(&self) {
        for service in self.services() {
            kill(service);
        }
    }

    /// Kills all of its processes, the supervisor first: nobody keeps its memory.
    pub(crate) fn kill_all(self) {
        let services = self.services();
        let mut node = ManuallyDrop::new(self.node);
        kill(node.0.id());
        services.into_iter().for_each(kill);
        let _killed = node.0.wait().expect("it ends");
    }
}

pub(crate) fn kill(process: u32) {
    if let Some(pid) = Pid::from_raw(process.cast_signed()) {
        // It may have ended by itself.
        let _sent = kill_process(pid, Signal::KILL);
    }
}

/// A mount, served by a process in the foreground. Dropped, it is unmounted.
pub(crate) struct Mounted {
    pub(crate) process: Child,
    pub(crate) directory: PathBuf,
}

impl Mounted {
    pub(crate) fn of(home: &Home, served: &Served, name: &str, options: &str) -> Self {
        Self::at(home, &served.address, name, options)
    }

    /// A mount of whichever of several hosts serves.
    pub(crate) fn at(home: &Home, hosts: &str, name: &str, options: &str) -> Self {
        let directory = home.0.join(name);
        fs::create_dir_all(&directory).expect("a directory");
        let source = format!("{hosts}:/");
        let path = directory.to_str().expect("text").to_owned();
        let words = ["fs", "mount", &source, &path, "--foreground", "-o", options];
        let begun = Instant::now();
        loop {
            let mut process = home.command(&words).spawn().expect("it starts");
            loop {
                if is_mounted(&directory) {
                    return Self { process, directory };
                }
                if process.try_wait().expect("known").is_some() {
                    // The first start compiles the modules, for which a mount does not wait so
                    // long.
                    break;
                }
                assert!(begun.elapsed() < PATIENCE, "it is not mounted");
                thread::sleep(Duration::from_millis(20));
            }
            assert!(begun.elapsed() < PATIENCE, "it cannot be mounted");
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn run(&self, script: &str) -> String {
        let output = Command::new("sh").args(["-ec", script]).current_dir(&self.directory).output();
        let output = output.expect("a shell");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.process.id().cast_signed()) {
            let _sent = kill_process(pid, Signal::TERM);
        }
        let _ended = self.process.wait();
    }
}

pub(crate) fn is_mounted(directory: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let path = directory.to_str().expect("text");
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(path))
}
