//! Walks through a tree that the module `find` makes: arguments and answers of
//! `modules/find/find.h`.

use super::layout::{FsLayout, layouts};
use super::lists::is_name;
use super::structures::{FsInode, FsWho};

/// Of [`FindArgs::flags`]: what is told comes with its attributes.
pub const FIND_ATTRIBUTES: u32 = 1;
/// Nothing is told of each name, only sums.
pub const FIND_SUMS: u32 = 2;
/// Of those, files with several names are told one by one, and not added.
pub const FIND_APART: u32 = 4;
/// Bytes of a program, at most.
pub const FIND_PROGRAM_MAX: usize = 16384;
/// Bytes of a path that is walked, at most.
pub const FIND_PATH_MAX: usize = 4607;
/// Directories below each other that are walked through, at most.
pub const FIND_LEVELS_MAX: u32 = 1024;

/// Of [`WalkRecord::what`]: an action was reached.
pub const FIND_IS_MATCH: u8 = 1;
/// What follows is in this directory.
pub const FIND_IS_ENTERED: u8 = 2;
/// What was in this directory is over.
pub const FIND_IS_LEFT: u8 = 4;
/// This directory was not entered.
pub const FIND_IS_ERROR: u8 = 8;
/// A file with several names.
pub const FIND_IS_APART: u8 = 16;

layouts! {
    /// Arguments of `walk`; levels, the program and the path follow.
    FindArgs {
        /// Who asks.
        who: FsWho,
        /// Where the walk begins.
        root: FsInode,
        /// [`FIND_ATTRIBUTES`], [`FIND_SUMS`], [`FIND_APART`].
        flags: u32,
        /// Names that one execution looks at, at most.
        most: u32,
        /// Names above are not asked about.
        min_depth: u32,
        /// Nothing below is.
        max_depth: u32,
        /// Directories down to there have sums of their own.
        sum_depth: u32,
        /// Of the cursor.
        levels: u32,
        /// Bytes of the program.
        program_len: u32,
        /// Bytes of the path that was asked for.
        root_len: u32,
        /// Where in it the last name is.
        name_at: u32,
        /// Bytes of that.
        name_len: u32,
    }

    /// A directory of a cursor.
    FindLevel {
        /// The directory's number.
        number: u64,
        /// Which use of the number.
        generation: u32,
        /// Where the walk is in it.
        at: u32,
    }

    /// What a walk has added up.
    FindSums {
        /// Files.
        files: u64,
        /// Directories.
        directories: u64,
        /// Symbolic links.
        links: u64,
        /// What is none of these.
        others: u64,
        /// Bytes.
        size: u64,
        /// Blocks.
        blocks: u64,
    }

    /// What `walk` answers; records, levels and the path follow.
    FindResult {
        /// Bytes of the records.
        records_len: u32,
        /// Levels of the cursor.
        levels: u32,
        /// Bytes of the cursor's path.
        path_len: u32,
        /// 1 if there is nothing more.
        is_over: u32,
        /// What was added up since the last record.
        rest: FindSums,
    }

    /// Attributes of what is told.
    FindAttributes {
        /// Which inode.
        inode: FsInode,
        /// Kind and rights.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Names.
        nlink: u32,
        /// Bytes.
        size: u64,
        /// Blocks.
        blocks: u64,
        /// Last access.
        atime_ns: i64,
        /// Last change of the bytes.
        mtime_ns: i64,
        /// Last change of anything.
        ctime_ns: i64,
        /// When it was made.
        btime_ns: i64,
        /// Of a device, which.
        rdev: u64,
    }
}

impl FindSums {
    /// Adds what was added up elsewhere.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.files, other.files),
            (&mut self.directories, other.directories),
            (&mut self.links, other.links),
            (&mut self.others, other.others),
            (&mut self.size, other.size),
            (&mut self.blocks, other.blocks),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    /// How many inodes.
    #[must_use]
    pub fn count(&self) -> u64 {
        let all = [self.files, self.directories, self.links, self.others];
        all.into_iter().fold(0, u64::saturating_add)
    }
}

/// What a walk tells of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkRecord<'a> {
    /// Names between it and where the walk began.
    pub depth: u32,
    /// The upper four bits of a mode.
    pub kind: u8,
    /// [`FIND_IS_MATCH`] and its like.
    pub what: u8,
    /// Why it was not entered.
    pub error: u8,
    /// A bit for each action that was reached.
    pub actions: u32,
    /// The name; of an error the whole path.
    pub name: &'a [u8],
    /// What was added up since the record before.
    pub sums: FindSums,
    /// Its attributes, where they are told.
    pub attributes: FindAttributes,
}

/// An answer of `walk`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkAnswer<'a> {
    /// What it tells, in order.
    pub records: Vec<WalkRecord<'a>>,
    /// Its head.
    pub head: FindResult,
    /// The cursor: levels, and the path.
    pub cursor: (&'a [u8], &'a [u8]),
}

impl<'a> WalkRecord<'a> {
    fn take(bytes: &mut &'a [u8], flags: u32) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<12>()?;
        let [d0, d1, n0, n1, kind, what, error, _, a0, a1, a2, a3] = *head;
        let (name, mut rest) = rest.split_at_checked(u16::from_le_bytes([n0, n1]).into())?;
        let sums = if flags & FIND_SUMS != 0 { FindSums::take(&mut rest)? } else { <_>::default() };
        let is_node = what & (FIND_IS_LEFT | FIND_IS_ERROR) == 0;
        let has_attributes = flags & FIND_ATTRIBUTES != 0 || what & FIND_IS_APART != 0;
        let attributes = match is_node && has_attributes {
            true => FindAttributes::take(&mut rest)?,
            false => FindAttributes::default(),
        };
        *bytes = rest;
        let depth = u16::from_le_bytes([d0, d1]).into();
        let actions = u32::from_le_bytes([a0, a1, a2, a3]);
        let is_named = depth == 0 || !is_node || is_name(name);
        is_named.then_some(Self { depth, kind, what, error, actions, name, sums, attributes })
    }
}

/// Takes an answer of `walk` apart; `None` if it is none.
#[must_use]
pub fn parse_tree_walk(mut answer: &[u8], flags: u32) -> Option<WalkAnswer<'_>> {
    let head = FindResult::take(&mut answer)?;
    let (mut rest, answer) = answer.split_at_checked(usize::try_from(head.records_len).ok()?)?;
    let mut records = Vec::new();
    while !rest.is_empty() {
        records.push(WalkRecord::take(&mut rest, flags)?);
    }
    let levels = usize::try_from(head.levels).ok()?;
    let cursor = answer.split_at_checked(levels.checked_mul(FindLevel::LEN)?)?;
    let is_whole = cursor.1.len() == usize::try_from(head.path_len).ok()?;
    let is_sound = (head.levels == 0) == (head.is_over == 1)
        && head.levels <= FIND_LEVELS_MAX
        && cursor.1.len() <= FIND_PATH_MAX;
    (is_whole && is_sound).then_some(WalkAnswer { records, head, cursor })
}
