//! Hands out compilers to servers that lack them: a list of the compiler's parts, then the parts,
//! one at a time.
//!
//! Only files that this client has itself identified as parts of a compiler are handed out, and
//! only if they are unchanged since.

use super::ServerPool;
use crate::client::files::FileRequest;
use crate::protocol::{Digest, ToServer};
use crate::toolchain::Toolchain;
use outboard_cluster::hub::PeerId;
use outboard_verbs::{Access, SharedRegion};
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a description, at most: it must fit one message.
const DESCRIPTION_MAX: usize = 60 << 10;
/// Compilers that are remembered.
const IDENTIFIED_MAX: usize = 256;

impl ServerPool {
    /// Remembers a compiler that this client's jobs use.
    pub(super) fn remember(&mut self, toolchain: &Arc<Toolchain>) {
        if self.identified.len() >= IDENTIFIED_MAX {
            self.identified.clear();
        }
        self.identified.insert(toolchain.hash.0, Arc::clone(toolchain));
    }

    pub(super) fn describe(&mut self, peer: PeerId, toolchain: Digest, now: Instant) {
        let described = self.identified.get(&toolchain);
        let bytes = described.and_then(|at| postcard::to_stdvec(&**at).ok());
        let bytes = bytes.filter(|bytes| bytes.len() <= DESCRIPTION_MAX).unwrap_or_default();
        self.send(peer, &ToServer::Described { toolchain, bytes }, now);
    }

    pub(super) fn offer_part(&mut self, peer: PeerId, toolchain: Digest, part: u32, now: Instant) {
        self.withdraw_part(peer);
        let Some(server) = self.servers.get_mut(&peer) else { return };
        if std::mem::replace(&mut server.awaits_part, true) {
            return self.give_up(peer, "it asks for two parts of compilers at once", now);
        }
        let known = self.identified.get(&toolchain).and_then(|at| at.parts.get(part as usize));
        match known.cloned() {
            Some(part) => self.files.ask(FileRequest::Part { peer, part }),
            None => self.expose_part(peer, None, now),
        }
    }

    /// Exposes a part that has been read; `None` if the file has changed.
    pub(super) fn expose_part(
        &mut self,
        peer: PeerId,
        contents: Option<&SharedRegion>,
        now: Instant,
    ) {
        if !self.servers.contains_key(&peer) {
            return;
        }
        let exposed = contents.and_then(|region| {
            let memory = region.slice(0..region.len()).ok()?;
            self.hub.expose(peer, memory, Access::REMOTE_READ).ok()
        });
        self.withdraw_part(peer);
        self.servers.entry(peer).and_modify(|server| {
            (server.part, server.awaits_part) = (exposed, false);
        });
        self.send(peer, &ToServer::Part { exposed }, now);
    }

    /// Withdraws the part that a server has finished reading.
    pub(super) fn withdraw_part(&mut self, peer: PeerId) {
        if let Some(exposed) = self.servers.get_mut(&peer).and_then(|server| server.part.take()) {
            self.hub.withdraw(peer, exposed);
        }
    }
}
