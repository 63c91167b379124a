//! What a store is to others: one of its own, a replica, one that was promoted, or one that was
//! replaced. A file of one line says so; where there is none, the store is one of its own.

use super::error::FsStoreError;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Its file.
pub(crate) const NAME: &str = "role";
/// Bytes of the file, at most.
const LEN_MAX: usize = 1024;

/// See this file's first lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreRole {
    /// Nobody else has anything to do with it.
    #[default]
    Own,
    /// It follows the store of this number.
    Replica([u8; 16]),
    /// It was a replica, and is served now.
    Promoted,
    /// Another server has a later epoch.
    Fenced {
        /// Which.
        epoch: u64,
        /// Where it was met, or who has told of it.
        by: String,
    },
}

impl fmt::Display for StoreRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("own"),
            Self::Replica(of) => {
                f.write_str("replica ")?;
                of.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::Promoted => f.write_str("promoted"),
            Self::Fenced { epoch, by } => write!(f, "fenced {epoch} {by}"),
        }
    }
}

impl StoreRole {
    /// What a directory is to others.
    ///
    /// # Errors
    /// [`FsStoreError`].
    pub fn of(dir: &Path) -> Result<Self, FsStoreError> {
        match fs::read_to_string(dir.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Own),
            read => {
                let text = read.map_err(|source| FsStoreError::of(NAME, source))?;
                let parsed = Self::parse(text.trim_end());
                parsed.ok_or_else(|| FsStoreError::damaged(NAME, "it names no role"))
            }
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if text.len() > LEN_MAX {
            return None;
        }
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "own" => Some(Self::Own),
            "promoted" => Some(Self::Promoted),
            "replica" if rest.len() == 32 => {
                let half = |at: usize| u8::from_str_radix(rest.get(at..at + 2)?, 16).ok();
                let mut of = [0; 16];
                for (index, byte) in of.iter_mut().enumerate() {
                    *byte = half(2 * index)?;
                }
                Some(Self::Replica(of))
            }
            "fenced" => {
                let (epoch, by) = rest.split_once(' ')?;
                Some(Self::Fenced { epoch: epoch.parse().ok()?, by: by.to_owned() })
            }
            _ => None,
        }
    }

    /// Makes it so, and returns when that outlives a power cut.
    ///
    /// # Errors
    /// [`FsStoreError`].
    pub fn set(&self, dir: &Path) -> Result<(), FsStoreError> {
        let next = dir.join(format!("{NAME}.next"));
        let write = || -> io::Result<()> {
            let mut file = File::create(&next)?;
            writeln!(file, "{self}")?;
            file.sync_all()?;
            fs::rename(&next, dir.join(NAME))?;
            File::open(dir)?.sync_all()
        };
        write().map_err(|source| FsStoreError::of(NAME, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_found_again() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(StoreRole::of(dir.path()).expect("none"), StoreRole::Own);
        for role in [
            StoreRole::Replica([0xab; 16]),
            StoreRole::Promoted,
            StoreRole::Fenced { epoch: 7, by: "n02:7410".into() },
            StoreRole::Own,
        ] {
            role.set(dir.path()).expect("set");
            assert_eq!(StoreRole::of(dir.path()).expect("read"), role);
        }
        for bad in ["", "replica", "replica zz", "fenced", "fenced x y", "king"] {
            fs::write(dir.path().join(NAME), bad).expect("written");
            assert!(StoreRole::of(dir.path()).is_err(), "{bad}");
        }
    }
}
