//! Calls of one thread on many connections, several under way on each: as many new ones begin on a
//! connection as have ended there.

use crate::Failure;
use crate::calls::done;
use crate::timing::Timing;
use outboard_active::{ActiveCall, ActiveClient, CallTicket, ModuleHash, RemoteRegion};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What is called, again and again.
pub(crate) struct Calling<'a> {
    /// The module, which the node has.
    pub(crate) module: ModuleHash,
    /// The entry.
    pub(crate) entry: &'a str,
    /// Makes the arguments of the next call.
    pub(crate) next_args: &'a mut dyn FnMut() -> Vec<u8>,
    /// Calls under way on each connection.
    pub(crate) depth: usize,
}

/// A connection and when its calls began.
struct Lane {
    client: ActiveClient,
    region: RemoteRegion,
    under_way: VecDeque<(CallTicket, Instant)>,
}

impl Calling<'_> {
    /// Calls on all connections for so long, after a quarter of it that does not count.
    pub(crate) fn run(
        &mut self,
        connections: Vec<(ActiveClient, RemoteRegion)>,
        time: Duration,
    ) -> Result<Timing, Failure> {
        let lanes = connections.into_iter();
        let lane = |(client, region)| Lane { client, region, under_way: VecDeque::new() };
        let mut lanes: Vec<Lane> = lanes.map(lane).collect();
        for lane in &mut lanes {
            self.fill(lane)?;
        }
        self.turn_until(&mut lanes, Instant::now() + time / 4, &mut Vec::new())?;
        let (began, mut samples) = (Instant::now(), Vec::with_capacity(1 << 22));
        self.turn_until(&mut lanes, began + time, &mut samples)?;
        Ok(Timing::new(samples, began.elapsed()))
    }

    fn turn_until(
        &mut self,
        lanes: &mut [Lane],
        until: Instant,
        samples: &mut Vec<u64>,
    ) -> Result<(), Failure> {
        while Instant::now() < until {
            for lane in &mut *lanes {
                self.turn(lane, samples)?;
            }
        }
        Ok(())
    }

    /// Takes all calls that are over, and begins as many.
    fn turn(&mut self, lane: &mut Lane, samples: &mut Vec<u64>) -> Result<(), Failure> {
        while let Some(executed) = lane.client.poll()? {
            done(executed.outcome)?;
            let is_it = |(ticket, _): &(CallTicket, Instant)| *ticket == executed.ticket;
            let at = lane.under_way.iter().position(is_it).ok_or("an answer to nothing")?;
            let (_, began) = lane.under_way.remove(at).ok_or("an answer to nothing")?;
            samples.push(u64::try_from(began.elapsed().as_nanos())?);
        }
        self.fill(lane)
    }

    fn fill(&mut self, lane: &mut Lane) -> Result<(), Failure> {
        while lane.under_way.len() < self.depth {
            let args = (self.next_args)();
            let call = ActiveCall::new(&lane.region, self.module, self.entry, &args);
            lane.under_way.push_back((lane.client.submit(&call)?, Instant::now()));
        }
        Ok(())
    }
}
