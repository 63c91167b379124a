//! The victim of a bad peer: a context with a good connection under constant traffic, and a queue
//! pair with receives, offered memory and canaries around it.

use super::common::{ANY, SEND, Side, address, at, bytes, connect, descriptors, ends};
use super::raw::{CRC, Raw, request};
use outboard_testkit::{PATIENCE, eventually};
use outboard_verbs::{
    Access, AsyncEvent, ConnectParams, Listener, Mr, OwnedBuf, QpState, Refused, RnrPolicy, SendOp,
    SendRequest, SgList, SharedRegion, Status,
};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Receives that a victim has posted, and bytes of each.
pub(crate) const RECEIVES: usize = 3;
pub(crate) const RECEIVE_LEN: usize = 64;
/// Offered memory and the canaries on both sides of it.
pub(crate) const OFFERED: usize = 4096;
const CANARY: usize = 4096;
const CANARY_BYTE: u8 = 0xC5;

/// Tests count the process's descriptors and threads: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs a test beside good traffic and checks that it leaves nothing behind.
pub(crate) fn on_stage(test: impl FnOnce(&Side)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = (descriptors(), engines());
    {
        let (good, client) = (Side::new(), Side::new());
        connect(&client, &good);
        let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| good_traffic(&client, &good, &stop, &rounds));
            let _stop = StopOnDrop(&stop);
            test(&good);
            let seen = rounds.load(Ordering::SeqCst);
            eventually("the good connection still works", || {
                rounds.load(Ordering::SeqCst) > seen + 2
            });
        });
        assert_eq!((client.qp.state(), good.qp.state()), (QpState::Rts, QpState::Rts));
    }
    eventually("descriptors and engines are gone", || {
        descriptors() <= before.0 && engines() <= before.1
    });
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The engine's threads in this process.
fn engines() -> usize {
    let names = std::fs::read_dir("/proc/self/task").expect("procfs");
    let names =
        names.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("outboard")).count()
}

/// Writes, reads back and compares, repeatedly; any fault ends the test.
fn good_traffic(client: &Side, server: &Side, stop: &AtomicBool, rounds: &AtomicU64) {
    let mr = server.register(1 << 16, Access::REMOTE);
    while !stop.load(Ordering::SeqCst) {
        let round = rounds.fetch_add(1, Ordering::SeqCst);
        let data = super::common::pattern(usize::try_from(round % 1000).expect("small"), 1 << 16);
        server.receive(round, 8);
        client.carry_out(SendOp::Write { to: at(&mr, 0) }, SgList::copied(&data));
        let read = SendOp::Read { from: at(&mr, 0) };
        let back = client.carry_out(read, OwnedBuf::zeroed(1 << 16));
        assert!(bytes(back) == data, "the good connection's data");
        client.send(round, &round.to_be_bytes());
        client.success();
        assert_eq!(bytes(server.success()), round.to_be_bytes());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A queue pair of the stage's context, in a domain of its own.
pub(crate) struct Victim {
    pub(crate) side: Side,
    /// Readable, writable and open to atomics, with canaries on both sides.
    pub(crate) offered: Mr,
    pub(crate) readable: Mr,
    pub(crate) writable: Mr,
    /// Of another domain.
    pub(crate) foreign: Mr,
    /// Deregistered.
    pub(crate) stale: u32,
    listener: Listener,
}

impl Victim {
    pub(crate) fn new(stage: &Side) -> Self {
        Self::with(stage, RECEIVES, RnrPolicy::Terminate)
    }

    pub(crate) fn with(stage: &Side, receives: usize, missing: RnrPolicy) -> Self {
        let pd = stage.context.alloc_pd();
        let side = Side::in_domain(stage.context.clone(), pd, |config| {
            config.rnr_policy = missing;
        });
        (0..receives as u64).for_each(|i| side.receive(i, RECEIVE_LEN));
        let region = SharedRegion::zeroed(OFFERED + 2 * CANARY).expect("memory");
        region.copy_in(0, &vec![CANARY_BYTE; OFFERED + 2 * CANARY]).expect("room");
        let inner = CANARY..CANARY + OFFERED;
        let offered = side.pd.register_range(region, inner, 0, Access::REMOTE).expect("an STag");
        let stale = side.register(OFFERED, Access::REMOTE);
        let number = stale.stag().0;
        stale.deregister().expect("registered");
        Self {
            offered,
            readable: side.register(OFFERED, Access::REMOTE_READ),
            writable: side.register(OFFERED, Access::REMOTE_WRITE),
            foreign: stage.register(OFFERED, Access::REMOTE),
            stale: number,
            listener: side.context.listen(address(ANY), 8).expect("a listener"),
            side,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// A peer that has behaved so far: CRCs are on, and markers towards us where asked for.
    pub(crate) fn connect(self, markers: bool) -> (Raw, Self) {
        let mut peer = Raw::connect(self.address());
        peer.send(&request(CRC));
        let victim = self.accept(markers);
        assert_eq!(peer.reply()[16] & 0xE0, CRC | if markers { 0x80 } else { 0 });
        (peer, victim)
    }

    pub(crate) fn accept(self, markers: bool) -> Self {
        let request = self.listener.next_request(Some(PATIENCE)).expect("a request");
        let params = ConnectParams { markers, ird: 2, ..ConnectParams::default() };
        request.accept(&self.side.qp, &params).expect("accepted");
        self
    }

    /// No connection request reached the program.
    pub(crate) fn no_request(&self) -> bool {
        self.listener.next_request(Some(Duration::from_millis(20))).is_none()
    }

    /// Every request of this side has ended, the receives that were not used as flushed.
    pub(crate) fn is_flushed(&self, name: &str) {
        eventually(name, || self.side.qp.state() == QpState::Error);
        let mut done = Vec::new();
        self.side.cq.poll(&mut done, 1000).expect("no overflow");
        let fine =
            |status| matches!(status, Status::Success | Status::Flushed | Status::LocalLength);
        assert!(done.iter().all(|done| fine(done.status)), "{name}: {:?}", ends(&done));
        let receives = done.iter().filter(|done| done.operation.is_receive()).count();
        assert!(receives == RECEIVES || receives == 0, "{name}: {:?}", ends(&done));
        let Refused { error, .. } =
            self.side.qp.post_send(SendRequest::new(0, SEND, SgList::new())).expect_err("over");
        assert_eq!(error, outboard_verbs::PostError::NotConnected, "{name}");
    }

    pub(crate) fn canaries_live(&self) -> bool {
        let all = self.offered.memory().region().snapshot(0..OFFERED + 2 * CANARY).expect("inside");
        all.iter().all(|byte| *byte == CANARY_BYTE)
    }

    /// The fault of the peer's that is reported to the program; `None` for the peer's own
    /// Terminate.
    pub(crate) fn told(&self) -> Option<(u8, u8, u8)> {
        let code = match self.side.context.poll_async_event()? {
            AsyncEvent::PeerFault { qp, code } if qp == self.side.qp.number() => Some(code),
            AsyncEvent::PeerTerminated { qp, .. } if qp == self.side.qp.number() => None,
            other => panic!("not of this queue pair: {other:?}"),
        };
        code.map(|code| (code.layer, code.etype, code.code))
    }
}
