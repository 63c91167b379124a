//! The two ends of a ring. Either may make it; the other is attached by the memfd.
//!
//! An end belongs to one thread at a time (`&mut self`). Bytes of messages are accessed only as
//! shared memory is: by copies, or by code that runs on a second mapping of the pool.

use std::os::fd::{AsFd, OwnedFd};

use super::protocol::{BeforeSleep, Consumer, PeerState, Producer};
use super::words::MappedWords;
use super::{ReceiveOutcome, RingError, RingFault, RingSpec, RingWake, SendOutcome};
use crate::error::MemError;
use crate::file::{new_memfd, sealed_len};
use crate::shared::{SharedRegion, Space};
use crate::slice::check;

/// What both ends have.
#[derive(Debug)]
struct End {
    spec: RingSpec,
    pool: SharedRegion,
    /// None if the other side never sleeps.
    wake: Option<Box<dyn RingWake>>,
    /// Once the peer has broken the protocol.
    fault: Option<RingFault>,
}

impl End {
    fn create(
        spec: RingSpec,
        wake: Option<Box<dyn RingWake>>,
    ) -> Result<(Self, MappedWords, OwnedFd), RingError> {
        let memfd = new_memfd(c"outboard-ring", spec.file_len(), Space::Reserved)?;
        let words = MappedWords::map(memfd.as_fd(), spec)?;
        words.mark(spec).map_err(|_| MemError::Missing { addr: 0, len: spec.words_len() })?;
        let end = Self::over(&memfd, spec, wake)?;
        Ok((end, words, memfd))
    }

    fn attach(
        memfd: &OwnedFd,
        spec: RingSpec,
        wake: Option<Box<dyn RingWake>>,
    ) -> Result<(Self, MappedWords), RingError> {
        let (expected, found) = (spec.file_len(), sealed_len(memfd.as_fd())?);
        if found != expected {
            return Err(RingError::Size { expected, found });
        }
        let words = MappedWords::map(memfd.as_fd(), spec)?;
        words.check_marks(spec)?;
        Ok((Self::over(memfd, spec, wake)?, words))
    }

    fn over(
        memfd: &OwnedFd,
        spec: RingSpec,
        wake: Option<Box<dyn RingWake>>,
    ) -> Result<Self, RingError> {
        let pool = SharedRegion::of_memfd_part(memfd, spec.words_len(), spec.pool_len())?;
        Ok(Self { spec, pool, wake, fault: None })
    }

    #[inline]
    fn usable(&self) -> Result<(), RingFault> {
        self.fault.map_or(Ok(()), Err)
    }

    /// Remembers a fault.
    #[inline]
    fn noted<T>(&mut self, result: Result<T, RingFault>) -> Result<T, RingFault> {
        if let Err(fault) = result {
            self.fault = Some(fault);
        }
        result
    }

    /// Wakes the other side if `peer` says that it sleeps.
    #[inline]
    fn wake(
        &mut self,
        peer: impl FnOnce() -> Result<PeerState, RingFault>,
    ) -> Result<(), RingFault> {
        if self.wake.is_none() {
            return Ok(());
        }
        let peer = peer();
        if self.noted(peer)? == PeerState::Sleeping {
            self.wake.iter().for_each(|wake| wake.wake());
        }
        Ok(())
    }
}

/// The sending end.
#[derive(Debug)]
pub struct RingSender {
    end: End,
    protocol: Producer<MappedWords>,
}

impl RingSender {
    /// Makes a ring. Its memfd is for the process of the receiver, which is woken by `wake`;
    /// without one, it never sleeps.
    ///
    /// # Errors
    /// [`RingError::Memory`] if this machine has no such memory.
    pub fn create(
        spec: RingSpec,
        wake: Option<Box<dyn RingWake>>,
    ) -> Result<(Self, OwnedFd), RingError> {
        let (end, words, memfd) = End::create(spec, wake)?;
        Ok((Self { end, protocol: Producer::new(words, spec.depth(), 0) }, memfd))
    }

    /// Attaches to a ring that the receiver made and no sender has been attached to. `spec` comes
    /// from a source that the caller trusts.
    ///
    /// # Errors
    /// [`RingError::Size`], [`RingError::Header`] for a ring of other measures;
    /// [`MemError::Seals`] for a memfd whose length can change; [`RingError::Memory`].
    pub fn attach(
        memfd: &OwnedFd,
        spec: RingSpec,
        wake: Option<Box<dyn RingWake>>,
    ) -> Result<Self, RingError> {
        let (end, words) = End::attach(memfd, spec, wake)?;
        Ok(Self { end, protocol: Producer::new(words, spec.depth(), 0) })
    }

    /// The ring's measures.
    #[must_use]
    pub fn spec(&self) -> RingSpec {
        self.end.spec
    }

    /// All slots, for [`OutgoingSlot::start`] and for second mappings. The receiver reads and may
    /// write all of it at any time.
    #[must_use]
    pub fn pool(&self) -> &SharedRegion {
        &self.end.pool
    }

    /// Sends a copy of `message`, if a slot is free.
    ///
    /// # Errors
    /// [`RingFault`].
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<SendOutcome, RingFault> {
        if message.len() > self.end.spec.message_max() as usize {
            return Ok(SendOutcome::TooLong);
        }
        let Some(mut slot) = self.reserve()? else { return Ok(SendOutcome::Full) };
        if slot.copy_in(0, message).is_err() {
            return self.end.noted(Err(RingFault::Missing));
        }
        slot.commit(message.len())
    }

    /// The next free slot, to be filled in place. Until it is committed, this is the same slot each
    /// time.
    ///
    /// # Errors
    /// [`RingFault`].
    #[inline]
    pub fn reserve(&mut self) -> Result<Option<OutgoingSlot<'_>>, RingFault> {
        self.end.usable()?;
        let next = self.protocol.reserve();
        let next = self.end.noted(next)?;
        Ok(next.map(|index| OutgoingSlot { start: self.end.spec.slot_start(index), sender: self }))
    }

    /// Wakes the receiver if it sleeps and there is a message.
    ///
    /// # Errors
    /// [`RingFault`].
    #[inline]
    pub fn wake_receiver(&mut self) -> Result<(), RingFault> {
        let Self { end, protocol } = self;
        end.wake(|| protocol.peer())
    }

    /// Announces that the sender will sleep, until `wanted` slots are free (1 to the depth; more
    /// than one saves wake-ups). When this says [`BeforeSleep::Sleep`], the receiver will wake it.
    ///
    /// # Errors
    /// [`RingFault`].
    pub fn before_sleep(&mut self, wanted: u32) -> Result<BeforeSleep, RingFault> {
        self.end.usable()?;
        let found = self.protocol.before_sleep(wanted);
        self.end.noted(found)
    }
}

/// A free slot that the sender fills. Dropping it sends nothing.
#[derive(Debug)]
pub struct OutgoingSlot<'a> {
    sender: &'a mut RingSender,
    start: usize,
}

impl OutgoingSlot<'_> {
    /// Where in [`RingSender::pool`] the slot starts, in bytes; a multiple of 64.
    #[must_use]
    pub fn start(&self) -> usize {
        self.start
    }

    /// Copies bytes into the slot.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`]; then nothing is copied. [`MemError::Missing`].
    #[inline]
    pub fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), MemError> {
        let end = &self.sender.end;
        check(offset, bytes.len(), end.spec.message_max() as usize)?;
        end.pool.copy_in(self.start + offset, bytes)
    }

    /// Sends the first `len` bytes of the slot, in place: its cost does not depend on the length.
    ///
    /// # Errors
    /// [`RingFault`].
    #[inline]
    pub fn commit(self, len: usize) -> Result<SendOutcome, RingFault> {
        let Self { sender, start } = self;
        let outcome = OutgoingSlot { sender: &mut *sender, start }.commit_silently(len)?;
        sender.wake_receiver()?;
        Ok(outcome)
    }

    /// As [`commit`](Self::commit), without looking whether the receiver sleeps: for one message of
    /// several, after which the caller calls [`RingSender::wake_receiver`].
    ///
    /// # Errors
    /// [`RingFault`].
    #[inline]
    pub fn commit_silently(self, len: usize) -> Result<SendOutcome, RingFault> {
        let RingSender { end, protocol } = self.sender;
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        if len > end.spec.message_max() {
            return Ok(SendOutcome::TooLong);
        }
        let published = protocol.publish(len);
        end.noted(published)?;
        Ok(SendOutcome::Sent)
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct RingReceiver {
    end: End,
    protocol: Consumer<MappedWords>,
}

impl RingReceiver {
    /// Makes a ring. Its memfd is for the process of the sender, which is woken by `wake`;
    /// without one, it never sleeps.
    ///
    /// # Errors
    /// [`RingError::Memory`] if this machine has no such memory.
    pub fn create(
        spec: RingSpec,
        wake: Option<Box<dyn RingWake>>,
    ) -> Result<(Self, OwnedFd), RingError> {
        let (end, words, memfd) = End::create(spec, wake)?;
        Ok((Self::new(end, words), memfd))
    }

    /// Attaches to a ring that the sender made and no receiver has been attached to. `spec` comes
    /// from a source that the caller trusts. Messages may have been sent already.
    ///
    /// # Errors
    /// As for [`RingSender::attach`].
    pub fn attach(
        memfd: &OwnedFd,
        spec: RingSpec,
        wake: Option<Box<dyn RingWake>>,
    ) -> Result<Self, RingError> {
        let (end, words) = End::attach(memfd, spec, wake)?;
        Ok(Self::new(end, words))
    }

    fn new(end: End, words: MappedWords) -> Self {
        let protocol = Consumer::new(words, end.spec.depth(), end.spec.message_max(), 0);
        Self { end, protocol }
    }

    /// The ring's measures.
    #[must_use]
    pub fn spec(&self) -> RingSpec {
        self.end.spec
    }

    /// All slots, for [`IncomingSlot::start`] and for second mappings. The sender may write all of
    /// it at any time.
    #[must_use]
    pub fn pool(&self) -> &SharedRegion {
        &self.end.pool
    }

    /// Replaces `into` by a copy of the next message, if there is one, and releases it.
    ///
    /// # Errors
    /// [`RingFault`].
    #[inline]
    pub fn try_receive(&mut self, into: &mut Vec<u8>) -> Result<ReceiveOutcome, RingFault> {
        let Some(slot) = self.peek()? else { return Ok(ReceiveOutcome::Empty) };
        into.clear();
        if slot.append_to(into).is_err() {
            return self.end.noted(Err(RingFault::Missing));
        }
        slot.release()?;
        Ok(ReceiveOutcome::Received)
    }

    /// The next message, where it lies. Until it is released, this is the same one each time.
    ///
    /// # Errors
    /// [`RingFault`].
    #[inline]
    pub fn peek(&mut self) -> Result<Option<IncomingSlot<'_>>, RingFault> {
        self.end.usable()?;
        let next = self.protocol.peek();
        let next = self.end.noted(next)?;
        Ok(next.map(|(index, len)| {
            let start = self.end.spec.slot_start(index);
            IncomingSlot { receiver: self, start, len: len as usize }
        }))
    }

    /// Wakes the sender if it sleeps and has the room that it wants.
    ///
    /// # Errors
    /// [`RingFault`].
    #[inline]
    pub fn wake_sender(&mut self) -> Result<(), RingFault> {
        let Self { end, protocol } = self;
        end.wake(|| protocol.peer())
    }

    /// Announces that the receiver will sleep. When this says [`BeforeSleep::Sleep`], the sender
    /// will wake it when there is a message.
    ///
    /// # Errors
    /// [`RingFault`].
    pub fn before_sleep(&mut self) -> Result<BeforeSleep, RingFault> {
        self.end.usable()?;
        let found = self.protocol.before_sleep();
        self.end.noted(found)
    }
}

/// A message in its slot. Dropping it releases nothing. The sender may change its bytes at any
/// time; not its length.
#[derive(Debug)]
pub struct IncomingSlot<'a> {
    receiver: &'a mut RingReceiver,
    start: usize,
    len: usize,
}

impl IncomingSlot<'_> {
    /// Where in [`RingReceiver::pool`] the message starts, in bytes; a multiple of 64.
    #[must_use]
    pub fn start(&self) -> usize {
        self.start
    }

    /// Length of the message in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a message without bytes is a message
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies bytes of the message.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`]; then nothing is copied. [`MemError::Missing`].
    #[inline]
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), MemError> {
        check(offset, into.len(), self.len)?;
        self.receiver.end.pool.copy_out(self.start + offset, into)
    }

    /// Appends a copy of the whole message.
    ///
    /// # Errors
    /// [`MemError::Missing`]; then nothing is appended.
    #[inline]
    pub fn append_to(&self, into: &mut Vec<u8>) -> Result<(), MemError> {
        self.receiver.end.pool.append_to(self.start..self.start + self.len, into)
    }

    /// Gives the slot back to the sender.
    ///
    /// # Errors
    /// [`RingFault`].
    #[inline]
    pub fn release(self) -> Result<(), RingFault> {
        let receiver = self.receiver;
        let released = receiver.protocol.release();
        receiver.end.noted(released)?;
        receiver.wake_sender()
    }

    /// As [`release`](Self::release), without looking whether the sender sleeps: for one message of
    /// several, after which the caller calls [`RingReceiver::wake_sender`].
    ///
    /// # Errors
    /// [`RingFault`].
    #[inline]
    pub fn release_silently(self) -> Result<(), RingFault> {
        let RingReceiver { end, protocol } = self.receiver;
        let released = protocol.release();
        end.noted(released)
    }
}
