//! A tree of a file system becomes one of this machine.

use super::local;
use super::workers::CopyWorkers;
use super::{
    CopyError, CopyProgress, CopyTelling, THREADS, TellFailure, is_fatal, local_error,
    staging_name, words, words_of_fs,
};
use crate::client::{FsCaller, FsClient, FsError, ListedName, PendingRead, TRANSFER_MAX};
use crate::protocol::{BLOCK_LEN, FsAnswer, FsInode, FsRecord, SEEK_DATA, SEEK_HOLE};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timestamps, mknodat, utimensat};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rights of what is under way.
const PRIVATE: u32 = 0o700;
/// Pieces under way: all threads together have fewer than a client has buffers.
const PIECES_MAX: usize = 7;

/// A directory, and where it goes.
struct ExportWork(PathBuf, FsInode);

/// What is done when everything has its name.
#[derive(Default)]
struct ExportRest {
    /// Files with several names: where the first is, once it is made.
    linked: HashMap<FsInode, Option<PathBuf>>,
    further: Vec<(PathBuf, FsInode)>,
    directories: Vec<(PathBuf, FsAnswer)>,
}

struct TreeExport<'a> {
    client: &'a Arc<FsClient>,
    caller: &'a FsCaller,
    telling: CopyTelling<'a>,
    workers: CopyWorkers<ExportWork>,
    rest: Mutex<ExportRest>,
}

/// Copies a directory of a file system to this machine. What is told and counted as a failure is
/// not there, all other things are.
///
/// # Errors
/// [`CopyError`].
pub fn export_tree(
    (client, caller): (&Arc<FsClient>, &FsCaller),
    (source, shown): (&FsAnswer, &str),
    target: &Path,
    (progress, tell): (&CopyProgress, TellFailure<'_>),
) -> Result<(), CopyError> {
    if source.record.mode & libc::S_IFMT != libc::S_IFDIR {
        let why = words(&Errno::NOTDIR.into());
        return Err(CopyError::Remote { path: shown.to_owned(), why });
    }
    match fs::read_dir(target).map(|mut entries| entries.next().is_some()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Ok(false) => {}
        Err(error) if error.kind() != io::ErrorKind::NotADirectory => {
            return Err(local_error(target, error));
        }
        _ => return Err(CopyError::Exists(target.display().to_string())),
    }
    let whole = std::path::absolute(target).map_err(|error| local_error(target, error))?;
    let name = whole.file_name().ok_or_else(|| local_error(target, Errno::EXIST))?;
    let staging = whole.with_file_name(OsStr::from_bytes(&staging_name(name.as_bytes(), "export")));
    make_directory(&staging).map_err(|error| local_error(&staging, error))?;
    let export = TreeExport {
        client,
        caller,
        telling: CopyTelling { progress, tell, fatal: Mutex::default() },
        workers: CopyWorkers::new(ExportWork(staging.clone(), source.inode)),
        rest: Mutex::default(),
    };
    export.rest().directories.push((staging.clone(), *source));
    export.workers.run(THREADS, |ExportWork(path, dir)| export.directory(&path, dir));
    export.finish();
    if let Some(why) = export.telling.fatal() {
        return Err(CopyError::Unfinished { why, rest: format!("in {}", staging.display()) });
    }
    fs::rename(&staging, &whole).map_err(|error| local_error(target, error))
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(PRIVATE).create(path)
}

impl TreeExport<'_> {
    fn rest(&self) -> MutexGuard<'_, ExportRest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, path: &Path, error: &ExportError) {
        let (errno, why) = match error {
            ExportError::Local(error) => (error.raw_os_error().unwrap_or(0), words(error)),
            ExportError::Remote(error) => (error.errno(), words_of_fs(error)),
        };
        if is_fatal(errno) {
            self.telling.end(format!("{}: {why}", path.display()));
            self.workers.end();
        } else {
            self.telling.failed(path.as_os_str().as_bytes(), &why);
        }
    }

    fn directory(&self, path: &Path, dir: FsInode) {
        let mut at = 0;
        loop {
            let names = match self.client.list(self.caller, dir, at) {
                Ok(names) => names,
                Err(error) => return self.failed(path, &error.into()),
            };
            let Some(last) = names.last() else { return };
            at = last.head.next;
            self.names(path, &names);
        }
    }

    /// Copies some names of a directory. The first bytes of their files are on their way together.
    fn names(&self, path: &Path, names: &[ListedName]) {
        let mut under_way = VecDeque::new();
        for one in names {
            let place = path.join(OsStr::from_bytes(&one.name));
            let answer = FsAnswer { inode: one.head.inode, record: one.head.record };
            match self.begin(&place, &answer) {
                Ok(Some(read)) => under_way.push_back((place, answer, read)),
                Ok(None) => {}
                Err(error) => self.failed(&place, &error),
            }
            if under_way.len() >= PIECES_MAX
                && let Some((place, answer, read)) = under_way.pop_front()
            {
                self.file(&place, &answer, read);
            }
        }
        for (place, answer, read) in under_way {
            self.file(&place, &answer, read);
        }
    }

    /// Makes what is no file, and begins to read what is one.
    fn begin(
        &self,
        place: &Path,
        answer: &FsAnswer,
    ) -> Result<Option<Option<PendingRead>>, ExportError> {
        let FsAnswer { inode, record } = answer;
        let kind = record.mode & libc::S_IFMT;
        if kind == libc::S_IFDIR {
            make_directory(place)?;
            self.telling.progress.names.fetch_add(1, Ordering::Relaxed);
            self.rest().directories.push((place.to_owned(), *answer));
            self.workers.add(ExportWork(place.to_owned(), *inode));
            return Ok(None);
        }
        if record.nlink > 1 {
            let mut rest = self.rest();
            if rest.linked.contains_key(inode) {
                rest.further.push((place.to_owned(), *inode));
                return Ok(None);
            }
            rest.linked.insert(*inode, None);
        }
        if kind != libc::S_IFREG {
            self.make(place, answer)?;
            self.made(place, answer)?;
            return Ok(None);
        }
        let has_first = record.blocks > 0 && !has_holes(record);
        let first = usize::try_from(record.size).unwrap_or(usize::MAX).min(TRANSFER_MAX);
        let read = || self.client.begin_read(self.caller, *inode, 0, first);
        Ok(Some(if has_first { Some(read()?) } else { None }))
    }

    fn make(&self, place: &Path, answer: &FsAnswer) -> Result<(), ExportError> {
        let mode = Mode::from_raw_mode(PRIVATE);
        let kind = FileType::from_raw_mode(answer.record.mode);
        if kind == FileType::Symlink {
            let target = self.client.target(self.caller, answer.inode)?;
            return Ok(
                rustix::fs::symlink(OsStr::from_bytes(&target), place).map_err(io::Error::from)?
            );
        }
        Ok(mknodat(CWD, place, kind, mode, answer.record.rdev).map_err(io::Error::from)?)
    }

    /// A file: the rest of its bytes, and its attributes. One that is not whole is not left.
    fn file(&self, place: &Path, answer: &FsAnswer, first: Option<PendingRead>) {
        let copied = self.bytes(place, answer, first).and_then(|()| self.made(place, answer));
        if let Err(error) = copied {
            self.failed(place, &error);
            // If it fails, that is because everything does.
            let _removed = fs::remove_file(place);
        }
    }

    fn bytes(
        &self,
        place: &Path,
        answer: &FsAnswer,
        first: Option<PendingRead>,
    ) -> Result<(), ExportError> {
        let FsAnswer { inode, record } = answer;
        let file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(place)?;
        let mut at = 0;
        if let Some(read) = first {
            let bytes = read.end(self.caller)?.bytes;
            self.write(&file, 0, &bytes)?;
            at = bytes.len() as u64;
        }
        while at < record.size {
            let range = match has_holes(record) {
                true => match self.data(*inode, at)? {
                    Some(range) => range,
                    None => break,
                },
                false => at..record.size,
            };
            at = range.end;
            self.range(&file, *inode, range)?;
        }
        Ok(file.set_len(record.size)?)
    }

    /// The next bytes that are there.
    fn data(&self, inode: FsInode, at: u64) -> Result<Option<Range<u64>>, ExportError> {
        let start = match self.client.seek(self.caller, inode, at, SEEK_DATA) {
            Err(error) if error.errno() == libc::ENXIO => return Ok(None),
            start => start?,
        };
        let end = self.client.seek(self.caller, inode, start, SEEK_HOLE)?;
        Ok((end > start).then_some(start..end))
    }

    /// Copies bytes, several pieces at a time.
    fn range(&self, file: &File, inode: FsInode, range: Range<u64>) -> Result<(), ExportError> {
        let (mut at, mut under_way) = (range.start, VecDeque::new());
        loop {
            while at < range.end && under_way.len() < PIECES_MAX {
                let len = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(TRANSFER_MAX);
                under_way.push_back((at, self.client.begin_read(self.caller, inode, at, len)?));
                at += len as u64;
            }
            let Some((at, read)) = under_way.pop_front() else { return Ok(()) };
            self.write(file, at, &read.end(self.caller)?.bytes)?;
        }
    }

    fn write(&self, file: &File, at: u64, bytes: &[u8]) -> Result<(), ExportError> {
        file.write_all_at(bytes, at)?;
        self.telling.progress.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Something that is no directory is there: sets its attributes.
    fn made(&self, place: &Path, answer: &FsAnswer) -> Result<(), ExportError> {
        self.attributes(place, answer)?;
        self.telling.progress.names.fetch_add(1, Ordering::Relaxed);
        if answer.record.nlink > 1 {
            self.rest().linked.insert(answer.inode, Some(place.to_owned()));
        }
        Ok(())
    }

    fn attributes(&self, place: &Path, answer: &FsAnswer) -> Result<(), ExportError> {
        let FsAnswer { inode, record } = answer;
        let kind = record.mode & libc::S_IFMT;
        if record.xattrs != 0 && matches!(kind, libc::S_IFREG | libc::S_IFDIR) {
            self.xattrs(place, *inode)?;
        }
        if self.caller.who.uid == 0 {
            std::os::unix::fs::lchown(place, Some(record.uid), Some(record.gid))?;
        }
        if kind != libc::S_IFLNK {
            fs::set_permissions(place, Permissions::from_mode(record.mode & 0o7777))?;
        }
        let times = Timestamps {
            last_access: local::timespec(record.atime_ns),
            last_modification: local::timespec(record.mtime_ns),
        };
        Ok(utimensat(CWD, place, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from)?)
    }

    fn xattrs(&self, place: &Path, inode: FsInode) -> Result<(), ExportError> {
        let names = self.client.xattr_names(self.caller, inode)?;
        for name in names.split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
            let value = self.client.xattr(self.caller, inode, name)?;
            let (name, flags) = (OsStr::from_bytes(name), rustix::fs::XattrFlags::empty());
            rustix::fs::lsetxattr(place, name, &value, flags).map_err(io::Error::from)?;
        }
        Ok(())
    }

    /// Further names, and what directories are to be: those below before those above, which one
    /// may not be able to enter afterwards.
    fn finish(&self) {
        let rest = std::mem::take(&mut *self.rest());
        for (place, inode) in &rest.further {
            match rest.linked.get(inode).and_then(Option::as_ref) {
                None => {
                    let path = place.as_os_str().as_bytes();
                    self.telling.failed(path, "its first name is not copied");
                }
                Some(first) => match fs::hard_link(first, place) {
                    Ok(()) => drop(self.telling.progress.names.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => self.failed(place, &error.into()),
                },
            }
        }
        for (place, answer) in rest.directories.iter().rev() {
            if let Err(error) = self.attributes(place, answer) {
                self.failed(place, &error);
            }
        }
    }
}

/// Whether some of a file is on no disk.
fn has_holes(record: &FsRecord) -> bool {
    record.blocks < record.size.div_ceil(BLOCK_LEN)
}

/// Why something is not copied.
enum ExportError {
    Local(io::Error),
    Remote(FsError),
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::Local(error)
    }
}

impl From<FsError> for ExportError {
    fn from(error: FsError) -> Self {
        Self::Remote(error)
    }
}
