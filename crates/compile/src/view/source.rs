//! What a view asks its source: names, attributes and contents of a client's files, in the words of
//! `outboard-export`.
//!
//! Look-ups never wait. A name that is not known yet is requested with [`FileSource::fetch`] and
//! looked up again once the answer has arrived. A source may answer from any thread, but never
//! while it holds a lock of its own that a look-up takes.

use outboard_export::{FetchError, FetchRequest, FileVersion, Listing, LookUp};
use std::sync::Arc;

/// The function called when a [`FetchRequest`] is done.
pub type FetchDone = Box<dyn FnOnce(Result<(), FetchError>) + Send>;

/// Where a view's names, attributes and contents come from.
pub trait FileSource: Send + Sync {
    /// What `name` in the directory `dir` (an absolute path, `/` for the root) stands for. Never
    /// waits.
    fn look_up(&self, dir: &[u8], name: &[u8]) -> LookUp;

    /// The names in `dir`. Never waits.
    fn list(&self, dir: &[u8]) -> Listing;

    /// Requests something that is not known yet and calls `done` exactly once, within a time limit
    /// that the source sets: until then a process of the job may wait where not even SIGKILL
    /// reaches it.
    fn fetch(&self, request: FetchRequest, done: FetchDone);

    /// A file's contents in this state, if this machine has them. Never waits.
    fn contents(&self, file: &FileVersion) -> Option<Arc<[u8]>>;
}
