//! Recording the real compiler once, for the stand-in to replay.
//!
//! Each job runs twice: once undisturbed, for its processor time (of all processes that the driver
//! starts) and its outputs; and once under `strace` with `-fsyntax-only`, which reads the same
//! files and omits the rest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};
use outboard_stand_in::record::{Output, Record};

use super::watch;
use super::work::{self, Job};
use crate::command;
use crate::lab::{Host, Lab, Link};

/// The names of the outputs, without extensions.
const OBJECT: &str = "object.o";

/// Fills `records` with a record of every job, unless it has them already.
pub(super) fn record(project: &Path, jobs: &[Job], records: &Path) -> Result<()> {
    let stamp = records.with_extension("stamp");
    let content = stamp_of(project, jobs)?;
    if fs::read_to_string(&stamp).is_ok_and(|found| found == content) {
        return Ok(());
    }
    for old in [&stamp, records] {
        remove(old)?;
    }
    fs::create_dir_all(records)?;
    eprintln!("watching the compiler at {} jobs, once", jobs.len());
    watch_all(project, jobs, records)?;
    fs::write(stamp, content)?;
    Ok(())
}

/// Version of the recording method; it is increased with each change.
const WATCHED: u32 = 3;

/// Identifies what was recorded; if it differs, the recording is repeated.
fn stamp_of(project: &Path, jobs: &[Job]) -> Result<String> {
    let mut stamp = format!("records {WATCHED}\nRedis {}\n", work::redis_version(project)?);
    for compiler in ["gcc", "g++"] {
        stamp += &command::output(Command::new(compiler).arg("--version"))?;
    }
    for job in jobs {
        stamp += &format!("{}\n", job.words(OBJECT).join(" "));
    }
    Ok(stamp)
}

fn remove(path: &Path) -> Result<()> {
    let gone = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match gone {
        Err(error) if path.exists() => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// As many jobs at once as there are processors.
fn watch_all(project: &Path, jobs: &[Job], records: &Path) -> Result<()> {
    let workers = thread::available_parallelism()?.get();
    let lab = Lab::new(&vec!["0"; workers], Link::Unlimited)?;
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let start = |host: &'_ Host| {
            let watcher = Watcher::new(project, host)?;
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let record = watcher.watch(job);
                let record = record.with_context(|| format!("cannot record {}", job.source))?;
                fs::write(records.join(job.key()?), record.emit())?;
            }
            anyhow::Ok(())
        };
        let threads: Vec<_> =
            lab.hosts().iter().map(|host| scope.spawn(move || start(host))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("a watching thread panicked"),
        })
    })
}

/// One job after another.
struct Watcher<'a> {
    project: &'a Path,
    host: &'a Host,
    directory: PathBuf,
}

impl<'a> Watcher<'a> {
    fn new(project: &'a Path, host: &'a Host) -> Result<Self> {
        let name = format!("outboard-watch-{}-{}", std::process::id(), host.address);
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory)?;
        Ok(Self { project, host, directory })
    }

    fn watch(&self, job: &Job) -> Result<Record> {
        let object = self.directory.join(OBJECT).display().to_string();
        let mut record = Record::default();
        let before = self.host.cpu()?;
        let mut compiler = self.host.group.command(job.compiler);
        compiler.args(job.words(&object)).env("LC_ALL", "C").current_dir(self.project);
        let output = compiler.output()?;
        record.cpu = self.host.cpu()? - before;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        record.diagnostics = output.stderr;
        record.outputs = self.take_outputs()?;
        record.lookups = self.lookups(job, &object)?;
        Ok(record)
    }

    /// All files in the output directory.
    fn take_outputs(&self) -> Result<Vec<Output>> {
        let outputs = self.files()?.into_iter().map(|path| {
            let content = fs::read(&path)?;
            fs::remove_file(&path)?;
            let ending = path.extension().context("an output without an ending")?.to_owned();
            Ok(Output { ending, content })
        });
        outputs.collect()
    }

    fn lookups(&self, job: &Job, object: &str) -> Result<Vec<outboard_stand_in::record::Lookup>> {
        let logs = self.directory.join("log");
        let mut strace = Command::new("strace");
        strace.args(["-ff", "--seccomp-bpf", "--trace=%file", "-qq", "--output"]).arg(&logs);
        strace.arg(job.compiler).args(job.words(object)).arg("-fsyntax-only");
        strace.env("LC_ALL", "C").env_remove("LD_LIBRARY_PATH").current_dir(self.project);
        command::run(&mut strace)?;
        let size = |path: &Path| Some(fs::metadata(self.project.join(path)).ok()?.len());
        let mut found = None;
        for log in self.files()? {
            found = found.or(watch::lookups(&fs::read_to_string(&log)?, size));
            fs::remove_file(&log)?;
        }
        found.context("strace saw no compiler")
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.directory)?;
        entries.map(|entry| Ok(entry?.path())).collect()
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        // If the removal fails, only disk space is lost.
        let _ = fs::remove_dir_all(&self.directory);
    }
}
