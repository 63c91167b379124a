//! A late node and its holders, played by the test; and what a holder lends.

use super::lender::{LendRoom, LendStep, Lender, LenderFault};
use super::reader::{ChunkNeed, LateReader, ReadAction, ReadFault, ReadOutcome};
use crate::protocol::LentChunk;
use crate::sign::{ChunkLen, StreamShape};
use outboard_cluster::hub::Exposed;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const CHUNK: u32 = 4096;

fn memory(len: u64) -> Exposed {
    let parts = postcard::to_stdvec(&(1_u32, 0_u64, len)).expect("plain data");
    postcard::from_bytes(&parts).expect("memory")
}

fn shape(chunks: u32) -> StreamShape {
    let len = ChunkLen::new(CHUNK).expect("legal");
    StreamShape::new(len, 100, u64::from(chunks) * u64::from(CHUNK)).expect("legal")
}

/// Holders that the test plays, and the late node's chunks.
struct Scene {
    reader: LateReader,
    chunks: u32,
    now: Instant,
    held: RefCell<BTreeSet<u32>>,
    /// What each holder has; those that are not here cannot be reached.
    holders: BTreeMap<u32, BTreeSet<u32>>,
    /// Those whose chunks are bad.
    bad: BTreeSet<u32>,
    /// Those that answer nothing.
    mute: BTreeSet<u32>,
    /// By chunk, of which holder it was read.
    read_of: BTreeMap<u32, u32>,
    reads: usize,
    ended: Vec<(u32, &'static str)>,
    is_fed: bool,
}

impl Scene {
    fn new(chunks: u32, holders: &[(u32, BTreeSet<u32>)]) -> Self {
        let now = Instant::now();
        let mut reader = LateReader::new(9, shape(chunks));
        let holders: BTreeMap<u32, BTreeSet<u32>> = holders.iter().cloned().collect();
        reader.name(&holders.keys().copied().collect::<Vec<_>>(), now);
        Self {
            reader,
            chunks,
            now,
            held: RefCell::default(),
            holders,
            bad: BTreeSet::new(),
            mute: BTreeSet::new(),
            read_of: BTreeMap::new(),
            reads: 0,
            ended: Vec::new(),
            is_fed: false,
        }
    }

    fn go_on(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            let held = &self.held;
            let need = |chunk: u32| match held.borrow().contains(&chunk) {
                true => ChunkNeed::Held,
                false => ChunkNeed::Wanted,
            };
            self.reader.go_on(self.now, &need);
            while let Some(action) = self.reader.next_action() {
                self.perform(action);
            }
            self.now += Duration::from_millis(20);
        }
    }

    fn perform(&mut self, action: ReadAction) {
        let (now, all) = (self.now, self.chunks);
        match action {
            ReadAction::Feed => self.is_fed = true,
            ReadAction::End { node, why } => {
                self.ended.push((node, why));
                self.reader.lost(node, now);
            }
            ReadAction::Dial { node } if self.mute.contains(&node) => {}
            ReadAction::Dial { node } if self.holders.contains_key(&node) => {
                let bitmap = memory(u64::from(all.div_ceil(64)) * 8);
                self.reader.opened(node, bitmap, now).expect("as it must be");
            }
            ReadAction::Dial { node } => drop(self.reader.lost(node, now)),
            ReadAction::Look { node, .. } => {
                let mut bytes = vec![0; all.div_ceil(64) as usize * 8];
                for chunk in &self.holders[&node] {
                    bytes[*chunk as usize / 8] |= 1 << (chunk % 8);
                }
                self.reader.bitmap(node, &bytes, now);
            }
            ReadAction::Borrow { node, chunks } => {
                let has = |chunk: &u32| self.holders[&node].contains(chunk);
                let lent = chunks.into_iter().filter(has);
                let lent = lent.map(|chunk| LentChunk { chunk, memory: memory(u64::from(CHUNK)) });
                self.reader.lent(node, lent.collect(), now).expect("as it must be");
            }
            ReadAction::Read { node, lent: LentChunk { chunk, .. } } => {
                self.reads += 1;
                assert!(self.reader.read(node, chunk, now), "it waits for {chunk}");
                let is_bad = self.bad.contains(&node);
                if !is_bad {
                    assert!(self.held.borrow_mut().insert(chunk), "{chunk} was read twice");
                    self.read_of.insert(chunk, node);
                }
                let outcome = if is_bad { ReadOutcome::Bad } else { ReadOutcome::Kept };
                self.reader.kept(node, chunk, outcome, now);
            }
        }
    }

    fn has_all(&self) -> bool {
        self.held.borrow().len() == self.chunks as usize
    }
}

fn all(chunks: u32) -> BTreeSet<u32> {
    (0..chunks).collect()
}

#[test]
fn what_partial_holders_have_together_is_read_once_and_of_all_of_them() {
    let third = |rest| (0..1000).filter(move |chunk| chunk % 3 == rest).collect::<BTreeSet<u32>>();
    let holders = [(1, third(0)), (2, third(1)), (3, third(2)), (4, all(1000)), (5, all(1000))];
    let mut scene = Scene::new(1000, &holders);
    scene.go_on(Duration::from_secs(5));
    assert!(scene.has_all(), "{}", scene.held.borrow().len());
    assert_eq!(scene.reads, 1000);
    let of = |node| scene.read_of.values().filter(|from| **from == node).count();
    assert!((1..=5).all(|node| of(node) > 50), "{:?}", (1..=5).map(of).collect::<Vec<_>>());
    // Nothing is left for it to do.
    assert!(!scene.is_fed && scene.reader.reading().is_empty());
}

#[test]
fn the_manifest_comes_first_and_what_programs_wait_for_before_that() {
    let mut scene = Scene::new(1000, &[(1, all(1000))]);
    scene.reader.demand(&[700, 5000]);
    scene.go_on(Duration::from_millis(110));
    assert!(scene.held.borrow().contains(&700), "{:?}", scene.held);
    scene.go_on(Duration::from_millis(200));
    assert!(scene.held.borrow().contains(&0));
}

#[test]
fn what_a_holder_gets_later_is_seen_in_its_bitmap() {
    let mut scene = Scene::new(200, &[(1, (0..100).collect())]);
    scene.go_on(Duration::from_secs(2));
    assert_eq!(scene.held.borrow().len(), 100);
    scene.holders.insert(1, all(200));
    scene.go_on(Duration::from_secs(2));
    assert!(scene.has_all());
}

#[test]
fn a_holder_that_answers_nothing_gives_way() {
    let mut scene = Scene::new(100, &[(1, all(100)), (2, all(100))]);
    scene.mute.insert(1);
    scene.go_on(Duration::from_secs(12));
    assert!(scene.has_all());
    assert!(scene.ended.iter().any(|(node, _)| *node == 1), "{:?}", scene.ended);
}

#[test]
fn a_holder_with_bad_chunks_is_left_for_good() {
    let mut scene = Scene::new(100, &[(1, all(100)), (2, all(100))]);
    scene.bad.insert(1);
    scene.go_on(Duration::from_secs(30));
    assert!(scene.has_all());
    let ends: Vec<u32> = scene.ended.iter().map(|(node, _)| *node).collect();
    assert_eq!(ends.iter().filter(|node| **node == 1).count(), 1, "{:?}", scene.ended);
    assert!(scene.reads <= 100 + 8, "{}", scene.reads);
}

#[test]
fn a_pause_of_this_node_is_no_silence_of_a_holder() {
    let mut scene = Scene::new(100, &[(1, all(100))]);
    scene.mute.insert(1);
    scene.go_on(Duration::from_secs(1));
    scene.now += Duration::from_secs(10);
    scene.reader.held_up(scene.now, Duration::from_secs(10));
    scene.go_on(Duration::from_secs(6));
    assert_eq!(scene.ended, []);
    scene.go_on(Duration::from_secs(2));
    assert_eq!(scene.ended.len(), 1, "{:?}", scene.ended);
}

#[test]
fn the_source_is_asked_when_no_holder_is_left() {
    let mut scene = Scene::new(100, &[(1, all(100))]);
    scene.holders.clear();
    scene.go_on(Duration::from_millis(200));
    assert!(scene.is_fed);
    let mut scene = Scene::new(100, &[]);
    scene.go_on(Duration::from_millis(200));
    assert!(scene.is_fed);
    // Also when the only one has nothing but bad chunks.
    let mut scene = Scene::new(100, &[(1, all(100))]);
    scene.bad.insert(1);
    scene.go_on(Duration::from_secs(5));
    assert!(scene.is_fed);
}

#[test]
fn a_holder_that_breaks_the_rules_is_found_out() {
    let now = Instant::now();
    let mut reader = LateReader::new(9, shape(100));
    reader.name(&[1, 2], now);
    reader.go_on(now, &|_| ChunkNeed::Wanted);
    let fault = reader.opened(1, memory(u64::MAX), now).expect_err("absurd");
    assert_eq!(fault, ReadFault::Bitmap { found: u64::MAX, expected: 16 });
    reader.opened(2, memory(16), now).expect("as it must be");
    assert_eq!(reader.opened(2, memory(16), now), Err(ReadFault::Twice));
    // Bits behind the last chunk are no chunks.
    reader.bitmap(2, &[0xff; 16], now);
    reader.go_on(now, &|_| ChunkNeed::Wanted);
    let borrowed = std::iter::from_fn(|| reader.next_action()).find_map(|action| match action {
        ReadAction::Borrow { node: 2, chunks } => Some(chunks),
        _ => None,
    });
    let borrowed = borrowed.expect("it has some");
    assert!(borrowed.iter().all(|chunk| *chunk < 100));
    let lent = |chunk, len| vec![LentChunk { chunk, memory: memory(len) }];
    assert_eq!(reader.lent(2, lent(100, 4096), now), Err(ReadFault::Unasked { chunk: 100 }));
    assert_eq!(
        reader.lent(2, lent(borrowed[0], 4096), now),
        Err(ReadFault::Unasked { chunk: borrowed[0] }),
        "it has answered before"
    );
    reader.go_on(now, &|_| ChunkNeed::Wanted);
    let again = std::iter::from_fn(|| reader.next_action()).find_map(|action| match action {
        ReadAction::Borrow { chunks, .. } => Some(chunks),
        _ => None,
    });
    let chunk = again.expect("they are free again")[0];
    let fault = reader.lent(2, lent(chunk, 1 << 40), now).expect_err("absurd");
    assert_eq!(fault, ReadFault::Length { chunk, found: 1 << 40, expected: 4096 });
}

const OF: (u32, u32) = (100, CHUNK);

#[test]
fn a_holder_lends_a_bounded_part_to_few() {
    let now = Instant::now();
    let mut lender: Lender<u32> = Lender::default();
    for node in 0..8 {
        lender.admits(node).expect("room");
        lender.admit(node + 100, node, now);
    }
    assert_eq!(lender.admits(8), Err(LenderFault::Full));
    lender.forget(107);
    assert_eq!(lender.admits(3), Err(LenderFault::Again { node: 3 }));
    let mut borrow = |chunks: Vec<u32>| lender.borrow(100, chunks, OF, now);
    assert_eq!(borrow(vec![]), Err(LenderFault::Chunks { found: 0, most: 32 }));
    assert_eq!(borrow(vec![0; 1000]), Err(LenderFault::Chunks { found: 1000, most: 32 }));
    assert_eq!(borrow(vec![1, 100]), Err(LenderFault::NoSuchChunk { chunk: 100, chunks: 100 }));
    assert_eq!(borrow(vec![1, 2]), Ok(vec![]));
    assert_eq!(borrow(vec![3]), Err(LenderFault::Unanswered));
    assert_eq!(lender.borrow(555, vec![3], OF, now), Err(LenderFault::Stranger));
    // One thread at a time, and what was lent is given back.
    lender.borrow(101, vec![7], OF, now).expect("another one's turn");
    let step = lender.next(LendRoom::Idle, 0, CHUNK).expect("it is idle");
    assert_eq!(step, LendStep::Prepare { reader: 100, chunks: vec![1, 2], room: 4 << 20 });
    assert_eq!(lender.next(LendRoom::Idle, 0, CHUNK), None);
    assert!(lender.prepared(100));
    lender.lend(100, memory(77), 77);
    let step = lender.next(LendRoom::Limited, 0, CHUNK).expect("the next");
    assert_eq!(step, LendStep::Prepare { reader: 101, chunks: vec![7], room: (4 << 20) - 77 });
    assert_eq!(lender.borrow(100, vec![4], OF, now), Ok(vec![memory(77)]));
    assert!(lender.silent(now + Duration::from_secs(59)).is_empty());
    assert_eq!(lender.silent(now + Duration::from_secs(61)).len(), 7);
}

#[test]
fn what_the_schedule_sends_goes_first() {
    let now = Instant::now();
    let mut lender: Lender<u32> = Lender::default();
    lender.admit(1, 1, now);
    let mut asked = |room, sent| {
        lender.borrow(1, vec![1, 2], OF, now).expect("answered before");
        let step = lender.next(room, sent, CHUNK);
        lender.prepared(1);
        match step {
            Some(LendStep::Prepare { chunks, .. }) => chunks.len(),
            Some(LendStep::Refuse { .. }) => 0,
            None => panic!("no answer"),
        }
    };
    let lent: usize = (0..80).map(|sent| asked(LendRoom::Owes, sent)).sum();
    assert_eq!(lent, 9, "one for eight that it sends");
    assert_eq!(asked(LendRoom::Spent, 1000), 0);
    assert_eq!(asked(LendRoom::Limited, 1000), 1);
    assert_eq!(asked(LendRoom::Idle, 1000), 2);
}
