//! What a session costs: bandwidth of Writes and latency of small Sends on loopback, in clear as
//! other machines get it (CRCs), trusted (as adopted, CRCs) and encrypted.
//!
//! `cargo bench -p outboard-verbs --bench session`; both ends run in this process, so that the
//! figures only compare.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/adopt/session.rs"]
mod session;

use common::{SEND, Side, at};
use outboard_secure::Fabric;
use outboard_verbs::{Access, ConnectParams, OwnedBuf, Role, SendOp, SendRequest, SgList};
use std::thread;
use std::time::{Duration, Instant};

const WRITE_LEN: usize = 1 << 20;
const WRITES: u32 = 2_000;
const PINGS: u32 = 20_000;

fn main() {
    // The attacker in between is for tests.
    let _tests_only = (session::between, session::Meddler::Alter, session::Handle::set);
    println!("{:10} {:>12} {:>16}", "session", "Writes GB/s", "Send RTT/2 µs");
    for (name, fabric) in
        [("none", None), ("trusted", Some(Fabric::Trusted)), ("encrypted", Some(Fabric::Untrusted))]
    {
        let (a, b) = pair(fabric);
        let bandwidth = bandwidth(&a, &b);
        println!("{name:10} {bandwidth:12.2} {:16.1}", latency(&a, &b).as_secs_f64() * 1e6);
    }
}

fn pair(fabric: Option<Fabric>) -> (Side, Side) {
    let Some(fabric) = fabric else { return common::pair() };
    let (a, b) = (Side::new(), Side::new());
    let ends = session::secured_pair(fabric);
    let adopt = |side: &Side, end, role| {
        let channel = side.context.create_cm_channel().expect("a channel");
        side.qp.adopt(end, role, &ConnectParams::default(), &channel).expect("adopted");
    };
    thread::scope(|scope| {
        scope.spawn(|| adopt(&a, ends.0, Role::Initiator));
        adopt(&b, ends.1, Role::Responder);
    });
    (a, b)
}

/// In 10⁹ bytes a second.
fn bandwidth(a: &Side, b: &Side) -> f64 {
    let target = b.register(WRITE_LEN, Access::REMOTE_WRITE | Access::REMOTE_READ);
    let start = Instant::now();
    let mut free = vec![OwnedBuf::zeroed(WRITE_LEN), OwnedBuf::zeroed(WRITE_LEN)];
    let (mut posted, mut done) = (0, Vec::new());
    while posted < WRITES || free.len() < 2 {
        while posted < WRITES
            && let Some(buffer) = free.pop()
        {
            let op = SendOp::Write { to: at(&target, 0) };
            let request = SendRequest::new(u64::from(posted), op, buffer.into());
            a.qp.post_send(request).expect("room");
            posted += 1;
        }
        a.cq.wait(&mut done, 1, None).expect("no overflow");
        free.extend(done.drain(..).map(|one| one.local.into_owned().expect("a buffer")));
    }
    // What was written is there once a Read behind it is answered.
    a.carry_out(SendOp::Read { from: at(&target, 0) }, OwnedBuf::zeroed(1));
    f64::from(WRITES) * WRITE_LEN as f64 / start.elapsed().as_secs_f64() / 1e9
}

/// Half a round trip of 64 bytes, both ends asleep while they wait.
fn latency(a: &Side, b: &Side) -> Duration {
    thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..PINGS {
                b.receive(u64::from(id), 64);
                if id == 0 {
                    continue;
                }
                pong(b);
            }
            pong(b);
        });
        thread::sleep(Duration::from_millis(20));
        let start = Instant::now();
        for id in 0..PINGS {
            a.receive(u64::from(id), 64);
            pong_first(a);
        }
        start.elapsed() / (2 * PINGS)
    })
}

/// Answers the next message.
fn pong(side: &Side) {
    arrival(side);
    side.post(u64::MAX, SEND, SgList::copied(&[0; 64]));
}

fn pong_first(side: &Side) {
    side.post(u64::MAX, SEND, SgList::copied(&[0; 64]));
    arrival(side);
}

/// Waits for a message; completions of Sends are ignored.
fn arrival(side: &Side) {
    while side.success().wr_id == u64::MAX {}
}
