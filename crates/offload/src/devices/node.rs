//! The device `node`: the service `offload` of a node, at the other end of an encrypted session.

use super::link::{DeviceLink, DeviceLost};
use crate::request::{DeviceEvent, Numbered, PROTOCOL};
use crate::service::hub_options;
use crate::service::pieces::{Joiner, cut};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::Host;
use outboard_cluster::hub::{Hub, HubEvent, PeerId};
use outboard_secure::ServiceName;
use outboard_verbs::Role;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The service's name.
pub const SERVICE: &str = "offload";

/// See this file's first lines.
#[derive(Debug)]
pub struct NodeDevice {
    name: String,
    hub: Hub<()>,
    peer: PeerId,
    joiner: Joiner,
    events: VecDeque<DeviceEvent>,
    lost: Option<DeviceLost>,
    /// What a turn of the hub has brought.
    fresh: Vec<HubEvent<()>>,
}

impl NodeDevice {
    /// Connects to a node, with this user's key for the service.
    ///
    /// # Errors
    /// In words: it cannot be reached, or refuses.
    pub fn connect(
        name: &str,
        host: &Host,
        dialer: &Dialer,
        limit: Duration,
    ) -> Result<Self, String> {
        let service: ServiceName =
            SERVICE.parse().map_err(|_| "no name of a service".to_owned())?;
        let stream = dialer.dial(host, &service, Instant::now() + limit);
        let stream = stream.map_err(|error| error.to_string())?;
        let mut hub = Hub::with(hub_options()).map_err(|error| error.to_string())?;
        let admission = hub.prepare().map_err(|error| error.to_string())?;
        let admitted = admission
            .connect(|qp, params, channel| qp.adopt(stream, Role::Initiator, params, channel))
            .map_err(|error| error.to_string())?;
        let peer = hub.enroll(admitted).map_err(|error| error.to_string())?;
        Ok(Self {
            name: name.to_owned(),
            hub,
            peer,
            joiner: Joiner::default(),
            events: VecDeque::new(),
            lost: None,
            fresh: Vec::new(),
        })
    }

    /// Takes what has come.
    fn turn(&mut self) {
        let mut fresh = std::mem::take(&mut self.fresh);
        if let Err(error) = self.hub.turn(&mut fresh) {
            self.lose(error.to_string());
        }
        for event in fresh.drain(..) {
            match event {
                HubEvent::Message { bytes, .. } => self.message(&bytes),
                HubEvent::Gone { why, .. } => self.lose(why.to_string()),
                _ => self.lose("it did something else than sending a message".to_owned()),
            }
        }
        self.fresh = fresh;
    }

    fn message(&mut self, piece: &[u8]) {
        match self.joiner.add(piece) {
            Ok(Some(frame)) => match PROTOCOL.decode(&frame) {
                Ok(event) => self.events.push_back(event),
                Err(error) => self.lose(error.to_string()),
            },
            Ok(None) => {}
            Err(fault) => self.lose(fault.to_string()),
        }
    }

    fn lose(&mut self, why: String) {
        self.lost.get_or_insert(DeviceLost(why));
    }
}

impl DeviceLink for NodeDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&mut self, request: &Numbered, _: &[BorrowedFd<'_>]) -> Result<(), DeviceLost> {
        let frame = PROTOCOL.encode(request);
        let pieces: Vec<Vec<u8>> = cut(&frame).collect();
        self.hub.send_all(self.peer, &pieces).map_err(|error| DeviceLost(error.to_string()))
    }

    fn poll(&mut self) -> Result<Option<DeviceEvent>, DeviceLost> {
        if self.events.is_empty() && self.lost.is_none() {
            self.turn();
        }
        match (self.events.pop_front(), &self.lost) {
            (Some(event), _) => Ok(Some(event)),
            (None, Some(lost)) => Err(lost.clone()),
            (None, None) => Ok(None),
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.hub.as_fd()
    }

    fn wants_write(&self) -> bool {
        false
    }

    fn flush(&mut self) -> Result<(), DeviceLost> {
        Ok(())
    }

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
