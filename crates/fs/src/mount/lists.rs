//! Directories that programs read: pages of names, kept between the kernel's requests.
//!
//! A place of the service's, and 2 more, is the kernel's offset: 0 is `.`, 1 is `..`. A page is not
//! used any longer than attributes are kept, and names that are removed here meanwhile are not
//! shown: the kernel would believe them.

use super::known::AskedAt;
use crate::client::{ErrorCursor, FsCaller, FsClient, FsError, ListedName};
use crate::protocol::FsInode;
use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Offsets before the first name's.
pub(super) const DOTS: u64 = 2;

#[derive(Debug)]
struct ListPage {
    /// The place of its first name.
    at: u64,
    names: VecDeque<ListedName>,
    listed: Instant,
    /// When that was for what is known.
    asked: Option<AskedAt>,
    /// When that was by the clock of the map of inodes.
    clock: u64,
}

/// A directory as a program has opened it.
#[derive(Debug)]
pub(super) struct OpenDirectory {
    pub(super) dir: FsInode,
    /// Who has opened it: names are listed for that user.
    opener: Mutex<FsCaller>,
    page: Mutex<Option<ListPage>>,
    /// Names that were removed here since the page was asked for.
    removed: Mutex<HashSet<Vec<u8>>>,
    /// Which errors of the directory it has been told of.
    pub(super) errors: ErrorCursor,
}

/// How names are listed, and for how long they are good.
#[derive(Clone, Copy)]
pub(super) struct ListOf<'a> {
    pub(super) client: &'a FsClient,
    /// The thread that waits.
    pub(super) thread: u32,
    pub(super) keep: Duration,
    /// The clock of the map of inodes.
    pub(super) clock: &'a dyn Fn() -> u64,
    /// What is known, and now.
    pub(super) ask: &'a dyn Fn() -> AskedAt,
}

/// A name of a listing.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListedAt<'a> {
    pub(super) name: &'a ListedName,
    /// The offset behind it.
    pub(super) next: u64,
    /// When it was asked for, by the clock of the map of inodes, and for what is known.
    pub(super) then: u64,
    pub(super) asked: AskedAt,
}

impl OpenDirectory {
    pub(super) fn new(dir: FsInode, opener: FsCaller, errors: ErrorCursor) -> Self {
        let (page, removed) = (Mutex::default(), Mutex::default());
        Self { dir, opener: Mutex::new(opener), page, removed, errors }
    }

    /// Asks for names from a place on, for a thread that waits.
    fn list(&self, client: &FsClient, thread: u32, at: u64) -> Result<Vec<ListedName>, FsError> {
        let opener = || self.opener.lock().unwrap_or_else(PoisonError::into_inner);
        let caller = FsCaller { thread, ..*opener() };
        let (names, caller) = client.list_to_go_on(&caller, self.dir, at)?;
        *opener() = caller;
        Ok(names)
    }

    fn removed(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        self.removed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name was removed here.
    pub(super) fn removes(&self, name: &[u8]) {
        self.removed().insert(name.to_vec());
    }

    /// Gives names from an offset on to `take`, until that takes no more.
    pub(super) fn names(
        &self,
        of: &ListOf<'_>,
        offset: u64,
        mut take: impl FnMut(ListedAt<'_>) -> Result<ListTaken, FsError>,
    ) -> Result<(), FsError> {
        let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        let at = offset.saturating_sub(DOTS);
        // Whoever begins anew wants what is there now.
        let is_good = |page: &ListPage| at > 0 && page.at == at && page.listed.elapsed() <= of.keep;
        let page = match page.take().filter(is_good) {
            Some(good) => page.insert(good),
            None => page.insert(ListPage::empty(at)),
        };
        loop {
            if page.names.is_empty() {
                self.removed().clear();
                (page.listed, page.clock) = (Instant::now(), (of.clock)());
                page.asked = Some((of.ask)());
                page.names = self.list(of.client, of.thread, page.at)?.into();
            }
            let Some(name) = page.names.front() else { return Ok(()) };
            let next = name.head.next.checked_add(DOTS).filter(|next| i64::try_from(*next).is_ok());
            let next = next.ok_or(FsError::Answer { entry: "list" })?;
            let is_gone = self.removed().contains(&name.name);
            let asked = page.asked.unwrap_or_else(of.ask);
            let listed = ListedAt { name, next, then: page.clock, asked };
            if !is_gone && take(listed)? == ListTaken::Full {
                return Ok(());
            }
            page.at = name.head.next;
            page.names.pop_front();
        }
    }
}

impl ListPage {
    fn empty(at: u64) -> Self {
        Self { at, names: VecDeque::new(), listed: Instant::now(), asked: None, clock: 0 }
    }
}

/// Whether a name was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListTaken {
    /// It was.
    Yes,
    /// There is no room for it.
    Full,
}
