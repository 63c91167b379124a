//! A region whose gate is closed for a while: neither Writes, placed by the kernel or copied, nor
//! atomic operations nor Read Responses change a byte of it meanwhile, and none is lost.

mod common;

use common::{Side, at, connect_with, pattern};
use outboard_verbs::{
    Access, ConnectParams, FpduPolicy, Mr, OwnedBuf, SendOp, SharedRegion, Status,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: u64 = 100;
/// Long enough that most of it is received in place.
const PAYLOAD: usize = 300_000;
/// Where Writes go; the words are in front of them.
const WRITTEN: usize = 4096;
/// Where Read Responses go.
const READ: usize = WRITTEN + PAYLOAD + 4096;
const REGION: usize = READ + PAYLOAD + 4096;

/// Closes the gate again and again until it is told to stop; each time moves what peers have added
/// to one word over to another. Returns how often something had changed while the gate was open.
fn close_often(region: &SharedRegion, is_over: &AtomicBool) -> usize {
    let mut changes = 0;
    let mut last = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let closed = region.close_gate();
        let before = region.snapshot(0..REGION).expect("inside");
        let since = Instant::now();
        while since.elapsed() < Duration::from_micros(200) {
            thread::yield_now();
        }
        assert!(region.snapshot(0..REGION).expect("inside") == before, "behind a closed gate");
        let [added, sum] = [0, 8].map(|word| closed.load_u64(word).expect("inside"));
        closed.store_u64(8, sum + added).expect("inside");
        closed.copy_in(0, &[0; 8]).expect("inside");
        drop(closed);
        changes += usize::from(last[..] != before[WRITTEN..]);
        last = before[WRITTEN..].to_vec();
        thread::sleep(Duration::from_millis(1));
    }
    changes
}

fn round(number: u64, (a, b): (&Side, &Side), (source, target): (&Mr, &Mr)) {
    let data = pattern(usize::try_from(number).expect("small"), PAYLOAD);
    source.memory().copy_in(0, &data).expect("inside");
    let local = source.segment(0..PAYLOAD).expect("inside");
    a.post(1, SendOp::Write { to: at(target, WRITTEN as u64) }, local);
    let add = SendOp::FetchAdd { at: at(target, 0), add: 1, mask: 0 };
    a.post(2, add, OwnedBuf::zeroed(8));
    assert!(a.take(2).iter().all(|done| done.status == Status::Success));
    // Of one connection, the second is carried out when the first is placed.
    let place = target.segment(READ..READ + PAYLOAD).expect("inside");
    b.carry_out(SendOp::Read { from: at(source, 0) }, place);
    for at in [WRITTEN, READ] {
        assert!(target.memory().snapshot(at..at + PAYLOAD).expect("inside") == data, "{at}");
    }
}

#[test]
fn nothing_of_a_peer_s_passes_a_closed_gate() {
    for crc in [false, true] {
        let (a, b) = (Side::new(), Side::new());
        let params =
            ConnectParams { crc, fpdu: FpduPolicy::Max(64_768), ..ConnectParams::default() };
        connect_with(&a, &b, &params, &params);
        let region = SharedRegion::zeroed(REGION).expect("memory").with_gate();
        let target = b.pd.register(region.clone(), Access::REMOTE).expect("an STag");
        let source = a.register(PAYLOAD, Access::REMOTE_READ);
        let is_over = AtomicBool::new(false);
        thread::scope(|threads| {
            let closer = threads.spawn(|| close_often(&region, &is_over));
            for number in 0..ROUNDS {
                round(number, (&a, &b), (&source, &target));
                if closer.is_finished() {
                    break;
                }
            }
            is_over.store(true, Ordering::Relaxed);
            let changes = closer.join().expect("nothing changes behind a closed gate");
            assert!(changes > 10, "{changes} changes seen: peers hardly wrote");
        });
        let words = [0, 8].map(|word| region.load_u64(word).expect("inside"));
        assert_eq!(words[0] + words[1], ROUNDS, "operations that were lost or done twice");
    }
}
