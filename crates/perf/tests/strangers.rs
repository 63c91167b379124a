//! A server and misbehaving clients: it refuses them, frees their places, and continues to serve.

use outboard_perf::proto::{ClientMessage, ServerMessage, decode, encode};
use outboard_perf::{Goal, Progress, Server, Test, TestPlan, Wait, run};
use outboard_verbs::{
    ConnectError, ConnectParams, Connected, Context, Qp, QpConfig, QpState, Remote, SendOp,
    SendRequest, SgList, Stag,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A server in a thread of this process; stopped and joined on drop.
struct Running {
    address: SocketAddr,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start() -> Self {
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (address, (stopped, stop)) = (server.local_addr(), UnixStream::pair().unwrap());
        let thread = std::thread::spawn(move || server.run(&stopped).unwrap());
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    /// An honest test still works.
    fn check_serves(&self) {
        let plan = plan(Test::SendLat);
        let goal = Goal::Messages(10);
        let report = run(self.address, &plan, goal, &Progress::default()).unwrap();
        assert_eq!(report.iters, 10);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

fn plan(test: Test) -> TestPlan {
    TestPlan { wait: Wait::Block, ..TestPlan::new(test) }
}

struct Client {
    context: Context,
    qp: Qp,
}

impl Client {
    fn new() -> Self {
        let context = Context::open().unwrap();
        let cq = context.create_cq(16);
        let qp = context.alloc_pd().create_qp(QpConfig::new(&cq)).unwrap();
        Self { context, qp }
    }

    fn connect(&self, to: &Running, data: Vec<u8>) -> Result<Connected, ConnectError> {
        let params = ConnectParams { private_data: data, ..ConnectParams::default() };
        self.qp.connect(to.address, &params)
    }
}

fn test(plan: &TestPlan, session: u64) -> Vec<u8> {
    let (plan, stag) = (plan.clone(), 1);
    encode(&ClientMessage::Test { plan, session, stag })
}

/// Why the server refuses this.
fn refusal(server: &Running, data: Vec<u8>) -> String {
    match Client::new().connect(server, data) {
        Err(ConnectError::Rejected { private_data, .. }) => match decode(&private_data) {
            Ok(ServerMessage::Refused { why }) => why,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn questions_that_make_no_sense() {
    let server = Running::start();
    assert!(refusal(&server, Vec::new()).contains("not understood"));
    assert!(refusal(&server, vec![0xff; 508]).contains("not understood"));
    assert!(refusal(&server, br#"{"v":9,"body":"cpu"}"#.to_vec()).contains("version 9"));
    let mut huge = plan(Test::SendBw);
    huge.size = usize::MAX;
    assert!(refusal(&server, test(&huge, 1)).contains("--size"));
    let mut none = plan(Test::SendBw);
    none.qps = 0;
    assert!(refusal(&server, test(&none, 1)).contains("--qps"));
    let tcp = plan(Test::TcpBw);
    assert!(refusal(&server, test(&tcp, 1)).contains("tcp-bw runs on a port of its own"));
    server.check_serves();
}

#[test]
fn a_peer_that_does_not_speak_mpa() {
    let server = Running::start();
    let mut stranger = TcpStream::connect(server.address).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let limit = Some(Duration::from_secs(5));
    stranger.set_read_timeout(limit).unwrap();
    // Closed, in order or not.
    assert!(matches!(stranger.read(&mut [0; 16]), Ok(0) | Err(_)));
    server.check_serves();
}

#[test]
fn no_more_tests_than_there_is_room_for() {
    let server = Running::start();
    let mut two = plan(Test::WriteBw);
    two.qps = 2;
    // Tests of which the second connection never comes.
    let halves: Vec<Client> = (0..16).map(|_| Client::new()).collect();
    for (session, half) in halves.iter().enumerate() {
        half.connect(&server, test(&two, session as u64)).unwrap();
    }
    assert!(refusal(&server, test(&two, 99)).contains("16 tests run already"));
    // The second connection of a test that is known has its place.
    let second = Client::new();
    second.connect(&server, test(&two, 3)).unwrap();
    drop(halves);
    let start = Instant::now();
    while let Err(error) =
        run(server.address, &plan(Test::ReadLat), Goal::Messages(1), &Progress::default())
    {
        assert!(error.to_string().contains("already"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(5), "the places never come back");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn memory_beyond_the_test_is_out_of_reach() {
    let server = Running::start();
    let mut small = plan(Test::WriteBw);
    small.size = 100;
    for (stag_change, offset) in [(0, 93), (0x100, 0)] {
        let client = Client::new();
        let connected = client.connect(&server, test(&small, 7)).unwrap();
        let Ok(ServerMessage::Ready { stag }) = decode(&connected.private_data) else {
            panic!("{connected:?}");
        };
        let stag = Stag(stag ^ stag_change);
        let to = Remote { stag, offset };
        let write = SendRequest::new(1, SendOp::Write { to }, SgList::copied(&[1; 8]));
        client.qp.post_send(write).unwrap();
        let limit = Some(Duration::from_secs(5));
        let ended = || client.qp.state() != QpState::Rts;
        assert!(client.context.wait_until(limit, ended));
    }
    server.check_serves();
}
