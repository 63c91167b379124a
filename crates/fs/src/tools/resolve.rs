//! What a path of a file system stands for. Symbolic links are followed, but for one that the path
//! ends with.

use super::ToolError;
use crate::client::{FsCaller, FsClient, FsError};
use crate::protocol::{FsAnswer, FsInode, WALK_MAX};
use std::collections::VecDeque;

/// Symbolic links that are followed.
const LINKS_MAX: u32 = 40;

/// Whether a symbolic link at a path's end is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// It is what the path stands for.
    Stays,
    /// What it says is.
    IsFollowed,
}

/// What a path stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedPath {
    /// The inode.
    pub found: FsAnswer,
    /// The directory that it has its name in, and the name; `None`: it is the root.
    pub parent: Option<(FsInode, Vec<u8>)>,
    /// The directories above it, the root first.
    pub above: Vec<FsInode>,
}

impl ResolvedPath {
    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.found.record.mode & libc::S_IFMT == libc::S_IFDIR
    }
}

/// See this file's first lines.
///
/// # Errors
/// [`ToolError::Fs`].
pub fn resolve(
    client: &FsClient,
    caller: &FsCaller,
    (path, shown): (&[u8], &[u8]),
    last: LastLink,
) -> Result<ResolvedPath, ToolError> {
    let fault = |error| ToolError::Fs { path: shown.to_vec(), error };
    Resolving::new(client, caller, (path, last)).and_then(Resolving::end).map_err(fault)
}

struct Resolving<'a> {
    client: &'a FsClient,
    caller: &'a FsCaller,
    /// The root, and what stands below it, with its name.
    above: Vec<(FsAnswer, Vec<u8>)>,
    names: VecDeque<Vec<u8>>,
    ends_in_slash: bool,
    last: LastLink,
    links: u32,
}

fn names_of(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> + '_ {
    let names = path.split(|byte| *byte == b'/');
    names.filter(|name| !matches!(*name, b"" | b".")).map(<[u8]>::to_vec)
}

impl<'a> Resolving<'a> {
    fn new(
        client: &'a FsClient,
        caller: &'a FsCaller,
        (path, last): (&[u8], LastLink),
    ) -> Result<Self, FsError> {
        let root = client.get(caller, client.root())?;
        let ends_in_slash = path.ends_with(b"/") || path.ends_with(b"/.");
        let (above, names) = (vec![(root, Vec::new())], names_of(path).collect());
        Ok(Self { client, caller, above, names, ends_in_slash, last, links: 0 })
    }

    fn last(&self) -> Result<FsAnswer, FsError> {
        self.above.last().map(|(found, _)| *found).ok_or_else(|| FsError::of(libc::EINVAL))
    }

    fn end(mut self) -> Result<ResolvedPath, FsError> {
        loop {
            let found = self.last()?;
            let is_link = found.record.mode & libc::S_IFMT == libc::S_IFLNK;
            let follows = self.ends_in_slash || self.last == LastLink::IsFollowed;
            if is_link && (follows || !self.names.is_empty()) {
                self.follow(found.inode)?;
            } else if self.names.front().is_some_and(|name| name == b"..") {
                self.names.pop_front();
                if self.above.len() > 1 {
                    self.above.pop();
                }
            } else if self.names.is_empty() {
                break;
            } else {
                self.step(found.inode)?;
            }
        }
        let (found, name) = self.above.pop().ok_or_else(|| FsError::of(libc::EINVAL))?;
        if self.ends_in_slash && found.record.mode & libc::S_IFMT != libc::S_IFDIR {
            return Err(FsError::of(libc::ENOTDIR));
        }
        let parent = self.above.last().map(|(parent, _)| (parent.inode, name));
        let above = self.above.iter().map(|(dir, _)| dir.inode).collect();
        Ok(ResolvedPath { found, parent, above })
    }

    /// Goes along names as far as there are no links, nor a way back.
    fn step(&mut self, dir: FsInode) -> Result<(), FsError> {
        let run = self.names.iter().take_while(|name| *name != b"..").take(WALK_MAX);
        let run: Vec<&[u8]> = run.map(Vec::as_slice).collect();
        let (found, error) = self.client.walk(self.caller, dir, &run)?;
        let is_link = |last: &FsAnswer| last.record.mode & libc::S_IFMT == libc::S_IFLNK;
        let error = i32::try_from(error).unwrap_or(libc::EIO);
        if error != 0 && !(error == libc::ELOOP && found.last().is_some_and(is_link)) {
            return Err(FsError::of(error));
        }
        for one in found {
            let name = self.names.pop_front().unwrap_or_default();
            self.above.push((one, name));
        }
        Ok(())
    }

    fn follow(&mut self, link: FsInode) -> Result<(), FsError> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(FsError::of(libc::ELOOP));
        }
        let target = self.client.target(self.caller, link)?;
        let keep = if target.starts_with(b"/") { 1 } else { self.above.len() - 1 };
        self.above.truncate(keep.max(1));
        for name in names_of(&target).rev() {
            self.names.push_front(name);
        }
        self.ends_in_slash |= self.names.is_empty() && target.ends_with(b"/");
        Ok(())
    }
}
