//! The service's loop: sessions and their devices.

use super::pieces::{Joiner, cut};
use super::table::OffloadLimits;
use crate::device::{DeviceLimits, WasmCodes};
use crate::devices::HostDevice;
use crate::frames::{FrameFault, FrameStream};
use outboard_cluster::hub::{Hub, HubEvent, PeerId, PeerMap};
use outboard_cluster::node::Permit;
use outboard_cluster::service::{Service, ServiceError, SpinMode};
use outboard_offcode::resident::ResidentEngine;
use rustix::event::epoll;
use serde::Serialize;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Frames that a device has not taken, beyond which its client is cut off: it sends more than the
/// channels' depths allow.
const FRAMES_MAX: usize = 8192;
/// Bytes of them, beside the last.
const FRAMES_BYTES: usize = 64 << 20;
/// Frames of a device that are passed on in a turn.
const PASSED_MAX: usize = 256;

/// One client's device.
#[derive(Debug)]
struct DeviceSession {
    frames: FrameStream,
    joiner: Joiner,
    /// What epoll waits for: room, too, or not.
    waits_for_room: bool,
}

/// What `outboard status` shows.
#[derive(Debug, Default, Serialize)]
pub struct OffloadReport {
    sessions: usize,
    /// Frames that clients have sent.
    requests: u64,
    /// Frames that devices have sent.
    events: u64,
    refused: u64,
}

/// See this file's first lines.
#[derive(Debug)]
pub struct OffloadService {
    limits: OffloadLimits,
    engine: ResidentEngine,
    /// Devices' threads have a share of it for as long as they run.
    alive: Arc<()>,
    sessions: PeerMap<DeviceSession>,
    /// The sockets of all devices, by their peers' numbers.
    ready: OwnedFd,
    requests: u64,
    events: u64,
    refused: u64,
}

impl OffloadService {
    /// A service without sessions.
    ///
    /// # Errors
    /// This machine's: no descriptors.
    pub fn new(limits: OffloadLimits, engine: ResidentEngine) -> io::Result<Self> {
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let sessions = PeerMap::default();
        let alive = Arc::new(());
        Ok(Self { limits, engine, alive, sessions, ready, requests: 0, events: 0, refused: 0 })
    }

    fn admit(&mut self, peer: PeerId, permit: &Permit) -> Result<(), ServiceError> {
        let node = permit.node();
        if self.limits.allow.as_ref().is_some_and(|allow| !allow.contains(&node)) {
            return Err("the node's table does not allow this identity".into());
        }
        // A device that is in the middle of an entry ends after that: until then it counts.
        if Arc::strong_count(&self.alive) > self.limits.sessions {
            return Err(
                format!("{} sessions are all that there may be", self.limits.sessions).into()
            );
        }
        let limits =
            DeviceLimits { offcodes: self.limits.offcodes, memory_bytes: self.limits.memory_bytes };
        let codes = WasmCodes::with(self.engine.clone());
        let name = format!("peer-{}", peer.number());
        let frames = HostDevice::start_apart(&name, limits, codes, Arc::clone(&self.alive))?;
        let data = epoll::EventData::new_u64(peer.number().into());
        epoll::add(&self.ready, &frames, data, epoll::EventFlags::IN)?;
        let session = DeviceSession { frames, joiner: Joiner::default(), waits_for_room: false };
        self.sessions.insert(peer, session);
        Ok(())
    }

    /// Passes a client's message on to its device.
    fn request(&mut self, peer: PeerId, piece: &[u8]) -> Result<(), ServiceError> {
        let session = self.sessions.get_mut(&peer).ok_or("a message before its session")?;
        let Some(frame) = session.joiner.add(piece)? else { return Ok(()) };
        let frames = &session.frames;
        if frames.queued() > FRAMES_MAX || frames.queued_bytes() > FRAMES_BYTES {
            return Err("it sends more than its device takes".into());
        }
        session.frames.send(&frame, &[])?;
        self.requests += 1;
        session.watch(&self.ready, peer)?;
        Ok(())
    }

    /// Passes what devices have said on to their clients. Returns the peers whose sessions end.
    fn pass_events(&mut self, hub: &mut Hub<()>) -> Vec<(PeerId, ServiceError)> {
        let mut ended = Vec::new();
        for peer in self.ready_peers() {
            let Some(session) = self.sessions.get_mut(&peer) else { continue };
            match session.pass(hub, peer) {
                Ok(count) => self.events += count,
                Err(error) => ended.push((peer, error)),
            }
            if let Err(error) = session.watch(&self.ready, peer) {
                ended.push((peer, error.into()));
            }
        }
        ended
    }

    fn ready_peers(&self) -> Vec<PeerId> {
        let mut space = [const { std::mem::MaybeUninit::uninit() }; 64];
        let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((found, _)) = epoll::wait(&self.ready, &mut space, Some(&none)) else {
            return Vec::new();
        };
        let number = |event: &epoll::Event| u32::try_from(event.data.u64()).unwrap_or(u32::MAX);
        found.iter().map(|event| PeerId::from_number(number(event))).collect()
    }
}

impl DeviceSession {
    /// Passes on what the device has said; returns how many frames that were.
    fn pass(&mut self, hub: &mut Hub<()>, peer: PeerId) -> Result<u64, ServiceError> {
        self.frames.flush()?;
        for count in 0..PASSED_MAX {
            let received = match self.frames.receive() {
                Err(FrameFault::Closed) => return Err("its device has ended".into()),
                received => received?,
            };
            let Some((frame, _)) = received else { return Ok(count as u64) };
            let pieces: Vec<Vec<u8>> = cut(&frame).collect();
            hub.send_all(peer, &pieces)?;
        }
        Ok(PASSED_MAX as u64)
    }

    /// Waits for room in the device's socket while something waits for that.
    fn watch(&mut self, ready: &OwnedFd, peer: PeerId) -> io::Result<()> {
        let wants = self.frames.wants_write();
        if wants != self.waits_for_room {
            self.waits_for_room = wants;
            let room = if wants { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            let data = epoll::EventData::new_u64(peer.number().into());
            epoll::modify(ready, &self.frames, data, epoll::EventFlags::IN | room)?;
        }
        Ok(())
    }
}

impl Service for OffloadService {
    type Tag = ();
    type Report = OffloadReport;

    fn arrived(
        &mut self,
        _: &mut Hub<()>,
        peer: PeerId,
        permit: &Permit,
    ) -> Result<(), ServiceError> {
        let admitted = self.admit(peer, permit);
        self.refused += u64::from(admitted.is_err());
        admitted
    }

    fn handle(&mut self, _: &mut Hub<()>, event: HubEvent<()>) -> Result<(), ServiceError> {
        match event {
            HubEvent::Message { peer, bytes } => self.request(peer, &bytes),
            _ => Err("it did something else than sending a message".into()),
        }
    }

    fn gone(&mut self, _: &mut Hub<()>, peer: PeerId) {
        // The device's thread ends when its socket closes, and everything on it.
        self.sessions.remove(&peer);
    }

    fn turn(
        &mut self,
        hub: &mut Hub<()>,
        _: Instant,
    ) -> Result<Vec<(PeerId, ServiceError)>, ServiceError> {
        Ok(self.pass_events(hub))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ready.as_fd())
    }

    fn spin(&self) -> SpinMode {
        SpinMode::Adaptive
    }

    fn report(&self) -> OffloadReport {
        OffloadReport {
            sessions: self.sessions.len(),
            requests: self.requests,
            events: self.events,
            refused: self.refused,
        }
    }
}
