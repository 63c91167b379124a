//! One request on one instance: run, commit, and run again when something else was faster.
//!
//! With fuel all of it happens in the caller's thread. With time the module's code runs at low
//! priority; what peers' writes wait for, a commit or a run that keeps them out, happens in the
//! caller's thread: at low priority it could be interrupted for long.

use super::outcome_of;
use super::request::{Outcome, Request};
use crate::engine::wasmtime::allowance::{WALL_FACTOR, thread_time};
use crate::engine::{Budget, Instance};
use crate::instance::WarmInstance;
use crate::low_priority::LowPriority;
use crate::region::{CommitError, Conflict, RegionWriter};
use crate::stop::Stop;
use outboard_mem::ClosedGate;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After so many conflicts an execution runs while no other one commits.
const CONFLICTS_MAX: u64 = 2;
/// What became of an execution in whose way nobody can have been.
const NEVER_SO: &str = "it expects a word of the region to have a value that the word did not have \
    while nobody could change it: see ob_expect64";
/// How long an execution may run, in processor time, while other executions wait with their
/// commits, and while peers' writes wait, too.
const ALONE_MAX: Duration = Duration::from_millis(10);
const PEERS_WAIT_MAX: Duration = Duration::from_millis(1);

/// What came of running a request.
pub(super) enum Attempt {
    /// It has ended, after so many conflicts, and has said this.
    Ended { outcome: Outcome, conflicts: u64, used: Usage, log: Vec<u8> },
    /// It needs more fuel than it has.
    OutOfFuel,
    /// Another thread has the region for itself.
    Locked,
}

/// What an execution has used, each time that it ran included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Fuel, about an instruction each; 0 where time and not fuel bounds an execution.
    pub fuel: u64,
    /// Lines of the region, of 64 bytes, that it has written or tried to.
    pub lines: u64,
}

impl Usage {
    fn add<I: Instance>(&mut self, instance: &mut WarmInstance<I>, budget: &Budget) {
        if let (Budget::Fuel(given), Some(left)) = (budget, instance.fuel_left()) {
            self.fuel += given.saturating_sub(left);
        }
        self.lines += instance.execution().lines().len() as u64;
    }
}

/// What one run came to.
enum Run {
    Done { seq: u64 },
    Conflict(Conflict),
    Ended(Outcome),
    OutOfFuel,
    Locked,
}

/// Where a module's code runs while it keeps no peer out.
#[derive(Clone, Copy, Debug)]
pub(super) enum RunsOn<'a> {
    /// In the caller's thread.
    Caller,
    /// In threads of low priority, while the caller's waits; how long it ran is added.
    LowPriority(&'a LowPriority, &'a Cell<Duration>),
}

impl RunsOn<'_> {
    pub(super) fn run<T: Send>(self, work: impl FnOnce() -> T + Send) -> T {
        match self {
            Self::Caller => work(),
            Self::LowPriority(threads, ran) => {
                let (done, took) = threads.run(|| timed(work));
                ran.set(ran.get() + took);
                done
            }
        }
    }

    /// The processor time of what ran at low priority.
    fn ran(self) -> Duration {
        match self {
            Self::Caller => Duration::ZERO,
            Self::LowPriority(_, ran) => ran.get(),
        }
    }
}

/// Does work, and says how much of its thread's processor time that took: at low priority much more
/// time may pass.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = thread_time();
    let done = work();
    (done, thread_time().saturating_sub(begun))
}

/// Whom an execution keeps out while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alone {
    /// Nobody.
    No,
    /// Other executions that commit.
    Executions,
    /// These, and peers that write.
    Peers,
}

impl Alone {
    /// Whom the next run keeps out, after so many conflicts, the last with these; `None`: it was
    /// with somebody who had been kept out, which no execution can be.
    fn next(self, conflicts: u64, with: Conflict) -> Option<Self> {
        match (self, with) {
            (Self::No, _) if conflicts < CONFLICTS_MAX => Some(Self::No),
            (Self::No, Conflict::Execution) => Some(Self::Executions),
            (Self::No | Self::Executions, Conflict::Peer) => Some(Self::Peers),
            (Self::Executions, Conflict::Execution) | (Self::Peers, _) => None,
        }
    }
}

/// Runs a request as often as it takes. With fuel nothing here waits; with time it may, and all
/// runs share it.
pub(super) fn attempt<I: Instance>(
    instance: &mut WarmInstance<I>,
    request: &Request,
    (budget, runs_on): (&Budget, RunsOn<'_>),
    result: &mut Vec<u8>,
) -> Attempt {
    let (mut conflicts, mut used, mut alone) = (0, Usage::default(), Alone::No);
    let begun = matches!(budget, Budget::Time(..)).then(Instant::now);
    loop {
        result.clear();
        let left = left_of(budget, begun, runs_on.ran());
        let budget = left.as_ref().unwrap_or(budget);
        let run = match alone {
            Alone::No => run_beside(instance, request, (budget, runs_on), result),
            alone => run_alone(instance, request, (budget, runs_on), alone, result),
        };
        used.add(instance, budget);
        let outcome = match run {
            Run::Done { seq } => Outcome::Done { result: std::mem::take(result), seq },
            Run::Conflict(with) => {
                conflicts += 1;
                match alone.next(conflicts, with) {
                    Some(next) => {
                        alone = next;
                        continue;
                    }
                    None if with == Conflict::Peer => Outcome::Trap(NEVER_SO.to_owned()),
                    None => Outcome::Conflict,
                }
            }
            Run::Ended(outcome) => outcome,
            Run::OutOfFuel => return Attempt::OutOfFuel,
            Run::Locked => return Attempt::Locked,
        };
        let log = instance.execution().log().to_vec();
        return Attempt::Ended { outcome, conflicts, used, log };
    }
}

/// What an execution that began then, and ran for so long, has left of its time; `None` if time
/// does not bound it.
fn left_of(budget: &Budget, begun: Option<Instant>, ran: Duration) -> Option<Budget> {
    match (budget, begun) {
        (Budget::Time(limit, kill), Some(begun)) => {
            let used = ran.max(begun.elapsed() / WALL_FACTOR);
            Some(Budget::Time(limit.saturating_sub(used), Arc::clone(kill)))
        }
        _ => None,
    }
}

/// Runs it beside whatever else works on the region.
fn run_beside<I: Instance>(
    instance: &mut WarmInstance<I>,
    request: &Request,
    (budget, runs_on): (&Budget, RunsOn<'_>),
    result: &mut Vec<u8>,
) -> Run {
    let region = &request.region;
    let since = region.begin();
    if let Some(run) = runs_on.run(|| called(instance, request, budget, result)) {
        // What it did may come from a state that never was.
        return if region.is_unchanged(since) || is_final(&run) {
            run
        } else {
            Run::Conflict(Conflict::Execution)
        };
    }
    if instance.execution().is_clean() {
        return match region.is_unchanged(since) {
            true => Run::Done { seq: region.seq() },
            false => Run::Conflict(Conflict::Execution),
        };
    }
    let writer = match budget {
        Budget::Fuel(_) => region.try_writer(),
        Budget::Time(..) => Some(region.writer()),
    };
    match writer {
        Some(writer) => commit(instance, writer, request, (since, None), result),
        None => Run::Locked,
    }
}

/// Runs it while nothing else is committed. Peers' writes wait as well only if they were in its
/// way: they change no version, and words that matter are compared at the commit.
fn run_alone<I: Instance>(
    instance: &mut WarmInstance<I>,
    request: &Request,
    (budget, runs_on): (&Budget, RunsOn<'_>),
    alone: Alone,
    result: &mut Vec<u8>,
) -> Run {
    let region = &request.region;
    let (writer, budget, is_cut) = match budget {
        Budget::Fuel(_) => match region.try_writer() {
            Some(writer) => (writer, budget.clone(), false),
            None => return Run::Locked,
        },
        Budget::Time(left, kill) => {
            let most = if alone == Alone::Peers { PEERS_WAIT_MAX } else { ALONE_MAX };
            let budget = Budget::Time(most.min(*left), Arc::clone(kill));
            (region.writer(), budget, most < *left)
        }
    };
    let closed = (alone == Alone::Peers).then(|| region.memory().close_gate());
    let since = region.begin();
    let runs_on = if closed.is_some() { RunsOn::Caller } else { runs_on };
    match runs_on.run(|| called(instance, request, &budget, result)) {
        Some(Run::Ended(Outcome::Timeout(_))) if is_cut => Run::Ended(Outcome::Conflict),
        Some(run) => run,
        None if instance.execution().is_clean() => Run::Done { seq: region.seq() },
        None => commit(instance, writer, request, (since, closed.as_ref()), result),
    }
}

/// Calls the entry; `None` if it returned.
fn called<I: Instance>(
    instance: &mut WarmInstance<I>,
    request: &Request,
    budget: &Budget,
    result: &mut Vec<u8>,
) -> Option<Run> {
    match instance.call(&request.input(), budget, result) {
        None => Some(Run::Ended(Outcome::NoEntry(request.entry.clone()))),
        Some(Ok(())) => None,
        Some(Err(Stop::OutOfFuel)) => Some(Run::OutOfFuel),
        Some(Err(stop)) => Some(Run::Ended(outcome_of(stop, request.limit))),
    }
}

/// Whether it does not matter what the execution has read.
fn is_final(run: &Run) -> bool {
    let is_final = |outcome: &Outcome| {
        matches!(outcome, Outcome::Timeout(_) | Outcome::Killed | Outcome::NoEntry(_))
    };
    matches!(run, Run::OutOfFuel) || matches!(run, Run::Ended(outcome) if is_final(outcome))
}

fn commit<I: Instance>(
    instance: &mut WarmInstance<I>,
    mut writer: RegionWriter<'_>,
    request: &Request,
    (since, closed): (u64, Option<&ClosedGate<'_>>),
    result: &[u8],
) -> Run {
    let answer = request.id.map(|id| (id, result));
    match writer.commit(instance.execution(), since, answer, closed) {
        Ok(seq) => Run::Done { seq },
        Err(CommitError::Conflict(with)) => Run::Conflict(with),
        Err(error @ CommitError::Answer { .. }) => Run::Ended(Outcome::Refused(error.to_string())),
        Err(CommitError::Memory(error)) => Run::Ended(Outcome::Machine(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::KillSwitch;

    #[test]
    fn waiting_for_others_costs_a_tenth_of_its_time() {
        let (ms, kill) = (Duration::from_millis, Arc::<KillSwitch>::default());
        let budget = Budget::Time(ms(50), kill);
        let left = |passed: u64, ran: u64| {
            let begun = Instant::now().checked_sub(ms(passed));
            match left_of(&budget, begun, ms(ran)) {
                Some(Budget::Time(left, _)) => left,
                other => panic!("{other:?}"),
            }
        };
        assert!(left(100, 20) <= ms(30));
        assert!(left(1000, 20) == ms(0), "by the clock it is over");
        assert!(left_of(&Budget::Fuel(7), None, ms(1)).is_none());
    }

    #[test]
    fn only_those_who_were_in_the_way_are_kept_out() {
        let table = [
            (Alone::No, 1, Conflict::Execution, Some(Alone::No)),
            (Alone::No, 1, Conflict::Peer, Some(Alone::No)),
            (Alone::No, 2, Conflict::Execution, Some(Alone::Executions)),
            (Alone::No, 2, Conflict::Peer, Some(Alone::Peers)),
            (Alone::Executions, 3, Conflict::Peer, Some(Alone::Peers)),
            (Alone::Executions, 3, Conflict::Execution, None),
            (Alone::Peers, 4, Conflict::Peer, None),
            (Alone::Peers, 3, Conflict::Execution, None),
        ];
        for (alone, conflicts, with, expected) in table {
            assert_eq!(alone.next(conflicts, with), expected, "{alone:?} {conflicts} {with:?}");
        }
    }
}
