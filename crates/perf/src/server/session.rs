//! One test on the server: its connections as they come in, then its thread.

use crate::connect::ConnectionServer;
use crate::error::PerfError;
use crate::latency::Latency;
use crate::measure::SECONDS_MAX;
use crate::plan::{TestKind, TestPlan, Wait};
use crate::proto::{ServerMessage, encode};
use crate::side::{NAP, TestSide};
use crate::stream;
use crate::tcp::Tcp;
use outboard_verbs::{CmChannel, ConnectError, ConnectParams, ConnectRequest, Context, Stag};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a client may take to come to its TCP port.
const COME_MAX: Duration = Duration::from_secs(5);
/// A test in which the server has no part ends after this, whatever the client does.
const PASSIVE_MAX: Duration = Duration::from_secs(SECONDS_MAX + 60);

/// A test whose connections are coming in.
#[derive(Debug)]
pub(super) struct Group {
    /// The client's address, and the number that it gave the test.
    pub(super) key: (IpAddr, u64),
    pub(super) born: Instant,
    pub(super) side: TestSide,
    channel: CmChannel,
    stop: Arc<AtomicBool>,
}

impl Group {
    pub(super) fn new(
        context: &Context,
        plan: &TestPlan,
        key: (IpAddr, u64),
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, PerfError> {
        Ok(Self {
            key,
            born: Instant::now(),
            side: TestSide::new(context, plan, Arc::clone(stop))?,
            channel: context.create_cm_channel()?,
            stop: Arc::clone(stop),
        })
    }

    /// Accepts one of the test's connections.
    pub(super) fn join(&mut self, request: ConnectRequest, stag: u32) -> Result<(), PerfError> {
        let qp = self.side.create_qp()?;
        let ready = ServerMessage::Ready { stag: self.side.stag().0 };
        let params = ConnectParams {
            private_data: encode(&ready),
            crc: self.side.plan.crc,
            ..ConnectParams::default()
        };
        request.accept_on(&qp, &params, &self.channel).map_err(ConnectError::from)?;
        self.side.add_lane(qp, Stag(stag));
        Ok(())
    }

    pub(super) fn is_complete(&self) -> bool {
        self.side.lanes.len() == self.side.plan.qps
    }

    /// The test, until the client leaves or is given up.
    fn serve(mut self) -> PerfError {
        let plan = &self.side.plan;
        match (plan.test.is_passive(), plan.test.kind(), plan.wait) {
            (true, _, Wait::Spin) => self.side.spin_until_over(PASSIVE_MAX),
            (true, _, Wait::Block) => self.sleep_until_over(),
            (false, TestKind::Latency, _) => Latency::new(self.side).serve(),
            (false, _, _) => stream::serve(&mut self.side),
        }
    }

    /// Leaves the work to the engine's thread.
    fn sleep_until_over(&self) -> PerfError {
        let limit = Timespec::try_from(NAP).ok();
        while !self.side.is_over() && self.born.elapsed() < PASSIVE_MAX {
            if self.stop.load(Ordering::Relaxed) {
                return PerfError::Stopped;
            }
            let mut fds = [PollFd::new(&self.channel, PollFlags::IN)];
            if let Err(error) = poll(&mut fds, limit.as_ref())
                && error != rustix::io::Errno::INTR
            {
                return PerfError::system("cannot wait for a client")(error);
            }
            while self.channel.try_next().is_some() {}
        }
        PerfError::PeerLeft
    }
}

/// A test that runs.
#[derive(Debug)]
pub(super) struct TestSession {
    thread: JoinHandle<()>,
}

impl TestSession {
    pub(super) fn start(group: Group) -> Result<Self, PerfError> {
        // However it ends, the client is told by the end of its connections.
        Self::spawn(move || drop(group.serve()))
    }

    /// Opens a port for one client and serves it there.
    pub(super) fn open_port(
        address: SocketAddr,
        from: IpAddr,
        plan: &TestPlan,
        stop: &Arc<AtomicBool>,
    ) -> Result<(Self, u16), PerfError> {
        if !plan.test.is_connect() {
            return Self::start_tcp(address, from, plan, stop);
        }
        let (host, port) = ConnectionServer::open(address, from, plan)?;
        let stop = Arc::clone(stop);
        Ok((Self::spawn(move || host.serve(&stop))?, port))
    }

    fn start_tcp(
        address: SocketAddr,
        from: IpAddr,
        plan: &TestPlan,
        stop: &Arc<AtomicBool>,
    ) -> Result<(Self, u16), PerfError> {
        let cannot = "cannot open a TCP port for the test";
        let listener = TcpListener::bind(address).map_err(PerfError::system(cannot))?;
        listener.set_nonblocking(true).map_err(PerfError::system(cannot))?;
        let port = listener.local_addr().map_err(PerfError::system(cannot))?.port();
        let (plan, stop) = (plan.clone(), Arc::clone(stop));
        let serve = move || {
            if let Some(socket) = accept(&listener, from, &stop)
                && let Ok(mut tcp) = Tcp::new(socket, &plan, stop)
            {
                drop(tcp.serve());
            }
        };
        Ok((Self::spawn(serve)?, port))
    }

    fn spawn(serve: impl FnOnce() + Send + 'static) -> Result<Self, PerfError> {
        let thread = std::thread::Builder::new()
            .name("outboard-perf".into())
            .spawn(serve)
            .map_err(PerfError::system("cannot start a thread for the test"))?;
        Ok(Self { thread })
    }

    pub(super) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    pub(super) fn join(self) {
        // A panic there has been printed already.
        let _ended = self.thread.join();
    }
}

/// The connection of the client that asked for the port.
fn accept(listener: &TcpListener, from: IpAddr, stop: &AtomicBool) -> Option<TcpStream> {
    let start = Instant::now();
    let limit = Timespec::try_from(NAP).ok();
    while start.elapsed() < COME_MAX && !stop.load(Ordering::Relaxed) {
        let mut fds = [PollFd::new(listener, PollFlags::IN)];
        let _woken = poll(&mut fds, limit.as_ref());
        if let Ok((socket, peer)) = listener.accept()
            && peer.ip() == from
        {
            return Some(socket);
        }
    }
    None
}
