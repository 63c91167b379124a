//! Whole trees from this machine into a file system, and back: names, kinds, rights, owners, times,
//! holes, extended attributes of users, hard links.
//!
//! A tree is copied below a name of its own, and has its place only when it is whole: who is
//! interrupted leaves nothing that could be taken for a copy. What cannot be read or made is told,
//! and the rest is copied.
//!
//! Modules in reading order: `workers` (threads), `local` (files of this machine), `import`,
//! `pieces` (a file's bytes on their way), `export`.

mod export;
mod import;
mod local;
mod pieces;
mod workers;

pub use export::export_tree;
pub use import::{ImportTarget, import_tree};
pub(crate) use local::open as open_local;

use crate::client::FsError;
use crate::tools::errno_words;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Threads that copy: most of the time they wait, for a disk or for the service.
const THREADS: usize = 4;
/// Names that are made by one request.
const NAMES_AT_ONCE: usize = 128;

/// How a copy goes, for whoever watches it.
#[derive(Debug, Default)]
pub struct CopyProgress {
    /// Names that are made.
    pub names: AtomicU64,
    /// Bytes of files that are copied.
    pub bytes: AtomicU64,
    /// What could not be copied.
    pub failures: AtomicU64,
    /// Owners could not be set: the server has user 0 be nobody.
    pub is_without_owners: AtomicBool,
}

/// What takes the path of something that is not copied, and why.
pub type TellFailure<'a> = &'a (dyn Fn(&[u8], &str) + Sync);

/// Why nothing is copied, or not all.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// There is something already where the copy is to be.
    #[error("{0}: there is something already: name what is not there, or an empty directory")]
    Exists(String),
    /// This machine's part.
    #[error("{path}: {why}")]
    Local {
        /// Where.
        path: String,
        /// What is the matter.
        why: String,
    },
    /// The file system's part.
    #[error("{path}: {why}")]
    Remote {
        /// Where.
        path: String,
        /// What is the matter.
        why: String,
    },
    /// It ended before its end, by an error that would come with each further file.
    #[error("{why}; what was copied so far is {rest}: remove it, or keep what you need")]
    Unfinished {
        /// What is the matter.
        why: String,
        /// Where what was copied is.
        rest: String,
    },
}

fn local_error(path: &Path, error: impl Into<io::Error>) -> CopyError {
    CopyError::Local { path: path.display().to_string(), why: words(&error.into()) }
}

fn words(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), errno_words)
}

fn words_of_fs(error: &FsError) -> String {
    match error {
        FsError::Failed { errno, .. } => errno_words(*errno),
        other => other.to_string(),
    }
}

/// What all threads of a copy share.
struct CopyTelling<'a> {
    progress: &'a CopyProgress,
    tell: TellFailure<'a>,
    /// Why it ends before its end.
    fatal: Mutex<Option<String>>,
}

impl CopyTelling<'_> {
    fn failed(&self, path: &[u8], why: &str) {
        self.progress.failures.fetch_add(1, Ordering::Relaxed);
        (self.tell)(path, why);
    }

    fn end(&self, why: String) {
        let mut fatal = self.fatal.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        fatal.get_or_insert(why);
    }

    /// Why it ended early.
    fn fatal(&self) -> Option<String> {
        self.fatal.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

/// Whether an error comes with each further file.
fn is_fatal(errno: i32) -> bool {
    matches!(errno, libc::ENOSPC | libc::EDQUOT | libc::EROFS | libc::ETIMEDOUT | libc::EINTR)
}

/// A name that no other copy has, beside a name or in a directory.
fn staging_name(name: &[u8], what: &str) -> Vec<u8> {
    let mut bytes = [0; 4];
    // Without random numbers two copies at once to one place get into each other's way, and say so.
    let _filled = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes);
    let end = format!(".{what}-{:08x}", u32::from_le_bytes(bytes));
    let room = crate::protocol::NAME_MAX - 1 - end.len();
    [b".", &name[..name.len().min(room)], end.as_bytes()].concat()
}
