//! One connection between one of the project's programs on the host and a stock program in the
//! guest: their ports, the order in which they start, and the errors of both ends. One boot serves
//! many connections.
//!
//! Knows no particular program: the command lines come from [`super::interop`] and
//! [`super::perftest`].

use super::process::Ours;
use super::{Guest, Vm};

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const BOOT_LIMIT: Duration = Duration::from_secs(60);
/// The guest's limit is shorter, so that it can report why it gave up.
const GUEST_LIMIT: Duration = Duration::from_secs(100);
const RUN_LIMIT: Duration = Duration::from_secs(110);
const END_LIMIT: Duration = Duration::from_secs(10);

/// The role of the project's program; the stock program in the guest has the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The project's program listens on the host, the guest connects.
    Server,
    /// The project's program connects to the guest.
    Client,
}

/// The two TCP ports of a connection: only one is listened on, the host's by the project's server
/// or the guest's by the stock server; qemu forwards the former to the latter for the project's
/// client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) host: u16,
    pub(super) guest: u16,
}

impl Ports {
    /// Finds a port on the host that was free a moment ago, and that was not found before: the
    /// kernel may offer the same again as long as nothing listens there.
    pub(super) fn find(guest: u16) -> Result<Self, String> {
        static FOUND: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
        loop {
            let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
            let host = port.map_err(|error| format!("no free port: {error}"))?.port();
            if FOUND.lock().unwrap_or_else(PoisonError::into_inner).insert(host) {
                return Ok(Self { host, guest });
            }
        }
    }
}

/// One connection, and the work on it.
pub(super) struct Meeting {
    /// For messages.
    pub(super) name: String,
    pub(super) ours: Side,
    pub(super) ports: Ports,
    /// The project's program; it must exit with 0.
    pub(super) command: Command,
    /// The guest's program with its arguments; it must exit with 0.
    pub(super) guest: String,
    /// Text that the project's program must print; may be empty.
    pub(super) wanted: String,
}

/// Boots a guest that runs `prelude`, which must print `marker`, then makes all connections in
/// turn.
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
    /// Starts the project's program, if it is the server and must listen before the guest connects.
    fn server(&mut self) -> Result<Option<Ours>, String> {
        if self.ours == Side::Client {
            return Ok(None);
        }
        let mut server = Ours::start(&mut self.command)?;
        server.wait_listening(self.ports.host)?;
        Ok(Some(server))
    }

    /// Waits for both ends and checks their results.
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

    /// The project's end is waited for first: if its client fails at once, the guest goes on
    /// listening.
    fn watch_client(&mut self, guest: &mut Guest) -> Result<String, String> {
        guest.wait_for(&self.ready(), RUN_LIMIT)?;
        let our_side = Ours::start(&mut self.command)?.finish(RUN_LIMIT);
        both(our_side, guest.wait_for(&self.done(), END_LIMIT))
    }

    /// The port on the host through which the project's client reaches the guest.
    pub(super) fn forward(&self) -> Option<(u16, u16)> {
        (self.ours == Side::Client).then_some((self.ports.host, self.ports.guest))
    }

    /// The guest's part of the script: the first step that fails ends the guest.
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

/// The output of the project's program if both ends succeeded, otherwise the errors of both.
fn both(ours: Result<String, String>, guest: Result<(), String>) -> Result<String, String> {
    match (ours, guest) {
        (Ok(said), Ok(())) => Ok(said),
        (Err(error), Ok(())) | (Ok(_), Err(error)) => Err(error),
        (Err(ours), Err(guest)) => Err(format!("{ours}\n{guest}")),
    }
}
