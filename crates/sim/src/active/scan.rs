//! The ten records with the largest values of an array (`modules/topk/topk.h`): by one execution,
//! or by one Read of them all.

use super::node::{Call, SimulatedNode};
use super::operation::{Moment, Operation, Program, Step, word};
use super::random::Random;

/// Where the array begins.
pub const ROOT: u64 = 4096;
/// Bytes of a record: a key and a value.
pub const RECORD: usize = 16;
/// Of `topk.h`: a <= key <= b.
const KEY_RANGE: u64 = 1;
const BEST: u64 = 10;

/// Fills an array of so many bytes at random.
///
/// # Panics
/// When the region is smaller.
pub fn prepare(node: &mut SimulatedNode, bytes: usize) {
    let mut random = Random::new(1);
    let records: Vec<u8> = (0..bytes / 8).flat_map(|_| random.number().to_le_bytes()).collect();
    node.region().memory().copy_in(4096, &records).expect("inside");
}

/// By one execution.
#[derive(Clone, Copy, Debug)]
pub struct ActiveScan {
    bytes: usize,
}

impl ActiveScan {
    /// Of so many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { bytes }
    }

    /// The execution.
    #[must_use]
    pub fn call(&self) -> Call {
        let records = (self.bytes / RECORD) as u64;
        let lengths = RECORD as u64 | BEST << 32;
        let args = [ROOT, records, lengths, KEY_RANGE, 0, u64::MAX];
        Call::new("topk", "top", &args, b"")
    }
}

impl Program for ActiveScan {
    fn step(&mut self, moment: Moment<'_>) -> Step {
        if let Some(answer) = moment.answer {
            assert_eq!(word(answer, 0), BEST.min((self.bytes / RECORD) as u64), "the best");
            return Step::Finished;
        }
        Step::one(Operation::Execute(self.call()))
    }
}

/// By one Read. Then the client looks for itself, with the same instructions on a host's processor.
#[derive(Clone, Copy, Debug)]
pub struct PlainScan {
    bytes: usize,
    fuel: u64,
    is_read: bool,
}

impl PlainScan {
    /// Of so many bytes, which takes so much fuel.
    #[must_use]
    pub fn new(bytes: usize, fuel: u64) -> Self {
        Self { bytes, fuel, is_read: false }
    }
}

impl Program for PlainScan {
    fn step(&mut self, moment: Moment<'_>) -> Step {
        match moment.answer {
            None => Step::one(Operation::Read { at: ROOT, len: self.bytes }),
            Some(_) if !std::mem::replace(&mut self.is_read, true) => Step::Compute(self.fuel),
            Some(_) => {
                self.is_read = false;
                Step::Finished
            }
        }
    }
}
