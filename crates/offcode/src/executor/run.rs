//! One request on one instance: run, commit, and run again when something else was faster.

use super::outcome_of;
use super::request::{Outcome, Request};
use crate::engine::{Budget, Instance};
use crate::instance::WarmInstance;
use crate::region::{CommitError, RegionWriter};
use crate::stop::Stop;
use outboard_mem::ClosedGate;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After so many conflicts an execution runs while everything else waits.
const CONFLICTS_MAX: u64 = 2;
/// How long an execution may run while everything else waits.
const ALONE_MAX: Duration = Duration::from_millis(1);

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
    Conflict,
    Ended(Outcome),
    OutOfFuel,
    Locked,
}

/// Runs a request as often as it takes. With fuel nothing here waits; with time it may, and all
/// runs share it.
pub(super) fn attempt<I: Instance>(
    instance: &mut WarmInstance<I>,
    request: &Request,
    budget: &Budget,
    result: &mut Vec<u8>,
) -> Attempt {
    let (mut conflicts, mut used) = (0, Usage::default());
    let begun = matches!(budget, Budget::Time(..)).then(Instant::now);
    loop {
        result.clear();
        let left = left_of(budget, begun);
        let budget = left.as_ref().unwrap_or(budget);
        let is_alone = conflicts >= CONFLICTS_MAX;
        let run = if is_alone {
            run_alone(instance, request, budget, result)
        } else {
            run_beside(instance, request, budget, result)
        };
        used.add(instance, budget);
        let outcome = match run {
            Run::Done { seq } => Outcome::Done { result: std::mem::take(result), seq },
            Run::Conflict if is_alone => Outcome::Conflict,
            Run::Conflict => {
                conflicts += 1;
                continue;
            }
            Run::Ended(outcome) => outcome,
            Run::OutOfFuel => return Attempt::OutOfFuel,
            Run::Locked => return Attempt::Locked,
        };
        let log = instance.execution().log().to_vec();
        return Attempt::Ended { outcome, conflicts, used, log };
    }
}

/// What an execution that began then has left of its time; `None` if time does not bound it.
fn left_of(budget: &Budget, begun: Option<Instant>) -> Option<Budget> {
    match (budget, begun) {
        (Budget::Time(limit, kill), Some(begun)) => {
            Some(Budget::Time(limit.saturating_sub(begun.elapsed()), Arc::clone(kill)))
        }
        _ => None,
    }
}

/// Runs it beside whatever else works on the region.
fn run_beside<I: Instance>(
    instance: &mut WarmInstance<I>,
    request: &Request,
    budget: &Budget,
    result: &mut Vec<u8>,
) -> Run {
    let region = &request.region;
    let since = region.begin();
    if let Some(run) = called(instance, request, budget, result) {
        // What it did may come from a state that never was.
        return if region.is_unchanged(since) || is_final(&run) { run } else { Run::Conflict };
    }
    if instance.execution().is_clean() {
        return match region.is_unchanged(since) {
            true => Run::Done { seq: region.seq() },
            false => Run::Conflict,
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

/// Runs it while nothing else is committed, and peers' writes wait.
fn run_alone<I: Instance>(
    instance: &mut WarmInstance<I>,
    request: &Request,
    budget: &Budget,
    result: &mut Vec<u8>,
) -> Run {
    let region = &request.region;
    let (writer, budget) = match budget {
        Budget::Fuel(_) => match region.try_writer() {
            Some(writer) => (writer, budget.clone()),
            None => return Run::Locked,
        },
        Budget::Time(limit, kill) => {
            (region.writer(), Budget::Time(ALONE_MAX.min(*limit), Arc::clone(kill)))
        }
    };
    let closed = region.memory().close_gate();
    let since = region.begin();
    match called(instance, request, &budget, result) {
        Some(Run::Ended(Outcome::Timeout(_))) => Run::Ended(Outcome::Conflict),
        Some(run) => run,
        None if instance.execution().is_clean() => Run::Done { seq: region.seq() },
        None => commit(instance, writer, request, (since, Some(&closed)), result),
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
        Err(CommitError::Conflict(_)) => Run::Conflict,
        Err(error @ CommitError::Answer { .. }) => Run::Ended(Outcome::Refused(error.to_string())),
        Err(CommitError::Memory(error)) => Run::Ended(Outcome::Machine(error.to_string())),
    }
}
