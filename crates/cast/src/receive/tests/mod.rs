//! Casts without a network: a source's chunks are put into receivers by hand.

use super::*;
use crate::sign::{CastHeader, CastKey, ChunkHash, ChunkHashes, ChunkLen, RunSigner};
use crate::tree::{CastSource, HIDDEN_PREFIX, ScanOptions, SourceReader, scan};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

mod at_once;
mod broken;
mod disk;
mod hostile;
mod merging;
mod publishing;
mod seeds;
mod trees;

/// All chunks of a cast, and the hashes that a receiver has of them.
pub(crate) struct TestCast {
    pub(crate) chunks: Vec<Vec<u8>>,
    pub(crate) hashes: Arc<ChunkHashes>,
}

impl TestCast {
    pub(crate) fn of_stream(manifest: &[u8], chunks: Vec<Vec<u8>>, chunk_len: u32) -> Self {
        let stream_len = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let chunk_len = ChunkLen::new(chunk_len).expect("a length");
        let header = CastHeader::new(manifest, stream_len, chunk_len).expect("a header");
        let key = CastKey::generate().expect("a key");
        let hashes = ChunkHashes::new(&header.sign(&key), key.public()).expect("a header");
        let mut signer = RunSigner::new(&key, &header);
        for chunk in &chunks {
            if let Some(run) = signer.push(ChunkHash::of(chunk)).expect("a chunk") {
                hashes.add_run(&run).expect("a run");
            }
        }
        Self { chunks, hashes: Arc::new(hashes) }
    }

    /// A manifest without the data it describes, legal or not.
    pub(crate) fn of_manifest(manifest: &[u8]) -> Self {
        let chunks = manifest.chunks(4096).map(<[u8]>::to_vec).collect();
        Self::of_stream(manifest, chunks, 4096)
    }

    pub(crate) fn of(sources: &[&Path], chunk_len: u32) -> Self {
        Self::scanned(sources, chunk_len, &ScanOptions::default())
    }

    pub(crate) fn scanned(sources: &[&Path], chunk_len: u32, how: &ScanOptions) -> Self {
        let sources = sources.iter().map(|path| CastSource::new(path).expect("a source"));
        let tree = scan(sources.collect(), how).expect("scanned");
        let chunks = ChunkLen::new(chunk_len).expect("a length");
        let reader = SourceReader::new(tree, chunks, 16).expect("open");
        let read = |chunk| {
            let mut bytes = Vec::new();
            reader.read_chunk(chunk, &mut bytes).expect("unchanged");
            bytes
        };
        let chunks = (0..reader.chunks()).map(read).collect();
        reader.check_unchanged().expect("unchanged");
        Self::of_stream(reader.tree().manifest().bytes(), chunks, chunk_len)
    }

    pub(crate) fn begin(&self, into: &Path, options: ReceiveOptions) -> Receiver {
        self.try_begin(into, options).expect("a receiver")
    }

    pub(crate) fn try_begin(
        &self,
        into: &Path,
        options: ReceiveOptions,
    ) -> Result<Receiver, ReceiveError> {
        Receiver::begin(Destination::open(into)?, Arc::clone(&self.hashes), options)
    }

    pub(crate) fn put(
        &self,
        receiver: &Receiver,
        chunk: usize,
    ) -> Result<PutOutcome, ReceiveError> {
        let index = u32::try_from(chunk).expect("few");
        let verified = self.hashes.verify(index, &self.chunks[chunk]).expect("genuine");
        receiver.put(&verified)
    }

    /// Puts all chunks in some order that depends on a seed.
    pub(crate) fn put_all(&self, receiver: &Receiver, seed: u64) -> Result<(), ReceiveError> {
        shuffled(self.chunks.len(), seed)
            .into_iter()
            .try_for_each(|chunk| self.put(receiver, chunk).map(drop))
    }

    /// Receives and publishes.
    pub(crate) fn receive(
        &self,
        into: &Path,
        options: ReceiveOptions,
    ) -> Result<PublishReport, ReceiveError> {
        let receiver = self.try_begin(into, options)?;
        self.put_all(&receiver, 1)?;
        receiver.publish()
    }
}

pub(crate) fn shuffled(len: usize, mut seed: u64) -> Vec<usize> {
    let mut order: Vec<_> = (0..len).collect();
    for at in (1..len).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, usize::try_from(seed >> 33).expect("31 bits") % (at + 1));
    }
    order
}

pub(crate) fn options() -> ReceiveOptions {
    ReceiveOptions::new(CastIdentity::new(b"tests"))
}

/// A source directory with an empty destination beside it.
pub(crate) struct Place {
    pub(crate) outer: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let outer = tempfile::tempdir().expect("a directory");
        fs::create_dir(outer.path().join("src")).expect("made");
        fs::create_dir(outer.path().join("to")).expect("made");
        Self { outer }
    }

    pub(crate) fn src(&self) -> PathBuf {
        self.outer.path().join("src")
    }

    pub(crate) fn to(&self) -> PathBuf {
        self.outer.path().join("to")
    }

    /// A file in the source.
    pub(crate) fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.src().join(path);
        fs::create_dir_all(path.parent().expect("one")).expect("made");
        fs::write(path, bytes).expect("written");
    }

    pub(crate) fn cast(&self) -> TestCast {
        TestCast::of(&[&self.src()], 4096)
    }

    pub(crate) fn assert_published(&self) {
        assert_eq!(listing(&self.to().join("src")), listing(&self.src()));
        assert_eq!(names(&self.to()), ["src"]);
    }
}

/// What is beneath a path: type and mode, modification time, contents.
pub(crate) type Listing = BTreeMap<PathBuf, (u32, i64, Vec<u8>)>;

pub(crate) fn listing(root: &Path) -> Listing {
    let mut found = Listing::new();
    list(root, root, &mut found);
    found
}

fn list(root: &Path, path: &Path, into: &mut Listing) {
    let metadata = fs::symlink_metadata(path).expect("there");
    let contents = if metadata.is_symlink() {
        fs::read_link(path).expect("read").into_os_string().into_vec()
    } else if metadata.is_file() && metadata.len() < 1 << 30 {
        fs::read(path).expect("read")
    } else {
        vec![]
    };
    let modified = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
    let name = path.strip_prefix(root).expect("beneath").to_owned();
    into.insert(name, (metadata.mode(), modified, contents));
    if metadata.is_dir() {
        for entry in fs::read_dir(path).expect("read") {
            list(root, &entry.expect("a name").path(), into);
        }
    }
}

pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("read");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("a name").file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

/// The only staging directory at a destination.
pub(crate) fn staging_in(directory: &Path) -> PathBuf {
    let hidden = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_bytes().starts_with(HIDDEN_PREFIX))
    };
    let entries = fs::read_dir(directory).expect("read").map(|entry| entry.expect("a name").path());
    let all: Vec<_> = entries.filter(hidden).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().expect("one")
}
