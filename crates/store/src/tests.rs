//! Stores on real directories, including failures of disks and processes.

use crate::store::MEMORY_LEN_MAX;
use crate::{ContentHash, ContentKind, Store, StoreError};
use outboard_testkit::eventually;
use outboard_testkit::hung::{Hung, may_hang};
use proptest::prelude::*;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

const QUOTA: u64 = 100_000;

struct Rig {
    dir: TempDir,
    store: Store,
}

fn rig() -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("store"), QUOTA).unwrap();
    Rig { dir, store }
}

impl Rig {
    /// Another process's store in the same directory.
    fn other(&self) -> Store {
        Store::open(&self.dir.path().join("store"), QUOTA).unwrap()
    }

    fn path(&self, hash: &ContentHash) -> PathBuf {
        crate::disk::path_of(&self.dir.path().join("store"), hash)
    }
}

fn content(number: usize, len: usize) -> (ContentHash, Arc<[u8]>) {
    let mut bytes = vec![0; len];
    let digits = number.to_le_bytes();
    let shown = len.min(digits.len());
    bytes[..shown].copy_from_slice(&digits[..shown]);
    (*blake3::hash(&bytes).as_bytes(), bytes.into())
}

fn put(store: &Store, number: usize, len: usize) -> ContentHash {
    let (hash, bytes) = content(number, len);
    store.put(&hash, bytes, ContentKind::Data).unwrap();
    hash
}

fn age(path: &std::path::Path, seconds: u64) {
    let then = SystemTime::now() - Duration::from_secs(seconds);
    fs::File::open(path).unwrap().set_modified(then).unwrap();
}

#[test]
fn a_content_is_there_for_other_processes_and_later() {
    let rig = rig();
    let hash = put(&rig.store, 1, 5000);
    for store in [&rig.store, &rig.other()] {
        assert_eq!(store.get(&hash), Some(content(1, 5000).1));
        assert_eq!(store.path_of(&hash), Some(rig.path(&hash)));
        assert_eq!(store.file(&hash).unwrap().metadata().unwrap().len(), 5000);
        assert_eq!(store.get(&[7; 32]), None);
        let usage = store.usage();
        assert_eq!((usage.disk_files, usage.disk_bytes, usage.hits, usage.misses), (1, 5000, 3, 1));
        let own = u64::from(std::ptr::eq(store, &rig.store));
        assert_eq!((usage.written, usage.written_bytes), (own, own * 5000));
    }
}

#[test]
fn modes_are_as_asked_for() {
    let rig = rig();
    let (hash, bytes) = content(1, 10);
    for (kind, mode) in
        [(ContentKind::Data, 0o400), (ContentKind::Program, 0o500), (ContentKind::Data, 0o500)]
    {
        rig.store.put(&hash, Arc::clone(&bytes), kind).unwrap();
        let found = fs::metadata(rig.path(&hash)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{kind:?}");
    }
    let dir = fs::metadata(rig.dir.path().join("store")).unwrap();
    assert_eq!(dir.permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_corrupt_content_is_absent() {
    let rig = rig();
    for (number, damage) in [&b"other"[..], b""].into_iter().enumerate() {
        let hash = put(&rig.store, number, 5000);
        fs::remove_file(rig.path(&hash)).unwrap();
        fs::write(rig.path(&hash), damage).unwrap();
        let other = rig.other();
        assert_eq!(other.get(&hash), None);
        assert!(!rig.path(&hash).exists(), "it is removed");
        assert_eq!(other.usage().corrupt, 1);
        put(&other, number, 5000);
        assert_eq!(rig.other().get(&hash), Some(content(number, 5000).1));
        fs::remove_file(rig.path(&hash)).unwrap();
        fs::write(rig.path(&hash), damage).unwrap();
        assert_eq!(rig.other().path_of(&hash), None);
    }
}

#[test]
fn a_content_altered_later_is_not_returned() {
    let rig = rig();
    let store = Store::open(&rig.dir.path().join("store"), 1 << 30).unwrap();
    // Too large for memory, so that it is read from disk each time.
    let hash = put(&store, 1, MEMORY_LEN_MAX / 16 + 1);
    let mut altered = store.get(&hash).unwrap().to_vec();
    altered[100] ^= 1;
    fs::remove_file(rig.path(&hash)).unwrap();
    fs::write(rig.path(&hash), altered).unwrap();
    assert_eq!(store.get(&hash), None);
}

#[test]
fn a_link_is_not_followed() {
    let rig = rig();
    let (hash, bytes) = content(1, 100);
    let elsewhere = rig.dir.path().join("elsewhere");
    fs::write(&elsewhere, &bytes).unwrap();
    symlink(&elsewhere, rig.path(&hash)).unwrap();
    assert_eq!(rig.store.get(&hash), None);
    fs::remove_file(rig.path(&hash)).unwrap();
    fs::create_dir(rig.path(&hash)).unwrap();
    assert_eq!(rig.store.get(&hash), None);
    let error = rig.store.put(&hash, bytes, ContentKind::Data).unwrap_err();
    assert!(matches!(error, StoreError::Write { .. }), "{error}");
    assert!(rig.store.get(&hash).is_some(), "from memory");
}

#[test]
fn the_least_recently_used_is_removed_first() {
    let rig = rig();
    let hashes: Vec<ContentHash> = (0..10).map(|number| put(&rig.store, number, 10_000)).collect();
    for (number, hash) in hashes.iter().enumerate() {
        age(&rig.path(hash), 1000 - number as u64);
    }
    let other = rig.other();
    assert!(other.get(&hashes[0]).is_some(), "it is used");
    put(&other, 10, 10_000);
    let there: Vec<bool> = hashes.iter().map(|hash| rig.path(hash).exists()).collect();
    let gone = there.iter().filter(|there| !**there).count();
    assert!(there[0] && !there[1] && !there[2] && gone == 2, "{there:?}");
    let usage = other.usage();
    assert!(usage.disk_bytes <= QUOTA, "{usage:?}");
    assert_eq!((usage.evicted, usage.evicted_bytes), (2, 20_000));
    assert_eq!(rig.store.path_of(&hashes[1]), None, "the first process notices");
}

#[test]
fn several_processes_keep_to_one_quota() {
    let rig = rig();
    let stores = [rig.other(), rig.other(), rig.other()];
    for number in 0..300 {
        put(&stores[number % 3], number, 1000);
    }
    let bytes: u64 =
        crate::disk::scan(&rig.dir.path().join("store")).unwrap().iter().map(|file| file.len).sum();
    assert!(bytes <= QUOTA + 3 * QUOTA / 16 + 3000, "{bytes}");
}

#[test]
fn mistakes_of_the_caller_are_reported() {
    let rig = rig();
    let wrong = rig.store.put(&[0; 32], b"x"[..].into(), ContentKind::Data);
    assert!(matches!(wrong, Err(StoreError::WrongHash { len: 1 })));
    let (hash, bytes) = content(1, 200_000);
    let large = rig.store.put(&hash, bytes, ContentKind::Data);
    assert!(matches!(large, Err(StoreError::TooLarge { len: 200_000, quota: QUOTA })));
    assert!(rig.store.get(&hash).is_some(), "from memory");
}

#[test]
fn a_full_disk_loses_nothing() {
    let rig = rig();
    let kept = put(&rig.store, 1, 100);
    let (hash, bytes) = content(2, 100);
    let full = rig.store.write_error("x".into(), rustix::io::Errno::NOSPC.into(), 100);
    assert!(matches!(full, StoreError::DiskFull { len: 100, .. }), "{full}");
    fs::remove_dir_all(rig.path(&hash).parent().unwrap()).unwrap();
    assert!(rig.store.put(&hash, bytes, ContentKind::Data).is_err());
    assert!(rig.store.get(&hash).is_some() && rig.store.get(&kept).is_some());
}

#[test]
fn a_directory_of_others_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o770)).unwrap();
    let error = Store::open(dir.path(), QUOTA).unwrap_err();
    assert!(matches!(error, StoreError::Exposed { mode: 0o770, .. }), "{error}");
    let error = Store::open("/dev/null/store".as_ref(), QUOTA).unwrap_err();
    assert!(matches!(error, StoreError::Directory { .. }), "{error}");
}

#[test]
fn abandoned_files_are_removed() {
    use std::io::Write;
    let rig = rig();
    let sub = rig.path(&[0; 32]).parent().unwrap().to_owned();
    for name in [".left", "stranger", &format!("{}.chunks", "0".repeat(64))] {
        fs::write(sub.join(name), "").unwrap();
    }
    let mut writer = rig.store.writer(ContentKind::Data).unwrap();
    writer.write_all(b"half").unwrap();
    let names = || {
        let names = fs::read_dir(&sub).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    drop(rig.other());
    let left = names();
    assert!(left.len() == 2 && left[0].starts_with('.') && left[1] == "stranger", "{left:?}");
    writer.write_all(b" and whole").unwrap();
    let hash = writer.finish().unwrap();
    assert_eq!(rig.other().get(&hash).as_deref(), Some(&b"half and whole"[..]));
    drop(rig.store.writer(ContentKind::Data).unwrap());
    assert_eq!(names(), ["stranger"], "what was not finished was never there");
}

#[test]
fn a_content_in_pieces_is_read_in_pieces() {
    use crate::CHUNK_LEN;
    use std::io::Write;
    let rig = rig();
    let dir = rig.dir.path().join("large");
    let store = Store::open(&dir, 1 << 30).unwrap();
    let whole: Vec<u8> = (0..3 * CHUNK_LEN + 999).map(|at| (at >> 7).to_le_bytes()[0]).collect();
    let mut writer = store.writer(ContentKind::Program).unwrap();
    whole.chunks(70_001).for_each(|part| writer.write_all(part).unwrap());
    let hash = *blake3::hash(&whole).as_bytes();
    writer.finish_as(&hash).unwrap();
    let other = Store::open(&dir, 1 << 30).unwrap();
    let len = whole.len();
    let mib = CHUNK_LEN;
    for (start, end) in [(0, 1), (mib - 1, mib + 1), (5, 3 * mib), (len - 1, len), (len, len)] {
        let found = other.range(&hash, start as u64..end as u64).unwrap();
        assert!(found == whole[start..end], "{start}..{end}");
    }
    assert_eq!(other.range(&hash, 0..u64::MAX).unwrap().len(), len);
    assert_eq!(other.range(&hash, Range { start: u64::MAX, end: 0 }).unwrap(), []);
    assert_eq!(other.range(&[7; 32], 0..1), None);
    assert_eq!(other.chunks(&hash).unwrap().len(), 4);
    // Damage in one chunk is found by the reader of that chunk.
    let path = crate::disk::path_of(&dir, &hash);
    let mut damaged = whole.clone();
    damaged[2 * mib + 5] ^= 1;
    fs::remove_file(&path).unwrap();
    fs::write(&path, damaged).unwrap();
    assert!(other.range(&hash, 0..mib as u64).is_some());
    assert_eq!(other.range(&hash, 2 * mib as u64..2 * mib as u64 + 1), None);
    assert!(!path.exists(), "it is removed");
    // A content that was put as a whole gets its list when the list is requested.
    store.put(&hash, whole.clone().into(), ContentKind::Data).unwrap();
    assert_eq!(Store::open(&dir, 1 << 30).unwrap().range(&hash, 7..9).unwrap(), whole[7..9]);
}

#[test]
fn a_content_in_pieces_has_its_hash_and_fits_the_quota() {
    use std::io::Write;
    let rig = rig();
    let mut writer = rig.store.writer(ContentKind::Data).unwrap();
    writer.write_all(b"x").unwrap();
    let wrong = writer.finish_as(&[0; 32]);
    assert!(matches!(wrong, Err(StoreError::WrongHash { len: 1 })));
    let mut writer = rig.store.writer(ContentKind::Data).unwrap();
    let error = writer.write_all(&vec![0; usize::try_from(QUOTA).unwrap() + 1]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::QuotaExceeded);
}

#[test]
fn a_pinned_content_stays() {
    let rig = rig();
    let hashes: Vec<ContentHash> = (0..10).map(|number| put(&rig.store, number, 10_000)).collect();
    for (number, hash) in hashes.iter().enumerate() {
        age(&rig.path(hash), 1000 - number as u64);
    }
    let pin = rig.other().pin(&hashes[0]).unwrap();
    age(&rig.path(&hashes[0]), 2000);
    assert!(rig.store.pin(&[7; 32]).is_none());
    put(&rig.store, 10, 10_000);
    assert!(rig.path(&hashes[0]).exists() && !rig.path(&hashes[1]).exists());
    assert_eq!(pin.file().metadata().unwrap().len(), 10_000);
    drop(pin);
    age(&rig.path(&hashes[0]), 2000);
    put(&rig.store, 11, 10_000);
    put(&rig.store, 12, 10_000);
    assert!(!rig.path(&hashes[0]).exists());
}

#[test]
fn memory_is_bounded() {
    let rig = rig();
    let (large, bytes) = content(0, MEMORY_LEN_MAX / 16 + 1);
    assert!(rig.store.put(&large, bytes, ContentKind::Data).is_err());
    assert_eq!(rig.store.get(&large), None, "too large for the quota");
    let len = MEMORY_LEN_MAX / 16;
    for number in 0..20 {
        let (hash, bytes) = content(number, len);
        assert!(rig.store.put(&hash, bytes, ContentKind::Data).is_err());
        assert!(rig.store.get(&content(0, len).0).is_some(), "it is used all the time");
    }
    assert_eq!(rig.store.usage().memory_bytes, MEMORY_LEN_MAX as u64);
    assert_eq!(rig.store.get(&content(1, len).0), None);
}

/// The process, whether it puts, and the number of the content.
fn use_of_one() -> impl Strategy<Value = (usize, bool, usize)> {
    (0..2_usize, any::<bool>(), 0..40_usize)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Two processes put and get at random: results are right, and the quota is kept.
    #[test]
    fn two_processes(ops in prop::collection::vec(use_of_one(), 1..200)) {
        let rig = rig();
        let stores = [rig.other(), rig.other()];
        for (which, is_put, number) in ops {
            let (hash, bytes) = content(number, number * 200);
            if is_put {
                stores[which].put(&hash, Arc::clone(&bytes), ContentKind::Data).unwrap();
            }
            let got = stores[which].get(&hash);
            prop_assert!(!is_put || got.is_some());
            prop_assert!(got.is_none_or(|got| got == bytes));
            prop_assert!(stores[which].usage().disk_bytes <= QUOTA);
        }
    }
}

#[test]
fn what_a_thread_writes_is_in_memory_at_once_and_on_disk_soon() {
    let Rig { dir, store } = rig();
    let store = Arc::new(store);
    let hashes: Vec<ContentHash> = (0..5)
        .map(|number| {
            let (hash, bytes) = content(number, 1000);
            store.put_soon(&hash, Arc::clone(&bytes), ContentKind::Data).unwrap();
            assert_eq!(store.get(&hash), Some(bytes));
            hash
        })
        .collect();
    let wrong = store.put_soon(&hashes[0], content(7, 1000).1, ContentKind::Data);
    assert!(matches!(wrong, Err(StoreError::WrongHash { len: 1000 })));
    eventually("it is written", || store.usage().written == 5);
    assert!(hashes.iter().all(|hash| crate::disk::path_of(&store.dir, hash).exists()));
    eventually("it is written", || store.usage().waiting_now_bytes == 0);
    // As on a disk that has failed.
    fs::remove_dir_all(dir.path()).unwrap();
    let (hash, bytes) = content(8, 1000);
    store.put_soon(&hash, Arc::clone(&bytes), ContentKind::Data).unwrap();
    eventually("it is written", || store.usage().unwritten == 1);
    assert_eq!(store.get(&hash), Some(bytes));
}

#[test]
fn a_disk_that_hangs_is_not_waited_for_and_costs_bounded_memory() {
    let (hash, bytes) = content(1, 1000);
    let Rig { dir, store } = rig();
    let store = Arc::new(store);
    if !may_hang() {
        return;
    }
    let at = crate::disk::path_of(&dir.path().join("store"), &hash);
    let hung = Hung::over(at.parent().unwrap().to_owned()).unwrap();
    let start = std::time::Instant::now();
    store.put_soon(&hash, Arc::clone(&bytes), ContentKind::Data).unwrap();
    // Too large for memory, or they would drive the first out of it.
    for number in 2..11 {
        let (hash, bytes) = content(number, crate::QUEUE_LEN_MAX / 8);
        store.put_soon(&hash, bytes, ContentKind::Data).unwrap();
    }
    assert_eq!(store.get(&hash), Some(bytes));
    let usage = store.usage();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!((usage.written, usage.unwritten), (0, 2), "{usage:?}");
    drop(hung);
    eventually("it is written", || store.usage().waiting_now_bytes == 0);
}

#[test]
fn what_is_in_memory_is_found_without_a_look_at_the_disk() {
    let Rig { dir, store } = rig();
    let ((small, bytes), (large, _)) = (content(1, 1000), content(2, 90_000));
    let other = Store::open(&dir.path().join("store"), QUOTA).unwrap();
    other.put(&small, Arc::clone(&bytes), ContentKind::Data).unwrap();
    assert_eq!(store.held(&small), None, "it is on the disk alone");
    assert_eq!(store.usage().misses, 0, "which was not asked");
    assert_eq!(store.get(&small).as_ref(), Some(&bytes));
    assert_eq!(store.held(&small), Some(bytes));
    assert_eq!((store.held(&large), store.usage().hits), (None, 2));
}

#[test]
fn a_writer_may_go_from_thread_to_thread() {
    use std::io::Write;
    let Rig { dir: _dir, store } = rig();
    let store = Arc::new(store);
    let (hash, bytes) = content(3, 70_000);
    let mut writer = store.shared_writer(ContentKind::Program).unwrap();
    for piece in bytes.chunks(30_000) {
        let piece = piece.to_vec();
        writer = std::thread::spawn(move || {
            writer.write_all(&piece).unwrap();
            writer
        })
        .join()
        .unwrap();
    }
    writer.finish_as(&hash).unwrap();
    assert_eq!(store.get(&hash), Some(bytes));
}
