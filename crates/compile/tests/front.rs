//! Builds through wrapper and manager, with farms that are on this machine.

#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A user's world: a place for the socket, links by compilers' names, a project.
struct World {
    dir: PathBuf,
    farm: &'static str,
}

impl World {
    fn new(name: &str, farm: &'static str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("outboard-front-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        for part in ["run", "links", "src"] {
            fs::create_dir_all(dir.join(part)).unwrap();
        }
        for link in ["gcc", "g++", "cc"] {
            symlink(programs().join("outboard-cc"), dir.join("links").join(link)).unwrap();
        }
        Self { dir, farm }
    }

    fn command(&self, program: impl AsRef<Path>) -> Command {
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new(program.as_ref());
        command
            .current_dir(self.dir.join("src"))
            .env("XDG_RUNTIME_DIR", self.dir.join("run"))
            .env("XDG_STATE_HOME", self.dir.join("run"))
            .env("PATH", format!("{}:{path}", self.dir.join("links").display()))
            .env("OUTBOARD_TEST_FARM", self.farm)
            .env("OUTBOARD_TEST_IDLE_MS", "300")
            .env("OUTBOARD_CC_VERBOSE", "1");
        command
    }

    fn gcc(&self, line: &str) -> Output {
        self.command(self.dir.join("links/gcc")).args(line.split(' ')).output().unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.join("src").join(name), text).unwrap();
    }

    fn has(&self, name: &str) -> bool {
        self.dir.join("src").join(name).exists()
    }

    fn has_manager(&self) -> bool {
        self.dir.join("run/outboard/cc.sock").exists()
    }

    fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !holds(self) {
            assert!(Instant::now() < end, "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The manager goes by itself, soon.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A directory with the wrapper and a manager beside it, under their names. They are linked, not
/// copied: what is open for writing in one thread cannot be run in another.
fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let own = std::env::current_exe().unwrap();
        let examples = own.parent().unwrap().parent().unwrap().join("examples");
        for (name, example) in [("outboard-cc", "wrapper"), ("outboard", "manager")] {
            fs::hard_link(examples.join(example), dir.join(name)).unwrap();
        }
        dir
    })
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

#[test]
fn a_project_is_built_through_a_farm() {
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
fn what_fails_remotely_is_said_by_the_compiler_at_home() {
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
fn warnings_come_through() {
    let world = World::new("warnings", "local");
    world.write("warn.c", "int f(void) { int unused; return 0; }");
    let output = world.gcc("-c -Wall warn.c");
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("unused"), "{}", text(&output.stderr));
}
