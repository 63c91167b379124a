//! A situation as messages: parts that each fit into one.
//!
//! A node's set is cut short where all sets together would be long: a node that holds
//! more than the plan says tells its senders so, and is sent nothing twice.

use crate::protocol::{CastMessage, PlanPart};
use crate::schedule::Situation;

/// Bytes in a part.
const PART_LEN: usize = 48 << 10;
/// Parts of a plan, at most.
const PARTS_MAX: u32 = 64;
/// Bytes of all sets behind what nodes hold without a gap.
const SETS_LEN_MAX: usize = 256 << 10;
/// Bytes of a word of a set, at most.
const WORD_LEN: usize = 10;

/// Why parts are no plan: the source is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlanPartFault {
    #[error("it sent part {part} of {parts} of a plan where part {expected} was due")]
    Order { part: u32, parts: u32, expected: u32 },
    #[error("it sent a plan in {parts} parts: {PARTS_MAX} are possible")]
    Parts { parts: u32 },
    #[error("it sent a plan of {len} bytes that are none")]
    Malformed { len: usize },
}

/// What has come of a plan.
#[derive(Debug, Default)]
pub(crate) struct PlanParts {
    bytes: Vec<u8>,
    version: u32,
    next: u32,
}

impl PlanParts {
    /// The messages of a plan.
    pub(crate) fn split(version: u32, mut situation: Situation) -> Vec<CastMessage> {
        let words = SETS_LEN_MAX / WORD_LEN / situation.nodes.len().max(1);
        situation.nodes.iter_mut().skip(1).for_each(|node| node.holds.keep_front(words.max(1)));
        let bytes = postcard::to_stdvec(&situation).expect("a situation is plain data");
        let pieces: Vec<&[u8]> = bytes.chunks(PART_LEN).collect();
        let parts = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        let message = |(part, bytes): (u32, &&[u8])| {
            CastMessage::Plan(PlanPart { version, part, parts, bytes: bytes.to_vec() })
        };
        (0..).zip(&pieces).map(message).collect()
    }

    /// Takes a part; the last one completes the plan. A part 0 begins another one.
    pub(crate) fn add(&mut self, part: PlanPart) -> Result<Option<Situation>, PlanPartFault> {
        let PlanPart { version, part, parts, bytes } = part;
        if parts > PARTS_MAX {
            return Err(PlanPartFault::Parts { parts });
        }
        if part == 0 {
            *self = Self { bytes: Vec::new(), version, next: 0 };
        }
        let expected = self.next;
        if part != expected || version != self.version || part >= parts {
            return Err(PlanPartFault::Order { part, parts, expected });
        }
        self.bytes.extend_from_slice(&bytes);
        self.next += 1;
        if self.next < parts {
            return Ok(None);
        }
        let Self { bytes, .. } = std::mem::take(self);
        match postcard::take_from_bytes(&bytes) {
            Ok((situation, [])) => Ok(Some(situation)),
            _ => Err(PlanPartFault::Malformed { len: bytes.len() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::ChunkSet;
    use outboard_cluster::hub::MESSAGE_MAX;

    fn parts(messages: Vec<CastMessage>) -> Vec<PlanPart> {
        let part = |message| match message {
            CastMessage::Plan(part) => part,
            other => panic!("{other:?}"),
        };
        messages.into_iter().map(part).collect()
    }

    #[test]
    fn a_plan_of_all_nodes_with_ragged_sets_is_sent_and_comes_back() {
        let mut situation = Situation::fresh(2048, 100_000);
        let ragged =
            |at: u32| (0..100_000).filter(move |chunk| !(chunk + at).is_multiple_of(3)).collect();
        let sets: [ChunkSet; 3] = [0, 1, 2].map(ragged);
        for (at, node) in situation.nodes.iter_mut().enumerate().skip(1) {
            node.holds = sets[at % 3].clone();
        }
        let messages = PlanParts::split(7, situation.clone());
        for message in &messages {
            assert!(crate::protocol::PROTOCOL.encode(message).len() < MESSAGE_MAX);
        }
        let (mut joined, parts) = (PlanParts::default(), parts(messages));
        assert!(parts.len() > 1 && parts.len() < 16, "{}", parts.len());
        let mut plans = parts.into_iter().filter_map(|part| joined.add(part).expect("in order"));
        let plan = plans.next().expect("the last part completes it");
        assert_eq!(plan.nodes[0].holds, ChunkSet::below(100_000));
        for (short, whole) in plan.nodes.iter().zip(&situation.nodes) {
            let mut both = short.holds.clone();
            both.intersect(&whole.holds);
            assert_eq!(both, short.holds, "nothing that is not held");
        }
    }

    #[test]
    fn parts_that_do_not_follow_each_other_are_the_sources_fault() {
        let part = |part, parts, version| PlanPart { version, part, parts, bytes: vec![9] };
        let mut joined = PlanParts::default();
        let order = |part, expected| PlanPartFault::Order { part, parts: 3, expected };
        assert_eq!(joined.add(part(1, 3, 0)), Err(order(1, 0)));
        assert_eq!(joined.add(part(0, 3, 0)), Ok(None));
        assert_eq!(joined.add(part(2, 3, 0)), Err(order(2, 1)));
        assert_eq!(joined.add(part(1, 3, 1)), Err(order(1, 1)));
        assert_eq!(joined.add(part(0, 65, 0)), Err(PlanPartFault::Parts { parts: 65 }));
        assert_eq!(joined.add(part(0, 1, 0)), Err(PlanPartFault::Malformed { len: 1 }));
    }
}
