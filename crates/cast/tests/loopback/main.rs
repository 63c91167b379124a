//! Casts over connections on loopback: nodes in threads, a source, trees compared.

mod at_once;
mod detour;
mod lab;
mod late;
mod lazy;
mod many;
#[expect(dead_code, reason = "another test uses the rest")]
#[path = "../../../cluster/tests/support/sessions.rs"]
mod sessions;
mod switches;

use lab::{Lab, Node, ROOT, chunks_left, dial};
use outboard_cast::receive::PublishMode;
use outboard_cast::schedule::ScheduleKind;
use outboard_cast::server::DialNode;
use outboard_cast::source::{CastLimits, CastOutcome, CastProgress, CastRequest, NodeStage, cast};
use outboard_testkit::eventually;
use std::fs;
use std::net::{Shutdown, SocketAddr};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[test]
fn three_nodes_get_a_tree_from_the_source_alone() {
    let lab = Lab::new(3);
    lab.fill(3_000_000);
    let outcome = lab.cast(ScheduleKind::Star);
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..3).for_each(|node| lab.check(node));
}

#[test]
fn relays_pass_on_what_the_source_sends_little_more_than_once() {
    let lab = Lab::new(5);
    lab.fill(6_000_000);
    let outcome = lab.cast(ScheduleKind::BinomialPipeline);
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..5).for_each(|node| lab.check(node));
    let chunks = outcome.stream_len.div_ceil(64 << 10);
    assert!(outcome.sent_chunks < 2 * chunks, "{outcome:?}: {chunks} chunks");
}

#[test]
fn a_destination_outside_of_the_roots_is_refused() {
    let lab = Lab::new(1);
    lab.fill(10);
    for outside in ["/var/castle", "/var/cast/../etc", "/"] {
        let request = lab.request(ScheduleKind::Star, Path::new(outside));
        let outcome = cast(request).expect("a cast");
        let why = outcome.nodes[0].result.clone().expect_err("refused");
        assert!(why.contains("roots"), "{why}");
    }
    let outcome = cast(lab.request(ScheduleKind::Star, Path::new("/var/cast/none")));
    let why = outcome.expect("a cast").nodes[0].result.clone().expect_err("refused");
    assert!(why.contains("make the directory first"), "{why}");
}

/// Waits until a node has begun to receive.
fn has_begun(root: &Path) {
    eventually("a node begins", || fs::read_dir(root).expect("a directory").next().is_some());
}

#[test]
fn a_relay_that_hangs_is_given_up() {
    let lab = Lab::new(5);
    lab.fill(40_000_000);
    let request = lab.request(ScheduleKind::BinomialPipeline, Path::new(ROOT));
    let casting = thread::spawn(move || cast(request));
    has_begun(lab.nodes[1].root.path());
    thread::sleep(Duration::from_millis(20));
    lab.nodes[1].hang.store(true, Ordering::SeqCst);
    let outcome = casting.join().expect("no panic").expect("a cast");
    let why = outcome.nodes[1].result.clone().expect_err("it hangs");
    assert!(why.contains("hangs"), "{why}");
    [0, 2, 3, 4].into_iter().for_each(|node| lab.check(node));
}

#[test]
fn names_that_are_there_are_not_replaced_and_the_reason_is_told() {
    let lab = Lab::new(2);
    lab.fill(1_000_000);
    fs::create_dir(lab.nodes[0].root.path().join("tree")).expect("made");
    let outcome = lab.cast(ScheduleKind::BinomialPipeline);
    let why = outcome.nodes[0].result.clone().expect_err("it is there");
    assert!(why.contains("tree"), "{why}");
    lab.check(1);
}

#[test]
fn a_relay_that_dies_costs_the_others_nothing_but_time() {
    for kind in [ScheduleKind::BinomialPipeline, ScheduleKind::Chain, ScheduleKind::Star] {
        let mut lab = Lab::new(5);
        lab.fill(40_000_000);
        let request = lab.request(kind, Path::new(ROOT));
        let casting = thread::spawn(move || cast(request));
        has_begun(lab.nodes[1].root.path());
        thread::sleep(Duration::from_millis(20));
        lab.nodes[1].stop();
        let outcome = casting.join().expect("no panic").expect("a cast");
        let results: Vec<bool> = outcome.nodes.iter().map(|node| node.result.is_ok()).collect();
        assert_eq!(results, [true, false, true, true, true], "{kind}: {outcome:?}");
        [0, 2, 3, 4].into_iter().for_each(|node| lab.check(node));
    }
}

#[test]
fn nodes_that_do_not_reach_each_other_are_served_by_others() {
    for kind in [ScheduleKind::BinomialPipeline, ScheduleKind::Chain, ScheduleKind::TwoTree] {
        let lab = Lab::new(5);
        lab.fill(6_000_000);
        // Node 1 reaches no other, node 2 all but node 4.
        let addresses: Vec<SocketAddr> = lab.nodes.iter().map(|node| node.address).collect();
        lab.nodes[1].wires.closed.lock().expect("no panic").extend(&addresses);
        lab.nodes[2].wires.closed.lock().expect("no panic").insert(addresses[4]);
        let outcome = lab.cast(kind);
        assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{kind}: {outcome:?}");
        (0..5).for_each(|node| lab.check(node));
    }
}

#[test]
fn connections_that_break_between_living_nodes_cost_none_of_them() {
    for kind in [ScheduleKind::BinomialPipeline, ScheduleKind::Chain] {
        let lab = Lab::new(6);
        lab.fill(40_000_000);
        let request = lab.request(kind, Path::new(ROOT));
        let casting = thread::spawn(move || cast(request));
        has_begun(lab.nodes[2].root.path());
        let mut broken = 0;
        for node in lab.nodes.iter().cycle() {
            if casting.is_finished() || broken > 4 {
                break;
            }
            thread::sleep(Duration::from_millis(10));
            let mut open = node.wires.open.lock().expect("no panic");
            for socket in open.drain(..) {
                broken += usize::from(socket.shutdown(Shutdown::Both).is_ok());
            }
        }
        let outcome = casting.join().expect("no panic").expect("a cast");
        assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{kind}: {outcome:?}");
        (0..6).for_each(|node| lab.check(node));
        assert!(broken > 0, "{kind}: nothing was broken");
    }
}

/// Chunks of 64 KiB in a stream.
fn chunks_of(outcome: &CastOutcome) -> u64 {
    outcome.stream_len.div_ceil(64 << 10)
}

#[test]
fn a_second_cast_sends_what_has_changed_alone() {
    let lab = Lab::new(3);
    lab.fill(6_000_000);
    let tree = lab.source.path().join("tree");
    fs::write(tree.join("other"), vec![7; 1_000_000]).expect("written");
    let first = lab.cast(ScheduleKind::Star);
    assert!(first.nodes.iter().all(|node| node.result == Ok(1)), "{first:?}");
    assert_eq!(first.sent_chunks, 3 * chunks_of(&first));
    fs::write(tree.join("below/short"), b"other").expect("written");
    let mut large = fs::read(tree.join("below/deep/large")).expect("read");
    large[3_000_000] ^= 1;
    fs::write(tree.join("below/deep/large"), large).expect("written");
    let again = |dial: &DialNode| {
        let mut request = lab.request(ScheduleKind::BinomialPipeline, Path::new(ROOT));
        (request.publish, request.dial) = (PublishMode::Replace, Arc::clone(dial));
        cast(request).expect("a cast")
    };
    let second = again(&lab.dial);
    assert!(second.nodes.iter().all(|node| node.result == Ok(1)), "{second:?}");
    (0..3).for_each(|node| lab.check(node));
    // The manifest with the beginning of the data, and the two chunks with changes.
    assert!(second.sent_chunks <= 3 * 3, "{second:?}");
    let third = again(&lab.dial);
    assert!(third.sent_chunks <= 3, "{third:?}");
    (0..3).for_each(|node| lab.check(node));
    let stranger = again(&dial(&lab.key, &Arc::default()));
    assert!(stranger.sent_chunks >= chunks_of(&stranger), "nothing of another's: {stranger:?}");
    (0..3).for_each(|node| lab.check(node));
}

#[test]
fn a_cast_whose_source_is_gone_is_resumed_by_the_next() {
    for kind in [ScheduleKind::Star, ScheduleKind::BinomialPipeline] {
        let wires = Arc::default();
        let mut lab = Lab::new(3);
        lab.dial = dial(&lab.key, &wires);
        lab.fill(40_000_000);
        lab.break_cast(kind, &wires);
        // One node is killed as well, and started anew.
        lab.nodes[1].stop();
        let root = std::mem::replace(&mut lab.nodes[1].root, tempfile::tempdir().expect("made"));
        lab.nodes[1] = Node::start_in(&lab.key, root);
        let left: Vec<u64> = lab.nodes.iter().map(|node| chunks_left(node.root.path())).collect();
        assert!(left.iter().all(|chunks| *chunks > 20), "{left:?}");
        let outcome = lab.cast(kind);
        assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
        (0..3).for_each(|node| lab.check(node));
        if kind == ScheduleKind::Star {
            let missing = 3 * chunks_of(&outcome) - left.iter().sum::<u64>();
            let sent_max = missing + sent_again_max(&outcome);
            assert!(outcome.sent_chunks <= sent_max, "{left:?}: {outcome:?}");
        }
    }
}

/// Chunks that nodes had asked for when another plan was made, at most: they may come twice.
fn sent_again_max(outcome: &CastOutcome) -> u64 {
    32 * outcome.nodes.len() as u64 * u64::from(outcome.plans.saturating_sub(1))
}

#[test]
fn what_a_crash_left_damaged_is_sent_again_and_never_published() {
    let wires = Arc::default();
    let mut lab = Lab::new(2);
    lab.dial = dial(&lab.key, &wires);
    lab.fill(40_000_000);
    lab.break_cast(ScheduleKind::Star, &wires);
    // As after a loss of power: the bitmap was written, the data was not.
    let root = lab.nodes[0].root.path();
    let staging = fs::read_dir(root).expect("read").next().expect("one").expect("a name").path();
    let large = staging.join("tree/tree/below/deep/large");
    fs::write(&large, vec![0; 40_000_000]).expect("written");
    let (held, all) =
        (chunks_left(lab.nodes[0].root.path()), chunks_left(lab.nodes[1].root.path()));
    fs::write(staging.join("held"), [0xff; 77]).expect("written");
    let outcome = lab.cast(ScheduleKind::Star);
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..2).for_each(|node| lab.check(node));
    let sent_max = 2 * chunks_of(&outcome) + sent_again_max(&outcome);
    assert!(outcome.sent_chunks + all <= sent_max, "{outcome:?}");
    assert!(held > 20, "{held}");
}

/// Casts at a limited rate, and reports how far each node is.
fn start_slowly(
    lab: &Lab,
    kind: ScheduleKind,
    rate: u64,
) -> (JoinHandle<CastOutcome>, mpsc::Receiver<CastProgress>) {
    let (sender, progress) = mpsc::sync_channel(1);
    let limits = CastLimits { min_nodes: None, rate: NonZeroU64::new(rate) };
    let request = lab.request(kind, Path::new(ROOT));
    let request = CastRequest { limits, progress: Some(sender), ..request };
    (thread::spawn(move || cast(request).expect("a cast")), progress)
}

fn wait_for(progress: &mpsc::Receiver<CastProgress>, done: impl Fn(&CastProgress) -> bool) {
    eventually("the cast comes so far", || progress.try_iter().any(|now| done(&now)));
}

/// The source is gone for all nodes, as if it had been killed.
fn cut_off_source(lab: &Lab) {
    let addresses = lab.nodes.iter().map(|node| node.address);
    lab.wires.closed.lock().expect("no panic").extend(addresses);
    for socket in lab.wires.open.lock().expect("no panic").drain(..) {
        let _shut = socket.shutdown(Shutdown::Both);
    }
}

#[test]
fn the_source_may_leave_when_every_chunk_is_held_somewhere() {
    let lab = Lab::new(4);
    lab.fill(4_000_000);
    let (casting, progress) = start_slowly(&lab, ScheduleKind::Chain, 6_000_000);
    wait_for(&progress, |now| now.nodes[3].held_chunks > 0);
    lab.nodes[3].hang.store(true, Ordering::SeqCst);
    wait_for(&progress, |now| {
        now.nodes[..3].iter().all(|node| node.held_chunks == u64::from(now.chunks))
    });
    cut_off_source(&lab);
    // The source waits for it some seconds longer than the others do.
    lab.nodes[3].hang.store(false, Ordering::SeqCst);
    let outcome = casting.join().expect("no panic");
    assert!(outcome.nodes[3].result.is_err(), "{outcome:?}");
    let root = lab.nodes[3].root.path();
    eventually("the nodes go on", || root.join("tree").exists());
    (0..3).for_each(|node| lab.check(node));
    eventually("its staging directory goes", || fs::read_dir(root).expect("there").count() == 1);
    lab.check(3);
}

#[test]
fn a_source_that_is_killed_half_way_and_started_again_reaches_all() {
    let lab = Lab::new(3);
    lab.fill(6_000_000);
    let (casting, progress) = start_slowly(&lab, ScheduleKind::Chain, 1_500_000);
    wait_for(&progress, |now| now.nodes[2].held_chunks > u64::from(now.chunks) / 3);
    cut_off_source(&lab);
    let outcome = casting.join().expect("no panic");
    assert!(outcome.nodes.iter().all(|node| node.result.is_err()), "{outcome:?}");
    lab.wires.closed.lock().expect("no panic").clear();
    let outcome = lab.cast(ScheduleKind::Chain);
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..3).for_each(|node| lab.check(node));
}

#[test]
fn a_node_that_the_source_loses_and_finds_again_has_everything() {
    let lab = Lab::new(4);
    lab.fill(6_000_000);
    let (casting, progress) = start_slowly(&lab, ScheduleKind::BinomialPipeline, 1_000_000);
    wait_for(&progress, |now| now.nodes.iter().all(|node| node.held_chunks > 10));
    let lost = lab.wires.open.lock().expect("no panic").remove(1);
    lost.shutdown(Shutdown::Both).expect("connected");
    let outcome = casting.join().expect("no panic");
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..4).for_each(|node| lab.check(node));
}

/// It hangs until the others have everything; the cast waits for it for a moment.
#[test]
fn a_node_that_hangs_until_the_others_end_has_everything() {
    let lab = Lab::new(3);
    lab.fill(3_000_000);
    let (casting, progress) = start_slowly(&lab, ScheduleKind::Star, 3_000_000);
    wait_for(&progress, |now| now.nodes.iter().all(|node| node.held_chunks > 1));
    lab.nodes[2].hang.store(true, Ordering::SeqCst);
    let published = |now: &CastProgress| {
        now.nodes.iter().filter(|node| node.stage == NodeStage::Published).count() == 2
    };
    wait_for(&progress, |now| published(now) && now.nodes[2].stage == NodeStage::Failed);
    lab.nodes[2].hang.store(false, Ordering::SeqCst);
    drop(progress);
    let outcome = casting.join().expect("no panic");
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..3).for_each(|node| lab.check(node));
}

/// The cast does not wait for it for ever; for how long, `source/nodes` tests.
#[test]
fn a_node_that_is_lost_for_good_is_given_up() {
    let mut lab = Lab::new(3);
    lab.fill(2_000_000);
    let (casting, progress) = start_slowly(&lab, ScheduleKind::Star, 3_000_000);
    wait_for(&progress, |now| now.nodes.iter().all(|node| node.held_chunks > 1));
    lab.nodes[2].stop();
    drop(progress);
    eventually("the cast ends", || casting.is_finished());
    let outcome = casting.join().expect("no panic");
    let failed: Vec<bool> = outcome.nodes.iter().map(|node| node.result.is_err()).collect();
    assert_eq!(failed, [false, false, true], "{outcome:?}");
}

#[test]
fn a_node_that_comes_late_has_everything() {
    let lab = Lab::new(4);
    lab.fill(6_000_000);
    lab.wires.closed.lock().expect("no panic").insert(lab.nodes[2].address);
    let (casting, progress) = start_slowly(&lab, ScheduleKind::BinomialPipeline, 1_000_000);
    wait_for(&progress, |now| now.nodes[0].held_chunks > 10);
    lab.wires.closed.lock().expect("no panic").clear();
    let outcome = casting.join().expect("no panic");
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..4).for_each(|node| lab.check(node));
}

/// What a node has left is damaged: those chunks alone are sent again.
#[test]
fn damaged_remains_cost_no_more_than_what_is_damaged() {
    let lab = Lab::new(4);
    lab.fill(20_000_000);
    let (casting, progress) = start_slowly(&lab, ScheduleKind::Chain, 5_000_000);
    wait_for(&progress, |now| now.nodes[3].held_chunks > u64::from(now.chunks) / 2);
    cut_off_source(&lab);
    let outcome = casting.join().expect("no panic");
    assert!(outcome.nodes.iter().all(|node| node.result.is_err()), "{outcome:?}");
    lab.wires.closed.lock().expect("no panic").clear();
    let left = chunks_left(lab.nodes[0].root.path());
    damage(lab.nodes[0].root.path(), 3_000_000);
    let outcome = lab.cast(ScheduleKind::Chain);
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..4).for_each(|node| lab.check(node));
    let lacking = u64::from(outcome.chunks) - left;
    assert!(outcome.sent_chunks <= lacking + 3_000_000 / 65_536 + 10, "{left} left, {outcome:?}");
}

/// Changes bytes in the middle of the largest file that a node has staged.
fn damage(root: &Path, bytes: usize) {
    let staging = fs::read_dir(root).expect("a directory").next().expect("one").expect("a name");
    let file = staging.path().join("tree/tree/below/deep/large");
    let file = fs::OpenOptions::new().write(true).open(file).expect("staged");
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![7; bytes], 1 << 20).expect("written");
}
