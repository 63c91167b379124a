//! From directories and names to a manifest's entries.
//!
//! Takes 8 bytes an entry.

use crate::tree::TreeManifest;

/// The entries of each directory.
#[derive(Debug)]
pub(super) struct NameIndex {
    /// By directory, the top first and then entries by number, where its children begin.
    starts: Vec<u32>,
    /// In ascending order of names within a directory.
    children: Vec<u32>,
}

impl NameIndex {
    pub(super) fn new(manifest: &TreeManifest) -> Self {
        let place = |parent: Option<u32>| parent.map_or(0, |parent| parent as usize + 1);
        let mut starts = vec![0; manifest.len() as usize + 2];
        for entry in 0..manifest.len() {
            starts[place(manifest.parent(entry)) + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut children = vec![0; manifest.len() as usize];
        // Entries are in the order of a walk, which takes names in ascending order.
        for entry in 0..manifest.len() {
            let at = &mut next[place(manifest.parent(entry))];
            children[*at as usize] = entry;
            *at += 1;
        }
        Self { starts, children }
    }

    /// What is in a directory, or at the top, in ascending order of names; nothing for anything
    /// that is no directory.
    pub(super) fn children(&self, directory: Option<u32>) -> &[u32] {
        let place = directory.map_or(0, |entry| entry as usize + 1);
        match (self.starts.get(place), self.starts.get(place + 1)) {
            (Some(&from), Some(&to)) => &self.children[from as usize..to as usize],
            _ => &[],
        }
    }

    /// The entry of a name in a directory, or at the top.
    pub(super) fn find(
        &self,
        manifest: &TreeManifest,
        directory: Option<u32>,
        name: &[u8],
    ) -> Option<u32> {
        let children = self.children(directory);
        let at = children.binary_search_by(|child| manifest.head(*child).name.cmp(name)).ok()?;
        Some(children[at])
    }
}
