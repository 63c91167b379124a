//! Counters and the last jobs, and the file that keeps them between managers.
//!
//! The file is read, added to and replaced under a lock, so that several managers may share it; a
//! file that cannot be read is begun anew, and one that cannot be written costs nobody a build.

use super::counters::{Counters, micros};
use super::record::{How, Phase, Record, Stage};
use crate::args::Reason;
use crate::front::Trace;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Jobs that the timeline can show.
const RECORDS_MAX: usize = 4096;
/// After so long without a job it is written.
const PAUSE: Duration = Duration::from_secs(2);
/// It is written so often even when jobs go on.
const LONGEST: Duration = Duration::from_secs(60);

/// What the file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    /// Sums since they were last set to zero.
    pub counters: Counters,
    /// The last jobs, in the order in which they ended.
    pub records: VecDeque<Record>,
}

/// What has happened since the file was last written.
#[derive(Debug)]
pub struct Journal {
    file: Option<PathBuf>,
    new: Saved,
    /// The same moment by both clocks.
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

impl Saved {
    /// What the file in `directory` holds; nothing when there is none.
    ///
    /// # Errors
    /// It cannot be read, or is no such file.
    pub fn load(directory: &Path) -> io::Result<Self> {
        match fs::read(file_in(directory)) {
            Ok(text) => Ok(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Sets everything to zero.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn clear(directory: &Path) -> io::Result<()> {
        match fs::remove_file(file_in(directory)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn merge(&mut self, new: &mut Self) {
        self.counters.merge(&new.counters);
        self.records.append(&mut new.records);
        let surplus = self.records.len().saturating_sub(RECORDS_MAX);
        self.records.drain(..surplus);
    }
}

impl Journal {
    /// A journal that is kept in `directory`, or nowhere.
    #[must_use]
    pub fn new(directory: Option<&Path>) -> Self {
        let now = Instant::now();
        let origin = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros);
        let file = directory.map(file_in);
        Self { file, new: Saved::default(), origin: (now, origin), first: None, last: now }
    }

    /// A server did the job, whose wrapper came at `began`.
    pub(crate) fn note_remote(
        &mut self,
        name: String,
        began: Instant,
        trace: &Trace,
        now: Instant,
    ) {
        self.new.counters.count_remote(trace);
        let mut phases = Phases::from(began);
        phases.until(Stage::Queued, trace.claimed);
        phases.until(Stage::Prepared, trace.started);
        phases.until(Stage::Ran, trace.ended);
        phases.until(Stage::Returned, Some(now));
        self.push(name, (trace.server.clone(), trace.slot), phases, How::Remote);
        self.touch(now);
    }

    /// The job ran at home, in `slot` since `granted`.
    pub(crate) fn note_home(&mut self, job: HomeJob<'_>, now: Instant) {
        let HomeJob { name, began, granted, slot, reason } = job;
        let waited = granted.saturating_duration_since(began);
        let ran = now.saturating_duration_since(granted);
        self.new.counters.count_home(reason, waited, ran);
        let mut phases = Phases::from(began);
        phases.until(Stage::Queued, Some(granted));
        phases.until(Stage::Ran, Some(now));
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        self.push(name, ("home".into(), slot), phases, How::Home(reason.to_string()));
        self.touch(now);
    }

    /// A job failed remotely and runs again.
    pub(crate) fn note_failure(&mut self) {
        self.new.counters.failed_remotely += 1;
    }

    /// A wrapper went away before its job had ended.
    pub(crate) fn note_abandoned(&mut self, now: Instant) {
        self.new.counters.abandoned += 1;
        self.touch(now);
    }

    fn push(&mut self, name: String, place: (String, u32), phases: Phases, how: How) {
        let (place, slot) = place;
        let since = phases.began.saturating_duration_since(self.origin.0);
        let began_us = self.origin.1.saturating_add(micros(since));
        let record = Record { name, place, slot, began_us, phases: phases.phases, how };
        self.new.records.push_back(record);
        if self.new.records.len() > RECORDS_MAX {
            self.new.records.pop_front();
        }
    }

    fn touch(&mut self, now: Instant) {
        self.first.get_or_insert(now);
        self.last = now;
    }

    /// When it should be written, if there is something to write.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.file.as_ref()?;
        Some((self.first? + LONGEST).min(self.last + PAUSE))
    }

    /// Writes what is new. What cannot be written is dropped, so that a full disk fills no memory.
    pub(crate) fn save(&mut self) {
        if let (Some(file), Some(_)) = (&self.file, self.first.take()) {
            // Statistics are no reason to stop.
            let _ = append(file, &mut self.new);
            self.new = Saved::default();
        }
    }
}

/// A job that has run at home.
#[derive(Debug)]
pub(crate) struct HomeJob<'a> {
    pub(crate) name: String,
    pub(crate) began: Instant,
    pub(crate) granted: Instant,
    pub(crate) slot: usize,
    pub(crate) reason: &'a Reason,
}

struct Phases {
    began: Instant,
    at: Instant,
    phases: Vec<Phase>,
}

impl Phases {
    fn from(began: Instant) -> Self {
        Self { began, at: began, phases: Vec::with_capacity(4) }
    }

    /// What lies before the last phase's end has no length: servers' times may overlap.
    fn until(&mut self, stage: Stage, end: Option<Instant>) {
        let Some(end) = end else { return };
        let us = micros(end.saturating_duration_since(self.at));
        self.at = self.at.max(end);
        self.phases.push(Phase { stage, us });
    }
}

fn file_in(directory: &Path) -> PathBuf {
    directory.join("cc-stats.json")
}

fn append(file: &Path, new: &mut Saved) -> io::Result<()> {
    let directory = file.parent().unwrap_or(file);
    fs::create_dir_all(directory)?;
    let _lock = lock(&file.with_extension("lock"))?;
    let mut saved = Saved::load(directory).unwrap_or_default();
    saved.merge(new);
    let hidden = file.with_extension(format!("{}", std::process::id()));
    fs::write(&hidden, serde_json::to_vec(&saved)?)?;
    fs::rename(hidden, file)
}

fn lock(path: &Path) -> io::Result<File> {
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}
