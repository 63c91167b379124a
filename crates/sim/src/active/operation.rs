//! What clients ask of a node, and the programs that ask: a client's next operations follow from
//! the answer to its last ones.

use super::node::Call;
use super::random::Random;

/// One work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// RDMA Read: answered by the bytes.
    Read {
        /// The offset.
        at: u64,
        /// Bytes.
        len: usize,
    },
    /// RDMA Write: not answered, and nobody waits for it.
    Write {
        /// The offset.
        at: u64,
        /// What is written.
        bytes: Vec<u8>,
    },
    /// Atomic CompareSwap: answered by what was there.
    CompareSwap {
        /// The offset.
        at: u64,
        /// What must be there.
        compare: u64,
        /// What is put there then.
        swap: u64,
    },
    /// A request to execute: answered by the result.
    Execute(Call),
}

impl Operation {
    /// Bytes of payload on their way to the node.
    #[must_use]
    pub fn request_bytes(&self) -> usize {
        match self {
            Self::Read { .. } | Self::CompareSwap { .. } => 0,
            Self::Write { bytes, .. } => bytes.len(),
            Self::Execute(call) => call.args.len(),
        }
    }

    /// Whether it counts as a round trip.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        !matches!(self, Self::Write { .. })
    }
}

/// What a program does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Posts these, one behind the other, and waits for the answer of the last one: all others are
    /// Writes.
    Post(Vec<Operation>),
    /// Works on its own processor as long as so much fuel takes there, and goes on with the same
    /// answer.
    Compute(u64),
    /// One piece of its work is done; the next one begins.
    Finished,
}

impl Step {
    /// Posts one operation.
    #[must_use]
    pub fn one(operation: Operation) -> Self {
        Self::Post(vec![operation])
    }
}

/// What a program knows when it goes on.
#[derive(Debug)]
pub struct Moment<'a> {
    /// The answer that it has waited for; nothing when a piece of work begins.
    pub answer: Option<&'a [u8]>,
    /// Nanoseconds since the simulation's beginning.
    pub now_ns: u64,
    /// Its own random numbers.
    pub random: &'a mut Random,
}

impl Moment<'_> {
    /// The first word of the answer.
    #[must_use]
    pub fn word(&self) -> u64 {
        word(self.answer.expect("an answer"), 0)
    }
}

/// A client's program, which does pieces of work for ever.
pub trait Program {
    /// Goes on.
    fn step(&mut self, moment: Moment<'_>) -> Step;
}

/// Words one behind the other, then bytes: arguments, and structures in regions.
#[must_use]
pub fn words(words: &[u64], bytes: &[u8]) -> Vec<u8> {
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    words.chain(bytes.iter().copied()).collect()
}

/// The word at an offset of bytes that came.
#[must_use]
pub fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
