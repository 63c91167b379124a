//! What an export has done since it was made: plain numbers, which the thread that owns the export
//! counts and reads.

use serde::Serialize;

/// Counters of an export, as [`Export::counters`](crate::Export::counters) returns them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportCounters {
    /// Directories that are shown now, each with everything beneath it.
    pub roots_now: u64,
    /// Listings of directories that servers may know now.
    pub directories_now: u64,
    /// Files in these listings.
    pub files_now: u64,
    /// Bytes of the metadata log that are in use now.
    pub log_now_bytes: u64,
    /// Questions of servers whose answer was there already.
    pub hits: u64,
    /// Questions for which a directory or a file was read.
    pub misses: u64,
    /// Snapshots of files that were made.
    pub snapshots: u64,
    /// Bytes of these files.
    pub snapshots_bytes: u64,
    /// Times that the metadata log was full and began anew.
    pub epochs: u64,
}
