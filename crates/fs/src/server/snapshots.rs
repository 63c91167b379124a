//! Snapshots, as the service sees them: a socket in the store's directory, by which the commands of
//! the operator's have the metadata written to a file of theirs and blocks held back.
//!
//! Copies no block. Who may open the store's directory may ask, nobody by the network. A connection
//! is one snapshot: when it ends, nothing is held any more.
//!
//! ```text
//! asker    one byte, BEGIN, with the file beside it
//! service  one byte, OK, the commit (8), the superblock; or REFUSED, and why
//! asker    one byte, END: is all still as of that commit?
//! service  one byte, OK
//! ```

use crate::store::superblock::SUPERBLOCK_LEN;
use crate::store::{FsSnapshots, SnapshotHead};
use outboard_unix::rights;
use rustix::net::RecvFlags;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// The socket's file.
const NAME: &str = "control";
pub(crate) const BEGIN: u8 = b'S';
pub(crate) const END: u8 = b'E';
pub(crate) const OK: u8 = b'K';
/// Bytes of the answer that says which commit.
pub(crate) const HEAD_LEN: usize = 1 + 8 + SUPERBLOCK_LEN;
/// How long an asker may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long nothing is accepted after that has failed.
const PAUSE: Duration = Duration::from_secs(1);

/// A store's socket, by a name that is short enough for any directory (sun_path, unix(7)), and what
/// keeps this name.
pub(crate) fn place(store: &Path) -> io::Result<(File, PathBuf)> {
    let directory = File::open(store)?;
    let path = format!("/proc/self/fd/{}/{NAME}", directory.as_raw_fd());
    Ok((directory, path.into()))
}

/// Answers whoever asks for snapshots, on a thread of its own.
pub(super) fn listen(store: &Path, snapshots: FsSnapshots) -> io::Result<()> {
    let (_directory, path) = place(store)?;
    // That of a service before; the store is locked, nobody else has one.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    let answer_all = move || {
        loop {
            match listener.accept() {
                Ok((stream, _)) => serve(&stream, &snapshots),
                Err(_) => thread::sleep(PAUSE),
            }
        }
    };
    thread::Builder::new().name("fs-snapshots".into()).spawn(answer_all).map(drop)
}

fn serve(stream: &UnixStream, snapshots: &FsSnapshots) {
    if let Err(error) = answer(stream, snapshots) {
        tracing::warn!(%error, "who asked for a snapshot is gone");
    }
}

fn answer(mut stream: &UnixStream, snapshots: &FsSnapshots) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut asked = [0];
    let got = rights::receive(stream, &mut asked, RecvFlags::empty())?;
    let file = got.fds.into_iter().next().map(File::from);
    let Some(file) = file.filter(|_| asked[0] == BEGIN) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let _hold = match snapshots.begin(file) {
        Ok((SnapshotHead { superblock, seq }, hold)) => {
            tracing::info!(commit = seq, "a snapshot is made");
            let parts: [&[u8]; 3] = [&[OK], &seq.to_le_bytes(), &superblock.emit()];
            stream.write_all(&parts.concat())?;
            hold
        }
        Err(error) => return stream.write_all(format!("!{error}").as_bytes()),
    };
    // Copying takes as long as it takes.
    stream.set_read_timeout(None)?;
    stream.read_exact(&mut asked)?;
    stream.write_all(&[OK])
}
