//! Files that only their owner reads: one line of text, made once, never overwritten.
//!
//! ```text
//! outboard-cluster-key-1 <64 hexadecimal digits>
//! outboard-service-key-1 compile <64 hexadecimal digits>
//! outboard-identity-1 <64 hexadecimal digits>
//! ```
//!
//! A file appears whole or not at all, and of several that are made at once under one name, one
//! wins. Never shows what a file holds, not even in errors.

use crate::secret::NoEntropy;
use outboard_unix::staged::{StagedFile, directory_of, sync_directory_of};
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// What a key file may hold; its first word says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// A cluster's key.
    ClusterKey,
    /// One service's key.
    ServiceKey,
    /// A node's or user's static key.
    Identity,
}

/// Why a file that only its owner may read is not read, or not made.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// There is none.
    #[error(
        "there is no {}: copy it from a machine that has it, or make one with `outboard key new`",
        path.display()
    )]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The system refuses to read.
    #[error(
        "{} cannot be read: {source}; check the owner and mode of the file and its directory",
        path.display()
    )]
    Read {
        /// What was to be read.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system refuses to write.
    #[error("{} cannot be written: {source}; choose a directory of your own", path.display())]
    Write {
        /// What was to be written.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A directory, a device or another special file.
    #[error("{} is no ordinary file: name the file itself", path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// Others have rights that they must not have.
    #[error(
        "{} has mode {mode:03o}, so that others than its owner have rights to it: chmod \
         {allowed:03o} it, and if it is a key that others may have read, make a new one",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Permission bits that it may have at most.
        allowed: u32,
    },
    /// It belongs to another user.
    #[error(
        "{} belongs to user {owner} and this process runs as user {user}: make a file of your own, \
         or run as its owner", path.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
        /// The effective user id of this process.
        user: u32,
    },
    /// It holds something else.
    #[error("{} must be one line \"{expected}\" and {}", path.display(), held(*found))]
    Format {
        /// The file.
        path: PathBuf,
        /// What was expected of it.
        expected: Holding,
        /// The kind of key file that its first word names, if it is known.
        found: Option<Holding>,
    },
    /// It is longer than such files are.
    #[error("{} has more than {len_max} bytes: name another file", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Bytes that such a file has at most.
        len_max: u64,
    },
    /// It is there already, and key files are never overwritten.
    #[error(
        "{} is there already and is not overwritten: use it, or name another file",
        path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// No random numbers for what was to be written.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
}

impl Holding {
    const ALL: [Self; 3] = [Self::ClusterKey, Self::ServiceKey, Self::Identity];

    /// The first word of such a file.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::ClusterKey => "outboard-cluster-key-1",
            Self::ServiceKey => "outboard-service-key-1",
            Self::Identity => "outboard-identity-1",
        }
    }

    fn of(text: &str) -> Option<Self> {
        let label = text.split(' ').next();
        Self::ALL.into_iter().find(|holding| label == Some(holding.label()))
    }
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if *self == Self::ServiceKey { "<name> " } else { "" };
        write!(f, "{} {name}<64 hexadecimal digits>", self.label())
    }
}

fn held(found: Option<Holding>) -> &'static str {
    match found {
        Some(Holding::ClusterKey) => "starts like a cluster key: name another file",
        Some(Holding::ServiceKey) => "starts like a service key: name another file",
        Some(Holding::Identity) => "starts like an identity: name another file",
        None => "is not: name another file, or restore this one",
    }
}

/// What a file may be like.
#[derive(Clone, Copy)]
pub(crate) struct Rule {
    /// Permission bits that it may have at most.
    pub(crate) allowed: u32,
    pub(crate) len_max: u64,
}

/// A file whose contents no other user may know.
const SECRET: Rule = Rule { allowed: 0o700, len_max: 1024 };

/// Reads a key file and takes it apart with `parse`, which is given its line without the end.
pub(crate) fn load<T>(
    path: &Path,
    expected: Holding,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, KeyFileError> {
    let bytes = read(path, SECRET)?;
    let line = str::from_utf8(&bytes).unwrap_or_default().trim_ascii_end();
    let found = Holding::of(line);
    let parsed = if found == Some(expected) { parse(line) } else { None };
    parsed.ok_or_else(|| KeyFileError::Format { path: path.into(), expected, found })
}

/// Reads a key file, made from `fresh` if there is none. The first process decides what it holds.
pub(crate) fn load_or_create<T>(
    path: &Path,
    expected: Holding,
    parse: impl FnOnce(&str) -> Option<T>,
    fresh: impl FnOnce() -> Result<Zeroizing<String>, NoEntropy>,
) -> Result<T, KeyFileError> {
    if !path.exists() {
        match create_with_parent(path, &fresh()?) {
            Ok(()) | Err(KeyFileError::Exists { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    load(path, expected, parse)
}

/// As [`create`], with its directory.
pub(crate) fn create_with_parent(path: &Path, line: &str) -> Result<(), KeyFileError> {
    make_parent(path)?;
    create(path, line)
}

/// Makes a key file that is whole as soon as it is there.
pub(crate) fn create(path: &Path, line: &str) -> Result<(), KeyFileError> {
    if path.file_name().is_none() {
        return Err(KeyFileError::NotAFile { path: path.into() });
    }
    write_new(path, line).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyFileError::Exists { path: path.into() },
        _ => KeyFileError::Write { path: path.into(), source },
    })
}

fn write_new(path: &Path, line: &str) -> io::Result<()> {
    let mut staged = StagedFile::create_in(directory_of(path))?;
    staged.write_all(line.as_bytes())?;
    staged.write_all(b"\n")?;
    staged.file().sync_all()?;
    staged.link_to(path)?;
    sync_directory_of(path)
}

pub(crate) fn make_parent(path: &Path) -> Result<(), KeyFileError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory_of(path));
    made.map_err(|source| KeyFileError::Write { path: path.into(), source })
}

/// Reads a whole file that is the reader's own and gives no rights beyond the rule's.
pub(crate) fn read(path: &Path, rule: Rule) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => KeyFileError::Missing { path: path.into() },
        _ => KeyFileError::Read { path: path.into(), source },
    };
    // Looked at before it is opened, because opening a pipe waits for its writer.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(KeyFileError::NotAFile { path: path.into() });
    }
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    check_owner(path, metadata.uid())?;
    check_mode(path, metadata.mode() & 0o777, rule)?;
    // Room for everything at once: a buffer that grows leaves copies behind.
    let room = metadata.len().min(rule.len_max) + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(room).unwrap_or_default()));
    file.take(rule.len_max + 1).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > rule.len_max) {
        return Err(KeyFileError::TooLong { path: path.into(), len_max: rule.len_max });
    }
    Ok(bytes)
}

fn check_owner(path: &Path, owner: u32) -> Result<(), KeyFileError> {
    let user = rustix::process::geteuid().as_raw();
    if owner == user {
        return Ok(());
    }
    Err(KeyFileError::Owner { path: path.into(), owner, user })
}

fn check_mode(path: &Path, mode: u32, rule: Rule) -> Result<(), KeyFileError> {
    if mode & !rule.allowed == 0 {
        return Ok(());
    }
    // The permission bits that remain.
    let allowed = rule.allowed & 0o666;
    Err(KeyFileError::Exposed { path: path.into(), mode, allowed })
}
