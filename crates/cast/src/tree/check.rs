//! The rules of a manifest, applied entry by entry in one pass.
//!
//! That names ascend within a directory makes duplicates impossible without a table of paths; that
//! an entry's depth refers to the directories before it makes a path through a file impossible.

use super::entry::{DataExtent, TreeEntry, TreeNode};
use super::error::ManifestFault;
use super::manifest::TreeLimits;
use super::name::{DEPTH_MAX, HIDDEN_PREFIX, NAME_LEN_MAX, PATH_LEN_MAX, is_name};

/// Bytes in the value of an extended attribute, at most (XATTR_SIZE_MAX).
const XATTR_LEN_MAX: usize = 64 << 10;
/// Extended attributes of one entry, at most.
const XATTRS_MAX: usize = 256;
/// Bytes in a file, at most: offsets are signed in system calls.
const FILE_LEN_MAX: u64 = i64::MAX as u64;

/// Stands for "no directory of this tree".
pub(super) const TOP: u32 = u32::MAX;

/// What is known of the directories that an entry may lie in.
#[derive(Debug)]
struct Level<'a> {
    directory: u32,
    last_name: &'a [u8],
    path_len: usize,
}

/// Applies the rules to one entry after the other.
#[derive(Debug)]
pub(super) struct EntryCheck<'a> {
    limits: TreeLimits,
    owners: usize,
    levels: Vec<Level<'a>>,
    entries: u32,
    extents: u64,
    stream_len: u64,
}

impl<'a> EntryCheck<'a> {
    /// For a manifest of `manifest_len` bytes with this many owners.
    pub(super) fn new(limits: TreeLimits, manifest_len: u64, owners: usize) -> Self {
        let top = Level { directory: TOP, last_name: b"", path_len: 0 };
        let levels = vec![top];
        Self { limits, owners, levels, entries: 0, extents: 0, stream_len: manifest_len }
    }

    /// Checks the next entry; returns the index of its directory, [`TOP`] for none.
    pub(super) fn admit(&mut self, entry: &TreeEntry<'a>) -> Result<u32, ManifestFault> {
        check_attributes(entry, self.owners)?;
        let parent = self.place(entry)?;
        self.count(entry)?;
        self.entries += 1;
        Ok(parent)
    }

    fn place(&mut self, entry: &TreeEntry<'a>) -> Result<u32, ManifestFault> {
        let depth = usize::from(entry.depth);
        if !is_name(entry.name) {
            return Err(ManifestFault::Name);
        }
        if depth == 0 && entry.name.starts_with(HIDDEN_PREFIX) {
            return Err(ManifestFault::Hidden);
        }
        self.levels.truncate(depth + 1);
        let Some(level) = self.levels.get_mut(depth) else {
            return Err(ManifestFault::NoDirectory);
        };
        if entry.name <= level.last_name {
            return Err(ManifestFault::Order);
        }
        level.last_name = entry.name;
        let path_len = level.path_len + entry.name.len();
        if depth >= DEPTH_MAX || path_len > PATH_LEN_MAX {
            return Err(ManifestFault::TooDeep);
        }
        let parent = level.directory;
        if entry.is_directory() {
            let below = Level { directory: self.entries, last_name: b"", path_len: path_len + 1 };
            self.levels.push(below);
        }
        Ok(parent)
    }

    fn count(&mut self, entry: &TreeEntry<'_>) -> Result<(), ManifestFault> {
        if self.entries >= self.limits.entries_max {
            return Err(ManifestFault::TooMany(self.limits.entries_max));
        }
        let too_much = ManifestFault::TooMuch(self.limits.stream_len_max);
        for extent in entry.extents() {
            self.extents += 1;
            self.stream_len = self.stream_len.checked_add(extent.len).ok_or(too_much)?;
        }
        if self.extents > self.limits.extents_max {
            return Err(ManifestFault::TooManyExtents(self.limits.extents_max));
        }
        if self.stream_len > self.limits.stream_len_max { Err(too_much) } else { Ok(()) }
    }
}

fn check_attributes(entry: &TreeEntry<'_>, owners: usize) -> Result<(), ManifestFault> {
    if entry.mode > 0o7777 {
        return Err(ManifestFault::Mode);
    }
    if usize::try_from(entry.owner).map_or(true, |owner| owner >= owners) {
        return Err(ManifestFault::Owner);
    }
    let is_link = matches!(entry.node, TreeNode::Symlink(_));
    if entry.xattrs.len() > XATTRS_MAX || is_link && !entry.xattrs.is_empty() {
        return Err(ManifestFault::Attribute);
    }
    let is_legal = |name: &[u8], value: &[u8]| {
        let name_fits = (1..=NAME_LEN_MAX).contains(&name.len()) && !name.contains(&0);
        name_fits && value.len() <= XATTR_LEN_MAX
    };
    if !entry.xattrs.iter().all(|xattr| is_legal(xattr.name, xattr.value)) {
        return Err(ManifestFault::Attribute);
    }
    check_node(&entry.node)
}

fn check_node(node: &TreeNode<'_>) -> Result<(), ManifestFault> {
    match node {
        TreeNode::Directory => Ok(()),
        TreeNode::Symlink(target) => {
            let is_legal = (1..=PATH_LEN_MAX).contains(&target.len()) && !target.contains(&0);
            if is_legal { Ok(()) } else { Err(ManifestFault::Target) }
        }
        TreeNode::File { size, .. } if *size > FILE_LEN_MAX => Err(ManifestFault::Size(*size)),
        TreeNode::File { size, extents: Some(extents) } => check_extents(*size, extents),
        TreeNode::File { .. } => Ok(()),
    }
}

fn check_extents(size: u64, extents: &[DataExtent]) -> Result<(), ManifestFault> {
    let mut free_from = 0;
    for extent in extents {
        let end = extent.offset.checked_add(extent.len).filter(|&end| end <= size);
        match end {
            Some(end) if extent.len > 0 && extent.offset >= free_from => free_from = end,
            _ => return Err(ManifestFault::Extents),
        }
    }
    Ok(())
}
