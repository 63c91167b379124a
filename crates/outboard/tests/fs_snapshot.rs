//! `outboard fs snapshot` and `restore`: copies of a store whose files change meanwhile, whose
//! server is killed meanwhile, and that have no place.

#[expect(dead_code, reason = "other tests use the rest")]
mod home;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "home/served.rs"]
mod served;

use home::Home;
use outboard_testkit::PATIENCE;
use rustix::process::{Pid, Signal, kill_process};
use served::{Mounted, Served, kill};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Files that are written over and over, each all of one byte.
const FILES: usize = 24;
const FILE_LEN: usize = 1 << 20;

/// Bytes that tell of any others among them.
fn contents(file: usize, round: u64) -> Vec<u8> {
    let line = format!("file {file} round {round:012}\n");
    line.as_bytes().iter().copied().cycle().take(FILE_LEN).collect()
}

fn check_contents(root: &Path) {
    for file in 0..FILES {
        let bytes = fs::read(root.join(format!("f{file}"))).expect("it is there");
        let text = String::from_utf8_lossy(&bytes);
        let round = text.lines().next().and_then(|line| line.split(' ').nth(3));
        let round = round.and_then(|round| round.parse().ok());
        assert!(Some(bytes.as_slice()) == round.map(|of| contents(file, of)).as_deref(), "f{file}");
    }
}

/// Each file by another name first, so that there is always a whole one.
fn put(root: &Path, name: &str, bytes: &[u8]) {
    let next = root.join(format!("{name}.next"));
    fs::write(&next, bytes).and_then(|()| fs::rename(&next, root.join(name))).expect("written");
}

fn fill(root: &Path) {
    (0..FILES).for_each(|file| put(root, &format!("f{file}"), &contents(file, 0)));
    ["a", "b"].into_iter().for_each(|name| put(root, name, b"0"));
}

fn number(path: &Path) -> u64 {
    fs::read_to_string(path).expect("it is there").parse().expect("a number")
}

/// Files change until somebody says that it is enough: `b` is never ahead of `a`, nor more than one
/// behind it.
fn change(root: &Path, round: &AtomicU64, is_enough: &AtomicBool) {
    while !is_enough.load(Ordering::Relaxed) {
        let next = round.load(Ordering::Relaxed) + 1;
        put(root, "a", next.to_string().as_bytes());
        let file = usize::try_from(next).expect("few") % FILES;
        put(root, &format!("f{file}"), &contents(file, next));
        put(root, "b", next.to_string().as_bytes());
        round.store(next, Ordering::Relaxed);
    }
}

/// The unfinished directories of a home.
fn unfinished(home: &Home) -> Vec<PathBuf> {
    let all = fs::read_dir(&home.0).expect("a directory");
    let all = all.map(|entry| entry.expect("an entry").path());
    all.filter(|path| path.to_string_lossy().contains(".unfinished-")).collect()
}

fn signal(process: &Child, signal: Signal) {
    let pid = Pid::from_raw(process.id().cast_signed()).expect("a process");
    kill_process(pid, signal).expect("it is there");
}

/// A snapshot whose metadata are made, and whose blocks are not copied yet: it is stopped.
fn stopped_snapshot(home: &Home) -> Child {
    for _ in 0..50 {
        let mut command = home.command(&["fs", "snapshot", "--store", "store", "copy", "--json"]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let begun = Instant::now();
        while !unfinished(home).iter().any(|path| path.join("data").exists()) {
            assert!(begun.elapsed() < PATIENCE, "nothing is copied");
            if child.try_wait().expect("known").is_some() {
                break;
            }
        }
        if child.try_wait().expect("known").is_none() {
            signal(&child, Signal::STOP);
            thread::sleep(Duration::from_millis(50));
            if !unfinished(home).is_empty() {
                return child;
            }
            signal(&child, Signal::CONT);
        }
        let _ended = child.wait();
        fs::remove_dir_all(home.0.join("copy")).expect("it was faster");
    }
    panic!("snapshots are made too fast to be stopped")
}

/// Has the store that is served be another one.
fn replace(home: &Home, by: &str) {
    fs::rename(home.0.join("store"), home.0.join("store.old")).expect("renamed");
    fs::rename(home.0.join(by), home.0.join("store")).expect("renamed");
}

#[test]
fn a_snapshot_is_the_state_of_one_moment() {
    let home = Home::new("fs-snapshot");
    // So small that blocks are used again at once.
    let served = Served::start(&home, &["--size", "64MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    fill(&mounted.directory);
    let (round, is_enough) = (AtomicU64::new(0), AtomicBool::new(false));
    let wait_for = |more: u64| {
        let (to, begun) = (round.load(Ordering::Relaxed) + more, Instant::now());
        while round.load(Ordering::Relaxed) < to {
            assert!(begun.elapsed() < PATIENCE, "nothing changes any more");
            thread::sleep(Duration::from_millis(10));
        }
    };
    let (from, to) = thread::scope(|scope| {
        scope.spawn(|| change(&mounted.directory, &round, &is_enough));
        wait_for(3);
        let from = round.load(Ordering::Relaxed);
        let child = stopped_snapshot(&home);
        let to = round.load(Ordering::Relaxed) + 1;
        // Every file is given new blocks more than once, more than the store has in all.
        wait_for(80);
        signal(&child, Signal::CONT);
        let output = child.wait_with_output().expect("it ends");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        // What was held back is of use again: more is written than there are blocks.
        wait_for(80);
        is_enough.store(true, Ordering::Relaxed);
        (from, to)
    });
    check_contents(&mounted.directory);
    let said = home.told(&["fs", "check", "--store", "copy"]);
    assert!(said.ends_with("no damage\n"), "{said}");
    let said = home.told(&["fs", "restore", "copy", "--store", "new"]);
    assert!(said.starts_with("commit "), "{said}");
    let said = home.told(&["fs", "check", "--store", "new"]);
    assert!(said.ends_with("no damage\n"), "{said}");
    drop((mounted, served));
    for store in ["new", "copy"] {
        replace(&home, store);
        let served = Served::start(&home, &[]);
        let mounted = Mounted::of(&home, &served, "mnt", "");
        check_contents(&mounted.directory);
        let (a, b) = (number(&mounted.path("a")), number(&mounted.path("b")));
        assert!(a == b || a == b + 1, "{a} and {b}");
        assert!(from <= a && b <= to, "{from} to {to}: {a} and {b}");
        put(&mounted.directory, "a", b"written");
        drop((mounted, served));
        fs::remove_dir_all(home.0.join("store.old")).expect("removed");
    }
}

#[test]
fn what_is_half_made_is_no_store() {
    let home = Home::new("fs-snapshot-killed");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    fill(&mounted.directory);
    // The service is killed, and comes back: it holds nothing for whoever asked the one before.
    let child = stopped_snapshot(&home);
    served.kill_service();
    signal(&child, Signal::CONT);
    let output = child.wait_with_output().expect("it ends");
    assert!(String::from_utf8_lossy(&output.stderr).contains("the server has ended"));
    assert!(!output.status.success() && !home.0.join("copy").exists());
    assert_eq!(unfinished(&home), Vec::<PathBuf>::new());
    check_contents(&mounted.directory);
    // Who copies is killed: what it leaves nobody takes for a store.
    let mut child = stopped_snapshot(&home);
    kill(child.id());
    let _killed = child.wait();
    let left = unfinished(&home);
    let left = left[0].to_str().expect("text");
    for words in [&["fs", "restore", left, "--store", "new"][..], &["fs", "check", "--store", left]]
    {
        let said = home.complaint(words);
        assert!(said.contains("is no store"), "{words:?}: {said}");
    }
    // Even if it belongs to the user who would serve it.
    let owner = fs::metadata(home.0.join("store")).expect("known");
    let all = fs::read_dir(left).expect("listed").map(|entry| entry.expect("an entry").path());
    for path in all.chain([PathBuf::from(left)]) {
        chown(path, Some(owner.uid()), Some(owner.gid())).expect("given");
    }
    let outboard = home.command(&["fs", "serve", "--store", left, "--listen", "127.0.0.1:0"]);
    let mut limited = Command::new("timeout");
    limited.arg("20").arg(outboard.get_program()).args(outboard.get_args());
    let output = limited.current_dir(&home.0).env("HOME", &home.0).output().expect("timeout");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("files of something else (unfinished)"), "{said}");
    assert!(!home.0.join("new").exists() && !home.0.join("copy").exists());
    // And nothing is held for it: the next one is made, and files are written.
    home.told(&["fs", "snapshot", "--store", "store", "copy"]);
    fill(&mounted.directory);
    // The whole server is killed.
    fs::rename(home.0.join("copy"), home.0.join("first")).expect("renamed");
    fs::remove_dir_all(left).expect("removed");
    let child = stopped_snapshot(&home);
    drop(mounted);
    served.kill_all();
    signal(&child, Signal::CONT);
    let output = child.wait_with_output().expect("it ends");
    assert!(!output.status.success() && !home.0.join("copy").exists());
    assert_eq!(unfinished(&home), Vec::<PathBuf>::new());
    let said = home.complaint(&["fs", "snapshot", "--store", "store", "copy"]);
    assert!(said.contains("no server of"), "{said}");
}

#[test]
fn a_copy_replaces_nothing_and_needs_space() {
    let home = Home::new("fs-snapshot-space");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    fill(&mounted.directory);
    fs::create_dir(home.0.join("there")).expect("made");
    let said = home.complaint(&["fs", "snapshot", "--store", "store", "there"]);
    assert!(said.contains("is there already"), "{said}");
    let said = home.complaint(&["fs", "restore", "store", "--store", "new"]);
    assert!(said.contains("in use by another process"), "{said}");
    home.told(&["fs", "snapshot", "--store", "store", "copy"]);
    let said = home.complaint(&["fs", "restore", "copy", "--store", "there"]);
    assert!(said.contains("is there already"), "{said}");
    for words in ["snapshot --store store full/copy", "restore copy --store full/copy"] {
        let script = "mkdir -p full; mount -t tmpfs -o size=8m t full; \
                      \"$0\" fs $1 && exit 3; ls -A full";
        let outboard = home.command(&[]);
        let mut shell = Command::new("unshare");
        let own = if rustix::process::geteuid().is_root() { "-m" } else { "-Urm" };
        shell.args([own, "sh", "-c", script]).arg(outboard.get_program()).arg(words);
        let output = shell.current_dir(&home.0).output().expect("unshare");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && error.contains("No space left"), "{error}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{words}: something is left");
    }
    check_contents(&mounted.directory);
}
