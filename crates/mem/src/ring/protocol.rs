//! How the two sides take turns: a lap and a length in each slot's descriptor, the number of
//! messages released, and announcements of sleep. Over any memory that has words: the memfd's, or
//! loom's.
//!
//! Each word has one writer. A message is published by its descriptor alone (as in FastForward and
//! its successors, so that no index travels beside it): its upper half says in which round of the
//! ring it was written, its lower half how long the message is. The receiver's count of released
//! messages is read by the sender only when its copy says that the ring is full (as in Rigtorp's
//! SPSCQueue), so that in a stream few cache lines go back and forth.
//!
//! Sleep: a side raises its count of announcements, fences, and looks once more whether it has
//! something to do; the other side publishes, fences, and looks at the count. Whichever fence comes
//! first, one of the two sees what the other has written. It wakes once for each announcement.
//! Every word of the other side is loaded once for each decision, and checked.

use super::RingFault;
use crate::racy::Missing;

/// Where a word of the ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordAt {
    /// Messages that the receiver has released; written by it, as the next one.
    Released,
    /// How often the receiver has announced that it will sleep.
    ReceiverSleeps,
    /// How often the sender has; written by it, as the next one.
    SenderSleeps,
    /// The count of released messages at which the sender wants to be woken.
    SenderWants,
    /// The descriptor of the message with this index since the ring was made.
    Descriptor(u64),
}

/// The words that both sides share.
pub(super) trait RingWords {
    /// Loads a word (acquire).
    fn load(&self, at: WordAt) -> Result<u64, Missing>;
    /// Stores a word (release).
    fn store(&self, at: WordAt, value: u64) -> Result<(), Missing>;
    /// Orders every access before it before every access behind it.
    fn fence(&self);
}

/// Whether a side may sleep, after it has announced that it will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeforeSleep {
    /// It may: the other side will wake it.
    Sleep,
    /// There is something to do already. One wake-up may come nevertheless.
    Ready,
}

/// Whether the other side sleeps and is to be woken now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerState {
    Awake,
    Sleeping,
}

impl From<Missing> for RingFault {
    fn from(_: Missing) -> Self {
        Self::Missing
    }
}

/// The sender's knowledge.
#[derive(Debug)]
pub(super) struct Producer<M> {
    words: M,
    depth: u64,
    /// Messages published.
    sent: u64,
    /// Messages that the receiver has released, as last seen.
    released: u64,
    /// The receiver's last announcement that was answered.
    answered: u64,
    /// Own announcements.
    announced: u64,
}

impl<M: RingWords> Producer<M> {
    /// The sender of a ring through which `sent` messages have gone; none but in tests.
    pub(super) fn new(words: M, depth: u32, sent: u64) -> Self {
        let depth = u64::from(depth);
        Self { words, depth, sent, released: sent, answered: 0, announced: 0 }
    }

    /// The next message's index, if a slot is free for it.
    #[inline]
    pub(super) fn reserve(&mut self) -> Result<Option<u64>, RingFault> {
        if self.free() == 0 {
            self.look()?;
        }
        Ok((self.free() != 0).then_some(self.sent))
    }

    /// How many slots are free, as last seen. Never more than there are, because of `look`'s check.
    #[inline]
    fn free(&self) -> u64 {
        self.depth - self.sent.wrapping_sub(self.released)
    }

    /// Looks how many messages the receiver has released by now.
    fn look(&mut self) -> Result<(), RingFault> {
        let found = self.words.load(WordAt::Released)?;
        let in_flight = self.sent.wrapping_sub(self.released);
        if found.wrapping_sub(self.released) > in_flight {
            let (sent, before) = (self.sent, self.released);
            return Err(RingFault::Released { found, sent, before });
        }
        self.released = found;
        Ok(())
    }

    /// Publishes the message that was written into the slot of the last `reserve`. Whether the
    /// receiver sleeps is asked for by `peer`, after one message or several.
    #[inline]
    pub(super) fn publish(&mut self, len: u32) -> Result<(), RingFault> {
        let round = round(self.sent, self.depth);
        let descriptor = u64::from(round) << 32 | u64::from(len);
        self.words.store(WordAt::Descriptor(self.sent), descriptor)?;
        self.sent = self.sent.wrapping_add(1);
        Ok(())
    }

    /// Whether the receiver sleeps, for all that is published.
    #[inline]
    pub(super) fn peer(&mut self) -> Result<PeerState, RingFault> {
        self.words.fence();
        let sleeps = self.words.load(WordAt::ReceiverSleeps)?;
        Ok(answer(&mut self.answered, sleeps))
    }

    /// Announces that the sender will sleep until `wanted` slots (1 to the depth) are free.
    pub(super) fn before_sleep(&mut self, wanted: u32) -> Result<BeforeSleep, RingFault> {
        let wanted = u64::from(wanted).clamp(1, self.depth);
        let wake_at = self.sent.wrapping_sub(self.depth - wanted);
        self.announced = self.announced.wrapping_add(1);
        self.words.store(WordAt::SenderWants, wake_at)?;
        self.words.store(WordAt::SenderSleeps, self.announced)?;
        self.words.fence();
        self.look()?;
        Ok(if self.free() < wanted { BeforeSleep::Sleep } else { BeforeSleep::Ready })
    }
}

/// The receiver's knowledge.
#[derive(Debug)]
pub(super) struct Consumer<M> {
    words: M,
    depth: u64,
    message_max: u32,
    /// Messages released.
    released: u64,
    /// Length of the message that is next, once it has been seen: it is not asked for twice.
    next_len: Option<u32>,
    /// The sender's last announcement that was answered.
    answered: u64,
    /// Own announcements.
    announced: u64,
}

impl<M: RingWords> Consumer<M> {
    /// The receiver of a ring through which `released` messages have gone; none but in tests.
    pub(super) fn new(words: M, depth: u32, message_max: u32, released: u64) -> Self {
        let depth = u64::from(depth);
        Self { words, depth, message_max, released, next_len: None, answered: 0, announced: 0 }
    }

    /// Index and length of the next message, if it is there.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<Option<(u64, u32)>, RingFault> {
        if self.next_len.is_none() {
            self.next_len = self.look()?;
        }
        Ok(self.next_len.map(|len| (self.released, len)))
    }

    #[inline]
    fn look(&self) -> Result<Option<u32>, RingFault> {
        let descriptor = self.words.load(WordAt::Descriptor(self.released))?;
        // Halves of 64 bits.
        #[allow(clippy::cast_possible_truncation)]
        let (found, len) = ((descriptor >> 32) as u32, descriptor as u32);
        let expected = round(self.released, self.depth);
        if found == expected.wrapping_sub(1) {
            return Ok(None);
        }
        if found != expected {
            return Err(RingFault::Round { index: self.released, expected, found });
        }
        let max = self.message_max;
        if len > max { Err(RingFault::Length { found: len, max }) } else { Ok(Some(len)) }
    }

    /// Gives the slot of the message that was peeked back. Without such a message, does nothing.
    /// Whether the sender sleeps is asked for by `peer`, after one message or several.
    #[inline]
    pub(super) fn release(&mut self) -> Result<(), RingFault> {
        if self.next_len.take().is_some() {
            self.released = self.released.wrapping_add(1);
            self.words.store(WordAt::Released, self.released)?;
        }
        Ok(())
    }

    /// Whether the sender sleeps and what it wants is there, for all that is released.
    #[inline]
    pub(super) fn peer(&mut self) -> Result<PeerState, RingFault> {
        self.words.fence();
        let sleeps = self.words.load(WordAt::SenderSleeps)?;
        if sleeps == self.answered {
            return Ok(PeerState::Awake);
        }
        let wake_at = self.words.load(WordAt::SenderWants)?;
        // The sender wants at most `depth` more than are released.
        if wake_at.wrapping_sub(self.released).wrapping_sub(1) < self.depth {
            return Ok(PeerState::Awake);
        }
        Ok(answer(&mut self.answered, sleeps))
    }

    /// Announces that the receiver will sleep until a message comes.
    pub(super) fn before_sleep(&mut self) -> Result<BeforeSleep, RingFault> {
        self.announced = self.announced.wrapping_add(1);
        self.words.store(WordAt::ReceiverSleeps, self.announced)?;
        self.words.fence();
        let next = self.peek()?;
        Ok(if next.is_none() { BeforeSleep::Sleep } else { BeforeSleep::Ready })
    }
}

/// In which round through the ring the message `index` is, from 1 on: new memory is of round 0.
#[inline]
fn round(index: u64, depth: u64) -> u32 {
    // It wraps; only neighbouring rounds are ever compared. The depth is a power of two.
    #[allow(clippy::cast_possible_truncation)]
    let round = (index >> depth.trailing_zeros()) as u32;
    round.wrapping_add(1)
}

/// Answers an announcement, once.
#[inline]
fn answer(answered: &mut u64, sleeps: u64) -> PeerState {
    if sleeps == *answered {
        return PeerState::Awake;
    }
    *answered = sleeps;
    PeerState::Sleeping
}

#[cfg(test)]
mod tests;
