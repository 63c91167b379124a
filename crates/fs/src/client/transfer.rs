//! Bytes of files: reads and changes, begun and waited for, so that several are under way.
//!
//! Few bytes go inside the messages, many through buffers that the service reaches by itself.

use super::buffers::{BUFFER_LEN, BufferGrant, TransferBuffer};
use super::calls::NewTimes;
use super::driver::EndedCall;
use super::error::{FsError, result_of};
use super::rdma::RdmaVariant;
use super::unsynced::RunCommit;
use super::{BUSY_PAUSE, CHANGE, FsCaller, FsClient, TRANSFER_MAX, whole};
use crate::protocol::{
    APPEND, FsAnswer, FsAttrArgs, FsChangeArgs, FsInode, FsLayout, FsReadArgs, FsSource, GROW,
    KEEP_TIMES, LOCK_GONE, LOCKED, MEMORY_GONE, PUNCH, RESIZE, SYNC, errno_of_failure,
};
use outboard_active::{CallTicket, Outcome};
use outboard_verbs::SharedRegion;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that go inside a message, at most: more are copied once less through a buffer.
const INLINE_MAX: usize = 32 << 10;
/// How long a caller waits for a buffer at a time.
const BUFFER_SLICE: Duration = Duration::from_millis(100);
/// How often a change is asked for whose memory the service did not reach, or whose lock it does
/// not know: a connection that is lost has other memory. Those that others were in the way of are
/// asked for until they are late.
const TRIES_MAX: u32 = 64;

/// What is changed of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeWhat<'a> {
    /// Bytes at an offset; the file grows if they end behind it.
    Write(u64, &'a [u8]),
    /// Bytes at the end, wherever that is.
    Append(&'a [u8]),
    /// The size.
    Resize(u64),
    /// A hole.
    Punch {
        /// From here.
        offset: u64,
        /// So many bytes.
        len: u64,
    },
    /// No bytes: for attributes that are set as changes are.
    Nothing,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRead {
    /// The file as it was then.
    pub answer: FsAnswer,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A request that is under way; dropped, it is given up.
#[derive(Debug)]
pub(super) struct UnderWay {
    client: Arc<FsClient>,
    ticket: Option<CallTicket>,
    pub(super) begun: Instant,
}

impl UnderWay {
    pub(super) fn end(&mut self, caller: &FsCaller) -> Result<EndedCall, FsError> {
        let Some(ticket) = self.ticket.take() else { return Err(FsError::Interrupted) };
        self.client.driver.end(ticket, &|| self.client.goes_on(caller))
    }
}

/// What is in a buffer, or why that is not known; `None`: there is none.
pub(super) type BufferedBytes = Option<Result<Vec<u8>, FsError>>;

impl UnderWay {
    pub(super) fn client(&self) -> &Arc<FsClient> {
        &self.client
    }

    /// As [`Self::end`], with what the service has put into the call's buffer.
    pub(super) fn end_with_bytes(
        &mut self,
        caller: &FsCaller,
        none: FsError,
    ) -> Result<(Outcome, BufferedBytes), FsError> {
        let EndedCall { outcome, written, buffer, .. } = self.end(caller)?;
        let bytes = match (&buffer, written) {
            (Some(Some(buffer)), Some(len)) => {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                Some(buffer.region.snapshot(0..len).map_err(|_| none))
            }
            _ => None,
        };
        buffer.into_iter().for_each(|buffer| self.client.give_back(buffer));
        Ok((outcome, bytes))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.client.driver.abandon(ticket);
        }
    }
}

/// A request that is under way, or was made by one-sided verbs, and is over.
#[derive(Debug)]
enum PendingCall<T> {
    Asked(UnderWay),
    Over(T),
}

/// A read that is under way.
#[derive(Debug)]
pub struct PendingRead {
    call: PendingCall<FileRead>,
    asked: AskedRead,
}

/// A change that is under way.
#[derive(Debug)]
pub struct PendingChange {
    call: PendingCall<FsAnswer>,
    args: FsChangeArgs,
    /// The bytes, as long as they may have to be sent again.
    bytes: Vec<u8>,
}

impl FsClient {
    /// Begins to read; at most [`TRANSFER_MAX`] bytes.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn begin_read(
        self: &Arc<Self>,
        caller: &FsCaller,
        inode: FsInode,
        offset: u64,
        len: usize,
    ) -> Result<PendingRead, FsError> {
        let len = len.min(TRANSFER_MAX) as u64;
        let args = FsReadArgs { who: caller.who, inode, offset, len };
        let asked = AskedRead { entry: "read", args: args.bytes(), len };
        let call = match &self.rdma {
            Some(rdma) => {
                let goes_on = || self.goes_on(caller);
                PendingCall::Over(rdma.read((&self.trips, &goes_on), &args)?)
            }
            None => PendingCall::Asked(self.begin_read_again(caller, &asked)?),
        };
        Ok(PendingRead { call, asked })
    }

    fn begin_read_again(
        self: &Arc<Self>,
        caller: &FsCaller,
        asked: &AskedRead,
    ) -> Result<UnderWay, FsError> {
        let is_long = asked.len > INLINE_MAX as u64;
        let buffer = if is_long { Some(self.buffer(caller)?) } else { None };
        self.begin(caller, asked.entry, &asked.args, buffer)
    }

    /// Asks for bytes and waits for them: all that the service answers.
    pub(super) fn read_whole(
        self: &Arc<Self>,
        caller: &FsCaller,
        asked: AskedRead,
    ) -> Result<Vec<u8>, FsError> {
        let call = self.begin_read_again(caller, &asked)?;
        asked.end(call, caller)
    }

    /// Reads; at most [`TRANSFER_MAX`] bytes, and none behind the end.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn read(
        self: &Arc<Self>,
        caller: &FsCaller,
        inode: FsInode,
        offset: u64,
        len: usize,
    ) -> Result<FileRead, FsError> {
        self.begin_read(caller, inode, offset, len)?.end(caller)
    }

    /// Begins a change; at most [`TRANSFER_MAX`] bytes. Changes that are under way at the same time
    /// are made in any order.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn begin_change(
        self: &Arc<Self>,
        caller: &FsCaller,
        inode: FsInode,
        what: ChangeWhat<'_>,
        is_durable: SyncWhen,
    ) -> Result<PendingChange, FsError> {
        let which = if is_durable == SyncWhen::AtOnce { SYNC } else { 0 };
        self.begin_change_with(caller, inode, what, (which, &NewTimes::default()))
    }

    /// As [`Self::begin_change`], and sets attributes afterwards: both are done, or neither.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn begin_change_and_set(
        self: &Arc<Self>,
        caller: &FsCaller,
        inode: FsInode,
        what: ChangeWhat<'_>,
        new: &NewTimes,
    ) -> Result<PendingChange, FsError> {
        self.begin_change_with(caller, inode, what, (0, new))
    }

    fn begin_change_with(
        self: &Arc<Self>,
        caller: &FsCaller,
        inode: FsInode,
        what: ChangeWhat<'_>,
        (flags, new): (u32, &NewTimes),
    ) -> Result<PendingChange, FsError> {
        let (offset, size, which, bytes): (u64, u64, u32, &[u8]) = match what {
            ChangeWhat::Write(offset, bytes) => (offset, bytes.len() as u64, GROW, bytes),
            ChangeWhat::Append(bytes) => (0, bytes.len() as u64, APPEND, bytes),
            ChangeWhat::Resize(size) => (0, size, RESIZE, b""),
            ChangeWhat::Punch { offset, len } => (offset, len, PUNCH, b""),
            ChangeWhat::Nothing => (0, 0, KEEP_TIMES, b""),
        };
        if bytes.len() > TRANSFER_MAX {
            return Err(FsError::of(libc::EMSGSIZE));
        }
        let which = which | flags | self.fenced.flag(inode);
        let set = new.args(caller, inode);
        let args = FsChangeArgs { who: caller.who, inode, offset, size, which, source: 0, set };
        let call = match &self.rdma {
            Some(rdma) => {
                let answer = self.change_here(rdma, caller, &args, bytes)?;
                self.changed(caller, self.own_commit(), [inode]);
                PendingCall::Over(answer)
            }
            None => PendingCall::Asked(self.begin_change_again(caller, &args, bytes)?),
        };
        Ok(PendingChange { call, args, bytes: bytes.to_vec() })
    }

    /// As a change that is asked for: where attributes are refused that are set with it, the bytes
    /// are written nevertheless.
    fn change_here(
        &self,
        rdma: &RdmaVariant,
        caller: &FsCaller,
        args: &FsChangeArgs,
        bytes: &[u8],
    ) -> Result<FsAnswer, FsError> {
        let goes_on = || self.goes_on(caller);
        let asked = |args| rdma.change((&self.trips, &goes_on), args, bytes);
        match asked(args) {
            Err(FsError::Failed { errno: libc::EPERM, text }) if args.set.which != 0 => {
                asked(&FsChangeArgs { set: FsAttrArgs::default(), ..*args })?;
                Err(FsError::Failed { errno: libc::EPERM, text })
            }
            changed => changed,
        }
    }

    fn begin_change_again(
        self: &Arc<Self>,
        caller: &FsCaller,
        args: &FsChangeArgs,
        bytes: &[u8],
    ) -> Result<UnderWay, FsError> {
        if bytes.len() <= INLINE_MAX {
            return self.begin(caller, CHANGE, &args.with(FsSource::Here(bytes)), None);
        }
        let buffer = self.buffer(caller)?;
        let memory = loop {
            let copied = buffer.region.copy_in(0, bytes);
            let memory = self.driver.lock().client.exposed(buffer.memory);
            match (copied, memory.and_then(|memory| memory.part(0, bytes.len() as u64))) {
                (Err(error), _) => {
                    self.buffers.give(buffer);
                    return Err(FsError::Machine(error.to_string()));
                }
                (Ok(()), Some(memory)) => break memory,
                // There is no connection; a request that needs no memory waits for the next one.
                (Ok(()), None) => {
                    if let Err(error) = self.ask(caller, "stats", b"") {
                        self.buffers.give(buffer);
                        return Err(error);
                    }
                }
            }
        };
        self.begin(caller, CHANGE, &args.with(FsSource::Memory(memory)), Some(buffer))
    }

    /// Changes bytes.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn change(
        self: &Arc<Self>,
        caller: &FsCaller,
        inode: FsInode,
        what: ChangeWhat<'_>,
        is_durable: SyncWhen,
    ) -> Result<FsAnswer, FsError> {
        self.begin_change(caller, inode, what, is_durable)?.end(caller)
    }

    pub(super) fn begin(
        self: &Arc<Self>,
        caller: &FsCaller,
        entry: &'static str,
        args: &[u8],
        buffer: Option<TransferBuffer>,
    ) -> Result<UnderWay, FsError> {
        if self.rdma.is_some() {
            return Err(FsError::of(libc::EOPNOTSUPP));
        }
        self.trips.add(entry);
        let begun = Instant::now();
        let kept = buffer.clone();
        match self.driver.begin(entry, args, buffer, &|| self.goes_on(caller)) {
            Ok(ticket) => Ok(UnderWay { client: Arc::clone(self), ticket: Some(ticket), begun }),
            Err(error) => {
                // It was never asked.
                kept.into_iter().for_each(|buffer| self.buffers.give(buffer));
                Err(error)
            }
        }
    }

    /// A buffer, as soon as one is free.
    pub(super) fn buffer(&self, caller: &FsCaller) -> Result<TransferBuffer, FsError> {
        loop {
            for returned in self.driver.returned() {
                self.give_back(returned);
            }
            match self.buffers.take(BUFFER_SLICE) {
                BufferGrant::Ready(buffer) => return Ok(buffer),
                BufferGrant::Make => {
                    return self.make_buffer().inspect_err(|_| self.buffers.lose());
                }
                BufferGrant::None if self.goes_on(caller) => {}
                BufferGrant::None => return Err(FsError::Interrupted),
            }
        }
    }

    fn make_buffer(&self) -> Result<TransferBuffer, FsError> {
        let region = SharedRegion::zeroed(BUFFER_LEN);
        let region = region.map_err(|error| FsError::Machine(error.to_string()))?;
        let memory = self.driver.lock().client.expose_both_ways(region.clone().into())?;
        Ok(TransferBuffer { region, memory })
    }

    pub(super) fn give_back(&self, buffer: Option<TransferBuffer>) {
        match buffer {
            Some(buffer) => self.buffers.give(buffer),
            None => self.buffers.lose(),
        }
    }
}

/// When a change is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncWhen {
    /// When it is made.
    #[default]
    Later,
    /// When it is durable.
    AtOnce,
}

impl PendingRead {
    /// Waits for what was read.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn end(self, caller: &FsCaller) -> Result<FileRead, FsError> {
        match self.call {
            PendingCall::Asked(call) => {
                let len = self.asked.len;
                bytes_of(&self.asked.end(call, caller)?, len)
            }
            PendingCall::Over(read) => Ok(read),
        }
    }
}

/// A request for bytes of a file.
#[derive(Debug)]
pub(super) struct AskedRead {
    pub(super) entry: &'static str,
    pub(super) args: Vec<u8>,
    /// How many, at most.
    pub(super) len: u64,
}

impl AskedRead {
    /// Waits for what the service answers.
    fn end(&self, mut call: UnderWay, caller: &FsCaller) -> Result<Vec<u8>, FsError> {
        loop {
            let (outcome, bytes) = call.end_with_bytes(caller, NO_READ)?;
            let client = &call.client;
            match outcome {
                Outcome::Busy(_) | Outcome::Conflict => {}
                // Reading once more changes nothing.
                Outcome::Unknown if !client.is_late(call.begun) => {}
                Outcome::Unknown => return Err(FsError::TimedOut),
                outcome => {
                    let inline = result_of(outcome)?;
                    return bytes.unwrap_or(Ok(inline));
                }
            }
            if client.is_late(call.begun) {
                return Err(FsError::TimedOut);
            }
            let begun = call.begun;
            call = client.begin_read_again(caller, self)?;
            call.begun = begun;
        }
    }
}

fn is_refusal(code: i32) -> bool {
    errno_of_failure(code) == libc::EPERM
}

const NO_READ: FsError = FsError::Answer { entry: "read" };

/// An answer of `read`: never more bytes than were asked for.
fn bytes_of(result: &[u8], most: u64) -> Result<FileRead, FsError> {
    match FsAnswer::split(result) {
        Some((answer, bytes)) if bytes.len() as u64 <= most => {
            Ok(FileRead { answer, bytes: bytes.to_vec() })
        }
        _ => Err(NO_READ),
    }
}

impl PendingChange {
    /// Whether its outcome is here; [`end`](Self::end) may have to ask once more nevertheless.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match &self.call {
            PendingCall::Asked(call) => {
                call.ticket.is_none_or(|ticket| call.client.driver.is_over(ticket))
            }
            PendingCall::Over(_) => true,
        }
    }

    /// Waits until it is made. Where the attributes are refused that are set with it, the bytes are
    /// written nevertheless.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn end(mut self, caller: &FsCaller) -> Result<FsAnswer, FsError> {
        let mut call = match self.call {
            PendingCall::Asked(call) => call,
            PendingCall::Over(answer) => return Ok(answer),
        };
        let (mut refused, mut tries) = (false, 0);
        loop {
            let EndedCall { outcome, buffer, run, .. } = call.end(caller)?;
            let client = &call.client;
            buffer.into_iter().for_each(|buffer| client.give_back(buffer));
            match next_step(&outcome, &self.args, (&mut tries, client.is_late(call.begun))) {
                ChangeStep::Again => {}
                ChangeStep::Pause if client.goes_on(caller) => thread::sleep(BUSY_PAUSE),
                ChangeStep::Pause => return Err(FsError::Interrupted),
                ChangeStep::SayLocks => {
                    self.args.which &= !LOCKED;
                    self.args.which |= client.fenced.flag(self.args.inode);
                }
                ChangeStep::WithoutAttributes => {
                    (refused, self.args.set) = (true, FsAttrArgs::default());
                }
                ChangeStep::TimedOut => return Err(FsError::TimedOut),
                ChangeStep::GivenUp => return Err(FsError::of(libc::EIO)),
                ChangeStep::Over => {
                    if let Outcome::Done { seq, .. } = outcome {
                        client.changed(caller, RunCommit { run, seq }, [self.args.inode]);
                    }
                    let answer = whole(&result_of(outcome)?, CHANGE);
                    return if refused { Err(FsError::of(libc::EPERM)) } else { answer };
                }
            }
            let begun = call.begun;
            call = client.begin_change_again(caller, &self.args, &self.bytes)?;
            call.begun = begun;
        }
    }
}

/// What follows the end of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeStep {
    /// It is asked for again.
    Again,
    /// As well, a little later.
    Pause,
    /// As well, with what is known now of locks: they were given up here, or lost.
    SayLocks,
    /// As well, without the attributes that are refused.
    WithoutAttributes,
    TimedOut,
    GivenUp,
    /// That is its outcome.
    Over,
}

/// Who was in others' way, or came when the service had no time, asks until it is late.
fn next_step(
    outcome: &Outcome,
    args: &FsChangeArgs,
    (tries, is_late): (&mut u32, bool),
) -> ChangeStep {
    let step = match outcome {
        Outcome::Busy(_) | Outcome::Conflict | Outcome::Unknown if is_late => ChangeStep::TimedOut,
        // Nothing was changed.
        Outcome::Busy(_) | Outcome::Conflict => ChangeStep::Pause,
        // The same bytes at the same place.
        Outcome::Unknown if args.which & APPEND == 0 => ChangeStep::Again,
        Outcome::Failed { code, .. } if *code == MEMORY_GONE => ChangeStep::Again,
        Outcome::Failed { code, .. } if *code == LOCK_GONE => ChangeStep::SayLocks,
        Outcome::Failed { code, .. } if args.set.which != 0 && is_refusal(*code) => {
            ChangeStep::WithoutAttributes
        }
        _ => ChangeStep::Over,
    };
    if matches!(step, ChangeStep::Again | ChangeStep::SayLocks) {
        *tries += 1;
    }
    if *tries < TRIES_MAX { step } else { ChangeStep::GivenUp }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_meets_conflicts_asks_until_it_is_late() {
        let (args, mut tries) = (FsChangeArgs::default(), 0);
        let mut step =
            |outcome: &Outcome, is_late| next_step(outcome, &args, (&mut tries, is_late));
        for _ in 0..10 * TRIES_MAX {
            assert_eq!(step(&Outcome::Conflict, false), ChangeStep::Pause);
            assert_eq!(step(&Outcome::Busy(String::new()), false), ChangeStep::Pause);
        }
        assert_eq!(step(&Outcome::Conflict, true), ChangeStep::TimedOut);
        assert_eq!(step(&Outcome::Unknown, true), ChangeStep::TimedOut);
        let gone = Outcome::Failed { code: MEMORY_GONE, text: String::new() };
        for _ in 1..TRIES_MAX {
            assert_eq!(step(&gone, false), ChangeStep::Again);
        }
        assert_eq!(step(&gone, false), ChangeStep::GivenUp);
    }

    #[test]
    fn bytes_are_not_appended_twice() {
        let step = |which| {
            let args = FsChangeArgs { which, ..FsChangeArgs::default() };
            next_step(&Outcome::Unknown, &args, (&mut 0, false))
        };
        assert_eq!((step(APPEND), step(0)), (ChangeStep::Over, ChangeStep::Again));
    }
}
