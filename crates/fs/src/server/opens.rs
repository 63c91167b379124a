//! Which inodes clients have open, so that one that loses its last name is kept until the last of
//! them closes it.
//!
//! A client numbers its openings, so that saying one again changes nothing. Connections come and
//! go: what a client had open stays open for a while after its connection has ended, so that it can
//! come back.

use crate::protocol::FsInode;
use outboard_cluster::hub::PeerId;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// How long a client may be gone.
pub(super) const GRACE: Duration = Duration::from_secs(10);
/// Openings that one connection may have.
const OPEN_MAX: usize = 1 << 20;

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct OpenInodes {
    /// Openings of each inode.
    counts: HashMap<FsInode, u32>,
    /// By their numbers; `None`: the file is not known before it is made.
    by_peer: HashMap<PeerId, HashMap<u64, Option<FsInode>>>,
    /// How many are `None`.
    expected: usize,
    /// Requests that open something, by their tokens.
    asked: HashMap<u64, (PeerId, u64)>,
    gone: VecDeque<(Instant, Vec<FsInode>)>,
}

/// A connection has more open than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyOpen;

impl OpenInodes {
    /// A client has an inode open; `None`: it asks for a file that is perhaps still to be made.
    /// Returns the inode that no client has open any more, because its opening had this number.
    pub(super) fn open(
        &mut self,
        (peer, opening): (PeerId, u64),
        inode: Option<FsInode>,
    ) -> Result<Option<FsInode>, TooManyOpen> {
        let its = self.by_peer.entry(peer).or_default();
        if its.len() >= OPEN_MAX && !its.contains_key(&opening) {
            return Err(TooManyOpen);
        }
        let before = its.insert(opening, inode);
        match inode {
            Some(inode) => *self.counts.entry(inode).or_default() += 1,
            None => self.expected += 1,
        }
        Ok(before.and_then(|before| self.ends(before)))
    }

    /// A client asks for an opening: it is open before the file is looked at.
    pub(super) fn ask(
        &mut self,
        token: u64,
        opening: (PeerId, u64),
        inode: Option<FsInode>,
    ) -> Result<Option<FsInode>, TooManyOpen> {
        let ended = self.open(opening, inode)?;
        self.asked.insert(token, opening);
        Ok(ended)
    }

    /// The file that a request asks for is made, or found. What the client has closed meanwhile is
    /// not open; a client that has gone meanwhile may come back.
    pub(super) fn made(&mut self, token: u64, inode: FsInode, now: Instant) {
        let Some((peer, opening)) = self.asked.get(&token).copied() else { return };
        let Some(its) = self.by_peer.get_mut(&peer) else {
            *self.counts.entry(inode).or_default() += 1;
            return self.gone.push_back((now + GRACE, vec![inode]));
        };
        if let Some(place) = its.get_mut(&opening)
            && place.replace(inode).is_none()
        {
            self.expected -= 1;
            *self.counts.entry(inode).or_default() += 1;
        }
    }

    /// Which opening a request asks for.
    pub(super) fn asked_by(&self, token: u64) -> Option<(PeerId, u64)> {
        self.asked.get(&token).copied()
    }

    /// A request is answered; the inode that no client has open any more, because it failed.
    pub(super) fn answered(&mut self, token: u64, is_done: bool) -> Option<FsInode> {
        let opening = self.asked.remove(&token)?;
        if is_done { None } else { self.close(opening) }
    }

    /// An opening is over; the inode that no client has open any more.
    pub(super) fn close(&mut self, (peer, opening): (PeerId, u64)) -> Option<FsInode> {
        let ended = self.by_peer.get_mut(&peer)?.remove(&opening)?;
        self.ends(ended)
    }

    /// A connection has ended.
    pub(super) fn gone(&mut self, peer: PeerId, now: Instant) {
        let its = self.by_peer.remove(&peer).unwrap_or_default();
        let inodes: Vec<FsInode> = its.values().copied().flatten().collect();
        self.expected -= its.len() - inodes.len();
        if !inodes.is_empty() {
            self.gone.push_back((now + GRACE, inodes));
        }
    }

    /// When the next one's time is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.gone.front().map(|(until, _)| *until)
    }

    /// Inodes that no client has open any more, because those that had have not come back.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<FsInode> {
        let mut closed = Vec::new();
        while self.gone.front().is_some_and(|(until, _)| *until <= now) {
            let its = self.gone.pop_front().map(|(_, its)| its).unwrap_or_default();
            closed.extend(its.into_iter().filter_map(|inode| self.ends(Some(inode))));
        }
        closed
    }

    /// Whether a client has an inode open.
    pub(super) fn is_open(&self, inode: FsInode) -> bool {
        self.counts.contains_key(&inode)
    }

    /// Whether no client has, or is about to have, anything open.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.expected == 0
    }

    /// How many inodes are open.
    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    /// One opening less; the inode, if that was its last one.
    fn ends(&mut self, ended: Option<FsInode>) -> Option<FsInode> {
        let Some(inode) = ended else {
            self.expected -= 1;
            return None;
        };
        let count = self.counts.get_mut(&inode)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        self.counts.remove(&inode);
        Some(inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u32) -> PeerId {
        PeerId::from_number(number)
    }

    fn inode(number: u64) -> FsInode {
        FsInode { number, generation: 1 }
    }

    #[test]
    fn an_opening_that_is_said_again_counts_once() {
        let mut opens = OpenInodes::default();
        for opening in [1, 1, 2] {
            assert_eq!(opens.open((peer(1), opening), Some(inode(7))), Ok(None));
        }
        assert_eq!(opens.close((peer(1), 1)), None, "the other opening has it");
        assert_eq!(opens.close((peer(1), 2)), Some(inode(7)));
        assert_eq!(opens.close((peer(1), 2)), None);
        assert!(opens.is_empty());
    }

    #[test]
    fn a_number_that_is_used_again_ends_the_opening_before() {
        let mut opens = OpenInodes::default();
        assert_eq!(opens.open((peer(1), 1), Some(inode(7))), Ok(None));
        assert_eq!(opens.open((peer(1), 1), Some(inode(8))), Ok(Some(inode(7))));
        assert_eq!(opens.ask(9, (peer(1), 1), None), Ok(Some(inode(8))));
        assert_eq!(opens.answered(9, false), None);
        assert!(opens.is_empty());
    }

    #[test]
    fn what_is_closed_before_it_is_made_is_not_open() {
        let (mut opens, now) = (OpenInodes::default(), Instant::now());
        assert_eq!(opens.ask(9, (peer(1), 1), None), Ok(None));
        assert!(!opens.is_empty(), "what is removed now may be what is made");
        assert_eq!(opens.close((peer(1), 1)), None);
        opens.made(9, inode(7), now);
        assert_eq!(opens.answered(9, true), None);
        assert!(opens.is_empty() && !opens.is_open(inode(7)));
    }

    #[test]
    fn a_request_that_fails_opens_nothing() {
        let mut opens = OpenInodes::default();
        assert_eq!(opens.ask(9, (peer(1), 1), Some(inode(7))), Ok(None));
        assert_eq!(opens.answered(9, false), Some(inode(7)));
        assert!(opens.is_empty());
    }

    #[test]
    fn a_client_that_goes_has_some_time_to_come_back() {
        let (mut opens, now) = (OpenInodes::default(), Instant::now());
        assert_eq!(opens.open((peer(1), 1), Some(inode(7))), Ok(None));
        assert_eq!(opens.ask(9, (peer(1), 2), None), Ok(None));
        opens.gone(peer(1), now);
        opens.made(9, inode(8), now);
        assert!(opens.is_open(inode(7)) && opens.is_open(inode(8)));
        assert_eq!(opens.open((peer(2), 1), Some(inode(7))), Ok(None));
        assert_eq!(opens.expire(now + GRACE), [inode(8)], "the first one came back");
        assert_eq!(opens.close((peer(2), 1)), Some(inode(7)));
        assert!(opens.is_empty() && opens.deadline().is_none());
    }
}
