//! Links that are cut while a mount keeps names, bytes and locks: to the server, from it, both
//! ways. What others do meanwhile waits for a bounded time only, and who was away cannot write on
//! what it knew.

#[path = "home/cable.rs"]
mod cable;
#[expect(dead_code, reason = "other tests use the rest")]
mod home;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "home/served.rs"]
mod served;

use cable::{Cable, Cut};
use home::Home;
use outboard_testkit::eventually;
use rustix::fs::{FlockOperation, fcntl_lock};
use served::{Mounted, Over, Served};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Longer than a client may be away with its locks.
const LOCKS: Duration = Duration::from_secs(10);

fn open(mounted: &Mounted, name: &str) -> File {
    File::options().read(true).write(true).open(mounted.path(name)).expect("opened")
}

/// A server, a mount that nothing is in the way of, and one behind a cable; a name and a lock that
/// the latter has.
struct Scene {
    // The first: a mount with an open file cannot be unmounted.
    held: File,
    cable: Cable,
    near: Mounted,
    far: Mounted,
    _served: Served,
    _home: Home,
}

impl Scene {
    fn new(name: &str) -> Self {
        let home = Home::new(name);
        let served = Served::start(&home, &["--size", "64MiB"]);
        let cable = Cable::to(&served.address);
        let near = Mounted::of(&home, &served, "near", "");
        let far = Mounted::at(&home, &cable.address, "far", "");
        fs::write(near.path("locked"), b"old").expect("written");
        fs::write(near.path("named"), b"kept").expect("written");
        let held = open(&far, "locked");
        fcntl_lock(&held, FlockOperation::NonBlockingLockExclusive).expect("locked");
        held.write_all_at(b"far", 0).expect("written");
        held.sync_all().expect("synced");
        assert_eq!(fs::metadata(far.path("named")).expect("there").len(), 4);
        Self { held, cable, near, far, _served: served, _home: home }
    }

    /// Who keeps a name is waited for, until its lease is over: this ends while the cable is cut.
    fn rename(&self) {
        fs::rename(self.near.path("named"), self.near.path("renamed")).expect("renamed");
    }

    fn works_again(&self, bytes: &[u8]) {
        eventually("the mount works again", || {
            fs::read(self.far.path("locked")).is_ok_and(|found| found == bytes)
        });
        assert!(!self.far.path("named").exists() && self.far.path("renamed").exists());
    }
}

/// A lock is another's when its client was not heard for long, and nothing is written on what was
/// known before.
fn unheard(how: Cut, name: &str) {
    let scene = Scene::new(name);
    scene.cable.cut(how);
    scene.rename();
    let own = open(&scene.near, "locked");
    // This ends while the cable is cut.
    fcntl_lock(&own, FlockOperation::LockExclusive).expect("locked");
    own.write_all_at(b"near", 0).expect("written");
    own.sync_all().expect("synced");

    scene.cable.mend();
    let late = scene.held.write_all_at(b"LATE", 0).and_then(|()| scene.held.sync_all());
    assert!(late.is_err(), "a write without its lock");
    assert_eq!(fs::read(scene.near.path("locked")).expect("read"), b"near");
    scene.works_again(b"near");
    drop(own);
    let mut again = open(&scene.far, "locked");
    fcntl_lock(&again, FlockOperation::LockExclusive).expect("locked again");
    again.write_all(b"again").and_then(|()| again.sync_all()).expect("written");
    assert_eq!(fs::read(scene.near.path("locked")).expect("read"), b"again");
}

#[test]
fn nobody_hears_the_other() {
    unheard(Cut::Both, "fs-cut-both");
}

#[test]
fn the_server_hears_nothing() {
    unheard(Cut::ToServer, "fs-cut-to");
}

/// Who is heard keeps its locks.
#[test]
fn the_server_is_not_heard() {
    let scene = Scene::new("fs-cut-from");
    scene.cable.cut(Cut::FromServer);
    scene.rename();
    thread::sleep(LOCKS + Duration::from_secs(3));
    let own = open(&scene.near, "locked");
    let taken = fcntl_lock(&own, FlockOperation::NonBlockingLockExclusive);
    let silence = scene.cable.silence();
    scene.cable.mend();
    assert!(silence < LOCKS * 3 / 4, "nothing is tested: the mount was starved for {silence:?}");
    assert!(taken.is_err(), "another's lock, who was silent for {silence:?} at most");
    scene.held.write_all_at(b"mine", 0).and_then(|()| scene.held.sync_all()).expect("written");
    scene.works_again(b"mine");
}

/// Requests that were on their way are made once, whatever of them has come.
#[test]
fn what_was_under_way_happens_once() {
    let home = Home::new("fs-cut-once");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let cable = Cable::to(&served.address);
    let far = Mounted::at(&home, &cable.address, "far", "");
    let near = Mounted::of(&home, &served, "near", "");
    fs::create_dir(far.path("d")).expect("made");
    let (is_over, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                // What is there already was made by somebody else, and there is nobody.
                File::create_new(far.path(&format!("d/{count}"))).expect("made once");
                let mut options = File::options();
                let log = options.append(true).create(true).open(far.path("log"));
                let line = format!("{count}\n");
                log.expect("opened").write_all(line.as_bytes()).expect("appended");
                count += 1;
                made.store(count, Ordering::Relaxed);
            }
        });
        let _over = Over(&is_over);
        let goes_on = || {
            let enough = made.load(Ordering::Relaxed) + 3;
            eventually("files are made", || made.load(Ordering::Relaxed) >= enough);
        };
        for how in [Cut::FromServer, Cut::ToServer, Cut::Both].into_iter().cycle().take(9) {
            goes_on();
            thread::sleep(Duration::from_millis(200));
            cable.cut(how);
            thread::sleep(Duration::from_millis(300));
            // The connection is gone: what was on its way with it, either way.
            cable.end_connections();
            cable.mend();
        }
        goes_on();
    });
    let made = made.into_inner();
    assert_eq!(fs::read_dir(near.path("d")).expect("listed").count(), made);
    let expected: String = (0..made).map(|count| format!("{count}\n")).collect();
    let log = fs::read_to_string(near.path("log")).expect("read");
    assert_eq!(log, expected, "appended once each, in order");
}
