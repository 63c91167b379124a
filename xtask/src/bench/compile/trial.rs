//! One measurement: a stage is set up, a contender started on it, warmed up, and timed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use outboard_stand_in::record::Record;
use serde_json::{Value, json};

use super::build::{self, Cost};
use super::contender::Contender;
use super::stage::{Kit, Medium, Servers, Stage};
use super::work::Job;
use crate::bench::measure;

/// One measurement: servers, medium and jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial<'a> {
    pub(super) kit: &'a Kit,
    pub(super) servers: Servers,
    pub(super) medium: Medium,
    pub(super) jobs: &'a [Job],
    /// The jobs that are built before, without being measured.
    pub(super) warm_up: &'a [Job],
}

impl Trial<'_> {
    /// Measures a contender once.
    pub(super) fn run(&self, contender: &dyn Contender) -> Result<Value> {
        let stage = Stage::new(self.kit, self.servers, self.medium)?;
        let wrapper = contender.start(&stage)?;
        let at_once = stage.servers().count() * stage.slots();
        let first = build::run(&stage, &wrapper, self.warm_up, at_once)?;
        let cost = build::run(&stage, &wrapper, self.jobs, at_once)?;
        if contender.compiles() && self.servers != Servers::Real {
            build::check(&stage, self.jobs, &self.kit.records())?;
        }
        Ok(sample(&first, &cost))
    }

    /// A contender in the form that the report needs.
    pub(super) fn contender<'b>(
        &'b self,
        contender: &'b dyn Contender,
    ) -> measure::Contender<'b, Value> {
        let measure = Box::new(move |_: &str| self.run(contender));
        measure::Contender { name: contender.name(), measure }
    }

    /// The least time for the stand-ins if nothing but compiling took time.
    pub(super) fn bound(&self) -> Result<Duration> {
        Ok(list_schedule(self.waits()?.into_iter(), self.count()))
    }

    /// How long each job's stand-in sleeps.
    pub(super) fn waits(&self) -> Result<Vec<Duration>> {
        let Servers::StandIns { factor, .. } = self.servers else {
            bail!("real compilers take the time they take");
        };
        let times = Times::of(self.kit, self.jobs)?;
        let times = self.jobs.iter().map(|job| Ok(times.cpu(job)?.mul_f64(factor)));
        times.collect()
    }

    /// The number of servers.
    pub(super) fn count(&self) -> usize {
        match self.servers {
            Servers::StandIns { count, .. } => count,
            Servers::Real => 1,
        }
    }
}

fn sample(first: &Cost, cost: &Cost) -> Value {
    let seconds = cost.wall.as_secs_f64();
    let jobs = f64::from(u32::try_from(cost.jobs).unwrap_or(u32::MAX));
    json!({
        "wall_s": seconds,
        "client_ms": cost.client_ms(),
        "servers_ms": cost.servers_ms(),
        "jobs_per_s": jobs / seconds,
        "client_busy": cost.client.as_secs_f64() / seconds,
        "servers_busy": cost.servers.as_secs_f64() / seconds,
        "sent": cost.sent,
        "first_wall_s": first.wall.as_secs_f64(),
        "first_sent": first.sent,
    })
}

/// The processor time of the real compiler for each job.
struct Times(HashMap<OsString, Duration>);

impl Times {
    fn of(kit: &Kit, jobs: &[Job]) -> Result<Self> {
        let mut times = HashMap::new();
        for job in jobs {
            if let Entry::Vacant(entry) = times.entry(job.key()?) {
                let file = fs::read(kit.records().join(entry.key()))?;
                let record = Record::parse(&file);
                let record = record.with_context(|| format!("{} has no record", job.source))?;
                entry.insert(record.cpu);
            }
        }
        Ok(Self(times))
    }

    fn cpu(&self, job: &Job) -> Result<Duration> {
        let found = self.0.get(&job.key()?).copied();
        found.with_context(|| format!("no record of {}", job.source))
    }
}

/// When the last of `jobs` ends, if each is started in order on the machine that is free first.
fn list_schedule(jobs: impl Iterator<Item = Duration>, machines: usize) -> Duration {
    let mut free = vec![Duration::ZERO; machines.max(1)];
    for job in jobs {
        if let Some(first) = free.iter_mut().min() {
            *first += job;
        }
    }
    free.into_iter().max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_go_to_the_machine_that_is_free_first() {
        let jobs = || [3, 1, 1, 1, 4].map(Duration::from_secs).into_iter();
        assert_eq!(list_schedule(jobs(), 1), Duration::from_secs(10));
        assert_eq!(list_schedule(jobs(), 2), Duration::from_secs(7));
        assert_eq!(list_schedule(jobs(), 5), Duration::from_secs(4));
    }
}
