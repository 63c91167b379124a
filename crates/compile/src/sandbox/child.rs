//! The anchor's and the cells' half of a sandbox: processes of their own, with one thread each.
//!
//! Modules in reading order: `anchor` (namespaces, the FUSE mount, forks cells), `root` (what a
//! cell sees), `init` (a cell: starts jobs, watches, reaps), `watch` (what the job uses),
//! `filter` (which system calls jobs have), `raw` (what needs `unsafe`).

mod anchor;
mod filter;
mod init;
mod raw;
mod root;
mod watch;

use std::io;

use super::channel::Failure;

pub use anchor::anchor_main;

/// A step of setting up that failed.
type Step<T> = Result<T, Failure>;

/// Says which step it was.
trait At<T> {
    fn at(self, step: &str) -> Step<T>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, step: &str) -> Step<T> {
        self.map_err(|error| {
            let errno = error.into().raw_os_error().unwrap_or(libc::EIO);
            Failure { step: step.to_owned(), errno }
        })
    }
}
