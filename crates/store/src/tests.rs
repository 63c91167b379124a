//! Stores on real directories, with what goes wrong there.

use crate::store::MEMORY_LEN_MAX;
use crate::{Hash, Kind, Store, StoreError};
use proptest::prelude::*;
use std::fs;
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
    /// Another process with the same directory.
    fn other(&self) -> Store {
        Store::open(&self.dir.path().join("store"), QUOTA).unwrap()
    }

    fn path(&self, hash: &Hash) -> PathBuf {
        crate::disk::path_of(&self.dir.path().join("store"), hash)
    }
}

fn content(number: usize, len: usize) -> (Hash, Arc<[u8]>) {
    let mut bytes = vec![0; len];
    let digits = number.to_le_bytes();
    let shown = len.min(digits.len());
    bytes[..shown].copy_from_slice(&digits[..shown]);
    (*blake3::hash(&bytes).as_bytes(), bytes.into())
}

fn put(store: &Store, number: usize, len: usize) -> Hash {
    let (hash, bytes) = content(number, len);
    store.put(&hash, bytes, Kind::Data).unwrap();
    hash
}

fn age(path: &std::path::Path, seconds: u64) {
    let then = SystemTime::now() - Duration::from_secs(seconds);
    fs::File::open(path).unwrap().set_modified(then).unwrap();
}

#[test]
fn what_is_put_is_there_for_others_and_later() {
    let rig = rig();
    let hash = put(&rig.store, 1, 5000);
    for store in [&rig.store, &rig.other()] {
        assert_eq!(store.get(&hash), Some(content(1, 5000).1));
        assert_eq!(store.path_of(&hash), Some(rig.path(&hash)));
        assert_eq!(store.file(&hash).unwrap().metadata().unwrap().len(), 5000);
        assert_eq!(store.get(&[7; 32]), None);
        let usage = store.usage();
        assert_eq!((usage.files, usage.bytes, usage.hits, usage.misses), (1, 5000, 3, 1));
    }
}

#[test]
fn modes_are_as_asked_for() {
    let rig = rig();
    let (hash, bytes) = content(1, 10);
    for (kind, mode) in [(Kind::Data, 0o400), (Kind::Program, 0o500), (Kind::Data, 0o500)] {
        rig.store.put(&hash, Arc::clone(&bytes), kind).unwrap();
        let found = fs::metadata(rig.path(&hash)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{kind:?}");
    }
    let dir = fs::metadata(rig.dir.path().join("store")).unwrap();
    assert_eq!(dir.permissions().mode() & 0o777, 0o700);
}

#[test]
fn what_is_corrupt_was_never_there() {
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
fn what_is_altered_later_is_not_given_out() {
    let rig = rig();
    let store = Store::open(&rig.dir.path().join("store"), 1 << 30).unwrap();
    // Too large for memory, so that it is read each time.
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
    let error = rig.store.put(&hash, bytes, Kind::Data).unwrap_err();
    assert!(matches!(error, StoreError::Write { .. }), "{error}");
    assert!(rig.store.get(&hash).is_some(), "from memory");
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let rig = rig();
    let hashes: Vec<Hash> = (0..10).map(|number| put(&rig.store, number, 10_000)).collect();
    for (number, hash) in hashes.iter().enumerate() {
        age(&rig.path(hash), 1000 - number as u64);
    }
    let other = rig.other();
    assert!(other.get(&hashes[0]).is_some(), "it is used");
    put(&other, 10, 10_000);
    let there: Vec<bool> = hashes.iter().map(|hash| rig.path(hash).exists()).collect();
    let gone = there.iter().filter(|there| !**there).count();
    assert!(there[0] && !there[1] && !there[2] && gone == 2, "{there:?}");
    assert!(other.usage().bytes <= QUOTA && other.usage().evicted == 2);
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
fn caller_s_mistakes_are_told() {
    let rig = rig();
    let wrong = rig.store.put(&[0; 32], b"x"[..].into(), Kind::Data);
    assert!(matches!(wrong, Err(StoreError::WrongHash { len: 1 })));
    let (hash, bytes) = content(1, 200_000);
    let large = rig.store.put(&hash, bytes, Kind::Data);
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
    assert!(rig.store.put(&hash, bytes, Kind::Data).is_err());
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
fn what_nobody_will_finish_is_removed() {
    let rig = rig();
    let sub = rig.path(&[0; 32]).parent().unwrap().to_owned();
    for (name, old) in [(".old", true), (".young", false), ("stranger", true)] {
        fs::write(sub.join(name), "").unwrap();
        if old {
            age(&sub.join(name), 7200);
        }
    }
    drop(rig.other());
    let left = [".old", ".young", "stranger"].map(|name| sub.join(name).exists());
    assert_eq!(left, [false, true, true]);
}

#[test]
fn memory_is_bounded() {
    let rig = rig();
    let (large, bytes) = content(0, MEMORY_LEN_MAX / 16 + 1);
    assert!(rig.store.put(&large, bytes, Kind::Data).is_err());
    assert_eq!(rig.store.get(&large), None, "too large for either");
    let len = MEMORY_LEN_MAX / 16;
    for number in 0..20 {
        let (hash, bytes) = content(number, len);
        assert!(rig.store.put(&hash, bytes, Kind::Data).is_err());
        assert!(rig.store.get(&content(0, len).0).is_some(), "it is used all the time");
    }
    assert_eq!(rig.store.usage().memory, MEMORY_LEN_MAX as u64);
    assert_eq!(rig.store.get(&content(1, len).0), None);
}

/// Which process, whether it puts, and what.
fn use_of_one() -> impl Strategy<Value = (usize, bool, usize)> {
    (0..2_usize, any::<bool>(), 0..40_usize)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Two processes put and get as they like: what is got is right, and not too much is kept.
    #[test]
    fn two_processes(ops in prop::collection::vec(use_of_one(), 1..200)) {
        let rig = rig();
        let stores = [rig.other(), rig.other()];
        for (which, is_put, number) in ops {
            let (hash, bytes) = content(number, number * 200);
            if is_put {
                stores[which].put(&hash, Arc::clone(&bytes), Kind::Data).unwrap();
            }
            let got = stores[which].get(&hash);
            prop_assert!(!is_put || got.is_some());
            prop_assert!(got.is_none_or(|got| got == bytes));
            prop_assert!(stores[which].usage().bytes <= QUOTA);
        }
    }
}
