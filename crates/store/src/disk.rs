//! Files named by their hash: made whole, looked at with suspicion, removed when others are newer.
//!
//! A file's time of modification is when somebody last used it.

use crate::error::StoreError;
use crate::store::{Hash, Kind};
use data_encoding::HEXLOWER;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// How old a file that is being written must be for its writer to be gone.
const ABANDONED: Duration = Duration::from_secs(60 * 60);

/// A file of the store.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) hash: Hash,
    pub(crate) len: u64,
    pub(crate) used: SystemTime,
}

/// Makes the directory, or sees that it is safe to use.
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

pub(crate) fn path_of(dir: &Path, hash: &Hash) -> PathBuf {
    let name = HEXLOWER.encode(hash);
    dir.join(&name[..2]).join(name)
}

/// Everything in the store; what nobody will finish writing is removed.
pub(crate) fn scan(dir: &Path) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for first in 0..=u8::MAX {
        let sub = dir.join(HEXLOWER.encode(&[first]));
        for entry in fs::read_dir(sub)? {
            // Another process may remove it at this very moment.
            let Ok((entry, meta)) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))
            else {
                continue;
            };
            found.extend(classify(entry, &meta));
        }
    }
    Ok(found)
}

fn classify(path: PathBuf, meta: &fs::Metadata) -> Option<Found> {
    let name = path.file_name()?.to_str()?;
    let used = meta.modified().ok()?;
    if name.starts_with('.') && used.elapsed().is_ok_and(|age| age > ABANDONED) {
        let _ = fs::remove_file(&path);
    }
    let hash = HEXLOWER.decode(name.as_bytes()).ok()?.try_into().ok()?;
    meta.is_file().then_some(Found { hash, len: meta.len(), used, path })
}

/// A name in the same directory that nobody else uses.
fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.{count}", process::id()))
}

pub(crate) fn mode_of(kind: Kind) -> u32 {
    match kind {
        Kind::Data => 0o400,
        Kind::Program => 0o500,
    }
}

/// Makes a file that is whole as soon as it is there.
pub(crate) fn write(path: &Path, bytes: &[u8], kind: Kind) -> io::Result<()> {
    let temporary = beside(path);
    let written = write_new(&temporary, bytes, kind).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_new(path: &Path, bytes: &[u8], kind: Kind) -> io::Result<()> {
    let mode = mode_of(kind);
    // A process that had the same id may have left one.
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(bytes)
}

/// Opens a file of the store, and notes that it is used.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(no_follow).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(ErrorKind::InvalidData.into());
    }
    // The worst that comes of a failure is that it goes early.
    let _ = file.set_modified(SystemTime::now());
    Ok(file)
}
