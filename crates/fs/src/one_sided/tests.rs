//! Whatever a region has in it, a walk comes to an end: with what is there, or with a word that it
//! cannot.

use super::*;
use crate::protocol::places::{INODE_MAGIC, TABLE_MAGIC, TABLE_SEED, module_hash};
use crate::protocol::{FsInode, FsLayout, FsRecord, MAGIC};

const LEN: u64 = 1 << 16;
/// Times that a walk of these tests reads, at most.
const ROUNDS: usize = 200;

/// A region of a test.
struct TestRegion(Vec<u8>);

impl TestRegion {
    fn new() -> Self {
        let mut region = Self(vec![0; 1 << 16]);
        // The header; the table at 4096, with one bucket at 8192; inodes at 4608, records at 12288.
        region.put(64, &[MAGIC, 0, 0, 4608, 4096, 1]);
        region.put(4096, &[TABLE_MAGIC]);
        region.put(4096 + 64, &[8192]);
        region.put(4608, &[INODE_MAGIC]);
        region.put(4608 + 64, &[12288]);
        region
    }

    fn put(&mut self, at: usize, words: &[u64]) {
        for (index, word) in words.iter().enumerate() {
            self.0[at + 8 * index..][..8].copy_from_slice(&word.to_le_bytes());
        }
    }

    fn put_record(&mut self, number: usize, mut record: FsRecord) {
        record.check = module_hash(INODE_MAGIC, &record.bytes()[8..]);
        self.0[12288 + 256 * number..][..256].copy_from_slice(&record.bytes());
    }

    /// A name in the only bucket: in a cell.
    fn put_name(&mut self, slot: usize, (parent, name): (u64, &[u8]), number: u64) {
        let key = [&parent.to_le_bytes()[..], name].concat();
        let value = [&number.to_le_bytes()[..], &[0; 4]].concat();
        let lens = [key.len().to_le_bytes()[0], value.len().to_le_bytes()[0]];
        let cell = [&lens[..], &key, &value].concat();
        self.0[8192 + 32 * (slot + 1)..][..cell.len()].copy_from_slice(&cell);
        let print = module_hash(TABLE_SEED, &key) >> 56;
        self.put(
            8192 + 8 + 8 * slot,
            &[module_hash(TABLE_SEED, &cell) >> 10 << 10 | print << 2 | 2],
        );
    }

    fn read(&self, places: &[ReadPlace]) -> SparseBytes {
        let one = |(at, len): &ReadPlace| {
            let at = usize::try_from(*at).expect("small");
            self.0.get(at..at + len).expect("a walk reads inside of the region").to_vec()
        };
        SparseBytes::of(places, places.iter().map(one).collect())
    }

    /// As the client does: reads and walks until the walk is over.
    fn walk<T>(&self, walk: impl Fn(&RegionView<'_>) -> Result<T, WalkStop>) -> Option<T> {
        let begin = &self.0[64..128];
        let [table, inodes] = RegionHeaders::places(begin, LEN)?;
        let header = |(at, len): ReadPlace| {
            let at = usize::try_from(at).expect("small");
            self.0[at..at + len].to_vec()
        };
        let headers = RegionHeaders::parse([header(table), header(inodes)])?;
        let mut places: Vec<ReadPlace> = Vec::new();
        for _ in 0..ROUNDS {
            let bytes = self.read(&places);
            let view = RegionView::new(&headers, &bytes, LEN);
            match walk(&view) {
                Ok(value) => return Some(value),
                Err(WalkStop::Missing(more)) => {
                    assert!(more.iter().all(|place| !places.contains(place)), "no progress");
                    places.extend(more);
                }
                Err(WalkStop::Moved | WalkStop::Unclear) => return None,
            }
        }
        panic!("a walk has no end");
    }
}

const DIR: FsInode = FsInode { number: 1, generation: 1 };
const FILE: FsInode = FsInode { number: 2, generation: 1 };

fn directory() -> FsRecord {
    FsRecord { generation: 1, mode: 0o040_755, nlink: 2, body: 20480, ..FsRecord::default() }
}

fn a_tree() -> TestRegion {
    let mut region = TestRegion::new();
    region.put_record(1, directory());
    let file = FsRecord { generation: 1, mode: 0o100_644, nlink: 1, size: 7, ..directory() };
    region.put_record(2, file);
    region.put_name(1, (1, b"name"), 2);
    // Its names: one record of 32 bytes, in memory at 24576.
    region.put(20480, &[1, 32]);
    region.put(20480 + 144, &[24576]);
    region.put(24576, &[2, 8 | 4 << 8 | 32 << 16]);
    region.0[24592..24596].copy_from_slice(b"name");
    region
}

/// That it came to an end is all that counts.
fn ends<T>(_: Option<T>) {}

fn everything(region: &TestRegion) {
    for name in [&b"name"[..], b"other", &[b'n'; 255]] {
        ends(region.walk(|view| look_up(view, DIR, name)));
        ends(region.walk(|view| xattr_of(view, FILE, name)));
    }
    for at in [0, 16, 32, 48, 4096, u64::MAX] {
        ends(region.walk(|view| list(view, DIR, at)));
    }
    for inode in [DIR, FILE, FsInode { number: u64::MAX, generation: 1 }] {
        ends(region.walk(|view| record_of(view, inode)));
        ends(region.walk(|view| target_of(view, inode)));
        ends(region.walk(|view| xattr_names_of(view, inode)));
    }
}

#[test]
fn what_is_there_is_found() {
    let region = a_tree();
    let found = region.walk(|view| look_up(view, DIR, b"name")).expect("a word").expect("found");
    assert_eq!((found.inode, found.record.size), (FILE, 7));
    assert_eq!(region.walk(|view| look_up(view, DIR, b"other")), Some(None));
    assert_eq!(region.walk(|view| record_of(view, FILE)).map(|one| one.inode), Some(FILE));
    let listed = region.walk(|view| list(view, DIR, 0)).expect("names");
    let names: Vec<_> = listed.iter().map(|one| (&one.name[..], one.head.next)).collect();
    assert_eq!(names, [(&b"name"[..], 32)]);
    assert_eq!(region.walk(|view| list(view, DIR, 32)), Some(Vec::new()));
    assert_eq!(region.walk(|view| xattr_names_of(view, FILE)), Some(Vec::new()));
}

#[test]
fn what_is_not_the_inode_any_more_is_not_shown() {
    let mut region = a_tree();
    let newer = FsInode { generation: 2, ..FILE };
    assert_eq!(region.walk(|view| record_of(view, newer)), None, "another use of the number");
    assert_eq!(region.walk(|view| look_up(view, FILE, b"name")), None, "no directory");
    region.put_record(1, FsRecord { nlink: 0, ..directory() });
    assert_eq!(region.walk(|view| look_up(view, DIR, b"other")), None, "it was removed");
    let mut region = a_tree();
    region.put_record(2, FsRecord { mode: 0, ..directory() });
    assert_eq!(region.walk(|view| look_up(view, DIR, b"name")), None, "a name of nothing");
}

#[test]
fn a_torn_record_or_name_is_none() {
    for at in (12288 + 512..12288 + 768).chain(8192 + 64..8192 + 64 + 24) {
        let mut region = a_tree();
        region.0[at] ^= 1;
        let found = region.walk(|view| look_up(view, DIR, b"name"));
        assert!(!matches!(found, Some(Some(_))), "byte {at}: {found:?}");
    }
}

#[test]
fn a_chain_without_an_end_ends() {
    let mut region = a_tree();
    region.put(8192, &[(8192 / 16) << 8]);
    assert_eq!(region.walk(|view| look_up(view, DIR, b"other")), None);
    // One from bucket to bucket, each another one.
    let mut region = a_tree();
    for index in 0..64 {
        region.put(32768 + 128 * index, &[(32768 / 16 + 8 * (index as u64 + 1)) << 8]);
    }
    region.put(8192, &[(32768 / 16) << 8]);
    assert_eq!(region.walk(|view| look_up(view, DIR, b"other")), None);
}

#[test]
fn a_hostile_region_is_walked_to_an_end() {
    let mut random = 7_u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random >> 20
    };
    for _ in 0..300 {
        let mut region = a_tree();
        // A few words are other ones, whole records are made to be whole again.
        for _ in 0..8 {
            let places = [64, 4096, 4160, 4608, 4672, 8192, 8200, 8224, 20480, 20624, 24576];
            let at = places[usize::try_from(next()).expect("small") % places.len()];
            let at = at + 8 * usize::try_from(next() % 4).expect("small");
            let word = match next() % 4 {
                0 => next() % LEN,
                1 => u64::MAX - next() % 64,
                2 => next() << 30 | next(),
                _ => next() % 64,
            };
            region.put(at, &[word]);
        }
        let any = |next: &mut dyn FnMut() -> u64| {
            if next().is_multiple_of(2) { next() % LEN } else { !0 }
        };
        let record = FsRecord {
            generation: 1,
            mode: [0o040_755, 0o120_777, 0o100_644][usize::try_from(next() % 3).expect("small")],
            nlink: 2,
            size: any(&mut next),
            body: any(&mut next),
            xattrs: any(&mut next),
            ..FsRecord::default()
        };
        region.put_record(usize::try_from(1 + next() % 2).expect("small"), record);
        everything(&region);
    }
    for _ in 0..50 {
        let mut region = a_tree();
        for at in (8192..region.0.len()).step_by(8) {
            region.put(at, &[next() << 24 ^ next()]);
        }
        region.put_record(1, directory());
        everything(&region);
    }
}
