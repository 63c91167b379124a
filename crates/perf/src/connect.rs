//! Connections made and ended one after another: all objects of both sides with each RDMA
//! connection, and a TCP connection with one round trip beside it, which is what MPA's start-up
//! takes (RFC 5044 §7.1). What a process makes once, its contexts and listeners, is not timed.

use crate::error::PerfError;
use crate::measure::{Goal, Progress, Timed, time_rounds, warm_up};
use crate::plan::{TestOperation, TestPlan};
use crate::side::NAP;
use outboard_verbs::{
    Access, CmChannel, CmEventKind, ConnectError, ConnectParams, ConnectRequest, Context, Cq,
    Listener, Mr, Pd, Qp, QpConfig, SharedRegion,
};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a connection may take, and how long a server waits for the first.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a server waits for the next.
const QUIET_MAX: Duration = Duration::from_secs(1);
/// Connections that wait to be accepted.
const BACKLOG: usize = 128;
/// Connections that have not been ended yet.
const VISITORS_MAX: usize = 1024;
/// Completions that the objects of one connection have room for.
const COMPLETIONS: usize = 16;

/// The client's side.
#[derive(Debug)]
pub(crate) struct Connector {
    peer: SocketAddr,
    plan: TestPlan,
    context: Context,
}

impl Connector {
    /// Connects to `peer` repeatedly.
    pub(crate) fn new(peer: SocketAddr, plan: &TestPlan) -> Result<Self, PerfError> {
        Ok(Self { peer, plan: plan.clone(), context: Context::open()? })
    }

    pub(crate) fn warm_up(&self) -> Result<(), PerfError> {
        warm_up(|| self.round())
    }

    pub(crate) fn run(&self, goal: Goal, progress: &Progress) -> Result<Timed, PerfError> {
        time_rounds(goal, progress, || self.round())
    }

    fn round(&self) -> Result<(), PerfError> {
        if self.plan.test.operation() == TestOperation::TcpConnect {
            return self.round_of_tcp().map_err(PerfError::system("a TCP connection failed"));
        }
        let objects = Objects::new(&self.context, &self.plan)?;
        objects.qp.connect(self.peer, &params(&self.plan))?;
        Ok(())
    }

    fn round_of_tcp(&self) -> io::Result<()> {
        let mut socket = TcpStream::connect_timeout(&self.peer, CONNECT_MAX)?;
        socket.set_nodelay(true)?;
        socket.write_all(&[0])?;
        socket.read_exact(&mut [0])
    }
}

fn params(plan: &TestPlan) -> ConnectParams {
    ConnectParams { crc: plan.crc, timeout: CONNECT_MAX, ..ConnectParams::default() }
}

/// What a program makes for a connection; the queue pair is ended first.
#[derive(Debug)]
struct Objects {
    qp: Qp,
    _mr: Mr,
    _cq: Cq,
    _pd: Pd,
}

impl Objects {
    fn new(context: &Context, plan: &TestPlan) -> Result<Self, PerfError> {
        let pd = context.alloc_pd();
        let mr = pd.register(SharedRegion::zeroed(plan.size)?, Access::LOCAL_WRITE)?;
        let cq = context.create_cq(COMPLETIONS);
        let config = QpConfig {
            send_depth: COMPLETIONS / 2,
            recv_depth: COMPLETIONS / 2,
            ..QpConfig::new(&cq)
        };
        Ok(Self { qp: pd.create_qp(config)?, _mr: mr, _cq: cq, _pd: pd })
    }
}

/// The server's side, before it has a thread.
#[derive(Debug)]
pub(crate) struct ConnectionServer {
    plan: TestPlan,
    /// No other client is served.
    from: IpAddr,
    listener: TestListener,
}

#[derive(Debug)]
enum TestListener {
    Rdma { context: Context, channel: CmChannel, _listener: Listener },
    Tcp(TcpListener),
}

impl ConnectionServer {
    /// Opens a port for one client, and returns its number.
    pub(crate) fn open(
        address: SocketAddr,
        from: IpAddr,
        plan: &TestPlan,
    ) -> Result<(Self, u16), PerfError> {
        let (listener, port) = if plan.test.operation() == TestOperation::TcpConnect {
            TestListener::tcp(address)
                .map_err(PerfError::system("cannot open a TCP port for the test"))?
        } else {
            TestListener::rdma(address)?
        };
        Ok((Self { plan: plan.clone(), from, listener }, port))
    }

    /// Takes connections until none has come for a while.
    pub(crate) fn serve(&self, stop: &AtomicBool) {
        match &self.listener {
            TestListener::Rdma { context, channel, .. } => self.serve_rdma(context, channel, stop),
            TestListener::Tcp(listener) => self.serve_tcp(listener, stop),
        }
    }

    fn serve_rdma(&self, context: &Context, channel: &CmChannel, stop: &AtomicBool) {
        let mut visitors = HashMap::new();
        let mut patience = Instant::now() + CONNECT_MAX;
        while Instant::now() < patience && !stop.load(Ordering::Relaxed) {
            let Some(event) = channel.next(Some(NAP)) else { continue };
            patience = Instant::now() + QUIET_MAX;
            match event.kind {
                CmEventKind::ConnectRequest(request)
                    if request.peer_addr().ip() == self.from && visitors.len() < VISITORS_MAX =>
                {
                    if let Ok(objects) = self.accept(context, request, channel) {
                        visitors.insert(objects.qp.number(), objects);
                    }
                }
                CmEventKind::Disconnected => drop(visitors.remove(&event.qp)),
                _ => {}
            }
        }
    }

    fn accept(
        &self,
        context: &Context,
        request: ConnectRequest,
        channel: &CmChannel,
    ) -> Result<Objects, PerfError> {
        let objects = Objects::new(context, &self.plan)?;
        request.accept_on(&objects.qp, &params(&self.plan), channel).map_err(ConnectError::from)?;
        Ok(objects)
    }

    fn serve_tcp(&self, listener: &TcpListener, stop: &AtomicBool) {
        let mut patience = Instant::now() + CONNECT_MAX;
        while Instant::now() < patience && !stop.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((socket, peer)) if peer.ip() == self.from => {
                    patience = Instant::now() + QUIET_MAX;
                    // One that has gone already needs no answer.
                    let _gone = answer(socket);
                }
                Err(error) if !is_passing(&error) => return,
                _ => {}
            }
        }
    }
}

impl TestListener {
    fn rdma(address: SocketAddr) -> Result<(Self, u16), PerfError> {
        let context = Context::open()?;
        let channel = context.create_cm_channel()?;
        let listener = context.listen_on(address, BACKLOG, &channel)?;
        let port = listener.local_addr().port();
        Ok((Self::Rdma { context, channel, _listener: listener }, port))
    }

    /// A socket whose `accept` blocks, but not for ever.
    fn tcp(address: SocketAddr) -> io::Result<(Self, u16)> {
        let listener = TcpListener::bind(address)?;
        set_socket_timeout(&listener, Timeout::Recv, Some(NAP))?;
        let port = listener.local_addr()?.port();
        Ok((Self::Tcp(listener), port))
    }
}

/// No client came in time, or a signal did.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn answer(mut socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(CONNECT_MAX))?;
    socket.read_exact(&mut [0])?;
    socket.write_all(&[0])
}

/// Starts a thread that computes for as long as the process lives, as a target's program may
/// while its memory is read.
///
/// # Errors
/// [`PerfError::System`] when there can be no thread.
pub fn compute() -> Result<(), PerfError> {
    let work = || {
        let mut value = 1_u64;
        loop {
            value =
                std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005) ^ value >> 9);
        }
    };
    std::thread::Builder::new()
        .name("outboard-load".into())
        .spawn(work)
        .map(drop)
        .map_err(PerfError::system("cannot start a thread that computes"))
}
