//! `--merge` and the directories that are at the destination already: writable for the moment, with
//! the source's attributes in the end, and with their own when the merge breaks.

use super::*;
use crate::receive::unlocked::UnlockedDirectories;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::process::{Gid, Uid};
use std::fs::{File, FileTimes, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::{Duration, SystemTime};

/// A user without rights of its own, on all systems.
const NOBODY: u32 = 65534;

fn merging() -> ReceiveOptions {
    ReceiveOptions { publish: PublishMode::Merge, ..options() }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").mode() & 0o7777
}

/// Runs what modes can refuse something: as root, in a thread of another user's.
fn without_root<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if !rustix::process::geteuid().is_root() {
        return work();
    }
    let other_user = || {
        let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        rustix::thread::set_thread_groups(&[]).expect("groups");
        rustix::thread::set_thread_res_gid(gid, gid, gid).expect("a group");
        rustix::thread::set_thread_res_uid(uid, uid, uid).expect("a user");
        work()
    };
    std::thread::scope(|scope| scope.spawn(other_user).join().expect("it ends"))
}

/// `src/locked/f`, `src/locked/in/g` in the source; the directories at the destination are old and
/// have another file each.
fn place_with_directories() -> Place {
    let place = Place::new();
    place.write("locked/f", b"new");
    place.write("locked/in/g", b"new");
    let there = place.to().join("src/locked/in");
    fs::create_dir_all(&there).expect("made");
    fs::write(there.join("kept"), b"kept").expect("written");
    place
}

#[test]
fn directories_that_may_not_be_written_to_get_files() {
    for modes in [[0o555, 0o555], [0o500, 0o000], [0o311, 0o555]] {
        let place = without_root(|| {
            let place = place_with_directories();
            let there = place.to().join("src/locked");
            // The second merge meets what the first one has published.
            for bytes in [b"first", b"later"] {
                place.write("locked/in/g", bytes);
                set_mode(&place.src().join("locked"), 0o555);
                set_mode(&there.join("in"), modes[1]);
                set_mode(&there, modes[0]);
                place.cast().receive(&place.to(), merging()).expect("merged");
                assert_eq!(mode(&there), 0o555);
                set_mode(&place.src().join("locked"), 0o755);
                assert_eq!(fs::read(there.join("in/g")).expect("read"), bytes);
                assert_eq!(fs::read(there.join("in/kept")).expect("read"), b"kept");
            }
            assert_eq!(names(&place.to()), ["src"]);
            set_mode(&there, 0o755);
            place
        });
        drop(place);
    }
}

#[test]
fn directories_that_are_there_get_the_sources_attributes() {
    let place = place_with_directories();
    let (from, there) = (place.src().join("locked"), place.to().join("src/locked"));
    for (directory, value) in [(&from, b"new"), (&there, b"old")] {
        setxattr(directory, "user.d", value, XattrFlags::empty()).expect("set");
    }
    setxattr(&there, "user.own", b"own", XattrFlags::empty()).expect("set");
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (directory, file_mode) in [(from.join("in"), 0o705), (from.clone(), 0o750)] {
        let times = FileTimes::new().set_modified(then);
        File::open(&directory).expect("open").set_times(times).expect("its times");
        set_mode(&directory, file_mode);
    }
    // The administrator's bit; the source's would not be taken.
    set_mode(&there, 0o2775);
    place.cast().receive(&place.to(), merging()).expect("merged");
    for (directory, expected) in [(there.join("in"), 0o705), (there.clone(), 0o2750)] {
        assert_eq!(mode(&directory), expected, "{directory:?}");
        let modified = fs::metadata(&directory).expect("there").modified().expect("a time");
        assert_eq!(modified, then, "{directory:?}");
    }
    for (name, expected) in [("user.d", b"new"), ("user.own", b"own")] {
        let mut value = [0; 3];
        assert_eq!(getxattr(&there, name, &mut value), Ok(3), "{name}");
        assert_eq!(&value, expected, "{name}");
    }
}

#[test]
fn a_merge_that_is_refused_leaves_modes_as_they_were() {
    let place = place_with_directories();
    let there = place.to().join("src/locked");
    fs::create_dir(there.join("f")).expect("made, where the source has a file");
    set_mode(&there.join("in"), 0o500);
    set_mode(&there, 0o555);
    let found = place.cast().receive(&place.to(), merging());
    assert!(matches!(found, Err(ReceiveError::Conflict { .. })), "{found:?}");
    assert_eq!((mode(&there), mode(&there.join("in"))), (0o555, 0o500));
}

/// Killed while directories are writable: whatever looks at the remains next, a node's sweep, the
/// same cast or another one, gives them their modes back. Those that somebody has changed since
/// stay as they are.
#[test]
fn a_merge_that_was_killed_leaves_no_directory_writable() {
    let place = place_with_directories();
    let there = place.to().join("src/locked");
    set_mode(&there.join("in"), 0o000);
    set_mode(&there, 0o555);
    let destination = File::open(place.to()).expect("open");
    let kill = |cast: &TestCast| {
        let receiver = cast.begin(&place.to(), merging());
        cast.put_all(&receiver, 1).expect("put");
        let staging = File::open(staging_in(&place.to())).expect("open");
        let unlocked =
            UnlockedDirectories { staging: staging.as_fd(), destination: destination.as_fd() };
        let src = File::open(place.to().join("src")).expect("open");
        let locked = unlocked.unlock((src.as_fd(), b"locked"), b"src/locked").expect("writable");
        unlocked.unlock((locked.as_fd(), b"in"), b"src/locked/in").expect("writable");
        assert_eq!((mode(&there), mode(&there.join("in"))), (0o755, 0o700));
        drop(receiver);
    };
    let looks = [
        |place: &Place, _: &TestCast| {
            let to = Destination::open(&place.to()).expect("open");
            assert_eq!(remove_abandoned(&to, Duration::from_secs(3600)), 0, "too young to go");
        },
        |place: &Place, cast: &TestCast| drop(cast.begin(&place.to(), merging())),
        |place: &Place, _: &TestCast| {
            let other = TestCast::of(&[&place.src().join("locked/f")], 4096);
            drop(other.begin(&place.to(), merging()));
        },
    ];
    let cast = place.cast();
    for look in looks {
        kill(&cast);
        look(&place, &cast);
        assert_eq!((mode(&there), mode(&there.join("in"))), (0o555, 0o000));
    }
    kill(&cast);
    set_mode(&there, 0o700);
    drop(cast.begin(&place.to(), merging()));
    assert_eq!((mode(&there), mode(&there.join("in"))), (0o700, 0o000));
    cast.receive(&place.to(), merging()).expect("merged");
    assert_eq!(mode(&there), mode(&place.src().join("locked")));
}

#[test]
fn another_users_directory_keeps_its_attributes_or_is_refused_by_name() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = without_root(place_with_directories);
    let there = place.to().join("src/locked/in");
    chown(&there, Some(0), Some(0)).expect("another user's");
    set_mode(&there, 0o755);
    let found = without_root(|| place.cast().receive(&place.to(), merging()));
    let Err(ReceiveError::Foreign { path, uid: 0, own: NOBODY }) = found else {
        panic!("{found:?}")
    };
    assert_eq!(path, Path::new("src/locked/in"));
    assert_eq!(names(&there), ["kept"]);
    assert!(!place.to().join("src/locked/f").exists(), "nothing has moved");
    // It may be written to.
    fs::remove_dir_all(staging_in(&place.to())).expect("removed");
    set_mode(&there, 0o777);
    without_root(|| place.cast().receive(&place.to(), merging())).expect("merged");
    assert!(names(&there).len() > 1 && place.to().join("src/locked/f").exists());
    let kept = there.metadata().expect("there");
    assert_eq!((kept.uid(), kept.mode() & 0o7777), (0, 0o777));
}
