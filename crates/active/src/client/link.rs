//! A client's connection: one queue pair and one completion queue, used directly. It knows no
//! messages; what it lost is for others to ask again.

use super::error::ActiveError;
use super::options::WaitMode;
use crate::protocol::BATCH_MAX;
use outboard_cluster::hub::Exposed;
use outboard_verbs::{
    Access, AdaptiveSpin, CmChannel, CompChannel, Completion, ConnectParams, Context, Cq,
    EndReason, Mr, NotifyOn, OwnedBuf, Pd, Qp, QpConfig, RecvRequest, Role, Secured, SendOp,
    SendRequest, SgList, SharedSlice, Status,
};
use std::time::{Duration, Instant};

/// Batches of the service that are received before this side handles them.
const RECEIVES: usize = 16;
/// Requests that are posted and not known to be done.
const SENDS: usize = 256;
/// Every so many quiet Sends one is signaled, so that their places are freed.
const SIGNAL_EVERY: usize = SENDS / 4;
/// Reads and atomics under way, each way.
const READS: u16 = 64;
/// Completions taken at a time.
const COMPLETIONS: usize = 64;
/// Empty polls between two looks at the clock.
const POLLS: u32 = 64;

/// The name of receives.
const RECEIVE: u64 = 0;
/// The name of a request is how many were posted with it; that of a Send has this bit as well.
const SEND: u64 = 1 << 63;

/// What a turn of the connection has brought.
#[derive(Debug)]
pub(super) enum LinkEvent {
    /// A batch of the service; give the buffer back with [`ClientLink::receive`].
    Batch(OwnedBuf, usize),
    /// A one-sided operation is done: its name and its local memory.
    Verb(u64, SgList),
}

/// The connection is of no use any more: why.
#[derive(Debug)]
pub(super) struct LinkLost(pub(super) String);

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct ClientLink {
    qp: Qp,
    exposed: Vec<Mr>,
    pd: Pd,
    cq: Cq,
    _events: CmChannel,
    /// Requests that were posted, and of these those that are done.
    posted: u64,
    done: u64,
    quiet: usize,
    fresh: Vec<Completion>,
}

impl ClientLink {
    /// Sets a connection up over a session; what comes is said on the channel when that is
    /// [asked for](Self::request_notify).
    pub(super) fn connect(
        context: &Context,
        channel: &CompChannel,
        stream: Secured,
        limit: Duration,
    ) -> Result<Self, ActiveError> {
        let cq = context.create_cq_on(2 * (SENDS + RECEIVES), channel)?;
        let events = context.create_cm_channel_without_established()?;
        let pd = context.alloc_pd();
        let depths = QpConfig { send_depth: SENDS, recv_depth: RECEIVES, ..QpConfig::new(&cq) };
        let qp = pd.create_qp(depths)?;
        let params =
            ConnectParams { ird: READS, ord: READS, timeout: limit, ..ConnectParams::default() };
        let adopted = qp.adopt(stream, Role::Initiator, &params, &events);
        adopted.map_err(|error| ActiveError::Unreachable { why: error.to_string() })?;
        let (exposed, fresh) = (Vec::new(), Vec::with_capacity(COMPLETIONS));
        let link =
            Self { qp, exposed, pd, cq, _events: events, posted: 0, done: 0, quiet: 0, fresh };
        for _ in 0..RECEIVES {
            let lost = link.receive(OwnedBuf::zeroed(BATCH_MAX));
            lost.map_err(|LinkLost(why)| ActiveError::Unreachable { why })?;
        }
        Ok(link)
    }

    /// Lets the service reach memory.
    pub(super) fn expose(
        &mut self,
        memory: SharedSlice,
        access: Access,
    ) -> Result<Exposed, ActiveError> {
        let mr = self.pd.register_slice(memory, 0, access)?;
        let exposed = Exposed::of(&mr);
        self.exposed.push(mr);
        Ok(exposed)
    }

    /// Takes memory back: once this returns the service no longer reaches it.
    pub(super) fn withdraw(&mut self, exposed: Exposed) {
        self.exposed.retain(|mr| Exposed::of(mr) != exposed);
    }

    /// Gives a buffer for one more batch.
    pub(super) fn receive(&self, buffer: OwnedBuf) -> Result<(), LinkLost> {
        let request = RecvRequest { wr_id: RECEIVE, local: buffer.into() };
        self.qp.post_recv(request).map_err(|refused| self.lost(&refused.error.to_string()))
    }

    /// Whether another request may be posted; if not, completions must be taken first.
    pub(super) fn has_room(&self) -> bool {
        self.posted - self.done < SENDS as u64
    }

    /// Sends a batch; there must be room.
    pub(super) fn send(&mut self, batch: &[u8]) -> Result<(), LinkLost> {
        self.quiet += 1;
        let signaled = self.quiet >= SIGNAL_EVERY;
        let op = SendOp::Send { invalidate: None };
        let mut request = SendRequest::new(SEND | (self.posted + 1), op, SgList::copied(batch));
        request.signaled = signaled;
        self.quiet = if signaled { 0 } else { self.quiet };
        self.post(request)
    }

    /// Posts a one-sided operation and returns its name; there must be room.
    pub(super) fn post_verb(&mut self, op: SendOp, local: SgList) -> Result<u64, LinkLost> {
        self.quiet = 0;
        let name = self.posted + 1;
        self.post(SendRequest::new(name, op, local)).map(|()| name)
    }

    fn post(&mut self, request: SendRequest) -> Result<(), LinkLost> {
        self.posted += 1;
        self.qp.post_send(request).map_err(|refused| self.lost(&refused.error.to_string()))
    }

    /// Waits for what comes next, until the deadline; then `events` stays empty.
    pub(super) fn wait(
        &mut self,
        how: (WaitMode, &mut AdaptiveSpin),
        deadline: Instant,
        events: &mut Vec<LinkEvent>,
    ) -> Result<(), LinkLost> {
        let (mode, spin) = how;
        let found = match mode {
            WaitMode::Spin => self.spin(deadline),
            WaitMode::Block => self.sleep(deadline),
            WaitMode::Adaptive => self.spin_or_sleep(spin, deadline),
        };
        match found {
            Ok(_) => self.sort(events),
            Err(overflow) => Err(LinkLost(overflow.to_string())),
        }
    }

    /// Has the channel say that something has come, once.
    pub(super) fn request_notify(&self) {
        self.cq.request_notify(NotifyOn::Any);
    }

    /// Takes what is there.
    pub(super) fn poll(&mut self, events: &mut Vec<LinkEvent>) -> Result<(), LinkLost> {
        let polled = self.cq.poll(&mut self.fresh, COMPLETIONS);
        polled.map_err(|overflow| LinkLost(overflow.to_string()))?;
        self.sort(events)
    }

    fn spin(&mut self, deadline: Instant) -> Result<usize, outboard_verbs::CqOverflow> {
        loop {
            for _ in 0..POLLS {
                let found = self.cq.poll(&mut self.fresh, COMPLETIONS)?;
                if found > 0 {
                    return Ok(found);
                }
            }
            if Instant::now() >= deadline {
                return Ok(0);
            }
        }
    }

    fn sleep(&mut self, deadline: Instant) -> Result<usize, outboard_verbs::CqOverflow> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.cq.wait(&mut self.fresh, COMPLETIONS, Some(left))
    }

    fn spin_or_sleep(
        &mut self,
        spin: &mut AdaptiveSpin,
        deadline: Instant,
    ) -> Result<usize, outboard_verbs::CqOverflow> {
        if spin.is_looking() {
            let start = Instant::now();
            let (mut before, mut longest) = (start, Duration::ZERO);
            loop {
                let found = self.cq.poll(&mut self.fresh, COMPLETIONS)?;
                let now = Instant::now();
                if found == 0 {
                    longest = longest.max(now - before);
                }
                if found > 0 || now - start > AdaptiveSpin::WINDOW {
                    spin.looked(found > 0, now, longest);
                    if found > 0 {
                        return Ok(found);
                    }
                    break;
                }
                before = now;
            }
        }
        let before = Instant::now();
        let found = self.sleep(deadline);
        let now = Instant::now();
        spin.slept(now - before, now);
        found
    }

    /// Tells completions apart.
    fn sort(&mut self, events: &mut Vec<LinkEvent>) -> Result<(), LinkLost> {
        let mut lost = None;
        for completion in self.fresh.drain(..) {
            if completion.status != Status::Success {
                lost.get_or_insert(completion.status);
                continue;
            }
            match completion.wr_id {
                RECEIVE => {
                    let len = completion.bytes as usize;
                    let buffer = completion.local.into_owned();
                    events.extend(buffer.map(|buffer| LinkEvent::Batch(buffer, len)));
                }
                name if name & SEND != 0 => self.done = self.done.max(name & !SEND),
                name => {
                    self.done = self.done.max(name);
                    events.push(LinkEvent::Verb(name, completion.local));
                }
            }
        }
        lost.map_or(Ok(()), |status| Err(self.lost(&status.to_string())))
    }

    fn lost(&self, otherwise: &str) -> LinkLost {
        LinkLost(match self.qp.end_reason() {
            Some(EndReason::Left) => "the service has closed the connection".to_owned(),
            Some(reason) => reason.to_string(),
            None => otherwise.to_owned(),
        })
    }
}
