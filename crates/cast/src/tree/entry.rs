//! One record of a manifest: a file, directory or symbolic link with its attributes.
//!
//! Only the shape; what is legal stands in `check`. Encoded with postcard.

use serde::{Deserialize, Serialize};

/// A file, directory or symbolic link. Entries follow one another as a walk meets them: a
/// directory, then what is in it in ascending order of names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeEntry<'a> {
    /// How many directories of this tree it lies in; 0 at the top.
    pub depth: u16,
    /// Its name in its directory.
    #[serde(borrow, with = "serde_bytes")]
    pub name: &'a [u8],
    /// Permission bits, with setuid, setgid and sticky (0o7777).
    pub mode: u16,
    /// When it was last modified, nanoseconds since 1970.
    pub modified_ns: i64,
    /// Index into the manifest's owners.
    pub owner: u32,
    /// Extended attributes; none on a symbolic link.
    #[serde(borrow)]
    pub xattrs: Vec<ExtendedAttribute<'a>>,
    /// What it is.
    #[serde(borrow)]
    pub node: TreeNode<'a>,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeNode<'a> {
    /// A directory: the entries that follow one level deeper lie in it.
    Directory,
    /// A regular file.
    File {
        /// Its length with its holes, bytes.
        size: u64,
        /// Where it has data; `None` for a file without holes.
        extents: Option<Vec<DataExtent>>,
    },
    /// A symbolic link to this path, which is never followed.
    Symlink(#[serde(borrow, with = "serde_bytes")] &'a [u8]),
}

/// The beginning of a [`TreeEntry`], as it is decoded without the extents of a file, of which there
/// may be millions.
#[derive(Debug, Deserialize)]
pub(crate) struct EntryHead<'a> {
    _depth: u16,
    #[serde(borrow, with = "serde_bytes")]
    pub(crate) name: &'a [u8],
    _mode: u16,
    pub(crate) modified_ns: i64,
    _owner: u32,
    #[serde(borrow)]
    _xattrs: Vec<ExtendedAttribute<'a>>,
    pub(crate) node: NodeHead,
}

/// The beginning of a [`TreeNode`].
#[derive(Debug, Deserialize)]
pub(crate) enum NodeHead {
    /// A directory.
    Directory,
    /// A file, and its length with its holes, bytes.
    File { size: u64 },
    /// A symbolic link.
    Symlink,
}

/// A part of a file that is no hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataExtent {
    /// Where it begins in the file, bytes.
    pub offset: u64,
    /// Its length, bytes.
    pub len: u64,
}

/// An extended attribute (xattr(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtendedAttribute<'a> {
    /// Its full name, as `user.comment`.
    #[serde(borrow, with = "serde_bytes")]
    pub name: &'a [u8],
    /// Its value.
    #[serde(borrow, with = "serde_bytes")]
    pub value: &'a [u8],
}

impl TreeEntry<'_> {
    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        matches!(self.node, TreeNode::Directory)
    }

    /// Where it has data: nothing unless it is a file.
    #[must_use]
    pub fn extents(&self) -> Vec<DataExtent> {
        match &self.node {
            TreeNode::File { size: 0, .. } | TreeNode::Directory | TreeNode::Symlink(_) => vec![],
            TreeNode::File { size, extents: None } => vec![DataExtent { offset: 0, len: *size }],
            TreeNode::File { extents: Some(extents), .. } => extents.clone(),
        }
    }
}
