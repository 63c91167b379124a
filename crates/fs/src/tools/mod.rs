//! What people ask of whole trees: find, du, count, rm -r, cp -r, done next to the tree by a few
//! requests.
//!
//! Reads no mount: paths in one are found at the server that it is of. Prints nothing by itself.
//!
//! Modules in reading order: `place` (where a path is), `resolve` (what it stands for), `program`
//! (what is asked of each name), `expression` (find's arguments) with `numbers`, `rights` and
//! `accounts`, `trail` (paths of what a walk tells), `find`, `usage` (du and count), `remove`,
//! `grep`, `tree_hash`, `cp`.

mod accounts;
mod cp;
mod expression;
mod find;
mod grep;
mod numbers;
mod place;
mod program;
mod remove;
mod resolve;
mod rights;
mod trail;
mod tree_hash;
mod usage;

pub use cp::{CpExisting, CpKeep, CpSource, CpTarget, CpWish, TreeCopier};
pub use expression::{FindAction, FindExpression, FindMoment};
pub use find::{FindTeller, FindTold, find};
pub use grep::{
    GrepBinary, GrepGoes, GrepMode, GrepNameRule, GrepNames, GrepPattern, GrepSyntax, GrepTeller,
    GrepTold, GrepTree, GrepWish, GrepWords, LineMatcher, TooManyParts, grep,
};
pub use place::FsPlace;
pub use remove::remove_tree;
pub use resolve::{LastLink, ResolvedPath, resolve};
pub use tree_hash::{TreeHash, hash_local, hash_tree};
pub use usage::{UsageLine, UsageSeen, UsageTeller, count, usage};

use crate::client::FsError;
use std::io;

/// Why something is not done, or only in part.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The caller's words.
    #[error("{0}")]
    Words(String),
    /// A path.
    #[error("{}: {why}", quoted(path))]
    Path {
        /// Which.
        path: Vec<u8>,
        /// What is the matter.
        why: String,
    },
    /// The file system.
    #[error("{}: {}", quoted(path), words_of(error))]
    Fs {
        /// The path that was asked for.
        path: Vec<u8>,
        /// Why it fails.
        error: FsError,
    },
    /// What is told cannot be written.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

/// A part that could not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldError<'a> {
    /// Its path.
    pub path: &'a [u8],
    /// The error number.
    pub errno: i32,
    /// What was not done.
    pub what: ToldFailure,
}

/// What was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToldFailure {
    /// A directory was not looked into.
    NotEntered,
    /// A name was not removed.
    NotRemoved,
    /// A file was not read.
    NotRead,
}

/// An error number in words, as strerror(3) has them.
#[must_use]
pub fn errno_words(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn words_of(error: &FsError) -> String {
    match error {
        FsError::Failed { errno, .. } => errno_words(*errno),
        other => other.to_string(),
    }
}

/// A path in quotes, as GNU's programs show one in the C locale: of bytes that are no characters of
/// ASCII their values.
#[must_use]
pub fn quoted(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len() + 2);
    text.push('\'');
    for byte in path {
        match byte {
            b'\'' => text.push_str("\\'"),
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            32..=126 => text.push(char::from(*byte)),
            other => text.push_str(&format!("\\{other:03o}")),
        }
    }
    text.push('\'');
    text
}
