//! Chunks that are written by the loop, where no disk and no thread is waited for.

use super::*;

/// A file system that is memory on every Linux.
const IN_MEMORY: &str = "/dev/shm";

fn put_at_once(
    cast: &TestCast,
    receiver: &Receiver,
    chunk: usize,
) -> AtOnce<Result<PutOutcome, ReceiveError>> {
    let index = u32::try_from(chunk).expect("few");
    let verified = cast.hashes.verify(index, &cast.chunks[chunk]).expect("genuine");
    receiver.put_at_once(&verified)
}

#[test]
fn memory_is_written_at_once_when_the_tree_is_there() {
    let (place, to) = (Place::new(), tempfile::tempdir_in(IN_MEMORY).expect("a directory"));
    place.write("file", &[7; 20_000]);
    let cast = place.cast();
    let receiver = cast.begin(to.path(), options());
    let last = cast.chunks.len() - 1;
    let put = put_at_once(&cast, &receiver, last);
    assert!(matches!(put, AtOnce::Never), "the manifest is not complete");
    cast.put(&receiver, 0).expect("the manifest");
    for chunk in 1..=last {
        let put = put_at_once(&cast, &receiver, chunk);
        assert!(matches!(put, AtOnce::Done(Ok(PutOutcome::Written))), "{put:?}");
        let again = put_at_once(&cast, &receiver, chunk);
        assert!(matches!(again, AtOnce::Done(Ok(PutOutcome::Duplicate))), "{again:?}");
    }
    receiver.publish().expect("published");
    assert_eq!(fs::read(to.path().join("src/file")).expect("a file"), [7; 20_000]);
}

#[test]
fn many_files_are_left_to_threads() {
    let (place, to) = (Place::new(), tempfile::tempdir_in(IN_MEMORY).expect("a directory"));
    (0..200).for_each(|name| place.write(&format!("{name}"), &[1; 20]));
    let cast = place.cast();
    let receiver = cast.begin(to.path(), options());
    let last = cast.chunks.len() - 1;
    (0..last).try_for_each(|chunk| cast.put(&receiver, chunk).map(drop)).expect("written");
    let put = put_at_once(&cast, &receiver, last);
    assert!(matches!(put, AtOnce::Never), "it would open many files");
}

#[test]
fn disks_are_not_waited_for() {
    let is_memory = |path| shared::is_in_memory(fs::File::open(path).expect("a directory"));
    assert!(is_memory(IN_MEMORY));
    assert!(!is_memory("/proc"), "no file system for data");
}
