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
}
