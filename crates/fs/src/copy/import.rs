//! A tree of this machine becomes one of a file system.

use super::local::{self, LocalXattrs};
use super::pieces::{PieceError, PieceSender};
use super::workers::CopyWorkers;
use super::{
    CopyError, CopyProgress, CopyTelling, NAMES_AT_ONCE, THREADS, TellFailure, is_fatal,
    local_error, staging_name, words, words_of_fs,
};
use crate::client::{
    FsCaller, FsClient, FsError, ManyChange, ManyResult, NewInode, NewTime, NewTimes,
};
use crate::protocol::{FsInode, NOREPLACE, time_ns};
use crate::tools::{ResolvedPath, errno_words};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// Rights of what is under way.
const PRIVATE: u32 = 0o700;

/// What a directory of this machine becomes.
pub enum ImportTarget {
    /// A name that is not there, in a directory.
    New(FsInode, Vec<u8>),
    /// A directory that is there, and empty.
    Empty(Box<ResolvedPath>),
}

impl std::fmt::Debug for ImportTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImportTarget").finish_non_exhaustive()
    }
}

/// A part of the work.
enum ImportWork {
    /// A directory, whose names are not read yet.
    Directory(PathBuf, FsInode),
    /// Names of a directory.
    Names(PathBuf, FsInode, Vec<OsString>),
}

/// Something that is made: where it is, and what it shall be.
struct ImportedFile {
    path: PathBuf,
    name: OsString,
    about: Metadata,
    xattrs: LocalXattrs,
    inode: Option<FsInode>,
}

/// A further name of an inode that is imported.
struct FurtherName {
    path: PathBuf,
    of: (u64, u64),
    dir: FsInode,
}

/// What is done when everything has its name.
#[derive(Default)]
struct ImportRest {
    /// Files with several names: the inode, once it is made.
    linked: HashMap<(u64, u64), Option<FsInode>>,
    further: Vec<FurtherName>,
    /// Rights and times of directories.
    directories: Vec<(PathBuf, FsInode, Metadata, LocalXattrs)>,
}

struct TreeImport<'a> {
    client: &'a Arc<FsClient>,
    caller: &'a FsCaller,
    telling: CopyTelling<'a>,
    workers: CopyWorkers<ImportWork>,
    rest: Mutex<ImportRest>,
    device: u64,
}

/// Copies a directory of this machine into a file system. What is told and counted as a failure is
/// not there, all other things are.
///
/// # Errors
/// [`CopyError`].
pub fn import_tree(
    (client, caller): (&Arc<FsClient>, &FsCaller),
    source: &Path,
    (target, shown): (&ImportTarget, &str),
    (progress, tell): (&CopyProgress, TellFailure<'_>),
) -> Result<(), CopyError> {
    let about = fs::metadata(source).map_err(|error| local_error(source, error))?;
    if !about.is_dir() {
        return Err(local_error(source, rustix::io::Errno::NOTDIR));
    }
    let remote =
        |error: FsError| CopyError::Remote { path: shown.to_owned(), why: words_of_fs(&error) };
    let (parent, name) = match target {
        ImportTarget::New(parent, name) => (*parent, &name[..]),
        ImportTarget::Empty(place) => match &place.parent {
            Some((parent, name)) => (*parent, &name[..]),
            None => (place.found.inode, &b"root"[..]),
        },
    };
    let staging = staging_name(name, "import");
    let new = NewInode { mode: libc::S_IFDIR | PRIVATE, ..NewInode::default() };
    let made = client.make(caller, parent, &staging, &new).map_err(remote)?.made.inode;
    let import = TreeImport {
        client,
        caller,
        telling: CopyTelling { progress, tell, fatal: Mutex::default() },
        workers: CopyWorkers::new(ImportWork::Directory(source.to_owned(), made)),
        rest: Mutex::default(),
        device: about.dev(),
    };
    import.directory_made(source, made, &about);
    import.workers.run(THREADS, |work| import.work(work));
    let done = match import.telling.fatal() {
        Some(why) => Err(why),
        None => {
            let placed = import.link();
            let placed =
                placed.and_then(|()| import.put_in_place(target, (parent, &staging), made));
            placed.map_err(|error| words_of_fs(&error))
        }
    };
    // What is told as it comes may have been the end of it, too.
    done.and_then(|()| import.telling.fatal().map_or(Ok(()), Err)).map_err(|why| {
        let rest = format!("in {} beside {shown}, or in it", String::from_utf8_lossy(&staging));
        CopyError::Unfinished { why, rest }
    })
}

impl TreeImport<'_> {
    fn rest(&self) -> std::sync::MutexGuard<'_, ImportRest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, path: &Path, errno: i32) {
        if is_fatal(errno) {
            self.stop(format!("{}: {}", path.display(), errno_words(errno)));
        } else {
            self.telling.failed(path.as_os_str().as_bytes(), &errno_words(errno));
        }
    }

    fn stop(&self, why: String) {
        self.telling.end(why);
        self.workers.end();
    }

    fn work(&self, work: ImportWork) {
        let done = match work {
            ImportWork::Directory(path, dir) => {
                self.read(&path, dir);
                Ok(())
            }
            ImportWork::Names(path, dir, names) => self.names(&path, dir, names),
        };
        if let Err(error) = done {
            self.stop(words_of_fs(&error));
        }
    }

    fn read(&self, path: &Path, dir: FsInode) {
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) => {
                return self.telling.failed(path.as_os_str().as_bytes(), &words(&error));
            }
        };
        let mut names = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => names.push(entry.file_name()),
                Err(error) => self.telling.failed(path.as_os_str().as_bytes(), &words(&error)),
            }
            if names.len() == NAMES_AT_ONCE {
                let names = std::mem::take(&mut names);
                self.workers.add(ImportWork::Names(path.to_owned(), dir, names));
            }
        }
        if !names.is_empty() {
            self.workers.add(ImportWork::Names(path.to_owned(), dir, names));
        }
    }

    /// Copies names of a directory: makes them, sends bytes, sets attributes.
    fn names(&self, path: &Path, dir: FsInode, names: Vec<OsString>) -> Result<(), FsError> {
        let looked = names.into_iter().filter_map(|name| self.look(path, dir, name));
        let mut files: Vec<ImportedFile> = looked.collect();
        self.make(dir, &mut files)?;
        let mut sender = PieceSender::new(self.client, self.caller);
        for (index, file) in files.iter().enumerate() {
            let Some(inode) = file.inode.filter(|_| file.about.is_file()) else { continue };
            let sent = sender.file(index, &file.path, inode, &file.about);
            self.telling.progress.bytes.fetch_add(sent, Ordering::Relaxed);
        }
        sender.wait_for_all();
        for (index, error) in std::mem::take(&mut sender.failed) {
            self.take_back(dir, &mut files[index], error);
        }
        let files: Vec<_> = files.iter().filter(|file| file.inode.is_some()).collect();
        self.set_attributes(&files)
    }

    /// What a name stands for here; `None` if it is nothing that is copied with its directory.
    fn look(&self, path: &Path, dir: FsInode, name: OsString) -> Option<ImportedFile> {
        let path = path.join(&name);
        let looked = fs::symlink_metadata(&path).and_then(|about| {
            let has_xattrs = about.is_dir() || about.is_file();
            let xattrs = if has_xattrs { local::xattrs(&path)? } else { Vec::new() };
            Ok((about, xattrs))
        });
        let (about, xattrs) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                self.telling.failed(path.as_os_str().as_bytes(), &words(&error));
                return None;
            }
        };
        if about.is_dir() && about.dev() != self.device {
            let why = "another file system is mounted there: import it by itself";
            self.telling.failed(path.as_os_str().as_bytes(), why);
            return None;
        }
        if !about.is_dir() && about.nlink() > 1 {
            let (of, mut rest) = ((about.dev(), about.ino()), self.rest());
            if rest.linked.contains_key(&of) {
                rest.further.push(FurtherName { path, of, dir });
                return None;
            }
            rest.linked.insert(of, None);
        }
        Some(ImportedFile { path, name, about, xattrs, inode: None })
    }

    fn make(&self, dir: FsInode, files: &mut [ImportedFile]) -> Result<(), FsError> {
        let mut changes = Vec::with_capacity(files.len());
        for file in &*files {
            let kind = file.about.mode() & libc::S_IFMT;
            let target = match kind {
                libc::S_IFLNK => fs::read_link(&file.path).unwrap_or_default(),
                _ => PathBuf::new(),
            };
            let new = NewInode {
                mode: kind | PRIVATE,
                rdev: file.about.rdev(),
                target: target.as_os_str().as_bytes(),
            };
            changes.push(ManyChange::make(self.caller, (dir, file.name.as_bytes()), &new));
        }
        let results = self.client.change_many(self.caller, &changes)?;
        for (file, result) in files.iter_mut().zip(results) {
            match result {
                Ok(Some(answer)) => self.made(file, answer.inode),
                Ok(None) => return Err(FsError::Answer { entry: "make" }),
                Err(errno) => self.failed(&file.path, errno),
            }
        }
        Ok(())
    }

    fn made(&self, file: &mut ImportedFile, inode: FsInode) {
        file.inode = Some(inode);
        self.telling.progress.names.fetch_add(1, Ordering::Relaxed);
        if file.about.is_dir() {
            self.workers.add(ImportWork::Directory(file.path.clone(), inode));
        } else if file.about.nlink() > 1 {
            self.rest().linked.insert((file.about.dev(), file.about.ino()), Some(inode));
        }
    }

    fn directory_made(&self, path: &Path, inode: FsInode, about: &Metadata) {
        let xattrs = local::xattrs(path).unwrap_or_else(|error| {
            self.telling.failed(path.as_os_str().as_bytes(), &words(&error));
            Vec::new()
        });
        self.rest().directories.push((path.to_owned(), inode, about.clone(), xattrs));
    }

    /// A file whose bytes have not all come is not left.
    fn take_back(&self, dir: FsInode, file: &mut ImportedFile, error: PieceError) {
        if file.inode.take().is_none() {
            return;
        }
        let of = (file.about.dev(), file.about.ino());
        if let Some(linked) = self.rest().linked.get_mut(&of) {
            *linked = None;
        }
        self.telling.progress.names.fetch_sub(1, Ordering::Relaxed);
        // If it fails, that is because everything does.
        let _removed = self.client.unlink(self.caller, dir, file.name.as_bytes());
        match error {
            PieceError::Local(error) => {
                self.telling.failed(file.path.as_os_str().as_bytes(), &words(&error));
            }
            PieceError::Remote(error) => self.failed(&file.path, error.errno()),
        }
    }

    /// Sets what is not a directory's; a directory's times change as long as names come into it.
    fn set_attributes(&self, files: &[&ImportedFile]) -> Result<(), FsError> {
        let mut set = Vec::with_capacity(files.len());
        for file in files {
            let Some(inode) = file.inode else { continue };
            if file.about.is_dir() {
                let (path, about) = (file.path.clone(), file.about.clone());
                self.rest().directories.push((path, inode, about, file.xattrs.clone()));
            } else {
                set.push((&file.path, inode, &file.about, &file.xattrs));
            }
        }
        self.set(&set)
    }

    fn set(&self, all: &[(&PathBuf, FsInode, &Metadata, &LocalXattrs)]) -> Result<(), FsError> {
        let (mut changes, mut paths) = (Vec::new(), Vec::new());
        for (path, inode, about, xattrs) in all {
            // Attributes first: they need the right to write, which the rights may take.
            for (name, value) in *xattrs {
                changes.push(ManyChange::xattr(self.caller, *inode, (name, value)));
                paths.push((*path, None));
            }
            changes.push(ManyChange::set(self.caller, *inode, &self.attributes(about)));
            paths.push((*path, Some((*inode, *about))));
        }
        let results = self.client.change_many(self.caller, &changes)?;
        for ((path, set), result) in paths.into_iter().zip(results) {
            match (result, set) {
                (Err(libc::EPERM), Some((inode, about))) => self.set_without(path, inode, about)?,
                (Err(errno), _) => self.failed(path, errno),
                (Ok(_), _) => {}
            }
        }
        Ok(())
    }

    /// Owners are set by user 0, unless it is nobody there.
    fn attributes(&self, about: &Metadata) -> NewTimes {
        let has_owners = self.caller.who.uid == 0
            && !self.telling.progress.is_without_owners.load(Ordering::Relaxed);
        let time = |seconds, ns: i64| {
            let ns = u32::try_from(ns).unwrap_or_default();
            Some(NewTime::At(time_ns(seconds, ns)))
        };
        let is_link = about.file_type().is_symlink();
        NewTimes {
            mode: (!is_link).then(|| about.mode() & 0o7777),
            uid: has_owners.then(|| about.uid()),
            gid: has_owners.then(|| about.gid()),
            atime: time(about.atime(), about.atime_nsec()),
            mtime: time(about.mtime(), about.mtime_nsec()),
        }
    }

    fn set_without(&self, path: &Path, inode: FsInode, about: &Metadata) -> Result<(), FsError> {
        self.telling.progress.is_without_owners.store(true, Ordering::Relaxed);
        match self.client.set(self.caller, inode, &self.attributes(about)) {
            Err(FsError::Failed { errno, .. }) => self.failed(path, errno),
            other => drop(other?),
        }
        Ok(())
    }

    /// Further names.
    fn link(&self) -> Result<(), FsError> {
        let (further, linked) = {
            let mut rest = self.rest();
            (std::mem::take(&mut rest.further), std::mem::take(&mut rest.linked))
        };
        let (mut changes, mut paths) = (Vec::new(), Vec::new());
        for FurtherName { path, of, dir } in &further {
            let Some(inode) = linked.get(of).copied().flatten() else {
                self.telling.failed(path.as_os_str().as_bytes(), "its first name is not copied");
                continue;
            };
            let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
            changes.push(ManyChange::link(self.caller, inode, (*dir, name)));
            paths.push(path);
        }
        let results: Vec<ManyResult> = self.client.change_many(self.caller, &changes)?;
        for (path, result) in paths.into_iter().zip(results) {
            match result {
                Ok(_) => drop(self.telling.progress.names.fetch_add(1, Ordering::Relaxed)),
                Err(errno) => self.failed(path, errno),
            }
        }
        Ok(())
    }

    /// What directories are to be: names change them no more. The first one is the tree's.
    fn set_directories(&self, top: FsInode) -> Result<(), FsError> {
        let mut directories = std::mem::take(&mut self.rest().directories);
        if let Some(first) = directories.first_mut() {
            first.1 = top;
        }
        let all: Vec<_> = directories.iter().rev().map(|(p, i, a, x)| (p, *i, a, x)).collect();
        self.set(&all)
    }

    /// Gives the whole copy its place, with the attributes that its directory had.
    fn put_in_place(
        &self,
        target: &ImportTarget,
        staging: (FsInode, &[u8]),
        made: FsInode,
    ) -> Result<(), FsError> {
        let (parent, _) = staging;
        let (name, flags) = match target {
            ImportTarget::New(_, name) => (name, NOREPLACE),
            ImportTarget::Empty(place) => match &place.parent {
                Some((_, name)) => (name, 0),
                None => {
                    self.move_up(staging, made)?;
                    return self.set_directories(parent);
                }
            },
        };
        self.set_directories(made)?;
        self.client.rename(self.caller, staging, (parent, name), flags).map(drop)
    }

    /// The root keeps its place: what was copied moves up into it.
    fn move_up(&self, staging: (FsInode, &[u8]), made: FsInode) -> Result<(), FsError> {
        let (root, name) = staging;
        let mut at = 0;
        loop {
            let names = self.client.list(self.caller, made, at)?;
            let Some(last) = names.last() else { break };
            at = last.head.next;
            for one in &names {
                let (from, to) = ((made, &one.name[..]), (root, &one.name[..]));
                self.client.rename(self.caller, from, to, NOREPLACE)?;
            }
        }
        self.client.rmdir(self.caller, root, name).map(drop)
    }
}
