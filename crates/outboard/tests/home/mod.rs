//! A user with a home directory, who types commands and starts nodes.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Output, Stdio};
use std::{env, fs};

/// Whether the build lies where its owner alone gets to: root's services run as users of their own.
pub(crate) fn is_closed(built: &Path) -> bool {
    let is_closed = |at: &Path| fs::metadata(at).unwrap().permissions().mode() & 0o001 == 0;
    rustix::process::geteuid().is_root() && built.ancestors().any(is_closed)
}

/// Where a home is: beside the build, if services get to that.
fn place(name: &str) -> PathBuf {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if is_closed(built) {
        return env::temp_dir().join(format!("outboard-home-{}-{name}", process::id()));
    }
    built.join(format!("home-{name}"))
}

/// A home of its own, gone with its owner.
pub(crate) struct Home(pub(crate) PathBuf);

impl Home {
    pub(crate) fn new(name: &str) -> Self {
        let path = place(name);
        let _absent = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outboard"));
        command.args(words).current_dir(&self.0).env("HOME", &self.0);
        command.env("XDG_CACHE_HOME", self.0.join("cache"));
        for word in ["XDG_CONFIG_HOME", "OUTBOARD_KEY", "OUTBOARD_HOSTS", "SLURM_JOB_NODELIST"] {
            command.env_remove(word);
        }
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// What a command prints, which must succeed.
    pub(crate) fn told(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command says when it fails, which it must.
    pub(crate) fn complaint(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// A node on a free port, and where it is.
    pub(crate) fn node(&self, words: &[&str]) -> (Node, String) {
        let words = [&["node", "--listen", "127.0.0.1:0"], words].concat();
        let mut child = self.command(&words).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split(' ').nth(4).unwrap_or_else(|| panic!("{line}")).to_owned();
        (Node(child), address)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// A node, which must end in order when it is dropped.
pub(crate) struct Node(pub(crate) Child);

impl Drop for Node {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _sent = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        assert!(self.0.wait().unwrap().success(), "it ends in order");
    }
}
