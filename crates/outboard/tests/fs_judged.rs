//! `outboard fs` as programs judge it that others wrote to judge file systems: pjdfstest, fsx,
//! stress-ng; and, where their sources are (`OUTBOARD_SOURCES`, which `cargo xtask test` sets),
//! sqlite's mptest and a build of Lua. What cannot be tested counts as skipped.
//!
//! pjdfstest as root only: it changes users, and mounts anew.

#[expect(dead_code, reason = "other tests use the rest")]
mod home;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "home/served.rs"]
mod served;

use home::Home;
use served::{Mounted, Served};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What others' suites are given that make devices and change users.
const OPTIONS: &str = "allow_other,suid,dev";
/// Three users that Debian has from the start.
const USERS: &str = "[dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \
                     \"daemon\"], [\"games\", \"games\"]]\n";
/// What Linux can and this file system does.
const FEATURES: &str =
    "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutimensat = {}\nutime_now = {}\n";
/// Everything that fsx does; how often it closes and opens its file is said apart.
const WEIGHTS: &str = "mapread = 10\nmapwrite = 10\nread = 10\nwrite = 10\ntruncate = 10\n\
                       fsync = 1\nfdatasync = 1\nposix_fallocate = 1\npunch_hole = 5\n\
                       sendfile = 2\nposix_fadvise = 2\ncopy_file_range = 3\n";
/// stress-ng's that work on files. Not among them: fiemap and verity, which FUSE does not have.
const STRESSORS: &[&str] = &[
    "access",
    "acl",
    "chattr",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dirmany",
    "dup",
    "fallocate",
    "fcntl",
    "filename",
    "flock",
    "fpunch",
    "fsize",
    "fstat",
    "getdent",
    "handle",
    "hdd",
    "inode-flags",
    "iomix",
    "locka",
    "lockf",
    "lockofd",
    "metamix",
    "mknod",
    "open",
    "readahead",
    "rename",
    "seek",
    "symlink",
    "sync-file",
    "touch",
    "truncate",
    "utime",
    "xattr",
];

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn is_full() -> bool {
    std::env::var_os("OUTBOARD_FULL").is_some()
}

/// Runs a program and returns what it says, on both outputs.
fn said(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn pjdfstest(home: &Home, at: &Path, allows_remount: bool, pattern: &[&str]) -> String {
    let settings = "[settings]\nnaptime = 0.01\nallow_remount = ";
    let config = home.0.join("pjdfstest.toml");
    let text = format!("{FEATURES}{settings}{allows_remount}\n{USERS}");
    fs::write(&config, text).expect("written");
    let second = home.0.join("second");
    fs::create_dir_all(&second).expect("made");
    let mut command = Command::new("pjdfstest");
    command.arg("-c").arg(&config).arg("-s").arg(second).arg("-p").arg(at).args(pattern);
    // No helper of this machine's mount(8) is to know about the file system.
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", home.0.join("bin").display());
    let (is_done, text) = said(command.env("PATH", path));
    assert!(is_done, "{text}");
    text
}

/// Names of tests that were not run.
fn skipped(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| line.ends_with(" skipped"));
    lines.filter_map(|line| line.split_whitespace().next()).collect()
}

#[test]
fn pjdfstest_finds_what_it_finds_on_ext4() {
    if !is_root() {
        println!("skipped: only root can run pjdfstest");
        return;
    }
    let home = Home::new("fs-pjdfstest");
    let served = Served::start(&home, &["--size", "256MiB"]);
    // It makes sockets, whose paths may have 108 bytes: wherever the project is.
    let short = tempfile::tempdir_in("/tmp").expect("a directory");
    let at = short.path().to_str().expect("text");
    let mounted = Mounted::of(&home, &served, at, OPTIONS);
    fs::create_dir(home.0.join("bin")).expect("made");
    let mount = home.0.join("bin/mount");
    fs::write(&mount, "#!/bin/sh\nexec /bin/mount -i \"$@\"\n").expect("written");
    fs::set_permissions(&mount, PermissionsExt::from_mode(0o755)).expect("set");
    let text = pjdfstest(&home, &mounted.directory, false, &[]);
    let others: Vec<_> =
        skipped(&text).into_iter().filter(|name| !name.contains("erofs")).collect();
    // FUSE has no way to say how many names an inode may have: pathconf(3) does not know.
    assert_eq!(others, ["link::link_count_max"], "{text}");
    // By themselves: after all others the program has the file system still in use, on ext4, too.
    let text = pjdfstest(&home, &mounted.directory, true, &["erofs"]);
    assert!(text.contains(" 0 failed, 0 skipped, 13 passed"), "{text}");
}

/// Changes a link from one place to another and back, until it is told to end.
fn turn(link: &Path, places: [PathBuf; 2], ends: &AtomicBool) {
    let next = link.with_extension("next");
    for round in 0_u64.. {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        symlink(&places[usize::from(round % 2 == 0)], &next).expect("a link");
        fs::rename(&next, link).expect("renamed");
        thread::sleep(Duration::from_millis(round * 7 % 60));
    }
}

fn fsx(home: &Home, file: &Path, weights: &str) {
    let config = home.0.join("fsx.toml");
    fs::write(&config, format!("[weights]\n{weights}{WEIGHTS}")).expect("written");
    let most = Duration::from_secs(if is_full() { 1800 } else { 40 });
    let begun = Instant::now();
    let mut seed = 0_u32;
    while begun.elapsed() < most {
        seed += 1;
        let mut command = Command::new("fsx");
        command.arg("-f").arg(&config).args(["-N", "2000", "-S", &seed.to_string(), "-P"]);
        let (is_done, text) = said(command.arg(&home.0).arg(file));
        assert!(is_done, "seed {seed}: {text}");
    }
    assert!(seed > 0);
}

#[test]
fn fsx_finds_every_byte() {
    let home = Home::new("fs-fsx");
    let served = Served::start(&home, &["--size", "256MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "rw");
    fsx(&home, &mounted.path("file"), "close_open = 1\ninvalidate = 1\n");
}

/// Whenever fsx opens its file anew it is perhaps in the other mount.
#[test]
fn fsx_finds_every_byte_by_two_mounts() {
    let home = Home::new("fs-fsx-two");
    let served = Served::start(&home, &["--size", "256MiB"]);
    let mounts = ["one", "two"].map(|name| Mounted::of(&home, &served, name, "rw"));
    fs::write(mounts[0].path("file"), "").expect("written");
    let (link, ends) = (home.0.join("link"), AtomicBool::new(false));
    symlink(mounts[0].path("file"), &link).expect("a link");
    let places = [0, 1].map(|at: usize| mounts[at].path("file"));
    thread::scope(|scope| {
        scope.spawn(|| turn(&link, places, &ends));
        let ended = EndsAtDrop(&ends);
        fsx(&home, &link, "close_open = 15\n");
        drop(ended);
    });
}

struct EndsAtDrop<'a>(&'a AtomicBool);

impl Drop for EndsAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn stress_ng_finds_nothing() {
    let home = Home::new("fs-stress-ng");
    let served = Served::start(&home, &["--size", "1GiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "rw");
    let seconds = if is_full() { "30s" } else { "2s" };
    let mut ran = 0;
    for stressor in STRESSORS {
        let mut command = Command::new("stress-ng");
        command.arg("--temp-path").arg(&mounted.directory).arg(format!("--{stressor}"));
        command.args(["2", "--timeout", seconds, "--verify", "--oomable"]);
        let (is_done, text) = said(&mut command);
        if text.contains("unrecognized option") {
            // Another release has it.
            continue;
        }
        ran += 1;
        let is_fault = |line: &&str| line.contains("fail:") || line.contains("error:");
        let faults: Vec<_> = text.lines().filter(is_fault).collect();
        assert!(is_done && faults.is_empty(), "{stressor}: {text}");
    }
    assert!(ran >= 30, "only {ran} are known here");
}

/// The sources of a project, unpacked.
fn sources(project: &str) -> Option<PathBuf> {
    let all = PathBuf::from(std::env::var_os("OUTBOARD_SOURCES")?);
    Some(all.join(project))
}

/// How Lua is built here.
const LUA_MAKEFILE: &str = "\
OBJECTS := $(patsubst %.c,%.o,$(sort $(wildcard *.c)))
all: lua luac
%.o: %.c
\t$(CC) -O2 -DLUA_USE_POSIX -c -o $@ $<
liblua.a: $(filter-out lua.o luac.o,$(OBJECTS))
\tar rcs $@ $^
lua luac: %: %.o liblua.a
\t$(CC) -o $@ $^ -lm
";

#[test]
fn lua_is_built_to_the_same_bytes() {
    let Some(lua) = sources("lua5.4") else {
        return println!("skipped: OUTBOARD_SOURCES does not say where Lua's sources are");
    };
    let home = Home::new("fs-lua");
    let served = Served::start(&home, &["--size", "256MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "rw");
    let elsewhere = home.0.join("elsewhere");
    for place in [&mounted.directory, &elsewhere] {
        fs::create_dir_all(place).expect("a directory");
        let mut copy = Command::new("cp");
        let (is_done, text) = said(copy.arg("-a").arg(lua.join("src")).arg(place.join("lua")));
        assert!(is_done, "{text}");
        fs::write(place.join("lua/Makefile"), LUA_MAKEFILE).expect("written");
        // Debian's own build makes it.
        let header = place.join("lua/lua5.4-deb-multiarch.h");
        fs::write(header, "#define DEB_HOST_MULTIARCH \"any\"\n").expect("written");
        let mut make = Command::new("make");
        let (is_done, text) = said(make.arg("-j2").arg("-C").arg(place.join("lua")));
        assert!(is_done, "{text}");
    }
    let mut diff = Command::new("diff");
    let same = diff.arg("-r").arg(elsewhere.join("lua")).arg(mounted.path("lua"));
    assert_eq!(said(same), (true, String::new()));
    let script = "local sum = 0 for i = 1, 100 do sum = sum + i end print(_VERSION, sum)";
    let (_, text) = said(Command::new(mounted.path("lua/lua")).args(["-e", script]));
    assert_eq!(text, "Lua 5.4\t5050\n");
    let (_, made) = said(Command::new("make").arg("-C").arg(mounted.path("lua")));
    assert!(made.contains("Nothing to be done"), "times are in order: {made}");
}

/// mptest starts its clients as its own first word says: half of them are in the other mount.
const HALF_ELSEWHERE: &str = "#!/bin/sh
database=$1
shift
client=0 last=
for word; do [ \"$last\" = --client ] && client=$word; last=$word; done
[ $((client % 2)) = 0 ] || database=OTHER/${database##*/}
exec MPTEST \"$database\" \"$@\"
";

/// mptest's source with other limits: it gives up a lock and its clients after ten seconds, which
/// on a busy machine is too soon.
fn with_patience(source: &Path) -> String {
    let text = fs::read_to_string(source).expect("mptest's source");
    let limits = ["#define DEFAULT_TIMEOUT 10000", "nArg>=2 ? atoi(azArg[1]) : 10000;"];
    limits.into_iter().fold(text, |text, limit| {
        assert!(text.contains(limit), "another mptest: it has no {limit:?}");
        text.replace(limit, &limit.replace("10000", "600000"))
    })
}

#[test]
fn sqlite_s_own_test_of_locks_finds_nothing_by_two_mounts() {
    let Some(sqlite) = sources("sqlite3") else {
        return println!("skipped: OUTBOARD_SOURCES does not say where SQLite's sources are");
    };
    let home = Home::new("fs-mptest");
    let served = Served::start(&home, &["--size", "256MiB"]);
    let mounts = ["one", "two"].map(|name| Mounted::of(&home, &served, name, "rw"));
    let (program, starter) = (home.0.join("mptest"), home.0.join("starter"));
    let source = home.0.join("mptest.c");
    fs::write(&source, with_patience(&sqlite.join("mptest/mptest.c"))).expect("written");
    let mut compile = Command::new("cc");
    compile.args(["-O1", "-o"]).arg(&program).arg(&source);
    let (is_done, text) = said(compile.arg("-lsqlite3"));
    assert!(is_done, "{text}");
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let script = HALF_ELSEWHERE.replace("OTHER", &text(&mounts[1].directory));
    fs::write(&starter, script.replace("MPTEST", &text(&program))).expect("written");
    fs::set_permissions(&starter, PermissionsExt::from_mode(0o755)).expect("set");
    for name in ["config01", "config02", "crash01", "multiwrite01"] {
        let mut command = Command::new(&program);
        command.arg0(&starter).arg(mounts[0].path(name)).args(["--timeout", "60000"]);
        command.arg(sqlite.join(format!("mptest/{name}.test")));
        let (is_done, text) = said(&mut command);
        assert!(is_done && text.contains("Summary: 0 errors"), "{name}: {text}");
        for mount in &mounts {
            let mut check = Command::new("sqlite3");
            check.arg(mount.path(name)).arg("PRAGMA integrity_check;");
            assert_eq!(said(&mut check), (true, "ok\n".to_owned()), "{name}");
        }
    }
}
