//! Regions whose pages are fetched when they are first touched (userfaultfd, Linux 5.11 and later).
//!
//! The thread that touches a missing page sleeps; the holder of the [`LazyFill`] is told which page
//! it is, gets its bytes from wherever they are, and puts them there, or has the access fail. Needs
//! no rights: only accesses of programs are served, not those of system calls, which fail (EFAULT).
//! It fetches nothing itself and knows no peer.

use super::SharedRegion;
use crate::error::{MemError, last_errno};
use crate::file::page_size;
use crate::mapping::Rights;
use crate::slice::{check, range_len};
use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const UFFD_API: u64 = 0xaa;
const USER_MODE_ONLY: libc::c_int = 1;
const EVENT_PAGE_FAULT: u8 = 0x12;
const MODE_MISSING: u64 = 1;

/// The kernel's `_IOWR(0xaa, number, struct)`, of which `read_only` is `_IOR`.
const fn command(number: u64, len: u64, read_only: bool) -> u64 {
    let direction = if read_only { 2 } else { 3 };
    direction << 30 | len << 16 | UFFD_API << 8 | number
}

const API: u64 = command(0x3f, 24, false);
const REGISTER: u64 = command(0, 32, false);
const UNREGISTER: u64 = command(1, 16, true);
const WAKE: u64 = command(2, 16, true);
const COPY: u64 = command(3, 40, false);

/// A mapping of the region that is watched.
#[derive(Clone, Copy, Debug)]
struct Watched {
    addr: usize,
    len: usize,
    /// Where in the region it begins.
    offset: usize,
    rights: Rights,
}

impl Watched {
    /// The address of a page of the region, if it is in this mapping.
    fn address_of(&self, offset: usize) -> Option<usize> {
        let within = offset.checked_sub(self.offset)?;
        (within < self.len).then(|| self.addr + within)
    }
}

/// What a region and its filler share.
#[derive(Debug)]
pub(super) struct Lazy {
    fd: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    watched: Vec<Watched>,
    /// Offsets of pages without access, in order.
    failed: BTreeSet<usize>,
    /// The filler is gone: nobody would answer.
    is_over: bool,
}

/// Fills a region's pages. When it is dropped, threads that wait for pages, and all others, find
/// zero bytes in those that are missing; pages that failed stay without access. See this
/// file's first lines.
#[derive(Debug)]
pub struct LazyFill {
    region: SharedRegion,
    lazy: Arc<Lazy>,
}

impl Lazy {
    fn open() -> Result<Self, MemError> {
        let flags = libc::c_long::from(libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY);
        // SAFETY: the call takes no pointer; the new descriptor has no other owner.
        let fd = unsafe {
            let fd = libc::syscall(libc::SYS_userfaultfd, flags);
            let Ok(fd) = i32::try_from(fd) else { return Err(refused()) };
            if fd < 0 {
                return Err(refused());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let lazy = Self { fd, state: Mutex::default() };
        lazy.call(API, &mut [UFFD_API, 0, 0]).map_err(|_| refused())?;
        Ok(lazy)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of the kernel's commands, whose structures are words.
    fn call<const N: usize>(&self, command: u64, words: &mut [u64; N]) -> Result<(), i32> {
        debug_assert_eq!((command >> 16) & 0x3fff, size_of_val(words) as u64);
        // SAFETY: the kernel reads and writes the structure of the command, as many bytes as it
        // says; what it does to the addresses in it, the callers answer for.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), command as _, words.as_mut_ptr()) };
        if done == 0 { Ok(()) } else { Err(last_errno()) }
    }

    /// Watches a mapping of the region from now on, unless the filler is gone.
    pub(super) fn watch(
        &self,
        addr: usize,
        len: usize,
        offset: usize,
        rights: Rights,
    ) -> Result<(), MemError> {
        let len = len.next_multiple_of(page_size());
        let mapping = Watched { addr, len, offset, rights };
        // Held until the mapping is known: the kernel tells of faults from the call on.
        let mut state = self.lock();
        let failed = state.failed.iter().filter_map(|page| mapping.address_of(*page));
        failed.into_iter().try_for_each(|at| protect(at, libc::PROT_NONE))?;
        if state.is_over {
            return Ok(());
        }
        let mut words = [addr as u64, len as u64, MODE_MISSING, 0];
        self.call(REGISTER, &mut words).map_err(|errno| MemError::Map { len, errno })?;
        state.watched.push(mapping);
        Ok(())
    }

    /// Has nobody wait for a page, now or later.
    fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        for watched in std::mem::take(&mut state.watched) {
            // It wakes those that wait.
            let _gone = self.call(UNREGISTER, &mut [watched.addr as u64, watched.len as u64]);
        }
    }

    /// Forgets a mapping, which is about to be unmapped.
    pub(super) fn forget(&self, addr: usize) {
        self.lock().watched.retain(|watched| watched.addr != addr);
    }

    /// Has the threads go on that wait for a page at an address.
    fn wake(&self, addr: usize) {
        // It fails for what is not watched any more, where nobody waits.
        let _woken = self.call(WAKE, &mut [addr as u64, page_size() as u64]);
    }
}

/// What may be done with the page of a region at an address where it is mapped.
fn protect(addr: usize, protection: libc::c_int) -> Result<(), MemError> {
    let len = page_size();
    let page = std::ptr::without_provenance_mut::<libc::c_void>(addr);
    // SAFETY: the page is of a mapping of the region that is known here, thus there: its owner has
    // it forgotten under the lock before it is unmapped. Accesses to memory of this kind bear with
    // missing pages, and no reference into it exists.
    match unsafe { libc::mprotect(page, len, protection) } {
        0 => Ok(()),
        _ => Err(MemError::Map { len, errno: last_errno() }),
    }
}

fn refused() -> MemError {
    MemError::Lazy { errno: last_errno() }
}

impl SharedRegion {
    /// A mapping of the region at an address is about to be unmapped.
    pub(crate) fn forget_lazy(&self, addr: usize) {
        if let Some(lazy) = self.owner.lazy() {
            lazy.forget(addr);
        }
    }

    /// Has missing pages of the region, and of every second mapping of it that is made later, come
    /// from the result. For a region of [`memfd`](Self::memfd) that nobody has used.
    ///
    /// # Errors
    /// [`MemError::Lazy`] where the kernel or a filter of system calls refuses;
    /// [`MemError::NotShared`] for a region without a descriptor; [`MemError::Filled`] if it has
    /// had a filler before.
    pub fn fill_lazily(&self) -> Result<LazyFill, MemError> {
        self.backing()?;
        let lazy = Arc::new(Lazy::open()?);
        self.owner.lazy.set(Arc::clone(&lazy)).map_err(|_| MemError::Filled)?;
        // Until somebody fills pages, none may be waited for.
        lazy.watch(self.addr(), self.len(), 0, Rights::ReadWrite).inspect_err(|_| lazy.end())?;
        Ok(LazyFill { region: self.clone(), lazy })
    }
}

impl LazyFill {
    /// The region.
    #[must_use]
    pub fn region(&self) -> &SharedRegion {
        &self.region
    }

    /// Where in the region the next missing page is that a thread waits for. Does not wait: sleep
    /// on the descriptor.
    #[must_use]
    pub fn next(&self) -> Option<usize> {
        let mut message = [0_u64; 4];
        loop {
            // SAFETY: the kernel writes one message of 32 bytes into memory that is ours.
            let got =
                unsafe { libc::read(self.lazy.fd.as_raw_fd(), message.as_mut_ptr().cast(), 32) };
            if got != 32 {
                return None;
            }
            if message[0].to_ne_bytes()[0] != EVENT_PAGE_FAULT {
                continue;
            }
            let addr = usize::try_from(message[2]).ok()?;
            let addr = addr - addr % page_size();
            if let Some(offset) = self.offset_of(addr) {
                return Some(offset);
            }
            // A mapping that is going: the access is made again, and finds it gone.
            self.lazy.wake(addr);
        }
    }

    /// Where in the region an address of a watched mapping lies; `None` for a page that has failed,
    /// too, whose threads need only go on.
    fn offset_of(&self, addr: usize) -> Option<usize> {
        let state = self.lazy.lock();
        let offset = state.watched.iter().find_map(|watched| {
            let within = addr.checked_sub(watched.addr)?;
            (within < watched.len).then(|| within + watched.offset)
        })?;
        (!state.failed.contains(&offset)).then_some(offset)
    }

    /// Puts a page's bytes there, zero bytes behind them, and wakes the threads that wait for it. A
    /// page that is there already, or has failed, stays as it is.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`] if it is no page's offset, or the bytes are more than a page;
    /// [`MemError::Map`] if this machine has no memory.
    pub fn fill(&self, offset: usize, bytes: &[u8]) -> Result<(), MemError> {
        self.check(offset, bytes.len())?;
        let page = page_size();
        if bytes.len() == page {
            return self.place(offset, bytes);
        }
        let mut whole = vec![0; page];
        whole[..bytes.len()].copy_from_slice(bytes);
        self.place(offset, &whole)
    }

    fn place(&self, offset: usize, whole: &[u8]) -> Result<(), MemError> {
        let to = (self.region.addr() + offset) as u64;
        loop {
            let mut words = [to, whole.as_ptr().addr() as u64, whole.len() as u64, 0, 0];
            match self.lazy.call(COPY, &mut words) {
                Ok(()) | Err(libc::EEXIST) => break,
                // Another thread changes the mappings at this moment.
                Err(libc::EAGAIN) => {}
                Err(errno) => return Err(MemError::Map { len: whole.len(), errno }),
            }
        }
        self.wake(&self.lazy.lock(), offset);
        Ok(())
    }

    /// Takes the page's access away, wherever the region is mapped, and wakes the threads that wait
    /// for it: until the page is dropped, an access through the region is a
    /// [`MemError::Missing`], and one of code at a second mapping is a SIGSEGV. (Pages that the
    /// kernel knows to be broken would be a SIGBUS, which WebAssembly engines do not handle.)
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`] if it is no page's offset; [`MemError::Map`] if this process has
    /// too many mappings (`vm.max_map_count`): then threads still wait, and the caller fills it or
    /// drops the filler.
    pub fn fail(&self, offset: usize) -> Result<(), MemError> {
        self.check(offset, 0)?;
        let mut state = self.lazy.lock();
        let places: Vec<_> = addresses_of(&state, offset).collect();
        for (at, _) in places {
            protect(at, libc::PROT_NONE)?;
        }
        state.failed.insert(offset);
        self.wake(&state, offset);
        Ok(())
    }

    /// Whether a page has failed since it was last dropped: what was computed meanwhile is of no
    /// use.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        !self.lazy.lock().failed.is_empty()
    }

    /// Takes the pages of `range` away, whole pages of which the last may reach behind the region's
    /// end: they are fetched anew. What was stored there is lost.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Pages`] if an end lies inside a page;
    /// [`MemError::Map`]: this machine's.
    pub fn drop_pages(&self, range: Range<usize>) -> Result<(), MemError> {
        let page = page_size();
        let size = self.region.len().next_multiple_of(page);
        let len = range_len(&range, size)?;
        check(range.start, len, size)?;
        if len == 0 {
            return Ok(());
        }
        if !range.start.is_multiple_of(page) || !len.is_multiple_of(page) {
            let addr = self.region.addr() + range.start;
            return Err(MemError::Pages { addr, offset: range.start as u64, len, page });
        }
        self.punch(range.start, len)?;
        let mut state = self.lazy.lock();
        let again: Vec<_> = state.failed.range(range).copied().collect();
        for offset in again {
            for (at, rights) in addresses_of(&state, offset) {
                protect(at, rights.protection())?;
            }
            state.failed.remove(&offset);
        }
        Ok(())
    }

    /// Takes all pages away, as [`drop_pages`](Self::drop_pages) does.
    ///
    /// # Errors
    /// [`MemError::Map`]: this machine's.
    pub fn clear(&self) -> Result<(), MemError> {
        self.drop_pages(0..self.region.len().next_multiple_of(page_size()))
    }

    fn punch(&self, start: usize, len: usize) -> Result<(), MemError> {
        let backing = self.region.backing()?;
        let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let numbers = (libc::off_t::try_from(start), libc::off_t::try_from(len));
        let (Ok(start), Ok(end)) = numbers else {
            return Err(MemError::Map { len, errno: libc::EOVERFLOW });
        };
        let file = backing.file.as_raw_fd();
        // SAFETY: the call takes no pointer. Pages of the region are missing then, which accesses
        // to it bear with: they wait, or find zero bytes.
        if unsafe { libc::fallocate(file, flags, backing.offset + start, end) } != 0 {
            return Err(MemError::Map { len, errno: last_errno() });
        }
        Ok(())
    }

    /// Whether `len` bytes, at most a page, can be put at a page's offset.
    fn check(&self, offset: usize, len: usize) -> Result<(), MemError> {
        let page = page_size();
        let size = self.region.len().next_multiple_of(page);
        if !offset.is_multiple_of(page) || offset >= size || len > page {
            return Err(MemError::OutOfBounds { offset, len, size });
        }
        Ok(())
    }

    fn wake(&self, state: &State, offset: usize) {
        addresses_of(state, offset).for_each(|(at, _)| self.lazy.wake(at));
    }
}

/// Where a page of the region is mapped, and with which rights.
fn addresses_of(state: &State, offset: usize) -> impl Iterator<Item = (usize, Rights)> + '_ {
    let places = state.watched.iter();
    places.filter_map(move |watched| Some((watched.address_of(offset)?, watched.rights)))
}

impl Drop for LazyFill {
    fn drop(&mut self) {
        self.lazy.end();
    }
}

impl AsFd for LazyFill {
    /// Readable while a thread waits for a page.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lazy.fd.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
