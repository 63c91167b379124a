//! Ten thousand connections at once: a client in this process and a server in another, because
//! both ends together would need more descriptors than a process may have. Every connection
//! carries a message each way and a Write, then all of them are idle and their memory is measured.

mod common;

use common::{ANY, SEND, address, connected, resident_kib, take};
use outboard_testkit::PATIENCE;
use outboard_verbs::{
    Access, CmChannel, ConnectParams, Context, Cq, Listener, Operation, OwnedBuf, Pd, Qp, QpConfig,
    RecvRequest, Remote, SendOp, SendRequest, SgList, SharedRegion, Stag, Status,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 10_000;
/// Connections that are being made at a time.
const AT_ONCE: usize = 250;
/// The memory that an idle connection may take, its queue pair included, in KiB.
const IDLE_KIB: usize = 24;
/// The argument that makes this program the server.
const SERVER: &str = "OUTBOARD_CONNECTIONS_SERVER";

#[test]
fn ten_thousand_connections() {
    raise_descriptor_limit();
    if std::env::var_os(SERVER).is_some() {
        return serve();
    }
    let mut server = Server::start();
    let began = Instant::now();
    let client = Client::connect(&server.line("listening on "));
    let established = began.elapsed();
    client.talk();
    let used = began.elapsed();
    let ours = client.idle_kib_each();
    let theirs: f64 = server.ask("check", "KiB each ").parse().expect("a number");
    println!(
        "{CONNECTIONS} connections made in {established:.1?}, used in {:.1?}; idle, each costs \
         {ours:.1} KiB at the client and {theirs:.1} KiB at the server",
        used - established
    );
    drop(client);
    println!("gone after {:.1?}", began.elapsed());
    assert!(ours <= IDLE_KIB as f64 && theirs <= IDLE_KIB as f64, "too much memory");
    assert!(server.child.wait().expect("an end").success());
}

fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let enough = limit.maximum.is_none_or(|most| most > CONNECTIONS as u64 + 100);
    assert!(enough, "{CONNECTIONS} connections need that many descriptors; see ulimit -Hn");
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("a soft limit may be raised");
}

/// The other process, ended with this one.
struct Server {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Server {
    fn start() -> Self {
        let this = std::env::current_exe().expect("a path");
        let mut command = Command::new(this);
        command.args(["ten_thousand_connections", "--exact", "--nocapture"]).env(SERVER, "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program again");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, lines }
    }

    /// The rest of the next line that begins like this.
    fn line(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).expect("text") > 0, "the server has ended");
            if let Some((_, rest)) = line.split_once(start) {
                return rest.trim().into();
            }
        }
    }

    fn ask(&mut self, question: &str, answer: &str) -> String {
        let stdin = self.child.stdin.as_mut().expect("piped");
        writeln!(stdin, "{question}").expect("the server listens");
        self.line(answer)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails when it has ended by itself.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Ten thousand queue pairs on one completion queue.
struct Client {
    cq: Cq,
    qps: Vec<Qp>,
    stag: Stag,
    before_kib: usize,
    _context: Context,
}

impl Client {
    fn connect(server: &str) -> Self {
        let context = Context::open().expect("a context");
        let (pd, cq) = (context.alloc_pd(), context.create_cq(4 * CONNECTIONS));
        let events = context.create_cm_channel().expect("a channel");
        let before_kib = resident_kib();
        let mut client = Self { cq, qps: Vec::new(), stag: Stag(0), before_kib, _context: context };
        let server = address(server);
        while client.qps.len() < CONNECTIONS {
            client.connect_some(&pd, &events, server);
        }
        client
    }

    fn connect_some(&mut self, pd: &Pd, events: &CmChannel, server: std::net::SocketAddr) {
        let params = ConnectParams { timeout: PATIENCE, ..ConnectParams::default() };
        for _ in 0..AT_ONCE {
            let qp = pd.create_qp(QpConfig::new(&self.cq)).expect("a queue pair");
            receive(&qp);
            qp.start_connect(server, &params, events).expect("an attempt");
            self.qps.push(qp);
        }
        for _ in 0..AT_ONCE {
            let told = connected(events).private_data;
            self.stag = Stag(u32::from_be_bytes(*told.first_chunk().expect("an STag")));
        }
    }

    /// Each writes its number to its own place and sends it; the answers are awaited.
    fn talk(&self) {
        for (number, qp) in self.qps.iter().enumerate() {
            let number = number as u64;
            let to = Remote { stag: self.stag, offset: 8 * number };
            let bytes = || SgList::copied(&number.to_ne_bytes());
            let write = SendRequest::new(0, SendOp::Write { to }, bytes());
            qp.post_send_batch(&mut vec![write, SendRequest::new(1, SEND, bytes())]).expect("room");
        }
        let done = take(&self.cq, 3 * CONNECTIONS);
        assert!(done.iter().all(|done| done.status == Status::Success));
        let answers = done.iter().filter(|done| done.operation == Operation::Receive).count();
        assert_eq!(answers, CONNECTIONS);
    }

    fn idle_kib_each(&self) -> f64 {
        std::thread::sleep(Duration::from_millis(200));
        (resident_kib() - self.before_kib) as f64 / CONNECTIONS as f64
    }
}

fn receive(qp: &Qp) {
    let request = RecvRequest { wr_id: 0, local: OwnedBuf::zeroed(16).into() };
    qp.post_recv(request).expect("room");
}

/// The server: accepts and answers every client, then checks what was written.
fn serve() {
    let context = Context::open().expect("a context");
    let (pd, cq) = (context.alloc_pd(), context.create_cq(4 * CONNECTIONS));
    let region = SharedRegion::zeroed(8 * CONNECTIONS).expect("memory");
    let mr = pd.register(region, Access::REMOTE_WRITE).expect("an STag");
    let listener = context.listen(address(ANY), AT_ONCE).expect("a listener");
    println!("\nlistening on {}", listener.local_addr());
    let before = resident_kib();
    let private_data = mr.stag().0.to_be_bytes().to_vec();
    let params = ConnectParams { private_data, ..ConnectParams::default() };
    let qps = accept_all(&listener, &pd, &cq, &params);
    answer_all(&qps, &cq);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a question");
    for number in 0..CONNECTIONS {
        assert_eq!(mr.memory().load_u64(8 * number).expect("aligned"), number as u64);
    }
    println!("\nKiB each {:.2}", (resident_kib() - before) as f64 / CONNECTIONS as f64);
    // The client leaves: every receive that is still posted comes back.
    let flushed = take(&cq, CONNECTIONS);
    assert!(flushed.iter().all(|done| done.status == Status::Flushed));
}

fn accept_all(listener: &Listener, pd: &Pd, cq: &Cq, params: &ConnectParams) -> HashMap<u32, Qp> {
    let mut qps = HashMap::new();
    while qps.len() < CONNECTIONS {
        let qp = pd.create_qp(QpConfig::new(cq)).expect("a queue pair");
        receive(&qp);
        let request = listener.next_request(Some(PATIENCE)).expect("everybody comes");
        request.accept(&qp, params).expect("accepted");
        qps.insert(qp.number(), qp);
    }
    qps
}

fn answer_all(qps: &HashMap<u32, Qp>, cq: &Cq) {
    let mut answered = 0;
    while answered < 2 * CONNECTIONS {
        for done in take(cq, 1) {
            assert_eq!(done.status, Status::Success);
            answered += 1;
            if done.operation == Operation::Receive {
                let qp = &qps[&done.qp];
                receive(qp);
                let answer = SendRequest::new(1, SEND, SgList::copied(b"welcome"));
                qp.post_send(answer).expect("room");
            }
        }
    }
}
