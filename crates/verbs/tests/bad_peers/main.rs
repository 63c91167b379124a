//! Peers that lie, stall and vanish, over real sockets. Each gets what the RFCs say: the exact
//! Terminate, or a closed connection during start-up. This side's requests are flushed, memory next
//! to the offered memory stays untouched, descriptors and threads are released, and another
//! connection of the same context carries traffic throughout.
//!
//! Modules in reading order: `raw` (the peer), `scene` (what it attacks), `rules` (the table of
//! broken rules).

#[path = "../common/mod.rs"]
mod common;
mod raw;
mod rules;
mod scene;

use common::{at, ends};
use outboard_testkit::eventually;
use outboard_verbs::{Access, OwnedBuf, QpState, RnrPolicy, SendOp, SgList, Status};
use raw::{CRC, FRAME_LEN, Raw, fpdu, read_request, request, terminate, untagged};
use rules::{Expect, RULES, Rule};
use scene::{RECEIVES, Victim, on_stage};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a peer may take for its Request.
const START_UP: Duration = Duration::from_secs(5);
/// A busy machine may take longer for anything than peers have for their Requests, but not each
/// time.
const TRIES: usize = 3;

#[test]
fn broken_rules_get_the_right_terminates() {
    on_stage(|stage| {
        let mut wrong = Vec::new();
        for rule in RULES {
            let (mut peer, victim) = Victim::new(stage).connect(rule.markers);
            let bytes = (rule.bytes)(&victim);
            peer.send(&bytes);
            let said = peer.rest();
            drop(peer);
            let answer = check_answer(rule, &bytes, &said, victim.told());
            wrong.extend(answer.err().map(|error| format!("{}: {error}", rule.name)));
            victim.is_flushed(rule.name);
            assert!(victim.canaries_live(), "{}: memory nearby has changed", rule.name);
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

/// Read Responses may come before the Terminate, nothing may come after it.
fn check_answer(
    rule: &Rule,
    sent: &[u8],
    said: &[u8],
    told: Option<(u8, u8, u8)>,
) -> Result<(), String> {
    let mut all = raw::cut(said);
    let Expect::Terminate { code, quotes } = rule.expect else {
        return if said.is_empty() { Ok(()) } else { Err(format!("said {all:x?}")) };
    };
    let quoted = quotes.header(sent);
    let quoted = quoted.as_ref().map(|(header, len)| (header.as_slice(), *len));
    let expected = terminate(code, quoted, &quotes.read(sent));
    let last = all.pop().unwrap_or_default();
    if last != expected {
        return Err(format!("said {last:x?}\nexpected {expected:x?}"));
    }
    if all.iter().any(|fpdu| fpdu[3] != 0x42) || told != Some(code) {
        return Err(format!("told the program {told:?}, and the peer before {all:x?}"));
    }
    Ok(())
}

#[test]
fn a_connection_without_a_request_frame_is_closed_at_once() {
    let frame = |change: fn(&mut Vec<u8>)| {
        let mut frame = request(CRC);
        change(&mut frame);
        frame
    };
    let cases: [(&str, Vec<u8>); 8] = [
        ("another protocol", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("one wrong byte", b"M!".to_vec()),
        ("a Reply", frame(|f| f[8..11].copy_from_slice(b"Rep"))),
        ("revision 0", frame(|f| f[17] = 0)),
        ("revision 3", frame(|f| f[17] = 3)),
        ("private data of 513 bytes", frame(|f| f[18..20].copy_from_slice(&[2, 1]))),
        ("an FPDU before the Reply", frame(|f| f.extend(fpdu(&untagged(3, 0, 1, 0))))),
        ("a Request sent twice", frame(|f| f.extend(request(CRC)))),
    ];
    on_stage(|stage| {
        let victim = Victim::new(stage);
        for (name, bytes) in cases {
            let is_closed_at_once = || {
                let before = Raw::connect(victim.address());
                let mut peer = Raw::connect(victim.address());
                peer.send(&bytes);
                assert_eq!(peer.rest(), b"", "{name}");
                // The time of one that came sooner is not over yet.
                before.is_open()
            };
            assert!((0..TRIES).any(|_| is_closed_at_once()), "{name}: closed late");
            assert!(victim.no_request(), "{name}");
        }
        // A Request that is cut off reaches no program.
        for len in [1, 19] {
            let mut peer = Raw::connect(victim.address());
            peer.send(&request(CRC)[..len]);
            peer.0.shutdown(std::net::Shutdown::Write).expect("half closed");
            assert_eq!(peer.rest(), b"");
        }
        assert!(victim.no_request());
    });
}

#[test]
fn a_start_up_that_dawdles_is_closed_after_five_seconds() {
    on_stage(|stage| {
        let victim = Victim::new(stage);
        std::thread::scope(|scope| {
            let silent = scope.spawn(|| {
                let began = Instant::now();
                let mut peer = Raw::connect(victim.address());
                (peer.rest(), began.elapsed())
            });
            // Its Request takes much longer than there is time.
            let slow = scope.spawn(|| {
                let mut peer = Raw::connect(victim.address());
                let sent = request(CRC).into_iter().take_while(|byte| {
                    peer.send(&[*byte]);
                    sleep(Duration::from_secs(1));
                    peer.is_open()
                });
                (sent.count(), peer.rest())
            });
            let (said, took) = silent.join().expect("a result");
            assert!(said.is_empty() && took >= START_UP, "silent: {said:x?} {took:?}");
            let (sent, said) = slow.join().expect("a result");
            assert!(said.is_empty() && sent < FRAME_LEN - 1, "slow: {sent} {said:x?}");
        });
        assert!(victim.no_request());
    });
}

#[test]
fn one_byte_at_a_time_is_slow_but_legal() {
    on_stage(|stage| {
        let victim = Victim::new(stage);
        let mut peer = Raw::connect(victim.address());
        for byte in request(CRC) {
            peer.send(&[byte]);
            sleep(Duration::from_millis(10));
        }
        let victim = victim.accept(false);
        peer.reply();
        let message = [untagged(3, 0, 1, 0), b"slow".to_vec()].concat();
        for byte in fpdu(&message) {
            peer.send(&[byte]);
            sleep(Duration::from_millis(10));
        }
        let done = victim.side.success();
        assert_eq!((done.wr_id, common::bytes(done)), (0, b"slow".to_vec()));
    });
}

#[test]
fn a_reset_in_the_middle_of_anything_flushes_everything() {
    on_stage(|stage| {
        let message = fpdu(&[untagged(3, 0, 1, 0), vec![0xAB; 64]].concat());
        for cut in [0, 1, 20, message.len() - 1] {
            let (mut peer, victim) = Victim::new(stage).connect(false);
            peer.send(&message[..cut]);
            sleep(Duration::from_millis(20));
            let socket = socket2::SockRef::from(&peer.0);
            socket.set_linger(Some(Duration::ZERO)).expect("an option");
            drop(peer);
            victim.is_flushed(&format!("reset after {cut} bytes"));
            assert!(victim.canaries_live());
        }
    });
}

/// It Reads 16 MiB, twice, and receives none of it: what TCP does not hold stays in registered
/// memory.
#[test]
fn a_peer_that_stops_reading_costs_no_memory() {
    const LARGE: usize = 16 << 20;
    on_stage(|stage| {
        let (mut peer, victim) = Victim::new(stage).connect(false);
        let source = victim.side.register(LARGE, Access::REMOTE_READ);
        source.memory().copy_in(0, &vec![1; LARGE]).expect("room");
        let before = common::resident_kib();
        for msn in 1..=2 {
            let size = u32::try_from(LARGE).expect("small");
            let read = read_request(source.stag().0, 0, size);
            peer.send(&fpdu(&[untagged(1, 1, msn, 0), read].concat()));
        }
        for wr_id in 0..20 {
            victim.side.post(wr_id, common::SEND, OwnedBuf::zeroed(1 << 16));
        }
        sleep(Duration::from_millis(500));
        let grown = common::resident_kib().saturating_sub(before);
        assert!(grown < 8 << 10, "{grown} KiB for a peer that does not read");
        assert_eq!(victim.side.qp.state(), QpState::Rts, "being slow is no fault");
        drop(peer);
        victim.is_flushed("a peer that stopped reading");
    });
}

#[test]
fn a_message_without_a_receive_is_terminated_when_the_stall_limit_is_over() {
    on_stage(|stage| {
        let limit = Duration::from_millis(300);
        let victim = Victim::with(stage, 0, RnrPolicy::Stall(limit));
        let (mut peer, victim) = victim.connect(false);
        let header = untagged(3, 0, 1, 0);
        let began = Instant::now();
        peer.send(&fpdu(&header));
        let expected = terminate((1, 2, 2), Some((&header, 18)), &[]);
        assert_eq!(peer.rest(), expected);
        assert!(began.elapsed() >= limit);
        drop(peer);
        victim.is_flushed("stalled");
    });
}

/// Our Read is under way when the peer says that it cannot serve it.
#[test]
fn a_terminate_of_the_peers_ends_our_read_with_its_reason() {
    on_stage(|stage| {
        let (mut peer, victim) = Victim::new(stage).connect(false);
        peer.send(&fpdu(&tagged_nothing()));
        let from = at(&victim.offered, 0);
        // The peer does not check the STag; any will do.
        victim.side.post(9, SendOp::Read { from }, OwnedBuf::zeroed(16));
        victim.side.post(10, common::SEND, SgList::copied(b"behind"));
        let mut asked = [0; 52];
        std::io::Read::read_exact(&mut peer.0, &mut asked).expect("a Read Request");
        let told = terminate((0, 1, 2), Some((&asked[2..20], 46)), &asked[20..48]);
        peer.send(&told);
        peer.rest();
        drop(peer);
        let done = victim.side.take(RECEIVES + 2);
        let read = done.iter().find(|done| done.wr_id == 9).expect("the Read's end");
        assert_eq!(read.status, Status::RemoteAccess, "{:?}", ends(&done));
        eventually("it is over", || victim.side.qp.state() == QpState::Error);
    });
}

/// A Write of no bytes opens a connection and does nothing.
fn tagged_nothing() -> Vec<u8> {
    raw::tagged(0, 0, 0)
}

#[test]
fn many_silent_peers_do_not_keep_others_out() {
    on_stage(|stage| {
        let is_served_beside_them = || {
            let victim = Victim::new(stage);
            let strangers: Vec<Raw> = (0..3).map(|_| Raw::connect(victim.address())).collect();
            let (mut peer, victim) = victim.connect(false);
            let in_time = strangers.iter().all(Raw::is_open);
            peer.send(&fpdu(&[untagged(3, 0, 1, 0), b"hi".to_vec()].concat()));
            assert_eq!(victim.side.success().wr_id, 0);
            in_time
        };
        assert!((0..TRIES).any(|_| is_served_beside_them()), "it waits for their end");
    });
}
