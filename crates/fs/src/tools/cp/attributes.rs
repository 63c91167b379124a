//! What copies keep beside their bytes: rights, owners, times, extended attributes.

use super::super::quoted;
use super::{CpKeep, CpName, TreeCopier, is_directory, kind};
use crate::client::{FsError, ManyChange, NewTime, NewTimes};
use crate::protocol::{FsAnswer, FsInode};

/// Extended attributes with their names.
type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// A change of attributes.
enum CpChange {
    Xattr(Vec<u8>),
    Set(FsInode, NewTimes),
}

impl TreeCopier<'_> {
    /// Sets what directories are to have: names change them no more.
    pub(super) fn set_directories(&mut self) -> Result<(), FsError> {
        let mut directories = std::mem::take(&mut self.directories);
        directories.reverse();
        self.set_attributes(&directories)
    }

    pub(super) fn set_attributes(&mut self, names: &[CpName]) -> Result<(), FsError> {
        let (mut changes, mut whose) = (Vec::new(), Vec::new());
        for name in names {
            let Some(to) = &name.to else { continue };
            // Attributes first: they need the right to write, which the rights may take.
            for (attribute, value) in self.xattrs(name)? {
                changes.push(ManyChange::xattr(&self.caller, to.inode, (&attribute, &value)));
                whose.push((name, CpChange::Xattr(attribute)));
            }
            if let Some(new) = self.attributes(name, to) {
                changes.push(ManyChange::set(&self.caller, to.inode, &new));
                whose.push((name, CpChange::Set(to.inode, new)));
            }
        }
        let results = self.client.change_many(&self.caller, &changes)?;
        for ((name, change), result) in whose.into_iter().zip(results) {
            match (change, result) {
                (CpChange::Set(inode, new), Err(_)) => self.set_parts(name, inode, new)?,
                (CpChange::Xattr(attribute), Err(errno)) => {
                    self.xattr_failed(name, &attribute, errno);
                }
                (_, Ok(_)) => {}
            }
        }
        Ok(())
    }

    /// What is to be set; `None`: nothing.
    fn attributes(&self, name: &CpName, to: &FsAnswer) -> Option<NewTimes> {
        let (from, has) = (&name.from.record, &to.record);
        let inherited = if is_directory(to) { has.mode & libc::S_ISGID } else { 0 };
        let rights = (kind(&name.from) != libc::S_IFLNK).then(|| self.last_rights(name));
        if self.wish.keep >= CpKeep::Attributes {
            return Some(NewTimes {
                mode: rights,
                uid: (from.uid != has.uid).then_some(from.uid),
                gid: (from.gid != has.gid).then_some(from.gid),
                atime: Some(NewTime::At(from.atime_ns)),
                mtime: Some(NewTime::At(from.mtime_ns)),
            });
        }
        let rights = rights.filter(|_| name.is_made).map(|rights| rights | inherited);
        let mode = rights.filter(|rights| *rights != has.mode & 0o7777)?;
        Some(NewTimes { mode: Some(mode), ..NewTimes::default() })
    }

    /// Sets one by one what could not be set together. Who is not user 0 does not give files away,
    /// which is no failure; but what runs as its owner must not run as another one.
    fn set_parts(&mut self, name: &CpName, inode: FsInode, new: NewTimes) -> Result<(), FsError> {
        let times = NewTimes { atime: new.atime, mtime: new.mtime, ..NewTimes::default() };
        self.set_part(name, inode, &times, Some("preserving times for"))?;
        let NewTimes { uid, gid, mut mode, .. } = new;
        let owner = NewTimes { uid, gid, ..NewTimes::default() };
        let told = (self.caller.who.uid == 0).then_some("failed to preserve ownership for");
        if !self.set_part(name, inode, &owner, told)? {
            self.set_part(name, inode, &NewTimes { uid: None, ..owner }, None)?;
            mode = mode.map(|mode| mode & 0o777);
        }
        let rights = NewTimes { mode, ..NewTimes::default() };
        self.set_part(name, inode, &rights, Some("preserving permissions for"))?;
        Ok(())
    }

    /// Whether it is set; else it is told, if there is a word for it.
    fn set_part(
        &mut self,
        name: &CpName,
        inode: FsInode,
        new: &NewTimes,
        what: Option<&str>,
    ) -> Result<bool, FsError> {
        if *new == NewTimes::default() {
            return Ok(true);
        }
        match self.client.set(&self.caller, inode, new) {
            Err(FsError::Failed { errno, .. }) => {
                if let Some(what) = what {
                    let to = quoted(&name.to_path);
                    self.tell_errno(&format!("{what} {to}"), errno);
                }
                Ok(false)
            }
            set => set.map(|_| true),
        }
    }

    /// A file's extended attributes that are kept: those that the user sees.
    fn xattrs(&self, name: &CpName) -> Result<Xattrs, FsError> {
        let from = &name.from;
        let mut all = Xattrs::new();
        if self.wish.keep < CpKeep::Everything || from.record.xattrs == 0 {
            return Ok(all);
        }
        let names = match self.client.xattr_names(&self.caller, from.inode) {
            Err(FsError::Failed { .. }) => return Ok(all),
            names => names?,
        };
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            match self.client.xattr(&self.caller, from.inode, name) {
                // It may not be read, or is gone.
                Err(FsError::Failed { .. }) => {}
                value => all.push((name.to_vec(), value?)),
            }
        }
        Ok(all)
    }

    /// Attributes that only user 0 sets are not kept for others; what has no room is a failure.
    fn xattr_failed(&mut self, name: &CpName, attribute: &[u8], errno: i32) {
        if matches!(errno, libc::EPERM | libc::EOPNOTSUPP) {
            return;
        }
        let (attribute, to) = (quoted(attribute), quoted(&name.to_path));
        self.tell_errno(&format!("setting attribute {attribute} for {to}"), errno);
    }
}
