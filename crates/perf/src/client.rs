//! The client's side: connects, warms up, measures, and asks the server for its CPU time.

use crate::connect::Connector;
use crate::error::PerfError;
use crate::latency::Latency;
use crate::measure::{Goal, Progress, Timed, cpu_time};
use crate::plan::{TestKind, TestOperation, TestPlan};
use crate::proto::{ClientMessage, ServerMessage, decode, encode};
use crate::report::Report;
use crate::side::TestSide;
use crate::stream::Stream;
use crate::tcp::Tcp;
use outboard_verbs::{ConnectError, ConnectParams, Connected, Context, Qp, QpConfig, Stag};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// A test in any of its forms.
enum Client {
    Latency(Latency),
    Stream(Stream),
    Tcp(Tcp),
    Connect(Connector),
}

/// Runs one test against a server and returns its report. Pin the thread first, if at all.
///
/// # Errors
/// [`PerfError`]: parameters that no test can have, a server that does not exist, refuses, leaves
/// or stops answering; [`PerfError::Interrupted`] when there is nothing to report.
pub fn run(
    peer: SocketAddr,
    plan: &TestPlan,
    goal: Goal,
    progress: &Progress,
) -> Result<Report, PerfError> {
    plan.check()?;
    goal.check()?;
    let mut client = Client::connect(peer, plan)?;
    client.warm_up()?;
    if progress.is_interrupted() {
        return Err(PerfError::Interrupted);
    }
    let server_before = ask_cpu(peer)?;
    let before = cpu_time();
    let timed = client.run(goal, progress)?;
    if timed.messages == 0 {
        return Err(PerfError::Interrupted);
    }
    let cpu_client = cpu_time().saturating_sub(before);
    let cpu_server = ask_cpu(peer)?.saturating_sub(server_before);
    drop(client);
    Ok(Report::new(plan, &timed, cpu_client, cpu_server))
}

impl Client {
    fn connect(peer: SocketAddr, plan: &TestPlan) -> Result<Self, PerfError> {
        if plan.test.has_port() {
            let port = SocketAddr::new(peer.ip(), ask_port(peer, plan)?);
            return match plan.test.operation() {
                TestOperation::Tcp => Tcp::connect(port, plan).map(Self::Tcp),
                _ => Connector::new(port, plan).map(Self::Connect),
            };
        }
        let side = connect(peer, plan)?;
        Ok(match plan.test.kind() {
            TestKind::Latency => Self::Latency(Latency::new(side)),
            TestKind::Bandwidth | TestKind::Rate => Self::Stream(Stream::new(side)),
        })
    }

    fn warm_up(&mut self) -> Result<(), PerfError> {
        match self {
            Self::Latency(latency) => latency.warm_up(),
            Self::Stream(stream) => stream.warm_up(),
            Self::Tcp(tcp) => tcp.warm_up(),
            Self::Connect(connector) => connector.warm_up(),
        }
    }

    fn run(&mut self, goal: Goal, progress: &Progress) -> Result<Timed, PerfError> {
        match self {
            Self::Latency(latency) => latency.run(goal, progress),
            Self::Stream(stream) => stream.run(goal, progress),
            Self::Tcp(tcp) => tcp.run(goal, progress),
            Self::Connect(connector) => connector.run(goal, progress),
        }
    }
}

/// Connects every queue pair of a test.
fn connect(peer: SocketAddr, plan: &TestPlan) -> Result<TestSide, PerfError> {
    let context = Context::open()?;
    let mut side = TestSide::new(&context, plan, Arc::default())?;
    let ask = ClientMessage::Test {
        plan: plan.clone(),
        session: RandomState::new().hash_one(std::process::id()),
        stag: side.stag().0,
    };
    for _ in 0..plan.qps {
        let qp = side.create_qp()?;
        let connected = connect_qp(&qp, peer, &ask, plan.crc)?;
        match decode(&connected.private_data) {
            Ok(ServerMessage::Ready { stag }) if connected.crc == plan.crc => {
                side.add_lane(qp, Stag(stag));
            }
            _ => return Err(PerfError::NotAServer { peer }),
        }
    }
    Ok(side)
}

fn connect_qp(
    qp: &Qp,
    peer: SocketAddr,
    ask: &ClientMessage,
    crc: bool,
) -> Result<Connected, PerfError> {
    let params = ConnectParams {
        private_data: encode(ask),
        crc,
        timeout: CONNECT_MAX,
        ..ConnectParams::default()
    };
    qp.connect(peer, &params).map_err(|error| why_not(peer, error))
}

/// The server's rejection has a reason.
fn why_not(peer: SocketAddr, error: ConnectError) -> PerfError {
    let ConnectError::Rejected { private_data, .. } = &error else {
        return error.into();
    };
    match decode(private_data) {
        Ok(ServerMessage::Refused { why }) => PerfError::Refused { peer, why },
        _ => PerfError::NotAServer { peer },
    }
}

/// Sends a question over another NIC, so that the test's is not disturbed.
fn ask(peer: SocketAddr, ask: &ClientMessage) -> Result<ServerMessage, PerfError> {
    let context = Context::open()?;
    let qp = context.alloc_pd().create_qp(QpConfig::new(&context.create_cq(1)))?;
    let params = ConnectParams {
        private_data: encode(ask),
        timeout: CONNECT_MAX,
        ..ConnectParams::default()
    };
    let answer = match qp.connect(peer, &params) {
        Err(ConnectError::Rejected { private_data, .. }) => decode(&private_data),
        Err(error) => return Err(error.into()),
        Ok(_) => return Err(PerfError::NotAServer { peer }),
    };
    match answer {
        Ok(ServerMessage::Refused { why }) => Err(PerfError::Refused { peer, why }),
        Ok(answer) => Ok(answer),
        Err(_) => Err(PerfError::NotAServer { peer }),
    }
}

fn ask_cpu(peer: SocketAddr) -> Result<Duration, PerfError> {
    match ask(peer, &ClientMessage::Cpu)? {
        ServerMessage::Cpu { nanos } => Ok(Duration::from_nanos(nanos)),
        _ => Err(PerfError::NotAServer { peer }),
    }
}

fn ask_port(peer: SocketAddr, plan: &TestPlan) -> Result<u16, PerfError> {
    match ask(peer, &ClientMessage::Port { plan: plan.clone() })? {
        ServerMessage::Port { port } => Ok(port),
        _ => Err(PerfError::NotAServer { peer }),
    }
}
