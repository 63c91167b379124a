//! The example `counter_node`, a service over the common loop: its peers, their ends, its end.

#[expect(dead_code, reason = "another test uses the rest")]
#[path = "node/setting.rs"]
mod setting;

use outboard_cluster::codec::Protocol;
use outboard_cluster::hub::{Exposed, Hub, HubEvent, PeerId};
use outboard_cluster::pool::ConnectionPool;
use outboard_secure::Revoked;
use outboard_testkit::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use setting::{Client, Node, name, places};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PROTOCOL: Protocol = Protocol::version(3);

/// A client whose connection comes back.
struct Counting {
    hub: Hub,
    pool: ConnectionPool,
    peer: Option<PeerId>,
    count_at: Option<Exposed>,
    told: Vec<u64>,
    read: Vec<u64>,
    lost: usize,
}

impl Counting {
    fn new(node: &Node, client: Client) -> Self {
        let host = node.host.clone();
        let dial = move |_, limit: Duration| {
            let dialled = client.0.dial(&host, &name("counter"), Instant::now() + limit);
            dialled.map_err(|error| error.to_string())
        };
        let pool = ConnectionPool::new(1, Arc::new(dial), Instant::now()).expect("a pool");
        let hub = Hub::new().expect("a hub");
        let (told, read) = (Vec::new(), Vec::new());
        Self { hub, pool, peer: None, count_at: None, told, read, lost: 0 }
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        eventually(what, || {
            let now = Instant::now();
            self.pool.dial(&self.hub, now);
            while let Some(dialled) = self.pool.poll(now) {
                let admitted = dialled.result.map_err(|why| println!("{why}")).ok();
                self.peer = admitted.map(|admitted| self.hub.enroll(admitted).expect("enrolled"));
            }
            let mut events = Vec::new();
            self.hub.turn(&mut events).expect("a turn");
            events.into_iter().for_each(|event| self.handle(event, now));
            done(self)
        });
    }

    fn handle(&mut self, event: HubEvent, now: Instant) {
        match event {
            HubEvent::Message { bytes, .. } if self.count_at.is_none() => {
                self.count_at = Some(PROTOCOL.decode(&bytes).expect("where the count is"));
            }
            HubEvent::Message { bytes, .. } => {
                self.told.push(PROTOCOL.decode(&bytes).expect("a count"));
            }
            HubEvent::Read { bytes, .. } => {
                self.read.push(u64::from_ne_bytes(bytes[..].try_into().expect("eight bytes")));
            }
            HubEvent::Gone { .. } => {
                (self.peer, self.count_at) = (None, None);
                self.lost += 1;
                self.pool.lost(0, now);
            }
            other => panic!("{other:?}"),
        }
    }

    fn is_there(&self) -> bool {
        self.peer.is_some() && self.count_at.is_some()
    }

    fn add(&mut self, number: u64) -> u64 {
        self.until("it is there", Self::is_there);
        let (peer, already) = (self.peer.expect("there"), self.told.len());
        self.hub.send(peer, &PROTOCOL.encode(&number)).expect("sent");
        self.until("an answer", |one| one.told.len() > already);
        self.told[already]
    }
}

#[test]
fn a_service_of_a_page_counts_and_what_it_counted_outlives_it() {
    let node = Node::of("counter_node", "");
    let mut one = Counting::new(&node, node.client_of("counter"));
    let mut other = Counting::new(&node, node.client_of("counter"));
    assert_eq!((one.add(5), other.add(2)), (5, 7));
    // One-sided: the service takes no part.
    let at = one.count_at.expect("there").range(0, 8).expect("inside");
    one.hub.read(one.peer.expect("there"), at, 8, 1).expect("posted");
    one.until("what is there", |one| one.read == [7]);
    let report = node.service()["report"].clone();
    assert_eq!((&report["sessions_now"], &report["count"]), (&2.into(), &7.into()), "{report}");
    kill_process(process_of(&report), Signal::KILL).expect("there");
    one.until("it is lost", |one| one.lost == 1);
    assert_eq!(one.add(1), 8, "the memory is kept, and the connection comes back");
}

fn process_of(report: &Value) -> Pid {
    let pid = report["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    pid.and_then(Pid::from_raw).expect("a process")
}

#[test]
fn a_service_without_descriptors_refuses_sessions_and_keeps_those_that_it_has() {
    const FILES: u32 = 40;
    let node = Node::with_files("counter_node", FILES);
    let lost = || node.service()["report"]["sessions_without_descriptor"].as_u64().unwrap_or(0);
    let mut all = Vec::new();
    while lost() == 0 {
        assert!(all.len() < FILES as usize, "sessions without descriptors");
        all.push(Counting::new(&node, node.client_of("counter")));
        let one = all.last_mut().expect("just added");
        one.until("it is there, or refused", |one| one.is_there() || lost() > 0);
    }
    let mut late = all.pop().expect("the one that was refused");
    assert_eq!(all[0].add(1), 1, "it is not disturbed");
    all.truncate(1);
    assert_eq!((late.add(1), all[0].add(1)), (2, 3), "there is room again");
    assert_eq!(node.service()["restarts"], 0);
}

#[test]
fn peers_that_are_revoked_or_say_nonsense_go_and_others_stay() {
    let node = Node::of("counter_node", "");
    let client = node.client_of("counter");
    let revoked = client.0.node();
    let mut good = Counting::new(&node, node.client_of("counter"));
    let mut bad = Counting::new(&node, client);
    let mut strange = Counting::new(&node, node.client_of("counter"));
    assert_eq!((good.add(1), bad.add(1), strange.add(1)), (1, 2, 3));
    strange.hub.send(strange.peer.expect("there"), &[9, 9, 9]).expect("sent");
    strange.until("it is sent away", |one| one.lost == 1);
    let end = || node.service()["report"]["latest_end"].as_str().unwrap_or_default().to_owned();
    assert!(end().contains("speaks version 9 of the protocol, this side 3"), "{}", end());
    Revoked::append(&places(&node.directory).revoked, revoked, "lost").expect("written");
    bad.until("it is sent away", |one| one.lost == 1);
    eventually("it is said", || end().contains("it is revoked"));
    assert_eq!(good.add(1), 4);
}
