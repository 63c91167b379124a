//! Names that a copy makes, and what becomes of those that are there already.

use super::super::quoted;
use super::super::resolve::{LastLink, resolve};
use super::{CpDirectory, CpExisting, CpKeep, CpName, TreeCopier, is_directory, kind};
use crate::client::{FsError, ManyChange, NewInode};
use crate::protocol::{FsAnswer, FsInode};

/// Rights that a copy's owner has of a file, and of a directory, until it is whole.
const OWN_FILE: u32 = 0o600;
const OWN_DIRECTORY: u32 = 0o700;

impl CpName {
    fn is_new(&self) -> bool {
        self.to.is_none()
    }

    pub(super) fn is_file(&self) -> bool {
        kind(&self.from) == libc::S_IFREG
    }

    /// What it is called in what is said when it cannot be made.
    fn what(&self) -> &'static str {
        match kind(&self.from) {
            libc::S_IFREG => "regular file",
            libc::S_IFDIR => "directory",
            libc::S_IFLNK => "symbolic link",
            libc::S_IFIFO => "fifo",
            _ => "special file",
        }
    }
}

impl TreeCopier<'_> {
    /// Copies names into a directory; where in which directory they were listed, if they were.
    pub(super) fn names(
        &mut self,
        dir: FsInode,
        names: Vec<CpName>,
        listed: Option<(FsInode, u64)>,
    ) -> Result<(), FsError> {
        let (mut firsts, mut further) = (Vec::with_capacity(names.len()), Vec::new());
        for mut name in names {
            if !self.is_wanted(dir, &mut name)? {
                continue;
            }
            match self.is_further(&name) {
                true => further.push(name),
                false => firsts.push(name),
            }
        }
        self.make(dir, &mut firsts)?;
        firsts.retain(|name| name.to.is_some());
        let (directories, mut others): (Vec<_>, Vec<_>) =
            firsts.into_iter().partition(|name| is_directory(&name.from));
        self.copy_bytes(dir, &mut others, listed)?;
        self.set_attributes(&others)?;
        for name in others {
            if self.has_names(&name.from) {
                self.linked.insert(name.from.inode, Some(name));
            }
        }
        directories.into_iter().for_each(|name| self.enter(name));
        self.link(dir, &further)
    }

    /// A directory's names are copied next, and its attributes set at the end.
    fn enter(&mut self, name: CpName) {
        let Some(to) = name.to else { return };
        self.made.extend(name.is_made.then_some(to.inode));
        self.left.push(CpDirectory {
            from: name.from.inode,
            from_path: name.from_path.clone(),
            to: to.inode,
            to_path: name.to_path.clone(),
            to_place: name.to_place.clone(),
            is_made: name.is_made,
        });
        self.directories.push(name);
    }

    /// Whether a file has further names that count.
    fn has_names(&self, from: &FsAnswer) -> bool {
        self.wish.keep == CpKeep::Everything && from.record.nlink > 1 && !is_directory(from)
    }

    /// Whether a name is a further one of a file that is copied already, or just now.
    fn is_further(&mut self, name: &CpName) -> bool {
        self.has_names(&name.from)
            && (self.linked.contains_key(&name.from.inode)
                || self.linked.insert(name.from.inode, None).is_some())
    }

    /// Whether a name is to be copied; what is in its way is removed, or told.
    fn is_wanted(&mut self, dir: FsInode, name: &mut CpName) -> Result<bool, FsError> {
        let (from, to) = (quoted(&name.from_path), quoted(&name.to_path));
        if self.made.contains(&name.from.inode) {
            self.tell(&format!("cannot copy a directory, {from}, into itself, {to}"));
            return Ok(false);
        }
        let is_copied = name.is_file() || self.wish.is_recursive;
        if !is_copied {
            self.tell(&format!("{from} is neither a file nor a directory: write cp -r to copy it"));
            return Ok(false);
        }
        let Some(found) = name.to else { return Ok(true) };
        match (is_directory(&name.from), is_directory(&found)) {
            _ if name.from.inode == found.inode => {
                self.tell(&format!("{from} and {to} are the same file"));
                Ok(false)
            }
            (true, true) => Ok(true),
            (true, false) => {
                self.tell(&format!("cannot overwrite non-directory {to} with directory {from}"));
                Ok(false)
            }
            (false, _) if self.is_kept(name, &found) => Ok(false),
            (false, true) => {
                self.tell(&format!("cannot overwrite directory {to} with non-directory"));
                Ok(false)
            }
            (false, false) => self.is_replaced(dir, name, found),
        }
    }

    /// Whether what is there stays. A link that leads to it does not count, a file does.
    fn is_kept(&self, name: &CpName, found: &FsAnswer) -> bool {
        let is_followed = name.is_file() && kind(found) == libc::S_IFLNK;
        self.wish.existing == CpExisting::Kept && !is_followed
    }

    /// What is there is overwritten, also through a symbolic link, or removed before.
    fn is_replaced(
        &mut self,
        dir: FsInode,
        name: &mut CpName,
        found: FsAnswer,
    ) -> Result<bool, FsError> {
        let is_shared = self.wish.keep == CpKeep::Everything && found.record.nlink > 1;
        if !name.is_file() || is_shared {
            return self.remove(dir, name);
        }
        if kind(&found) != libc::S_IFLNK {
            return Ok(true);
        }
        let path = (&name.to_place[..], &name.to_path[..]);
        match resolve(self.client, &self.caller, path, LastLink::IsFollowed) {
            Ok(led) if self.is_kept(name, &led.found) => Ok(false),
            Ok(led) if is_directory(&led.found) => {
                let to = quoted(&name.to_path);
                self.tell(&format!("cannot overwrite directory {to} with non-directory"));
                Ok(false)
            }
            Ok(led) => {
                name.to = Some(led.found);
                Ok(true)
            }
            Err(_) => {
                let to = quoted(&name.to_path);
                self.tell(&format!("not writing through dangling symlink {to}"));
                Ok(false)
            }
        }
    }

    /// Removes what has a name, so that it can be made; whether it can.
    pub(super) fn remove(&mut self, dir: FsInode, name: &mut CpName) -> Result<bool, FsError> {
        match self.client.unlink(&self.caller, dir, &name.name) {
            Err(FsError::Failed { errno, .. }) if errno != libc::ENOENT => {
                let to = quoted(&name.to_path);
                self.tell_errno(&format!("cannot remove {to}"), errno);
                return Ok(false);
            }
            Ok(_) | Err(FsError::Failed { .. }) => name.to = None,
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Kind and rights of what is made for now.
    fn first_mode(&self, name: &CpName) -> u32 {
        let keeps_owner = self.wish.keep >= CpKeep::Attributes;
        let rights = self.last_rights(name) & if keeps_owner { 0o700 } else { 0o7777 };
        let own = match kind(&name.from) {
            libc::S_IFDIR => OWN_DIRECTORY,
            libc::S_IFREG => OWN_FILE,
            _ => 0,
        };
        kind(&name.from) | rights | own
    }

    /// Rights that a new name is to have.
    pub(super) fn last_rights(&self, name: &CpName) -> u32 {
        let rights = name.from.record.mode & 0o7777;
        match (self.wish.keep >= CpKeep::Attributes, kind(&name.from)) {
            (true, _) => rights,
            (false, libc::S_IFDIR) => rights & 0o1777 & !self.wish.umask,
            (false, libc::S_IFREG) => rights & 0o777 & !self.wish.umask,
            (false, _) => rights & !self.wish.umask,
        }
    }

    /// Makes those that are not there.
    pub(super) fn make(&mut self, dir: FsInode, names: &mut [CpName]) -> Result<(), FsError> {
        let (mut changes, mut places) = (Vec::new(), Vec::new());
        for (place, name) in names.iter().enumerate().filter(|(_, name)| name.is_new()) {
            let target = match kind(&name.from) {
                libc::S_IFLNK => self.client.target(&self.caller, name.from.inode)?,
                _ => Vec::new(),
            };
            let (mode, rdev) = (self.first_mode(name), name.from.record.rdev);
            let new = NewInode { mode, rdev, target: &target };
            changes.push(ManyChange::make(&self.caller, (dir, &name.name), &new));
            places.push(place);
        }
        let results = self.client.change_many(&self.caller, &changes)?;
        for (place, result) in places.into_iter().zip(results) {
            let name = &mut names[place];
            match result {
                Ok(made) => (name.to, name.is_made) = (made, true),
                Err(errno) => {
                    let (what, to) = (name.what(), quoted(&name.to_path));
                    self.tell_errno(&format!("cannot create {what} {to}"), errno);
                }
            }
        }
        Ok(())
    }

    /// Further names of files that are copied.
    fn link(&mut self, dir: FsInode, names: &[CpName]) -> Result<(), FsError> {
        for name in names {
            let first = self.linked.get(&name.from.inode).and_then(Option::as_ref);
            let first = first.and_then(|first| Some((first.to?, quoted(&first.to_path))));
            let Some((to, first)) = first else {
                let path = quoted(&name.to_path);
                self.tell(&format!("cannot create hard link {path}: its file is not copied"));
                continue;
            };
            let mut name = name.clone();
            if name.to.is_some_and(|found| found.inode == to.inode)
                || (name.to.is_some() && !self.remove(dir, &mut name)?)
            {
                continue;
            }
            match self.client.link(&self.caller, to.inode, dir, &name.name) {
                Err(FsError::Failed { errno, .. }) => {
                    let path = quoted(&name.to_path);
                    self.tell_errno(&format!("cannot create hard link {path} to {first}"), errno);
                }
                linked => drop(linked?),
            }
        }
        Ok(())
    }
}
