//! Structures of `modules/fs/fs.h` for entries that only the service executes: reserving blocks, and
//! changes as the module knows them, by blocks.

use super::layout::layouts;
use super::structures::{FsInode, FsWho};

layouts! {
    /// Blocks of the store that follow each other.
    FsRun {
        /// The first one.
        start: u64,
        /// How many.
        len: u64,
    }

    /// Arguments of `take`.
    FsReserveArgs {
        /// Blocks to reserve.
        want: u64,
        /// Where to look first; `u64::MAX`: behind the last ones.
        goal: u64,
    }

    /// One inode of `orphans`' answer.
    FsOrphan {
        /// The place behind it.
        next: u64,
        /// Which.
        inode: FsInode,
        /// How many have it open.
        holds: u32,
        /// Kind and rights.
        mode: u32,
    }

    /// Arguments of `sweep`.
    FsSweepArgs {
        /// The first block to look at.
        from: u64,
        /// Blocks to look at.
        most: u64,
    }

    /// Arguments of the module's `change`; `count` extents follow.
    FsModuleChange {
        /// Who asks.
        who: FsWho,
        /// Which file.
        inode: FsInode,
        /// The version that its record must have; 0: any.
        version: u64,
        /// The first block that is unmapped.
        cut: u64,
        /// How many are.
        cut_len: u64,
        /// The size, as `which` says.
        size: u64,
        /// [`GROW`](super::GROW), [`RESIZE`](super::RESIZE).
        which: u32,
        /// Extents that follow.
        count: u32,
    }
}
