//! Nodes that come late: they read what they lack out of the memory of nodes that have it, and the
//! source sends nothing because of them.

use super::lab::Lab;
use super::{chunks_of, cut_off_source, start_slowly, wait_for};
use outboard_cast::schedule::ScheduleKind;
use outboard_cast::source::{CastOutcome, CastProgress, NodeStage};
use outboard_testkit::eventually;
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// The node that comes late, by its index.
const LATE: usize = 3;

struct LateCast {
    lab: Lab,
    casting: JoinHandle<CastOutcome>,
    progress: mpsc::Receiver<CastProgress>,
}

impl LateCast {
    /// A chain of three nodes, and a fourth that is reached after a while. It does nothing until
    /// the others are so far, by what they hold of all chunks.
    fn begin(until: impl Fn(&CastProgress) -> bool) -> Self {
        let lab = Lab::new(4);
        lab.fill(5_000_000);
        let late = lab.nodes[LATE].address;
        lab.wires.closed.lock().expect("no panic").insert(late);
        let (casting, progress) = start_slowly(&lab, ScheduleKind::Chain, 2_500_000);
        wait_for(&progress, |now| now.nodes[0].held_chunks > 0);
        lab.wires.closed.lock().expect("no panic").clear();
        wait_for(&progress, |now| now.nodes[LATE].stage == NodeStage::Receives);
        lab.nodes[LATE].hang.store(true, Ordering::SeqCst);
        wait_for(&progress, until);
        lab.nodes[LATE].hang.store(false, Ordering::SeqCst);
        Self { lab, casting, progress }
    }

    /// All have it, the late one by reading alone, and the source has sent each chunk once.
    fn end(self) {
        let Self { lab, casting, progress } = self;
        drop(progress);
        let outcome = casting.join().expect("no panic");
        assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
        (0..4).for_each(|node| lab.check(node));
        let read: Vec<u64> = outcome.nodes.iter().map(|node| node.read_chunks).collect();
        assert_eq!(read, [0, 0, 0, chunks_of(&outcome)], "{outcome:?}");
        assert_eq!(outcome.sent_chunks, chunks_of(&outcome), "no more because of it: {outcome:?}");
    }
}

fn share(of: usize, percent: u64) -> impl Fn(&CastProgress) -> bool {
    move |now| now.nodes[of].held_chunks * 100 >= u64::from(now.chunks) * percent
}

/// A node that does not answer at first: the others do not wait for it, and it gets everything.
#[test]
fn a_node_that_is_slow_to_begin_holds_up_no_other() {
    let lab = Lab::new(4);
    lab.fill(5_000_000);
    let late = lab.nodes[LATE].address;
    lab.wires.silent.lock().expect("no panic").insert(late);
    let (casting, progress) = start_slowly(&lab, ScheduleKind::Chain, 20_000_000);
    let published = |now: &CastProgress| {
        now.nodes.iter().filter(|node| node.stage == NodeStage::Published).count() == 3
    };
    wait_for(&progress, published);
    lab.wires.silent.lock().expect("no panic").clear();
    LateCast { lab, casting, progress }.end();
}

#[test]
fn a_node_that_comes_at_the_beginning_reads_from_partial_holders() {
    LateCast::begin(share(0, 10)).end();
}

#[test]
fn a_node_that_comes_half_way_reads_everything() {
    LateCast::begin(share(0, 50)).end();
}

#[test]
fn a_node_that_comes_near_the_end_reads_everything() {
    LateCast::begin(share(0, 99)).end();
}

#[test]
fn a_node_that_comes_when_all_others_have_published_reads_everything() {
    let all = |now: &CastProgress| {
        now.nodes[..LATE].iter().all(|node| node.stage == NodeStage::Published)
    };
    LateCast::begin(all).end();
}

/// Waits until the late node has published; no source is left to report it.
fn wait_until_published(lab: &Lab) {
    let root = lab.nodes[LATE].root.path();
    eventually("the late node publishes", || {
        root.join("tree").exists() && fs::read_dir(root).expect("there").count() == 1
    });
}

#[test]
fn the_source_may_leave_while_a_late_node_reads() {
    let late = LateCast::begin(share(0, 100));
    wait_for(&late.progress, |now| now.nodes[LATE].held_chunks > 2);
    cut_off_source(&late.lab);
    let outcome = late.casting.join().expect("no panic");
    assert!(outcome.nodes[LATE].result.is_err(), "{outcome:?}");
    wait_until_published(&late.lab);
    late.lab.check(LATE);
}

#[test]
fn a_holder_that_dies_while_it_is_read_costs_the_late_node_nothing_but_time() {
    let mut late = LateCast::begin(share(0, 60));
    wait_for(&late.progress, |now| now.nodes[LATE].held_chunks > 2);
    late.lab.nodes[2].stop();
    let outcome = late.casting.join().expect("no panic");
    let results: Vec<bool> = outcome.nodes.iter().map(|node| node.result.is_ok()).collect();
    assert_eq!(results, [true, true, false, true], "{outcome:?}");
    [0, 1, LATE].into_iter().for_each(|node| late.lab.check(node));
    assert_eq!(outcome.nodes[LATE].read_chunks, chunks_of(&outcome), "{outcome:?}");
}

#[test]
fn what_a_holder_has_changed_is_read_of_another() {
    let all = |now: &CastProgress| {
        now.nodes[..LATE].iter().all(|node| node.held_chunks == u64::from(now.chunks))
    };
    let lab_of = |late: &LateCast| late.lab.nodes[1].root.path().join("tree/below/deep/large");
    let late = LateCast::begin(all);
    // Its owner may: the node has published it.
    let large = lab_of(&late);
    eventually("a node publishes", || large.exists());
    let file = fs::File::options().write(true).open(&large).expect("published");
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![7; 5_000_000], 0).expect("written");
    let outcome = late.casting.join().expect("no panic");
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    [0, 2, LATE].into_iter().for_each(|node| late.lab.check(node));
    assert_eq!(outcome.nodes[LATE].read_chunks, chunks_of(&outcome), "{outcome:?}");
}

#[test]
fn a_late_node_that_reaches_no_holder_is_fed_by_the_schedule() {
    let lab = Lab::new(4);
    lab.fill(5_000_000);
    let addresses: Vec<SocketAddr> = lab.nodes.iter().map(|node| node.address).collect();
    lab.nodes[LATE].wires.closed.lock().expect("no panic").extend(&addresses);
    lab.wires.closed.lock().expect("no panic").insert(addresses[LATE]);
    let (casting, progress) = start_slowly(&lab, ScheduleKind::Chain, 2_500_000);
    wait_for(&progress, |now| now.nodes[0].held_chunks > 0);
    lab.wires.closed.lock().expect("no panic").clear();
    drop(progress);
    let outcome = casting.join().expect("no panic");
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..4).for_each(|node| lab.check(node));
    assert_eq!(outcome.nodes[LATE].read_chunks, 0, "{outcome:?}");
}
