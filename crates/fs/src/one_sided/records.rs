//! Inodes' records, and what belongs to one: a link's target, extended attributes.

use super::view::{RegionView, WalkStop, Walked, value, word_at};
use crate::protocol::places::{INODE_MAGIC, module_hash, word_of};
use crate::protocol::{
    FsAnswer, FsInode, FsLayout, FsRecord, NAME_MAX, TARGET_MAX, XATTRS_MAX, is_target,
};

/// Where in a record the generation begins: behind the check word.
const CHECKED_AT: usize = 8;
/// Bytes in front of an inode's extended attributes, and of each of them.
const XATTR_HEAD: usize = 8;

/// A record, used or not, which its check word says to be whole.
fn record(view: &RegionView<'_>, number: u64) -> Walked<FsRecord> {
    let bytes = view.read(view.headers.record(number)?, FsRecord::LEN as u64)?;
    let record: FsRecord = value(bytes)?;
    match module_hash(INODE_MAGIC, &bytes[CHECKED_AT..]) == record.check {
        true => Ok(record),
        false => Err(WalkStop::Unclear),
    }
}

/// What a name says that is there.
pub(super) fn named(view: &RegionView<'_>, number: u64) -> Walked<FsAnswer> {
    let record = record(view, number)?;
    let inode = FsInode { number, generation: record.generation.into() };
    if record.mode == 0 { Err(WalkStop::Unclear) } else { Ok(FsAnswer { inode, record }) }
}

/// An inode that is there, with its record.
pub(crate) fn record_of(view: &RegionView<'_>, inode: FsInode) -> Walked<FsAnswer> {
    let record = record(view, inode.number)?;
    let is_it = u64::from(record.generation) == inode.generation && record.mode != 0;
    match is_it && (record.nlink > 0 || record.holds > 0) {
        true => Ok(FsAnswer { inode, record }),
        false => Err(WalkStop::Unclear),
    }
}

/// A directory that has not been removed.
pub(super) fn directory(view: &RegionView<'_>, dir: FsInode) -> Walked<FsRecord> {
    let record = record_of(view, dir)?.record;
    let is_one = record.mode & libc::S_IFMT == libc::S_IFDIR && record.nlink > 0;
    if is_one { Ok(record) } else { Err(WalkStop::Unclear) }
}

/// What a symbolic link says.
pub(crate) fn target_of(view: &RegionView<'_>, inode: FsInode) -> Walked<Vec<u8>> {
    let record = record_of(view, inode)?.record;
    let is_link = record.mode & libc::S_IFMT == libc::S_IFLNK;
    if !is_link || record.size > TARGET_MAX as u64 {
        return Err(WalkStop::Unclear);
    }
    let target = view.read(record.body, record.size)?;
    if is_target(target) { Ok(target.to_vec()) } else { Err(WalkStop::Unclear) }
}

/// The extended attributes of an inode: names and values.
fn xattrs<'a>(view: &RegionView<'a>, inode: FsInode) -> Walked<Vec<(&'a [u8], &'a [u8])>> {
    let record = record_of(view, inode)?.record;
    if record.xattrs == 0 {
        return Ok(Vec::new());
    }
    let len = word_at(view.read(record.xattrs, XATTR_HEAD as u64)?, 0);
    if len > XATTRS_MAX as u64 {
        return Err(WalkStop::Unclear);
    }
    let all = view.read(record.xattrs, XATTR_HEAD as u64 + len)?;
    parse_xattrs(&all[XATTR_HEAD..]).ok_or(WalkStop::Unclear)
}

fn parse_xattrs(mut rest: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (head, behind) = rest.split_at_checked(XATTR_HEAD)?;
        let name_len = usize::try_from(word_of(&head[..4])).ok()?;
        let value_len = usize::try_from(word_of(&head[4..])).ok()?;
        let both = name_len.checked_add(value_len)?;
        let (name, value) = behind.get(..both)?.split_at(name_len);
        ((1..=NAME_MAX).contains(&name_len) && !name.contains(&0)).then_some(())?;
        all.push((name, value));
        rest = behind.get(both.checked_next_multiple_of(8)?..)?;
    }
    Some(all)
}

/// An extended attribute's value; `None`: there is none of this name. Only of names that anybody
/// may ask for who may read the inode.
pub(crate) fn xattr_of(
    view: &RegionView<'_>,
    inode: FsInode,
    name: &[u8],
) -> Walked<Option<Vec<u8>>> {
    let all = xattrs(view, inode)?;
    let found = all.into_iter().find(|(known, _)| *known == name);
    Ok(found.map(|(_, value)| value.to_vec()))
}

/// The names of all extended attributes, each with a byte of 0, unless some are not for everybody.
pub(crate) fn xattr_names_of(view: &RegionView<'_>, inode: FsInode) -> Walked<Vec<u8>> {
    let all = xattrs(view, inode)?;
    if all.iter().any(|(name, _)| name.starts_with(b"trusted.")) {
        return Err(WalkStop::Unclear);
    }
    Ok(all.into_iter().flat_map(|(name, _)| [name, b"\0"].concat()).collect())
}
