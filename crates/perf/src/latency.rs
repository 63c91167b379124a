//! One operation at a time: the client's rounds, and the server's half of the ping-pongs.

use crate::error::PerfError;
use crate::measure::{Goal, Progress, Timed, time_rounds, warm_up};
use crate::plan::TestOperation;
use crate::side::TestSide;
use outboard_verbs::{Completion, RecvRequest};

/// One side of a latency test.
#[derive(Debug)]
pub(crate) struct Latency {
    side: TestSide,
    /// What the next Write carries; never what the last one carried.
    mark: u8,
}

impl Latency {
    pub(crate) fn new(side: TestSide) -> Self {
        Self { side, mark: 0 }
    }

    /// The client's untimed rounds.
    pub(crate) fn warm_up(&mut self) -> Result<(), PerfError> {
        self.with_round(|round| warm_up(round))
    }

    /// The client's timed rounds.
    pub(crate) fn run(&mut self, goal: Goal, progress: &Progress) -> Result<Timed, PerfError> {
        self.with_round(|round| time_rounds(goal, progress, round))
    }

    fn with_round<T>(
        &mut self,
        drive: impl FnOnce(&mut dyn FnMut() -> Result<(), PerfError>) -> Result<T, PerfError>,
    ) -> Result<T, PerfError> {
        match self.side.plan.test.operation() {
            TestOperation::Write => drive(&mut || self.round_of_writes()),
            TestOperation::Read | TestOperation::Atomic => drive(&mut || self.round_trip()),
            _ => drive(&mut || self.round_of_messages()),
        }
    }

    /// A Write there and a Write back.
    fn round_of_writes(&mut self) -> Result<(), PerfError> {
        self.mark = self.mark.wrapping_add(1);
        self.side.mark(self.mark)?;
        self.side.post(0, false)?;
        self.side.await_mark(self.mark)
    }

    /// A Read or an atomic, answered by the peer's NIC.
    fn round_trip(&mut self) -> Result<(), PerfError> {
        self.side.post(0, true)?;
        self.side.await_completions()
    }

    /// A message there and a message back, each into a posted receive.
    fn round_of_messages(&mut self) -> Result<(), PerfError> {
        self.side.post(0, false)?;
        self.await_message()
    }

    /// The server's part, until the client leaves or falls silent.
    pub(crate) fn serve(&mut self) -> PerfError {
        let writes = self.side.plan.test.operation() == TestOperation::Write;
        loop {
            let round = if writes { self.answer_write() } else { self.answer_message() };
            if let Err(end) = round {
                return end;
            }
        }
    }

    fn answer_write(&mut self) -> Result<(), PerfError> {
        self.mark = self.mark.wrapping_add(1);
        self.side.await_mark(self.mark)?;
        self.side.mark(self.mark)?;
        self.side.post(0, false)
    }

    fn answer_message(&mut self) -> Result<(), PerfError> {
        self.await_message()?;
        self.side.post(0, false)
    }

    /// Waits for the peer's message and posts its receive again. One receive more than is needed
    /// is always posted, so this is off the path of the next message.
    fn await_message(&mut self) -> Result<(), PerfError> {
        self.side.await_completions()?;
        while let Some(completion) = self.side.fresh.pop() {
            let Completion { wr_id, local, .. } = completion;
            self.side.lanes[0]
                .qp
                .post_recv(RecvRequest { wr_id, local })
                .map_err(|refused| refused.error)?;
        }
        Ok(())
    }
}
