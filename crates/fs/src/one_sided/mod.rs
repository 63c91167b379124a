//! A region's structures as a client walks them that only reads: from a directory and a name to the
//! inode, from an inode to its attributes, its target, its names, its extended attributes.
//!
//! Values and walks without I/O. A walk is given the bytes that were read so far, all of one state
//! of the region, and either comes to its end or says which places it needs beside these; whoever
//! reads them reads all of them again, together, and walks once more. So a walk never sees parts of
//! two states. What was read is not trusted: a walk reads inside of the region, a bounded number of
//! places, and says [`WalkStop::Unclear`] of what cannot be: then the module is asked, which says
//! why.
//!
//! Modules in reading order: `view` (bytes that were read), `headers` (what moves seldom),
//! `records` (inodes, and what belongs to one), `lookup` (names), `listing` (directories).

mod headers;
mod listing;
mod lookup;
mod records;
mod view;

pub(crate) use headers::RegionHeaders;
pub(crate) use listing::list;
pub(crate) use lookup::look_up;
pub(crate) use records::{record_of, target_of, xattr_names_of, xattr_of};
pub(crate) use view::{ReadPlace, RegionView, SparseBytes, WalkStop};

#[cfg(test)]
mod tests;
