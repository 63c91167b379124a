//! Builds through wrapper and manager, with executors that are on this machine.

#![forbid(unsafe_code)]

use outboard_cc::place::ManagerPlace;
use outboard_compile::manager::settle;
use outboard_compile::stats::{How, SavedJournal};
use outboard_testkit::{PATIENCE, eventually};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Wrappers of the long test: all of them when the whole matrix is asked for.
fn many() -> usize {
    if std::env::var_os("OUTBOARD_FULL").is_some() { 10_000 } else { 600 }
}

/// One user's files: a directory for the socket, links by compilers' names, a project.
struct World {
    dir: PathBuf,
    executor: &'static str,
    idle_ms: &'static str,
}

impl World {
    fn new(name: &str, executor: &'static str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("outboard-front-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        for part in ["run", "links", "scripts", "src"] {
            fs::create_dir_all(dir.join(part)).unwrap();
        }
        for link in ["gcc", "g++", "cc"] {
            symlink(programs().join("outboard-cc"), dir.join("links").join(link)).unwrap();
        }
        Self { dir, executor, idle_ms: "300" }
    }

    fn command(&self, program: impl AsRef<Path>) -> Command {
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new(program.as_ref());
        command
            .current_dir(self.dir.join("src"))
            .env("XDG_RUNTIME_DIR", self.dir.join("run"))
            .env("XDG_STATE_HOME", self.dir.join("run"))
            .env("PATH", format!("{0}/links:{0}/scripts:{path}", self.dir.display()))
            .env_remove("OUTBOARD_CC_NESTED")
            .env("OUTBOARD_TEST_EXECUTOR", self.executor)
            .env("OUTBOARD_TEST_IDLE_MS", self.idle_ms);
        command
    }

    /// A link by a compiler's name, with its outputs discarded.
    fn compiler(&self, name: &str) -> Command {
        let mut command = self.command(self.dir.join("links").join(name));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn gcc(&self, line: &str) -> Output {
        self.command(self.dir.join("links/gcc")).args(line.split(' ')).output().unwrap()
    }

    /// Adds a script that is found before the real compiler of this name.
    fn script(&self, name: &str, line: &str) {
        let file = self.dir.join("scripts").join(name);
        // Another program writes the script: a file that this process has open for writing cannot
        // be executed by its other threads.
        let write =
            format!("printf '#!/bin/sh\\n%s\\n' \"$1\" > {0}; chmod 755 {0}", file.display());
        assert!(Command::new("sh").args(["-c", &write, "sh", line]).status().unwrap().success());
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.join("src").join(name), text).unwrap();
    }

    fn has(&self, name: &str) -> bool {
        self.dir.join("src").join(name).exists()
    }

    fn socket(&self) -> PathBuf {
        let place = ManagerPlace::at(&self.dir.join("run/outboard"));
        let sockets = place.map_or_else(|_| Vec::new(), |place| place.sockets());
        // The test's own environment is another than the wrappers', which all have one manager.
        sockets.into_iter().next().unwrap_or_else(|| self.dir.join("none"))
    }

    fn has_manager(&self) -> bool {
        self.socket().exists()
    }

    /// The manager's process, by its end of the socket.
    fn manager(&self) -> Option<PathBuf> {
        let runs_here = |process: &PathBuf| {
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            let mine = format!("XDG_RUNTIME_DIR={}\0", self.dir.join("run").display());
            let words = fs::read(process.join("cmdline")).unwrap_or_default();
            words.ends_with(b"--manager\0") && text(&environment).contains(&mine)
        };
        let processes = fs::read_dir("/proc").unwrap();
        processes.filter_map(|entry| Some(entry.ok()?.path())).find(runs_here)
    }

    fn saved(&self) -> SavedJournal {
        settle(&self.socket());
        SavedJournal::load(&self.dir.join("run/outboard")).unwrap()
    }

    fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        eventually(what, || holds(self));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The manager ends by itself soon.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A directory with the wrapper and a manager beside it, under their names. They are linked, not
/// copied: a file that one thread has open for writing cannot be executed by another.
fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
        fs::create_dir_all(&dir).unwrap();
        let own = std::env::current_exe().unwrap();
        let examples = own.parent().unwrap().parent().unwrap().join("examples");
        for (name, example) in [("outboard-cc", "wrapper"), ("outboard", "manager")] {
            // Renamed over that of another run: each test may be a process of its own.
            let fresh = dir.join(format!("{name}-{}", std::process::id()));
            let linked = fs::hard_link(examples.join(example), &fresh);
            linked.expect("examples are built by cargo test without --test");
            fs::rename(&fresh, dir.join(name)).unwrap();
            let _ = fs::remove_file(fresh); // It stays where both are links to one file.
        }
        dir
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_project_is_built_through_an_executor() {
    let world = World::new("project", "local");
    let sources = ["a", "b", "c", "d", "e"];
    for name in sources {
        world.write(
            &format!("{name}.c"),
            &format!("#include \"x.h\"\nint {name}(void){{return X;}}"),
        );
    }
    world.write("x.h", "#define X 7\n");
    world.write("main.c", "int a(void); int main(void){return a() - 7;}");
    let objects: String =
        ["main", "a", "b", "c", "d", "e"].map(|name| format!("{name}.o ")).concat();
    world.write(
        "Makefile",
        &format!("CC = gcc\nCFLAGS = -O2 -MMD -Wall\nprog: {objects}\n\t$(CC) -o $@ $^\n"),
    );
    let output = world.command("make").arg("-j4").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    assert!(world.command(world.dir.join("src/prog")).status().unwrap().success());
    assert!(sources.iter().all(|name| world.has(&format!("{name}.d"))));
    world.wait_until("the manager goes when it is idle", |world| !world.has_manager());
}

#[test]
fn errors_of_remote_jobs_are_those_of_the_local_compiler() {
    let world = World::new("failing", "failing");
    world.write("good.c", "int x;");
    world.write("bad.c", "int x = y;");
    let good = world.gcc("-c good.c");
    assert!(good.status.success() && world.has("good.o"), "{}", text(&good.stderr));
    assert_eq!(text(&good.stderr), "");
    let bad = world.gcc("-c bad.c");
    assert_eq!(bad.status.code(), Some(1));
    assert!(text(&bad.stderr).contains("bad.c:1:9: error"), "{}", text(&bad.stderr));
    assert!(!text(&bad.stderr).contains("remote"));
}

#[test]
fn verbose_wrappers_say_where_a_job_ran() {
    let world = World::new("verbose", "local");
    world.write("a.c", "int x;");
    let told = |line: &str| {
        let mut gcc = world.command(world.dir.join("links/gcc"));
        let output = gcc.args(line.split(' ')).env("OUTBOARD_CC_VERBOSE", "1").output().unwrap();
        assert!(output.status.success());
        text(&output.stderr)
    };
    assert!(told("-c a.c").starts_with("outboard-cc: a.c ran on here ("));
    let native = "outboard-cc: a.c is tuned to this processor: -march=native: it runs locally\n";
    assert_eq!(told("-c a.c -march=native"), native);
}

#[test]
fn without_fallback_a_job_that_could_run_remotely_does_not_run_locally() {
    let fallback = |world: &World, line: &str| {
        world.write("a.c", "int x;");
        world.write("bad.c", "int x = y;");
        let mut gcc = world.command(world.dir.join("links/gcc"));
        gcc.args(line.split(' ')).env("OUTBOARD_CC_FALLBACK", "0").output().unwrap()
    };
    let world = World::new("nofallback", "failing");
    let failed = fallback(&world, "-c a.c");
    assert_eq!((failed.status.code(), &*text(&failed.stderr)), (Some(1), "remote failure\n"));
    assert!(!world.has("a.o"));
    assert!(fallback(&world, "-c a.c -march=native").status.success(), "its options keep it local");
    let world = World::new("noserver", "nobody");
    let failed = fallback(&world, "-c a.c");
    let text = text(&failed.stderr);
    assert!(failed.status.code() == Some(1) && text.contains("found no server"), "{text}");
    assert!(!world.has("a.o"));
    assert_eq!(world.saved().counters.refused, 1);
}

#[test]
fn warnings_come_through() {
    let world = World::new("warnings", "local");
    world.write("warn.c", "int f(void) { int unused; return 0; }");
    let output = world.gcc("-c -Wall warn.c");
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("unused"), "{}", text(&output.stderr));
}

#[test]
fn texts_longer_than_a_sockets_buffer_come_whole() {
    let world = World::new("long", "local");
    let unused = |number| format!("static int unused_{number}(void) {{ return {number}; }}\n");
    world.write("a.c", &(0..5000).map(unused).collect::<String>());
    let output = world.gcc("-Wall -c a.c");
    assert!(output.status.success());
    assert!(output.stderr.len() > 500_000, "{}", output.stderr.len());
    assert_eq!(text(&output.stderr).matches("defined but not used").count(), 5000);
    assert_eq!(world.saved().counters.remote, 1);
}

#[test]
fn a_manager_ends_when_its_directory_is_removed() {
    let world = World::new("evicted", "nobody");
    assert!(world.gcc("--version").status.success());
    assert!(world.manager().is_some());
    fs::remove_dir_all(world.dir.join("run")).unwrap();
    world.wait_until("it goes", |world| world.manager().is_none());
}

#[test]
fn statistics_and_timeline_tell_what_ran_where() {
    let world = World::new("stats", "local");
    world.write("a.c", "int x;");
    world.write("b.c", "int x = y;");
    assert!(world.gcc("-c a.c").status.success());
    assert!(world.gcc("-c a.c -march=native").status.success());
    assert!(!world.gcc("-c b.c").status.success());
    let SavedJournal { counters, records, manager } = world.saved();
    assert_eq!(manager, None, "this executor counts nothing");
    assert_eq!((counters.remote, counters.local, counters.failed_remotely), (1, 2, 1));
    assert_eq!(counters.causes["is tuned to this processor"], 1);
    assert_eq!(counters.causes["failed remotely and was run again"], 1);
    assert_eq!(counters.servers["here"].jobs, 1);
    let places: Vec<_> = records.iter().map(|record| (&*record.name, &*record.place)).collect();
    assert_eq!(places, [("a.c", "here"), ("a.c", "local"), ("b.c", "local")]);
    assert!(matches!(records[1].how, How::Local(_)));
    assert!(records.iter().all(|record| record.ended_us() > record.began_us));
}

#[test]
fn there_are_at_most_as_many_local_compilers_as_cores() {
    let world = World::new("bounded", "nobody");
    // Each link step notes that it runs, and how many run at that moment.
    let count = "mkdir -p now; touch now/$$; ls now | wc -l >> most; sleep 0.05; rm now/$$";
    world.script("gcc", count);
    let children: Vec<Child> =
        (0..20).map(|_| world.compiler("gcc").arg("-olinked").spawn().unwrap()).collect();
    children.into_iter().for_each(|mut child| assert!(child.wait().unwrap().success()));
    let most = fs::read_to_string(world.dir.join("src/most")).unwrap();
    let most: Vec<usize> = most.lines().map(|line| line.trim().parse().unwrap()).collect();
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(most.len(), 20);
    assert!(most.iter().all(|at_once| *at_once <= cores), "{most:?}");
}

#[test]
fn a_process_that_a_local_compiler_leaves_behind_keeps_no_slot() {
    let world = World::new("daemon", "nobody");
    // As a compiler cache that starts its server: the process outlives the call.
    let patience = PATIENCE.as_secs();
    world.script("gcc", &format!("sleep {patience} > /dev/null 2>&1 & echo $! >> left"));
    let cores = std::thread::available_parallelism().unwrap().get();
    for _ in 0..=cores {
        assert!(world.compiler("gcc").arg("-olinked").status().unwrap().success());
    }
    // Those that still run were not waited for. One that has ended has no words.
    for left in fs::read_to_string(world.dir.join("src/left")).unwrap().lines() {
        let words = fs::read(format!("/proc/{left}/cmdline")).unwrap_or_default();
        assert!(!words.is_empty(), "the last call waited for {left}");
        kill("-KILL", Path::new(left));
    }
}

#[test]
fn jobs_that_few_slots_do_not_claim_run_locally() {
    let world = World::new("stuck", "stuck");
    world.write("a.c", "int x;");
    let begin = Instant::now();
    assert!(world.gcc("-c a.c").status.success() && world.has("a.o"));
    assert!(begin.elapsed() >= Duration::from_millis(100));
    assert_eq!(world.saved().counters.causes["found no free slot in time"], 1);
}

#[test]
fn wrappers_wait_for_many_slots_but_not_for_a_killed_manager() {
    let world = World::new("killed", "absent");
    world.write("a.c", "int x;");
    let mut child = world.compiler("gcc").args(["-c", "a.c"]).spawn().unwrap();
    world.wait_until("a manager", |world| world.manager().is_some());
    std::thread::sleep(Duration::from_millis(400));
    assert!(child.try_wait().unwrap().is_none(), "it should still wait for a server");
    kill("-KILL", &world.manager().unwrap());
    assert!(child.wait().unwrap().success() && world.has("a.o"));
    world.write("b.c", "int x;");
    let mut next = world.compiler("gcc").args(["-c", "b.c"]).spawn().unwrap();
    world.wait_until("another manager", |world| world.manager().is_some());
    kill("-KILL", &world.manager().unwrap());
    assert!(next.wait().unwrap().success() && world.has("b.o"));
}

#[test]
fn other_users_are_sent_away() {
    // Connects, sends nothing, and returns whether the connection is closed within a second.
    const VISIT: &str = "use IO::Socket::UNIX; alarm 1; my $s = IO::Socket::UNIX->new(Peer => \
                         shift) or exit 2; sysread $s, my $x, 1; exit 0";
    let mut world = World::new("others", "nobody");
    // An idle manager ends; on a busy machine it would do so between the visits.
    world.idle_ms = "60000";
    assert!(world.gcc("--version").status.success());
    let socket = world.socket();
    fs::set_permissions(world.dir.join("run/outboard"), Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(&socket, Permissions::from_mode(0o777)).unwrap();
    let visit = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["-e", VISIT]).arg(&socket).status()
    };
    if let Ok(status) = visit(&["perl"]) {
        assert_eq!(status.signal(), Some(14), "the user's own may stay");
    }
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "perl"];
    match visit(&nobody).map(|status| status.code()) {
        Ok(Some(0)) => {}
        // Only root can run a program as another user.
        Ok(Some(127)) | Err(_) => println!("skipped: needs root, setpriv and perl"),
        other => panic!("{other:?}"),
    }
    kill("-TERM", &world.manager().expect("it stays"));
}

#[test]
fn ninja_does_not_wait_for_the_manager() {
    if Command::new("ninja").arg("--version").output().is_err() {
        println!("skipped: there is no ninja");
        return;
    }
    let mut world = World::new("ninja", "local");
    world.idle_ms = "60000";
    world.write("a.c", "int main(void) { return 0; }");
    let rules = "rule cc\n command = gcc -MD -c $in -o $out\n depfile = $out.d\n deps = gcc\n\
                 build a.c.o: cc a.c\n";
    world.write("build.ninja", &rules.replace("-MD", "-MD -MF $out.d"));
    let output = world.command("ninja").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stdout));
    kill("-TERM", &world.manager().expect("it stays"));
}

#[test]
fn wrappers_that_are_killed_at_random_leave_nothing() {
    let mut world = World::new("random", "local");
    world.idle_ms = "60000";
    world.write("a.c", "int x;");
    assert!(world.gcc("-c a.c").status.success());
    let manager = world.manager().unwrap();
    let descriptors = |manager: &Path| fs::read_dir(manager.join("fd")).unwrap().count();
    let before = descriptors(&manager);
    let mut running: Vec<Child> = Vec::new();
    let mut random = 1_u32;
    for number in 0..many() {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let words: &[&str] = match number % 5 {
            0 => &["--version"],
            1 => &["-c", "a.c", "-march=native", "-o", "native.o"],
            _ => &["-O0", "-c", "a.c", "-o", "remote.o"],
        };
        running.push(world.compiler("gcc").args(words).spawn().unwrap());
        if running.len() == 64 {
            let mut child = running.swap_remove((random >> 16) as usize % 64);
            if random >> 31 == 1 {
                child.kill().unwrap();
            }
            child.wait().unwrap();
        }
    }
    running.iter_mut().for_each(|child| drop(child.wait()));
    assert!(world.gcc("-c a.c -o last.o").status.success() && world.has("last.o"));
    world.wait_until("compilers end", |_| descriptors(&manager) <= before);
    let hidden = fs::read_dir(world.dir.join("src")).unwrap();
    let hidden = hidden.filter(|entry| {
        text(entry.as_ref().unwrap().file_name().as_encoded_bytes()).starts_with('.')
    });
    assert_eq!(hidden.count(), 0);
    kill("-TERM", &manager);
}

fn kill(signal: &str, process: &Path) {
    let number = process.file_name().unwrap();
    assert!(Command::new("kill").arg(signal).arg(number).status().unwrap().success());
}

#[test]
fn jobs_as_those_of_configure_run_locally_after_a_while() {
    let world = World::new("configure", "instant");
    world.write("a.c", "int a;\n");
    // A busy machine may take long for one, which begins the count anew.
    let runs = (0..400).position(|_| {
        assert!(world.gcc("-c a.c").status.success());
        // The executor's object is one byte.
        fs::metadata(world.dir.join("src/a.o")).unwrap().len() > 1
    });
    assert!(runs.is_some_and(|runs| runs >= 64), "{runs:?}");
    assert!(world.saved().counters.causes["came one at a time"] >= 1);
    // Two at once are a build.
    let gcc = || world.compiler("gcc").args(["-c", "a.c", "-o", "b.o"]).spawn().unwrap();
    for _ in 0..400 {
        let both: Vec<Child> = (0..8).map(|_| gcc()).collect();
        both.into_iter().for_each(|mut child| assert!(child.wait().unwrap().success()));
        if fs::metadata(world.dir.join("src/b.o")).unwrap().len() == 1 {
            return;
        }
    }
    panic!("servers get jobs again");
}
