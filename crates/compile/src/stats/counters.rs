//! Sums over all jobs of a user.

use crate::args::Reason;
use crate::manager::Trace;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Rows of a table, at most; what has no row is counted under [`OTHERS`].
const ROWS_MAX: usize = 200;
const OTHERS: &str = "others";

/// The sums. A sum that reaches the largest number stays there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobCounters {
    /// Jobs whose outputs came from a server.
    pub remote: u64,
    /// Jobs whose compiler ran locally.
    pub local: u64,
    /// Jobs that failed remotely and were run again locally; they count as `local`, too.
    pub failed_remotely: u64,
    /// Jobs that could not run remotely and that `OUTBOARD_CC_FALLBACK=0` kept from running
    /// locally.
    pub refused: u64,
    /// Jobs whose wrapper went away before they had ended.
    pub abandoned: u64,
    /// Local jobs by cause.
    pub causes: BTreeMap<String, u64>,
    /// Local jobs by cause and the word at fault (an option, a path).
    pub words: BTreeMap<String, u64>,
    /// Bytes that went to servers.
    pub bytes_out: u64,
    /// Bytes that came back.
    pub bytes_in: u64,
    /// Time from a server's claim of a job to the job's end, over all jobs, in microseconds.
    pub remote_us: u64,
    /// CPU time that compilers took on servers, in microseconds.
    pub remote_cpu_us: u64,
    /// Time that compilers ran locally, in microseconds.
    pub local_us: u64,
    /// Time that jobs waited for a local slot, in microseconds.
    pub local_wait_us: u64,
    /// Servers by name.
    pub servers: BTreeMap<String, ServerTotals>,
}

/// Sums over the jobs of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerTotals {
    /// Jobs that it ran.
    pub jobs: u64,
    /// Time from claim to end, in microseconds.
    pub us: u64,
    /// CPU time of its compilers, in microseconds.
    pub cpu_us: u64,
}

impl JobCounters {
    /// Counts a job that ran on a server.
    pub fn count_remote(&mut self, trace: &Trace) {
        let us = trace
            .claimed
            .zip(trace.ended)
            .map_or(0, |(from, to)| micros(to.saturating_duration_since(from)));
        add(&mut self.remote, 1);
        add(&mut self.bytes_out, trace.bytes_out);
        add(&mut self.bytes_in, trace.bytes_in);
        add(&mut self.remote_us, us);
        add(&mut self.remote_cpu_us, trace.cpu_us);
        let server = row(&mut self.servers, &trace.server);
        add(&mut server.jobs, 1);
        add(&mut server.us, us);
        add(&mut server.cpu_us, trace.cpu_us);
    }

    /// Counts a job that ran locally.
    pub fn count_local(&mut self, reason: &Reason, waited: Duration, ran: Duration) {
        add(&mut self.local, 1);
        add(&mut self.local_wait_us, micros(waited));
        add(&mut self.local_us, micros(ran));
        add(row(&mut self.causes, reason.cause.text()), 1);
        if !reason.word.is_empty() {
            add(row(&mut self.words, &reason.to_string()), 1);
        }
    }

    /// Adds `other`.
    pub fn merge(&mut self, other: &Self) {
        let mine = [
            (&mut self.remote, other.remote),
            (&mut self.local, other.local),
            (&mut self.failed_remotely, other.failed_remotely),
            (&mut self.refused, other.refused),
            (&mut self.abandoned, other.abandoned),
            (&mut self.bytes_out, other.bytes_out),
            (&mut self.bytes_in, other.bytes_in),
            (&mut self.remote_us, other.remote_us),
            (&mut self.remote_cpu_us, other.remote_cpu_us),
            (&mut self.local_us, other.local_us),
            (&mut self.local_wait_us, other.local_wait_us),
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

impl fmt::Display for JobCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs = self.remote + self.local;
        writeln!(f, "jobs               {jobs:>10}")?;
        writeln!(f, "  on servers       {:>10}", self.remote)?;
        writeln!(f, "  locally          {:>10}", self.local)?;
        for (cause, count) in by_count(&self.causes) {
            writeln!(f, "    {count:>8}  {cause}")?;
        }
        let words = by_directory(&self.words);
        let words = by_count(&words);
        if !words.is_empty() {
            writeln!(f, "most frequent words that kept jobs local")?;
        }
        for (word, count) in words.into_iter().take(10) {
            writeln!(f, "    {count:>8}  {word}")?;
        }
        if self.refused > 0 {
            writeln!(f, "not run locally    {:>10}", self.refused)?;
        }
        writeln!(f, "abandoned          {:>10}", self.abandoned)?;
        writeln!(f, "bytes to servers   {:>10}", self.bytes_out)?;
        writeln!(f, "bytes back         {:>10}", self.bytes_in)?;
        writeln!(f, "time on servers    {:>10.1} s", seconds(self.remote_us))?;
        writeln!(f, "  CPU of compilers {:>10.1} s", seconds(self.remote_cpu_us))?;
        writeln!(f, "time locally       {:>10.1} s", seconds(self.local_us))?;
        writeln!(f, "  and waiting      {:>10.1} s", seconds(self.local_wait_us))?;
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

/// Joins rows whose words are paths in one directory: a build can have hundreds of them.
fn by_directory(words: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let directory = |row: &str| {
        let at = row.find(": /").map(|at| at + 2)?;
        let end = row.rfind('/').filter(|end| *end > at && !row[at..].contains(' '))?;
        Some(row[..=end].to_owned())
    };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    words
        .keys()
        .filter_map(|row| directory(row))
        .for_each(|at| *counts.entry(at).or_default() += 1);
    let mut rows = BTreeMap::new();
    for (row, count) in words {
        let shared = directory(row).filter(|at| counts[at] > 1).map(|at| at + "*");
        add(rows.entry(shared.unwrap_or_else(|| row.clone())).or_default(), *count);
    }
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
            bytes_out: 10,
            bytes_in: 20,
            cpu_us: 3,
            ..Trace::default()
        }
    }

    #[test]
    fn jobs_are_counted_where_they_ran() {
        let mut counters = JobCounters::default();
        counters.count_remote(&trace("n1"));
        counters.count_remote(&trace("n1"));
        let ms = Duration::from_millis;
        counters.count_local(&Reason::with(Cause::UnknownOption, "-fnew"), ms(1), ms(2));
        counters.count_local(&Cause::Link.into(), ms(1), ms(2));
        assert_eq!((counters.remote, counters.local), (2, 2));
        assert_eq!(counters.servers["n1"], ServerTotals { jobs: 2, us: 10_000, cpu_us: 6 });
        assert_eq!(counters.causes["links"], 1);
        assert_eq!(counters.words["has an unknown option: -fnew"], 1);
        assert_eq!((counters.local_wait_us, counters.local_us), (2000, 4000));
    }

    #[test]
    fn two_sums_become_one() {
        let mut one = JobCounters { abandoned: 1, ..JobCounters::default() };
        one.count_remote(&trace("n1"));
        let mut two = JobCounters { failed_remotely: 2, ..JobCounters::default() };
        two.count_local(
            &Reason::with(Cause::Native, "-march=native"),
            Duration::ZERO,
            Duration::MAX,
        );
        two.count_remote(&trace("n2"));
        let mut both = one.clone();
        both.merge(&two);
        two.merge(&one);
        assert_eq!(both, two);
        assert_eq!((both.remote, both.local, both.failed_remotely, both.abandoned), (2, 1, 2, 1));
        assert_eq!((both.bytes_out, both.servers.len(), both.local_us), (20, 2, u64::MAX));
    }

    #[test]
    fn paths_of_one_directory_are_shown_as_one() {
        let mut counters = JobCounters::default();
        for path in ["/a/b/x.h", "/a/b/y.h", "/a/c/z.h"] {
            let reason = Reason::with(Cause::Refused, path);
            counters.count_local(&reason, Duration::ZERO, Duration::ZERO);
        }
        let shown = counters.to_string();
        let refused = "wanted what is not shown to servers";
        assert!(shown.contains(&format!("       2  {refused}: /a/b/*\n")), "{shown}");
        assert!(shown.contains(&format!("       1  {refused}: /a/c/z.h\n")), "{shown}");
        assert_eq!(counters.words.len(), 3, "the JSON keeps all of them");
    }

    #[test]
    fn a_table_has_an_end() {
        let mut counters = JobCounters::default();
        for number in 0..2 * ROWS_MAX {
            counters.count_remote(&trace(&number.to_string()));
        }
        assert_eq!(counters.servers.len(), ROWS_MAX + 1);
        assert_eq!(counters.servers[OTHERS].jobs, ROWS_MAX as u64);
    }
}
