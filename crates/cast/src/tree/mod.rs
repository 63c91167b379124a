//! What is cast: a tree of files, described by a manifest and carried as one stream of bytes.
//!
//! The stream is the manifest's bytes, then the data of all files one after the other in the
//! manifest's order, holes left out. It is cut into chunks of one size, so that millions of small
//! files take few chunks and a large file takes many. The same tree gives the same stream: access
//! times, which reading changes, are not part of it. Names of one file (hard links) become files of
//! their own; devices, sockets and named pipes are never cast.
//!
//! Modules in reading order: `name` (legal names), `entry` (one record), `manifest` (all of
//! them, validated whole), `check` (the rules), `builder`, `layout` (from stream to files),
//! `exclude`, `chown`, `scan` (from a directory to a manifest), `source` (reading chunks while
//! nothing changes), `owner` (names of users), `beneath` (opening without following links),
//! `open_files`.

mod beneath;
mod builder;
mod check;
mod chown;
mod entry;
mod error;
mod exclude;
mod layout;
mod manifest;
mod name;
mod open_files;
mod owner;
mod scan;
mod source;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use beneath::{
    ParentCursor, nanoseconds, open_beneath, open_on_same_mount, read_exactly_at, timespec,
    unlock_directory,
};
pub use builder::ManifestBuilder;
pub use chown::{ChownError, OwnerChange};
pub use entry::{DataExtent, ExtendedAttribute, TreeEntry, TreeNode};
pub use error::{ManifestError, ManifestFault, TreeError};
pub use exclude::{ExcludeError, ExcludeRules};
pub use layout::StreamPiece;
pub use manifest::{TreeLimits, TreeManifest};
pub use name::{DEPTH_MAX, HIDDEN_PREFIX, NAME_LEN_MAX, PATH_LEN_MAX};
pub(crate) use name::{MARK_XATTR, shown};
pub(crate) use open_files::OpenFiles;
pub use owner::{AccountNames, EntryOwner};
pub use scan::{
    CastSource, ScanOptions, ScannedTree, SkippedFiles, UnknownXattrs, XattrScope, scan,
};
pub use source::SourceReader;
