//! One side of a test: its queue pairs, its memory, and how it waits.
//!
//! Waiting never lasts for ever. After some thousand empty polls, or after a sleep, a side checks
//! whether the peer has left, has been silent for too long, or this side was told to stop.

use crate::error::PerfError;
use crate::plan::{Test, TestOperation, TestPlan, Wait};
use outboard_verbs::{
    Access, Completion, Context, Cq, Mr, Qp, QpConfig, QpState, RecvRequest, Remote, RnrPolicy,
    SendOp, SendRequest, SgList, SharedRegion, Stag, Status,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the other side may be silent while this one waits for it.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long a sleep is before a side checks these.
pub(crate) const NAP: Duration = Duration::from_millis(200);
/// Empty polls before a spinning side checks these.
const SPINS: u32 = 1 << 12;
/// Completions taken at a time.
const COMPLETIONS_MAX: usize = 256;
/// Beyond the depth: the Read at the end, and room for a batch.
const SPARE: usize = 80;

/// One queue pair of a test.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) qp: Qp,
    /// The peer's memory.
    pub(crate) remote: Remote,
    /// Receives to be posted again together.
    pub(crate) spent: Vec<RecvRequest>,
}

/// One side of a test.
#[derive(Debug)]
pub(crate) struct TestSide {
    pub(crate) context: Context,
    pub(crate) cq: Cq,
    pub(crate) plan: TestPlan,
    pub(crate) lanes: Vec<Lane>,
    /// What the peer may reach.
    inbox: Mr,
    /// Where messages come from; receives and Reads land in the second half.
    outbox: SharedRegion,
    pd: outboard_verbs::Pd,
    vigil: Vigil,
    /// Completions just taken.
    pub(crate) fresh: Vec<Completion>,
}

/// Notices when nothing happens for too long.
#[derive(Debug)]
pub(crate) struct Vigil {
    spins: u32,
    quiet_since: Option<Instant>,
    stop: Arc<AtomicBool>,
}

impl Vigil {
    pub(crate) fn new(stop: Arc<AtomicBool>) -> Self {
        Self { spins: 0, quiet_since: None, stop }
    }

    /// Something happened. Fails when told to stop: a busy test would otherwise never check that.
    #[inline]
    pub(crate) fn stir(&mut self) -> Result<(), PerfError> {
        self.spins = 0;
        self.quiet_since = None;
        self.check_stop()
    }

    /// Counts an empty poll; true when it is time to check.
    #[inline]
    pub(crate) fn is_due(&mut self, wait: Wait) -> bool {
        self.spins = self.spins.wrapping_add(1);
        wait == Wait::Block || self.spins.is_multiple_of(SPINS)
    }

    #[inline]
    pub(crate) fn check_stop(&self) -> Result<(), PerfError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(PerfError::Stopped);
        }
        Ok(())
    }

    /// Fails when told to stop or when it has been quiet for too long.
    pub(crate) fn look(&mut self) -> Result<(), PerfError> {
        self.check_stop()?;
        let since = *self.quiet_since.get_or_insert_with(Instant::now);
        if since.elapsed() > SILENCE_MAX {
            return Err(PerfError::Silent { limit: SILENCE_MAX });
        }
        Ok(())
    }
}

impl TestSide {
    pub(crate) fn new(
        context: &Context,
        plan: &TestPlan,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, PerfError> {
        let pd = context.alloc_pd();
        let outbox = SharedRegion::zeroed(2 * plan.size)?;
        // Pages never written to are all the same page, and faster to send than any data.
        outbox.copy_in(0, &vec![1; 2 * plan.size])?;
        let inbox = pd.register(SharedRegion::zeroed(plan.size)?, rights(plan.test))?;
        let completions = plan.qps * 2 * (plan.depth + SPARE);
        Ok(Self {
            context: context.clone(),
            cq: context.create_cq(completions),
            plan: plan.clone(),
            lanes: Vec::with_capacity(plan.qps),
            inbox,
            outbox,
            pd,
            vigil: Vigil::new(stop),
            fresh: Vec::with_capacity(COMPLETIONS_MAX),
        })
    }

    /// STag of what the peer may reach.
    pub(crate) fn stag(&self) -> Stag {
        self.inbox.stag()
    }

    /// A queue pair as the test needs it, with its receives posted.
    pub(crate) fn create_qp(&self) -> Result<Qp, PerfError> {
        let config = QpConfig {
            send_depth: self.plan.depth + SPARE,
            recv_depth: self.plan.depth + SPARE,
            rnr_policy: RnrPolicy::Stall(SILENCE_MAX),
            ..QpConfig::new(&self.cq)
        };
        let qp = self.pd.create_qp(config)?;
        if self.plan.test.needs_receives() {
            let lane = self.lanes.len() as u64;
            let receive = |_| Ok(self.receive(lane, self.sink()?));
            let count = self.plan.depth + 1;
            let mut receives = (0..count).map(receive).collect::<Result<_, PerfError>>()?;
            qp.post_recv_batch(&mut receives)?;
        }
        Ok(qp)
    }

    pub(crate) fn add_lane(&mut self, qp: Qp, stag: Stag) {
        self.lanes.push(Lane { qp, remote: Remote { stag, offset: 0 }, spent: Vec::new() });
    }

    /// A receive; Immediate Data needs no memory.
    pub(crate) fn receive(&self, lane: u64, sink: SgList) -> RecvRequest {
        let bare = self.plan.test.operation() == TestOperation::WriteWithImm;
        RecvRequest { wr_id: lane, local: if bare { SgList::new() } else { sink } }
    }

    /// The memory that messages come from.
    pub(crate) fn source(&self) -> Result<SgList, PerfError> {
        Ok(self.outbox.slice(0..self.plan.size)?.into())
    }

    /// The memory that receives and Reads land in.
    pub(crate) fn sink(&self) -> Result<SgList, PerfError> {
        let size = self.plan.size;
        Ok(self.outbox.slice(size..2 * size)?.into())
    }

    /// One message of the test.
    pub(crate) fn message(&self, lane: usize, signaled: bool) -> Result<SendRequest, PerfError> {
        let to = self.lanes[lane].remote;
        let op = match self.plan.test.operation() {
            TestOperation::Write => SendOp::Write { to },
            TestOperation::Read => SendOp::Read { from: to },
            TestOperation::WriteWithImm => SendOp::WriteWithImm { to, immediate: 0 },
            TestOperation::Atomic => SendOp::FetchAdd { at: to, add: 1, mask: 0 },
            _ => SendOp::Send { invalidate: None },
        };
        let local = if op.awaits_response() { self.sink()? } else { self.source()? };
        let mut request = SendRequest::new(lane as u64, op, local);
        request.signaled = signaled;
        Ok(request)
    }

    /// Posts one message of the test.
    #[inline]
    pub(crate) fn post(&self, lane: usize, signaled: bool) -> Result<(), PerfError> {
        let request = self.message(lane, signaled)?;
        self.lanes[lane].qp.post_send(request).map_err(|refused| refused.error.into())
    }

    /// Waits until there are completions in `fresh`, all of them good.
    #[inline]
    pub(crate) fn await_completions(&mut self) -> Result<(), PerfError> {
        while self.take(NAP)? == 0 {
            self.look_around()?;
        }
        self.vigil.stir()
    }

    /// Takes completions, if any come within the plan's way of waiting.
    #[inline]
    fn take(&mut self, nap: Duration) -> Result<usize, PerfError> {
        self.fresh.clear();
        let count = match self.plan.wait {
            Wait::Spin => self.cq.poll(&mut self.fresh, COMPLETIONS_MAX)?,
            Wait::Block => self.cq.wait(&mut self.fresh, COMPLETIONS_MAX, Some(nap))?,
        };
        for completion in &self.fresh {
            if completion.status != Status::Success {
                return Err(completion.status.into());
            }
        }
        Ok(count)
    }

    /// Sets the last byte of what the next message carries.
    #[inline]
    pub(crate) fn mark(&self, value: u8) -> Result<(), PerfError> {
        Ok(self.outbox.copy_in(self.plan.size - 1, &[value])?)
    }

    /// Waits until the last byte of the inbox is this: the peer's Write has landed.
    #[inline]
    pub(crate) fn await_mark(&mut self, value: u8) -> Result<(), PerfError> {
        match self.plan.wait {
            Wait::Spin => {
                while !self.has_mark(value) {
                    self.take(NAP)?;
                    self.look_around()?;
                }
            }
            Wait::Block => {
                while !self.has_mark(value) {
                    let seen = || self.has_mark(value) || self.is_over();
                    if !self.context.wait_until(Some(NAP), seen) || self.is_over() {
                        self.look_around()?;
                    }
                }
            }
        }
        self.vigil.stir()
    }

    #[inline]
    fn has_mark(&self, value: u8) -> bool {
        let mut last = [0];
        let region = self.inbox.memory();
        region.copy_out(self.plan.size - 1, &mut last).is_ok() && last[0] == value
    }

    /// After an empty poll: checks whether the peer is still there.
    #[inline]
    fn look_around(&mut self) -> Result<(), PerfError> {
        if !self.vigil.is_due(self.plan.wait) {
            return Ok(());
        }
        if self.is_over() {
            return Err(PerfError::PeerLeft);
        }
        self.vigil.look()
    }

    /// Drives the connections without expecting anything, until the peer leaves.
    pub(crate) fn spin_until_over(&mut self, limit: Duration) -> PerfError {
        let start = Instant::now();
        loop {
            let taken = self.take(NAP).map(drop);
            let due = self.vigil.is_due(self.plan.wait);
            let stop = if due { self.vigil.check_stop() } else { Ok(()) };
            if let Err(end) = taken.and(stop) {
                return end;
            }
            if due && (self.is_over() || start.elapsed() > limit) {
                return PerfError::PeerLeft;
            }
        }
    }

    /// A connection of the test has ended.
    pub(crate) fn is_over(&self) -> bool {
        let over = |lane: &Lane| lane.qp.state() != QpState::Rts;
        self.lanes.iter().any(over)
    }
}

/// What the peer may do with the inbox. The Read is for the end of a stream of Writes or Sends.
fn rights(test: Test) -> Access {
    let local = Access::LOCAL_WRITE | Access::REMOTE_READ;
    match test.operation() {
        TestOperation::Write | TestOperation::WriteWithImm => local | Access::REMOTE_WRITE,
        TestOperation::Atomic => local | Access::REMOTE_ATOMIC,
        _ => local,
    }
}
