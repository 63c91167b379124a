//! Copies at every alignment and length, with pages around them that must not be touched.

use super::{compare_exchange_u64, load, load_u64, store, store_u64};

const PAGE: usize = 4096;

/// One readable page between two that trap, so that reading too much is noticed as well.
pub(super) struct Fenced {
    page: *mut u8,
}

impl Fenced {
    fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping; then access is granted to its middle page only.
        unsafe {
            let start = libc::mmap(std::ptr::null_mut(), 3 * PAGE, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            let page = start.cast::<u8>().add(PAGE);
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(page.cast(), PAGE, rights), 0);
            Self { page }
        }
    }

    fn fill(&mut self, f: impl Fn(usize) -> u8) {
        for (at, byte) in self.bytes_mut().iter_mut().enumerate() {
            *byte = f(at);
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the page is ours and initialised (zero pages), borrowed through `self`.
        unsafe { std::slice::from_raw_parts_mut(self.page, PAGE) }
    }

    /// Runs `copy(to, from)` of `len` bytes at all alignments of `to` and some of `from`, at the
    /// start and at the end of a page, and checks that exactly those bytes arrived.
    pub(super) fn each_alignment(len: usize, copy: impl Fn(*mut u8, *const u8)) {
        let (mut to, mut from) = (Self::new(), Self::new());
        from.fill(pattern);
        let last = PAGE - len;
        for skew in 0..33.min(last + 1) {
            for (t, f) in [(skew, skew / 2), (last - skew, last - skew / 3)] {
                to.fill(|_| 0xEE);
                // SAFETY: both positions have `len` bytes before the end of their page.
                unsafe { copy(to.page.add(t), from.page.add(f)) };
                let found = to.bytes_mut();
                assert!(found[..t].iter().all(|&b| b == 0xEE), "before, {len} at {t}");
                assert!(found[t + len..].iter().all(|&b| b == 0xEE), "behind, {len} at {t}");
                let expected: Vec<u8> = (f..f + len).map(pattern).collect();
                assert!(found[t..t + len] == expected[..], "inside, {len} at {t} from {f}");
            }
        }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the whole mapping made in `new`.
        unsafe { libc::munmap(self.page.sub(PAGE).cast(), 3 * PAGE) };
    }
}

/// Never 0xEE, and different at neighbouring places.
fn pattern(at: usize) -> u8 {
    u8::try_from(at * 7 % 233).expect("below 233")
}

#[test]
fn every_alignment_and_length() {
    for len in (0..300).chain([511, 512, 513, 1460, 4000, 4095, 4096]) {
        // SAFETY: `each_alignment` passes disjoint ranges of `len` bytes.
        Fenced::each_alignment(len, |to, from| unsafe { load(from, to, len) }.unwrap());
        // SAFETY: as above.
        Fenced::each_alignment(len, |to, from| unsafe { store(to, from, len) }.unwrap());
    }
}

#[test]
fn words() {
    let mut word = 5u64;
    let at = &raw mut word;
    // SAFETY: an aligned local word.
    unsafe {
        assert_eq!(load_u64(at), Ok(5));
        assert_eq!(store_u64(at, u64::MAX - 1), Ok(()));
        assert_eq!(compare_exchange_u64(at, 5, 6), Ok(u64::MAX - 1));
        assert_eq!(load_u64(at), Ok(u64::MAX - 1));
        assert_eq!(compare_exchange_u64(at, u64::MAX - 1, 7), Ok(u64::MAX - 1));
        assert_eq!(load_u64(at), Ok(7));
    }
}
