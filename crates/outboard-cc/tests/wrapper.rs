//! The wrapper as it is installed, with a manager that replies as a test wants.

#![forbid(unsafe_code)]

use outboard_cc::place::ManagerPlace;
use outboard_cc::wire::{CompileRequest, HEAD_BYTES, Reply};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

/// The variables of which each value has a manager of its own.
const SETTINGS: [&str; 7] = [
    "HOME",
    "OUTBOARD_FABRIC",
    "OUTBOARD_HOSTS",
    "OUTBOARD_KEY",
    "OUTBOARD_LOG",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
];

/// The wrapper, alone in a directory, so that no manager lies beside it.
fn wrapper() -> &'static Path {
    static WRAPPER: OnceLock<PathBuf> = OnceLock::new();
    WRAPPER.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("alone");
        fs::create_dir_all(&dir).unwrap();
        // Renamed over that of another run: each test may be a process of its own.
        let fresh = dir.join(std::process::id().to_string());
        fs::hard_link(env!("CARGO_BIN_EXE_outboard-cc"), &fresh).unwrap();
        fs::rename(&fresh, dir.join("outboard-cc")).unwrap();
        let _ = fs::remove_file(fresh); // It stays where both are links to one file.
        dir.join("outboard-cc")
    })
}

/// A directory for the socket, links, and a compiler that prints its arguments.
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
        world.script("gcc", "echo \"local $*\"; exit ${CODE:-0}");
        world
    }

    fn script(&self, name: &str, text: &str) {
        let file = self.0.join("bin").join(name);
        // Another program writes the script: a file that this process has open for writing cannot
        // be executed by its other threads.
        let line =
            format!("printf '#!/bin/sh\\n%s\\n' \"$1\" > {0}; chmod 755 {0}", file.display());
        let status = Command::new("sh").args(["-c", &line, "sh", text]).status().unwrap();
        assert!(status.success());
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.0.join("links/gcc"));
        let path = format!("{0}/links:{0}/bin:/usr/bin:/bin", self.0.display());
        command.env("XDG_RUNTIME_DIR", self.0.join("run")).env("PATH", path).current_dir(&self.0);
        for name in SETTINGS.into_iter().chain(["OUTBOARD_CC_NESTED"]) {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Where wrappers look for a manager.
    fn place(&self) -> ManagerPlace {
        ManagerPlace::at(&self.0.join("run/outboard")).unwrap()
    }

    /// A manager that serves one wrapper.
    fn manager<T: Send + 'static>(
        &self,
        serve: impl FnOnce(UnixStream, CompileRequest) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let listener = UnixListener::bind(self.place().socket()).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            listener.set_nonblocking(true).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut head = [0; HEAD_BYTES];
            stream.read_exact(&mut head).unwrap();
            let mut body = vec![0; CompileRequest::body_bytes(&head).unwrap()];
            stream.read_exact(&mut body).unwrap();
            let served = serve(stream, CompileRequest::parse(&body).unwrap());
            assert!(listener.accept().is_err(), "no other wrapper has connected");
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
    let mut bytes = Vec::new();
    reply.emit(&mut bytes);
    stream.write_all(&bytes).unwrap();
}

fn done(status: i32) -> Reply {
    Reply::Done { status, stdout: b"out\n".to_vec(), stderr: b"warning\n".to_vec() }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_remote_compilers_output_is_shown_as_its_own() {
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
fn a_local_compiler_has_the_name_by_which_it_was_called() {
    let world = World::new("name");
    let run = |program: &Path, words: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(words)
            .env("PATH", "/usr/bin:/bin")
            .env("XDG_RUNTIME_DIR", world.0.join("run"));
        let output = command.env("OUTBOARD_CC_NESTED", "/none").output().unwrap();
        texts(&output).0
    };
    assert_eq!(run(wrapper(), &["sh", "-c", "echo $0"]), "sh\n");
    symlink(wrapper(), world.0.join("links/sh")).unwrap();
    assert_eq!(run(&world.0.join("links/sh"), &["-c", "echo $0"]), "sh\n");
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
fn a_local_job_holds_its_slot_until_the_compiler_has_ended() {
    let world = World::new("local");
    world.script("gcc", "sleep 0.3; echo \"$OUTBOARD_CC_NESTED $*\"; exit 7");
    let manager = world.manager(|mut stream, _| {
        answer(&stream, &Reply::Local { why: Vec::new() });
        let begin = Instant::now();
        // The manager sends nothing more; the connection ends with the compiler.
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
fn when_the_manager_ends_the_job_runs_locally() {
    for (name, part) in [("gone", 0), ("head", 7), ("texts", 18)] {
        let world = World::new(name);
        let socket = world.place().socket();
        let manager = world.manager(move |mut stream, _| {
            let mut bytes = Vec::new();
            done(0).emit(&mut bytes);
            fs::remove_file(socket).unwrap();
            stream.write_all(&bytes[..part]).unwrap();
        });
        let output = world.command().arg("-c").output().unwrap();
        assert_eq!(texts(&output), ("local -c\n".into(), String::new()));
        manager.join().unwrap();
    }
}

/// A manager was told to end while a wrapper waited for it. Its connections end before its socket
/// does; then the wrapper starts another manager.
#[test]
fn when_a_manager_ends_another_is_started() {
    let world = World::new("another");
    world.script("outboard", "echo started >> \"$XDG_RUNTIME_DIR/starts\"; exit 1");
    let socket = world.place().socket();
    let listener = UnixListener::bind(&socket).unwrap();
    let manager = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; HEAD_BYTES]).unwrap();
        drop(stream);
        drop(listener.accept().unwrap());
        fs::remove_file(socket).unwrap();
    });
    let output = world.command().arg("-c").output().unwrap();
    assert_eq!(texts(&output), ("local -c\n".into(), String::new()));
    assert_eq!(fs::read_to_string(world.0.join("run/starts")).unwrap(), "started\n");
    manager.join().unwrap();
}

#[test]
fn without_a_manager_it_is_quiet_unless_asked() {
    let world = World::new("none");
    let output = world.command().arg("-c").env("CODE", "4").output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(texts(&output), ("local -c\n".into(), String::new()));
    let output = world.command().env("OUTBOARD_CC_VERBOSE", "1").output().unwrap();
    let (_, errors) = texts(&output);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.starts_with("outboard-cc: compiling locally: "), "{errors}");
}

#[test]
fn a_manager_that_cannot_start_is_tried_once() {
    let world = World::new("once");
    world.script("outboard", "echo started >> \"$XDG_RUNTIME_DIR/starts\"; exit 1");
    for _ in 0..5 {
        let output = world.command().arg("-c").output().unwrap();
        assert_eq!(texts(&output), ("local -c\n".into(), String::new()));
    }
    assert_eq!(fs::read_to_string(world.0.join("run/starts")).unwrap(), "started\n");
}

#[test]
fn each_value_of_what_a_manager_reads_has_a_manager_of_its_own() {
    let world = World::new("settings");
    world.script("outboard", "echo started >> \"$XDG_RUNTIME_DIR/starts\"; exit 1");
    assert!(world.command().output().unwrap().status.success());
    for name in SETTINGS {
        assert!(world.command().env(name, "/elsewhere").output().unwrap().status.success());
    }
    // What goes with each request is no setting of the manager's.
    for name in ["OUTBOARD_CC_MODE", "OUTBOARD_CC_SHOW", "OUTBOARD_CC_VERBOSE", "PATH_OF_MINE"] {
        assert!(world.command().env(name, "/elsewhere").output().unwrap().status.success());
    }
    let starts = fs::read_to_string(world.0.join("run/starts")).unwrap();
    assert_eq!(starts.lines().count(), 1 + SETTINGS.len());
}

#[test]
fn the_start_of_a_manager_removes_what_others_left() {
    let world = World::new("left");
    world.script("outboard", "exit 1");
    let at = |name: &str| world.0.join("run/outboard").join(name);
    drop(UnixListener::bind(at("cc-dead.sock")).unwrap());
    let _alive = UnixListener::bind(at("cc-alive.sock")).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(120);
    for mark in ["cc-old.silent", "cc-old.failed"] {
        File::create(at(mark)).unwrap().set_modified(long_ago).unwrap();
    }
    fs::write(at("cc-new.silent"), "").unwrap();
    File::create(at("mine")).unwrap().set_modified(long_ago).unwrap();
    assert!(world.command().output().unwrap().status.success());
    for gone in ["cc-dead.sock", "cc-old.silent", "cc-old.failed"] {
        assert!(!at(gone).exists(), "{gone}");
    }
    for stays in ["cc-alive.sock", "cc-new.silent", "cc.lock", "cc.log", "mine"] {
        assert!(at(stays).exists(), "{stays}");
    }
}

#[test]
fn it_says_how_it_is_used() {
    let output = Command::new(wrapper()).arg("--help").output().unwrap();
    let (help, errors) = texts(&output);
    assert!(output.status.success() && help.contains("outboard-cc gcc -c x.c"), "{help}{errors}");
    // Behind a compiler's name, and with other words, it is the compiler's.
    let world = World::new("help");
    assert_eq!(texts(&world.command().arg("--help").output().unwrap()).0, "local --help\n");
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
fn a_manager_has_limits_and_an_environment_of_its_own() {
    let world = World::new("own");
    let report = "{ env; ulimit -v; ulimit -t; } > \"$XDG_RUNTIME_DIR/own.new\"; \
                  mv \"$XDG_RUNTIME_DIR/own.new\" \"$XDG_RUNTIME_DIR/own\"";
    world.script("outboard", report);
    let wrapper = world.command();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -Sv 4000000; ulimit -St 1000; exec links/gcc -c"]);
    shell.current_dir(&world.0).envs(
        wrapper.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))),
    );
    shell.env("LD_PRELOAD", "").env("CPATH", "/x").env("LC_ALL", "C").env("OUTBOARD_X", "kept");
    shell.env_remove("OUTBOARD_CC_NESTED");
    assert!(shell.output().unwrap().status.success());
    let own = fs::read_to_string(world.0.join("run/own")).unwrap();
    for absent in ["LD_PRELOAD", "CPATH", "LC_ALL", "4000000", "1000\n"] {
        assert!(!own.contains(absent), "{absent}: {own}");
    }
    for kept in ["OUTBOARD_X=kept", "XDG_RUNTIME_DIR=", "PATH="] {
        assert!(own.contains(kept), "{kept}: {own}");
    }
}

/// The wrapper below a program that changes what it sees of this machine.
fn below(world: &World, program: &[&str]) -> Option<Output> {
    let wrapper = world.command();
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).arg(wrapper.get_program()).arg("-c").current_dir(&world.0);
    for (name, value) in wrapper.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.output().ok()
}

#[test]
fn another_view_of_files_or_other_limits_mean_another_manager() {
    let world = World::new("namespace");
    let limited = ["sh", "-c", "ulimit -v 4000000; exec \"$@\"", "sh"];
    let namespace = ["unshare", "--user", "--map-current-user", "--mount"];
    let listener = UnixListener::bind(world.place().socket()).unwrap();
    listener.set_nonblocking(true).unwrap();
    for program in [&limited[..], &namespace] {
        if program == namespace
            && !Command::new("unshare")
                .args(&namespace[1..])
                .arg("true")
                .status()
                .is_ok_and(|at| at.success())
        {
            println!("skipped: there are no namespaces for users here");
            continue;
        }
        let output = below(&world, program).unwrap();
        assert_eq!(texts(&output).0, "local -c\n", "{program:?}: {}", texts(&output).1);
        assert!(listener.accept().is_err(), "{program:?} has met this one's manager");
    }
    // The same way without a change leads here.
    let asked = thread::spawn(move || {
        listener.set_nonblocking(false).unwrap();
        listener.accept().map(drop)
    });
    assert_eq!(texts(&below(&world, &["env"]).unwrap()).0, "local -c\n");
    asked.join().unwrap().unwrap();
}

#[test]
fn a_manager_that_stops_is_waited_for_once_and_not_for_long() {
    let world = World::new("stopped");
    // It never accepts.
    let _listener = UnixListener::bind(world.place().socket()).unwrap();
    for limit in [30, 3] {
        let begin = Instant::now();
        let output = world.command().arg("-c").output().unwrap();
        assert_eq!(texts(&output), ("local -c\n".into(), String::new()));
        assert!(begin.elapsed() < Duration::from_secs(limit), "{:?}", begin.elapsed());
    }
    let output = world.command().arg("-c").env("OUTBOARD_CC_FALLBACK", "0").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(texts(&output).1.contains("OUTBOARD_CC_FALLBACK=0"), "{}", texts(&output).1);
    assert_eq!(texts(&output).0, "");
}

#[test]
fn wrappers_that_a_local_compiler_calls_run_locally() {
    let world = World::new("nested");
    world.script("gcc", "echo outer; exec gcc inner");
    fs::create_dir(world.0.join("last")).unwrap();
    world.script("real", "echo \"real $*\"");
    fs::rename(world.0.join("bin/real"), world.0.join("last/gcc")).unwrap();
    let path = format!("{0}/links:{0}/bin:{0}/last:/usr/bin:/bin", world.0.display());
    let manager = world.manager(|mut stream, _| {
        answer(&stream, &Reply::Local { why: Vec::new() });
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    });
    let output = world.command().env("PATH", path).output().unwrap();
    assert_eq!(texts(&output), ("outer\nreal inner\n".into(), String::new()));
    manager.join().unwrap();
}

#[test]
fn a_missing_compiler_gives_the_exit_code_of_shells() {
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

/// As `env -i` does: the system's own directories are searched then.
#[test]
fn without_path_the_systems_compiler_is_found() {
    let world = World::new("pathless");
    let mut command = world.command();
    let output = command.arg("--version").env_remove("PATH").output().unwrap();
    let (shown, errors) = texts(&output);
    assert!(shown.starts_with("gcc ") && errors.is_empty(), "{shown}{errors}");
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
    let bytes = fs::read(wrapper()).unwrap();
    let has = |name: &[u8]| bytes.windows(name.len()).any(|window| window == name);
    assert!(!has(b"/ld-linux-"), "the dynamic loader takes longer than the wrapper");
}
