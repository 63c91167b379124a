//! The cache of identified compilers, in memory and in a file that managers share.
//!
//! For each job, everything on which an identity depends is checked again (`premises`): the
//! compiler's files, and all paths at which a further file would be used instead.

use super::identify::{IdentifiedCompiler, identify};
use super::part::Premise;
use super::premises::Premises;
use super::probe::{Probe, words_for_includes};
use super::{Includes, Toolchain, ToolchainError};
use crate::args::{Job, Language};
use outboard_unix::staged::write_whole;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a compiler that could not be identified is not asked again if it does not change. It
/// may only have been too slow.
const FAILURE_KEPT: Duration = Duration::from_secs(60);
/// Compilers, and values of `PATH` for each, that are kept at most; also searches for headers.
const KNOWN_MAX: usize = 256;

/// Identifies compilers, and remembers them.
#[derive(Debug, Default)]
pub struct Toolchains {
    file: Option<PathBuf>,
    known: HashMap<PathBuf, HashMap<OsString, Arc<CachedIdentity>>>,
    includes: HashMap<Question, Arc<Includes>>,
    /// The file has been read.
    is_loaded: bool,
    saver: Saver,
}

/// What determines a search for headers: compiler, directory, language, options.
pub(crate) type Question = (super::Hash, PathBuf, Language, Vec<OsString>);

/// A question to a compiler, for a thread that may block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Unknown {
    /// Its identity, for a caller with this `PATH`.
    Compiler { compiler: PathBuf, path: OsString },
    /// Where it searches for headers.
    Includes { name: PathBuf, path: OsString, question: Question },
}

/// A compiler's answer, for [`Toolchains::learn`].
#[derive(Debug)]
pub(crate) enum Learned {
    /// Its identity, and the state of its file before it was asked.
    Compiler { own: Premise, outcome: Result<Box<IdentifiedCompiler>, ToolchainError> },
    /// Where it searches for headers.
    Includes(Result<Includes, ToolchainError>),
}

impl Unknown {
    /// The path of the compiler that it is about.
    pub(crate) fn compiler(&self) -> &Path {
        match self {
            Self::Compiler { compiler, .. } => compiler,
            Self::Includes { name, .. } => name,
        }
    }

    /// Runs the compiler, and waits for it.
    pub(crate) fn ask(&self) -> Learned {
        match self {
            Self::Compiler { compiler, path } => Learned::Compiler {
                own: Premise::of(compiler.clone()),
                outcome: identify(compiler, path).map(Box::new),
            },
            Self::Includes { name, path, question: (_, cwd, language, words) } => {
                let probe = Probe { compiler: name, path };
                Learned::Includes(probe.includes(*language, words, cwd))
            }
        }
    }
}

/// What is remembered of a compiler; threads may check it.
#[derive(Debug)]
pub(crate) struct CachedIdentity {
    outcome: Result<Arc<Toolchain>, String>,
    /// The compiler's own file, then everything else on which the outcome depends.
    premises: Premises,
    learned: Instant,
}

#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    path: OsString,
    toolchain: Toolchain,
    premises: Vec<Premise>,
}

impl Toolchains {
    /// An empty cache; its file is in `directory`, if one is given.
    #[must_use]
    pub fn new(directory: Option<&Path>) -> Self {
        let file = directory.map(|directory| directory.join("toolchains.json"));
        Self { file, ..Self::default() }
    }

    /// Another cache with the same file.
    pub(crate) fn another(&self) -> Self {
        Self { file: self.file.clone(), ..Self::default() }
    }

    /// The compiler behind `compiler`, an absolute path, for a caller whose `PATH` is `path`.
    ///
    /// # Errors
    /// See [`ToolchainError`]; a compiler that could not be identified is tried again when it has
    /// changed.
    pub fn identify(
        &mut self,
        compiler: &Path,
        path: &OsStr,
        now: Instant,
    ) -> Result<Arc<Toolchain>, ToolchainError> {
        if let Some(known) = self.recall(compiler, path, now) {
            return known;
        }
        let own = Premise::of(compiler.into());
        let outcome = self.learn_compiler(compiler, path, own, identify(compiler, path), now);
        if let Some(file) = &self.file {
            // What cannot be written is identified again by the next process.
            let _written = write(file, &self.saved());
        }
        outcome
    }

    /// The remembered identity of a compiler. Looks at files, and does not run the compiler.
    pub(crate) fn recall(
        &mut self,
        compiler: &Path,
        path: &OsStr,
        now: Instant,
    ) -> Option<Result<Arc<Toolchain>, ToolchainError>> {
        let known = self.remembered(compiler, path, now)?;
        let holds = known.holds(now);
        holds.then(|| known.outcome.clone().map_err(ToolchainError::Again))
    }

    fn learn_compiler(
        &mut self,
        compiler: &Path,
        path: &OsStr,
        own: Premise,
        outcome: Result<IdentifiedCompiler, ToolchainError>,
        now: Instant,
    ) -> Result<Arc<Toolchain>, ToolchainError> {
        // A changed compiler may also search for headers in other directories.
        self.includes.clear();
        let mut premises = vec![own];
        let outcome = outcome.map(|identified| {
            premises.extend(identified.premises);
            Arc::new(identified.toolchain)
        });
        let kept = outcome.as_ref().map(Arc::clone).map_err(ToString::to_string);
        let premises = Premises::new(premises);
        self.keep(compiler, path, CachedIdentity { outcome: kept, premises, learned: now });
        outcome
    }

    /// Remembers an answer; an error is remembered for a while.
    pub(crate) fn learn(
        &mut self,
        unknown: &Unknown,
        learned: Learned,
        now: Instant,
    ) -> Result<(), ToolchainError> {
        match (unknown, learned) {
            (Unknown::Compiler { compiler, path }, Learned::Compiler { own, outcome }) => {
                let outcome = outcome.map(|identified| *identified);
                let outcome = self.learn_compiler(compiler, path, own, outcome, now).map(drop);
                if let Some(file) = &self.file {
                    self.saver.save(file, self.saved());
                }
                outcome
            }
            (Unknown::Includes { question, .. }, Learned::Includes(includes)) => {
                self.keep_includes(question.clone(), includes?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What is remembered of a compiler for a caller with this `PATH`. Looks at no file but, once,
    /// its own.
    pub(crate) fn remembered(
        &mut self,
        compiler: &Path,
        path: &OsStr,
        now: Instant,
    ) -> Option<Arc<CachedIdentity>> {
        self.load(now);
        self.known.get(compiler)?.get(path).map(Arc::clone)
    }

    /// Whether a compiler of this name was ever identified.
    #[cfg(test)]
    pub(crate) fn knows(&self, compiler: &Path) -> bool {
        self.known.contains_key(compiler)
    }

    /// Forgets a compiler, by all its names.
    pub(crate) fn forget(&mut self, toolchain: &Toolchain) {
        for paths in self.known.values_mut() {
            paths.retain(|_, known| !known.is(toolchain));
        }
    }

    /// The directories in which `toolchain` searches for this job's headers by default.
    ///
    /// # Errors
    /// The compiler does not answer.
    pub fn includes(
        &mut self,
        toolchain: &Toolchain,
        job: &Job,
    ) -> Result<Arc<Includes>, ToolchainError> {
        let question = match self.recall_includes(toolchain, job) {
            Ok(includes) => return Ok(includes),
            Err(question) => question,
        };
        let probe = Probe { compiler: &toolchain.name, path: &job.path };
        let includes = probe.includes(job.language, &question.3, &question.1)?;
        Ok(self.keep_includes(question, includes))
    }

    /// The remembered directories; the error is the question to ask.
    pub(crate) fn recall_includes(
        &self,
        toolchain: &Toolchain,
        job: &Job,
    ) -> Result<Arc<Includes>, Question> {
        let words = words_for_includes(job);
        // A relative system root is relative to where the job runs.
        let cwd = if words.is_empty() { Path::new("/") } else { &job.cwd };
        let question = (toolchain.hash, cwd.to_owned(), job.language, words);
        self.includes.get(&question).map(Arc::clone).ok_or(question)
    }

    fn keep_includes(&mut self, question: Question, includes: Includes) -> Arc<Includes> {
        if self.includes.len() >= KNOWN_MAX {
            self.includes.clear();
        }
        let includes = Arc::new(includes);
        self.includes.insert(question, Arc::clone(&includes));
        includes
    }

    fn keep(&mut self, compiler: &Path, path: &OsStr, known: CachedIdentity) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let paths = self.known.entry(compiler.to_owned()).or_default();
        if paths.len() >= KNOWN_MAX {
            paths.clear();
        }
        paths.insert(path.to_owned(), Arc::new(known));
    }

    /// Reads the file. If that fails, no compiler is known.
    fn load(&mut self, now: Instant) {
        if std::mem::replace(&mut self.is_loaded, true) {
            return;
        }
        let text = self.file.as_ref().and_then(|file| fs::read(file).ok()).unwrap_or_default();
        let saved: Vec<Saved> = serde_json::from_slice(&text).unwrap_or_default();
        for Saved { path, toolchain, premises } in saved {
            let compiler = toolchain.name.clone();
            let outcome = Ok(Arc::new(toolchain));
            let premises = Premises::new(premises);
            let known = CachedIdentity { outcome, premises, learned: now };
            self.keep(&compiler, &path, known);
        }
    }

    /// What is worth keeping in the file.
    fn saved(&self) -> Vec<Saved> {
        let known = self.known.values().flatten();
        let good =
            known.filter_map(|(path, known)| Some((path, known, known.outcome.as_ref().ok()?)));
        let saved = good.map(|(path, known, toolchain)| Saved {
            path: path.clone(),
            toolchain: Toolchain::clone(toolchain),
            premises: known.premises.states().to_vec(),
        });
        saved.collect()
    }
}

/// Writes the file on threads, the newest state last: a loop that learns does not wait for a disk.
#[derive(Debug, Default)]
struct Saver {
    newest: Arc<Mutex<Option<Vec<Saved>>>>,
    writing: Arc<Mutex<()>>,
}

impl Saver {
    fn save(&self, file: &Path, saved: Vec<Saved>) {
        *lock(&self.newest) = Some(saved);
        // One thread that writes, and one that waits to write what comes meanwhile.
        if Arc::strong_count(&self.writing) > 2 {
            return;
        }
        let (file, newest) = (file.to_owned(), Arc::clone(&self.newest));
        let writing = Arc::clone(&self.writing);
        let write_newest = move || {
            let _alone = lock(&writing);
            let saved = lock(&newest).take();
            // What cannot be written is identified again by the next process.
            let _written = saved.map(|saved| write(&file, &saved));
        };
        // Without a thread it is written with the next that is learned.
        let _started = thread::Builder::new().name("outboard-save".into()).spawn(write_newest);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(file: &Path, saved: &[Saved]) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    let hidden = file.with_extension(std::process::id().to_string());
    write_whole(file, hidden, &serde_json::to_vec(saved)?)
}

impl CachedIdentity {
    /// Whether it is this compiler's.
    pub(crate) fn is(&self, toolchain: &Toolchain) -> bool {
        self.outcome.as_ref().is_ok_and(|known| known.hash == toolchain.hash)
    }

    /// The compiler, if it could be identified.
    pub(crate) fn toolchain(&self) -> Option<Arc<Toolchain>> {
        self.outcome.as_ref().ok().map(Arc::clone)
    }

    /// Whether everything on which it depends is the same as when it was identified. Looks at
    /// files.
    pub(crate) fn holds(&self, now: Instant) -> bool {
        match &self.outcome {
            Ok(toolchain) => self.premises.hold(&toolchain.links),
            Err(_) => {
                let is_fresh = now.saturating_duration_since(self.learned) < FAILURE_KEPT;
                is_fresh && self.premises.hold(&[])
            }
        }
    }
}
