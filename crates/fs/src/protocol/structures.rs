//! Structures of `modules/fs/fs.h` and `modules/inode/inode.h`: arguments and answers of the
//! module's entries. Names and targets, where there are any, are bytes behind them.

use super::layout::layouts;
use serde::{Deserialize, Serialize};

/// Extents that a record has by itself.
pub const RECORD_ENTRIES: usize = 8;
/// Groups of a user beside its first one.
pub const GROUPS_MAX: usize = 13;

/// A tenant's limit that is none.
pub const NO_LIMIT: u64 = u64::MAX;

/// The tenant of the service itself.
const SERVICE_TENANT: u16 = u16::MAX;

impl FsWho {
    /// The service itself: user 0, also where user 0 of clients is nobody.
    #[must_use]
    pub fn service() -> Self {
        Self { tenant: SERVICE_TENANT, ..Self::default() }
    }

    /// Whether both are one user in the same groups, whatever they have opened.
    #[must_use]
    pub fn is_same_user(&self, other: &Self) -> bool {
        let grant = self.grant;
        *self == Self { grant, ..*other }
    }
}

layouts! {
    /// The rights that an opening was granted. Later requests on it have them, for any user.
    FsGrant {
        /// That the service has granted it. Clients keep it, and cannot make one.
        proof: [u64; 2],
        /// [`MAY_READ`](super::MAY_READ), [`MAY_WRITE`](super::MAY_WRITE).
        rights: u32,
        /// 0.
        zero: u32,
    }

    /// Who asks.
    FsWho {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
        /// How many of `groups` count.
        groups_len: u16,
        /// Who pays for what is made. The service says it.
        tenant: u16,
        /// Further groups. The service has its own word about them.
        groups: [u32; GROUPS_MAX],
        /// Of the opening that is used. The service clears one that it has not made.
        grant: FsGrant,
    }

    /// An inode: the generation says whether its number was used again since.
    #[derive(Hash, PartialOrd, Ord, Serialize, Deserialize)]
    FsInode {
        /// Its number.
        number: u64,
        /// Which use of the number.
        generation: u64,
    }

    /// An entry of a record's tree of extents.
    FsTreeEntry {
        /// First block of the file.
        key: u64,
        /// Where it is.
        value: u64,
    }

    /// An inode's record.
    FsRecord {
        /// A check word over all of it.
        check: u64,
        /// Which use of the number.
        generation: u32,
        /// Kind and rights, as stat(2) has them; 0: not in use.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Names.
        nlink: u32,
        /// How many have it open.
        holds: u32,
        /// Bytes.
        size: u64,
        /// Blocks that are mapped.
        blocks: u64,
        /// Last access, nanoseconds since 1970.
        atime_ns: i64,
        /// Last change of the bytes.
        mtime_ns: i64,
        /// Last change of anything.
        ctime_ns: i64,
        /// When it was made.
        btime_ns: i64,
        /// Higher after each change.
        version: u64,
        /// Of a directory, the one above it.
        parent: u64,
        /// Of a device, which.
        rdev: u64,
        /// The module's.
        xattrs: u64,
        /// The module's.
        body: u64,
        /// The module's.
        level: u16,
        /// Who pays for it.
        tenant: u16,
        /// The module's.
        entries: u32,
        /// The module's.
        entry: [FsTreeEntry; RECORD_ENTRIES],
    }

    /// What most entries answer.
    FsAnswer {
        /// Which inode.
        inode: FsInode,
        /// Its record, afterwards.
        record: FsRecord,
    }

    /// Blocks of a file in one place of the store.
    FsExtent {
        /// First block of the file.
        file: u64,
        /// First block of the store.
        block: u64,
        /// Blocks.
        len: u64,
    }

    /// Arguments of `init`.
    FsInitArgs {
        /// Blocks of the store.
        blocks: u64,
        /// [`SQUASH_ROOT`](super::SQUASH_ROOT).
        flags: u64,
        /// Log2 of the buckets that names have at first.
        first: u64,
        /// Owner of the root directory.
        uid: u32,
        /// Its group.
        gid: u32,
        /// Its rights.
        mode: u32,
        /// 0.
        zero: u32,
    }

    /// Arguments of `get`, `target`, `hold`, `release`, `sync`.
    FsInodeArgs {
        /// Which.
        inode: FsInode,
    }

    /// Arguments of `find`, `unlink`, `rmdir`; the name follows.
    FsNameArgs {
        /// Who asks.
        who: FsWho,
        /// The directory.
        dir: FsInode,
        /// [`HOLD`](super::HOLD), which the service sets.
        flags: u32,
        /// 0.
        zero: u32,
    }

    /// Arguments of `unlink_many`, which is the service's own; the names follow as those of `walk`.
    FsUnlinkArgs {
        /// Who asks.
        who: FsWho,
        /// The directory.
        dir: FsInode,
        /// [`HOLD`](super::HOLD).
        flags: u32,
        /// How many names, [`UNLINK_MAX`](super::UNLINK_MAX) at most.
        count: u32,
    }

    /// What a name stood for that was removed.
    FsRemoved {
        /// Which inode.
        inode: FsInode,
        /// Its blocks.
        blocks: u64,
        /// Kind and rights; 0: it is gone.
        mode: u32,
        /// Names that it still has.
        nlink: u32,
        /// Those who have it open.
        holds: u32,
        /// 0.
        zero: u32,
    }

    /// Arguments of `walk`; the names follow, each behind two bytes that say how many it has.
    FsWalkArgs {
        /// Who asks.
        who: FsWho,
        /// The directory that has the first name.
        dir: FsInode,
        /// How many names.
        count: u32,
        /// 0.
        zero: u32,
    }

    /// What `walk` answers; an [`FsAnswer`] for each name that was found follows.
    FsWalked {
        /// Names that were found.
        count: u32,
        /// Why the next one was not: an error number.
        error: u32,
    }

    /// Arguments of `make`; the name follows, then a symbolic link's target.
    FsMakeArgs {
        /// Who asks.
        who: FsWho,
        /// The directory.
        dir: FsInode,
        /// Kind and rights.
        mode: u32,
        /// Bytes of the target.
        target_len: u32,
        /// Of a device, which.
        rdev: u64,
    }

    /// Arguments of `create`; the name follows. The answer is two [`FsAnswer`], the file and the
    /// directory, and an [`FsGrant`].
    FsCreateArgs {
        /// Who asks.
        who: FsWho,
        /// The directory.
        dir: FsInode,
        /// What the client calls the opening.
        opening: u64,
        /// Rights of a file that is made.
        mode: u32,
        /// [`MAY_READ`](super::MAY_READ) and its like; [`EXCLUSIVE`](super::EXCL).
        want: u32,
    }

    /// Arguments of `link`; the name follows.
    FsLinkArgs {
        /// Who asks.
        who: FsWho,
        /// Where the name goes.
        dir: FsInode,
        /// What gets it.
        inode: FsInode,
    }

    /// Arguments of `rename`; both names follow.
    FsRenameArgs {
        /// Who asks.
        who: FsWho,
        /// The directory that has the first name.
        from: FsInode,
        /// The directory of the second.
        to: FsInode,
        /// [`NOREPLACE`](super::NOREPLACE), [`EXCHANGE`](super::EXCHANGE).
        flags: u32,
        /// Bytes of the first name.
        from_len: u32,
    }

    /// Arguments of `set`.
    FsAttrArgs {
        /// Who asks.
        who: FsWho,
        /// Of which inode.
        inode: FsInode,
        /// Which members count: [`SET_MODE`](super::SET_MODE) and its like.
        which: u32,
        /// Rights.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Last access.
        atime_ns: i64,
        /// Last change.
        mtime_ns: i64,
    }

    /// Arguments of `access`.
    FsAccessArgs {
        /// Who asks.
        who: FsWho,
        /// Which inode.
        inode: FsInode,
        /// [`MAY_READ`](super::MAY_READ) and its like.
        want: u32,
        /// 0.
        zero: u32,
    }

    /// Arguments of `list`.
    FsListArgs {
        /// Who asks.
        who: FsWho,
        /// Which directory.
        dir: FsInode,
        /// From which place on.
        at: u64,
        /// [`MAY_READ`](super::MAY_READ): an [`FsGrant`] follows the names.
        want: u32,
        /// 0.
        zero: u32,
    }

    /// One name of `list`'s answer; the name follows, then zeroes up to a multiple of 8.
    FsListed {
        /// The place behind it.
        next: u64,
        /// Bytes of the name.
        name_len: u32,
        /// 0.
        zero: u32,
        /// What it stands for.
        inode: FsInode,
        /// Its record.
        record: FsRecord,
    }

    /// What `stats` answers.
    FsStats {
        /// Blocks of the store.
        blocks: u64,
        /// Those that are free.
        blocks_free: u64,
        /// Inodes in use.
        inodes: u64,
        /// Bytes of memory for names and trees.
        heap_bytes: u64,
        /// Those that are free.
        heap_free_bytes: u64,
        /// Inodes that could still be made, about.
        inodes_free: u64,
        /// Inodes that have holders only.
        orphans: u64,
        /// 1 if there is something to give back.
        dying: u64,
        /// Blocks of files that whoever asks has made.
        quota_blocks: u64,
        /// Inodes that it has made.
        quota_inodes: u64,
        /// Blocks that it may have; [`NO_LIMIT`].
        quota_blocks_max: u64,
        /// Inodes that it may have; [`NO_LIMIT`].
        quota_inodes_max: u64,
    }

    /// Whoever pays for what it makes.
    FsTenant {
        /// Its identity.
        id: [u64; 2],
        /// Blocks that it has.
        blocks: u64,
        /// Inodes that it has.
        inodes: u64,
        /// Blocks that it may have; [`NO_LIMIT`].
        blocks_max: u64,
        /// Inodes that it may have; [`NO_LIMIT`].
        inodes_max: u64,
    }

    /// Arguments of `set_quota`.
    FsQuotaArgs {
        /// Whose.
        id: [u64; 2],
        /// Blocks that it may have.
        blocks_max: u64,
        /// Inodes that it may have.
        inodes_max: u64,
    }

    /// Arguments of `tenants`.
    FsTenantsArgs {
        /// The first number.
        first: u64,
    }

    /// Arguments of `orphans`.
    FsOrphansArgs {
        /// The place, 0 at first.
        at: u64,
    }

    /// One inode of the answer of `orphans`.
    FsOrphan {
        /// The place behind it.
        next: u64,
        /// Which.
        inode: FsInode,
        /// How often it is held.
        holds: u32,
        /// Its kind and rights.
        mode: u32,
    }

    /// Arguments of `take`.
    FsTakeArgs {
        /// Blocks that are wanted.
        want: u64,
        /// Where to look first.
        goal: u64,
    }

    /// Arguments of `sweep`.
    FsSweepArgs {
        /// From which block on.
        from: u64,
        /// How many.
        most: u64,
    }

    /// Blocks of the store that follow each other.
    FsBlocksRun {
        /// The first.
        start: u64,
        /// How many.
        len: u64,
    }

    /// Arguments of `read`. The module answers an [`FsAnswer`] and extents, the service an
    /// [`FsAnswer`] and bytes.
    FsReadArgs {
        /// Who asks.
        who: FsWho,
        /// Which file.
        inode: FsInode,
        /// From which byte on.
        offset: u64,
        /// Bytes at most.
        len: u64,
    }

    /// Arguments of `open`. The answer is an [`FsAnswer`], an [`FsGrant`], and the file's first
    /// bytes.
    FsOpenArgs {
        /// Who asks.
        who: FsWho,
        /// Which file.
        inode: FsInode,
        /// What the client calls the opening.
        opening: u64,
        /// [`MAY_READ`](super::MAY_READ), [`MAY_WRITE`](super::MAY_WRITE).
        want: u32,
        /// Bytes at most.
        len: u32,
    }

    /// Arguments of `seek`.
    FsSeekArgs {
        /// Who asks.
        who: FsWho,
        /// Which file.
        inode: FsInode,
        /// From which byte on.
        offset: u64,
        /// [`SEEK_DATA`](super::SEEK_DATA), [`SEEK_HOLE`](super::SEEK_HOLE).
        which: u64,
    }

    /// Arguments of the module's `change`; extents follow.
    FsMapArgs {
        /// Who asks.
        who: FsWho,
        /// Which file.
        inode: FsInode,
        /// The record's version, or 0 for any.
        version: u64,
        /// First block that is cut.
        cut: u64,
        /// Blocks that are cut.
        cut_len: u64,
        /// The size, as `which` says.
        size: u64,
        /// [`GROW`](super::GROW), [`RESIZE`](super::RESIZE), [`KEEP_TIMES`](super::KEEP_TIMES),
        /// [`SET`](super::SET).
        which: u32,
        /// Extents.
        count: u32,
    }

    /// Arguments of `share`.
    FsShareArgs {
        /// Who asks.
        who: FsWho,
        /// Whose blocks.
        from: FsInode,
        /// What else has them.
        to: FsInode,
        /// The first one's first.
        from_block: u64,
        /// Where they go.
        to_block: u64,
        /// How many.
        len: u64,
    }

    /// Arguments of the entries for extended attributes; the name follows, then the value.
    FsXattrArgs {
        /// Who asks.
        who: FsWho,
        /// Whose.
        inode: FsInode,
        /// [`XATTR_CREATE`](super::XATTR_CREATE), [`XATTR_REPLACE`](super::XATTR_REPLACE).
        flags: u32,
        /// Bytes of the name.
        name_len: u32,
        /// Bytes of the value.
        value_len: u32,
        /// 0.
        zero: u32,
    }
}
