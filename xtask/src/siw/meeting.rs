//! One connection between a program of ours on the host and a stock one in the guest: their ports,
//! who waits for whom, and what went wrong at either end. One boot serves many.
//!
//! It knows no program: what runs at both ends comes from [`super::interop`] and
//! [`super::perftest`].

use super::process::Ours;
use super::{Guest, Vm};

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

const BOOT_LIMIT: Duration = Duration::from_secs(60);
/// The guest gives up first, so that it can say why.
const GUEST_LIMIT: Duration = Duration::from_secs(100);
const RUN_LIMIT: Duration = Duration::from_secs(110);
const END_LIMIT: Duration = Duration::from_secs(10);

/// Which end of the connection is our program; the stock one in the guest is the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Ours listens on the host, the guest connects.
    Server,
    /// Ours connects to the guest.
    Client,
}

/// The two TCP ports of a meeting: only one is listened on, the host's by our server or the
/// guest's by its own; qemu forwards the former to the latter for our client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) host: u16,
    pub(super) guest: u16,
}

impl Ports {
    /// Finds one on the host that was free a moment ago, which is as sure as it gets.
    pub(super) fn find(guest: u16) -> Result<Self, String> {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = port.map_err(|error| format!("no free port: {error}"))?;
        Ok(Self { host: port.port(), guest })
    }
}

/// What is to happen on one connection.
pub(super) struct Meeting {
    /// For messages.
    pub(super) name: String,
    pub(super) ours: Side,
    pub(super) ports: Ports,
    /// Our program; it must exit with 0.
    pub(super) command: Command,
    /// The guest's program with its arguments; it must exit with 0.
    pub(super) guest: String,
    /// What our program must print; may be empty.
    pub(super) wanted: String,
}

/// Boots a guest that runs `prelude`, which must print `marker`, then holds all meetings in turn.
pub(super) fn hold(
    vm: &Vm,
    prelude: &str,
    marker: &str,
    mut meetings: Vec<Meeting>,
) -> Result<(), String> {
    let mut servers = Vec::new();
    for meeting in &mut meetings {
        servers.push(meeting.server().map_err(|error| meeting.blame(&error))?);
    }
    let script: String = meetings.iter().map(Meeting::script).collect();
    let forwards: Vec<(u16, u16)> = meetings.iter().filter_map(Meeting::forward).collect();
    let mut guest = vm.boot(&format!("{prelude}{script}"), &forwards)?;
    guest.wait_for(marker, BOOT_LIMIT)?;
    for (meeting, server) in meetings.iter_mut().zip(servers) {
        meeting.watch(&mut guest, server).map_err(|error| meeting.blame(&error))?;
    }
    guest.wait(END_LIMIT).map(drop)
}

impl Meeting {
    /// Ours, where it has to be there before the guest.
    fn server(&mut self) -> Result<Option<Ours>, String> {
        if self.ours == Side::Client {
            return Ok(None);
        }
        let mut server = Ours::start(&mut self.command)?;
        server.wait_listening(self.ports.host)?;
        Ok(Some(server))
    }

    /// Follows both ends and holds them to their promises.
    fn watch(&mut self, guest: &mut Guest, server: Option<Ours>) -> Result<(), String> {
        let said = match server {
            Some(server) => self.watch_server(guest, server),
            None => self.watch_client(guest),
        }?;
        if said.contains(&self.wanted) {
            return Ok(());
        }
        Err(format!("our program did not print \"{}\" but:\n{said}", self.wanted))
    }

    fn watch_server(&self, guest: &mut Guest, server: Ours) -> Result<String, String> {
        let guest_side = guest.wait_for(&self.done(), RUN_LIMIT);
        both(server.finish(END_LIMIT), guest_side)
    }

    /// Our end is waited for first: a client that fails at once leaves the guest listening.
    fn watch_client(&mut self, guest: &mut Guest) -> Result<String, String> {
        guest.wait_for(&self.ready(), RUN_LIMIT)?;
        let our_side = Ours::start(&mut self.command)?.finish(RUN_LIMIT);
        both(our_side, guest.wait_for(&self.done(), END_LIMIT))
    }

    /// The port on the host through which our client reaches the guest.
    pub(super) fn forward(&self) -> Option<(u16, u16)> {
        (self.ours == Side::Client).then_some((self.ports.host, self.ports.guest))
    }

    /// The guest's part: the first step that fails ends the guest.
    fn script(&self) -> String {
        let Self { guest, ports: Ports { guest: port, .. }, .. } = self;
        let limit = GUEST_LIMIT.as_secs();
        let steps = match self.ours {
            Side::Server => format!("timeout {limit} {guest} || exit 1\n"),
            Side::Client => format!(
                "timeout {limit} {guest} &\n\
                 wait-listen {port} || exit 1\necho {}\nwait $! || exit 1\n",
                self.ready()
            ),
        };
        steps + &format!("echo {}\n", self.done())
    }

    fn ready(&self) -> String {
        format!("RUN {} READY", self.ports.guest)
    }

    fn done(&self) -> String {
        format!("RUN {} DONE", self.ports.guest)
    }

    fn blame(&self, error: &str) -> String {
        format!("{}: {error}", self.name)
    }
}

/// What ours said if both ends succeeded, otherwise what went wrong at either.
fn both(ours: Result<String, String>, guest: Result<(), String>) -> Result<String, String> {
    match (ours, guest) {
        (Ok(said), Ok(())) => Ok(said),
        (Err(error), Ok(())) | (Ok(_), Err(error)) => Err(error),
        (Err(ours), Err(guest)) => Err(format!("{ours}\n{guest}")),
    }
}
