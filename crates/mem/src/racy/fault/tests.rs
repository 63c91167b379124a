//! Every kind of access, to pages that are missing.

use super::*;
use crate::{MemError, SharedRegion};

const PAGE: usize = 4096;

/// Four pages, of which the last two are missing.
struct Half(*mut u8);

impl Half {
    /// Their protection forbids it.
    fn protected(rights: c_int) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let half = Self::map(flags, -1);
        // SAFETY: two pages of our own mapping.
        let changed = unsafe { libc::mprotect(half.0.add(2 * PAGE).cast(), 2 * PAGE, rights) };
        assert_eq!(changed, 0);
        half
    }

    /// They lie behind the end of a file in memory.
    fn behind_the_end() -> Self {
        // SAFETY: makes a file and shortens it; takes a name that lives for ever.
        let file = unsafe {
            let file = libc::memfd_create(c"half".as_ptr(), libc::MFD_CLOEXEC);
            assert!(file >= 0 && libc::ftruncate(file, 4 * 4096) == 0);
            file
        };
        let half = Self::map(libc::MAP_SHARED, file);
        // SAFETY: as above; the mapping keeps the file.
        unsafe {
            assert_eq!(libc::ftruncate(file, 2 * 4096), 0);
            libc::close(file);
        }
        half
    }

    fn map(flags: c_int, file: c_int) -> Self {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), 4 * PAGE, rights, flags, file, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Self(start.cast())
    }

    fn region(&self) -> SharedRegion {
        // SAFETY: the pages outlive the region; no other code knows them.
        unsafe { SharedRegion::from_raw(self.0, 4 * PAGE) }
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        // SAFETY: our own mapping, whole.
        unsafe { libc::munmap(self.0.cast(), 4 * PAGE) };
    }
}

/// Copies of every length class, inside, across the border of and outside the pages that are there.
fn check(half: &Half, writes_only: bool) {
    let region = half.region();
    for len in [1, 2, 4, 5, 8, 11, 16, 40, 100, 127, 128, 500, 3000, PAGE + 7] {
        let bytes = vec![7; len];
        let (inside, across) = (2 * PAGE - len, 2 * PAGE - len + 1);
        let found = |at: usize| MemError::Missing { addr: region.addr() + at, len };
        assert_eq!(region.copy_in(inside, &bytes), Ok(()));
        for at in [across, 2 * PAGE] {
            let at = at.min(4 * PAGE - len);
            assert_eq!(region.copy_in(at, &bytes), Err(found(at)), "{len} at {at}");
            if !writes_only {
                let mut into = vec![0; len];
                assert_eq!(region.copy_out(at, &mut into), Err(found(at)));
                assert_eq!(region.snapshot(at..at + len), Err(found(at)));
            }
        }
        assert_eq!(region.snapshot(inside..inside + len), Ok(bytes));
    }
    let word = 2 * PAGE;
    let missing = MemError::Missing { addr: region.addr() + word, len: 8 };
    assert_eq!(region.store_u64(word, 1), Err(missing.clone()));
    assert_eq!(region.fetch_update_u64(word, |value| value + 1), Err(missing.clone()));
    if !writes_only {
        assert_eq!(region.load_u64(word), Err(missing));
    }
    assert_eq!(region.store_u64(word - 8, 5), Ok(()));
    assert_eq!(region.fetch_update_u64(word - 8, |value| value + 1), Ok(5));
}

#[test]
fn memory_without_access_is_missing() {
    check(&Half::protected(libc::PROT_NONE), false);
    check(&Half::protected(libc::PROT_READ), true);
}

#[test]
fn memory_behind_the_end_of_its_file_is_missing() {
    check(&Half::behind_the_end(), false);
}
