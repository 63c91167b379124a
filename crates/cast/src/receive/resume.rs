//! What a broken cast has left, taken up again.
//!
//! Believes nothing but the manifest, and that only by its hash: chunks count when they have been
//! read and hashed again. What does not fit together is wiped.

use super::bitmap::SavedBitmap;
use super::files::{StagedTree, TopPlace};
use super::options::{PublishMode, ReceiveOptions};
use super::seal::unseal;
use super::shared::{HEAD, HELD, TREE};
use super::staging::{StagingDirectory, StagingPhase};
use crate::sign::{CHUNKS_MAX, CastHeader};
use crate::tree::{TreeManifest, open_beneath, read_exactly_at};
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use std::sync::Arc;

/// Bytes of the longest bitmap on disk.
const HELD_LEN_MAX: u64 = CHUNKS_MAX as u64 / 8;

/// What was left.
#[derive(Debug)]
pub(super) struct Restored {
    /// Chunks that may be there.
    pub(super) saved: SavedBitmap,
    /// The tree, if it was made as a whole.
    pub(super) tree: Option<StagedTree>,
}

/// Looks at what was left; `None` when it is of no use and must be wiped.
pub(super) fn restore(
    staging: &StagingDirectory,
    header: &CastHeader,
    options: &ReceiveOptions,
) -> Option<Restored> {
    let phase = staging.phase()?;
    let saved = SavedBitmap::parse(&read_small(staging, HELD, HELD_LEN_MAX)?);
    let tree = match &phase {
        StagingPhase::Gathering => None,
        phase => Some(restore_tree(staging, header, options, phase)?),
    };
    Some(Restored { saved, tree })
}

fn restore_tree(
    staging: &StagingDirectory,
    header: &CastHeader,
    options: &ReceiveOptions,
    phase: &StagingPhase,
) -> Option<StagedTree> {
    let manifest = read_small(staging, HEAD, header.shape.manifest_len())?;
    if blake3::hash(&manifest) != header.manifest_hash {
        return None;
    }
    let manifest = TreeManifest::parse(manifest, &options.limits).ok()?;
    if manifest.stream_len() != header.shape.stream_len() {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let opened = open_beneath(staging.fd(), TREE.as_bytes(), flags, Mode::empty()).ok()?;
    let destination = Arc::clone(staging.destination());
    let tree = StagedTree::new(manifest, opened, destination, options.descriptors_max);
    if let StagingPhase::Publishing { is_merge, tops } = phase {
        let is_merge_now = options.publish == PublishMode::Merge;
        if *is_merge != is_merge_now || tops.len() != tree.manifest().tops().len() {
            return None;
        }
        place_tops(&tree, *is_merge, tops)?;
    }
    unseal(&tree).ok()?;
    Some(tree)
}

/// Finds out which top-level entries had been published: those whose inode has its name there.
/// `None` when one is in neither place: what has its name in staging may be what it replaced.
fn place_tops(tree: &StagedTree, is_merge: bool, inodes: &[u64]) -> Option<()> {
    for (top, &inode) in inodes.iter().enumerate() {
        let name = tree.manifest().entry(tree.manifest().tops()[top]).name;
        let is_at = |directory| {
            let stat = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
            stat.is_ok_and(|stat| stat.st_ino == inode)
        };
        let place = match is_merge {
            true => TopPlace::Merging,
            false if is_at(tree.fd()) => TopPlace::Staged,
            false if is_at(tree.destination().fd()) => TopPlace::Published,
            false => return None,
        };
        tree.move_top(top, place, || Ok(())).ok()?;
    }
    Some(())
}

/// The first bytes of a file in the staging directory.
fn read_small(staging: &StagingDirectory, name: &str, len_max: u64) -> Option<Vec<u8>> {
    let file: OwnedFd =
        open_beneath(staging.fd(), name.as_bytes(), OFlags::RDONLY, Mode::empty()).ok()?;
    let len = u64::try_from(fs::fstat(&file).ok()?.st_size).ok()?.min(len_max);
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    read_exactly_at(&file, &mut bytes, 0).ok()?;
    Some(bytes)
}
