//! Changes of one interface, told as they happen.
//!
//! Never asks regularly: the kernel tells, and is asked only when it says that it could not.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use crate::error::NicError;
use crate::interface::is_up;
use crate::route::{RTM_DELLINK, RouteLink, RouteSocket};

/// Most datagrams that are read at once: others' interfaces may change without end.
const READS_MAX: usize = 256;

/// What became of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceEvent {
    /// It carries packets (again).
    Up,
    /// It is switched off, or its wire is gone.
    Down,
    /// It was removed, or moved to another network namespace. Nothing follows.
    Removed,
}

/// Watches one interface, in the network namespace of the thread that made it.
#[derive(Debug)]
pub struct InterfaceWatch {
    changes: RouteSocket,
    asking: RouteSocket,
    index: u32,
    last: Option<InterfaceEvent>,
}

impl InterfaceWatch {
    /// Watches the interface with that index. The first event is how it is now.
    ///
    /// # Errors
    /// [`NicError::System`] when the kernel cannot be asked.
    pub fn new(index: u32) -> Result<Self, NicError> {
        let changes = RouteSocket::listening()?;
        Ok(Self { changes, asking: RouteSocket::asking()?, index, last: None })
    }

    /// What is new since the last call: the latest, if there was more. Call it once after
    /// [`InterfaceWatch::new`], then whenever the descriptor is readable, until it says nothing.
    ///
    /// # Errors
    /// [`NicError::System`] when the kernel cannot be asked.
    pub fn poll(&mut self) -> Result<Option<InterfaceEvent>, NicError> {
        if self.last == Some(InterfaceEvent::Removed) {
            return Ok(None);
        }
        let mut now = self.last;
        for _ in 0..READS_MAX {
            match self.changes.changes() {
                Ok(changes) if changes.is_empty() => break,
                Ok(changes) => now = latest(&changes, self.index).or(now),
                Err(Errno::NOBUFS) => now = Some(self.current()?),
                Err(error) => return Err(NicError::system("hearing of changed links", error)),
            }
            if now == Some(InterfaceEvent::Removed) {
                break;
            }
        }
        if now.is_none() {
            now = Some(self.current()?);
        }
        let new = now.filter(|_| now != self.last);
        self.last = now;
        Ok(new)
    }

    fn current(&mut self) -> Result<InterfaceEvent, NicError> {
        Ok(self.asking.link(self.index)?.map_or(InterfaceEvent::Removed, |link| state(&link)))
    }
}

impl AsFd for InterfaceWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }
}

fn state(link: &RouteLink) -> InterfaceEvent {
    if is_up(link) { InterfaceEvent::Up } else { InterfaceEvent::Down }
}

/// The last of the changes that is of this interface; for good, when it was removed. A link that
/// leaves a bridge is said to be deleted, too, but in the bridge's family.
fn latest(changes: &[(u16, RouteLink)], index: u32) -> Option<InterfaceEvent> {
    let mut ours = changes.iter().filter(|(_, link)| link.family == 0 && link.index == index);
    if ours.clone().any(|(kind, _)| *kind == RTM_DELLINK) {
        return Some(InterfaceEvent::Removed);
    }
    ours.next_back().map(|(_, link)| state(link))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::RTM_NEWLINK;

    #[test]
    fn the_latest_of_this_interface_counts() {
        const UP: u32 = 1 | 1 << 16;
        let link =
            |family, index, flags| RouteLink { family, index, flags, ..RouteLink::default() };
        let mut changes = vec![
            (RTM_NEWLINK, link(0, 5, UP)),
            (RTM_NEWLINK, link(0, 5, 1)),
            (RTM_DELLINK, link(0, 6, UP)),
            (RTM_DELLINK, link(7, 5, UP)),
        ];
        assert_eq!(latest(&changes, 5), Some(InterfaceEvent::Down));
        assert_eq!(latest(&changes, 4), None);
        changes.push((RTM_DELLINK, link(0, 5, UP)));
        changes.push((RTM_NEWLINK, link(0, 5, UP)));
        assert_eq!(latest(&changes, 5), Some(InterfaceEvent::Removed));
    }

    #[test]
    fn the_first_event_is_how_it_is() {
        let mut watch = InterfaceWatch::new(1 << 30).unwrap();
        assert_eq!(watch.poll().unwrap(), Some(InterfaceEvent::Removed));
        assert_eq!(watch.poll().unwrap(), None);
    }
}
