//! The hash of a tree of this machine.

use super::super::{ToldError, ToldFailure};
use super::{HashedName, TreeFold, TreeHash, hash_special};
use crate::copy::open_local;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Hashes what a path of this machine stands for; a symbolic link stands for itself. `None`: a part
/// cannot be read, which is told.
pub fn hash_local(root: &Path, failed: &mut dyn FnMut(ToldError<'_>)) -> Option<TreeHash> {
    let (mut fold, mut is_whole) = (TreeFold::default(), true);
    let mut left = vec![(0, root.to_owned())];
    while let Some((depth, path)) = left.pop() {
        let below = hash_name(&mut fold, depth, &path);
        match below {
            Ok(names) => left.extend(names.into_iter().map(|path| (depth + 1, path))),
            Err((what, error)) => {
                is_whole = false;
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                failed(ToldError { path: path.as_os_str().as_bytes(), errno, what });
            }
        }
    }
    fold.end().filter(|_| is_whole)
}

/// Hashes a name, or says which paths are in it.
fn hash_name(
    fold: &mut TreeFold,
    depth: usize,
    path: &Path,
) -> Result<Vec<PathBuf>, (ToldFailure, io::Error)> {
    let not_read = |error| (ToldFailure::NotRead, error);
    let about = fs::symlink_metadata(path).map_err(not_read)?;
    let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
    let hashed = HashedName { name, mode: about.mode() };
    if about.is_dir() {
        let names = names_of(path).map_err(|error| (ToldFailure::NotEntered, error))?;
        fold.directory(depth, hashed);
        return Ok(names);
    }
    let content = content_of(path, &about).map_err(not_read)?;
    fold.other(depth, hashed, content);
    Ok(Vec::new())
}

fn names_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect()
}

fn content_of(path: &Path, about: &Metadata) -> io::Result<TreeHash> {
    if about.is_symlink() {
        let target = fs::read_link(path)?.into_os_string().into_vec();
        return Ok(TreeHash(blake3::hash(&target).into()));
    }
    if !about.is_file() {
        return Ok(hash_special(about.mode(), about.rdev()));
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(open_local(path)?)?;
    Ok(TreeHash(hasher.finalize().into()))
}
