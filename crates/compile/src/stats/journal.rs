//! Counters and the last jobs, and the file that keeps them between managers.
//!
//! The file is read, added to and replaced under a lock, so that several managers may share it. A
//! file that cannot be read is replaced by a new one. A thread of its own writes the file, so that
//! a disk that hangs or is full holds up no build.

use super::counters::{JobCounters, micros};
use super::record::{How, JobPhase, JobRecord, PhaseKind};
use crate::args::Reason;
use crate::manager::Trace;
use outboard_unix::staged::write_whole;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Jobs that are kept for the timeline, at most.
const RECORDS_MAX: usize = 4096;
/// The file is written when no job has ended for this long.
const PAUSE: Duration = Duration::from_secs(2);
/// Longest time between two writes while jobs go on.
const LONGEST: Duration = Duration::from_secs(60);
/// How long a manager that ends waits for the last write.
const END_MAX: Duration = Duration::from_secs(5);
/// Writes that wait for the disk, at most.
const AHEAD_MAX: usize = 4;

/// The contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedJournal {
    /// Sums since the last reset.
    pub counters: JobCounters,
    /// The last jobs, in the order in which they ended.
    pub records: VecDeque<JobRecord>,
    /// Counters of the manager that wrote last.
    pub manager: Option<Value>,
}

/// What has happened since the last write.
#[derive(Debug)]
pub struct Journal {
    writer: Option<Writer>,
    new: SavedJournal,
    /// One moment on both clocks: monotonic, and in microseconds since 1970.
    origin: (Instant, u64),
    first: Option<Instant>,
    last: Instant,
}

/// Where statistics are kept: `$XDG_STATE_HOME/outboard`, or else `~/.local/state/outboard`.
#[must_use]
pub fn state_directory() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(state?.join("outboard"))
}

impl SavedJournal {
    /// Reads the file in `directory`; empty if there is none.
    ///
    /// # Errors
    /// The file cannot be read, or has no statistics.
    pub fn load(directory: &Path) -> io::Result<Self> {
        let file = file_in(directory);
        match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| damaged(&file, &error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(at(&file, &error, "this user must be able to read it")),
        }
    }

    /// Sets everything to zero.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn clear(directory: &Path) -> io::Result<()> {
        let file = file_in(directory);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(at(&file, &error, "it stays; this user must be able to write its directory"))
            }
            _ => Ok(()),
        }
    }

    fn merge(&mut self, new: &mut Self) {
        self.counters.merge(&new.counters);
        if let Some(manager) = new.manager.take() {
            self.manager = Some(manager);
        }
        self.records.append(&mut new.records);
        let surplus = self.records.len().saturating_sub(RECORDS_MAX);
        self.records.drain(..surplus);
    }
}

impl Journal {
    /// A journal with its file in `directory`; without a directory it is not kept.
    #[must_use]
    pub fn new(directory: Option<&Path>) -> Self {
        let now = Instant::now();
        let origin = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros);
        let writer = directory.and_then(|at| Writer::start(file_in(at)).ok());
        Self { writer, new: SavedJournal::default(), origin: (now, origin), first: None, last: now }
    }

    /// Notes a job that ran on a server; its wrapper had connected at `began`.
    pub(crate) fn note_remote(
        &mut self,
        name: String,
        began: Instant,
        trace: &Trace,
        now: Instant,
    ) {
        self.new.counters.count_remote(trace);
        let mut phases = Phases::from(began);
        phases.until(PhaseKind::Queued, trace.claimed);
        phases.until(PhaseKind::Prepared, trace.started);
        phases.until(PhaseKind::Ran, trace.ended);
        phases.until(PhaseKind::Returned, Some(now));
        self.push(name, (trace.server.clone(), trace.slot), phases, How::Remote);
        self.touch(now);
    }

    /// Notes a job that ran locally.
    pub(crate) fn note_local(&mut self, job: LocalJob<'_>, now: Instant) {
        let LocalJob { name, began, granted, slot, reason } = job;
        let waited = granted.saturating_duration_since(began);
        let ran = now.saturating_duration_since(granted);
        self.new.counters.count_local(reason, waited, ran);
        let mut phases = Phases::from(began);
        phases.until(PhaseKind::Queued, Some(granted));
        phases.until(PhaseKind::Ran, Some(now));
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        self.push(name, ("local".into(), slot), phases, How::Local(reason.to_string()));
        self.touch(now);
    }

    /// Notes that a job failed remotely and will run locally.
    pub(crate) fn note_failure(&mut self) {
        self.new.counters.failed_remotely += 1;
    }

    /// Notes a job that did not run at all, because of `OUTBOARD_CC_FALLBACK=0`.
    pub(crate) fn note_refused(&mut self, now: Instant) {
        self.new.counters.refused += 1;
        self.touch(now);
    }

    /// Notes that a wrapper disconnected before its job had ended.
    pub(crate) fn note_abandoned(&mut self, now: Instant) {
        self.new.counters.abandoned += 1;
        self.touch(now);
    }

    /// Notes the counters of the manager, which replace those that it wrote before.
    pub(crate) fn note_manager(&mut self, counters: Option<Value>) {
        self.new.manager = counters;
    }

    fn push(&mut self, name: String, place: (String, u32), phases: Phases, how: How) {
        let (place, slot) = place;
        let since = phases.began.saturating_duration_since(self.origin.0);
        let began_us = self.origin.1.saturating_add(micros(since));
        let record = JobRecord { name, place, slot, began_us, phases: phases.phases, how };
        self.new.records.push_back(record);
        if self.new.records.len() > RECORDS_MAX {
            self.new.records.pop_front();
        }
    }

    fn touch(&mut self, now: Instant) {
        self.first.get_or_insert(now);
        self.last = now;
    }

    /// When to write next, if there is something to write.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.writer.as_ref()?;
        Some((self.first? + LONGEST).min(self.last + PAUSE))
    }

    /// Has the thread write what is new. What cannot be written is dropped, so that a full disk
    /// does not fill the memory. `asker` is closed when everything is written.
    pub(crate) fn save(&mut self, asker: Option<OwnedFd>, now: Instant) {
        let Some(writer) = &self.writer else { return };
        if self.first.is_none() && asker.is_none() {
            return;
        }
        let entry = (std::mem::take(&mut self.new), asker);
        self.first = None;
        if let Err(TrySendError::Full((new, _))) = writer.entries.try_send(entry) {
            // The thread waits for its disk: keep everything for a later write.
            (self.new, self.first, self.last) = (new, Some(now), now);
        }
    }

    /// Has the thread write what is new, and waits for it up to a limit.
    pub(crate) fn end(mut self) {
        self.save(None, Instant::now());
        if let Some(Writer { entries, ended }) = self.writer {
            drop(entries);
            let _ = ended.recv_timeout(END_MAX);
        }
    }
}

/// The thread that writes.
#[derive(Debug)]
struct Writer {
    entries: SyncSender<(SavedJournal, Option<OwnedFd>)>,
    /// Carries no messages; it is closed when the thread has ended.
    ended: Receiver<()>,
}

impl Writer {
    fn start(file: PathBuf) -> io::Result<Self> {
        let (entries, ahead) = mpsc::sync_channel::<(SavedJournal, Option<OwnedFd>)>(AHEAD_MAX);
        let (end, ended) = mpsc::channel();
        thread::Builder::new().spawn(move || {
            for (mut new, asker) in ahead {
                if new != SavedJournal::default() {
                    // A failure to write statistics is ignored.
                    let _ = append(&file, &mut new);
                }
                drop(asker);
            }
            drop(end);
        })?;
        Ok(Self { entries, ended })
    }
}

/// A job that has run locally.
#[derive(Debug)]
pub(crate) struct LocalJob<'a> {
    pub(crate) name: String,
    pub(crate) began: Instant,
    pub(crate) granted: Instant,
    pub(crate) slot: usize,
    pub(crate) reason: &'a Reason,
}

struct Phases {
    began: Instant,
    at: Instant,
    phases: Vec<JobPhase>,
}

impl Phases {
    fn from(began: Instant) -> Self {
        Self { began, at: began, phases: Vec::with_capacity(4) }
    }

    /// A phase that would end before the last one gets no length: times of servers may overlap.
    fn until(&mut self, stage: PhaseKind, end: Option<Instant>) {
        let Some(end) = end else { return };
        let us = micros(end.saturating_duration_since(self.at));
        self.at = self.at.max(end);
        self.phases.push(JobPhase { stage, us });
    }
}

fn file_in(directory: &Path) -> PathBuf {
    directory.join("cc-stats.json")
}

/// An error at a file, and what to do.
fn at(file: &Path, error: &io::Error, what_to_do: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}: {what_to_do}", file.display()))
}

fn damaged(file: &Path, error: &serde_json::Error) -> io::Error {
    let file = file.display();
    let text =
        format!("{file}: these are no statistics ({error}): remove it, and counting begins anew");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn append(file: &Path, new: &mut SavedJournal) -> io::Result<()> {
    let directory = file.parent().unwrap_or(file);
    fs::create_dir_all(directory)?;
    let _lock = lock(&file.with_extension("lock"))?;
    let mut saved = SavedJournal::load(directory).unwrap_or_default();
    saved.merge(new);
    // The lock makes it the only one: what a process left that was killed is overwritten.
    write_whole(file, file.with_extension("new"), &serde_json::to_vec(&saved)?)
}

fn lock(path: &Path) -> io::Result<File> {
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_the_file_is_said_with_its_path() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = file_in(directory.path());
        fs::write(&file, "").expect("written");
        let damaged = SavedJournal::load(directory.path()).expect_err("no statistics").to_string();
        assert!(damaged.contains("cc-stats.json") && damaged.contains("remove it"), "{damaged}");
        fs::remove_file(&file).expect("it is there");
        // A directory is what even root can neither read nor remove as a file.
        fs::create_dir(&file).expect("made");
        let unread = SavedJournal::load(directory.path()).expect_err("a directory").to_string();
        let kept = SavedJournal::clear(directory.path()).expect_err("a directory").to_string();
        for error in [unread, kept] {
            assert!(error.contains("cc-stats.json") && error.contains("this user"), "{error}");
        }
    }

    #[test]
    fn a_write_that_fails_leaves_no_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = file_in(directory.path());
        fs::create_dir(&file).expect("made");
        append(&file, &mut SavedJournal::default()).expect_err("a directory is there");
        let left = fs::read_dir(directory.path()).expect("a directory").flatten();
        let mut left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left, ["cc-stats.json", "cc-stats.lock"]);
    }
}
