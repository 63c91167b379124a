//! Which compiler a name stands for: all the files that make up its results, under one hash.
//!
//! Client and server both identify compilers here, so that they mean the same by a hash.
//! Identifying runs the compiler a few times with questions that compile nothing; what it answered
//! is kept, in memory and in a file, as long as its files are the same.
//!
//! Modules in reading order: `part` (one file, its links and its hash), `run`
//! (programs that are asked), `probe` (what a compiler
//! says about itself), `elf` (what a program needs to be loaded), `identify` (all of it), `cache`
//! ([`Toolchains`]).

mod cache;
mod elf;
mod identify;
mod part;
mod probe;
mod run;
#[cfg(test)]
mod tests;

pub use cache::Toolchains;
pub use part::{Link, Part, Role};
pub(crate) use part::{behind, hash_of};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// A compiler with everything that it runs and loads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toolchain {
    /// How it was called.
    pub name: PathBuf,
    /// The real driver, behind all links.
    pub driver: PathBuf,
    /// What kind of compiler it is.
    pub kind: Kind,
    /// Names the parts, not the name: two names of one compiler have one hash.
    pub hash: Hash,
    /// Its files, sorted by path.
    pub parts: Vec<Part>,
    /// Links on the ways from names to parts, sorted by path.
    pub links: Vec<Link>,
    /// Directories of its own: headers, specs and programs that come with it.
    pub install_dirs: Vec<PathBuf>,
    /// What it and its loader ask for and need not find. A star in a name stands for any octets.
    pub probes_absent: Vec<PathBuf>,
}

/// The family of a compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
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
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Directories that are searched for headers by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Includes {
    /// Those that are there, in the order of the search.
    pub found: Vec<PathBuf>,
    /// Those that are asked for and are not there.
    pub absent: Vec<PathBuf>,
}

/// Why a compiler cannot be identified. Its jobs run at home.
#[derive(Debug, thiserror::Error)]
pub enum ToolchainError {
    /// It is a script, or a stand-in that looks for the compiler itself: what it runs is not known.
    #[error("{} is {what}: name the compiler behind it", path.display())]
    Indirect {
        /// What was called.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// It did not answer a question as GCC and clang do.
    #[error("{} did not say {question}", path.display())]
    Mute {
        /// The compiler.
        path: PathBuf,
        /// What it was asked.
        question: String,
    },
    /// A file of it cannot be read, or a program of it cannot be run.
    #[error("{}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What the system said.
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
