//! `outboard top` beside a node: one frame as text and as JSON, and what does not answer.

#![forbid(unsafe_code)]

use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::tcgetattr;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_outboard");

/// A user with a node.
struct User {
    directory: PathBuf,
    node: Child,
    address: String,
}

impl User {
    fn new(name: &str) -> Self {
        let name = format!("outboard-top-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(directory.join("run")).unwrap();
        let mut node = command(&directory)
            .args(["node", "--listen=127.0.0.1:0", "--serve=compile", "--with-parent"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(node.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split(' ').skip_while(|word| *word != "on").nth(1).unwrap().to_owned();
        Self { directory, node, address }
    }

    fn top(&self, words: &[&str]) -> Output {
        command(&self.directory).arg("top").args(words).output().unwrap()
    }
}

fn command(directory: &std::path::Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("XDG_CONFIG_HOME", directory).env("XDG_STATE_HOME", directory);
    command.env("XDG_RUNTIME_DIR", directory.join("run")).env_remove("OUTBOARD_KEY");
    command
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn a_frame_has_every_host_and_goes_on_without_those_that_are_silent() {
    let user = User::new("hosts");
    // No program listens on port 1.
    let hosts = format!("{},127.0.0.1:1", user.address);
    let output = user.top(&[&hosts, "--once", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let frame: Value = serde_json::from_slice(&output.stdout).unwrap();
    let servers = frame["servers"].as_array().unwrap();
    assert_eq!(servers[0]["host"], user.address.as_str());
    // Where there are no user namespaces the service says so instead.
    let error = servers[0]["error"].as_str().unwrap_or("service compile");
    assert!(error.starts_with("service compile"), "{error}");
    assert!(servers[1]["error"].as_str().unwrap().contains("Connection refused"), "{frame}");
    assert_eq!((&frame["calls"], &frame["counters"]["remote"]), (&0.into(), &0.into()));

    let output = user.top(&[&hosts, "--once"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("servers "), "{text}");
    assert!(text.lines().any(|line| line.starts_with(&user.address)), "{text}");
    assert!(!text.contains('\x1b'), "{text:?}");

    // As with `status`, the exit code says that no server is there.
    for words in [&["127.0.0.1:1", "--once"][..], &["127.0.0.1:1", "--once", "--json"]] {
        let output = user.top(words);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {text}");
        assert_eq!(text.matches("127.0.0.1:1").count(), words.len() - 1, "{text}");
    }
}

#[test]
fn without_a_terminal_it_prints_a_frame_each_second() {
    let user = User::new("frames");
    let mut top = command(&user.directory)
        .args(["top", &user.address, "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(top.stdout.take().unwrap()).lines();
    let frames: Vec<Value> =
        lines.take(2).map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert!(frames[0]["jobs_per_s"].is_null() || frames[0]["jobs_per_s"] == 0.0);
    assert_eq!(frames[1]["servers"][0]["host"], user.address.as_str());
    // Its reader is gone: it ends by itself.
    assert!(top.wait().unwrap().success());
}

#[test]
fn q_ends_it_and_the_terminal_is_as_it_was() {
    let user = User::new("keys");
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = File::options().read(true).write(true).open(OsStr::from_bytes(name.as_bytes()));
    let slave = slave.unwrap();
    let modes = || tcgetattr(&slave).unwrap().local_modes;
    let before = modes();
    let mut top = command(&user.directory)
        .args(["top", &user.address])
        .stdin(slave.try_clone().unwrap())
        .stdout(slave.try_clone().unwrap())
        .spawn()
        .unwrap();
    let mut terminal = File::from(master);
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains("your builds: ") {
        let mut bytes = [0; 4096];
        let count = terminal.read(&mut bytes).unwrap();
        shown.extend_from_slice(&bytes[..count]);
    }
    assert!(shown.starts_with(b"\x1b[?1049h"));
    assert_ne!(modes(), before);
    terminal.write_all(b"xq").unwrap();
    assert!(top.wait().unwrap().success());
    assert_eq!(modes(), before);
}
