//! Prepares one job: identifies its compiler, and exports the directories that the job may need.

use super::{FileReply, FileRequest, PreparedJob, Worker, ring};
use crate::args::{Cause, DirectoryRole, Job, Reason};
use crate::client::places;
use crate::toolchain::{Includes, Learned, Toolchain, ToolchainError, Unknown};
use outboard_unix::names::without_dots;
use std::collections::hash_map::Entry;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long jobs wait for a compiler that is asked what it is.
pub(crate) const ASKED_MAX: Duration = Duration::from_secs(10);

/// A job that waits for its compiler's answer.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) ticket: u64,
    pub(super) job: Arc<Job>,
    pub(super) is_preprocessed: bool,
}

/// Why a job is not ready.
enum Unready {
    Unknown(Unknown),
    Refused(Reason),
}

impl From<Reason> for Unready {
    fn from(reason: Reason) -> Self {
        Self::Refused(reason)
    }
}

impl Worker {
    pub(super) fn prepare(&mut self, waiting: Waiting) {
        let prepared = match self.look(&waiting.job, waiting.is_preprocessed) {
            Ok(prepared) => Ok(prepared),
            Err(Unready::Refused(reason)) => Err(reason),
            Err(Unready::Unknown(unknown)) => return self.ask_compiler(unknown, waiting),
        };
        self.reply(FileReply::Prepared { ticket: waiting.ticket, prepared });
    }

    fn look(&mut self, job: &Job, is_preprocessed: bool) -> Result<PreparedJob, Unready> {
        let compiler = job.absolute(&job.compiler);
        for path in [&compiler, &job.cwd, &job.absolute(&job.source)] {
            if self.is_avoided(path) {
                return Err(Reason::with(Cause::Unanswered, path).into());
            }
        }
        self.at(Some(&compiler));
        let known = self.toolchains.recall(&compiler, &job.path, Instant::now());
        let path = job.path.clone();
        let known = known.ok_or(Unready::Unknown(Unknown::Compiler { compiler, path }))?;
        let toolchain = known.map_err(unknown)?;
        if let Some(library) = preferred(job, &toolchain) {
            return Err(Reason::with(Cause::Environment, library).into());
        }
        if is_preprocessed {
            let (places, position) = (places::needed(job), Default::default());
            return Ok(PreparedJob { toolchain, places, position });
        }
        let includes = self.toolchains.recall_includes(&toolchain, job).map_err(|question| {
            let (name, path) = (toolchain.name.clone(), job.path.clone());
            Unready::Unknown(Unknown::Includes { name, path, question })
        })?;
        // Notices that a project was removed and created again since it was exported.
        self.at(None);
        let mut position = self.export.submit();
        let (shown, is_news) = self.show(job, &toolchain, &includes);
        let source = without_dots(&job.absolute(&job.source));
        if !shown.iter().any(|root| source.starts_with(root)) {
            return Err(Reason::with(Cause::Refused, source).into());
        }
        if is_news {
            self.at(None);
            position = self.export.submit();
        }
        Ok(PreparedJob { toolchain, places: places::unseen(job, &shown), position })
    }

    /// Exports the directories that a job may need. Returns those that are exported, and whether
    /// any is new.
    fn show(
        &mut self,
        job: &Job,
        toolchain: &Toolchain,
        includes: &Includes,
    ) -> (Vec<PathBuf>, bool) {
        let (mut shown, mut is_news) = (Vec::new(), false);
        let named =
            job.directories.iter().filter(|directory| directory.role == DirectoryRole::Shown);
        for root in named.map(|directory| without_dots(&job.absolute(&directory.path))) {
            is_news |= self.allow(&root, true, &mut shown);
        }
        // `PWD` may name the working directory by another path, through links; so may outputs.
        let way = job.env.iter().find(|(name, _)| name == "PWD").map(|(_, way)| PathBuf::from(way));
        let way = way.filter(|way| way.is_absolute()).map(|way| without_dots(&way));
        let roots = self.projects(job);
        let outputs = self.outputs_behind_links(job);
        for root in roots.into_iter().chain(way).chain(outputs) {
            is_news |= self.allow(&root, false, &mut shown);
        }
        // Directories of the compiler's search path, also those that do not exist.
        let own = toolchain.install_dirs.iter().chain(&includes.found).chain(&includes.absent);
        for root in own {
            is_news |= self.allow(root, false, &mut Vec::new());
        }
        (shown, is_news)
    }

    /// The directories that a job names, with their projects.
    fn projects(&mut self, job: &Job) -> Vec<PathBuf> {
        let source = without_dots(&job.absolute(&job.source));
        for directory in [Some(&*job.cwd), source.parent()].into_iter().flatten() {
            // Noted one by one, so that it is known where the thread hangs if it does.
            self.at(Some(directory));
            self.roots.project(&without_dots(directory));
        }
        self.roots.of(job)
    }

    fn outputs_behind_links(&self, job: &Job) -> Vec<PathBuf> {
        let outputs = job.outputs.iter().map(|output| without_dots(&job.absolute(output.path())));
        let mut directories: Vec<_> =
            outputs.filter_map(|output| Some(output.parent()?.to_path_buf())).collect();
        directories.dedup();
        directories.retain(|directory| {
            self.at(Some(directory));
            !self.is_avoided(directory)
                && directory.canonicalize().is_ok_and(|real| real != *directory)
        });
        directories
    }

    /// Exports a directory. If it may not be exported, the job runs locally only if its compiler
    /// looks there.
    fn allow(&mut self, root: &Path, is_named: bool, shown: &mut Vec<PathBuf>) -> bool {
        if self.is_avoided(root) {
            return false;
        }
        self.at(Some(root));
        let allowed =
            if is_named { self.export.allow_hidden(root) } else { self.export.allow(root) };
        shown.extend(allowed.is_ok().then(|| root.to_path_buf()));
        allowed.unwrap_or_default()
    }

    /// Starts a thread that asks the compiler; the job waits for the answer.
    fn ask_compiler(&mut self, unknown: Unknown, waiting: Waiting) {
        match self.asking.entry(unknown.clone()) {
            Entry::Occupied(mut asked) if asked.get().0.elapsed() < ASKED_MAX => {
                return asked.get_mut().1.push(waiting);
            }
            Entry::Occupied(_) => {
                let prepared = Err(Reason::with(Cause::Unanswered, &waiting.job.compiler));
                return self.reply(FileReply::Prepared { ticket: waiting.ticket, prepared });
            }
            Entry::Vacant(new) => drop(new.insert((Instant::now(), vec![waiting]))),
        }
        let (requests, waker) = (self.requests.clone(), Arc::clone(&self.wake));
        thread::spawn(move || {
            let learned = Box::new(unknown.ask());
            // This worker may have been abandoned.
            let _sent = requests.send(FileRequest::Learned(unknown, learned));
            ring(&waker);
        });
    }

    pub(super) fn learn(&mut self, unknown: &Unknown, learned: Learned) {
        let waiting = self.asking.remove(unknown).map(|(_, waiting)| waiting).unwrap_or_default();
        let learned = self.toolchains.learn(unknown, learned, Instant::now());
        for waiting in waiting {
            match &learned {
                Ok(()) => self.prepare(waiting),
                Err(error) => {
                    let prepared = Err(Reason::with(Cause::NoToolchain, error.to_string()));
                    self.reply(FileReply::Prepared { ticket: waiting.ticket, prepared });
                }
            }
        }
    }
}

/// A library that the local compiler would load because of `LD_LIBRARY_PATH`, unlike a remote one.
fn preferred(job: &Job, toolchain: &Toolchain) -> Option<PathBuf> {
    let first =
        job.directories.iter().filter(|directory| directory.role == DirectoryRole::Libraries);
    let mut first = first.map(|directory| job.absolute(&directory.path)).filter(|at| at.is_dir());
    let parts = || toolchain.parts.iter().map(|part| &part.path);
    let named = parts().chain(toolchain.links.iter().map(|link| &link.path));
    let is_library = |name: &&OsStr| name.as_bytes().windows(3).any(|part| part == b".so");
    let names: Vec<_> = named.filter_map(|path| path.file_name()).filter(is_library).collect();
    let is_other = |at: &PathBuf| at.canonicalize().is_ok_and(|real| parts().all(|at| *at != real));
    first.find_map(|directory| names.iter().map(|name| directory.join(name)).find(is_other))
}

fn unknown(error: ToolchainError) -> Reason {
    Reason::with(Cause::NoToolchain, error.to_string())
}
