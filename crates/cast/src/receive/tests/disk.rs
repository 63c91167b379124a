//! A disk that is full. A small file system is mounted in a namespace of a child's own, which is
//! this test program again.

use super::*;
use std::process::Command;

/// Tells the child where the small file system is.
const SMALL_DISK: &str = "OUTBOARD_CAST_SMALL_DISK";
const CHILD: &str = "receive::tests::disk::on_a_small_disk";
/// The child's answer when nothing could be mounted.
const NOT_MOUNTED: i32 = 77;

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    let place = tempfile::tempdir().expect("a directory");
    let own = std::env::current_exe().expect("this program");
    let script = format!(
        "mount -t tmpfs -o size=2m,nr_inodes=100 none \"$1\" || exit {NOT_MOUNTED}\n\
         exec \"$2\" --exact {CHILD} --nocapture"
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["-Urm", "sh", "-c", &script, "sh"]).arg(place.path()).arg(own);
    match unshare.env(SMALL_DISK, place.path()).output() {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.contains("1 passed"), "{text}");
        }
        Ok(output)
            if output.status.code() == Some(NOT_MOUNTED) || output.status.code() == Some(1) =>
        {
            println!("skipped: mounting a small file system needs a user namespace");
        }
        Err(_) => println!("skipped: there is no unshare"),
        Ok(output) => panic!("{output:?}"),
    }
}

/// Does nothing unless it is the child.
#[test]
fn on_a_small_disk() {
    let Some(to) = std::env::var_os(SMALL_DISK).map(PathBuf::from) else { return };
    let (large, many, early) = (Place::new(), Place::new(), Place::new());
    large.write("fits", &[1; 1 << 20]);
    large.write("does not", &[1; 1 << 20]);
    for name in 0..120 {
        many.write(&format!("{name}"), b"");
    }
    for name in 0..3 {
        early.write(&format!("{name}"), &[1; 1 << 20]);
    }
    for (cast, what) in [(large.cast(), "bytes"), (many.cast(), "files")] {
        let receiver = cast.begin(&to, options());
        let put = cast.put(&receiver, 0);
        let put = put.and_then(|_| {
            (1..cast.chunks.len()).try_for_each(|chunk| cast.put(&receiver, chunk).map(drop))
        });
        let Err(ReceiveError::NoRoom { what: found, .. }) = put else { panic!("{put:?}") };
        assert!(found.contains(what), "{found}");
        assert_eq!(names(&to), [""; 0], "{what}");
    }
    // Chunks that come before the manifest fill it.
    let cast = early.cast();
    let receiver = cast.begin(&to, options());
    let put = (1..cast.chunks.len()).try_for_each(|chunk| cast.put(&receiver, chunk).map(drop));
    assert!(matches!(put, Err(ReceiveError::NoSpace { .. })), "{put:?}");
    assert!(matches!(cast.put(&receiver, 0), Err(ReceiveError::Ended)));
    assert_eq!(names(&to), [""; 0]);
    let fitting = Place::new();
    fitting.write("a", &[1; 1 << 20]);
    let cast = fitting.cast();
    let receiver_of_what_fits = cast.begin(&to, options());
    for chunk in 0..cast.chunks.len() {
        cast.put(&receiver_of_what_fits, chunk).expect("there is room, though the other lives");
    }
    receiver_of_what_fits.publish().expect("published");
    drop(receiver);
    drop(receiver_of_what_fits);
    another_file_system_in_the_way(&to);
    another_file_system_in_what_is_replaced(&to);
    a_disk_that_is_read_only(&to);
}

/// What is mounted at a name is neither replaced nor written to.
fn another_file_system_in_the_way(to: &Path) {
    let place = Place::new();
    place.write("a", b"new");
    let mounted = to.join("src");
    run("mount", &["-t", "tmpfs", "none", mounted.to_str().expect("plain")]);
    fs::write(mounted.join("old"), b"old").expect("written");
    let replacing = ReceiveOptions { publish: PublishMode::Replace, ..options() };
    let found = place.cast().receive(to, replacing).expect_err("it cannot move").to_string();
    assert!(found.contains("src") && found.contains("busy"), "{found}");
    let merging = ReceiveOptions { publish: PublishMode::Merge, ..options() };
    let found = place.cast().receive(to, merging).expect_err("another file system").to_string();
    assert!(found.contains("src/a") && found.contains("cross-device"), "{found}");
    assert_eq!(names(&mounted), ["old"]);
    run("umount", &[mounted.to_str().expect("plain")]);
    place.cast().begin(to, options()).abandon();
}

/// What is mounted in the old tree keeps its files, and is in no later cast's way.
fn another_file_system_in_what_is_replaced(to: &Path) {
    let place = Place::new();
    place.write("a", b"new");
    let mounted = to.join("src/old");
    fs::create_dir_all(&mounted).expect("made");
    run("mount", &["-t", "tmpfs", "none", mounted.to_str().expect("plain")]);
    fs::write(mounted.join("precious"), b"old").expect("written");
    let replacing = || ReceiveOptions { publish: PublishMode::Replace, ..options() };
    let report = place.cast().receive(to, replacing()).expect("replaced");
    let left = report.left_behind.expect("it cannot be removed");
    let precious = left.join("tree/src/old/precious");
    assert_eq!(fs::read(&precious).expect("there"), b"old");
    let again = place.cast().receive(to, replacing()).expect("replaced again");
    assert_eq!(again, PublishReport { names: 1, left_behind: None });
    assert_eq!(fs::read(&precious).expect("there"), b"old");
    run("umount", &[precious.parent().expect("one").to_str().expect("plain")]);
    place.cast().receive(to, replacing()).expect("replaced once more");
    assert_eq!(names(to), ["src"], "what was left is removed when it can be");
}

fn a_disk_that_is_read_only(to: &Path) {
    fs::remove_dir_all(to.join("src")).expect("removed");
    let place = Place::new();
    place.write("a", &[1; 9000]);
    let cast = place.cast();
    let receiver = cast.begin(to, options());
    cast.put(&receiver, 0).expect("put");
    drop(receiver);
    let before = names(to);
    run("mount", &["-o", "remount,bind,ro", to.to_str().expect("plain")]);
    let resumed = cast.try_begin(to, options()).expect_err("read-only").to_string();
    assert!(resumed.contains("at the destination: Read-only"), "{resumed}");
    let new = cast.try_begin(to, with_another_name()).expect_err("read-only").to_string();
    assert!(new.contains("cannot be used") && new.contains("Read-only"), "{new}");
    assert_eq!(names(to), before);
}

fn with_another_name() -> ReceiveOptions {
    ReceiveOptions::new(CastIdentity::new(b"another"))
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().expect("it starts");
    assert!(status.success(), "{program} {arguments:?}: {status}");
}

#[test]
fn a_destination_that_is_removed_meanwhile_is_an_error_and_stays_away() {
    for chunks_before in [0, 1, 3] {
        let place = Place::new();
        for name in 0..8 {
            place.write(&format!("{name}"), &[1; 9000]);
        }
        let cast = place.cast();
        let receiver = cast.begin(&place.to(), options());
        for chunk in 0..chunks_before {
            cast.put(&receiver, chunk).expect("put");
        }
        fs::remove_dir_all(place.to()).expect("removed");
        let put = cast.put_all(&receiver, 1);
        let found = put.and_then(|()| receiver.publish().map(drop)).expect_err("it is gone");
        let found = found.to_string();
        assert!(found.contains("at the destination: No such file"), "{found}");
        assert!(!place.to().exists());
    }
}
