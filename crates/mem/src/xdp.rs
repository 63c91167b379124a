//! Memory that a socket of AF_XDP has in common with the kernel: frames, which hold packets, and
//! rings of words that say which frames are whose.
//!
//! Knows no socket: the caller makes it, registers the frames and says where the kernel has put the
//! rings. Never hands out a reference to any of it, since the kernel writes there; a caller that
//! breaks the protocol gets packets that make no sense, and nothing worse.
//!
//! The protocol of a ring is that of Linux's `if_xdp.h`: two free-running 32-bit counters, each
//! written by one side with release and read by the other with acquire.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::MemError;
use crate::mapping::Mapping;
use crate::racy;

/// Frames in whole pages, zeros at first.
#[derive(Debug)]
pub struct FrameMemory {
    mapping: Mapping,
}

impl FrameMemory {
    /// `bytes` of memory.
    ///
    /// # Errors
    /// [`MemError::Map`] when this machine has not that much.
    pub fn new(bytes: usize) -> Result<Self, MemError> {
        Ok(Self { mapping: Mapping::anonymous(bytes)? })
    }

    /// Its address, for the kernel, which keeps the pages for as long as a socket has them.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.mapping.start().as_ptr().expose_provenance() as u64
    }

    /// Bytes of it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping.len()
    }

    /// Copies out what is at `offset`.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`].
    pub fn load(&self, offset: usize, into: &mut [u8]) -> Result<(), MemError> {
        self.check(offset, into.len())?;
        // SAFETY: the range lies inside the mapping, as just checked, which `self` keeps; everyone
        // here goes through `racy`, the kernel writes from outside. `into` is exclusive, and not in
        // the mapping, of which there are no references.
        let loaded = unsafe {
            let from = self.mapping.start().as_ptr().add(offset);
            racy::load(from, into.as_mut_ptr(), into.len())
        };
        loaded.map_err(|_| self.outside(offset, into.len()))
    }

    /// Copies in, to `offset`.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`].
    pub fn store(&self, offset: usize, from: &[u8]) -> Result<(), MemError> {
        self.check(offset, from.len())?;
        // SAFETY: as for `load`, the other way.
        let stored = unsafe {
            let to = self.mapping.start().as_ptr().add(offset);
            racy::store(to, from.as_ptr(), from.len())
        };
        stored.map_err(|_| self.outside(offset, from.len()))
    }

    fn check(&self, offset: usize, len: usize) -> Result<(), MemError> {
        let end = offset.checked_add(len);
        let inside = end.is_some_and(|end| end <= self.mapping.len());
        inside.then_some(()).ok_or_else(|| self.outside(offset, len))
    }

    fn outside(&self, offset: usize, len: usize) -> MemError {
        MemError::OutOfBounds { offset, len, size: self.mapping.len() }
    }
}

/// Where the kernel has put the parts of a ring: bytes from the ring's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlaces {
    /// The counter of entries that were made.
    pub producer: usize,
    /// The counter of entries that were taken.
    pub consumer: usize,
    /// The flags, if the kernel has any.
    pub flags: Option<usize>,
    /// The first entry.
    pub entries: usize,
}

/// Words of 64 bits in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryWords {
    /// The place of a frame.
    One,
    /// The place of a packet; its length and options.
    Two,
}

impl EntryWords {
    fn bytes(self) -> usize {
        match self {
            Self::One => 8,
            Self::Two => 16,
        }
    }
}

/// One side of a ring: the caller makes entries and the kernel takes them, or the other way round.
#[derive(Debug)]
pub struct SocketRing {
    mapping: Mapping,
    places: RingPlaces,
    count: u32,
    words: EntryWords,
}

impl SocketRing {
    /// Maps a ring of `count` entries that begins at `offset` of `socket`.
    ///
    /// # Errors
    /// [`MemError::Map`] when the kernel has no such ring; [`MemError::OutOfBounds`] and
    /// [`MemError::Unaligned`] when its parts cannot be there. `count` is a power of two.
    pub fn map(
        socket: BorrowedFd<'_>,
        offset: u64,
        places: RingPlaces,
        count: u32,
        words: EntryWords,
    ) -> Result<Self, MemError> {
        let size = (count as usize).checked_mul(words.bytes());
        let size = size.and_then(|size| size.checked_add(places.entries)).unwrap_or(usize::MAX);
        if !count.is_power_of_two() {
            return Err(MemError::OutOfBounds { offset: 0, len: count as usize, size });
        }
        for (place, len) in parts(places) {
            if place.checked_add(len).is_none_or(|end| end > size) {
                return Err(MemError::OutOfBounds { offset: place, len, size });
            }
            if place % len != 0 {
                return Err(MemError::Unaligned { offset: place, addr: place });
            }
        }
        let offset = libc::off_t::try_from(offset)
            .map_err(|_| MemError::Map { len: size, errno: libc::EINVAL })?;
        Ok(Self { mapping: Mapping::shared(socket, offset, size)?, places, count, words })
    }

    /// Makes an entry for the kernel; false when the ring is full.
    pub fn push(&mut self, entry: [u64; 2]) -> bool {
        let made = self.counter(self.places.producer).load(Ordering::Relaxed);
        let taken = self.counter(self.places.consumer).load(Ordering::Acquire);
        if made.wrapping_sub(taken) >= self.count {
            return false;
        }
        for (word, value) in self.entry(made).into_iter().zip(entry) {
            // SAFETY: `entry` names words inside the mapping, 8-aligned as `map` has checked;
            // everyone here accesses them through `racy`.
            let stored = unsafe { racy::store_u64(word, value) };
            if stored.is_err() {
                return false;
            }
        }
        let counter = self.counter(self.places.producer);
        counter.store(made.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes the kernel's next entry, if there is one.
    pub fn pop(&mut self) -> Option<[u64; 2]> {
        let taken = self.counter(self.places.consumer).load(Ordering::Relaxed);
        let made = self.counter(self.places.producer).load(Ordering::Acquire);
        if made == taken {
            return None;
        }
        let mut entry = [0; 2];
        for (value, word) in entry.iter_mut().zip(self.entry(taken)) {
            // SAFETY: as in `push`.
            *value = unsafe { racy::load_u64(word) }.ok()?;
        }
        let counter = self.counter(self.places.consumer);
        counter.store(taken.wrapping_add(1), Ordering::Release);
        Some(entry)
    }

    /// Whether the kernel sleeps until it is told of new entries.
    #[must_use]
    pub fn needs_wakeup(&self) -> bool {
        const XDP_RING_NEED_WAKEUP: u32 = 1;
        let flags = self.places.flags.map(|place| self.counter(place).load(Ordering::Relaxed));
        flags.is_some_and(|flags| flags & XDP_RING_NEED_WAKEUP != 0)
    }

    fn counter(&self, place: usize) -> &AtomicU32 {
        // SAFETY: `map` has checked that the place lies inside the mapping and is 4-aligned; the
        // mapping lives as long as `self`, and its counters are only ever accessed atomically.
        unsafe { AtomicU32::from_ptr(self.mapping.start().as_ptr().add(place).cast()) }
    }

    /// The words of the entry with that number; numbers go on for ever, places do not.
    fn entry(&self, number: u32) -> impl IntoIterator<Item = *mut u64> + use<> {
        let index = (number & (self.count - 1)) as usize;
        let place = self.places.entries + index * self.words.bytes();
        // SAFETY: `index` is below the count, and `map` has made the mapping that long.
        let first: *mut u64 = unsafe { self.mapping.start().as_ptr().add(place).cast() };
        let second = match self.words {
            EntryWords::One => None,
            // SAFETY: an entry of two words has a second one.
            EntryWords::Two => Some(unsafe { first.add(1) }),
        };
        std::iter::once(first).chain(second)
    }
}

/// The parts besides the entries, and where the entries begin, with the bytes of one word of each.
fn parts(places: RingPlaces) -> impl Iterator<Item = (usize, usize)> {
    let counters = [Some(places.producer), Some(places.consumer), places.flags];
    let counters = counters.into_iter().flatten().map(|place| (place, 4));
    counters.chain([(places.entries, 8)])
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    const PLACES: RingPlaces =
        RingPlaces { producer: 0, consumer: 64, flags: Some(128), entries: 192 };

    /// A file in place of the socket, so that a test may be the kernel.
    fn file(name: &str) -> File {
        let path = std::env::temp_dir().join(format!("outboard-xdp-{}-{name}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.set_len(8192).unwrap();
        file
    }

    #[test]
    fn what_one_side_makes_the_other_takes_once_and_in_order() {
        let file = file("order");
        for words in [EntryWords::One, EntryWords::Two] {
            let map = || SocketRing::map(file.as_fd(), 0, PLACES, 8, words).unwrap();
            let (mut ours, mut kernels) = (map(), map());
            let mut next = 0;
            for round in 0..50 {
                let made = (0..).take_while(|i| ours.push([next + i, !(next + i)])).count() as u64;
                assert_eq!(made, 8, "a ring of eight in round {round}");
                for number in next..next + made {
                    let second = if words == EntryWords::Two { !number } else { 0 };
                    assert_eq!(kernels.pop(), Some([number, second]));
                }
                assert_eq!(kernels.pop(), None);
                next += made;
            }
            assert!(!ours.needs_wakeup());
        }
    }

    #[test]
    fn counters_wrap() {
        let file = file("wrap");
        let mut ring = SocketRing::map(file.as_fd(), 0, PLACES, 4, EntryWords::One).unwrap();
        for place in [PLACES.producer, PLACES.consumer] {
            ring.counter(place).store(u32::MAX - 1, Ordering::Relaxed);
        }
        assert_eq!((0..9).take_while(|i| ring.push([*i, 0])).count(), 4);
        let taken: Vec<u64> = std::iter::from_fn(|| ring.pop()).map(|[first, _]| first).collect();
        assert_eq!(taken, [0, 1, 2, 3]);
    }

    #[test]
    fn places_that_cannot_be_are_refused() {
        let file = file("places");
        let map = |places, count| SocketRing::map(file.as_fd(), 0, places, count, EntryWords::Two);
        assert!(map(RingPlaces { producer: 2, ..PLACES }, 8).is_err());
        assert!(map(RingPlaces { consumer: usize::MAX - 1, ..PLACES }, 8).is_err());
        assert!(map(RingPlaces { flags: Some(320), ..PLACES }, 8).is_err());
        assert!(map(RingPlaces { entries: 196, ..PLACES }, 8).is_err());
        assert!(map(PLACES, 6).is_err());
        assert!(map(PLACES, 0).is_err());
        assert!(map(PLACES, 8).is_ok());
    }

    #[test]
    fn frames_are_copied_within_bounds() {
        let frames = FrameMemory::new(8192).unwrap();
        assert_eq!((frames.bytes(), frames.address() % 4096), (8192, 0));
        frames.store(8190, b"ab").unwrap();
        let mut bytes = [0; 3];
        frames.load(8189, &mut bytes).unwrap();
        assert_eq!(bytes, *b"\0ab");
        assert!(frames.load(8190, &mut bytes).is_err());
        assert!(frames.store(usize::MAX, b"a").is_err());
        frames.load(8192, &mut []).unwrap();
    }
}
