//! The node met at each address: trust on first use. A text file of `host:port node` lines, `#`
//! before comments.
//!
//! Every holder of a service's key can offer the service (a user to whom it was exported, too), so
//! a client that was once at the right place remembers the node that it met. It does not replace
//! the key.

use outboard_secure::NodeId;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
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
    #[error("{}, the list of known nodes: {source}; check its owner and mode", path.display())]
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
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        // One write, so that lines of several processes do not mix.
        file.write_all(format!("{place} {node}\n").as_bytes())
    }

    fn failed(&self, source: io::Error) -> KnownError {
        KnownError::File { path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
