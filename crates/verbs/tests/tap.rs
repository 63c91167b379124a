//! A tap sees both directions of a connection, whole, and what it sees is what the peer's tap sees.

use outboard_verbs::tap::{Tap, TappedStream};
use outboard_verbs::{Access, ConnectParams, Context, QpConfig, SendOp, SendRequest};
use outboard_verbs::{SgList, SharedRegion};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One stream as a tap saw it.
#[derive(Debug, Default, Clone)]
struct Seen {
    dialed: bool,
    sent: Vec<u8>,
    received: Vec<u8>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Keeper(Mutex<HashMap<u64, Seen>>);

impl Keeper {
    fn with(&self, stream: u64, change: impl FnOnce(&mut Seen)) {
        change(self.0.lock().unwrap().entry(stream).or_default());
    }

    fn only(&self) -> Seen {
        let seen = self.0.lock().unwrap();
        assert_eq!(seen.len(), 1);
        seen.values().next().unwrap().clone()
    }
}

impl Tap for Keeper {
    fn opened(&self, stream: u64, ends: TappedStream) {
        assert_ne!(ends.local, ends.peer);
        self.with(stream, |seen| seen.dialed = ends.dialed);
    }

    fn sent(&self, stream: u64, bytes: &[u8]) {
        self.with(stream, |seen| seen.sent.extend_from_slice(bytes));
    }

    fn received(&self, stream: u64, bytes: &[u8]) {
        self.with(stream, |seen| seen.received.extend_from_slice(bytes));
    }

    fn closed(&self, stream: u64) {
        self.with(stream, |seen| seen.closed = true);
    }
}

#[test]
fn both_ends_see_the_same_bytes() {
    let (ours, theirs) = (Arc::new(Keeper::default()), Arc::new(Keeper::default()));
    let client = Context::open_tapped(ours.clone()).unwrap();
    let server = Context::open_tapped(theirs.clone()).unwrap();
    let pd = server.alloc_pd();
    let target = pd.register(SharedRegion::zeroed(300_000).unwrap(), Access::REMOTE_WRITE).unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), 4).unwrap();
    let passive = pd.create_qp(QpConfig::new(&server.create_cq(8))).unwrap();
    let cq = client.create_cq(8);
    let active = client.alloc_pd().create_qp(QpConfig::new(&cq)).unwrap();
    let events = client.create_cm_channel().unwrap();
    let params = ConnectParams::default();
    active.start_connect(listener.local_addr(), &params, &events).unwrap();
    listener.next_request(None).unwrap().accept(&passive, &params).unwrap();
    events.next(None);

    let data: Vec<u8> = (0..300_000u32).map(|i| (i * 7 % 251) as u8).collect();
    let write = SendOp::Write { to: target.remote(0) };
    active.post_send(SendRequest::new(1, write, SgList::copied(&data))).unwrap();
    cq.wait(&mut Vec::new(), 1, None).unwrap();
    let arrived = || target.memory().snapshot(0..data.len()).is_ok_and(|bytes| bytes == data);
    assert!(server.wait_until(None, arrived));
    drop((active, passive));
    let over = |keeper: &Keeper| keeper.0.lock().unwrap().values().all(|seen| seen.closed);
    assert!(client.wait_until(Some(Duration::from_secs(5)), || over(&ours) && over(&theirs)));

    let (ours, theirs) = (ours.only(), theirs.only());
    assert!(ours.dialed && !theirs.dialed);
    assert!(ours.sent.starts_with(b"MPA ID Req Frame"));
    assert!(ours.received.starts_with(b"MPA ID Rep Frame"));
    assert!(theirs.received.len() > 300_000);
    // The side that closed first has not read the other's last bytes.
    assert!(ours.sent.starts_with(&theirs.received));
    assert!(theirs.sent.starts_with(&ours.received));
}
