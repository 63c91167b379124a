//! Whole casts by relays whose connections are queues, in many orders, with nodes that die.

mod world;

use super::*;
use crate::schedule::{NodeRole, ScheduleKind, Situation};
use proptest::prelude::*;
use std::num::NonZeroU32;
use world::{Event, NodeClaims, OUTSIDE, World};

fn kinds() -> impl Strategy<Value = ScheduleKind> {
    let arity = NonZeroU32::new(3).expect("three");
    prop_oneof![
        Just(ScheduleKind::BinomialPipeline),
        Just(ScheduleKind::TwoTree),
        Just(ScheduleKind::Chain),
        Just(ScheduleKind::Tree { arity }),
        Just(ScheduleKind::PaperTree { arity }),
        Just(ScheduleKind::Star),
    ]
}

proptest! {
    #[test]
    fn every_node_gets_every_chunk_once(
        kind in kinds(), nodes in 2_u32..20, chunks in 0_u32..40, slots in 3_u32..9, seed: u64,
    ) {
        let mut world = World::new(kind, nodes, chunks, slots, seed);
        world.start();
        while world.step() {}
        world.check();
        prop_assert_eq!(world.sent.len() as u64, u64::from(nodes - 1) * u64::from(chunks));
        prop_assert!(world.sent.values().all(|times| *times == 1));
    }

    #[test]
    fn deaths_do_not_stop_the_others(
        kind in kinds(), nodes in 3_u32..16, chunks in 1_u32..40, slots in 3_u32..9, seed: u64,
        deaths in prop::collection::vec((1_u32..16, 0_usize..200), 1..4),
    ) {
        let mut world = World::new(kind, nodes, chunks, slots, seed);
        world.start();
        for (dead, steps) in deaths {
            let _all = (0..steps).all(|_| world.step());
            world.kill(dead % (nodes - 1) + 1, kind);
        }
        while world.step() {}
        world.check();
    }
}

proptest! {
    #[test]
    fn new_schedules_send_nothing_twice(
        kind in kinds(), nodes in 2_u32..16, chunks in 1_u32..40, slots in 3_u32..9, seed: u64,
        schedules in prop::collection::vec((kinds(), 0_usize..200), 1..5),
    ) {
        let mut world = World::new(kind, nodes, chunks, slots, seed);
        world.start();
        for (kind, steps) in schedules {
            let _all = (0..steps).all(|_| world.step());
            world.replan(kind);
        }
        while world.step() {}
        world.check();
        prop_assert_eq!(world.sent.len() as u64, u64::from(nodes - 1) * u64::from(chunks));
        prop_assert!(world.sent.values().all(|times| *times == 1), "{:?}", world.sent);
    }
}

/// What a relay asks now: of which node, which chunk, into which slot.
fn asks(relay: &mut Relay) -> Vec<(u32, u32, u32)> {
    let actions = std::iter::from_fn(|| relay.next_action());
    let asked = actions.filter_map(|action| match action {
        Action::Tell { to, chunk, want: ChunkWant::Into { slot } } => Some((to, chunk, slot)),
        _ => None,
    });
    asked.collect()
}

#[test]
fn what_may_be_under_way_is_asked_of_no_other_node_before_that_is_known() {
    let schedule = |kind, role| {
        let mut situation = Situation::fresh(4, 2);
        situation.nodes[1].role = role;
        Schedule::new(kind, situation).expect("a schedule")
    };
    let before = schedule(ScheduleKind::Chain, NodeRole::Relay);
    let after = schedule(ScheduleKind::Star, NodeRole::Relay);
    let replanned = || {
        let mut relay = Relay::new(2, &before, 8);
        let asked = asks(&mut relay);
        assert!(asked.iter().map(|ask| (ask.0, ask.1)).eq([(1, 0), (1, 1)]), "{asked:?}");
        relay.replan(&after);
        assert_eq!(asks(&mut relay), [], "of the source, what the relay may have sent");
        (relay, asked[0].2, asked[1].2)
    };
    let (mut relay, first, second) = replanned();
    relay.arrived(1, 0, first).expect("it was under way");
    relay.dropped(1, second).expect("taken back");
    assert!(asks(&mut relay).iter().map(|ask| (ask.0, ask.1)).eq([(0, 1)]));
    // A relay does not wait for a node that is gone or slow.
    let (mut relay, ..) = replanned();
    relay.lost(1);
    assert_eq!(asks(&mut relay).len(), 2);
    let mut relay = Relay::new(2, &before, 8);
    relay.replan(&schedule(ScheduleKind::Star, NodeRole::Leaf));
    assert!(asks(&mut relay).iter().filter(|ask| ask.0 == 0).count() == 2);
}

#[test]
fn in_the_papers_tree_a_relay_has_everything_first() {
    let kind = ScheduleKind::PaperTree { arity: NonZeroU32::new(2).expect("two") };
    let schedule = Schedule::new(kind, Situation::fresh(4, 3)).expect("a schedule");
    let child = schedule.outbox(1).receivers().next().expect("node 1 relays");
    let mut relay = Relay::new(1, &schedule, 8);
    (0..3).for_each(|chunk| {
        relay.wanted(child, chunk, ChunkWant::Into { slot: chunk }).expect("room");
    });
    for chunk in 0..3 {
        let asked = std::iter::from_fn(|| relay.next_action()).find_map(|action| match action {
            Action::Tell { to, chunk: its, want: ChunkWant::Into { slot } } if its == chunk => {
                Some((to, slot))
            }
            Action::Send { .. } => panic!("{action:?} before all is here"),
            _ => None,
        });
        let (from, slot) = asked.expect("asked for in order");
        relay.arrived(from, chunk, slot).expect("asked");
        relay.verified(chunk, slot);
        assert!(relay.owes().is_empty());
        relay.kept(chunk, slot, true);
    }
    let mut actions = std::iter::from_fn(|| relay.next_action());
    assert!(actions.any(|action| matches!(action, Action::Send { chunk: 0, .. })));
    assert!(!relay.owes().is_empty());
}

/// For some nodes, what they claim, and what of it is there.
fn some_claims() -> impl Strategy<Value = NodeClaims> {
    let set = || prop::collection::vec(1_u32..40, 0..60);
    let claims = (set(), set()).prop_map(|(claimed, missing)| {
        let here: ChunkSet = claimed.iter().copied().filter(|c| !missing.contains(c)).collect();
        (claimed.into_iter().collect(), here)
    });
    prop::collection::btree_map(1_u32..16, claims, 0..16)
}

proptest! {
    #[test]
    fn what_nodes_find_by_themselves_is_not_sent_to_them(
        kind in kinds(), nodes in 2_u32..16, chunks in 1_u32..40, slots in 3_u32..9, seed: u64,
        claims in some_claims(),
    ) {
        let mut world = World::new(kind, nodes, chunks, slots, seed);
        world = world.with_claims(slots, claims.clone());
        world.start();
        while world.step() {}
        world.check();
        for node in 1..nodes {
            let here = claims.get(&node).map(|(_, here)| here.clone()).unwrap_or_default();
            for chunk in 0..chunks {
                let times = world.sent.get(&(node, chunk)).copied().unwrap_or(0);
                prop_assert_eq!(times, u32::from(!here.contains(chunk)), "{} to {}", chunk, node);
            }
        }
    }

    #[test]
    fn deaths_do_not_stop_relays_that_find_chunks_themselves(
        kind in kinds(), nodes in 3_u32..16, chunks in 1_u32..40, slots in 3_u32..9, seed: u64,
        deaths in prop::collection::vec((1_u32..16, 0_usize..200), 1..4), claims in some_claims(),
    ) {
        let mut world = World::new(kind, nodes, chunks, slots, seed).with_claims(slots, claims);
        world.start();
        for (dead, steps) in deaths {
            let _all = (0..steps).all(|_| world.step());
            world.kill(dead % (nodes - 1) + 1, kind);
        }
        while world.step() {}
        world.check();
    }
}

proptest! {
    #[test]
    fn demands_do_not_stop_the_others(
        kind in kinds(), nodes in 2_u32..16, chunks in 1_u32..60, slots in 4_u32..9, seed: u64,
        demands in prop::collection::vec((1_u32..16, 0_u32..60, any::<bool>(), 0_usize..60), 1..20),
        death in prop::option::of(1_u32..16), claims in prop::option::of(some_claims()),
    ) {
        let mut world = World::new(kind, nodes, chunks, slots, seed);
        if let Some(claims) = claims {
            world = world.with_claims(slots, claims);
        }
        world.start();
        for (index, (node, chunk, is_of_source, steps)) in demands.into_iter().enumerate() {
            let from = if is_of_source { DemandFrom::Source } else { DemandFrom::Upstream };
            let node = node % (nodes - 1) + 1;
            world.push(OUTSIDE, node, Event::Demanded { chunk: chunk % chunks, from });
            let _all = (0..steps).all(|_| world.step());
            if let Some(dead) = death.filter(|_| index == 5 && nodes > 2) {
                world.kill(dead % (nodes - 1) + 1, kind);
            }
        }
        while world.step() {}
        world.check();
    }
}

/// How many chunks a node held when a chunk came that it had demanded at the start.
fn held_before_demanded(kind: ScheduleKind, (node, chunk): (u32, u32)) -> u64 {
    let mut world = World::new(kind, 9, 400, 8, 7);
    world.start();
    let from = DemandFrom::Upstream;
    world.push(OUTSIDE, node, Event::Demanded { chunk, from });
    while world.step() {
        let held = world.relay(node).expect("there").held();
        if held.contains(chunk) {
            return held.len();
        }
    }
    panic!("it never came");
}

#[test]
fn a_demanded_chunk_comes_out_of_turn() {
    for kind in [ScheduleKind::BinomialPipeline, ScheduleKind::TwoTree, ScheduleKind::Chain] {
        let held = held_before_demanded(kind, (8, 399));
        assert!(held < 60, "{kind}: {held}");
    }
}

#[test]
fn what_many_demand_the_source_sends_few() {
    let mut world = World::new(ScheduleKind::BinomialPipeline, 16, 200, 16, 3);
    world.start();
    for node in 1..16 {
        world.push(OUTSIDE, node, Event::Demanded { chunk: 150, from: DemandFrom::Upstream });
    }
    while world.step() {}
    world.check();
    // Each of the fifteen was sent it once, or twice where the schedule came first.
    let sent: u32 = (1..16).filter_map(|to| world.sent.get(&(to, 150))).sum();
    assert!((15..=20).contains(&sent), "{sent}");
}

#[test]
fn a_demand_goes_to_nodes_that_are_nearer_to_the_root() {
    let situation = Situation::fresh(23, 5);
    for kind in [ScheduleKind::BinomialPipeline, ScheduleKind::TwoTree, ScheduleKind::Chain] {
        let schedule = Schedule::new(kind, situation.clone()).expect("a schedule");
        for node in 1..23 {
            let mut path = vec![node];
            while let Some(next) = schedule.upstream(path[path.len() - 1]) {
                assert!(schedule.peers(path[path.len() - 1]).contains(&next) || next == 0);
                path.push(next);
                assert!(path.len() <= 23, "{kind}: {path:?}");
            }
            assert_eq!(path.last(), Some(&0), "{kind}: {path:?}");
        }
    }
}

#[test]
fn what_was_not_asked_is_a_fault() {
    let kind = ScheduleKind::Chain;
    let mut world = World::new(kind, 3, 4, 3, 1);
    world.start();
    let relay = world.relay(1).expect("there");
    for (from, chunk, slot) in [(2, 0, 0), (0, 3, 0), (0, 0, 1), (0, 0, 99), (0, 99, 0)] {
        let fault = relay.arrived(from, chunk, slot).expect_err("not asked");
        assert_eq!(fault, RelayFault::Unasked { chunk, slot });
    }
    let fault = relay.wanted(2, 4, ChunkWant::Into { slot: 0 }).expect_err("no such chunk");
    assert_eq!(fault, RelayFault::NoSuchChunk { chunk: 4, chunks: 4 });
}

/// Goes on without the source, with neighbours that are connected, until nothing moves.
fn without_source(world: &mut World) {
    world.relays[0] = None;
    world.queues.retain(|(from, to), _| *from != 0 && *to != 0);
    let nodes = u32::try_from(world.relays.len()).expect("few");
    for node in 1..nodes {
        if let Some(relay) = world.relay(node) {
            relay.lost(0);
            relay.leave_schedule();
        }
        world.act(node);
    }
    loop {
        let moved = world.step();
        if !moved && !tell_holdings(world, nodes) {
            return;
        }
    }
}

/// Every node tells its neighbours what it holds; whether any lacks anything that a neighbour has.
fn tell_holdings(world: &mut World, nodes: u32) -> bool {
    let mut lacks = false;
    for node in 1..nodes {
        let Some(held) = world.relay(node).map(|relay| relay.held().clone()) else { continue };
        for other in [node - 1, node + 1].into_iter().filter(|other| (1..nodes).contains(other)) {
            let chunks = world.chunks;
            let Some(relay) = world.relay(other) else { continue };
            lacks |= relay.held().missing(chunks).iter().any(|chunk| held.contains(chunk));
            relay.peer_holds(node, held.clone());
            world.act(other);
        }
    }
    lacks
}

proptest! {
    #[test]
    fn without_the_source_all_get_what_any_holds(
        kind in kinds(), nodes in 3_u32..12, chunks in 1_u32..40, slots in 3_u32..9, seed: u64,
        steps in 0_usize..2000,
    ) {
        let mut world = World::new(kind, nodes, chunks, slots, seed);
        world.start();
        let _all = (0..steps).all(|_| world.step());
        let mut there = ChunkSet::empty();
        without_source(&mut world);
        world.relays.iter().flatten().for_each(|relay| there.unite(relay.held()));
        for relay in world.relays.iter().flatten() {
            prop_assert_eq!(relay.held(), &there);
        }
    }
}
