//! The list of revoked nodes: a text file of node ids, one a line, `#` before comments.
//!
//! It shuts out an identity, and so a machine whose files were lost or lent. It does not shut out
//! a person who kept a copy of a key: that person can make a new identity. Only a new cluster key
//! prevents that.

use crate::identity::NodeId;
use crate::keyfile::{self, KeyFileError, Rule};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Others may know the list, but not change it.
const LIST: Rule = Rule { allowed: 0o755, len_max: 16 << 20 };

/// A list of revoked nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked(BTreeSet<NodeId>);

/// What is wrong with a list of revoked nodes. A list with mistakes is not used in part: nodes
/// that are missing from it would be admitted.
#[derive(Debug, thiserror::Error)]
pub enum RevokedError {
    /// A line that is neither an id nor a comment.
    #[error(
        "line {line} of the list of revoked nodes {} is no node's id (32 hexadecimal digits, then \
         perhaps # and a comment): correct it", path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
    },
    /// The file holds bytes that are no text.
    #[error("{} is no list of revoked nodes: it must be text", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read or written, or others may change it.
    #[error(transparent)]
    File(#[from] KeyFileError),
}

impl Revoked {
    /// The list in the text of the file `path`.
    ///
    /// # Errors
    /// [`RevokedError::Line`] for the first line that is neither an id nor a comment.
    pub fn parse(path: &Path, text: &str) -> Result<Self, RevokedError> {
        let ids = text.lines().enumerate().filter_map(|(index, line)| {
            let id = line.split('#').next().unwrap_or_default().trim();
            let wrong = |_| RevokedError::Line { path: path.into(), line: index + 1 };
            (!id.is_empty()).then(|| id.parse().map_err(wrong))
        });
        ids.collect::<Result<_, _>>().map(Self)
    }

    /// Reads the list.
    ///
    /// # Errors
    /// [`RevokedError`] when it cannot be read, others may change it, or a line is wrong. No file
    /// is an error too ([`KeyFileError::Missing`]): a list that was lost would revoke no node.
    pub fn load(path: &Path) -> Result<Self, RevokedError> {
        let bytes = keyfile::read(path, LIST)?;
        let text = str::from_utf8(&bytes);
        Self::parse(path, text.map_err(|_| RevokedError::NotText { path: path.into() })?)
    }

    /// Appends a node to the list in a file, with a comment of one line; the file is made if there
    /// is none, with its directory.
    ///
    /// # Errors
    /// [`RevokedError::File`] when it cannot be written.
    pub fn append(path: &Path, node: NodeId, comment: &str) -> Result<(), RevokedError> {
        keyfile::make_parent(path)?;
        let comment = comment.lines().next().unwrap_or_default();
        // The line's end comes first too: the line before may be missing its own.
        let line = format!("\n{node} # {comment}\n");
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| {
            file.write_all(line.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|source| KeyFileError::Write { path: path.into(), source }.into())
    }

    /// Whether the node is on the list.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.0.contains(&node)
    }

    /// Puts a node on the list; says whether it is new there.
    pub fn add(&mut self, node: NodeId) -> bool {
        self.0.insert(node)
    }

    /// The nodes on the list, in the order of their ids.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "00112233445566778899aabbccddeeff";
    const TWO: &str = "ffeeddccbbaa99887766554433221100";

    fn node(text: &str) -> NodeId {
        text.parse().expect("an id")
    }

    #[test]
    fn a_list_has_ids_comments_and_empty_lines() {
        let text = format!("# lost\n\n{ONE}\n  {TWO}\t# stolen in May\r\n");
        let mut list = Revoked::parse(Path::new("r"), &text).expect("a list");
        assert_eq!(list.nodes().collect::<Vec<_>>(), [node(ONE), node(TWO)]);
        assert!(list.contains(node(TWO)));
        let third = NodeId::of(&[1; 32]);
        assert!(!list.contains(third));
        assert!(list.add(third) && !list.add(third) && list.contains(third));
    }

    #[test]
    fn a_wrong_line_spoils_the_list() {
        for (text, expected) in [
            (format!("{ONE}\n{ONE}0\n"), 2),
            (format!("{ONE} {TWO}\n"), 1),
            ("#\n\nn01\n".to_owned(), 3),
            (format!("#\n{}", &ONE[1..]), 2),
        ] {
            match Revoked::parse(Path::new("/k/revoked"), &text) {
                Err(error @ RevokedError::Line { line, .. }) => {
                    assert_eq!(line, expected, "{text:?}");
                    assert!(error.to_string().contains("/k/revoked"), "{error}");
                }
                other => panic!("{text:?} gives {other:?}"),
            }
        }
    }
}
