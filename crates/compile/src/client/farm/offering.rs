//! Compilers for servers that lack them: what one is made of, and its parts, one at a time.
//!
//! Nothing is handed out but files that this client has itself found to be parts of a compiler, as
//! they were then.

use super::Cluster;
use crate::protocol::{Digest, ToServer};
use crate::toolchain::{Part, Toolchain};
use outboard_cluster::hub::{Exposed, PeerId};
use outboard_verbs::{Access, SharedRegion};
use std::sync::Arc;
use std::time::Instant;

/// Octets of a description that still goes in one message.
const DESCRIPTION_MAX: usize = 60 << 10;
/// Compilers that are remembered.
const IDENTIFIED_MAX: usize = 256;

impl Cluster {
    /// A compiler that jobs use here.
    pub(super) fn remember(&mut self, toolchain: &Arc<Toolchain>) {
        if self.identified.len() >= IDENTIFIED_MAX {
            self.identified.clear();
        }
        self.identified.insert(toolchain.hash.0, Arc::clone(toolchain));
    }

    pub(super) fn describe(&mut self, peer: PeerId, toolchain: Digest, now: Instant) {
        let described = self.identified.get(&toolchain);
        let octets = described.and_then(|at| postcard::to_stdvec(&**at).ok());
        let octets = octets.filter(|octets| octets.len() <= DESCRIPTION_MAX).unwrap_or_default();
        self.tell(peer, &ToServer::Described { toolchain, octets }, now);
    }

    pub(super) fn offer_part(&mut self, peer: PeerId, toolchain: Digest, part: u32, now: Instant) {
        self.withdraw_part(peer);
        let exposed = self.expose_part(peer, toolchain, part);
        self.tell(peer, &ToServer::Part { exposed }, now);
    }

    /// The server has read what it wanted.
    pub(super) fn withdraw_part(&mut self, peer: PeerId) {
        if let Some(exposed) = self.servers.get_mut(&peer).and_then(|server| server.part.take()) {
            self.hub.withdraw(peer, exposed);
        }
    }

    fn expose_part(&mut self, peer: PeerId, toolchain: Digest, part: u32) -> Option<Exposed> {
        let part = self.identified.get(&toolchain)?.parts.get(part as usize)?;
        let region = contents(part)?;
        let memory = region.slice(0..region.len()).ok()?;
        let exposed = self.hub.expose(peer, memory, Access::REMOTE_READ).ok()?;
        self.servers.get_mut(&peer)?.part = Some(exposed);
        Some(exposed)
    }
}

/// What is in a part, if that is what was in it when it was identified.
fn contents(part: &Part) -> Option<SharedRegion> {
    let octets = std::fs::read(&part.path).ok()?;
    if *blake3::hash(&octets).as_bytes() != part.hash.0 {
        return None;
    }
    let region = SharedRegion::zeroed(octets.len()).ok()?;
    region.copy_in(0, &octets).ok()?;
    Some(region)
}
