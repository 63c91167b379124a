//! What appears at the destination, and what is refused, replaced or merged.

use super::*;
use crate::tree::{DEPTH_MAX, open_beneath};
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

fn with(publish: PublishMode) -> ReceiveOptions {
    ReceiveOptions { publish, ..options() }
}

fn place_with_files() -> Place {
    let place = Place::new();
    place.write("a", b"new a");
    place.write("d/b", b"new b");
    place.write("e/c", b"new c");
    place
}

#[test]
fn nothing_is_seen_before_all_is_there() {
    let place = place_with_files();
    let cast = place.cast();
    let receiver = cast.begin(&place.to(), options());
    let early = receiver.publish();
    assert!(matches!(early, Err(ReceiveError::Incomplete { missing: 1 })), "{early:?}");
    cast.put_all(&receiver, 1).expect("put");
    assert!(!place.to().join("src").exists());
    receiver.publish().expect("published");
    place.assert_published();
}

#[test]
fn what_is_there_is_not_replaced() {
    for link in [false, true] {
        let place = place_with_files();
        let there = place.to().join("src");
        if link {
            symlink("nowhere", &there).expect("linked");
        } else {
            fs::create_dir(&there).expect("made");
        }
        let found = place.cast().receive(&place.to(), options());
        assert!(matches!(found, Err(ReceiveError::Exists { .. })), "{found:?}");
        assert_eq!(names(&place.to()), ["src"], "refused before data came, and nothing left");
    }
}

#[test]
fn a_name_that_belongs_to_others_is_refused_in_every_mode() {
    for publish in [PublishMode::New, PublishMode::Replace, PublishMode::Merge] {
        let place = place_with_files();
        let cast = place.cast();
        let to = Destination::open(&place.to()).expect("open");
        let to = to.reserving([b"src".to_vec()].into());
        let receiver = Receiver::begin(to, Arc::clone(&cast.hashes), with(publish));
        let put = cast.put_all(&receiver.expect("a receiver"), 1);
        assert!(matches!(put, Err(ReceiveError::Reserved { .. })), "{put:?}");
        assert_eq!(names(&place.to()), [""; 0], "nothing is left");
    }
}

#[test]
fn a_name_that_appears_late_is_not_replaced_either() {
    let place = place_with_files();
    let cast = place.cast();
    let receiver = cast.begin(&place.to(), options());
    cast.put_all(&receiver, 1).expect("put");
    fs::create_dir(place.to().join("src")).expect("made");
    let found = receiver.publish();
    assert!(matches!(found, Err(ReceiveError::Exists { .. })), "{found:?}");
    fs::remove_dir(place.to().join("src")).expect("removed");
    receiver.publish().expect("published at the second attempt");
    place.assert_published();
}

#[test]
fn replace_exchanges_and_removes_the_old() {
    let place = place_with_files();
    let old = place.to().join("src");
    fs::create_dir_all(old.join("old/locked")).expect("made");
    fs::write(old.join("old/locked/file"), "old").expect("written");
    fs::set_permissions(old.join("old/locked"), Permissions::from_mode(0o000)).expect("its mode");
    fs::set_permissions(&old, Permissions::from_mode(0o555)).expect("its mode");
    let report = place.cast().receive(&place.to(), with(PublishMode::Replace)).expect("received");
    assert_eq!(report, PublishReport { names: 1, left_behind: None });
    place.assert_published();
    fs::remove_dir_all(&old).expect("removed");
    place.cast().receive(&place.to(), with(PublishMode::Replace)).expect("nothing to replace");
    place.assert_published();
}

/// More directories in one another than are removed. Whatever remains of the old tree, the same
/// cast goes on.
#[test]
fn what_cannot_be_removed_is_in_no_later_casts_way() {
    let place = place_with_files();
    let old = place.to().join("src");
    fs::create_dir(&old).expect("made");
    let mut deepest = fs::File::open(&old).expect("opened");
    for _ in 0..2 * DEPTH_MAX + 10 {
        rustix::fs::mkdirat(&deepest, "d", Mode::RWXU).expect("made");
        deepest = open_beneath(deepest.as_fd(), b"d", OFlags::RDONLY, Mode::empty())
            .expect("opened")
            .into();
    }
    let mut left = Vec::new();
    for expected in [true, false, false] {
        let report = place.cast().receive(&place.to(), with(PublishMode::Replace));
        let report = report.expect("published");
        assert_eq!(report.left_behind.is_some(), expected, "{report:?}");
        left.extend(report.left_behind);
        assert!(left[0].exists(), "nothing was removed by force");
        assert_eq!(listing(&old), listing(&place.src()));
    }
    let status = std::process::Command::new("rm").arg("-rf").arg(&left[0]).status();
    assert!(status.expect("rm").success());
}

#[test]
fn merge_puts_files_among_others() {
    let place = place_with_files();
    let there = place.to().join("src");
    fs::create_dir_all(there.join("d")).expect("made");
    for (name, bytes) in [("a", "old a"), ("kept", "kept"), ("d/kept", "kept")] {
        fs::write(there.join(name), bytes).expect("written");
    }
    symlink("/etc/passwd", there.join("d/b")).expect("linked");
    fs::set_permissions(place.src().join("e"), Permissions::from_mode(0o555)).expect("its mode");
    place.cast().receive(&place.to(), with(PublishMode::Merge)).expect("received");
    for (name, bytes) in [("a", "new a"), ("kept", "kept"), ("d/kept", "kept"), ("d/b", "new b")] {
        assert_eq!(fs::read_to_string(there.join(name)).expect("read"), bytes, "{name}");
    }
    assert!(fs::symlink_metadata(there.join("d/b")).expect("there").is_file());
    assert_eq!(listing(&there.join("e")), listing(&place.src().join("e")));
    assert_eq!(names(&place.to()), ["src"]);
}

#[test]
fn merge_refuses_conflicts_before_anything_moves() {
    let place = place_with_files();
    let there = place.to().join("src");
    fs::create_dir_all(there.join("e/c")).expect("made");
    let found = place.cast().receive(&place.to(), with(PublishMode::Merge));
    let Err(ReceiveError::Conflict { path }) = found else { panic!("{found:?}") };
    assert_eq!(path, Path::new("src/e/c"));
    assert_eq!(names(&there), ["e"]);
    let to = place.outer.path().join("second");
    fs::create_dir_all(to.join("e/c")).expect("made");
    let sources = ["a", "d", "e"].map(|name| place.src().join(name));
    let sources: Vec<_> = sources.iter().map(PathBuf::as_path).collect();
    let found = TestCast::of(&sources, 4096).receive(&to, with(PublishMode::Merge));
    assert!(matches!(found, Err(ReceiveError::Conflict { .. })), "{found:?}");
    assert!(!to.join("a").exists(), "the names before the conflict have not moved");
}

#[test]
fn a_merge_broken_half_way_is_completed() {
    let place = place_with_files();
    let there = place.to().join("src");
    fs::create_dir_all(there.join("d")).expect("made");
    fs::create_dir_all(there.join("e/c")).expect("made");
    let cast = place.cast();
    let found = cast.receive(&place.to(), with(PublishMode::Merge));
    assert!(matches!(found, Err(ReceiveError::Conflict { .. })), "{found:?}");
    fs::remove_dir(there.join("e/c")).expect("removed");
    let staged = staging_in(&place.to()).join("tree/src");
    fs::rename(staged.join("d/b"), there.join("d/b")).expect("moved");
    let receiver = cast.begin(&place.to(), with(PublishMode::Merge));
    assert_eq!(receiver.resume().expect("resumed"), receiver.bitmap().chunks());
    receiver.publish().expect("published");
    assert_eq!(listing(&there.join("a")), listing(&place.src().join("a")));
    for (name, bytes) in [("a", "new a"), ("d/b", "new b"), ("e/c", "new c")] {
        assert_eq!(fs::read_to_string(there.join(name)).expect("read"), bytes, "{name}");
    }
    assert_eq!(names(&place.to()), ["src"]);
}

#[test]
fn a_program_runs_as_soon_as_it_is_published() {
    let place = Place::new();
    let shell = fs::read("/bin/true").expect("read");
    place.write("true", &shell);
    let mode = Permissions::from_mode(0o755);
    fs::set_permissions(place.src().join("true"), mode).expect("its mode");
    let cast = place.cast();
    let receiver = cast.begin(&place.to(), options());
    cast.put_all(&receiver, 1).expect("put");
    receiver.publish().expect("published");
    // Another test may fork while the file is open here, and not have executed its program yet.
    let run = || std::process::Command::new(place.to().join("src/true")).status();
    let is_busy = |status: &std::io::Result<_>| {
        status.as_ref().is_err_and(|error| error.kind() == ErrorKind::ExecutableFileBusy)
    };
    let mut status = run();
    for _ in 0..50 {
        if is_busy(&status) {
            std::thread::sleep(Duration::from_millis(10));
            status = run();
        }
    }
    assert!(status.expect("run").success());
    assert_eq!(receiver.bitmap().held(), receiver.bitmap().chunks(), "which still serves it");
}

#[test]
fn flushing_and_keeping_special_bits_are_options() {
    let place = place_with_files();
    let setuid = |mode| {
        let path = place.src().join("a");
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode");
    };
    setuid(0o6755);
    let mut keeping = options();
    keeping.flush = FlushMode::BeforePublishing;
    keeping.attributes.special_bits = SpecialBits::Keep;
    place.cast().receive(&place.to(), keeping).expect("received");
    place.assert_published();
    fs::remove_dir_all(place.to().join("src")).expect("removed");
    place.cast().receive(&place.to(), options()).expect("received");
    setuid(0o755);
    place.assert_published();
}

#[test]
fn owners_are_given_where_that_is_allowed() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: changing owners needs root");
        return;
    }
    let place = place_with_files();
    symlink("a", place.src().join("link")).expect("linked");
    let mut chown = options();
    chown.attributes.ownership = Ownership::Given { uid: 12_345, gid: 54_321 };
    place.cast().receive(&place.to(), chown).expect("received");
    for name in ["a", "d", "d/b", "link"] {
        let metadata = fs::symlink_metadata(place.to().join("src").join(name)).expect("there");
        assert_eq!((metadata.uid(), metadata.gid()), (12_345, 54_321), "{name}");
    }
    place.assert_published();
}
