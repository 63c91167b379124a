//! How soon nodes answer, and which one has been silent for too long: a value without I/O or time.
//!
//! All are asked at the same time, and how long half of the others have said nothing tells how long
//! an answer takes now, on these machines. So one that hangs is found soon where answers come at
//! once, and none is blamed where everything is slow.

use std::time::Duration;

/// A node is given up after a silence of this and `SILENCE_TIMES` that of half of the others. It is
/// dialled again: one that was merely slow to answer takes part again.
const SILENCE_MIN: Duration = Duration::from_millis(500);
const SILENCE_TIMES: u32 = 6;
/// The limit for a leaf, for which no node waits, and for a node that is alone; the most for any.
const SILENCE_MAX: Duration = Duration::from_secs(4);
/// A question and its answer each may wait behind as many chunks as are under way to one node.
const SILENCE_CHUNKS: u32 = 2;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerTimes {
    /// How long an answer takes.
    usual: Duration,
    limit: Duration,
    limit_of_leaves: Duration,
}

impl AnswerTimes {
    /// By how long ago each node was heard, and how long a chunk takes to come.
    pub(super) fn new(ages: impl Iterator<Item = Duration>, chunk: Option<Duration>) -> Self {
        let mut ages: Vec<Duration> = ages.collect();
        ages.sort_unstable();
        // One that is silent is behind all others: among two it is the second.
        let usual = ages.len().checked_sub(2).map(|last| ages[last.min(ages.len() / 2)]);
        let limit = usual.map_or(SILENCE_MAX, |usual| SILENCE_MIN + usual * SILENCE_TIMES);
        let behind = chunk.unwrap_or_default() * SILENCE_CHUNKS;
        Self {
            usual: usual.unwrap_or_default(),
            limit: SILENCE_MAX.min(limit) + behind,
            limit_of_leaves: SILENCE_MAX + behind,
        }
    }

    /// For nodes that pass nothing on: no node waits for another.
    pub(super) fn of_leaves(self) -> Self {
        Self { limit: self.limit_of_leaves, ..self }
    }

    /// How long an answer takes now, at half of the nodes.
    pub(super) fn usual(&self) -> Duration {
        self.usual
    }

    /// Whether a node that was heard `age` ago hangs.
    pub(super) fn is_silent(&self, age: Duration, is_leaf: bool) -> bool {
        age > if is_leaf { self.limit_of_leaves } else { self.limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of some nodes are silent, by how long ago they were heard.
    fn silent(ages_ms: &[u64], chunk_ms: u64) -> Vec<usize> {
        let ages = || ages_ms.iter().copied().map(Duration::from_millis);
        let times = AnswerTimes::new(ages(), Some(Duration::from_millis(chunk_ms)));
        let silent = ages().enumerate().filter(|(_, age)| times.is_silent(*age, false));
        silent.map(|(node, _)| node).collect()
    }

    #[test]
    fn one_that_says_nothing_is_found_the_sooner_the_faster_others_answer() {
        let none: [usize; 0] = [];
        assert_eq!(silent(&[40, 60, 80, 1_200, 70], 5), [3]);
        assert_eq!(silent(&[40, 60, 80, 800, 70], 5), none, "it may be late");
        // Everything is slow here, and one hangs.
        assert_eq!(silent(&[500, 450, 400, 3_000, 470, 520], 5), none);
        assert_eq!(silent(&[500, 450, 400, 4_100, 470, 520], 5), [3]);
        // There is no other node to compare it with.
        assert_eq!(silent(&[3_900], 5), none);
        assert_eq!(silent(&[4_100], 5), [0]);
        assert_eq!(silent(&[60, 1_200], 5), [1]);
        // Questions wait behind chunks that take long.
        assert_eq!(silent(&[40, 60, 80, 1_200, 70], 500), none);
        assert_eq!(silent(&[5_000; 6], 5), [0, 1, 2, 3, 4, 5], "all of them");
    }

    #[test]
    fn a_leaf_may_be_silent_for_longer() {
        let ages = [40, 60, 80, 1_200].map(Duration::from_millis);
        let times = AnswerTimes::new(ages.into_iter(), None);
        assert!(times.is_silent(ages[3], false) && !times.is_silent(ages[3], true));
        assert!(!times.of_leaves().is_silent(ages[3], false));
    }
}
