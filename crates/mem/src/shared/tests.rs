//! Bounds, copies and atomics of regions and slices, alone and against other threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use std::os::fd::AsRawFd;

use super::*;

fn filled(len: usize) -> (SharedRegion, Vec<u8>) {
    let bytes: Vec<u8> = (0..len).map(|at| (at * 31 % 251).to_le_bytes()[0]).collect();
    let region = SharedRegion::zeroed(len).expect("memory");
    region.copy_in(0, &bytes).expect("in range");
    (region, bytes)
}

#[test]
fn is_send_and_sync() {
    fn check<T: Send + Sync>() {}
    check::<SharedRegion>();
    check::<SharedSlice>();
    check::<crate::SgList>();
    check::<crate::OwnedBuf>();
    check::<crate::StagTable>();
    check::<crate::Placement<'_>>();
}

#[test]
fn zeroed_is_page_aligned_and_zero() {
    let region = SharedRegion::zeroed(5000).expect("memory");
    assert_eq!((region.len(), region.addr() % 4096), (5000, 0));
    assert_eq!(region.snapshot(0..5000), Ok(vec![0; 5000]));
}

#[test]
fn zero_length() {
    let region = SharedRegion::zeroed(0).expect("nothing");
    assert!(region.is_empty());
    assert_eq!(region.copy_in(0, &[]), Ok(()));
    assert_eq!(region.snapshot(0..0), Ok(vec![]));
    assert!(region.copy_in(0, &[1]).is_err() && region.copy_in(1, &[]).is_err());
    assert!(region.load_u64(0).is_err());
}

#[test]
fn impossible_size_is_this_machines_error() {
    for len in [usize::MAX, isize::MAX.unsigned_abs(), 1 << 60] {
        let errno = libc::ENOMEM;
        assert_eq!(SharedRegion::zeroed(len).err(), Some(MemError::Map { len, errno }));
    }
}

#[test]
fn raw_memory() {
    let mut memory = vec![1u8; 100];
    // SAFETY: `memory` outlives the region and is looked at only after it is gone.
    let region = unsafe { SharedRegion::from_raw(memory.as_mut_ptr(), 100) };
    region.copy_in(98, &[7, 8]).expect("in range");
    assert!(region.copy_in(99, &[7, 8]).is_err());
    drop(region);
    assert_eq!(memory[97..], [1, 7, 8]);
    // SAFETY: no bytes.
    assert!(unsafe { SharedRegion::from_raw(std::ptr::null_mut(), 0) }.is_empty());
}

#[test]
fn bounds_are_checked_without_overflow() {
    let (region, _) = filled(64);
    let slice = region.slice(8..24).expect("in range");
    for (offset, len) in [(0, 65), (64, 1), (65, 0), (usize::MAX, 1), (usize::MAX, 0), (1, 64)] {
        let error = MemError::OutOfBounds { offset, len, size: 64 };
        assert_eq!(region.copy_in(offset, &vec![0; len]), Err(error.clone()));
        assert_eq!(region.copy_out(offset, &mut vec![0; len]), Err(error));
        assert!(slice.copy_in(offset, &vec![0; len]).is_err());
    }
    #[allow(clippy::reversed_empty_ranges)] // that is what is tested
    let ranges = [0..65, 5..4, 65..65, usize::MAX..usize::MAX, usize::MAX..0, 3..usize::MAX];
    for range in ranges {
        assert!(region.snapshot(range.clone()).is_err(), "{range:?}");
        assert!(region.span(range.clone()).is_err() && region.slice(range.clone()).is_err());
        assert!(slice.snapshot(range.clone()).is_err() && slice.span(range.clone()).is_err());
        assert!(slice.slice(range).is_err());
    }
}

#[test]
fn slice_is_relative_and_confined() {
    let (region, bytes) = filled(64);
    let slice = region.slice(8..24).expect("in range").slice(2..10).expect("in range");
    assert_eq!((slice.range(), slice.region().addr()), (10..18, region.addr()));
    assert_eq!(slice.snapshot(0..8).as_deref(), Ok(&bytes[10..18]));
    assert!(slice.snapshot(0..9).is_err() && slice.copy_in(8, &[1]).is_err());
    slice.copy_in(7, &[99]).expect("in range");
    let mut byte = [0];
    region.copy_out(17, &mut byte).expect("in range");
    assert_eq!(byte, [99]);
    assert_eq!(slice.span(1..3).expect("in range").ptr.addr(), region.addr() + 11);
}

#[test]
fn append_copies_behind_what_is_there() {
    let (region, bytes) = filled(10_000);
    let mut out = b"head".to_vec();
    region.append_to(3..9_999, &mut out).expect("in range");
    assert_eq!((&out[..4], &out[4..]), (&b"head"[..], &bytes[3..9_999]));
}

#[test]
fn big_copies() {
    let (region, bytes) = filled((1 << 20) + 13);
    assert!(region.snapshot(5..1 << 20).as_deref() == Ok(&bytes[5..1 << 20]));
    let mut back = vec![0; bytes.len() - 1];
    region.copy_out(1, &mut back).expect("in range");
    assert!(back == bytes[1..]);
}

#[test]
fn words_must_be_aligned_in_memory() {
    let (region, _) = filled(32);
    region.store_u64(8, 0x0102_0304_0506_0708).expect("aligned");
    assert_eq!(region.load_u64(8), Ok(0x0102_0304_0506_0708));
    let native = 0x0102_0304_0506_0708_u64.to_ne_bytes();
    assert_eq!(region.snapshot(8..16).as_deref(), Ok(&native[..]));
    let addr = region.addr() + 9;
    assert_eq!(region.load_u64(9), Err(MemError::Unaligned { offset: 9, addr }));
    assert!(region.store_u64(25, 1).is_err() && region.load_u64(24).is_ok());
    let odd = region.slice(4..32).expect("in range");
    assert!(odd.load_u64(0).is_err() && odd.fetch_update_u64(1, |v| v).is_err());
    assert_eq!(odd.load_u64(4), Ok(0x0102_0304_0506_0708));
    assert!(odd.store_u64(21, 0).is_err() && odd.store_u64(20, 3).is_ok());
    assert_eq!(region.load_u64(24), Ok(3));
}

/// Adds `step` until another thread came in between often enough; returns how often it added.
fn add_until_contended(region: &SharedRegion, step: u64) -> u64 {
    let (mut calls, mut added) = (0, 0);
    while calls < added + 3000 && added < 4_000_000 {
        let add = |value| {
            calls += 1;
            value + step
        };
        region.fetch_update_u64(0, add).expect("in range");
        added += 1;
    }
    added
}

#[test]
fn fetch_update_loses_nothing() {
    const HIGH: u64 = 1 << 32;
    let region = SharedRegion::zeroed(8).expect("memory");
    let expected = thread::scope(|scope| {
        let other = scope.spawn(|| add_until_contended(&region, HIGH));
        add_until_contended(&region, 1) + HIGH * other.join().expect("no panic")
    });
    assert_eq!(region.fetch_update_u64(0, |_| 0), Ok(expected));
    assert_eq!(region.load_u64(0), Ok(0));
}

/// Writes all ones and all zeros in turn, and bytes beside them, until told to stop.
fn flip(region: &SharedRegion, stop: &AtomicBool) {
    let mut value = 0u64;
    while !stop.load(Ordering::Relaxed) {
        value = !value;
        region.store_u64(0, value).expect("in range");
        region.copy_in(8, &[1; 8]).expect("in range");
    }
}

#[test]
fn words_do_not_tear_while_bytes_race() {
    let region = SharedRegion::zeroed(16).expect("memory");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| flip(&region, &stop));
        let (mut torn, mut last, mut changes, mut reads) = (None, 0, 0, 0);
        while torn.is_none() && changes < 30_000 && reads < 8_000_000 {
            let word = region.load_u64(0).expect("in range");
            torn = (word != 0 && word != u64::MAX).then_some(word);
            changes += u32::from(word != last);
            reads += 1;
            last = word;
        }
        region.snapshot(3..16).expect("in range");
        stop.store(true, Ordering::Relaxed);
        assert_eq!(torn, None);
    });
}

#[test]
fn mapping_lives_as_long_as_its_last_owner() {
    let (region, bytes) = filled(100);
    let slice = region.slice(10..20).expect("in range");
    drop(region);
    assert_eq!(slice.snapshot(0..10).as_deref(), Ok(&bytes[10..20]));
}

/// A file in memory that holds `text`, with these seals.
fn in_memory(text: &[u8], seals: libc::c_int) -> std::fs::File {
    use std::io::Write;
    use std::os::fd::FromRawFd;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a string with its end, and the descriptor has no other owner.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"text".as_ptr(), flags);
        assert!(fd >= 0, "a file in memory");
        std::fs::File::from_raw_fd(fd)
    };
    file.write_all(text).expect("written");
    // SAFETY: the call takes no pointer.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
    file
}

#[test]
fn a_sealed_file_is_memory_and_stays_as_it_is() {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    let file = in_memory(b"preprocessed", seals);
    let region = SharedRegion::of_file(&file).expect("sealed");
    region.copy_in(0, b"P").expect("in range");
    assert_eq!(region.snapshot(0..12).as_deref(), Ok(&b"Preprocessed"[..]));
    let again = SharedRegion::of_file(&file).expect("sealed");
    drop(file);
    assert_eq!(again.snapshot(0..12).as_deref(), Ok(&b"preprocessed"[..]));
    let nothing = SharedRegion::of_file(in_memory(b"", seals)).expect("sealed");
    assert!(nothing.is_empty());
}

#[test]
fn a_file_that_can_still_change_is_not_mapped() {
    let refused =
        |file: &std::fs::File| matches!(SharedRegion::of_file(file), Err(MemError::Unsteady));
    assert!(refused(&in_memory(b"text", 0)));
    assert!(refused(&in_memory(b"text", libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)));
    assert!(refused(&in_memory(b"text", libc::F_SEAL_SEAL)));
    // The second one is a tmpfs: its files have seals.
    for directory in [std::env::temp_dir(), "/dev/shm".into()] {
        let path = directory.join(format!("outboard-mem-{}", std::process::id()));
        std::fs::write(&path, "text").expect("written");
        let writer = std::fs::OpenOptions::new().write(true).open(&path).expect("opened");
        let file = std::fs::File::open(&path).expect("opened");
        assert!(refused(&file), "it has a name");
        std::fs::remove_file(&path).expect("removed");
        assert!(refused(&file), "it has a writer");
        drop(writer);
        let region = SharedRegion::of_file(&file).expect("neither name nor writer");
        assert_eq!(region.snapshot(0..4).as_deref(), Ok(&b"text"[..]));
    }
}

#[test]
fn bytes_are_written_to_a_file_from_the_region_itself() {
    use std::io::ErrorKind;
    let (region, bytes) = filled(10_000);
    let file = in_memory(b"before", 0);
    region.write_to(100..9_100, &file, 4).expect("written");
    let slice = region.slice(9_100..10_000).expect("in range");
    slice.write_to(0..900, &file, 9_004).expect("written");
    region.write_to(5..5, &file, 0).expect("nothing");
    let written = std::fs::read(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("read");
    assert!(written == [b"befo", &bytes[100..]].concat());
    for range in [0..10_001, 10_001..10_001] {
        let error = region.write_to(range, &file, 0).expect_err("outside");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    assert!(slice.write_to(0..901, &file, 0).is_err(), "outside the slice");
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a device");
    let error = region.write_to(0..10, &full, 0).expect_err("full");
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
}
