//! The server: runs the tests that clients ask for, one thread for each.
//!
//! What a client can make it hold is bounded: `SESSIONS_MAX` tests at a time, each as large as
//! [`TestPlan::check`] allows, and none for longer than the longest test. The thread that listens
//! sleeps on descriptors of its own and never drives the engine, which belongs to the tests.

mod session;

use crate::error::PerfError;
use crate::measure::cpu_time;
use crate::plan::TestPlan;
use crate::proto::{ClientMessage, ServerMessage, decode, encode};
use outboard_verbs::{CmChannel, CmEventKind, ConnectRequest, Context, Listener};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use session::{Group, TestSession};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Tests at a time.
const SESSIONS_MAX: usize = 16;
/// Clients that wait for an answer at a time.
const BACKLOG: usize = 128;
/// How long a client may take to open all connections of a test.
const GATHER_MAX: Duration = Duration::from_secs(10);
/// How often tests that have ended or never began are cleared away.
const SWEEP: Duration = Duration::from_secs(1);

/// A server of tests.
#[derive(Debug)]
pub struct Server {
    context: Context,
    channel: CmChannel,
    listener: Listener,
    stop: Arc<AtomicBool>,
    /// Tests whose connections are not all there yet.
    groups: Vec<Group>,
    sessions: Vec<TestSession>,
}

impl Server {
    /// Listens. Pin the thread first, if at all.
    ///
    /// # Errors
    /// [`PerfError::Verbs`] when the address cannot be listened on.
    pub fn bind(address: SocketAddr) -> Result<Self, PerfError> {
        let context = Context::open()?;
        let channel = context.create_cm_channel()?;
        let listener = context.listen_on(address, BACKLOG, &channel)?;
        Ok(Self {
            context,
            channel,
            listener,
            stop: Arc::default(),
            groups: Vec::new(),
            sessions: Vec::new(),
        })
    }

    /// Where clients connect to.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Serves until `stop` is readable, then ends the tests that run.
    ///
    /// # Errors
    /// [`PerfError::System`] when this machine cannot go on; never because of a client.
    pub fn run(mut self, stop: impl AsFd) -> Result<(), PerfError> {
        while !self.sleep(&stop)? {
            while let Some(event) = self.channel.try_next() {
                if let CmEventKind::ConnectRequest(request) = event.kind {
                    self.answer(request);
                }
            }
            self.sweep();
        }
        Ok(())
    }

    /// Sleeps until there is something to do; true when told to stop.
    fn sleep(&self, stop: &impl AsFd) -> Result<bool, PerfError> {
        let mut fds = [PollFd::new(stop, PollFlags::IN), PollFd::new(&self.channel, PollFlags::IN)];
        let busy = !self.groups.is_empty() || !self.sessions.is_empty();
        let limit = busy.then(|| Timespec::try_from(SWEEP).ok()).flatten();
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) => Ok(!fds[0].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(PerfError::system("cannot wait for clients")(error)),
        }
    }

    /// Clears away what has ended.
    fn sweep(&mut self) {
        self.sessions.retain(|session| !session.is_finished());
        self.groups.retain(|group| group.born.elapsed() < GATHER_MAX && !group.side.is_over());
    }

    /// Answers one client. A client that has gone needs no answer.
    fn answer(&mut self, request: ConnectRequest) {
        let _gone = match decode(request.private_data()) {
            Ok(ClientMessage::Cpu) => {
                let nanos = u64::try_from(cpu_time().as_nanos()).unwrap_or(u64::MAX);
                reject(request, &ServerMessage::Cpu { nanos })
            }
            Ok(ClientMessage::Port { plan }) => match self.open_port(&request, &plan) {
                Ok(port) => reject(request, &ServerMessage::Port { port }),
                Err(error) => reject(request, &ServerMessage::refused(&error)),
            },
            Ok(ClientMessage::Test { plan, session, stag }) => {
                match self.group(&request, &plan, session) {
                    Ok(index) => self.join(request, index, stag),
                    Err(error) => reject(request, &ServerMessage::refused(&error)),
                }
            }
            Err(error) => reject(request, &ServerMessage::refused(&error)),
        };
    }

    fn check_room(&self) -> Result<(), PerfError> {
        if self.groups.len() + self.sessions.len() < SESSIONS_MAX {
            return Ok(());
        }
        Err(PerfError::Busy { limit: SESSIONS_MAX })
    }

    fn open_port(&mut self, request: &ConnectRequest, plan: &TestPlan) -> Result<u16, PerfError> {
        plan.check()?;
        self.sweep();
        self.check_room()?;
        let address = SocketAddr::new(self.local_addr().ip(), 0);
        let from = request.peer_addr().ip();
        let (session, port) = TestSession::open_port(address, from, plan, &self.stop)?;
        self.sessions.push(session);
        Ok(port)
    }

    /// The test that a connection belongs to, by its index.
    fn group(
        &mut self,
        request: &ConnectRequest,
        plan: &TestPlan,
        session: u64,
    ) -> Result<usize, PerfError> {
        let key = (request.peer_addr().ip(), session);
        let known = |group: &Group| group.key == key && group.side.plan == *plan;
        if let Some(index) = self.groups.iter().position(known) {
            return Ok(index);
        }
        plan.check()?;
        if plan.test.has_port() {
            return Err(PerfError::HasPort { test: plan.test });
        }
        self.sweep();
        self.check_room()?;
        let group = Group::new(&self.context, plan, key, &self.stop)?;
        self.groups.push(group);
        Ok(self.groups.len() - 1)
    }

    /// Adds a connection to its test, which starts with the last of them.
    fn join(&mut self, request: ConnectRequest, index: usize, stag: u32) -> Result<(), PerfError> {
        let joined = self.groups[index].join(request, stag);
        if joined.is_err() {
            drop(self.groups.swap_remove(index));
        } else if self.groups[index].is_complete() {
            let group = self.groups.swap_remove(index);
            self.sessions.push(TestSession::start(group)?);
        }
        joined
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for session in self.sessions.drain(..) {
            session.join();
        }
    }
}

fn reject(request: ConnectRequest, answer: &ServerMessage) -> Result<(), PerfError> {
    Ok(request.reject(&encode(answer))?)
}
