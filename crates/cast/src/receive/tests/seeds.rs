//! Chunks from files that the same identity has published: which are taken, and which never.

use super::*;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::os::unix::fs::symlink;

const MARK: &str = "user.outboard.cast";

fn with(identity: &[u8], publish: PublishMode) -> ReceiveOptions {
    ReceiveOptions { publish, ..ReceiveOptions::new(CastIdentity::new(identity)) }
}

/// Publishes the source's tree for an identity.
fn publish(place: &Place, identity: &[u8]) {
    let options = with(identity, PublishMode::Replace);
    place.cast().receive(&place.to(), options).expect("received");
    place.assert_published();
}

/// How many chunks besides the manifest's a receiver finds by itself.
fn found(cast: &TestCast, to: &Path, options: ReceiveOptions) -> u32 {
    let receiver = cast.begin(to, options);
    let first = receiver.take_claims().expect("what may be here");
    let manifest = cast.hashes.header().shape.manifest_chunks();
    assert!(!first.contains(0), "the manifest is always sent");
    for chunk in 0..manifest as usize {
        cast.put(&receiver, chunk).expect("put");
    }
    let claims = receiver.take_claims().unwrap_or_default();
    let checked = (0..receiver.bitmap().chunks()).filter(|chunk| claims.contains(*chunk));
    let held = checked.filter(|chunk| receiver.check(*chunk).expect("checked")).count();
    receiver.abandon();
    u32::try_from(held).expect("few")
}

fn place() -> Place {
    let place = Place::new();
    for name in 0..4_u8 {
        place.write(&format!("{name}/file"), &vec![name + 1; 10_000]);
    }
    place
}

#[test]
fn equal_content_of_the_same_identity_is_found_and_of_no_other() {
    let place = place();
    publish(&place, b"one");
    let cast = place.cast();
    let others = cast.hashes.header().shape.chunks() - 1;
    let found = |identity, mode| found(&cast, &place.to(), with(identity, mode));
    assert_eq!(found(b"one", PublishMode::Replace), others);
    assert_eq!(found(b"one", PublishMode::Merge), others);
    assert_eq!(found(b"two", PublishMode::Replace), 0);
    assert_eq!(found(b"two", PublishMode::Merge), 0);
}

#[test]
fn what_another_identity_publishes_below_ones_own_is_never_read() {
    for mode in [PublishMode::New, PublishMode::Merge] {
        let place = place();
        publish(&place, b"one");
        let secret = Place::new();
        secret.write("file", &[9; 10_000]);
        let below = place.to().join("src").join("0");
        secret.cast().receive(&below, with(b"two", mode)).expect("received");
        // Which chunks it has is known; the bytes are not.
        place.write("0/src/file", &[9; 10_000]);
        let cast = place.cast();
        assert_eq!(found(&cast, &place.to(), with(b"one", PublishMode::Replace)), 0, "{mode:?}");
    }
    // What it publishes there itself is its own.
    let place = place();
    publish(&place, b"one");
    let below = place.to().join("src").join("0");
    let more = Place::new();
    more.write("file", &[9; 10_000]);
    more.cast().receive(&below, with(b"one", PublishMode::New)).expect("received");
    place.write("0/src/file", &[9; 10_000]);
    let cast = place.cast();
    assert!(found(&cast, &place.to(), with(b"one", PublishMode::Replace)) > 0);
}

#[test]
fn looking_at_what_is_there_counts_as_going_on() {
    let place = place();
    publish(&place, b"one");
    let (cast, empty) = (place.cast(), Place::new());
    let steps = |mode| {
        let to = if mode == PublishMode::New { empty.to() } else { place.to() };
        let receiver = cast.begin(&to, with(b"one", mode));
        for chunk in 0..cast.hashes.header().shape.manifest_chunks() as usize {
            cast.put(&receiver, chunk).expect("put");
        }
        let steps = receiver.steps();
        receiver.abandon();
        steps
    };
    // Four directories below their top, and a file in each: each is made, and each is looked at.
    assert_eq!(steps(PublishMode::New), 9);
    assert_eq!(steps(PublishMode::Replace), 18);
}

#[test]
fn what_another_identity_merged_into_a_tree_is_not_taken() {
    let place = place();
    publish(&place, b"one");
    let secret = Place::new();
    secret.write("4/file", &[9; 10_000]);
    let merged = TestCast::of(&[&secret.src()], 4096);
    merged.receive(&place.to(), with(b"two", PublishMode::Merge)).expect("merged");
    assert!(place.to().join("src/4/file").exists());
    // It knows the hashes of the secret, and where it is.
    place.write("4/file", &[9; 10_000]);
    let cast = place.cast();
    assert_eq!(found(&cast, &place.to(), with(b"one", PublishMode::Replace)), 0);
    // What one merges into its own stays its own.
    publish(&place, b"one");
    let cast = place.cast();
    cast.receive(&place.to(), with(b"one", PublishMode::Merge)).expect("merged");
    assert!(found(&cast, &place.to(), with(b"one", PublishMode::Merge)) > 0);
}

#[test]
fn a_source_cannot_give_the_mark() {
    let place = place();
    publish(&place, b"one");
    let mut mark = [0; 32];
    let published = place.to().join("src");
    getxattr(&published, MARK, &mut mark).expect("marked");
    setxattr(place.src(), MARK, &mark, XattrFlags::empty()).expect("set");
    setxattr(place.src().join("0"), MARK, &mark, XattrFlags::empty()).expect("set");
    publish(&place, b"two");
    let mut found = [0; 32];
    getxattr(&published, MARK, &mut found).expect("marked");
    assert_ne!(found, mark);
    let below = getxattr(published.join("0"), MARK, &mut found);
    assert_eq!(below.err(), Some(rustix::io::Errno::NODATA));
}

#[test]
fn links_and_what_is_no_file_are_not_read() {
    let place = place();
    publish(&place, b"one");
    let to = place.to().join("src");
    let outside = place.outer.path().join("outside");
    fs::write(&outside, vec![1; 10_000]).expect("written");
    fs::remove_file(to.join("0/file")).expect("removed");
    symlink(&outside, to.join("0/file")).expect("linked");
    fs::rename(to.join("1"), place.outer.path().join("away")).expect("renamed");
    symlink(place.outer.path().join("away"), to.join("1")).expect("linked");
    fs::remove_file(to.join("2/file")).expect("removed");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, to.join("2/file"), mode).expect("a FIFO");
    let cast = place.cast();
    let found = found(&cast, &place.to(), with(b"one", PublishMode::Replace));
    // The chunks that lie in the last file alone.
    assert_eq!(found, 2);
}

#[test]
fn files_that_are_rewritten_whole_are_not_read_for_long() {
    let place = Place::new();
    place.write("large", &[1; 400_000]);
    publish(&place, b"one");
    place.write("large", &[2; 400_000]);
    let cast = place.cast();
    let receiver = cast.begin(&place.to(), with(b"one", PublishMode::Replace));
    cast.put(&receiver, 0).expect("put");
    let seeds = receiver.seeds_read();
    for chunk in 1..receiver.bitmap().chunks() {
        assert!(!receiver.check(chunk).expect("checked"));
    }
    let read = receiver.seeds_read() - seeds;
    assert!((10..30).contains(&read), "{read} of {}", receiver.bitmap().chunks());
    cast.put_all(&receiver, 1).expect("put");
    receiver.publish().expect("published");
    place.assert_published();
}

#[test]
fn a_link_that_replaced_the_marked_directory_is_not_followed() {
    let place = place();
    publish(&place, b"one");
    let to = place.to().join("src");
    fs::rename(&to, place.outer.path().join("away")).expect("renamed");
    symlink(place.outer.path().join("away"), &to).expect("linked");
    let cast = place.cast();
    assert_eq!(found(&cast, &place.to(), with(b"one", PublishMode::Replace)), 0);
}
