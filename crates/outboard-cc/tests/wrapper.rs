//! The wrapper as it is installed, with a manager that says what a test wants.

#![forbid(unsafe_code)]

use outboard_cc::wire::{HEAD_OCTETS, Reply, Request};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The wrapper, alone in a directory, so that no manager lies beside it.
fn wrapper() -> &'static Path {
    static WRAPPER: OnceLock<PathBuf> = OnceLock::new();
    WRAPPER.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("alone");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        fs::hard_link(env!("CARGO_BIN_EXE_outboard-cc"), dir.join("outboard-cc")).unwrap();
        dir.join("outboard-cc")
    })
}

/// A directory with a place for the socket, links, and a compiler that says how it was called.
struct World(PathBuf);

impl World {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("outboard-cc-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        for part in ["run", "links", "bin"] {
            fs::create_dir_all(dir.join(part)).unwrap();
        }
        fs::DirBuilder::new().mode(0o700).create(dir.join("run/outboard")).unwrap();
        let world = Self(dir);
        symlink(wrapper(), world.0.join("links/gcc")).unwrap();
        world.script("gcc", "echo \"home $*\"; exit ${CODE:-0}");
        world
    }

    fn script(&self, name: &str, text: &str) {
        let file = self.0.join("bin").join(name);
        // Written by another program: what this one has open cannot be run by its threads.
        let line =
            format!("printf '#!/bin/sh\\n%s\\n' \"$1\" > {0}; chmod 755 {0}", file.display());
        let status = Command::new("sh").args(["-c", &line, "sh", text]).status().unwrap();
        assert!(status.success());
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.0.join("links/gcc"));
        let path = format!("{0}/links:{0}/bin:/usr/bin:/bin", self.0.display());
        command.env("XDG_RUNTIME_DIR", self.0.join("run")).env("PATH", path).current_dir(&self.0);
        for name in ["OUTBOARD_CC_NESTED", "OUTBOARD_HOSTS", "OUTBOARD_KEY", "OUTBOARD_FABRIC"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// A manager that serves one wrapper.
    fn manager<T: Send + 'static>(
        &self,
        serve: impl FnOnce(UnixStream, Request) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let listener = UnixListener::bind(self.0.join("run/outboard/cc.sock")).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            listener.set_nonblocking(true).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut head = [0; HEAD_OCTETS];
            stream.read_exact(&mut head).unwrap();
            let mut body = vec![0; Request::body_octets(&head).unwrap()];
            stream.read_exact(&mut body).unwrap();
            let served = serve(stream, Request::parse(&body).unwrap());
            assert!(listener.accept().is_err(), "nobody else has come");
            served
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn answer(mut stream: &UnixStream, reply: &Reply) {
    let mut octets = Vec::new();
    reply.emit(&mut octets);
    stream.write_all(&octets).unwrap();
}

fn done(status: i32) -> Reply {
    Reply::Done { status, stdout: b"out\n".to_vec(), stderr: b"warning\n".to_vec() }
}

fn texts(output: &Output) -> (String, String) {
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn what_the_manager_did_is_shown_as_the_compilers() {
    let world = World::new("done");
    let manager = world.manager(|stream, request| {
        answer(&stream, &done(0));
        request
    });
    let output = world.command().args(["-c", "x.c"]).env("LANG", "xx").output().unwrap();
    assert_eq!(texts(&output), ("out\n".into(), "warning\n".into()));
    assert!(output.status.success());
    let request = manager.join().unwrap();
    assert_eq!(Path::new(&request.compiler), world.0.join("bin/gcc"));
    assert_eq!(request.argv[1..], ["-c", "x.c"]);
    assert_eq!(Path::new(&request.cwd), world.0);
    assert!(request.env.contains(&("LANG".into(), "xx".into())));
    assert!(!request.env.iter().any(|(name, _)| name == "HOME"));
    assert!(!request.terminal);
}

#[test]
fn status_and_signal_are_the_compilers() {
    for (status, code, signal) in [(3 << 8, Some(3), None), (9, None, Some(9))] {
        let world = World::new(&format!("status-{status}"));
        let manager = world.manager(move |stream, _| answer(&stream, &done(status)));
        let output = world.command().output().unwrap();
        assert_eq!((output.status.code(), output.status.signal()), (code, signal));
        manager.join().unwrap();
    }
}

#[test]
fn a_job_at_home_holds_its_slot_until_the_compiler_has_ended() {
    let world = World::new("home");
    world.script("gcc", "sleep 0.3; echo \"$OUTBOARD_CC_NESTED $*\"; exit 7");
    let manager = world.manager(|mut stream, _| {
        answer(&stream, &Reply::Home);
        let begin = Instant::now();
        // It says nothing more; the end comes with the compiler's.
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
        begin.elapsed()
    });
    let output = world.command().args(["-c", "x.c"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    let nested = format!("{} -c x.c\n", world.0.join("bin/gcc").display());
    assert_eq!(texts(&output), (nested, String::new()));
    assert!(manager.join().unwrap() > Duration::from_millis(250));
}

#[test]
fn a_manager_that_goes_away_costs_nothing_but_its_help() {
    for (name, part) in [("gone", 0), ("head", 7), ("texts", 18)] {
        let world = World::new(name);
        let manager = world.manager(move |mut stream, _| {
            let mut octets = Vec::new();
            done(0).emit(&mut octets);
            stream.write_all(&octets[..part]).unwrap();
        });
        let output = world.command().arg("-c").output().unwrap();
        assert_eq!(texts(&output), ("home -c\n".into(), String::new()));
        manager.join().unwrap();
    }
}

#[test]
fn without_a_manager_it_is_quiet_unless_asked() {
    let world = World::new("none");
    let output = world.command().arg("-c").env("CODE", "4").output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(texts(&output), ("home -c\n".into(), String::new()));
    let output = world.command().env("OUTBOARD_CC_VERBOSE", "1").output().unwrap();
    let (_, errors) = texts(&output);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.starts_with("outboard-cc: compiling at home: "), "{errors}");
}

#[test]
fn a_manager_that_cannot_start_is_tried_once() {
    let world = World::new("once");
    world.script("outboard", "echo started >> \"$XDG_RUNTIME_DIR/starts\"; exit 1");
    for _ in 0..5 {
        let output = world.command().arg("-c").output().unwrap();
        assert_eq!(texts(&output), ("home -c\n".into(), String::new()));
    }
    assert_eq!(fs::read_to_string(world.0.join("run/starts")).unwrap(), "started\n");
}

#[test]
fn a_manager_inherits_its_socket_and_nothing_else() {
    let world = World::new("inherits");
    let report = "ls -l /proc/$$/fd > \"$XDG_RUNTIME_DIR/fds.new\"; ps -o sid= -p $$ >> \
                  \"$XDG_RUNTIME_DIR/fds.new\"; echo $$ >> \"$XDG_RUNTIME_DIR/fds.new\"; \
                  mv \"$XDG_RUNTIME_DIR/fds.new\" \"$XDG_RUNTIME_DIR/fds\"";
    world.script("outboard", report);
    // The shell's descriptors 7 and 8 are what a build tool's pipes are to the wrapper.
    let line = "exec 7>leak 8</dev/null; exec links/gcc -c";
    let mut shell = world.command();
    let path = shell.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.unwrap().to_owned();
    shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(&world.0).env("PATH", path);
    shell.env("XDG_RUNTIME_DIR", world.0.join("run")).env_remove("OUTBOARD_CC_NESTED");
    assert!(shell.output().unwrap().status.success());
    let fds = fs::read_to_string(world.0.join("run/fds")).unwrap();
    assert!(fds.lines().any(|line| line.contains(" 0 -> socket:")), "{fds}");
    assert!(fds.lines().any(|line| line.contains("/run/outboard/cc.log")), "{fds}");
    assert!(!fds.contains(" 7 ->") && !fds.contains(" 8 ->") && !fds.contains("pipe:"), "{fds}");
    let mut last = fds.lines().rev().map(str::trim);
    assert_eq!(last.next(), last.next(), "leads its session: {fds}");
}

#[test]
fn what_a_compiler_at_home_calls_stays_at_home() {
    let world = World::new("nested");
    world.script("gcc", "echo outer; exec gcc inner");
    fs::create_dir(world.0.join("last")).unwrap();
    world.script("real", "echo \"real $*\"");
    fs::rename(world.0.join("bin/real"), world.0.join("last/gcc")).unwrap();
    let path = format!("{0}/links:{0}/bin:{0}/last:/usr/bin:/bin", world.0.display());
    let manager = world.manager(|mut stream, _| {
        answer(&stream, &Reply::Home);
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    });
    let output = world.command().env("PATH", path).output().unwrap();
    assert_eq!(texts(&output), ("outer\nreal inner\n".into(), String::new()));
    manager.join().unwrap();
}

#[test]
fn a_compiler_that_is_not_there_is_what_shells_say() {
    let world = World::new("absent");
    fs::remove_file(world.0.join("bin/gcc")).unwrap();
    let only = |dir: &str| world.0.join(dir).into_os_string();
    let output = world.command().env("PATH", only("links")).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    world.script("gcc", "");
    fs::write(world.0.join("bin/gcc"), "#!/absent/shell\n").unwrap();
    let output = world.command().env("PATH", only("bin")).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(texts(&output).1.starts_with("outboard-cc: cannot run "));
    let output = Command::new(wrapper()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn words_are_passed_as_they_are() {
    let world = World::new("words");
    world.script("gcc", "printf '<%s>' \"$@\"");
    let words = ["", "a b", "'\"\\", "new\nline", "-é"];
    let output = world.command().args(words).output().unwrap();
    assert_eq!(texts(&output).0, words.map(|word| format!("<{word}>")).concat());
}

#[test]
fn it_is_linked_statically() {
    if env!("OUTBOARD_CC_LINK") != "static" {
        println!("skipped: there is no static C library here");
        return;
    }
    let octets = fs::read(wrapper()).unwrap();
    let has = |name: &[u8]| octets.windows(name.len()).any(|window| window == name);
    assert!(!has(b"/ld-linux-"), "the dynamic loader takes longer than the wrapper");
}
