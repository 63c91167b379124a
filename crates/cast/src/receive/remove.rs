//! Removing a tree beneath an open directory, never through a symbolic link, and nothing of what is
//! mounted in it.
//!
//! Several threads share a large directory: on a file system that tells its disk of each block that
//! is free (`discard`) or writes through, one removal after the other waits for the disk each time.

use crate::tree::{DEPTH_MAX, open_on_same_mount, unlock_directory};
use outboard_unix::names::for_each_name;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result};
use std::ffi::CString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What an owner needs in order to remove what is in a directory.
const OWNER_ALL: Mode = Mode::RWXU;

/// Threads that empty a large directory together.
const THREADS_MAX: usize = 8;
/// Names of a directory that is emptied by one thread, at most.
const NAMES_OF_ONE_THREAD_MAX: usize = 64;

/// Called after each name.
type GoesOn<'a> = &'a (dyn Fn() + Sync);

/// Removes what has this name, with everything in it; nothing is no error.
///
/// # Errors
/// The file system's, for what could not be removed; the rest is. [`Errno::NAMETOOLONG`] for
/// directories deeper in one another than a cast can make them twice, [`Errno::BUSY`] for what is
/// mounted there.
pub(super) fn remove_tree(parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    Remover { goes_on: &|| (), is_alone: true }.remove(parent, name, 2 * DEPTH_MAX)
}

/// Removes everything in an open directory; `goes_on` is called after each name.
pub(super) fn remove_contents(directory: BorrowedFd<'_>, goes_on: GoesOn<'_>) -> Result<()> {
    Remover { goes_on, is_alone: true }.empty(directory, 2 * DEPTH_MAX)
}

/// One of the threads that remove.
#[derive(Clone, Copy)]
struct Remover<'a> {
    goes_on: GoesOn<'a>,
    /// No other removes beside it: it may ask others to help.
    is_alone: bool,
}

impl Remover<'_> {
    fn remove(self, parent: BorrowedFd<'_>, name: &[u8], depth_left: usize) -> Result<()> {
        (self.goes_on)();
        let refused = match fs::unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(errno @ (Errno::ISDIR | Errno::PERM)) => errno,
            Err(errno) => return Err(errno),
        };
        let depth_left = depth_left.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
        let directory = open_to_empty(parent, name).map_err(|errno| match errno {
            // A file that is immutable.
            Errno::NOTDIR | Errno::LOOP => refused,
            Errno::XDEV => Errno::BUSY,
            errno => errno,
        })?;
        self.empty(directory.as_fd(), depth_left)?;
        fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
    }

    fn empty(self, directory: BorrowedFd<'_>, depth_left: usize) -> Result<()> {
        let mut names = Vec::new();
        // The directory may have been read before through the same description.
        fs::seek(directory, fs::SeekFrom::Start(0))?;
        for_each_name(directory, |name| names.push(name.to_owned()))?;
        if self.is_alone && names.len() > NAMES_OF_ONE_THREAD_MAX {
            let shared = self.share(directory, &names, depth_left);
            // Each thread opens the directories above what it removes; one needs the fewest.
            if !matches!(shared, Err(Errno::MFILE | Errno::NFILE)) {
                return shared;
            }
        }
        self.remove_each(directory, names.iter(), depth_left)
    }

    /// Removes with other threads what is in a directory; alone where none can be started.
    fn share(self, directory: BorrowedFd<'_>, names: &[CString], depth_left: usize) -> Result<()> {
        let next = AtomicUsize::new(0);
        let helper = Self { is_alone: false, ..self };
        let take = || names.get(next.fetch_add(1, Ordering::Relaxed));
        let work = || helper.remove_each(directory, std::iter::from_fn(take), depth_left);
        thread::scope(|scope| {
            let start = |_| {
                let named = thread::Builder::new().name("outboard-remove".into());
                named.spawn_scoped(scope, work).ok()
            };
            let helpers: Vec<_> = (1..THREADS_MAX).map_while(start).collect();
            // A helper cannot panic: it calls the file system and counts.
            let ended = helpers.into_iter().map(|at| at.join().unwrap_or(Err(Errno::IO)));
            let own = work();
            ended.fold(own, Result::and)
        })
    }

    fn remove_each<'n>(
        self,
        directory: BorrowedFd<'_>,
        names: impl Iterator<Item = &'n CString>,
        depth_left: usize,
    ) -> Result<()> {
        let mut first = Ok(());
        let mut is_unlocked = false;
        for name in names {
            let mut removed = self.remove(directory, name.to_bytes(), depth_left);
            if removed == Err(Errno::ACCESS) && !is_unlocked {
                is_unlocked = fs::fchmod(directory, OWNER_ALL).is_ok();
                removed = self.remove(directory, name.to_bytes(), depth_left);
            }
            first = first.and(removed);
        }
        first
    }
}

fn open_to_empty(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    open_on_same_mount(parent, name, flags).or_else(|errno| {
        if errno != Errno::ACCESS {
            return Err(errno);
        }
        // The owner may have taken its own rights away.
        unlock_directory(parent, name)?;
        open_on_same_mount(parent, name, flags)
    })
}

#[cfg(test)]
mod tests {
    use super::{NAMES_OF_ONE_THREAD_MAX, remove_contents};
    use rustix::fs::{self, Mode, OFlags};
    use std::collections::BTreeMap;
    use std::os::fd::AsFd;
    use std::sync::Mutex;
    use std::thread;
    use std::time::Duration;

    /// Makes directories of some files, removes them, and returns the calls from each thread.
    fn calls(directories: usize, files: usize) -> BTreeMap<String, usize> {
        let place = tempfile::tempdir().unwrap();
        for directory in 0..directories {
            let path = place.path().join(directory.to_string());
            std::fs::create_dir(&path).unwrap();
            (0..files).for_each(|file| std::fs::write(path.join(file.to_string()), "x").unwrap());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let open = fs::open(place.path(), flags, Mode::empty()).unwrap();
        let calls = Mutex::new(BTreeMap::new());
        let goes_on = || {
            let id = thread::current().id();
            *calls.lock().unwrap().entry(format!("{id:?}")).or_insert(0) += 1;
            // Like a disk that discards each block.
            thread::sleep(Duration::from_millis(1));
        };
        remove_contents(open.as_fd(), &goes_on).unwrap();
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        calls.into_inner().unwrap()
    }

    #[test]
    fn several_threads_empty_a_large_directory_and_take_each_name_once() {
        for (directories, files) in [(1, 3 * NAMES_OF_ONE_THREAD_MAX), (100, 2), (200, 2)] {
            let calls = calls(directories, files);
            assert!(calls.len() > 1, "{calls:?}");
            assert_eq!(calls.values().sum::<usize>(), directories * (1 + files));
        }
        assert_eq!(calls(1, NAMES_OF_ONE_THREAD_MAX).len(), 1);
    }
}
