//! Operations on names and attributes, one request each.

use super::error::FsError;
use super::{FsCaller, FsClient, whole};
use crate::one_sided::{list, look_up, record_of, target_of, xattr_names_of, xattr_of};
use crate::protocol::{
    FsAnswer, FsAttrArgs, FsGrant, FsInode, FsInodeArgs, FsLayout, FsLinkArgs, FsListArgs,
    FsListed, FsMakeArgs, FsNameArgs, FsRenameArgs, FsSeekArgs, FsServing, FsShareArgs, FsStats,
    FsWalkArgs, FsXattrArgs, MAY_READ, SET_ATIME, SET_ATIME_NOW, SET_GID, SET_MODE, SET_MTIME,
    SET_MTIME_NOW, SET_UID, is_name, is_target, parse_list, parse_walk,
};

/// What a new inode is to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewInode<'a> {
    /// Kind and rights.
    pub mode: u32,
    /// Of a device, which.
    pub rdev: u64,
    /// Of a symbolic link, what it says.
    pub target: &'a [u8],
}

/// A time that is to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// When the service executes it.
    Now,
    /// Nanoseconds since 1970.
    At(i64),
}

/// Attributes that are to be set; those that are `None` stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewTimes {
    /// Rights.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<NewTime>,
    /// Last change.
    pub mtime: Option<NewTime>,
}

/// A name of a directory has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangedName {
    /// What it stands for, or stood for.
    pub made: FsAnswer,
    /// The directory.
    pub dir: FsAnswer,
}

impl NewTimes {
    /// Whether nothing is to be set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These, and what is set later.
    #[must_use]
    pub fn then(self, later: &Self) -> Self {
        Self {
            mode: later.mode.or(self.mode),
            uid: later.uid.or(self.uid),
            gid: later.gid.or(self.gid),
            atime: later.atime.or(self.atime),
            mtime: later.mtime.or(self.mtime),
        }
    }

    /// As arguments of `set`.
    pub(super) fn args(&self, caller: &FsCaller, inode: FsInode) -> FsAttrArgs {
        let mut args = FsAttrArgs { who: caller.who, inode, ..FsAttrArgs::default() };
        let mut member = |value: Option<u32>, bit| {
            args.which |= if value.is_some() { bit } else { 0 };
            value.unwrap_or_default()
        };
        args.mode = member(self.mode, SET_MODE);
        args.uid = member(self.uid, SET_UID);
        args.gid = member(self.gid, SET_GID);
        let mut time = |time: Option<NewTime>, at, now| {
            let (bit, ns) = match time {
                None => (0, 0),
                Some(NewTime::Now) => (now, 0),
                Some(NewTime::At(ns)) => (at, ns),
            };
            args.which |= bit;
            ns
        };
        args.atime_ns = time(self.atime, SET_ATIME, SET_ATIME_NOW);
        args.mtime_ns = time(self.mtime, SET_MTIME, SET_MTIME_NOW);
        args
    }
}

/// What a renaming came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenamedInode {
    /// What the second name stood for; all zero for nothing.
    pub replaced: FsAnswer,
    /// What it stands for now; all zero if both were names of one inode, and stay.
    pub moved: FsAnswer,
}

/// A name of a directory, with what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedName {
    /// What it stands for, and the place behind it.
    pub head: FsListed,
    /// The name.
    pub name: Vec<u8>,
}

impl FsClient {
    /// An inode's attributes.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn get(&self, caller: &FsCaller, inode: FsInode) -> Result<FsAnswer, FsError> {
        if let Some(answer) = self.read_region(("get", inode), |view| record_of(view, inode)) {
            return Ok(answer);
        }
        self.ask_answer(caller, "get", &FsInodeArgs { inode }.bytes())
    }

    /// What a name stands for.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn find(&self, caller: &FsCaller, dir: FsInode, name: &[u8]) -> Result<FsAnswer, FsError> {
        if let Some(found) = self.read_name(dir, name) {
            return found.ok_or_else(|| FsError::of(libc::ENOENT));
        }
        self.ask_answer(caller, "find", &name_args(caller, dir, name))
    }

    /// Makes an inode with a name.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn make(
        &self,
        caller: &FsCaller,
        dir: FsInode,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<ChangedName, FsError> {
        let NewInode { mode, rdev, target } = *new;
        let target_len = u32::try_from(target.len()).map_err(|_| FsError::of(libc::E2BIG))?;
        let args = FsMakeArgs { who: caller.who, dir, mode, target_len, rdev };
        self.change_name(caller, "make", &[&args.bytes(), name, target].concat())
    }

    /// Removes a name that stands for no directory; what it stood for, as it is then.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn unlink(
        &self,
        caller: &FsCaller,
        dir: FsInode,
        name: &[u8],
    ) -> Result<ChangedName, FsError> {
        self.change_name(caller, "unlink", &name_args(caller, dir, name))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn rmdir(
        &self,
        caller: &FsCaller,
        dir: FsInode,
        name: &[u8],
    ) -> Result<ChangedName, FsError> {
        self.change_name(caller, "rmdir", &name_args(caller, dir, name))
    }

    fn change_name(
        &self,
        caller: &FsCaller,
        entry: &'static str,
        args: &[u8],
    ) -> Result<ChangedName, FsError> {
        let [made, dir] = whole(&self.ask(caller, entry, args)?, entry)?;
        Ok(ChangedName { made, dir })
    }

    /// Gives an inode one more name.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn link(
        &self,
        caller: &FsCaller,
        inode: FsInode,
        dir: FsInode,
        name: &[u8],
    ) -> Result<ChangedName, FsError> {
        let args = FsLinkArgs { who: caller.who, dir, inode };
        self.change_name(caller, "link", &[&args.bytes(), name].concat())
    }

    /// Has an inode another name; see [`RenamedInode`].
    ///
    /// # Errors
    /// [`FsError`].
    pub fn rename(
        &self,
        caller: &FsCaller,
        (from, from_name): (FsInode, &[u8]),
        (to, to_name): (FsInode, &[u8]),
        flags: u32,
    ) -> Result<RenamedInode, FsError> {
        let from_len = u32::try_from(from_name.len()).map_err(|_| FsError::of(libc::E2BIG))?;
        let args = FsRenameArgs { who: caller.who, from, to, flags, from_len };
        let args = [&args.bytes(), from_name, to_name].concat();
        let [replaced, moved] = whole(&self.ask(caller, "rename", &args)?, "rename")?;
        Ok(RenamedInode { replaced, moved })
    }

    /// Sets attributes.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn set(
        &self,
        caller: &FsCaller,
        inode: FsInode,
        new: &NewTimes,
    ) -> Result<FsAnswer, FsError> {
        self.ask_answer(caller, "set", &new.args(caller, inode).bytes())
    }

    /// Names of a directory from a place on; none behind the last.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn list(
        &self,
        caller: &FsCaller,
        dir: FsInode,
        at: u64,
    ) -> Result<Vec<ListedName>, FsError> {
        self.list_to_go_on(caller, dir, at).map(|(names, _)| names)
    }

    /// As [`list`](Self::list), and the caller for whom the rest of an open directory is listed,
    /// whatever its mode is by then.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn list_to_go_on(
        &self,
        caller: &FsCaller,
        dir: FsInode,
        at: u64,
    ) -> Result<(Vec<ListedName>, FsCaller), FsError> {
        if let Some(names) = self.read_region(("list", dir, at), |view| list(view, dir, at)) {
            return Ok((names, *caller));
        }
        const NO_LIST: FsError = FsError::Answer { entry: "list" };
        let want = if self.tells_opens && caller.who.grant.rights == 0 { MAY_READ } else { 0 };
        let args = FsListArgs { who: caller.who, dir, at, want, zero: 0 };
        let result = self.ask(caller, "list", &args.bytes())?;
        let (mut names, mut caller) = (&result[..], *caller);
        if want != 0 {
            let end = result.len().checked_sub(FsGrant::LEN).ok_or(NO_LIST)?;
            let (listed, grant) = result.split_at(end);
            (names, caller.who.grant) = (listed, whole(grant, "list")?);
        }
        let names = parse_list(names, at).ok_or(NO_LIST)?;
        let owned = |name: &[u8], head| ListedName { head, name: name.to_vec() };
        Ok((names.into_iter().map(|one| owned(one.name, one.head)).collect(), caller))
    }

    /// What a symbolic link says.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn target(&self, caller: &FsCaller, inode: FsInode) -> Result<Vec<u8>, FsError> {
        if let Some(target) = self.read_region(("target", inode), |view| target_of(view, inode)) {
            return Ok(target);
        }
        let target = self.ask(caller, "target", &FsInodeArgs { inode }.bytes())?;
        if is_target(&target) { Ok(target) } else { Err(FsError::Answer { entry: "target" }) }
    }

    /// How full the file system is.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn stats(&self, caller: &FsCaller) -> Result<FsStats, FsError> {
        self.stats_of_server(caller).map(|(stats, _)| stats)
    }

    /// As [`stats`](Self::stats), and what the server says of itself.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn stats_of_server(&self, caller: &FsCaller) -> Result<(FsStats, FsServing), FsError> {
        let result = self.ask(caller, "stats", b"")?;
        let both = FsStats::split(&result);
        let both = both.and_then(|(stats, rest)| Some((stats, FsServing::parse(rest)?)));
        both.ok_or(FsError::Answer { entry: "stats" })
    }

    /// What names one below the other stand for, as far as they do, and why the next one does
    /// not: an error number, 0 if all do.
    ///
    /// # Errors
    /// [`FsError`]: `dir` itself.
    pub fn walk(
        &self,
        caller: &FsCaller,
        dir: FsInode,
        names: &[&[u8]],
    ) -> Result<(Vec<FsAnswer>, u32), FsError> {
        if let [name] = names
            && let Some(found) = self.read_name(dir, name)
        {
            let error = if found.is_some() { 0 } else { libc::ENOENT.unsigned_abs() };
            return Ok((found.into_iter().collect(), error));
        }
        let too_many = |_| FsError::of(libc::E2BIG);
        let count = u32::try_from(names.len()).map_err(too_many)?;
        let mut args = FsWalkArgs { who: caller.who, dir, count, zero: 0 }.bytes();
        for name in names {
            let len = u16::try_from(name.len()).map_err(|_| FsError::of(libc::ENAMETOOLONG))?;
            args.extend_from_slice(&len.to_le_bytes());
            args.extend_from_slice(name);
        }
        let result = self.ask(caller, "walk", &args)?;
        parse_walk(&result, names.len()).ok_or(FsError::Answer { entry: "walk" })
    }

    /// The first place at `offset` or behind it that has bytes, or has none, as `which` says.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn seek(
        &self,
        caller: &FsCaller,
        inode: FsInode,
        offset: u64,
        which: u64,
    ) -> Result<u64, FsError> {
        let args = FsSeekArgs { who: caller.who, inode, offset, which };
        whole(&self.ask(caller, "seek", &args.bytes())?, "seek")
    }

    /// Has one file the blocks of another as well.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn share(&self, caller: &FsCaller, share: &FsShareArgs) -> Result<FsAnswer, FsError> {
        self.ask_answer(caller, "share", &FsShareArgs { who: caller.who, ..*share }.bytes())
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn set_xattr(
        &self,
        caller: &FsCaller,
        inode: FsInode,
        (name, value): (&[u8], &[u8]),
        flags: u32,
    ) -> Result<(), FsError> {
        self.on_xattr(caller, "set_xattr", inode, (name, value), flags).map(drop)
    }

    /// An extended attribute's value.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn xattr(
        &self,
        caller: &FsCaller,
        inode: FsInode,
        name: &[u8],
    ) -> Result<Vec<u8>, FsError> {
        let value = || self.read_region(("xattr", inode, name), |view| xattr_of(view, inode, name));
        match is_for_all(name).then(value).flatten() {
            Some(value) => value.ok_or_else(|| FsError::of(libc::ENODATA)),
            None => self.on_xattr(caller, "get_xattr", inode, (name, b""), 0),
        }
    }

    /// The names of all extended attributes, each with a byte of 0.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn xattr_names(&self, caller: &FsCaller, inode: FsInode) -> Result<Vec<u8>, FsError> {
        match self.read_region(("xattrs", inode), |view| xattr_names_of(view, inode)) {
            Some(names) => Ok(names),
            None => self.on_xattr(caller, "list_xattr", inode, (b"", b""), 0),
        }
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn remove_xattr(
        &self,
        caller: &FsCaller,
        inode: FsInode,
        name: &[u8],
    ) -> Result<(), FsError> {
        self.on_xattr(caller, "remove_xattr", inode, (name, b""), 0).map(drop)
    }

    /// What a name stands for, read one-sided; `None`: the module is asked.
    fn read_name(&self, dir: FsInode, name: &[u8]) -> Option<Option<FsAnswer>> {
        let read = || self.read_region(("find", dir, name), |view| look_up(view, dir, name));
        is_name(name).then(read).flatten()
    }

    fn on_xattr(
        &self,
        caller: &FsCaller,
        entry: &'static str,
        inode: FsInode,
        (name, value): (&[u8], &[u8]),
        flags: u32,
    ) -> Result<Vec<u8>, FsError> {
        let too_long = |_| FsError::of(libc::E2BIG);
        let name_len = u32::try_from(name.len()).map_err(too_long)?;
        let value_len = u32::try_from(value.len()).map_err(too_long)?;
        let who = caller.who;
        let args = FsXattrArgs { who, inode, flags, name_len, value_len, zero: 0 };
        self.ask(caller, entry, &[&args.bytes(), name, value].concat())
    }

    /// Whether a directory can have this name.
    #[must_use]
    pub fn can_be_name(name: &[u8]) -> bool {
        is_name(name)
    }
}

/// Whether whoever may read an inode may ask for an extended attribute of this name.
fn is_for_all(name: &[u8]) -> bool {
    [&b"user."[..], b"security."]
        .iter()
        .any(|of| name.strip_prefix(*of).is_some_and(|rest| !rest.is_empty() && !rest.contains(&0)))
}

fn name_args(caller: &FsCaller, dir: FsInode, name: &[u8]) -> Vec<u8> {
    let args = FsNameArgs { who: caller.who, dir, ..FsNameArgs::default() };
    [&args.bytes(), name].concat()
}
