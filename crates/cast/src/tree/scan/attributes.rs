//! What an open file says of itself beside its status: extended attributes, and where it has data.

use super::XattrScope;
use crate::tree::entry::{DataExtent, ExtendedAttribute};
use crate::tree::manifest::TreeLimits;
use crate::tree::name::MARK_XATTR;
use rustix::fd::AsFd;
use rustix::fs::{self, SeekFrom, Stat};
use rustix::io::{Errno, Result};

/// Bytes in a list of attributes' names, at most (XATTR_LIST_MAX).
const XATTR_LIST_LEN_MAX: usize = 64 << 10;
/// How often a value is read again that grows meanwhile.
const ATTEMPTS_MAX: usize = 8;
/// Bytes in the blocks that st_blocks counts.
const STAT_BLOCK_LEN: u64 = 512;

/// An extended attribute that was read.
#[derive(Debug)]
pub(super) struct OwnedXattr {
    name: Vec<u8>,
    value: Vec<u8>,
}

impl OwnedXattr {
    pub(super) fn borrow(&self) -> ExtendedAttribute<'_> {
        ExtendedAttribute { name: &self.name, value: &self.value }
    }
}

/// The attributes of a file or directory in ascending order of names, which the file system gives
/// in any.
pub(super) fn xattrs_of(file: impl AsFd, scope: XattrScope) -> Result<Vec<OwnedXattr>> {
    if scope == XattrScope::Without {
        return Ok(vec![]);
    }
    let mut names: Vec<_> = match list(&file) {
        Err(Errno::OPNOTSUPP) => return Ok(vec![]),
        list => list?
            .split(|&byte| byte == 0)
            .filter(|name| scope.has(name))
            .map(<[u8]>::to_vec)
            .collect(),
    };
    names.sort();
    names.into_iter().map(|name| Ok(OwnedXattr { value: value(&file, &name)?, name })).collect()
}

impl XattrScope {
    fn has(self, name: &[u8]) -> bool {
        let security = self == Self::UserAndSecurity && name.starts_with(b"security.");
        security || name.starts_with(b"user.") && name != MARK_XATTR
    }
}

fn list(file: impl AsFd) -> Result<Vec<u8>> {
    if fs::flistxattr_query(&file)? == 0 {
        return Ok(vec![]);
    }
    let mut list = vec![0; XATTR_LIST_LEN_MAX];
    let len = fs::flistxattr(&file, &mut *list)?;
    list.truncate(len);
    Ok(list)
}

fn value(file: impl AsFd, name: &[u8]) -> Result<Vec<u8>> {
    for _ in 0..ATTEMPTS_MAX {
        let mut value = vec![0; fs::fgetxattr_query(&file, name)?];
        match fs::fgetxattr(&file, name, &mut *value) {
            Err(Errno::RANGE) => {}
            read => {
                value.truncate(read?);
                return Ok(value);
            }
        }
    }
    Err(Errno::RANGE)
}

/// Where a file has data; `None` when it has no holes, or its file system tells of none.
pub(super) fn extents_of(
    file: impl AsFd,
    stat: &Stat,
    limits: TreeLimits,
) -> Result<Option<Vec<DataExtent>>> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
    if blocks.saturating_mul(STAT_BLOCK_LEN) >= size {
        return Ok(None);
    }
    let mut extents = Vec::new();
    let mut at = 0;
    while at < size && extents.len() as u64 <= limits.extents_max {
        let offset = match fs::seek(&file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
            offset => offset?,
        };
        let end = fs::seek(&file, SeekFrom::Hole(offset))?.min(size);
        if offset >= end {
            break;
        }
        extents.push(DataExtent { offset, len: end - offset });
        at = end;
    }
    let is_whole = extents == [DataExtent { offset: 0, len: size }];
    Ok((!is_whole).then_some(extents))
}
