//! Sets of chunks against a plain set of numbers.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn chunks() -> impl Strategy<Value = (ChunkSet, BTreeSet<u32>)> {
    (0_u32..300, proptest::collection::vec(0_u32..400, 0..200)).prop_map(|(below, more)| {
        let mut set = ChunkSet::below(below);
        let mut numbers: BTreeSet<u32> = (0..below).collect();
        for chunk in more {
            assert_eq!(set.insert(chunk), numbers.insert(chunk));
        }
        (set, numbers)
    })
}

fn same(set: &ChunkSet, numbers: &BTreeSet<u32>) {
    assert!((0..500).all(|chunk| set.contains(chunk) == numbers.contains(&chunk)));
    assert_eq!(set.len(), numbers.len() as u64);
    assert_eq!(set.is_empty(), numbers.is_empty());
    assert_eq!(set.end(), numbers.last().map_or(0, |last| u64::from(*last) + 1));
    assert_eq!(*set, numbers.iter().copied().collect(), "one form only");
    let missing: Vec<u32> = (0..450).filter(|chunk| !numbers.contains(chunk)).collect();
    let runs = set.missing(450);
    assert_eq!(runs.iter().collect::<Vec<_>>(), missing);
    assert_eq!((runs.len() as usize, runs.is_empty()), (missing.len(), missing.is_empty()));
    assert_eq!(runs.chunk(runs.len()), None);
}

proptest! {
    #[test]
    fn a_set_of_chunks_is_a_set((set, numbers) in chunks(), (other, more) in chunks()) {
        same(&set, &numbers);
        let mut both = set.clone();
        both.intersect(&other);
        same(&both, &numbers.intersection(&more).copied().collect());
        let mut all = set;
        all.unite(&other);
        same(&all, &numbers.union(&more).copied().collect());
    }

    /// What a peer sends is any bytes: no operation may panic on it.
    #[test]
    fn a_set_from_a_peer_is_harmless(
        full in any::<u32>(), words in proptest::collection::vec(any::<u64>(), 0..4),
    ) {
        let bytes = postcard::to_allocvec(&(full, words)).unwrap();
        let set: ChunkSet = postcard::from_bytes(&bytes).unwrap();
        let mut situation = Situation::fresh(3, 50);
        situation.nodes[1].holds = set.clone();
        let fits = set.end() <= 50;
        prop_assert_eq!(Schedule::new(ScheduleKind::Chain, situation).is_ok(), fits);
    }
}

#[test]
fn a_set_is_small_however_much_it_holds() {
    let set = ChunkSet::below(u32::MAX);
    assert_eq!((set.len(), set.end()), (u64::from(u32::MAX), u64::from(u32::MAX)));
    assert_eq!(set.next_missing(0), u64::from(u32::MAX));
    assert!(postcard::to_allocvec(&set).unwrap().len() < 20);
}
