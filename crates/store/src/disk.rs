//! Files named by their hash: they appear whole, are verified, and are removed when the quota
//! requires it.
//!
//! A file's time of modification is the time of its last use by any process. A process that writes
//! a file holds it locked (flock(2)): a file with an unfinished name and without a lock was
//! abandoned by its writer.

use crate::error::StoreError;
use crate::store::{ContentHash, ContentKind};
use data_encoding::HEXLOWER;
use outboard_unix::staged::StagedFile;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Suffix of the file that lists a content's chunks.
const CHUNKS: &str = ".chunks";

/// A file of the store.
#[derive(Debug)]
pub(crate) struct StoredFile {
    pub(crate) path: PathBuf,
    pub(crate) hash: ContentHash,
    pub(crate) len: u64,
    pub(crate) used: SystemTime,
}

/// Makes the directory, or checks that it is safe to use.
pub(crate) fn prepare(dir: &Path) -> Result<(), StoreError> {
    let refused = |source| StoreError::Directory { dir: dir.into(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(refused)?;
    let meta = fs::metadata(dir).map_err(refused)?;
    let (owner, mode) = (meta.uid(), meta.mode() & 0o777);
    let user = rustix::process::geteuid().as_raw();
    if owner != user || mode & 0o022 != 0 {
        return Err(StoreError::Exposed { dir: dir.into(), owner, mode, user });
    }
    for first in 0..=u8::MAX {
        match DirBuilder::new().mode(0o700).create(dir.join(HEXLOWER.encode(&[first]))) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(refused(error)),
            _ => {}
        }
    }
    Ok(())
}

pub(crate) fn path_of(dir: &Path, hash: &ContentHash) -> PathBuf {
    let name = HEXLOWER.encode(hash);
    dir.join(&name[..2]).join(name)
}

/// Lists the files in the store, and removes abandoned ones.
pub(crate) fn scan(dir: &Path) -> io::Result<Vec<StoredFile>> {
    let mut found = Vec::new();
    for first in 0..=u8::MAX {
        let sub = dir.join(HEXLOWER.encode(&[first]));
        for entry in fs::read_dir(sub)? {
            // Another process may remove it at this moment.
            let Ok((entry, meta)) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))
            else {
                continue;
            };
            found.extend(classify(entry, &meta));
        }
    }
    Ok(found)
}

fn classify(path: PathBuf, meta: &fs::Metadata) -> Option<StoredFile> {
    let name = path.file_name()?.to_str()?;
    let is_orphan = name.strip_suffix(CHUNKS).is_some_and(|of| !path.with_file_name(of).exists());
    if name.starts_with('.') || is_orphan {
        remove_unless_locked(&path);
    }
    let hash = HEXLOWER.decode(name.as_bytes()).ok()?.try_into().ok()?;
    let used = meta.modified().ok()?;
    meta.is_file().then_some(StoredFile { hash, len: meta.len(), used, path })
}

/// Removes a file and its list of chunks, unless a process writes it or has pinned it.
pub(crate) fn remove_unless_locked(path: &Path) -> bool {
    let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(no_follow).open(path);
    // A file that cannot be opened has no writer.
    let is_free = file.map_or(true, |file| {
        flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && {
            let removed = fs::remove_file(path).is_ok();
            drop(fs::remove_file(chunks_path(path)));
            drop(file);
            removed
        }
    });
    is_free && !path.exists()
}

fn chunks_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(CHUNKS);
    path.with_file_name(name)
}

/// The list of a content's chunks, as stored; the caller verifies it.
pub(crate) fn read_chunks(path: &Path) -> Option<Vec<ContentHash>> {
    let bytes = fs::read(chunks_path(path)).ok()?;
    let (chunks, rest) = bytes.as_chunks::<32>();
    rest.is_empty().then(|| chunks.to_vec())
}

/// Writes the list of a content's chunks, if there is more than one.
pub(crate) fn write_chunks(path: &Path, chunks: &[ContentHash]) -> io::Result<()> {
    if chunks.len() < 2 {
        return Ok(());
    }
    write(&chunks_path(path), chunks.as_flattened(), ContentKind::Data)
}

/// A file that is being written, locked, in a directory of the store; it is removed unless
/// published.
#[derive(Debug)]
pub(crate) struct Temporary(StagedFile);

impl Temporary {
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        loop {
            let staged = StagedFile::create_in(dir)?;
            // Another process may have removed it as abandoned just now.
            let file = staged.file();
            let is_locked = flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
            if is_locked && file.metadata()?.nlink() > 0 {
                return Ok(Self(staged));
            }
        }
    }

    pub(crate) fn file(&self) -> &File {
        self.0.file()
    }

    /// Gives the complete file its name.
    pub(crate) fn publish(self, path: &Path, kind: ContentKind) -> io::Result<()> {
        self.0.set_mode(mode_of(kind))?;
        self.0.rename_to(path)
    }
}

impl Write for Temporary {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

pub(crate) fn mode_of(kind: ContentKind) -> u32 {
    match kind {
        ContentKind::Data => 0o400,
        ContentKind::Program => 0o500,
    }
}

/// Writes a file so that it appears only when it is complete.
pub(crate) fn write(path: &Path, bytes: &[u8], kind: ContentKind) -> io::Result<()> {
    let mut temporary = Temporary::new(path.parent().unwrap_or(path))?;
    temporary.write_all(bytes)?;
    temporary.publish(path, kind)
}

/// Opens a file of the store, and records the time of its use.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(no_follow).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(ErrorKind::InvalidData.into());
    }
    // If this fails, the file is at worst removed too early.
    let _ = file.set_modified(SystemTime::now());
    Ok(file)
}
