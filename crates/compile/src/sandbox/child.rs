//! The supervisor's and the slot sandboxes' half of a sandbox: processes of their own, with one
//! thread each.
//!
//! Modules in reading order: `supervisor` (namespaces, the FUSE mount, forks slot sandboxes),
//! `root` (a slot sandbox's file system), `init` (a slot sandbox: starts jobs, watches, reaps),
//! `watch` (the resources that a job uses), `filter` (the system calls that jobs may make), `raw`
//! (system calls that need `unsafe`).

mod filter;
mod init;
mod raw;
mod root;
mod supervisor;
mod watch;

use std::io;

use super::channel::SetUpFailure;

pub use supervisor::supervisor_main;

/// The result of one step of setting up.
type SetUpResult<T> = Result<T, SetUpFailure>;

/// Adds the name of the step to an error.
trait At<T> {
    fn at(self, step: &str) -> SetUpResult<T>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, step: &str) -> SetUpResult<T> {
        self.map_err(|error| {
            let errno = error.into().raw_os_error().unwrap_or(libc::EIO);
            SetUpFailure { step: step.to_owned(), errno }
        })
    }
}
