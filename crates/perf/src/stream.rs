//! Many operations under way: the client's stream, and the server's receives.

use crate::error::PerfError;
use crate::measure::{Goal, Progress, Timed};
use crate::plan::{TestKind, TestOperation};
use crate::side::TestSide;
use outboard_verbs::{RecvRequest, SendOp, SendRequest, SgList};
use std::time::{Duration, Instant};

/// How long a stream runs before the timed part.
const WARM_UP: Duration = Duration::from_millis(100);

/// The client's side of a bandwidth or rate test.
#[derive(Debug)]
pub(crate) struct Stream {
    side: TestSide,
    /// Messages of a batch; the last makes a completion.
    batch: usize,
    posted: u64,
    completed: u64,
    requests: Vec<SendRequest>,
    /// Batches that each lane may post.
    free: Vec<usize>,
}

impl Stream {
    pub(crate) fn new(side: TestSide) -> Self {
        let batch = side.plan.batch();
        let free = vec![0; side.lanes.len()];
        Self { side, batch, posted: 0, completed: 0, requests: Vec::new(), free }
    }

    /// A short stream that is not timed.
    pub(crate) fn warm_up(&mut self) -> Result<(), PerfError> {
        self.run(Goal::Time(WARM_UP), &Progress::default())?;
        Ok(())
    }

    /// A stream, from an idle connection until the server has everything.
    pub(crate) fn run(&mut self, mut goal: Goal, progress: &Progress) -> Result<Timed, PerfError> {
        (self.posted, self.completed) = (0, 0);
        let start = Instant::now();
        self.free.fill(self.side.plan.depth / self.batch);
        self.post(goal, start)?;
        while self.completed < self.posted {
            if progress.is_interrupted() {
                goal = Goal::Messages(self.posted);
            }
            self.side.await_completions()?;
            while let Some(completion) = self.side.fresh.pop() {
                let (lane, count) = unpack(completion.wr_id);
                self.completed += count;
                self.free[lane] += 1;
            }
            self.post(goal, start)?;
            progress.set(self.completed);
        }
        self.settle()?;
        Ok(Timed { messages: self.posted, elapsed: start.elapsed(), latencies: None })
    }

    /// Posts whatever has room, in one list for each lane, unless the goal is reached.
    fn post(&mut self, goal: Goal, start: Instant) -> Result<(), PerfError> {
        let goal = match goal {
            Goal::Time(time) if start.elapsed() >= time => Goal::Messages(self.posted),
            goal => goal,
        };
        for lane in 0..self.free.len() {
            for _ in 0..std::mem::take(&mut self.free[lane]) {
                self.add_batch(lane, goal)?;
            }
            if !self.requests.is_empty() {
                self.side.lanes[lane].qp.post_send_batch(&mut self.requests)?;
            }
        }
        Ok(())
    }

    /// Adds a batch to the list that is posted next, or as much of it as the goal allows.
    fn add_batch(&mut self, lane: usize, goal: Goal) -> Result<(), PerfError> {
        let count = match goal {
            Goal::Messages(all) => all.saturating_sub(self.posted).min(self.batch as u64),
            Goal::Time(_) => self.batch as u64,
        };
        self.posted += count;
        for left in (0..count).rev() {
            let mut request = self.side.message(lane, left == 0)?;
            request.wr_id = pack(lane, count);
            self.requests.push(request);
        }
        Ok(())
    }

    /// Waits until the server has everything. A Write or Send is complete when TCP has it; a Read
    /// on the same connection is answered after all of them have been placed (RFC 5040 §5.5).
    fn settle(&mut self) -> Result<(), PerfError> {
        if self.side.plan.test.operation() == TestOperation::Read {
            return Ok(());
        }
        for lane in &self.side.lanes {
            let from = lane.remote;
            let sink = SgList::copied(&[0]);
            let read = SendRequest::new(0, SendOp::Read { from }, sink);
            lane.qp.post_send(read).map_err(|refused| refused.error)?;
        }
        let mut owed = self.side.lanes.len();
        while owed > 0 {
            self.side.await_completions()?;
            owed -= self.side.fresh.len();
        }
        Ok(())
    }
}

/// A request's name: its queue pair and the messages of its batch.
fn pack(lane: usize, count: u64) -> u64 {
    (lane as u64) << 32 | count
}

fn unpack(wr_id: u64) -> (usize, u64) {
    ((wr_id >> 32) as usize, wr_id & u64::from(u32::MAX))
}

/// The server's part of a stream of messages: receives, posted again as they complete.
pub(crate) fn serve(side: &mut TestSide) -> PerfError {
    debug_assert!(side.plan.test.kind() != TestKind::Latency);
    loop {
        if let Err(end) = take_messages(side) {
            return end;
        }
    }
}

fn take_messages(side: &mut TestSide) -> Result<(), PerfError> {
    side.await_completions()?;
    while let Some(completion) = side.fresh.pop() {
        let (wr_id, local) = (completion.wr_id, completion.local);
        if let Some(lane) = usize::try_from(wr_id).ok().and_then(|i| side.lanes.get_mut(i)) {
            lane.spent.push(RecvRequest { wr_id, local });
        }
    }
    for lane in &mut side.lanes {
        if !lane.spent.is_empty() {
            lane.qp.post_recv_batch(&mut lane.spent)?;
        }
    }
    Ok(())
}
