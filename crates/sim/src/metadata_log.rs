//! A metadata log from an untrusted writer: no bytes of it make the server's half panic, give
//! inconsistent answers, or store without bounds. Property tests and the fuzzer share it.
//!
//! Random bytes never have a correct check, so a script may ask for correct frames: then their
//! contents are processed.

use outboard_export::replica::ENTRIES_MAX;
use outboard_export::{
    ExportHeader, FileNode, HEADER_LEN, Listing, LookUp, MetadataLogError, Replica,
};

/// The epoch of every log here.
const EPOCH: u64 = 7;
const LOG_LEN: u64 = 1 << 20;

/// A header whose log has this length.
fn header(length: u64) -> ExportHeader {
    let words = [EPOCH, length, 4096, LOG_LEN, 4096 + LOG_LEN, 1 << 20];
    let mut bytes = b"outbexp\x01".to_vec();
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes.resize(HEADER_LEN, 0);
    ExportHeader::parse(&bytes).expect("a header that makes sense")
}

/// A frame around a record that stands at `place` of the log.
fn frame(place: usize, record: &[u8]) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&EPOCH.to_le_bytes()).update(&(place as u64).to_le_bytes()).update(record);
    let len = u32::try_from(record.len()).expect("scripts are short");
    let check = hasher.finalize();
    [&len.to_le_bytes()[..], &check.as_bytes()[..4], record].concat()
}

/// A server is given a log. With 0 in its first byte the rest is taken as it is; else it is records
/// behind a byte with their length, framed as they should be.
///
/// # Panics
/// When a promise is broken.
pub fn replay(script: &[u8]) {
    let Some((how, script)) = script.split_first() else { return };
    let _ = ExportHeader::parse(script);
    let mut log = Vec::new();
    match how {
        0 => log.extend_from_slice(script),
        _ => {
            let mut rest = script;
            while let Some((&len, behind)) = rest.split_first() {
                let (record, next) = behind.split_at(usize::from(len).min(behind.len()));
                log.extend(frame(log.len(), record));
                rest = next;
            }
        }
    }
    log.truncate(usize::try_from(LOG_LEN).expect("it is small"));
    handle(&log);
}

fn handle(log: &[u8]) {
    let mut replica = Replica::new();
    let header = header(log.len() as u64);
    while let Some(want) = replica.want(&header) {
        let start = usize::try_from(want.offset).expect("inside the log");
        let end = start + usize::try_from(want.len).expect("inside the log");
        match replica.handle(&want, &log[start..end]) {
            Ok(_) => {
                assert!(replica.position().length > want.offset || want.len == 0, "no progress")
            }
            Err(MetadataLogError::NotWanted { .. }) => panic!("it was wanted"),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break;
            }
        }
    }
    let mut seen = 0;
    walk(&replica, b"/", &mut seen);
    assert!(seen <= ENTRIES_MAX, "more than may be remembered");
    assert_eq!(replica.look_up(b"not a path", b"\0"), LookUp::Outside);
}

/// What is listed can be looked up and is the same, and no hidden name is ever shown.
fn walk(replica: &Replica, dir: &[u8], seen: &mut usize) {
    let Listing::Names(names) = replica.list(dir) else { return };
    for (name, node) in names {
        *seen += 1;
        let slash: &[u8] = if dir == b"/" { b"" } else { b"/" };
        let path = [dir, slash, &name].concat();
        let shown = !replica.is_beneath_roots(dir) || !name.starts_with(b".");
        assert!(shown, "a hidden name");
        let found = replica.look_up(dir, &name);
        match (&node, found) {
            (FileNode::File(a), LookUp::File(b)) => assert_eq!(*a, b),
            (FileNode::Symlink { target: a, .. }, LookUp::Symlink { target: b, .. }) => {
                assert_eq!(*a, b)
            }
            (FileNode::Withheld, LookUp::Withheld) => {}
            (FileNode::Directory(a), LookUp::Directory(b)) => {
                assert_eq!(*a, b);
                walk(replica, &path, seen);
            }
            (node, found) => panic!("{node:?} is looked up as {found:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that are records more often than not: they begin with a kind and a path.
    fn record() -> impl Strategy<Value = Vec<u8>> {
        let path =
            prop_oneof![Just("/"), Just("/a"), Just("/a/b"), Just("/.x"), Just("a"), Just("/b")];
        (0..7_u8, path, prop::collection::vec(0..6_u8, 0..40)).prop_map(|(kind, path, rest)| {
            let len = u8::try_from(path.len()).expect("they are short");
            [&[kind, len][..], path.as_bytes(), &rest].concat()
        })
    }

    proptest! {
        #[test]
        fn any_bytes(script in prop::collection::vec(any::<u8>(), 0..300)) {
            replay(&script);
        }

        #[test]
        fn records_in_frames(records in prop::collection::vec(record(), 0..12)) {
            let mut script = vec![1];
            for record in records {
                script.push(u8::try_from(record.len()).expect("they are short"));
                script.extend(record);
            }
            replay(&script);
        }
    }

    #[test]
    fn valid_records_are_accepted() {
        let mut root = vec![0, 2, b'/', b'a'];
        root.extend([0; 6]);
        let listing = [2, 2, b'/', b'a', 1, 1, b'f', 1, 1, 2, 3, 4, 5, 6];
        let frames = frame(0, &root);
        let log = [&frames[..], &frame(frames.len(), &listing)].concat();
        let mut replica = Replica::new();
        let want = replica.want(&header(log.len() as u64)).expect("something to read");
        replica.handle(&want, &log).expect("it is right");
        assert!(matches!(replica.look_up(b"/a", b"f"), LookUp::File(attr) if attr.size == 4));
    }
}
