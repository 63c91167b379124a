//! A file system that answers nothing, mounted over a directory: a disk that hangs. Only root may
//! mount it.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// See the [module](self). When it is dropped, all that wait for it get an error.
#[derive(Debug)]
pub struct Hung {
    at: PathBuf,
    fuse: Option<File>,
}

impl Hung {
    /// Covers a directory.
    ///
    /// # Errors
    /// This machine has no FUSE, or does not let this process mount.
    pub fn over(at: PathBuf) -> io::Result<Self> {
        let fuse = File::options().read(true).write(true).open("/dev/fuse")?;
        let number = fuse.as_raw_fd();
        let options = format!("fd={number},rootmode=40000,user_id=0,group_id=0,allow_other");
        let options = CString::new(options)?;
        mount("hung", &at, "fuse", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())?;
        Ok(Self { at, fuse: Some(fuse) })
    }
}

/// Whether this test may mount one; says that it is skipped if not.
#[must_use]
pub fn may_hang() -> bool {
    let may = rustix::process::geteuid().is_root();
    if !may {
        eprintln!("skipped: only root may mount a file system that hangs");
    }
    may
}

impl Drop for Hung {
    fn drop(&mut self) {
        // A child that waits in exec(2) has a copy of the descriptor: closing ours ends nothing.
        let _gone = unmount(&self.at, UnmountFlags::FORCE | UnmountFlags::DETACH);
        drop(self.fuse.take());
    }
}
