//! Preprocesses a source into a file that can no longer change, and hands it to the manager.
//!
//! The file is in memory and sealed; or it is on a project's disk, has no name, and no descriptor
//! is open for writing any more when it is handed over.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use outboard_unix::rights;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::net::SendFlags;

/// Runs the compiler with `words`, each of which ends with a zero byte, and with its own path in
/// the variable `nested`. Returns the file with its standard output, and its standard error.
///
/// # Errors
/// The compiler fails, or the file cannot be made.
pub(crate) fn preprocess(
    compiler: &Path,
    words: &[u8],
    beside: &[u8],
    nested: &str,
) -> io::Result<(File, Vec<u8>)> {
    let (file, in_memory) = match on_disk(beside) {
        Some(file) => (file, false),
        None => (memory()?, true),
    };
    let words = words.strip_suffix(&[0]).unwrap_or(words).split(|byte| *byte == 0);
    let mut child = Command::new(compiler)
        .args(words.map(OsStr::from_bytes))
        .env(nested, compiler)
        .stdout(file.try_clone()?)
        .stderr(Stdio::piped())
        .spawn()?;
    let mut said = Vec::new();
    let read = child.stderr.take().map_or(Ok(0), |mut stderr| stderr.read_to_end(&mut said));
    if !child.wait()?.success() || read.is_err() {
        return Err(io::Error::other("preprocessing failed"));
    }
    if in_memory {
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
        return Ok((file, said));
    }
    // Opened again for reading only: the descriptor for writing is closed at the end.
    let own = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    Ok((File::open(own)?, said))
}

fn memory() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    Ok(memfd_create("source", flags)?.into())
}

/// A file without a name in the directory `beside`, if that is on a disk.
fn on_disk(beside: &[u8]) -> Option<File> {
    let directory = Path::new(OsStr::from_bytes(beside));
    if beside.is_empty() {
        return None;
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE | libc::O_EXCL);
    let file = options.open(directory).ok()?;
    // A file system in memory allows seals; then a sealed file in memory is better.
    fcntl_get_seals(&file).is_err().then_some(file)
}

/// Sends the manager the file's descriptor, with one byte.
///
/// # Errors
/// The manager has gone.
pub(crate) fn hand_over(stream: &UnixStream, file: &File) -> io::Result<()> {
    rights::send(stream, &[0], &[file.as_fd()], SendFlags::empty())?;
    Ok(())
}
