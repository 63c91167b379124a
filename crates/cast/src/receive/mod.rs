//! What a receiver writes: verified chunks become files in a hidden staging directory, which appear
//! at the destination complete or not at all.
//!
//! Staging lies in the directory where the names will appear, so that one rename publishes each.
//! Nothing that a manifest says leads out of it: the manifest is validated whole before anything is
//! made, and every file is opened beneath the staging directory without following links. A receiver
//! that is killed leaves only the staging directory; the next cast to the same destination by the
//! same identity resumes it, checking every chunk again, or removes it.
//!
//! Modules in reading order: `options`, `receiver` and `shared` (the chunks' way in), `bitmap`
//! (which are held), `staging` (the directory, its lock and its state), `resume`, `files` (from
//! chunks to files and back), `make` (an empty tree with its space reserved), `seeds` (what is at
//! the destination already), `claims` (which chunks may be here), `seal` (attributes), `publish`,
//! `merge` with `unlocked` (directories that are written to for the moment), `read_back` (serving
//! chunks to others), `lend` (chunks that others read by themselves), `staged_view` (showing what
//! is not published yet), `remove`.

mod bitmap;
mod claims;
mod error;
mod files;
mod lend;
mod make;
mod merge;
mod options;
mod publish;
mod read_back;
mod receiver;
mod remove;
mod resume;
mod seal;
mod seeds;
mod shared;
mod staged_view;
mod staging;
mod unlocked;

#[cfg(test)]
pub(crate) mod tests;

pub use bitmap::ChunkBitmap;
pub use error::ReceiveError;
pub(crate) use lend::LentMemory;
pub use options::{
    AttributePolicy, CastIdentity, Destination, FlushMode, OwnerWish, Ownership, PublishMode,
    ReceiveOptions, SecurityXattrs, SpecialBits,
};
pub use publish::PublishReport;
pub use read_back::ReadBack;
pub use receiver::{PutOutcome, Receiver};
pub(crate) use shared::AtOnce;
pub(crate) use staged_view::{BytesHere, StagedView};
pub(crate) use staging::dead_staging;
pub use staging::remove_abandoned;
