//! Ends. Of servers: fsync says EIO exactly where an acknowledged change is lost, once to each open
//! file description. Of mounts: a process that is told to end does, and loses nothing.

#[expect(dead_code, reason = "other tests use the rest")]
mod home;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "home/served.rs"]
mod served;

use home::Home;
use outboard_testkit::{PATIENCE, eventually};
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use served::{Mounted, Served, is_mounted};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Instant;

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).expect("opened")
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Whether an fsync says EIO; nothing else goes wrong.
fn is_lost(synced: io::Result<()>) -> bool {
    match synced {
        Ok(()) => false,
        Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Files and directories that were changed and not synced, and descriptors of some.
struct Changes {
    mode: File,
    xattr: File,
    first: File,
    second: File,
    unchanged: File,
}

/// Where a test fails, its files are closed while there is no server.
const SOFT: &str = "soft,timeo=600";
const FILES: [&str; 7] = ["closed", "cut", "mode", "xattr", "both", "linked", "unchanged"];
const DIRS: [&str; 3] = ["dir", "from", "to"];

impl Changes {
    /// Changes everything, each in another way.
    fn make(at: &Path) -> Self {
        for dir in DIRS {
            fs::create_dir(at.join(dir)).expect("made");
        }
        fs::write(at.join("from/name"), b"old").expect("written");
        for file in FILES {
            fs::write(at.join(file), b"old old old old").expect("written");
        }
        // One sync covers everything that was changed before it.
        sync(at).expect("synced");
        let open = |name: &str| open(&at.join(name));
        let (first, second) = (open("both"), open("both"));
        let made = Self {
            mode: open("mode"),
            xattr: open("xattr"),
            first,
            second,
            unchanged: open("unchanged"),
        };
        open("closed").write_all_at(b"new", 0).expect("written");
        open("cut").set_len(3).expect("cut");
        made.mode.set_permissions(Permissions::from_mode(0o600)).expect("set");
        fsetxattr(&made.xattr, "user.new", b"new", XattrFlags::empty()).expect("set");
        made.first.write_all_at(b"new", 0).expect("written");
        made.second.write_all_at(b"new", 4).expect("written");
        // As close does: what was gathered is sent.
        drop(made.second.try_clone().expect("another descriptor"));
        fs::hard_link(at.join("linked"), at.join("to/link")).expect("linked");
        fs::set_permissions(at.join("dir"), Permissions::from_mode(0o711)).expect("set");
        fs::rename(at.join("from/name"), at.join("to/name")).expect("renamed");
        made
    }

    /// What fsync says of each: whether something is lost.
    fn said(&self, at: &Path) -> Vec<(&'static str, bool)> {
        let of = |name: &'static str| (name, is_lost(sync(&at.join(name))));
        let mut said = vec![
            ("mode", is_lost(self.mode.sync_all())),
            ("xattr", is_lost(self.xattr.sync_all())),
            ("both", is_lost(self.first.sync_all())),
        ];
        assert_eq!(is_lost(self.second.sync_all()), said[2].1, "each description is told");
        said.extend(["closed", "cut", "linked", "dir", "from", "to"].map(of));
        assert!(!is_lost(self.unchanged.sync_all()));
        for file in [&self.mode, &self.xattr, &self.first, &self.second] {
            assert!(!is_lost(file.sync_all()), "it was told before");
        }
        for (name, _) in &said {
            assert!(!is_lost(sync(&at.join(name))), "another was told of {name}");
        }
        said
    }
}

/// What another mount does not have.
fn missing(at: &Path) -> Vec<(&'static str, bool)> {
    let starts = |name: &str, bytes: &[u8]| {
        fs::read(at.join(name)).is_ok_and(|found| found.starts_with(bytes))
    };
    let mode = |name: &str| fs::metadata(at.join(name)).expect("there").mode() & 0o777;
    let mut value = [0; 3];
    let xattr = fgetxattr(open(&at.join("xattr")), "user.new", &mut value);
    let (moved, left) = (at.join("to/name").exists(), at.join("from/name").exists());
    vec![
        ("mode", mode("mode") != 0o600),
        ("xattr", xattr.is_err()),
        ("both", !starts("both", b"new new")),
        ("closed", !starts("closed", b"new")),
        ("cut", fs::metadata(at.join("cut")).expect("there").len() != 3),
        ("linked", !at.join("to/link").exists()),
        ("dir", mode("dir") != 0o711),
        ("from", left),
        ("to", !moved || !at.join("to/link").exists()),
    ]
}

/// Loses a server, unless its node goes on.
type LoseServer = fn(Served) -> Option<Served>;

fn killed(served: Served) -> Option<Served> {
    served.kill_all();
    None
}

/// Changes, loses the server and starts it again; how many changes were lost, of which fsync tells
/// the truth.
fn round(home: &Home, served: Served, options: &[&str], lose: LoseServer) -> (Served, usize) {
    let address = served.address.clone();
    let mounted = Mounted::of(home, &served, "mnt", SOFT);
    let next = Served::ready(home, &address, options);
    let changes = Changes::make(&mounted.directory);
    let served = lose(served).unwrap_or_else(|| next.start());
    let said = changes.said(&mounted.directory);
    let other = Mounted::of(home, &served, "other", SOFT);
    let missing = missing(&other.directory);
    assert_eq!(said, missing, "what fsync says is lost, and what is");
    drop((changes, other));
    for dir in DIRS {
        fs::remove_dir_all(mounted.path(dir)).expect("removed");
    }
    for file in FILES {
        fs::remove_file(mounted.path(file)).expect("removed");
    }
    (served, missing.iter().filter(|(_, is_lost)| *is_lost).count())
}

#[test]
fn fsync_says_what_a_killed_server_has_lost() {
    let home = Home::new("fs-sync-killed");
    let mut served = Served::start(&home, &["--size", "64MiB"]);
    let begun = Instant::now();
    loop {
        let lost;
        (served, lost) = round(&home, served, &[], killed);
        // The server may have written everything by itself just before.
        if lost > 3 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing was lost");
    }
}

#[test]
fn fsync_says_nothing_where_nothing_is_lost() {
    let home = Home::new("fs-sync-kept");
    let always = ["--sync", "always"];
    let served = Served::start(&home, &[&["--size", "64MiB"][..], &always].concat());
    let (served, lost) = round(&home, served, &always, killed);
    assert_eq!(lost, 0, "every change was durable when it was acknowledged");
    let ended = |served| {
        drop(served);
        None
    };
    let (served, lost) = round(&home, served, &[], ended);
    assert_eq!(lost, 0, "it has ended in order");
    let only_service = |served: Served| {
        served.kill_service();
        Some(served)
    };
    let (_served, lost) = round(&home, served, &[], only_service);
    assert_eq!(lost, 0, "the node keeps what its services had");
}

#[test]
fn runs_that_no_client_has_met_are_remembered() {
    let home = Home::new("fs-sync-runs");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let address = served.address.clone();
    let mounted = Mounted::of(&home, &served, "mnt", SOFT);
    let next = [0; 3].map(|_| Served::ready(&home, &address, &[]));
    let path = mounted.path("file");
    fs::write(&path, b"kept").expect("written");
    drop(served);
    for next in next {
        let served = next.start();
        eventually("the store is served", || {
            home.run(&["fs", "stats", &served.address]).status.success()
        });
    }
    let _served = Served::at(&home, &address, &[]);
    assert!(!is_lost(sync(&path)), "four runs have ended in order since");
    assert_eq!(fs::read(&path).expect("read"), b"kept");
}

#[test]
fn an_error_is_not_lost_to_another_close() {
    let home = Home::new("fs-ends-close");
    let served = Served::start(&home, &["--size", "16MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", SOFT);
    let bytes = vec![7; 200_000];
    let fill = |number: u32| {
        let path = mounted.path(&format!("fill{number}"));
        let file = File::create(path).expect("made");
        file.write_all_at(&bytes, 0).and_then(|()| file.sync_all()).is_err()
    };
    assert!((0..200).any(fill), "it is full");
    let file = File::create(mounted.path("file")).expect("made");
    file.write_all_at(&bytes, 0).expect("gathered");
    // As a child of the process does, which has the descriptor until it executes a program.
    drop(file.try_clone().expect("another descriptor"));
    let full = file.sync_all().expect_err("it is not written");
    assert_eq!(full.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    file.sync_all().expect("it was said");
}

/// Tells the process of a mount to end.
fn tell(mounted: &Mounted, signal: Signal) {
    let pid = Pid::from_raw(mounted.process.id().cast_signed()).expect("a process");
    kill_process(pid, signal).expect("it is there");
}

fn ended(mounted: &mut Mounted) -> ExitStatus {
    let mut status = None;
    eventually("it ends", || {
        status = mounted.process.try_wait().expect("known");
        status.is_some()
    });
    status.expect("it has ended")
}

#[test]
fn a_mount_that_was_unmounted_lazily_ends_on_a_signal() {
    let home = Home::new("fs-ends-lazily");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let mut mounted = Mounted::of(&home, &served, "mnt", "");
    fs::write(mounted.path("file"), b"old").expect("written");
    let file = open(&mounted.path("file"));
    home.told(&["fs", "umount", "mnt"]);
    file.write_all_at(b"new", 0).expect("it is open");
    // Another mount has the directory now: it is not the one that ends.
    let next = Mounted::of(&home, &served, "mnt", "");
    tell(&mounted, Signal::TERM);
    assert!(ended(&mut mounted).success());
    assert_eq!(fs::read(next.path("file")).expect("it is mounted"), b"new");
    assert!(file.read_at(&mut [0; 3], 0).is_err(), "nobody serves it");
}

#[test]
fn files_that_are_open_are_served_until_the_second_signal() {
    let home = Home::new("fs-ends-twice");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let mut mounted = Mounted::of(&home, &served, "mnt", "");
    fs::write(mounted.path("file"), b"old").expect("written");
    let file = open(&mounted.path("file"));
    tell(&mounted, Signal::TERM);
    eventually("the directory is given back", || !is_mounted(&mounted.directory));
    file.write_all_at(b"new", 0).expect("it is open");
    file.sync_all().expect("it is served");
    let mut found = [0; 3];
    file.read_exact_at(&mut found, 0).expect("it is served");
    assert_eq!(&found, b"new");
    assert!(mounted.process.try_wait().expect("known").is_none());
    tell(&mounted, Signal::INT);
    assert!(ended(&mut mounted).success());
}

#[test]
fn a_mount_that_cannot_be_unmounted_says_so_and_ends() {
    if !is_root() {
        return;
    }
    let home = Home::new("fs-ends-covered");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let mut mounted = Mounted::of(&home, &served, "mnt", "");
    fs::write(mounted.path("file"), b"old").expect("written");
    let run = |program: &str, words: &[&str]| {
        let status = Command::new(program).args(words).current_dir(&home.0).status();
        assert!(status.expect("it starts").success(), "{program} {words:?}");
    };
    fs::create_dir(home.0.join("bound")).expect("made");
    run("mount", &["--bind", "mnt", "bound"]);
    run("mount", &["-t", "tmpfs", "cover", "bound"]);
    tell(&mounted, Signal::TERM);
    assert_eq!(ended(&mut mounted).code(), Some(1), "it is still mounted");
    run("umount", &["-l", "bound"]);
    run("umount", &["-l", "bound"]);
    // Wherever it is mounted a signal takes it away.
    if is_mounted(&mounted.directory) {
        run("umount", &["-l", "mnt"]);
    }
    let mut again = Mounted::of(&home, &served, "mnt", "");
    run("mount", &["--bind", "mnt", "bound"]);
    tell(&again, Signal::TERM);
    assert!(ended(&mut again).success());
    assert!(!is_mounted(&again.directory) && !is_mounted(&home.0.join("bound")));
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: only root binds mounts");
    }
    is_root
}
