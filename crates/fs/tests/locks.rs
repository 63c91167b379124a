//! Locks of files through two mounts of one file system.
//!
//! Needs FUSE, and sqlite3 for one test; where there is none the tests say so and do nothing.

#[expect(dead_code, reason = "another test uses the rest")]
#[path = "support/served.rs"]
mod served;

use libtest_mimic::{Arguments, Trial};
use outboard_fs::client::{FsCaller, FsClient, FsError, FsLock, LockHow, LockState};
use outboard_fs::protocol::{FsInode, LockKind};
use outboard_testkit::{PATIENCE, eventually};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::process::{Pid, Signal, kill_process};
use served::{MountProcess, ServedNode, started};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// What makes this program one that locks a file, and holds it until its input ends.
const HOLDER: &str = "be-a-holder";
/// Requests for locks that wait at the service.
const LOCK_WAITS: &str = "/backend/lock_waits";
/// How long a client may be gone.
const GRACE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    if let Some(over) = started() {
        return over;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [hidden, how, path] = &words[..]
        && hidden == HOLDER
    {
        return hold(how, path);
    }
    let trial = |name: &str, run: fn()| {
        let run = move || {
            run();
            Ok(())
        };
        Trial::test(name, run)
    };
    let mut trials = vec![
        trial("a_client_keeps_what_it_says_again", a_client_keeps_what_it_says_again),
        trial("a_connection_has_the_locks_of_one_client", a_connection_has_the_locks_of_one_client),
    ];
    if OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok() {
        trials.extend([
            trial("both_kinds_exclude_across_mounts", both_kinds_exclude_across_mounts),
            trial("who_waits_gets_it_in_the_end", who_waits_gets_it_in_the_end),
            trial("a_mount_that_is_killed_loses_its_locks", a_mount_that_is_killed_loses_its_locks),
            trial("a_lock_outlives_the_service", a_lock_outlives_the_service),
            trial("two_writers_of_one_database", two_writers_of_one_database),
        ]);
    } else {
        eprintln!("/dev/fuse cannot be used here: nothing is mounted");
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn locked(how: &str, file: &File, operation: FlockOperation) -> rustix::io::Result<()> {
    match how {
        "flock" => flock(file, operation),
        _ => fcntl_lock(file, operation),
    }
}

fn hold(how: &str, path: &str) -> ExitCode {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a file");
    let done = locked(how, &file, FlockOperation::LockExclusive);
    println!("{}", if done.is_ok() { "held" } else { "not held" });
    let _ended = std::io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}

/// A process that holds a lock, or waits for it.
struct Holder {
    child: Child,
    told: BufReader<std::process::ChildStdout>,
}

impl Holder {
    fn begin(how: &str, path: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg(HOLDER).arg(how).arg(path);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let told = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, told }
    }

    fn has_it(&mut self) {
        let mut line = String::new();
        self.told.read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), "held");
    }

    fn of(how: &str, path: &Path) -> Self {
        let mut holder = Self::begin(how, path);
        holder.has_it();
        holder
    }

    /// Lets it go, in order.
    fn end(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("it ends");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// It ends while it waits for a lock.
    fn ends(&mut self) {
        eventually("it ends", || self.child.try_wait().expect("its state").is_some());
    }

    fn is_waiting(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_none()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have ended.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("open")
}

/// Whether a lock can be had now.
fn is_free(how: &str, path: &Path) -> bool {
    let file = open(path);
    match locked(how, &file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => true,
        Err(error) => {
            assert!(matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS));
            false
        }
    }
}

/// A process has ended that had a lock. The kernel waits until its mount has flushed what it had
/// open, which gives up what belongs to the process (fcntl). It has told the mount of the file's
/// last closing, too, but does not wait for that: what belongs to the opening (flock) goes later.
fn goes_with_the_process(how: &str, path: &Path) {
    match how {
        "flock" => eventually("the lock goes with the process", || is_free(how, path)),
        _ => assert!(is_free(how, path), "{how}: it goes with the process"),
    }
}

fn both_kinds_exclude_across_mounts() {
    let node = ServedNode::start();
    let [one, other] = ["one", "other"].map(|name| MountProcess::of(&node, name, ""));
    for how in ["flock", "fcntl"] {
        let (path, same) = (one.path(how), other.path(how));
        drop(open(&path));
        let holder = Holder::of(how, &path);
        assert!(!is_free(how, &same) && !is_free(how, &path), "{how}");
        holder.end();
        goes_with_the_process(how, &same);
        let shared = open(&path);
        locked(how, &shared, FlockOperation::LockShared).expect("free");
        let second = open(&same);
        if how == "flock" {
            locked(how, &second, FlockOperation::NonBlockingLockShared).expect("shared");
            let upgrade = locked(how, &second, FlockOperation::NonBlockingLockExclusive);
            assert_eq!(upgrade, Err(rustix::io::Errno::AGAIN));
        }
        locked(how, &shared, FlockOperation::Unlock).expect("given up");
        assert!(how == "flock" || is_free(how, &same));
    }
}

/// On release, on close, on the holder's death; and not by those who wait no more.
fn who_waits_gets_it_in_the_end() {
    let node = ServedNode::start();
    let [one, other] = ["one", "other"].map(|name| MountProcess::of(&node, name, ""));
    for how in ["flock", "fcntl"] {
        let (path, same) = (one.path(how), other.path(how));
        let held = Holder::of(how, {
            drop(open(&path));
            &path
        });
        let mut waits = Holder::begin(how, &same);
        let mut interrupted = Holder::begin(how, &same);
        let mut killed = Holder::begin(how, &path);
        node.wait_for(LOCK_WAITS, 3);
        interrupted.signal(Signal::TERM);
        interrupted.ends();
        killed.signal(Signal::KILL);
        killed.ends();
        node.wait_for(LOCK_WAITS, 1);
        assert!(waits.is_waiting());
        held.end();
        waits.has_it();
        let mut last = Holder::begin(how, &path);
        node.wait_for(LOCK_WAITS, 1);
        waits.signal(Signal::KILL);
        last.has_it();
        last.end();
        assert!(is_free(how, &same), "{how}: nothing is left of those who have gone");
    }
    // More wait than there are threads for the kernel's requests.
    let path = one.path("many");
    drop(open(&path));
    let held = Holder::of("flock", &path);
    let mut many: Vec<_> = (0..40).map(|_| Holder::begin("flock", &path)).collect();
    node.wait_for(LOCK_WAITS, 40);
    assert!(fs::metadata(one.path("many")).is_ok(), "others are served");
    held.end();
    for holder in &mut many {
        // Whoever has it says so; the others get it one after the other.
        drop(holder.child.stdin.take());
    }
    for holder in &mut many {
        holder.has_it();
    }
}

fn a_mount_that_is_killed_loses_its_locks() {
    let node = ServedNode::start();
    let [one, other] = ["one", "other"].map(|name| MountProcess::of(&node, name, ""));
    let (path, same) = (one.path("file"), other.path("file"));
    drop(open(&path));
    let _holder = Holder::of("fcntl", &path);
    let mut waits = Holder::begin("fcntl", &same);
    node.wait_for(LOCK_WAITS, 1);
    one.signal(Signal::KILL);
    let begun = Instant::now();
    waits.has_it();
    let took = begun.elapsed();
    assert!(took > GRACE - Duration::from_secs(1) && took < GRACE + PATIENCE, "{took:?}");
}

fn a_lock_outlives_the_service() {
    let node = ServedNode::start();
    let [one, other] = ["one", "other"].map(|name| MountProcess::of(&node, name, ""));
    let (path, same) = (one.path("file"), other.path("file"));
    drop(open(&path));
    let holder = Holder::of("flock", &path);
    let mut waits = Holder::begin("flock", &same);
    node.wait_for(LOCK_WAITS, 1);
    node.kill_service();
    let begun = Instant::now();
    assert!(!is_free("flock", &same), "it is held still");
    assert!(begun.elapsed() > GRACE / 2, "others wait until holders are back");
    assert!(waits.is_waiting());
    holder.end();
    waits.has_it();
    waits.end();
    assert!(is_free("flock", &path));
}

fn two_writers_of_one_database() {
    const ROWS: usize = 60;
    if Command::new("sqlite3").arg("--version").stdout(Stdio::null()).status().is_err() {
        return eprintln!("there is no sqlite3");
    }
    let node = ServedNode::start();
    let mounts = ["one", "other"].map(|name| MountProcess::of(&node, name, ""));
    let sql = |mount: &MountProcess, text: &str| {
        let output = Command::new("sqlite3").arg(mount.path("data")).arg(text).output();
        let output = output.expect("it starts");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && complaint.is_empty(), "{complaint}");
        String::from_utf8(output.stdout).expect("text")
    };
    sql(&mounts[0], "CREATE TABLE t(who, at, filler);");
    thread::scope(|scope| {
        for (who, mount) in mounts.iter().enumerate() {
            scope.spawn(move || {
                let mut child = Command::new("sqlite3")
                    .arg("-cmd")
                    .arg(".timeout 60000")
                    .arg(mount.path("data"))
                    .stdin(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .expect("it starts");
                let mut input = child.stdin.take().expect("piped");
                for at in 0..ROWS {
                    let text = format!(
                        "BEGIN IMMEDIATE; INSERT INTO t SELECT {who}, {at}, randomblob(500) \
                         WHERE (SELECT count(*) FROM t WHERE who = {who}) = {at}; COMMIT;\n"
                    );
                    input.write_all(text.as_bytes()).expect("it reads");
                }
                drop(input);
                let output = child.wait_with_output().expect("it ends");
                let complaint = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success() && complaint.is_empty(), "{complaint}");
            });
        }
    });
    for mount in &mounts {
        assert_eq!(sql(mount, "PRAGMA integrity_check;").trim(), "ok");
        let counts = sql(mount, "SELECT who, count(*), count(DISTINCT at) FROM t GROUP BY who;");
        assert_eq!(counts.trim(), format!("0|{ROWS}|{ROWS}\n1|{ROWS}|{ROWS}"));
    }
}

fn lock_of(inode: FsInode, owner: u64) -> FsLock {
    FsLock { inode, owner, range: (0, 9), kind: LockKind::Exclusive, pid: 1 }
}

fn errno<T>(done: Result<T, FsError>) -> Option<i32> {
    done.err().map(|error| error.errno())
}

fn a_client_keeps_what_it_says_again() {
    let node = ServedNode::start();
    let caller = FsCaller::default();
    let [one, other]: [Arc<FsClient>; 2] = [node.client(), node.client()];
    let lock = lock_of(one.root(), 7);
    assert_eq!(one.lock(&caller, &lock, LockHow::Try).expect("free"), LockState::Granted);
    let test = other.test_lock(&caller, &lock).expect("answered");
    assert_eq!(test, Some(((0, 9), LockKind::Exclusive, 0)), "another machine's process");
    let same = one.test_lock(&caller, &FsLock { owner: 8, ..lock }).expect("answered");
    assert_eq!(same, Some(((0, 9), LockKind::Exclusive, 1)));
    let stale = other.lock(&caller, &lock_of(one.root(), 9), LockHow::Reclaim);
    assert_eq!(errno(stale), Some(libc::ESTALE), "it had none");
    assert_eq!(errno(other.lock(&caller, &lock, LockHow::Try)), Some(libc::EAGAIN));
    assert_eq!(other.lock(&caller, &lock, LockHow::Wait(5)).expect("asked"), LockState::Queued);
    let circle = FsLock { range: (20, 29), ..lock };
    assert_eq!(other.lock(&caller, &circle, LockHow::Try).expect("free"), LockState::Granted);
    assert_eq!(errno(one.lock(&caller, &circle, LockHow::Wait(6))), Some(libc::EDEADLK));
    assert!(other.cancel_lock(&caller, &lock, 5).expect("answered"));
    assert!(!other.cancel_lock(&caller, &lock, 5).expect("answered"));
    node.kill_service();
    let again = one.lock(&caller, &lock, LockHow::Reclaim).expect("in time");
    assert_eq!(again, LockState::Granted);
    let begun = Instant::now();
    assert_eq!(errno(other.lock(&caller, &lock, LockHow::Try)), Some(libc::EAGAIN));
    assert!(begun.elapsed() > GRACE / 2, "{:?}", begun.elapsed());
    let late = other.lock(&caller, &circle, LockHow::Reclaim);
    assert_eq!(errno(late), Some(libc::ESTALE), "too late");
    one.unlock(&caller, lock.inode, lock.owner, (0, u64::MAX)).expect("given up");
    assert_eq!(other.lock(&caller, &lock, LockHow::Try).expect("free"), LockState::Granted);
}

fn a_connection_has_the_locks_of_one_client() {
    let node = ServedNode::start();
    let caller = FsCaller::default();
    let client = node.client();
    let bad = FsLock { range: (9, 0), ..lock_of(client.root(), 1) };
    assert_eq!(errno(client.lock(&caller, &bad, LockHow::Try)), Some(libc::EINVAL));
    let lock = lock_of(client.root(), 1);
    client.lock(&caller, &lock, LockHow::Try).expect("free");
    drop(client);
    let next = node.client();
    let begun = Instant::now();
    assert_eq!(next.lock(&caller, &lock, LockHow::Wait(1)).expect("asked"), LockState::Queued);
    while errno(next.lock(&caller, &lock, LockHow::Try)).is_some() {
        assert!(begun.elapsed() < PATIENCE, "it is never free");
        thread::sleep(Duration::from_millis(100));
    }
    assert!(begun.elapsed() > GRACE / 2, "{:?}", begun.elapsed());
}
