//! Receivers that are killed at any point, and what the next one makes of what they left.

use super::*;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::Duration;

fn place_with_files() -> Place {
    let place = Place::new();
    for name in 0..30_u8 {
        place.write(&format!("{}/{name}", name % 3), &vec![name; 500 * usize::from(name)]);
    }
    place
}

/// Publishes, compares, and makes room for the same cast again.
fn publish_and_remove(place: &Place, receiver: Receiver) {
    receiver.publish().expect("published");
    place.assert_published();
    fs::remove_dir_all(place.to().join("src")).expect("removed");
}

#[test]
fn a_cast_broken_at_any_point_resumes() {
    let place = place_with_files();
    let cast = place.cast();
    let order = shuffled(cast.chunks.len(), 7);
    for broken_at in 0..=cast.chunks.len() {
        let receiver = cast.begin(&place.to(), options());
        for &chunk in &order[..broken_at] {
            cast.put(&receiver, chunk).expect("put");
        }
        drop(receiver);
        assert_eq!(names(&place.to()).len(), 1, "only what is hidden");
        let again = place.cast();
        let receiver = again.begin(&place.to(), options());
        assert_eq!(receiver.bitmap().held(), 0, "nothing counts before it is hashed again");
        assert_eq!(receiver.left_chunks().count(), broken_at);
        let held = receiver.resume().expect("resumed");
        assert_eq!(usize::try_from(held), Ok(broken_at));
        again.put_all(&receiver, 1).expect("put");
        publish_and_remove(&place, receiver);
    }
}

#[test]
fn a_cast_broken_again_and_again_loses_nothing() {
    let place = place_with_files();
    let cast = place.cast();
    for (sessions, chunk) in shuffled(cast.chunks.len(), 11).into_iter().enumerate() {
        let receiver = cast.begin(&place.to(), options());
        assert_eq!(receiver.left_chunks().count(), sessions);
        // Half of them are looked at, then it breaks again.
        receiver.left_chunks().take(sessions / 2).collect::<Vec<_>>().into_iter().for_each(
            |left| {
                assert!(receiver.check(left).expect("read"));
            },
        );
        cast.put(&receiver, chunk).expect("put");
    }
    let receiver = cast.begin(&place.to(), options());
    assert_eq!(receiver.resume().expect("resumed"), receiver.bitmap().chunks());
    receiver.publish().expect("published");
    place.assert_published();
}

#[test]
fn what_was_damaged_meanwhile_is_fetched_again() {
    let place = place_with_files();
    let cast = place.cast();
    let receiver = cast.begin(&place.to(), options());
    cast.put_all(&receiver, 5).expect("put");
    drop(receiver);
    let staged = staging_in(&place.to()).join("tree/src/2/29");
    let file = OpenOptions::new().write(true).open(staged).expect("open");
    file.write_all_at(b"x", 1).expect("written");
    let receiver = cast.begin(&place.to(), options());
    let held = receiver.resume().expect("resumed");
    assert_eq!(held, receiver.bitmap().chunks() - 1);
    cast.put_all(&receiver, 1).expect("put");
    receiver.publish().expect("published");
    place.assert_published();
}

#[test]
fn garbage_in_staging_is_wiped() {
    let place = place_with_files();
    let cast = place.cast();
    for (name, bytes) in [("state", &b"\xff\xff"[..]), ("head", b"no manifest"), ("held", b"odd")] {
        let receiver = cast.begin(&place.to(), options());
        cast.put_all(&receiver, 1).expect("put");
        drop(receiver);
        fs::write(staging_in(&place.to()).join(name), bytes).expect("written");
        let receiver = cast.begin(&place.to(), options());
        receiver.resume().expect("resumed");
        cast.put_all(&receiver, 2).expect("put");
        publish_and_remove(&place, receiver);
    }
}

#[test]
fn another_cast_by_the_same_identity_removes_what_is_dead_only() {
    let place = place_with_files();
    let cast = place.cast();
    let dead = cast.begin(&place.to(), options());
    cast.put(&dead, 1).expect("put");
    let busy = cast.try_begin(&place.to(), options());
    assert!(matches!(busy, Err(ReceiveError::Busy { .. })), "{busy:?}");
    let other = ReceiveOptions::new(CastIdentity::new(b"another"));
    let stranger = cast.begin(&place.to(), other.clone());
    assert_eq!(stranger.left_chunks().count(), 0, "another identity's chunks do not count");
    place.write("new", b"changed");
    let changed = place.cast();
    drop(changed.begin(&place.to(), options()));
    assert_eq!(names(&place.to()).len(), 3, "living receivers keep theirs");
    drop((dead, stranger));
    drop(cast.begin(&place.to(), options()));
    assert_eq!(names(&place.to()).len(), 2, "the changed cast's is removed");
    cast.begin(&place.to(), other).abandon();
    cast.begin(&place.to(), options()).abandon();
    assert_eq!(names(&place.to()), [""; 0]);
}

/// Breaks a publication after `moved` names, as a kill would.
fn break_publication(place: &Place, cast: &TestCast, moved: &[&str]) {
    let receiver = cast.begin(&place.to(), options());
    cast.put_all(&receiver, 1).expect("put");
    // The name that is there stops it when all is sealed and the state is written.
    let in_the_way = place.to().join(moved.first().expect("one"));
    fs::write(&in_the_way, "").expect("written");
    let stopped = receiver.publish();
    assert!(matches!(stopped, Err(ReceiveError::Exists { .. })), "{stopped:?}");
    drop(receiver);
    fs::remove_file(in_the_way).expect("removed");
    for name in moved {
        let staged = staging_in(&place.to()).join("tree").join(name);
        fs::rename(staged, place.to().join(name)).expect("renamed");
    }
}

#[test]
fn a_publication_broken_between_two_names_is_completed() {
    let place = place_with_files();
    let sources = ["0", "1", "2"].map(|name| place.src().join(name));
    let sources: Vec<_> = sources.iter().map(PathBuf::as_path).collect();
    let cast = TestCast::of(&sources, 4096);
    break_publication(&place, &cast, &["0", "1"]);
    let receiver = cast.begin(&place.to(), options());
    let staged = fs::metadata(staging_in(&place.to()).join("tree/2")).expect("there");
    assert_eq!(staged.mode() & 0o777, 0o700, "it can be written again");
    assert_eq!(receiver.resume().expect("resumed"), receiver.bitmap().chunks());
    assert_eq!(receiver.publish().expect("published").names, 3);
    for name in ["0", "1", "2"] {
        assert_eq!(listing(&place.to().join(name)), listing(&place.src().join(name)));
    }
    assert_eq!(names(&place.to()).len(), 3);
}

#[test]
fn a_published_file_is_never_written_again() {
    let place = place_with_files();
    let sources = ["0", "1"].map(|name| place.src().join(name));
    let cast = TestCast::of(&[&sources[0], &sources[1]], 4096);
    break_publication(&place, &cast, &["0"]);
    let file = place.to().join("0/27");
    fs::write(&file, "its owner's").expect("written");
    let receiver = cast.begin(&place.to(), options());
    let resumed = receiver.resume();
    assert!(matches!(resumed, Err(ReceiveError::Disturbed { .. })), "{resumed:?}");
    let put = cast.put_all(&receiver, 1);
    assert!(matches!(put, Err(ReceiveError::Ended)), "{put:?}");
    assert_eq!(fs::read(&file).expect("read"), b"its owner's");
    assert_eq!(names(&place.to()), ["0"], "the next cast begins anew");
}

#[test]
fn a_name_that_was_published_and_removed_is_received_anew() {
    let place = place_with_files();
    let cast = TestCast::of(&[&place.src().join("0")], 4096);
    break_publication(&place, &cast, &["0"]);
    fs::remove_dir_all(place.to().join("0")).expect("removed");
    let receiver = cast.begin(&place.to(), options());
    assert_eq!(receiver.resume().expect("resumed"), 0);
    cast.put_all(&receiver, 1).expect("put");
    receiver.publish().expect("published");
    assert_eq!(listing(&place.to().join("0")), listing(&place.src().join("0")));
}

#[test]
fn what_an_exchange_brought_into_staging_is_not_taken_for_what_was_received() {
    let place = place_with_files();
    let cast = TestCast::of(&[&place.src().join("0")], 4096);
    break_publication(&place, &cast, &["0"]);
    let staged = staging_in(&place.to()).join("tree/0");
    fs::rename(place.to().join("0"), place.outer.path().join("away")).expect("renamed");
    fs::create_dir(&staged).expect("made");
    for name in (0..30).step_by(3) {
        fs::write(staged.join(name.to_string()), "old").expect("written");
    }
    fs::write(staged.join("another"), "old").expect("written");
    let receiver = cast.begin(&place.to(), options());
    assert_eq!(receiver.resume().expect("resumed"), 0);
    cast.put_all(&receiver, 1).expect("put");
    receiver.publish().expect("published");
    assert_eq!(listing(&place.to().join("0")), listing(&place.src().join("0")));
}

#[test]
fn a_lock_ends_with_its_receiver_though_a_descriptor_was_inherited() {
    let place = place_with_files();
    let cast = place.cast();
    let receiver = cast.begin(&place.to(), options());
    // As a process holds it between fork(2) and execve(2).
    let inherited = receiver.shared_staging_fd().try_clone_to_owned().expect("a descriptor");
    drop(receiver);
    cast.begin(&place.to(), options()).abandon();
    drop(inherited);
    assert_eq!(names(&place.to()), [""; 0]);
}

#[test]
fn remains_go_after_a_time_unless_a_receiver_lives() {
    let place = place_with_files();
    let cast = place.cast();
    let other = ReceiveOptions::new(CastIdentity::new(b"another"));
    let living = cast.begin(&place.to(), other.clone());
    drop(cast.begin(&place.to(), options()));
    fs::create_dir(place.to().join(".outboard-cast-not-ours")).expect("made");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(place.to().join(".outboard-cast-not-ours"), open).expect("its mode");
    let to = Destination::open(&place.to()).expect("there");
    assert_eq!(remove_abandoned(&to, Duration::from_secs(3600)), 0, "all are recent");
    assert_eq!(remove_abandoned(&to, Duration::ZERO), 1, "the one without a receiver");
    assert_eq!(names(&place.to()).len(), 2);
    drop(living);
    assert_eq!(remove_abandoned(&to, Duration::ZERO), 1);
    assert_eq!(names(&place.to()), [".outboard-cast-not-ours"]);
}
