//! Jobs that servers refused and would refuse again: for a while they run locally at once.
//!
//! A plain value. It remembers exact command lines; and if several jobs that differ only in source
//! and outputs were refused for one reason, all jobs like them.

use crate::args::{Job, Reason};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// How long a refusal is remembered: the directories that are shown may change.
const KEPT: Duration = Duration::from_secs(600);
/// Refusals in a row, for one reason, after which similar jobs run locally.
const ALIKE: u32 = 4;
/// Command lines that are remembered, at most.
const KNOWN_MAX: usize = 4096;

type RefusalKey = [u8; 32];

#[derive(Debug)]
struct Refused {
    reason: Reason,
    times: u32,
    since: Instant,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    exact: HashMap<RefusalKey, Refused>,
    alike: HashMap<RefusalKey, Refused>,
}

impl Refusals {
    /// The reason why servers would refuse a job, if one is remembered.
    pub(crate) fn of(&self, job: &Job, now: Instant) -> Option<Reason> {
        let is_fresh = |refused: &&Refused| now.saturating_duration_since(refused.since) < KEPT;
        let exact = self.exact.get(&key(job, true)).filter(is_fresh);
        let alike = || self.alike.get(&key(job, false)).filter(is_fresh);
        let refused = exact.or_else(|| alike().filter(|refused| refused.times >= ALIKE))?;
        Some(refused.reason.clone())
    }

    /// Notes that a job was refused for a reason that concerns only this job.
    pub(crate) fn note(&mut self, job: &Job, reason: &Reason, now: Instant) {
        note(&mut self.exact, key(job, true), reason, now);
    }

    /// Notes that a job was refused for a reason that may concern similar jobs.
    pub(crate) fn note_alike(&mut self, job: &Job, reason: &Reason, now: Instant) {
        self.note(job, reason, now);
        note(&mut self.alike, key(job, false), reason, now);
    }

    /// Notes that a server ran a job: similar jobs are tried again.
    pub(crate) fn note_run(&mut self, job: &Job) {
        self.exact.remove(&key(job, true));
        self.alike.remove(&key(job, false));
    }
}

fn note(known: &mut HashMap<RefusalKey, Refused>, key: RefusalKey, reason: &Reason, now: Instant) {
    if known.len() >= KNOWN_MAX && !known.contains_key(&key) {
        known.clear();
    }
    let refused = known.entry(key).or_insert_with(|| Refused {
        reason: reason.clone(),
        times: 0,
        since: now,
    });
    // A different reason each time shows that the options are not at fault.
    refused.times = if refused.reason == *reason { refused.times + 1 } else { 1 };
    refused.reason = reason.clone();
    refused.since = now;
}

/// Hashes a job's command line and working directory. Without `is_exact`, words that name its
/// source and outputs are left out, so that similar jobs have one key.
fn key(job: &Job, is_exact: bool) -> RefusalKey {
    let outputs = job.outputs.iter().map(|output| output.path());
    let files: Vec<_> = outputs.chain([&*job.source]).map(|path| path.as_os_str()).collect();
    let names_file = |word: &[u8]| files.iter().any(|file| word.ends_with(file.as_bytes()));
    let words = job.argv.iter().map(|word| word.as_bytes());
    let mut hasher = blake3::Hasher::new();
    let ends = [job.compiler.as_os_str().as_bytes(), job.cwd.as_os_str().as_bytes()];
    for word in ends.into_iter().chain(words.filter(|word| is_exact || !names_file(word))) {
        hasher.update(&(word.len() as u64).to_le_bytes()).update(word);
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cause, Classification, CompilerCall, classify};

    fn job(line: &str) -> Job {
        let argv = line.split(' ').map(Into::into).collect();
        let (compiler, cwd) = ("/usr/bin/gcc".into(), "/p".into());
        let Classification::Remote(job) =
            classify(CompilerCall { compiler, argv, cwd, ..CompilerCall::default() })
        else {
            panic!("{line}")
        };
        *job
    }

    #[test]
    fn the_same_job_is_not_tried_again_for_a_while() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let reason = Reason::with(Cause::Refused, "/x");
        refusals.note(&job("gcc -c a.c -o a.o"), &reason, now);
        let known = |line: &str, after: u64| {
            refusals.of(&job(line), now + Duration::from_secs(after)).is_some()
        };
        assert!(known("gcc -c a.c -o a.o", 599));
        assert!(!known("gcc -c a.c -o a.o", 600), "it may be shown by now");
        assert!(!known("gcc -c b.c -o b.o", 0) && !known("gcc -g -c a.c -o a.o", 0));
    }

    #[test]
    fn jobs_that_are_alike_are_tried_some_times() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let reason = Reason::with(Cause::Refused, "/usr/include/i386-linux-gnu");
        let line = |number: u32| format!("gcc -m32 -c s{number}.c -o o/s{number}.o");
        for number in 0..ALIKE {
            assert_eq!(refusals.of(&job(&line(number)), now), None);
            refusals.note_alike(&job(&line(number)), &reason, now);
        }
        assert_eq!(refusals.of(&job(&line(99)), now), Some(reason.clone()));
        assert_eq!(refusals.of(&job("gcc -c s99.c -o o/s99.o"), now), None);
        refusals.note_run(&job(&line(98)));
        assert_eq!(refusals.of(&job(&line(99)), now), None, "one of them ran");
        for number in 0..ALIKE * 2 {
            let each = Reason::with(Cause::Refused, format!("/secret/{number}"));
            refusals.note_alike(&job(&line(number)), &each, now);
        }
        assert_eq!(refusals.of(&job(&line(99)), now), None, "each for something of its own");
    }
}
