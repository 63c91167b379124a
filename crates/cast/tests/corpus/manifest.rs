//! A receiver reads arbitrary bytes as the manifest of a cast. What it takes leads nowhere but
//! beneath the destination, and every byte of its stream lies in one place.
//!
//! The fuzz target `cast_manifest` is made of this file, too.

use outboard_cast::tree::{StreamPiece, TreeLimits, TreeManifest, TreeNode};

/// Pieces of a stream that are looked at.
const PIECES_MAX: usize = 10_000;

pub(super) fn check(bytes: &[u8]) {
    let limits = TreeLimits { entries_max: 1000, extents_max: 1000, ..TreeLimits::default() };
    let Ok(manifest) = TreeManifest::parse(bytes.to_vec(), &limits) else { return };
    assert!(manifest.len() <= limits.entries_max);
    (0..manifest.len()).for_each(|entry| check_entry(&manifest, entry));
    check_stream(&manifest);
}

fn check_entry(manifest: &TreeManifest, index: u32) {
    let entry = manifest.entry(index);
    assert!(manifest.owner(&entry).is_some());
    let path = manifest.path(index);
    assert!(path.len() <= 4095 && path.split(|byte| *byte == b'/').count() <= 256);
    for name in path.split(|byte| *byte == b'/') {
        assert!(!name.is_empty() && name != b"." && name != b".." && !name.contains(&0));
    }
    if let Some(parent) = manifest.parent(index) {
        assert!(parent < index && manifest.entry(parent).is_directory());
        assert_eq!(path, [&manifest.path(parent)[..], b"/", entry.name].concat());
    }
    let top = manifest.tops()[manifest.top_of(index)];
    assert!(top <= index && manifest.parent(top).is_none());
    if let TreeNode::File { size, .. } = entry.node {
        let data = entry.extents();
        assert!(data.iter().all(|extent| extent.len > 0 && extent.offset + extent.len <= size));
        assert!(data.is_sorted_by(|one, next| one.offset + one.len <= next.offset));
    }
}

fn check_stream(manifest: &TreeManifest) {
    let end = manifest.stream_len();
    let mut at = 0;
    for piece in manifest.pieces(0..end).take(PIECES_MAX) {
        assert!(!piece.is_empty());
        match piece {
            StreamPiece::Manifest { at: begin, .. } => assert_eq!(begin as u64, at),
            StreamPiece::File { entry, .. } => assert!(entry < manifest.len()),
        }
        at += piece.len() as u64;
    }
    assert!(at <= end);
    assert_eq!(manifest.pieces(end..u64::MAX).count(), 0);
}
