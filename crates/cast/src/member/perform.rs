//! Performs the relay's actions: sends messages, exposes and writes memory, starts threads' work.

use super::work::LOOK_AFTER;
use super::{CastHub, CastMember, CastTag, MemberResult, SendReach, WorkDone, of_machine};
use crate::protocol::{CastMessage, PROTOCOL, WantedSlot, immediate};
use crate::receive::AtOnce;
use crate::relay::{Action, ChunkWant};
use outboard_cluster::hub::{HubError, PeerId};
use outboard_verbs::Access;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a chunk that the loop itself hashes, at most: longer ones would hold up other peers.
const CHECKED_HERE_MAX: usize = 1 << 20;

impl CastMember {
    fn say(&mut self, peer: PeerId, message: &CastMessage) {
        self.messages.entry(peer).or_default().push(PROTOCOL.encode(message));
    }

    pub(super) fn perform(&mut self, hub: &mut CastHub, action: Action) -> MemberResult {
        match action {
            Action::Tell { to, chunk, want } => match self.links.get(&to) {
                Some(&peer) => self.tell(hub, peer, chunk, want)?,
                None => self.untold.entry(to).or_default().push(action),
            },
            Action::Hurry { to, chunk } => match self.links.get(&to) {
                Some(&peer) => self.say(peer, &CastMessage::Hurry { chunk }),
                None => self.untold.entry(to).or_default().push(action),
            },
            Action::Drop { to, slot } => {
                if let Some(&peer) = self.links.get(&to) {
                    self.say(peer, &CastMessage::Dropped { slot });
                }
            }
            Action::Keep { chunk, slot } => self.keep(chunk, slot)?,
            Action::Load { chunk, slot } => self.load(hub, chunk, slot)?,
            Action::Send { chunk, .. } => {
                let len = self.setup.shape.len_of(chunk) as u64;
                if let Some(action) = self.limit.admit(Instant::now(), action, len) {
                    self.send(hub, action)?;
                }
            }
        }
        Ok(())
    }

    fn tell(
        &mut self,
        hub: &mut CastHub,
        peer: PeerId,
        chunk: u32,
        want: ChunkWant,
    ) -> MemberResult {
        let into = match want {
            ChunkWant::Nothing => None,
            ChunkWant::Into { slot } => {
                self.withdraw(hub, slot);
                let memory = self.window.slice(self.range(chunk, slot)).map_err(of_machine)?;
                match hub.expose(peer, memory, Access::REMOTE_WRITE) {
                    Ok(memory) => {
                        self.exposed.insert(slot, (peer, memory));
                        Some(WantedSlot { slot, memory })
                    }
                    // Its end follows.
                    Err(HubError::NoPeer) => return Ok(()),
                    Err(error) => return Err(of_machine(error)),
                }
            }
        };
        self.say(peer, &CastMessage::Want { chunk, into });
        Ok(())
    }

    pub(super) fn send(&mut self, hub: &mut CastHub, action: Action) -> MemberResult {
        let Action::Send { to, chunk, from, into } = action else { return Ok(()) };
        let range = self.range(chunk, from);
        let target = self.targets.remove(&(to, into));
        let target = target.and_then(|memory| memory.range(0, range.len() as u64));
        let (Some(target), Some(&peer)) = (target, self.links.get(&to)) else { return Ok(()) };
        let memory = match self.setup.store.mapped(chunk) {
            Some(memory) => memory,
            None => self.window.slice(range).map_err(of_machine)?,
        };
        let tag = CastTag { session: self.setup.session, to, slot: from };
        let is_far = self.relay.crosses(to);
        let reach = if is_far { SendReach::OtherSwitch } else { SendReach::SameSwitch };
        self.progress.sends(Instant::now(), (to, reach), memory.len() as u64);
        if let Err(error) = hub.write_immediate(peer, target, (memory, immediate(chunk, into)), tag)
        {
            // The end of its connection frees the slot.
            tracing::debug!(to, chunk, %error, "not written");
        }
        Ok(())
    }

    pub(super) fn withdraw(&mut self, hub: &mut CastHub, slot: u32) {
        if let Some((peer, memory)) = self.exposed.remove(&slot) {
            hub.withdraw(peer, memory);
        }
    }

    fn range(&self, chunk: u32, slot: u32) -> Range<usize> {
        let at = slot as usize * self.setup.shape.chunk_len().bytes() as usize;
        at..at + self.setup.shape.len_of(chunk)
    }

    /// Has a chunk checked and written. What is checked soon is checked here, so that it is passed
    /// on at once; the longest by a thread.
    pub(super) fn keep(&mut self, chunk: u32, slot: u32) -> MemberResult {
        let memory = self.window.slice(self.range(chunk, slot)).map_err(of_machine)?;
        let (store, threads) = (Arc::clone(&self.setup.store), self.setup.threads.clone());
        let (session, at) = (self.setup.session, (chunk, slot));
        let kept = move |outcome| WorkDone::Kept { at, outcome };
        if memory.len() > CHECKED_HERE_MAX {
            self.look_at = Some(Instant::now() + LOOK_AFTER);
            return self.setup.threads.run_quick(session, move || {
                let verified = store.verify(chunk, memory);
                kept(verified.and_then(|verified| {
                    threads.answer(session, WorkDone::Verified { at });
                    store.keep(&verified)
                }))
            });
        }
        match store.verify(chunk, memory) {
            Ok(verified) => {
                self.verified(at);
                self.unwritten.push((at, verified));
                Ok(())
            }
            Err(fault) => {
                threads.answer(session, kept(Err(fault)));
                Ok(())
            }
        }
    }

    /// Writes what was checked: where that is only copying here, else by a thread.
    pub(super) fn write(&mut self) -> MemberResult {
        for (at, verified) in std::mem::take(&mut self.unwritten) {
            let (session, store) = (self.setup.session, Arc::clone(&self.setup.store));
            let kept = move |outcome| WorkDone::Kept { at, outcome };
            match store.keep_at_once(&verified) {
                AtOnce::Done(Ok(())) => {
                    self.progress.kept(at);
                    self.relay.kept(at.0, at.1, true);
                    self.note_claims();
                    continue;
                }
                AtOnce::Done(Err(fault)) => self.setup.threads.answer(session, kept(Err(fault))),
                AtOnce::Later => self.unwritten.push((at, verified)),
                AtOnce::Never => {
                    self.setup.threads.run_quick(session, move || kept(store.keep(&verified)))?;
                }
            }
            self.look_at = Some(Instant::now() + LOOK_AFTER);
        }
        Ok(())
    }

    fn load(&mut self, hub: &mut CastHub, chunk: u32, slot: u32) -> MemberResult {
        self.withdraw(hub, slot);
        let (window, at) = (self.window.clone(), self.range(chunk, slot).start);
        let store = Arc::clone(&self.setup.store);
        self.setup.threads.run(self.setup.session, move || {
            let outcome = with_buffer(|bytes| {
                store.load(chunk, bytes)?;
                window.copy_in(at, bytes).map_err(|error| error.to_string())
            });
            WorkDone::Loaded { at: (chunk, slot), outcome }
        })
    }
}

/// Runs with a buffer of this thread's, which it keeps for the next chunk: new memory for each one
/// would cost as much as copying it.
fn with_buffer<T>(work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        work(buffer)
    })
}
