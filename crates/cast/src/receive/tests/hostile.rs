//! Nothing that a source or another process does leads out of the staging directory.

use super::*;
use crate::sign::SignError;
use crate::tree::tests::{directory, file, hostile, link, unchecked};
use std::os::unix::fs::symlink;

/// What is at the destination and around it.
fn around(place: &Place) -> Listing {
    let mut all = listing(place.outer.path());
    // The destination's own time changes when staging comes and goes.
    all.remove(Path::new("to"));
    all
}

#[test]
fn hostile_manifests_make_nothing() {
    let place = Place::new();
    let before = around(&place);
    for (entries, fault) in hostile() {
        let cast = TestCast::of_manifest(&unchecked(&entries));
        let receiver = cast.begin(&place.to(), options());
        let found = cast.put_all(&receiver, 3);
        let Err(ReceiveError::Manifest(error)) = found else { panic!("{entries:?}: {found:?}") };
        assert_eq!(error.fault, fault);
        assert!(matches!(
            cast.put(&receiver, 0),
            Err(ReceiveError::Ended) | Ok(PutOutcome::Duplicate)
        ));
        assert!(receiver.publish().is_err());
        assert_eq!(around(&place), before, "{entries:?}");
    }
}

#[test]
fn a_manifest_that_its_header_does_not_promise_is_refused() {
    let place = Place::new();
    let manifest = unchecked(&[file(0, b"a", 9)]);
    let cast = TestCast::of_manifest(&manifest);
    let receiver = cast.begin(&place.to(), options());
    let found = cast.put_all(&receiver, 1);
    assert!(matches!(found, Err(ReceiveError::ManifestLength { .. })), "{found:?}");
    let chunks = vec![manifest];
    let cast = TestCast::of_stream(&[0; 7], chunks, 4096);
    let receiver = cast.begin(&place.to(), options());
    let found = cast.put_all(&receiver, 1);
    assert!(matches!(found, Err(ReceiveError::ManifestHash)), "{found:?}");
    assert_eq!(names(&place.to()), [""; 0]);
}

#[test]
fn a_cast_larger_than_allowed_is_refused_at_once() {
    let place = Place::new();
    place.write("a", &[1; 5000]);
    let cast = place.cast();
    let mut options = options();
    options.limits.stream_len_max = 4000;
    let found = cast.try_begin(&place.to(), options.clone());
    assert!(matches!(found, Err(ReceiveError::Manifest(_))), "{found:?}");
    options.limits.stream_len_max = 1 << 20;
    options.limits.manifest_len_max = 10;
    let found = cast.try_begin(&place.to(), options);
    assert!(matches!(found, Err(ReceiveError::Manifest(_))), "{found:?}");
    assert_eq!(names(&place.to()), [""; 0]);
}

#[test]
fn links_in_a_tree_lead_nowhere_while_it_is_written() {
    let place = Place::new();
    let outside = place.outer.path().join("outside");
    fs::write(&outside, "untouched").expect("written");
    let target = outside.as_os_str().as_bytes();
    let entries = [directory(0, b"a"), link(0, b"b", target), link(0, b"c", b"..")];
    let cast = TestCast::of_manifest(&unchecked(&entries));
    cast.receive(&place.to(), options()).expect("received");
    assert_eq!(fs::read_link(place.to().join("b")).expect("a link"), outside);
    assert_eq!(fs::read(&outside).expect("read"), b"untouched");
}

#[test]
fn a_directory_that_becomes_a_link_is_not_followed() {
    let place = Place::new();
    place.write("d/a", &[1; 9000]);
    let outside = place.outer.path().join("outside");
    fs::create_dir(&outside).expect("made");
    fs::write(outside.join("a"), vec![0; 9000]).expect("written");
    let cast = place.cast();
    let receiver = cast.begin(&place.to(), options());
    cast.put(&receiver, 0).expect("the manifest");
    let staged = staging_in(&place.to()).join("tree/src/d");
    fs::rename(&staged, staged.with_extension("away")).expect("renamed");
    symlink(&outside, &staged).expect("linked");
    // The file stays open where it was written before: another receiver opens it anew.
    drop(receiver);
    let receiver = cast.begin(&place.to(), options());
    let (put, resumed) = (cast.put_all(&receiver, 1), receiver.resume());
    assert!(put.is_err() || resumed.is_ok(), "{put:?}");
    assert_eq!(fs::read(outside.join("a")).expect("read"), vec![0; 9000]);
}

#[test]
fn a_flipped_bit_and_another_casts_chunk_are_refused() {
    let place = Place::new();
    place.write("a", &[1; 9000]);
    let cast = place.cast();
    let receiver = cast.begin(&place.to(), options());
    let mut bytes = cast.chunks[1].clone();
    bytes[9] ^= 1;
    let found = cast.hashes.verify(1, &bytes).err();
    assert_eq!(found, Some(SignError::WrongHash { chunk: 1 }));
    let other = place.cast();
    let verified = other.hashes.verify(1, &other.chunks[1]).expect("genuine there");
    let found = receiver.put(&verified);
    assert!(matches!(found, Err(ReceiveError::OtherCast)), "{found:?}");
    assert_eq!(receiver.bitmap().held(), 0);
}

#[test]
fn a_staging_directory_of_others_is_not_used() {
    let place = Place::new();
    place.write("a", b"contents");
    let cast = place.cast();
    drop(cast.begin(&place.to(), options()));
    let staging = staging_in(&place.to());
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&staging, open).expect("its mode");
    fs::write(staging.join("planted"), "").expect("written");
    cast.receive(&place.to(), options()).expect("received elsewhere");
    assert_eq!(names(&staging), ["head", "held", "planted", "state"], "left as it was");
    fs::remove_dir_all(&staging).expect("removed");
    symlink(place.outer.path(), &staging).expect("linked");
    fs::remove_dir_all(place.to().join("src")).expect("removed");
    cast.receive(&place.to(), options()).expect("received elsewhere");
}
