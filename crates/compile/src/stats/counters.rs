//! Sums over all jobs of a user.

use crate::args::Reason;
use crate::front::Trace;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Rows that a table keeps; the rest is counted under [`OTHERS`].
const ROWS_MAX: usize = 200;
const OTHERS: &str = "others";

/// What is counted. Numbers stop at their largest value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Jobs whose outputs came from a server.
    pub remote: u64,
    /// Jobs whose compiler ran at home.
    pub home: u64,
    /// Jobs that failed remotely and were run again at home; they count as `home`, too.
    pub failed_remotely: u64,
    /// Jobs whose wrapper went away before they had ended.
    pub abandoned: u64,
    /// Jobs at home by cause.
    pub causes: BTreeMap<String, u64>,
    /// Words at fault, with their cause.
    pub words: BTreeMap<String, u64>,
    /// Octets that went to servers.
    pub octets_out: u64,
    /// Octets that came back.
    pub octets_in: u64,
    /// Time that jobs spent on servers, claimed to ended, in microseconds.
    pub remote_us: u64,
    /// CPU time that compilers took on servers, in microseconds.
    pub remote_cpu_us: u64,
    /// Time that compilers ran at home, in microseconds.
    pub home_us: u64,
    /// Time that jobs waited for a local slot, in microseconds.
    pub home_wait_us: u64,
    /// Servers by name.
    pub servers: BTreeMap<String, Server>,
}

/// One server's share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// Jobs that it did.
    pub jobs: u64,
    /// Time from claim to end, in microseconds.
    pub us: u64,
    /// CPU time of its compilers, in microseconds.
    pub cpu_us: u64,
}

impl Counters {
    /// A job that a server did.
    pub fn count_remote(&mut self, trace: &Trace) {
        let us = trace
            .claimed
            .zip(trace.ended)
            .map_or(0, |(from, to)| micros(to.saturating_duration_since(from)));
        add(&mut self.remote, 1);
        add(&mut self.octets_out, trace.octets_out);
        add(&mut self.octets_in, trace.octets_in);
        add(&mut self.remote_us, us);
        add(&mut self.remote_cpu_us, trace.cpu_us);
        let server = row(&mut self.servers, &trace.server);
        add(&mut server.jobs, 1);
        add(&mut server.us, us);
        add(&mut server.cpu_us, trace.cpu_us);
    }

    /// A job that ran at home.
    pub fn count_home(&mut self, reason: &Reason, waited: Duration, ran: Duration) {
        add(&mut self.home, 1);
        add(&mut self.home_wait_us, micros(waited));
        add(&mut self.home_us, micros(ran));
        add(row(&mut self.causes, reason.cause.text()), 1);
        if !reason.word.is_empty() {
            add(row(&mut self.words, &reason.to_string()), 1);
        }
    }

    /// Adds `other`.
    pub fn merge(&mut self, other: &Self) {
        let mine = [
            (&mut self.remote, other.remote),
            (&mut self.home, other.home),
            (&mut self.failed_remotely, other.failed_remotely),
            (&mut self.abandoned, other.abandoned),
            (&mut self.octets_out, other.octets_out),
            (&mut self.octets_in, other.octets_in),
            (&mut self.remote_us, other.remote_us),
            (&mut self.remote_cpu_us, other.remote_cpu_us),
            (&mut self.home_us, other.home_us),
            (&mut self.home_wait_us, other.home_wait_us),
        ];
        mine.into_iter().for_each(|(sum, more)| add(sum, more));
        other.causes.iter().for_each(|(name, more)| add(row(&mut self.causes, name), *more));
        other.words.iter().for_each(|(name, more)| add(row(&mut self.words, name), *more));
        for (name, more) in &other.servers {
            let server = row(&mut self.servers, name);
            add(&mut server.jobs, more.jobs);
            add(&mut server.us, more.us);
            add(&mut server.cpu_us, more.cpu_us);
        }
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs = self.remote + self.home;
        writeln!(f, "jobs               {jobs:>10}")?;
        writeln!(f, "  on servers       {:>10}", self.remote)?;
        writeln!(f, "  at home          {:>10}", self.home)?;
        for (cause, count) in by_count(&self.causes) {
            writeln!(f, "    {count:>8}  {cause}")?;
        }
        let words = by_count(&self.words);
        if !words.is_empty() {
            writeln!(f, "words that kept jobs at home, the most frequent")?;
        }
        for (word, count) in words.into_iter().take(10) {
            writeln!(f, "    {count:>8}  {word}")?;
        }
        writeln!(f, "abandoned          {:>10}", self.abandoned)?;
        writeln!(f, "octets to servers  {:>10}", self.octets_out)?;
        writeln!(f, "octets back        {:>10}", self.octets_in)?;
        writeln!(f, "time on servers    {:>10.1} s", seconds(self.remote_us))?;
        writeln!(f, "  CPU of compilers {:>10.1} s", seconds(self.remote_cpu_us))?;
        writeln!(f, "time at home       {:>10.1} s", seconds(self.home_us))?;
        writeln!(f, "  and waiting      {:>10.1} s", seconds(self.home_wait_us))?;
        for (name, server) in &self.servers {
            let (jobs, time) = (server.jobs, seconds(server.us));
            writeln!(f, "server {name}: {jobs} jobs, {time:.1} s")?;
        }
        Ok(())
    }
}

fn by_count(table: &BTreeMap<String, u64>) -> Vec<(&String, &u64)> {
    let mut rows: Vec<_> = table.iter().collect();
    rows.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    rows
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn row<'a, T: Default>(table: &'a mut BTreeMap<String, T>, name: &str) -> &'a mut T {
    let is_full = table.len() >= ROWS_MAX && !table.contains_key(name);
    table.entry(if is_full { OTHERS } else { name }.to_owned()).or_default()
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cause;
    use std::time::Instant;

    fn trace(server: &str) -> Trace {
        let now = Instant::now();
        Trace {
            server: server.into(),
            claimed: Some(now),
            ended: Some(now + Duration::from_millis(5)),
            octets_out: 10,
            octets_in: 20,
            cpu_us: 3,
            ..Trace::default()
        }
    }

    #[test]
    fn jobs_are_counted_where_they_ran() {
        let mut counters = Counters::default();
        counters.count_remote(&trace("n1"));
        counters.count_remote(&trace("n1"));
        let ms = Duration::from_millis;
        counters.count_home(&Reason::with(Cause::UnknownOption, "-fnew"), ms(1), ms(2));
        counters.count_home(&Cause::Link.into(), ms(1), ms(2));
        assert_eq!((counters.remote, counters.home), (2, 2));
        assert_eq!(counters.servers["n1"], Server { jobs: 2, us: 10_000, cpu_us: 6 });
        assert_eq!(counters.causes["links"], 1);
        assert_eq!(counters.words["has an unknown option: -fnew"], 1);
        assert_eq!((counters.home_wait_us, counters.home_us), (2000, 4000));
    }

    #[test]
    fn two_sums_become_one() {
        let mut one = Counters { abandoned: 1, ..Counters::default() };
        one.count_remote(&trace("n1"));
        let mut two = Counters { failed_remotely: 2, ..Counters::default() };
        two.count_home(
            &Reason::with(Cause::Native, "-march=native"),
            Duration::ZERO,
            Duration::MAX,
        );
        two.count_remote(&trace("n2"));
        let mut both = one.clone();
        both.merge(&two);
        two.merge(&one);
        assert_eq!(both, two);
        assert_eq!((both.remote, both.home, both.failed_remotely, both.abandoned), (2, 1, 2, 1));
        assert_eq!((both.octets_out, both.servers.len(), both.home_us), (20, 2, u64::MAX));
    }

    #[test]
    fn a_table_has_an_end() {
        let mut counters = Counters::default();
        for number in 0..2 * ROWS_MAX {
            counters.count_remote(&trace(&number.to_string()));
        }
        assert_eq!(counters.servers.len(), ROWS_MAX + 1);
        assert_eq!(counters.servers[OTHERS].jobs, ROWS_MAX as u64);
    }
}
