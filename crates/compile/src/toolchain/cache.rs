//! Compilers that are known already, in memory and between managers.
//!
//! A known compiler is looked at again, all its files, once a second; in between only its own file
//! is.

use super::identify::identify;
use super::part::Stamp;
use super::probe::{Probe, words_for_includes};
use super::{Includes, Link, Toolchain, ToolchainError};
use crate::args::{Job, Language};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long all files of a compiler count as unchanged.
const TRUST: Duration = Duration::from_secs(1);
/// Compilers, and sets of words for each, that are kept.
const KNOWN_MAX: usize = 256;

/// Identifies compilers, each once.
#[derive(Debug, Default)]
pub struct Toolchains {
    file: Option<PathBuf>,
    known: HashMap<PathBuf, HashMap<OsString, Known>>,
    includes: HashMap<Question, Arc<Includes>>,
    /// The file has been read.
    is_loaded: bool,
}

/// What decides about the search for headers.
type Question = (super::Hash, PathBuf, Language, Vec<OsString>);

#[derive(Clone, Debug)]
struct Known {
    outcome: Result<Arc<Toolchain>, String>,
    /// The file under the compiler's name, then all parts.
    stamps: Vec<(PathBuf, Stamp)>,
    checked: Instant,
}

#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    path: OsString,
    toolchain: Toolchain,
    stamps: Vec<(PathBuf, Stamp)>,
}

impl Toolchains {
    /// Identifies compilers, and keeps what it learns in `directory` if there is one.
    #[must_use]
    pub fn new(directory: Option<&Path>) -> Self {
        let file = directory.map(|directory| directory.join("toolchains.json"));
        Self { file, ..Self::default() }
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
        self.load(now);
        if let Some(known) = self.known.get_mut(compiler).and_then(|paths| paths.get_mut(path))
            && known.holds(now)
        {
            return known.outcome.clone().map_err(ToolchainError::Again);
        }
        let stamp = Stamp::of(compiler).map_err(ToolchainError::system(compiler))?;
        let outcome = identify(compiler, path).map(Arc::new);
        let mut stamps = vec![(compiler.to_owned(), stamp)];
        if let Ok(toolchain) = &outcome {
            for part in &toolchain.parts {
                let stamp = Stamp::of(&part.path).map_err(ToolchainError::system(&part.path))?;
                stamps.push((part.path.clone(), stamp));
            }
        }
        let text = outcome.as_ref().map(Arc::clone).map_err(ToString::to_string);
        self.keep(compiler, path, Known { outcome: text, stamps, checked: now });
        self.save();
        outcome
    }

    /// Whether a compiler that was identified for a caller with this `PATH` is still the same on
    /// disk. What is not known any more counts as changed.
    pub(crate) fn is_unchanged(
        &mut self,
        toolchain: &Toolchain,
        path: &OsStr,
        now: Instant,
    ) -> bool {
        let known = self.known.get_mut(&toolchain.name).and_then(|paths| paths.get_mut(path));
        known.is_some_and(|known| known.is(toolchain) && known.holds(now))
    }

    /// Whether anybody has asked for a compiler of this name.
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

    /// The directories that `toolchain` searches for this job's headers by itself.
    ///
    /// # Errors
    /// The compiler does not say.
    pub fn includes(
        &mut self,
        toolchain: &Toolchain,
        job: &Job,
    ) -> Result<Arc<Includes>, ToolchainError> {
        let words = words_for_includes(job);
        // A relative system root is relative to where the job runs.
        let cwd = if words.is_empty() { Path::new("/") } else { &job.cwd };
        let question = (toolchain.hash, cwd.to_owned(), job.language, words);
        if let Some(includes) = self.includes.get(&question) {
            return Ok(Arc::clone(includes));
        }
        let probe = Probe { compiler: &toolchain.name, path: &job.path };
        let includes = Arc::new(probe.includes(job.language, &question.3, cwd)?);
        if self.includes.len() >= KNOWN_MAX {
            self.includes.clear();
        }
        self.includes.insert(question, Arc::clone(&includes));
        Ok(includes)
    }

    fn keep(&mut self, compiler: &Path, path: &OsStr, known: Known) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let paths = self.known.entry(compiler.to_owned()).or_default();
        if paths.len() >= KNOWN_MAX {
            paths.clear();
        }
        paths.insert(path.to_owned(), known);
    }

    /// What cannot be read is not known.
    fn load(&mut self, now: Instant) {
        if std::mem::replace(&mut self.is_loaded, true) {
            return;
        }
        let text = self.file.as_ref().and_then(|file| fs::read(file).ok()).unwrap_or_default();
        let saved: Vec<Saved> = serde_json::from_slice(&text).unwrap_or_default();
        for Saved { path, toolchain, stamps } in saved {
            let compiler = toolchain.name.clone();
            // Not looked at yet in this process.
            let checked = now.checked_sub(TRUST).unwrap_or(now);
            let known = Known { outcome: Ok(Arc::new(toolchain)), stamps, checked };
            self.keep(&compiler, &path, known);
        }
    }

    /// What cannot be written is found out again by the next manager.
    fn save(&self) {
        let Some(file) = &self.file else { return };
        let mut all = Vec::new();
        for (path, known) in self.known.values().flatten() {
            if let Ok(toolchain) = &known.outcome {
                let (path, toolchain) = (path.clone(), Toolchain::clone(toolchain));
                all.push(Saved { path, toolchain, stamps: known.stamps.clone() });
            }
        }
        let _ = write(file, &all);
    }
}

fn write(file: &Path, saved: &[Saved]) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    let hidden = file.with_extension(format!("{}", std::process::id()));
    fs::write(&hidden, serde_json::to_vec(saved)?)?;
    fs::rename(hidden, file)
}

impl Known {
    fn is(&self, toolchain: &Toolchain) -> bool {
        self.outcome.as_ref().is_ok_and(|known| known.hash == toolchain.hash)
    }

    /// Whether its files are the same as when it was identified.
    fn holds(&mut self, now: Instant) -> bool {
        let is_due = now.saturating_duration_since(self.checked) >= TRUST;
        let looked_at = if is_due { self.stamps.len() } else { 1 };
        let is_same =
            |(path, stamp): &(PathBuf, Stamp)| Stamp::of(path).is_ok_and(|found| found == *stamp);
        let mut holds = self.stamps.iter().take(looked_at).all(is_same);
        if is_due && let Ok(toolchain) = &self.outcome {
            holds &= toolchain.links.iter().all(leads_there);
        }
        if holds && is_due {
            self.checked = now;
        }
        holds
    }
}

/// Whether a link says what it said: others lead to other files, whose stamps nobody has.
fn leads_there(link: &Link) -> bool {
    fs::read_link(&link.path).is_ok_and(|target| target == link.target)
}
