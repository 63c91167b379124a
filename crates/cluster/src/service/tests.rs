//! The loop without a node: what wakes it, and how sessions end.

use super::*;
use crate::arrivals::STARTING_MAX;
use crate::hub::{Admitted, Hub};
use crate::sessions::session;
use outboard_testkit::eventually;
use outboard_verbs::Role;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Notes what it is told, and ends the sessions that it is asked to end.
#[derive(Debug)]
struct Noting {
    waker: Waker,
    peers: Vec<(PeerId, NodeId, u32)>,
    gone: Vec<PeerId>,
    ends_all: bool,
    turns: u32,
    heard: usize,
    spin: SpinMode,
    revoked: Vec<NodeId>,
    has_ended: bool,
}

/// What it reports.
#[derive(Serialize)]
struct Noted {
    turns: u32,
}

impl Service for Noting {
    type Tag = ();
    type Report = Noted;

    fn arrived(
        &mut self,
        _hub: &mut Hub<()>,
        peer: PeerId,
        permit: &Permit,
    ) -> Result<(), ServiceError> {
        self.peers.push((peer, permit.node(), permit.slots()));
        Ok(())
    }

    fn handle(&mut self, _hub: &mut Hub<()>, _event: HubEvent<()>) -> Result<(), ServiceError> {
        self.heard += 1;
        Ok(())
    }

    fn spin(&self) -> SpinMode {
        self.spin
    }

    fn revoked(&mut self, node: NodeId) {
        self.revoked.push(node);
    }

    fn ended(&mut self) -> Result<(), ServiceError> {
        self.has_ended = true;
        Ok(())
    }

    fn gone(&mut self, _hub: &mut Hub<()>, peer: PeerId) {
        self.gone.push(peer);
    }

    fn turn(
        &mut self,
        _hub: &mut Hub<()>,
        _now: Instant,
    ) -> Result<Vec<(PeerId, ServiceError)>, ServiceError> {
        self.waker.clear();
        self.turns += 1;
        let ended = self.peers.iter().filter(|_| self.ends_all);
        Ok(ended.map(|(peer, ..)| (*peer, "it is asked to go".into())).collect())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.waker.as_fd())
    }

    fn report(&self) -> Noted {
        Noted { turns: self.turns }
    }
}

fn looping() -> ServiceLoop<Noting> {
    let waker = Waker::new().expect("a waker");
    let (peers, gone) = (Vec::new(), Vec::new());
    let service = Noting {
        waker,
        peers,
        gone,
        ends_all: false,
        turns: 0,
        heard: 0,
        spin: SpinMode::Never,
        revoked: Vec::new(),
        has_ended: false,
    };
    ServiceLoop::new(HubOptions::default(), service).expect("a loop")
}

fn is_ready(looping: &ServiceLoop<Noting>, limit_s: i64) -> bool {
    let limit = Timespec { tv_sec: limit_s, tv_nsec: 0 };
    poll(&mut [PollFd::new(looping, PollFlags::IN)], Some(&limit)).expect("poll") > 0
}

fn turn(looping: &mut ServiceLoop<Noting>) {
    looping.turn(Instant::now()).expect("a turn");
}

/// A client whose session the loop has.
fn connected(looping: &mut ServiceLoop<Noting>) -> (Hub, Admitted, NodeId) {
    let client: Hub = Hub::new().expect("a hub");
    let (there, here) = session("echo");
    let node = here.peer();
    looping.admit(here, Permit::outside_a_node(node, 3)).expect("it begins");
    let admitted = client
        .prepare()
        .expect("an admission")
        .connect(|qp, params, channel| qp.adopt(there, Role::Initiator, params, channel));
    while looping.service.peers.is_empty() {
        assert!(is_ready(looping, 120), "it arrives");
        turn(looping);
    }
    (client, admitted.expect("connected"), node)
}

#[test]
fn sessions_that_say_nothing_give_way_to_later_ones() {
    crate::node::raise_open_files();
    let mut looping = looping();
    let silent = |_| {
        let (there, here) = session("echo");
        let permit = Permit::outside_a_node(here.peer(), 3);
        looping.admit(here, permit).expect("it begins");
        there
    };
    let silent: Vec<_> = (0..STARTING_MAX + 3).map(silent).collect();
    let (_client, _admitted, _node) = connected(&mut looping);
    assert_eq!(looping.report()["sessions_gave_way"], 4);
    drop(silent);
}

#[test]
fn a_services_own_descriptor_wakes_its_loop_until_it_is_cleared() {
    let mut looping = looping();
    turn(&mut looping);
    assert!(!is_ready(&looping, 0));
    looping.service.waker.wake();
    assert!(is_ready(&looping, 0));
    turn(&mut looping);
    assert!(!is_ready(&looping, 0));
    let report = looping.report();
    assert_eq!((&report["turns"], &report["sessions_now"]), (&2.into(), &0.into()), "{report}");
}

#[test]
fn a_service_ends_sessions_in_its_turn_and_turns_once_more() {
    let mut looping = looping();
    let (_client, _admitted, node) = connected(&mut looping);
    let (peer, ..) = looping.service.peers[0];
    assert_eq!(looping.service.peers, [(peer, node, 3)]);
    looping.service.ends_all = true;
    turn(&mut looping);
    assert!(is_ready(&looping, 0), "what the peer had may be of use to others");
    turn(&mut looping);
    assert_eq!(looping.service.gone, [peer], "once");
    let report = looping.report();
    assert_eq!((&report["sessions_now"], &report["sessions_ended"]), (&0.into(), &1.into()));
    assert_eq!(report["latest_end"], format!("node {node}: it is asked to go"));
}

#[test]
fn a_revoked_identitys_session_ends() {
    let mut looping = looping();
    let (_client, _admitted, node) = connected(&mut looping);
    looping.shut_out(NodeId::of(&[1; 32]));
    assert_eq!(looping.service.gone, []);
    looping.shut_out(node);
    assert_eq!(looping.service.gone, [looping.service.peers[0].0]);
    assert_eq!(looping.service.revoked, [NodeId::of(&[1; 32]), node]);
    assert!(!looping.service.has_ended);
    looping.ended().expect("kept");
    assert!(looping.service.has_ended);
}

#[test]
fn a_loop_that_spins_finds_messages_without_sleeping() {
    let mut looping = looping();
    let (mut client, admitted, _) = connected(&mut looping);
    let server = client.enroll(admitted).expect("enrolled");
    for (mode, begins) in [(SpinMode::Never, false), (SpinMode::Always, true)] {
        looping.service.spin = mode;
        let before = looping.service.heard;
        client.send(server, b"hello").expect("sent");
        if begins {
            eventually("it is found", || looping.spin());
        } else {
            assert!(!looping.spin(), "it does not look");
        }
        eventually("the message", || {
            turn(&mut looping);
            looping.service.heard > before
        });
    }
    // Nothing comes: it stops looking by itself.
    looping.service.spin = SpinMode::Adaptive;
    assert!(!looping.spin(), "messages have not come close together");
}
