//! Identifies compilers: one hash over all files that determine a compiler's results.
//!
//! Client and server both use this module, so that a hash means the same to them. To identify a
//! compiler, it is run a few times with options that make it print its properties; the answers are
//! kept, in memory and in a file, as long as its files do not change.
//!
//! Modules in reading order: `part` (one file, its links and its hash), `run` (programs that are
//! asked), `probe` (what a compiler says about itself), `elf` (what a program needs to be loaded),
//! `identify` (all of it), `premises` (looking again), `cache` ([`Toolchains`]).

mod cache;
mod elf;
mod identify;
mod part;
mod premises;
mod probe;
mod run;
#[cfg(test)]
mod tests;

pub use cache::Toolchains;
pub(crate) use cache::{CachedIdentity, Learned, Unknown};
pub use part::{Part, PartRole, PartSymlink};
pub(crate) use part::{behind, hash_of};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The libraries that a program's own loader would load for it, and the loader, in its order: the
/// program itself is not run. None if it is linked statically.
///
/// # Errors
/// It cannot be read, is no ELF program, or lacks a library.
pub fn libraries_of(program: &Path) -> io::Result<Vec<PathBuf>> {
    match elf::image(program)? {
        elf::Image::Dynamic(loader) => elf::libraries(&loader, program),
        elf::Image::Static => Ok(Vec::new()),
        elf::Image::Script | elf::Image::Other => Err(io::Error::other("it is no ELF program")),
    }
}

/// A compiler with everything that it runs and loads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toolchain {
    /// The path by which it was called.
    pub name: PathBuf,
    /// The real driver, behind all links.
    pub driver: PathBuf,
    /// What kind of compiler it is.
    pub kind: CompilerFamily,
    /// Hash of the parts, not of the name: two names of one compiler have one hash.
    pub hash: Hash,
    /// Its files, sorted by path.
    pub parts: Vec<Part>,
    /// Symbolic links between names and parts, sorted by path.
    pub links: Vec<PartSymlink>,
    /// Its own directories: headers, specs and programs that come with it.
    pub install_dirs: Vec<PathBuf>,
    /// Paths that it and its loader look for and need not find. A star stands for any bytes of a
    /// name.
    pub probes_absent: Vec<PathBuf>,
}

/// The family of a compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompilerFamily {
    /// GCC.
    Gcc,
    /// clang.
    Clang,
}

/// BLAKE3, of a file or of a whole compiler.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hash(pub [u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The directories in which a compiler searches for headers by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Includes {
    /// Those that exist, in the order of the search.
    pub found: Vec<PathBuf>,
    /// Those that do not exist.
    pub absent: Vec<PathBuf>,
}

/// Why a compiler cannot be identified. Its jobs run locally.
#[derive(Debug, thiserror::Error)]
pub enum ToolchainError {
    /// It is a script, or a wrapper that searches for the compiler itself: what it would run is not
    /// known.
    #[error("{} is {what}: name the compiler behind it", path.display())]
    Indirect {
        /// The program.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// It did not answer a question as GCC and clang do.
    #[error("{} did not say {question}", path.display())]
    Mute {
        /// The compiler.
        path: PathBuf,
        /// The question.
        question: String,
    },
    /// One of its files cannot be read, or one of its programs cannot be run.
    #[error("{}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It could not be identified a moment ago, and has not changed.
    #[error("{}", .0)]
    Again(String),
}

impl ToolchainError {
    fn system(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::System { path, source }
    }
}
