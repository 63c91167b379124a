//! Why a receiver cannot write, publish or read back.

use crate::tree::{ManifestError, shown};
use rustix::io::Errno;
use std::path::PathBuf;

/// Why a receiver cannot go on. Names are relative to the destination.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// Caller or this machine: the destination cannot be used.
    #[error("{path:?} cannot be used as a destination: {errno}; name a directory of your own")]
    Destination {
        /// The directory as given.
        path: PathBuf,
        /// The system's error.
        errno: Errno,
    },
    /// Caller: the same files are already on their way there.
    #[error("another receiver writes the same files to {path:?}: wait for it, or stop it")]
    Busy {
        /// The destination.
        path: PathBuf,
    },
    /// Caller: a chunk that was verified for another cast.
    #[error("caller puts a chunk of another cast")]
    OtherCast,
    /// Source: a manifest that breaks a rule.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Source: its header and its manifest do not agree.
    #[error("the source's manifest describes {found} bytes, its header promises {expected}")]
    ManifestLength {
        /// Bytes in the stream by the manifest.
        found: u64,
        /// Bytes in the stream by the header.
        expected: u64,
    },
    /// Source: the manifest is not the one of the header.
    #[error("the source's manifest is not the one that its header names")]
    ManifestHash,
    /// This machine: the disk is full, or a quota or limit is reached. Nothing is left behind.
    #[error("no room at the destination for {path:?}: free some, or raise the quota or file limit")]
    NoSpace {
        /// What was written.
        path: PathBuf,
    },
    /// This machine: the disk has less room than the cast needs. Nothing was written.
    #[error(
        "no room at the destination: the cast needs {needed} {what}, {free} are free there: free \
         some, or cast less"
    )]
    NoRoom {
        /// How many are needed.
        needed: u64,
        /// How many there are.
        free: u64,
        /// Of what.
        what: &'static str,
    },
    /// This machine: something cannot be written.
    #[error("{path:?} cannot be written at the destination: {errno}")]
    Write {
        /// What was written.
        path: PathBuf,
        /// The system's error.
        errno: Errno,
    },
    /// This machine: an attribute cannot be set.
    #[error("{path:?} cannot get its {what}: {errno}; receive as a user who may, or leave it out")]
    Attribute {
        /// What gets it.
        path: PathBuf,
        /// Which attribute.
        what: &'static str,
        /// The system's error.
        errno: Errno,
    },
    /// Caller: an attribute that this machine's administrator does not keep.
    #[error(
        "{path:?} has {name}, and attributes of the kernel's are not kept here: leave out \
         --xattrs security, or have this node's administrator set security_xattrs and \
         as_root = true in [cast]"
    )]
    SecurityXattr {
        /// What has it.
        path: PathBuf,
        /// The attribute.
        name: String,
    },
    /// Caller: something has this name already.
    #[error("{path:?} is at the destination already: remove it, or use --replace or --merge")]
    Exists {
        /// The name.
        path: PathBuf,
    },
    /// Caller: the name is, or leads to, another root of this node, which belongs to others.
    #[error(
        "{path:?} is, or holds, another root of this node, which belongs to other identities: cast \
         under another name"
    )]
    Reserved {
        /// The name.
        path: PathBuf,
    },
    /// Caller: merging would put a file in a directory's place, or a directory in a file's.
    #[error("{path:?} is a directory on one side only: --merge replaces files by files alone")]
    Conflict {
        /// The name.
        path: PathBuf,
    },
    /// This machine: another user's directory at the destination, into which nothing can be put.
    #[error(
        "{path:?} belongs to user {uid} at the destination, and this service, user {own}, may not \
         write to it: chown it, let it write there, or cast to another directory"
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
        /// Who receives.
        own: u32,
    },
    /// This machine: its file system cannot exchange names.
    #[error("the destination's file system cannot exchange {path:?} at once: remove the old first")]
    NoExchange {
        /// The name.
        path: PathBuf,
    },
    /// Not a fault: chunks are missing.
    #[error("{missing} chunks are missing: nothing is published before all are there")]
    Incomplete {
        /// How many.
        missing: u32,
    },
    /// Another process: what was received is not what it was.
    #[error("{path:?} was changed at the destination by another process: cast it again")]
    Disturbed {
        /// What was changed.
        path: PathBuf,
    },
    /// Not a fault: this chunk is not held here.
    #[error("chunk {chunk} is not held here")]
    NotHeld {
        /// Which chunk.
        chunk: u32,
    },
    /// Caller: an earlier error ended this receiver.
    #[error("this receiver has ended after an error: begin another")]
    Ended,
}

impl ReceiveError {
    /// What writing `path` failed with.
    pub(super) fn write(path: &[u8], errno: Errno) -> Self {
        let path = shown(path);
        match errno {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::NoSpace { path },
            errno => Self::Write { path, errno },
        }
    }

    /// Whether trying again is of no use, so that what was staged is removed.
    pub(super) fn is_final(&self) -> bool {
        let is_source =
            matches!(self, Self::Manifest(_) | Self::ManifestLength { .. } | Self::ManifestHash);
        let is_room = matches!(self, Self::NoSpace { .. } | Self::NoRoom { .. });
        let is_name = matches!(self, Self::Exists { .. } | Self::Reserved { .. });
        is_source || is_room || is_name || matches!(self, Self::SecurityXattr { .. })
    }
}
