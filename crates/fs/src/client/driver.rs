//! One connection for many threads: each begins calls and waits for their ends; one of those that
//! wait leads: it takes what comes and hands it to the others, and passes the lead on when its own
//! call is over.
//!
//! The connection's lock is held only for moments: whoever leads sleeps without it.

use super::buffers::TransferBuffer;
use super::error::FsError;
use crate::protocol::{FsInode, FsNote};
use outboard_active::{
    ActiveCall, ActiveClient, ActiveError, CallTicket, Executed, ModuleHash, Outcome, RegionRun,
    RemoteRegion,
};
use outboard_verbs::{AdaptiveSpin, Context};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// A caller that waits looks this often whether it is to go on.
const SLICE: Duration = Duration::from_millis(500);
/// What is over sooner is not asked whether it is to go on.
const LOOK_AFTER: Duration = Duration::from_millis(50);
/// How long a caller waits for room at a time.
const ROOM_SLICE: Duration = Duration::from_millis(5);
/// Where nobody calls, the connection is looked after this often; where somebody does, that is left
/// to the callers.
const IDLE_SLICE: Duration = Duration::from_millis(200);
const BUSY_SLICE: Duration = Duration::from_millis(10);

/// What takes the bytes of notices.
pub(super) type TakeBytes = Box<dyn Fn(&[u8]) + Send>;

/// What is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallEntry {
    /// `None`: the file system's.
    pub(super) module: Option<ModuleHash>,
    pub(super) entry: &'static str,
}

/// Entries of the file system's module that may be executed twice.
const HARMLESS: &[&str] = &[
    "get",
    "find",
    "walk",
    "list",
    "target",
    "access",
    "stats",
    "seek",
    "get_xattr",
    "list_xattr",
    "scan",
    "set",
    "sync",
    "runs",
    "lock",
    "unlock",
    "test_lock",
    "cancel_lock",
];

impl CallEntry {
    /// Whether nothing is different if it is executed twice.
    pub(super) fn is_harmless(self) -> bool {
        self.module.is_none() && HARMLESS.contains(&self.entry)
    }
}

impl From<&'static str> for CallEntry {
    fn from(entry: &'static str) -> Self {
        Self { module: None, entry }
    }
}

/// A call whose outcome is not taken.
#[derive(Debug, Default)]
struct WaitingCall {
    thread: Option<Thread>,
    over: Option<Executed>,
    is_abandoned: bool,
    buffer: Option<TransferBuffer>,
}

/// A call that is over.
#[derive(Debug)]
pub(super) struct EndedCall {
    pub(super) outcome: Outcome,
    pub(super) written: Option<u64>,
    /// Where it had one: the buffer, or `None` if it must not be used again.
    pub(super) buffer: Option<Option<TransferBuffer>>,
    /// The service's run that has answered.
    pub(super) run: RegionRun,
}

/// What the lock guards.
pub(super) struct DrivenClient {
    pub(super) client: ActiveClient,
    region: RemoteRegion,
    module: ModuleHash,
    waiting: HashMap<CallTicket, WaitingCall>,
    /// Whether somebody leads.
    is_led: bool,
    /// Calls that were begun, ever.
    begun: u64,
    spin: AdaptiveSpin,
    /// Buffers of calls that were given up and are over; `None` for one that must not be used
    /// again.
    returned: Vec<Option<TransferBuffer>>,
    /// What takes the service's notices. It does not wait.
    on_notice: Option<TakeBytes>,
    /// What is told of later connections. It does not wait.
    on_connection: Option<Box<dyn Fn() + Send>>,
    /// Open files by the numbers of their openings, and whether they may be mapped; each later
    /// connection announces them.
    opened: HashMap<u64, (FsInode, bool)>,
    /// The connection that was told.
    told: u64,
    /// Whether the service is told that leases are kept here.
    keeps: bool,
}

/// See this file's first lines.
pub(super) struct CallDriver {
    driven: Mutex<DrivenClient>,
    readable: OwnedFd,
    context: Context,
}

impl fmt::Debug for CallDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallDriver").finish_non_exhaustive()
    }
}

impl CallDriver {
    pub(super) fn new(
        mut client: ActiveClient,
        region: RemoteRegion,
        module: ModuleHash,
    ) -> Result<Self, FsError> {
        let readable = client.descriptor()?.try_clone_to_owned();
        let readable = readable.map_err(|error| FsError::Machine(error.to_string()))?;
        let context = client.context().clone();
        let (waiting, spin, returned) = (HashMap::new(), AdaptiveSpin::default(), Vec::new());
        let (is_led, begun, told) = (false, 0, client.connections());
        let (on_notice, on_connection, opened) = (None, None, HashMap::new());
        let driven = DrivenClient {
            client,
            region,
            module,
            waiting,
            is_led,
            begun,
            spin,
            returned,
            on_notice,
            on_connection,
            opened,
            told,
            keeps: false,
        };
        Ok(Self { driven: Mutex::new(driven), readable, context })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, DrivenClient> {
        self.driven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call, as soon as there is room for it.
    pub(super) fn begin(
        &self,
        entry: impl Into<CallEntry>,
        args: &[u8],
        buffer: Option<TransferBuffer>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<CallTicket, FsError> {
        let entry = entry.into();
        loop {
            {
                let mut driven = self.lock();
                match driven.submit(entry, args, buffer.as_ref()) {
                    Err(ActiveError::WindowFull { .. }) => driven.take_beside()?,
                    submitted => {
                        let ticket = submitted?;
                        let waiting = WaitingCall { buffer, ..WaitingCall::default() };
                        driven.waiting.insert(ticket, waiting);
                        driven.begun += 1;
                        driven.client.send_begun()?;
                        return Ok(ticket);
                    }
                }
            }
            if !goes_on() {
                return Err(FsError::Interrupted);
            }
            self.sleep(ROOM_SLICE);
        }
    }

    /// Waits until a call is over. Where the caller gives up, what the call borrowed stays with it
    /// until it is over.
    pub(super) fn end(
        &self,
        ticket: CallTicket,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<EndedCall, FsError> {
        let (mut leads, mut looked) = (false, Instant::now());
        loop {
            {
                let mut driven = self.lock();
                let taken = driven.take_all(DrainHow::Notify);
                let ended = taken.and_then(|()| driven.ended(ticket));
                if !matches!(ended, Ok(None)) {
                    driven.leave(leads);
                    let ended = ended.inspect_err(|_| driven.abandon(ticket));
                    return ended.map(|ended| ended.unwrap_or_else(EndedCall::unknown));
                }
                leads |= !std::mem::replace(&mut driven.is_led, true);
            }
            match leads {
                true if self.spin() => {}
                true => self.serve(SLICE),
                false => thread::park_timeout(SLICE),
            }
            if looked.elapsed() > LOOK_AFTER {
                looked = Instant::now();
                if goes_on() {
                    continue;
                }
                let mut driven = self.lock();
                driven.leave(leads);
                driven.abandon(ticket);
                return Err(FsError::Interrupted);
            }
        }
    }

    /// Of the latest connection.
    pub(super) fn run(&self) -> RegionRun {
        let driven = self.lock();
        driven.client.run(&driven.region).unwrap_or_default()
    }

    /// Says what takes the service's notices.
    pub(super) fn on_notice(&self, take: TakeBytes) {
        self.lock().on_notice = Some(take);
    }

    /// Says what is told of later connections.
    pub(super) fn on_connection(&self, tell: Box<dyn Fn() + Send>) {
        self.lock().on_connection = Some(tell);
    }

    /// Sends a note, if there is a connection. What is open each later connection is told again.
    pub(super) fn note(&self, note: &FsNote) {
        let mut driven = self.lock();
        match note {
            FsNote::Keeps => driven.keeps = true,
            FsNote::KeepsNothing => driven.keeps = false,
            _ => {}
        }
        driven.send(note);
    }

    /// Which connection this is: higher after each one that was lost.
    pub(super) fn connection(&self) -> u64 {
        self.lock().client.connections()
    }

    /// A file was opened by a request that began over that connection.
    pub(super) fn opened(&self, opening: u64, (inode, maps): (FsInode, bool), connection: u64) {
        let mut driven = self.lock();
        driven.opened.insert(opening, (inode, maps));
        // It may have been answered over the one before: saying it once more changes nothing.
        if driven.client.connections() != connection {
            driven.send(&FsNote::Opened { opening, inode, maps });
        }
    }

    /// A file was closed, or is not waited for.
    pub(super) fn closed(&self, opening: u64) {
        let mut driven = self.lock();
        driven.opened.remove(&opening);
        driven.send(&FsNote::Closed { opening });
    }

    /// Whether a call is over, as far as anything has come: nobody waits.
    pub(super) fn is_over(&self, ticket: CallTicket) -> bool {
        let mut driven = self.lock();
        // An error is the next look's as well.
        let _taken = driven.take_beside();
        driven.waiting.get(&ticket).is_none_or(|call| call.over.is_some())
    }

    /// Nobody asks for a call's outcome any more.
    pub(super) fn abandon(&self, ticket: CallTicket) {
        self.lock().abandon(ticket);
    }

    /// Takes what has come, if anything has, while callers are quiet. `begun` is what this returned
    /// last.
    pub(super) fn idle(&self, begun: u64) -> u64 {
        let (is_busy, now) = {
            let mut driven = self.lock();
            let is_busy = driven.is_led || driven.begun != begun;
            if !is_busy {
                // The next call says an error to its caller.
                let _taken = driven.take_beside();
            }
            (is_busy, driven.begun)
        };
        match is_busy {
            true => thread::sleep(BUSY_SLICE),
            false => self.sleep(IDLE_SLICE),
        }
        if !is_busy && let Err(error) = self.lock().take_beside() {
            // The next call says it to its caller.
            tracing::debug!(%error, "the connection of a mount");
        }
        now
    }

    /// Buffers of calls that were given up and are over since; `None` for one that is no more.
    pub(super) fn returned(&self) -> Vec<Option<TransferBuffer>> {
        std::mem::take(&mut self.lock().returned)
    }

    /// Looks for answers for a moment, where they come soon; whether one has come.
    fn spin(&self) -> bool {
        if !self.lock().spin.is_looking() {
            return false;
        }
        let start = Instant::now();
        let (mut before, mut longest) = (start, Duration::ZERO);
        loop {
            let mut driven = self.lock();
            let count = driven.waiting.values().filter(|call| call.over.is_some()).count();
            // An error is the next look's as well.
            let _taken = driven.take_all(DrainHow::Poll);
            let now = driven.waiting.values().filter(|call| call.over.is_some()).count();
            let (has_come, at) = (now > count, Instant::now());
            longest = if has_come { longest } else { longest.max(at - before) };
            if has_come || at - start > AdaptiveSpin::WINDOW {
                driven.spin.looked(has_come, at, longest);
                return has_come;
            }
            before = at;
            drop(driven);
            std::hint::spin_loop();
        }
    }

    /// Sleeps until something has come, for so long at most, while the engine's thread serves the
    /// connection.
    fn sleep(&self, limit: Duration) {
        let mut fds = [PollFd::new(&self.readable, PollFlags::IN)];
        let limit = Timespec::try_from(limit).ok();
        // A signal's end of it is an early look.
        let _woken = poll(&mut fds, limit.as_ref());
    }

    /// Serves the connection until something has come, for so long at most: an answer wakes this
    /// thread alone.
    fn serve(&self, limit: Duration) {
        let before = Instant::now();
        self.context.wait_readable(Some(limit), &[self.readable.as_fd()]);
        let now = Instant::now();
        self.lock().spin.slept(now - before, now);
    }
}

/// How what has come is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainHow {
    /// With what is to be sent.
    Poll,
    /// So that the descriptor says when more comes; this thread serves the connection.
    Notify,
    /// As `Notify`; the engine's thread serves the connection.
    Arm,
}

impl DrivenClient {
    fn submit(
        &mut self,
        CallEntry { module, entry }: CallEntry,
        args: &[u8],
        buffer: Option<&TransferBuffer>,
    ) -> Result<CallTicket, ActiveError> {
        // What a change borrows has its bytes.
        let takes = buffer.filter(|_| entry != super::CHANGE);
        let result = takes.map(|buffer| (buffer.memory, 0..buffer.region.len()));
        let module = module.unwrap_or(self.module);
        let call = ActiveCall { result, ..ActiveCall::new(&self.region, module, entry, args) };
        self.client.submit(&call)
    }

    /// Hands every call that is over to whoever waits for it.
    fn take_all(&mut self, how: DrainHow) -> Result<(), FsError> {
        loop {
            let executed = match how {
                DrainHow::Poll => self.client.poll()?,
                DrainHow::Notify => self.client.poll_or_notify()?,
                DrainHow::Arm => self.client.poll_or_arm()?,
            };
            match executed {
                Some(executed) => self.hand_over(executed),
                None => break,
            }
        }
        while let Some(notice) = self.client.take_notice() {
            if let Some(take) = &self.on_notice {
                take(&notice);
            }
        }
        if self.told != self.client.connections() {
            self.tell_again()?;
        }
        Ok(())
    }

    /// As [`Self::take_all`], by somebody who does not wait: who does, and leads, must be woken by
    /// the descriptor as before; where nobody does, the idle thread must be.
    fn take_beside(&mut self) -> Result<(), FsError> {
        self.take_all(if self.is_led { DrainHow::Poll } else { DrainHow::Arm })
    }

    /// A new connection is told what is open here.
    fn tell_again(&mut self) -> Result<(), FsError> {
        self.told = self.client.connections();
        if let Some(tell) = &self.on_connection {
            tell();
        }
        if self.keeps {
            self.client.note(&FsNote::Keeps.encode())?;
        }
        for (opening, (inode, maps)) in &self.opened {
            let note = FsNote::Opened { opening: *opening, inode: *inode, maps: *maps };
            self.client.note(&note.encode())?;
        }
        Ok(())
    }

    fn send(&mut self, note: &FsNote) {
        // Where it cannot be sent the connection is lost, which the next call says.
        let _sent = self.client.note(&note.encode());
        let _sent = self.client.send_begun();
    }

    fn hand_over(&mut self, mut executed: Executed) {
        let Some(call) = self.waiting.get_mut(&executed.ticket) else { return };
        if call.is_abandoned {
            let call = self.waiting.remove(&executed.ticket);
            if let Some(buffer) = call.and_then(|call| call.buffer) {
                let buffer = self.unless_reached(buffer, &executed.outcome);
                self.returned.push(buffer);
            }
            return;
        }
        // It may be long before the outcome is taken: others need the buffer.
        if call.thread.is_none()
            && let Some(buffer) = call.buffer.take()
        {
            keep_written(&mut executed, &buffer);
            let buffer = self.unless_reached(buffer, &executed.outcome);
            self.returned.push(buffer);
        }
        let Some(call) = self.waiting.get_mut(&executed.ticket) else { return };
        call.over = Some(executed);
        if let Some(thread) = &call.thread {
            thread.unpark();
        }
    }

    /// A buffer, if the service reaches it no more: where a call's outcome is not known, it may.
    fn unless_reached(
        &mut self,
        buffer: TransferBuffer,
        outcome: &Outcome,
    ) -> Option<TransferBuffer> {
        let is_reached = matches!(outcome, Outcome::Unknown);
        if is_reached {
            self.client.withdraw(buffer.memory);
        }
        (!is_reached).then_some(buffer)
    }

    /// A call's end, if it is over; else its thread is woken then.
    fn ended(&mut self, ticket: CallTicket) -> Result<Option<EndedCall>, FsError> {
        let Some(call) = self.waiting.get_mut(&ticket) else { return Ok(None) };
        let Some(executed) = call.over.take() else {
            call.thread.get_or_insert_with(thread::current);
            return Ok(None);
        };
        let buffer = self.waiting.remove(&ticket).and_then(|call| call.buffer);
        let Executed { outcome, written, run, .. } = executed;
        let buffer = buffer.map(|buffer| self.unless_reached(buffer, &outcome));
        Ok(Some(EndedCall { outcome, written, buffer, run }))
    }

    /// Somebody waits no more; if it led, another one does.
    fn leave(&mut self, leads: bool) {
        if leads {
            self.is_led = false;
            let mut others = self.waiting.values().filter(|call| call.over.is_none());
            if let Some(next) = others.find_map(|call| call.thread.as_ref()) {
                next.unpark();
            }
        }
    }

    fn abandon(&mut self, ticket: CallTicket) {
        let Some(call) = self.waiting.get_mut(&ticket) else { return };
        (call.is_abandoned, call.thread) = (true, None);
        if let Some(executed) = call.over.take() {
            self.hand_over(executed);
        }
    }
}

/// Copies what a call has written into its buffer.
fn keep_written(executed: &mut Executed, buffer: &TransferBuffer) {
    let len = executed.written.and_then(|len| usize::try_from(len).ok());
    if let (Outcome::Done { result, .. }, Some(len)) = (&mut executed.outcome, len)
        && let Ok(bytes) = buffer.region.snapshot(0..len)
    {
        (*result, executed.written) = (bytes, None);
    }
}

impl EndedCall {
    fn unknown() -> Self {
        Self { outcome: Outcome::Unknown, written: None, buffer: None, run: RegionRun::default() }
    }
}
