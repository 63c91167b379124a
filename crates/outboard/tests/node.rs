//! Keys, a node and its status, by the commands that people type.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A home of its own, gone with its owner.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("home-{name}"));
        let _absent = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outboard"));
        command.args(words).current_dir(&self.0).env("HOME", &self.0);
        command.env("XDG_CACHE_HOME", self.0.join("cache"));
        for word in ["XDG_CONFIG_HOME", "OUTBOARD_KEY", "OUTBOARD_HOSTS", "SLURM_JOB_NODELIST"] {
            command.env_remove(word);
        }
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// What a command prints, which must succeed.
    fn told(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command says when it fails, which it must.
    fn complaint(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// A node on a free port, and where it is.
    fn node(&self, words: &[&str]) -> (Node, String) {
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

struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _sent = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        assert!(self.0.wait().unwrap().success(), "it ends in order");
    }
}

#[test]
fn a_key_is_made_once_shown_and_exported() {
    let home = Home::new("key");
    assert!(home.told(&["key", "show"]).contains(": none"));
    assert!(home.complaint(&["key", "export", "compile"]).contains("outboard key new"));
    home.told(&["key", "new"]);
    let key = fs::read_to_string(home.0.join(".config/outboard/key")).unwrap();
    assert!(home.complaint(&["key", "new"]).contains("is there already"));
    assert!(home.told(&["key", "show"]).contains("the cluster's key"));
    assert!(
        !home.told(&["key", "show", "--json"]).contains(key.trim().rsplit(' ').next().unwrap())
    );
    home.told(&["key", "export", "compile"]);
    assert!(fs::read_to_string(home.0.join("compile.key")).unwrap().contains(" compile "));
    assert!(home.complaint(&["key", "export", "compile"]).contains("is there already"));
    home.complaint(&["key", "export", "No Service"]);
}

#[test]
fn a_node_makes_its_key_and_tells_how_it_is() {
    let home = Home::new("node");
    let (_node, address) = home.node(&["--slots", "3"]);
    let told = home.told(&["status", &address]);
    assert!(told.contains("slots 3"), "{told}");
    let json: serde_json::Value =
        serde_json::from_str(&home.told(&["status", "--json", &address])).unwrap();
    assert_eq!(json[0]["status"]["slots"], 3);
    let by_environment = home.command(&["status"]).env("OUTBOARD_HOSTS", &address).output();
    assert!(by_environment.unwrap().status.success());
    // Somebody else is nobody here.
    let stranger = Home::new("stranger");
    assert!(stranger.complaint(&["status", &address]).contains("there is no key"));
    stranger.told(&["key", "new"]);
    let output = stranger.run(&["status", &address]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("the peer refuses"), "{output:?}");
    assert!(!output.status.success());
}

#[test]
fn a_user_who_is_revoked_is_shut_out() {
    let (home, user) = (Home::new("revoker"), Home::new("revoked"));
    let (_node, address) = home.node(&[]);
    let key = home.0.join(".config/outboard/key");
    let ask = || user.command(&["status", &address]).env("OUTBOARD_KEY", &key).output().unwrap();
    assert!(ask().status.success());
    let shown: serde_json::Value =
        serde_json::from_str(&user.told(&["key", "show", "--json"])).unwrap();
    home.told(&["key", "revoke", shown["node"].as_str().unwrap(), "--why", "lost"]);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while ask().status.success() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    home.told(&["status", &address]);
    home.complaint(&["key", "revoke", "12"]);
}

#[test]
fn another_node_at_a_known_place_is_refused() {
    let home = Home::new("known");
    let (node, address) = home.node(&[]);
    home.told(&["status", &address]);
    drop(node);
    fs::remove_file(home.0.join(".config/outboard/identity")).unwrap();
    let mut again = home.command(&["node", "--listen", &address]);
    let mut child = again.stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let _node = Node(child);
    let output = home.run(&["status", &address]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("remove line 1 of"), "{output:?}");
}

#[test]
fn what_a_node_cannot_do_is_said() {
    let home = Home::new("wrong");
    let (_node, address) = home.node(&[]);
    assert!(home.complaint(&["node", "--listen", &address]).contains("cannot listen on"));
    assert!(home.complaint(&["node", "--serve", "nothing"]).contains("no service \"nothing\""));
    assert!(home.complaint(&["node", "--slots", "0"]).contains("at least one slot"));
    assert!(home.complaint(&["node", "--config", "none.toml"]).contains("none.toml"));
    fs::write(home.0.join("bad.toml"), "listen = 3").unwrap();
    assert!(home.complaint(&["node", "--config", "bad.toml"]).contains("bad.toml: TOML parse"));
    assert!(home.complaint(&["node-service", "nothing"]).contains("`outboard node` starts"));
}
