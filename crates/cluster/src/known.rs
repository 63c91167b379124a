//! The node met at each address: trust on first use. A text file of `host:port node` lines, `#`
//! before comments.
//!
//! Every holder of a service's key can offer the service (a user to whom it was exported, too), so
//! a client that was once at the right place remembers the node that it met. It does not replace
//! the key.

use outboard_secure::NodeId;
use outboard_unix::staged::directory_of;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of the file, at most: some 100,000 nodes.
const LEN_MAX: u64 = 8 << 20;

/// A list of known nodes in a file.
#[derive(Clone, Debug)]
pub struct KnownNodes {
    path: PathBuf,
}

/// Why a node is not accepted as the one that was met before.
#[derive(Debug, thiserror::Error)]
pub enum KnownError {
    /// Another node is there now.
    #[error(
        "{place} was node {expected} before and is {found} now: someone else may answer there with \
         the service's key; only if the machine was set up anew, remove line {line} of {}",
        path.display()
    )]
    Changed {
        /// Host and port.
        place: String,
        /// The node that was met there first.
        expected: NodeId,
        /// The node that is there.
        found: NodeId,
        /// Where that is written, from 1.
        line: usize,
        /// The list.
        path: PathBuf,
    },
    /// The list has a line that is none.
    #[error("line {line} of {} must be \"host:port node\": correct or remove it", path.display())]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The list.
        path: PathBuf,
    },
    /// The list cannot be read or written.
    #[error("{}, the list of known nodes: {source}; {}", path.display(), advice(source))]
    File {
        /// The list.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl KnownNodes {
    /// The list in this file, which need not exist yet.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.into() }
    }

    /// Compares a node with the one met at this address before; a new address is written down.
    ///
    /// # Errors
    /// See [`KnownError`].
    pub fn check(&self, place: &str, found: NodeId) -> Result<(), KnownError> {
        match self.look_up(place)? {
            Some((expected, _)) if expected == found => Ok(()),
            Some((expected, line)) => {
                let (place, path) = (place.to_owned(), self.path.clone());
                Err(KnownError::Changed { place, expected, found, line, path })
            }
            None => self.append(place, found).map_err(|source| self.failed(source)),
        }
    }

    /// The node first met at an address, and the line that says so.
    fn look_up(&self, place: &str) -> Result<Option<(NodeId, usize)>, KnownError> {
        let text = self.read().map_err(|source| self.failed(source))?;
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let wrong = || KnownError::Line { line: index + 1, path: self.path.clone() };
            let mut words = line.split_ascii_whitespace();
            let Some(first) = words.next() else { continue };
            let node = words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
            if first == place {
                return Ok(Some((node, index + 1)));
            }
        }
        Ok(None)
    }

    fn read(&self) -> io::Result<String> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            opened => opened?,
        };
        let mut text = String::new();
        file.take(LEN_MAX).read_to_string(&mut text)?;
        Ok(text)
    }

    fn append(&self, place: &str, node: NodeId) -> io::Result<()> {
        let open = || OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path);
        let mut file = match open() {
            // Where key and identity are files of the operator's choice, nothing has made it yet.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let directory = directory_of(&self.path);
                DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
                open()?
            }
            opened => opened?,
        };
        // One write, so that lines of several processes do not mix.
        file.write_all(format!("{place} {node}\n").as_bytes())
    }

    fn failed(&self, source: io::Error) -> KnownError {
        KnownError::File { path: self.path.clone(), source }
    }
}

/// What to do about a list that cannot be read or written.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        ErrorKind::ReadOnlyFilesystem | ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "XDG_CONFIG_HOME names another place, in which it is outboard/known_nodes"
        }
        _ => "check its owner and mode, or name another place in XDG_CONFIG_HOME",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn list(name: &str) -> KnownNodes {
        let path = std::env::temp_dir().join(format!("outboard-{}-{name}", std::process::id()));
        let _absent = std::fs::remove_file(&path);
        KnownNodes::at(&path)
    }

    #[test]
    fn the_first_is_remembered_and_another_is_refused() {
        let known = list("known");
        let [one, other] = [NodeId::of(&[1; 32]), NodeId::of(&[2; 32])];
        known.check("n1:7410", one).expect("new");
        known.check("n1:7410", one).expect("the same");
        known.check("n1:7411", other).expect("another place");
        let error = known.check("n1:7410", other).expect_err("another node");
        // The warning comes first: the end of a long message may be cut.
        let text = error.to_string();
        let [warning, advice] = ["someone else", "remove line 1 of "].map(|part| text.find(part));
        assert!(warning.is_some() && warning < advice, "{text}");
        std::fs::write(&known.path, "# all\n\nn1:7410\n").expect("written");
        let error = known.check("n1:7410", one).expect_err("no line");
        assert!(matches!(error, KnownError::Line { line: 3, .. }), "{error}");
        std::fs::remove_file(&known.path).expect("it was there");
    }

    #[test]
    fn a_home_in_which_there_is_nothing_yet_gets_its_directory() {
        let home = std::env::temp_dir().join(format!("outboard-{}-home", std::process::id()));
        let directory = home.join(".config/outboard");
        let known = KnownNodes::at(&directory.join("known_nodes"));
        let node = NodeId::of(&[1; 32]);
        known.check("n1:7410", node).expect("new");
        known.check("n1:7410", node).expect("the same");
        let mode = std::fs::metadata(&directory).expect("made").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        std::fs::remove_dir_all(&home).expect("it was there");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_told_with_what_to_do() {
        // Nothing can be made in /proc, not by root either.
        let known = KnownNodes::at(Path::new("/proc/outboard/known_nodes"));
        let error = known.check("n1:7410", NodeId::of(&[1; 32])).expect_err("no place");
        let text = error.to_string();
        assert!(text.contains("/proc/outboard") && text.contains("XDG_CONFIG_HOME"), "{text}");
    }
}
