//! Directories that programs read: pages of names, kept between the kernel's requests.
//!
//! A place of the service's, and 2 more, is the kernel's offset: 0 is `.`, 1 is `..`. A page is not
//! used any longer than attributes are kept, nor after a name of the directory was changed here.

use crate::client::{FsCaller, FsClient, FsError, ListedName};
use crate::protocol::FsInode;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Offsets before the first name's.
pub(super) const DOTS: u64 = 2;

#[derive(Debug)]
struct ListPage {
    /// The place of its first name.
    at: u64,
    names: VecDeque<ListedName>,
    listed: Instant,
    changes: u64,
}

/// A directory as a program has opened it.
#[derive(Debug, Default)]
pub(super) struct OpenDirectory(Mutex<Option<ListPage>>);

/// Of which directory, in which state, names are wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListOf<'a> {
    pub(super) client: &'a FsClient,
    pub(super) caller: FsCaller,
    pub(super) dir: FsInode,
    /// How often its names were changed here.
    pub(super) changes: u64,
    pub(super) keep: Duration,
}

impl OpenDirectory {
    /// Gives names from an offset on to `take`, with the offset behind each, until that takes no
    /// more.
    pub(super) fn names(
        &self,
        of: &ListOf<'_>,
        offset: u64,
        mut take: impl FnMut(&ListedName, u64) -> Result<ListTaken, FsError>,
    ) -> Result<(), FsError> {
        let mut page = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = offset.saturating_sub(DOTS);
        let is_good = |page: &ListPage| {
            page.at == at && page.changes == of.changes && page.listed.elapsed() <= of.keep
        };
        let page = match page.take().filter(is_good) {
            Some(good) => page.insert(good),
            None => page.insert(ListPage {
                at,
                names: VecDeque::new(),
                listed: Instant::now(),
                changes: of.changes,
            }),
        };
        loop {
            if page.names.is_empty() {
                page.listed = Instant::now();
                page.names = of.client.list(&of.caller, of.dir, page.at)?.into();
            }
            let Some(name) = page.names.front() else { return Ok(()) };
            let next = name.head.next.checked_add(DOTS).filter(|next| i64::try_from(*next).is_ok());
            let next = next.ok_or(FsError::Answer { entry: "list" })?;
            match take(name, next)? {
                ListTaken::Yes => {
                    page.at = name.head.next;
                    page.names.pop_front();
                }
                ListTaken::Full => return Ok(()),
            }
        }
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
