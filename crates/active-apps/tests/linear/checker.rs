//! Whether operations that ran at the same time could have run one after the other: the search of
//! Wing and Gong, with Lowe's memory of what was tried. Knows no table and no lock.

use std::collections::HashSet;
use std::hash::Hash;
use std::time::Instant;

/// Operations of one history, at most.
const MOST: usize = 128;

/// An operation of a client's.
#[derive(Clone, Debug)]
pub(crate) struct Event<O> {
    /// What was asked, and what came of it.
    pub(crate) op: O,
    pub(crate) begun: Instant,
    /// `None`: what came of it is not known. It may have taken effect at any time since, or never.
    pub(crate) ended: Option<Instant>,
}

/// Whether an order exists in which every operation takes effect between its beginning and its end.
/// `apply` gives the state after an operation, unless its result (if that is known) is not one that
/// it has in this state.
pub(crate) fn is_linearizable<S: Clone + Eq + Hash, O>(
    events: &[Event<O>],
    initial: &S,
    apply: impl Fn(&S, &O, bool) -> Option<S>,
) -> bool {
    assert!(events.len() <= MOST, "{} operations", events.len());
    let all_known = (0..events.len())
        .filter(|at| events[*at].ended.is_some())
        .fold(0_u128, |all, at| all | 1 << at);
    let (mut tried, mut open) = (HashSet::new(), vec![(0_u128, initial.clone())]);
    while let Some((done, state)) = open.pop() {
        if done & all_known == all_known {
            return true;
        }
        // What has not begun when another one ended comes behind that one.
        let ends = events.iter().enumerate().filter(|(at, _)| done >> at & 1 == 0);
        let first_end = ends.filter_map(|(_, event)| event.ended).min();
        for (at, event) in events.iter().enumerate() {
            let is_next = done >> at & 1 == 0 && first_end.is_none_or(|end| event.begun <= end);
            if is_next && let Some(after) = apply(&state, &event.op, event.ended.is_some()) {
                let next = (done | 1 << at, after);
                if tried.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
    }
    false
}

/// Histories that are known to be right or wrong.
pub(crate) fn judges_known_histories() {
    #[derive(Clone, Copy)]
    enum Op {
        Write(u32),
        Read(u32),
    }
    use Op::{Read, Write};
    let start = Instant::now();
    let at = |ms: u64| start + std::time::Duration::from_millis(ms);
    let apply = |state: &u32, op: &Op, _: bool| match *op {
        Write(value) => Some(value),
        Read(value) => (*state == value).then_some(*state),
    };
    let judge = |events: &[(Op, u64, Option<u64>)]| {
        let event = |(op, begun, ended): &(Op, u64, Option<u64>)| Event {
            op: *op,
            begun: at(*begun),
            ended: ended.map(at),
        };
        let events: Vec<Event<Op>> = events.iter().map(event).collect();
        is_linearizable(&events, &0, apply)
    };
    assert!(judge(&[]));
    assert!(judge(&[(Write(1), 0, Some(10)), (Read(0), 5, Some(20))]), "at the same time");
    assert!(!judge(&[(Write(1), 0, Some(10)), (Read(0), 11, Some(20))]), "an old value");
    assert!(!judge(&[(Read(7), 0, Some(10))]), "a value of nobody");
    let torn = [(Write(1), 0, Some(50)), (Read(1), 5, Some(10)), (Read(0), 15, Some(20))];
    assert!(!judge(&torn), "new, then old");
    assert!(judge(&[torn[0], torn[2], (Read(1), 25, Some(30))]));
    let unknown = (Write(1), 0, None);
    assert!(judge(&[unknown, (Read(0), 5, Some(10))]), "it need not take effect");
    assert!(judge(&[unknown, (Read(0), 5, Some(10)), (Read(1), 15, Some(20))]), "or does later");
    let back = [unknown, (Read(1), 5, Some(10)), (Read(0), 15, Some(20))];
    assert!(!judge(&back), "but once only");
    assert!(!judge(&[(Read(1), 0, Some(5)), (Write(1), 6, None)]), "not before it began");
}
