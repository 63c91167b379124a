//! Receive buffers. A thread has one full-sized buffer that it lends to the connection for which it
//! receives. What a connection has not taken when its turn is over, the beginning of an FPDU or
//! what waits for a posted receive, moves to a buffer of just that length, so that an idle
//! connection has no full-sized one. A few connections of the process may keep theirs while much
//! waits in it: a thread that polls a fast stream would otherwise move half an FPDU at each poll.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a full-sized buffer: many FPDUs, so that a fast stream costs few system calls.
pub(crate) const STAGING_LEN: usize = 1 << 20;

/// From this many waiting bytes on a connection keeps the full-sized buffer.
const KEPT_MIN: usize = 4 << 10;
/// Full-sized buffers that the connections of this process keep at a time.
const KEPT_BUFFERS_MAX: usize = 16;

static KEPT_BUFFERS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes received and not yet taken by a connection.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    kept: Option<KeptBuffer>,
}

/// One of the full-sized buffers that connections may keep, until it is dropped.
#[derive(Debug)]
struct KeptBuffer;

impl KeptBuffer {
    fn take() -> Option<Self> {
        let next = |count| (count < KEPT_BUFFERS_MAX).then_some(count + 1);
        KEPT_BUFFERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().map(|_| Self)
    }
}

impl Drop for KeptBuffer {
    fn drop(&mut self) {
        KEPT_BUFFERS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Staging {
    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Borrows the thread's full-sized buffer, keeping what waits.
    pub(crate) fn fill(&mut self) {
        if self.bytes.len() == STAGING_LEN {
            return;
        }
        // An ending thread, as in functions of atexit(3), has none any more and keeps none.
        let mut bytes = SPARE.try_with(Cell::take).unwrap_or_default();
        if bytes.len() != STAGING_LEN {
            // Zeros of the system's, which costs nothing for what is not used.
            bytes = vec![0; STAGING_LEN];
        }
        let len = self.waiting().len();
        bytes[..len].copy_from_slice(self.waiting());
        *self = Self { bytes, start: 0, end: len, kept: None };
    }

    /// Gives the full-sized buffer back, unless many bytes wait in it; those that wait are moved to
    /// a buffer of their length.
    pub(crate) fn settle(&mut self) {
        if self.bytes.len() == STAGING_LEN && !self.keep() {
            let rest = self.waiting().to_vec();
            let bytes = std::mem::take(&mut self.bytes);
            let _kept = SPARE.try_with(|spare| spare.set(bytes));
            *self = Self { start: 0, end: rest.len(), bytes: rest, kept: None };
        }
    }

    /// Keeps the full-sized buffer if much waits in it and few others are kept.
    fn keep(&mut self) -> bool {
        if self.waiting().len() < KEPT_MIN {
            return false;
        }
        self.kept = self.kept.take().or_else(KeptBuffer::take);
        self.kept.is_some()
    }

    /// Room behind the waiting bytes, at most `want`; they move to the front when it is short.
    pub(crate) fn room(&mut self, want: usize) -> &mut [u8] {
        if self.is_empty() {
            self.start = 0;
            self.end = 0;
        } else if self.bytes.len() - self.end < want.min(STAGING_LEN / 2) {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let end = self.bytes.len().min(self.end + want);
        &mut self.bytes[self.end..end]
    }

    /// The kernel put this many bytes into the room.
    pub(crate) fn added(&mut self, count: usize) {
        self.end += count;
    }

    /// The connection took this many bytes.
    pub(crate) fn taken(&mut self, count: usize) {
        self.start += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remainders_survive_a_change_of_buffer() {
        let mut staging = Staging::default();
        staging.fill();
        staging.room(10)[..5].copy_from_slice(b"hello");
        staging.added(5);
        staging.taken(1);
        staging.settle();
        assert_eq!(staging.waiting(), b"ello");
        assert!(staging.bytes.len() < 100);
        staging.fill();
        assert_eq!(staging.waiting(), b"ello");
        assert_eq!(staging.bytes.len(), STAGING_LEN);
    }

    #[test]
    fn a_connection_that_stalls_keeps_its_waiting_bytes_and_no_more() {
        let mut staging = Staging::default();
        staging.fill();
        staging.room(STAGING_LEN)[0] = 7;
        staging.added(KEPT_MIN - 1);
        staging.settle();
        assert_eq!((staging.waiting()[0], staging.bytes.len()), (7, KEPT_MIN - 1));
    }

    #[test]
    fn few_connections_keep_full_sized_buffers_while_much_waits() {
        let mut all = [(); KEPT_BUFFERS_MAX + 1].map(|()| Staging::default());
        for staging in &mut all {
            staging.fill();
            staging.room(STAGING_LEN)[0] = 7;
            staging.added(100_000);
            staging.settle();
            assert_eq!((staging.waiting()[0], staging.waiting().len()), (7, 100_000));
        }
        let kept = |all: &[Staging]| all.iter().filter(|one| one.kept.is_some()).count();
        assert!(kept(&all) <= KEPT_BUFFERS_MAX && kept(&all) > 0);
        for staging in &mut all {
            staging.taken(99_000);
            staging.settle();
            assert!(staging.bytes.len() <= 100_000 && staging.waiting().len() == 1000);
        }
        assert_eq!(kept(&all), 0);
    }

    #[test]
    fn room_is_made_by_moving_waiting_bytes() {
        let mut staging = Staging::default();
        staging.fill();
        let len = staging.room(STAGING_LEN).len();
        staging.added(len);
        staging.taken(len - 3);
        assert!(staging.room(STAGING_LEN).len() > STAGING_LEN / 2);
        assert_eq!(staging.waiting().len(), 3);
    }
}
