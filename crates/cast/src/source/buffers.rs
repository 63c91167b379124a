//! Where the source takes the bytes of chunks from: read into its window, or out of mappings of its
//! files in the paper's three ways (Fast Startup §4.4).
//!
//! Relays have their window and their files, whatever the source does. What a program changes in a
//! file after its chunk was looked at is refused by the receivers, as bytes that were not signed.

use crate::member::{ChunkStore, KeepFault};
use crate::sign::VerifiedMemory;
use crate::tree::{SourceReader, StreamPiece, TreeError};
use outboard_verbs::{SharedRegion, SharedSlice};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

/// Files that are mapped whole at a time: a process may have 65,530 mappings.
const MAPS_MAX: usize = 1024;
/// Bytes of a page, or less: each page is looked at once.
const PAGE: usize = 4096;

/// Where the source takes chunks from: Fast Startup's three buffer schemes, or its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceBuffers {
    /// Chunks are read into the window: up to 32 MiB of memory, and no mapping.
    #[default]
    Window,
    /// Files are mapped whole, and chunks are sent straight out of the mappings, without a copy.
    /// All that was sent stays mapped and in the page cache until the cast ends.
    MmapAll,
    /// Files are mapped whole, and one chunk at a time is copied into one buffer and sent; the next
    /// follows when it has been taken.
    MultiSendOneMap,
    /// A chunk's part of a file is mapped, copied into one buffer, unmapped, and sent; the next
    /// follows when it has been taken. One chunk is mapped at a time.
    MultiSendMultiMap,
}

/// A name of buffers that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no buffers are called {found:?}: use window, mmap-all, multi-send-one-map or \
     multi-send-multi-map"
)]
pub struct UnknownBuffers {
    /// What was asked for.
    pub found: String,
}

const NAMES: [(SourceBuffers, &str); 4] = [
    (SourceBuffers::Window, "window"),
    (SourceBuffers::MmapAll, "mmap-all"),
    (SourceBuffers::MultiSendOneMap, "multi-send-one-map"),
    (SourceBuffers::MultiSendMultiMap, "multi-send-multi-map"),
];

impl fmt::Display for SourceBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(known, _)| known == self).map_or("", |(_, name)| name);
        f.pad(name)
    }
}

impl FromStr for SourceBuffers {
    type Err = UnknownBuffers;

    fn from_str(name: &str) -> Result<Self, UnknownBuffers> {
        let known = NAMES.iter().find(|(_, known)| *known == name);
        known.map(|(buffers, _)| *buffers).ok_or_else(|| UnknownBuffers { found: name.to_owned() })
    }
}

/// The source's files, as chunks.
#[derive(Debug)]
pub(super) struct SourceStore {
    reader: Arc<SourceReader>,
    buffers: SourceBuffers,
    /// Whole files, by entry.
    maps: Mutex<BTreeMap<u32, SharedRegion>>,
}

impl SourceStore {
    pub(super) fn new(reader: Arc<SourceReader>, buffers: SourceBuffers) -> Self {
        Self { reader, buffers, maps: Mutex::default() }
    }

    /// The one part of a file that is all of a chunk, if the chunk is that.
    fn only_piece(&self, chunk: u32) -> Option<(u32, Range<usize>)> {
        match self.reader.pieces(chunk)[..] {
            [StreamPiece::File { entry, offset, len }] => {
                let at = usize::try_from(offset).ok()?;
                Some((entry, at..at.checked_add(len)?))
            }
            _ => None,
        }
    }

    /// An entry's file, mapped whole.
    fn whole(&self, entry: u32) -> Result<SharedRegion, TreeError> {
        if let Some(map) = self.lock().get(&entry) {
            return Ok(map.clone());
        }
        let map = self.reader.map(entry, None)?;
        let mut maps = self.lock();
        if maps.len() >= MAPS_MAX {
            // Chunks are sent in ascending order, more or less.
            maps.pop_first();
        }
        Ok(maps.entry(entry).or_insert(map).clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, SharedRegion>> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the pages of a chunk read before it is sent: the loop must not wait for a disk.
    fn look_at(&self, entry: u32, range: Range<usize>) -> Result<(), TreeError> {
        let (map, mut seen) = (self.whole(entry)?, Vec::new());
        let pages = range.clone().step_by(PAGE).chain(range.end.checked_sub(1));
        for at in pages {
            seen.clear();
            let looked = map.append_to(at..at + 1, &mut seen);
            looked.map_err(|_| self.reader.changed_file(entry))?;
        }
        self.reader.check_file(entry)
    }

    /// Copies a chunk out of mappings.
    fn copy(&self, chunk: u32, into: &mut Vec<u8>) -> Result<(), TreeError> {
        into.clear();
        for piece in self.reader.pieces(chunk) {
            let StreamPiece::File { entry, offset, len } = piece else {
                self.reader.append_manifest(piece, into);
                continue;
            };
            let (map, at) = if self.buffers == SourceBuffers::MultiSendOneMap {
                (self.whole(entry)?, offset)
            } else {
                let start = offset - offset % SourceReader::MAP_GRAIN;
                (self.reader.map(entry, Some(start..offset + len as u64))?, offset - start)
            };
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            let copied = map.append_to(at..at.saturating_add(len), into);
            copied.map_err(|_| self.reader.changed_file(entry))?;
            self.reader.check_file(entry)?;
        }
        Ok(())
    }
}

impl ChunkStore for SourceStore {
    fn is_signed(&self, _chunk: u32) -> bool {
        true
    }

    fn verify(&self, chunk: u32, _: SharedSlice) -> Result<VerifiedMemory, KeepFault> {
        Err(KeepFault::Local(format!("chunk {chunk} was sent to the source, which has it")))
    }

    fn keep(&self, _: &VerifiedMemory) -> Result<(), KeepFault> {
        Err(KeepFault::Local("the source keeps nothing".into()))
    }

    fn load(&self, chunk: u32, into: &mut Vec<u8>) -> Result<(), String> {
        let loaded = match (self.buffers, self.only_piece(chunk)) {
            (SourceBuffers::MmapAll, Some((entry, range))) => {
                into.clear();
                self.look_at(entry, range)
            }
            (SourceBuffers::Window | SourceBuffers::MmapAll, _) => {
                self.reader.read_chunk(chunk, into)
            }
            (SourceBuffers::MultiSendOneMap | SourceBuffers::MultiSendMultiMap, _) => {
                self.copy(chunk, into)
            }
        };
        loaded.map_err(|error| error.to_string())
    }

    fn mapped(&self, chunk: u32) -> Option<SharedSlice> {
        let (entry, range) =
            self.only_piece(chunk).filter(|_| self.buffers == SourceBuffers::MmapAll)?;
        // It was mapped when it was looked at; if that is no longer so, nothing is sent.
        self.whole(entry).ok()?.slice(range).ok()
    }

    fn slots_max(&self) -> u64 {
        match self.buffers {
            SourceBuffers::Window | SourceBuffers::MmapAll => u64::MAX,
            SourceBuffers::MultiSendOneMap | SourceBuffers::MultiSendMultiMap => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign::ChunkLen;
    use crate::tree::{CastSource, ScanOptions, scan};
    use std::fs;
    use std::path::Path;

    const CHUNK: usize = 4096;

    fn store(tree: &Path, buffers: SourceBuffers) -> SourceStore {
        let source = CastSource::new(tree).expect("a name");
        let tree = scan(vec![source], &ScanOptions::default()).expect("a tree");
        let reader = SourceReader::new(tree, ChunkLen::new(4096).expect("legal"), 8);
        SourceStore::new(Arc::new(reader.expect("a reader")), buffers)
    }

    /// Small files, so that chunks have many pieces, and a large one.
    fn fill(tree: &Path) {
        fs::create_dir(tree).expect("made");
        for name in ["a", "b", "c"] {
            fs::write(tree.join(name), name.repeat(1000)).expect("written");
        }
        let bytes: Vec<u8> = (0..=250).cycle().take(20 * CHUNK).collect();
        fs::write(tree.join("large"), bytes).expect("written");
    }

    #[test]
    fn all_buffers_give_the_same_bytes() {
        let directory = tempfile::tempdir().expect("a directory");
        let tree = directory.path().join("tree");
        fill(&tree);
        let plain = store(&tree, SourceBuffers::Window);
        let mut direct = 0;
        for (buffers, name) in NAMES {
            assert_eq!((name.parse(), buffers.to_string().as_str()), (Ok(buffers), name));
            let store = store(&tree, buffers);
            for chunk in 0..plain.reader.chunks() {
                let (mut expected, mut found) = (Vec::new(), Vec::new());
                plain.load(chunk, &mut expected).expect("read");
                store.load(chunk, &mut found).expect("loaded");
                if let Some(slice) = store.mapped(chunk) {
                    assert!(found.is_empty(), "not copied");
                    found = slice.snapshot(0..slice.len()).expect("there");
                    direct += 1;
                }
                assert!(found == expected, "{name}: chunk {chunk}");
            }
            let one_at_a_time = name.starts_with("multi-send");
            assert_eq!(store.slots_max() == 1, one_at_a_time, "{name}");
            let keeps_maps = matches!(name, "mmap-all" | "multi-send-one-map");
            assert_eq!(!store.lock().is_empty(), keeps_maps, "{name}");
        }
        assert!(direct >= 18, "most chunks of the large file go without a copy: {direct}");
        assert!("mmap".parse::<SourceBuffers>().is_err());
    }

    #[test]
    fn a_file_that_changes_is_noticed_in_mappings_too() {
        let directory = tempfile::tempdir().expect("a directory");
        let tree = directory.path().join("tree");
        for (buffers, name) in NAMES {
            let _gone = fs::remove_dir_all(&tree);
            fill(&tree);
            let store = store(&tree, buffers);
            let mut bytes = Vec::new();
            store.load(10, &mut bytes).expect("as it was");
            fs::File::options()
                .write(true)
                .open(tree.join("large"))
                .expect("open")
                .set_len(CHUNK as u64)
                .expect("cut");
            let why = store.load(12, &mut bytes).expect_err("changed");
            assert!(why.contains("changed while it was cast"), "{name}: {why}");
        }
    }
}
