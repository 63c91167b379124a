//! Which client may map a file shared and writable. Pages that two clients have mapped and write
//! are one file's in neither: so one client may, as long as it has an opening by which it may, and
//! the mounts of the others refuse such mappings.
//!
//! A client whose connection has ended may come back with what it has mapped: it is waited for as
//! long as for what it has open.

use super::opens::GRACE;
use crate::protocol::FsInode;
use outboard_cluster::hub::PeerId;
use std::collections::HashMap;
use std::time::Instant;

/// A client that may, and by how many openings.
#[derive(Clone, Copy, Debug)]
struct MappingClient {
    peer: PeerId,
    openings: u32,
    /// Its connection has ended: until when it is waited for.
    until: Option<Instant>,
}

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct MappingRights {
    /// One, and those that say on a new connection that they could: one may be the other, whose
    /// old connection has not ended yet.
    clients: HashMap<FsInode, Vec<MappingClient>>,
    openings: HashMap<PeerId, HashMap<u64, FsInode>>,
}

impl MappingRights {
    /// A client opens a file to read and write it; whether it may map it.
    pub(super) fn grant(&mut self, opening: (PeerId, u64), inode: FsInode, now: Instant) -> bool {
        self.close(opening);
        let clients = self.clients.entry(inode).or_default();
        clients.retain(|client| client.until.is_none_or(|until| until > now));
        let may = clients.iter().all(|client| client.peer == opening.0 && client.until.is_none());
        if may {
            self.add(opening, inode);
        }
        may
    }

    /// A client says on a new connection that it may map a file.
    pub(super) fn claim(&mut self, opening: (PeerId, u64), inode: FsInode) {
        self.close(opening);
        // This is the one that was waited for.
        self.clients.entry(inode).or_default().retain(|client| client.until.is_none());
        self.add(opening, inode);
    }

    fn add(&mut self, (peer, opening): (PeerId, u64), inode: FsInode) {
        self.openings.entry(peer).or_default().insert(opening, inode);
        let clients = self.clients.entry(inode).or_default();
        match clients.iter_mut().find(|client| client.peer == peer) {
            Some(client) => client.openings += 1,
            None => clients.push(MappingClient { peer, openings: 1, until: None }),
        }
    }

    /// A client has closed an opening.
    pub(super) fn close(&mut self, (peer, opening): (PeerId, u64)) {
        let Some(its) = self.openings.get_mut(&peer) else { return };
        let Some(inode) = its.remove(&opening) else { return };
        if its.is_empty() {
            self.openings.remove(&peer);
        }
        let Some(clients) = self.clients.get_mut(&inode) else { return };
        for client in clients.iter_mut().filter(|client| client.peer == peer) {
            client.openings -= 1;
        }
        clients.retain(|client| client.openings > 0);
        if clients.is_empty() {
            self.clients.remove(&inode);
        }
    }

    /// A connection has ended.
    pub(super) fn gone(&mut self, peer: PeerId, now: Instant) {
        for inode in self.openings.remove(&peer).unwrap_or_default().into_values() {
            let clients = self.clients.entry(inode).or_default();
            let its = clients.iter_mut().filter(|client| client.peer == peer);
            its.for_each(|client| client.until = Some(now + GRACE));
        }
        self.clients.retain(|_, clients| {
            clients.retain(|client| client.until.is_none_or(|until| until > now));
            !clients.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(peer: u32, opening: u64) -> (PeerId, u64) {
        (PeerId::from_number(peer), opening)
    }

    const FILE: FsInode = FsInode { number: 7, generation: 1 };

    #[test]
    fn one_client_maps_a_file_at_a_time() {
        let (mut rights, now) = (MappingRights::default(), Instant::now());
        assert!(rights.grant(at(1, 1), FILE, now) && rights.grant(at(1, 2), FILE, now));
        assert!(!rights.grant(at(2, 1), FILE, now));
        assert!(rights.grant(at(2, 2), FsInode { number: 8, ..FILE }, now), "another file");
        rights.close(at(1, 1));
        assert!(!rights.grant(at(2, 3), FILE, now), "it has another opening");
        rights.close(at(2, 1));
        rights.close(at(1, 2));
        assert!(rights.grant(at(2, 4), FILE, now) && !rights.grant(at(1, 3), FILE, now));
    }

    #[test]
    fn a_client_that_is_gone_is_waited_for() {
        let (mut rights, now) = (MappingRights::default(), Instant::now());
        assert!(rights.grant(at(1, 1), FILE, now));
        rights.gone(at(1, 1).0, now);
        assert!(!rights.grant(at(2, 1), FILE, now));
        rights.claim(at(3, 1), FILE);
        assert!(!rights.grant(at(2, 1), FILE, now + GRACE), "it has come back");
        rights.gone(at(3, 1).0, now);
        assert!(rights.grant(at(2, 1), FILE, now + GRACE), "it has not");
        rights.close(at(2, 1));
        assert!(rights.clients.is_empty() && rights.openings.is_empty());
    }

    #[test]
    fn a_client_that_is_back_before_its_old_connection_ends_keeps_its_right() {
        let (mut rights, now) = (MappingRights::default(), Instant::now());
        assert!(rights.grant(at(1, 1), FILE, now));
        rights.claim(at(2, 1), FILE);
        rights.gone(at(1, 1).0, now);
        let late = now + 2 * GRACE;
        assert!(!rights.grant(at(3, 1), FILE, late) && rights.grant(at(2, 2), FILE, late));
    }
}
