//! A lock (`modules/lock/lock.h`) that clients acquire and release, as often as it takes, by plain
//! verbs or by executions.

use super::node::{Call, SimulatedNode};
use super::operation::{Moment, Operation, Program, Step, word, words};

/// Where the locks begin.
pub const ROOT: u64 = 4096;
const ENTRIES: u64 = 16;
const NAME: &[u8] = b"the lock";
/// Longer than any simulation.
const LEASE_NS: u64 = 3_600_000_000_000;
const EPOCH_MS: u64 = 1_577_836_800_000;
const MS: u64 = 1_000_000;
const ENTRY: usize = 128;
const EXPIRY_BITS: u32 = 40;
const EXPIRY_MASK: u64 = (1 << EXPIRY_BITS) - 1;
const TOKEN_MASK: u64 = 0xff_ffff;
const GRANTED: u64 = 1;

/// Makes locks; returns the offset of the one that is used.
pub fn prepare(node: &mut SimulatedNode) -> u64 {
    node.execute(&Call::new("lock", "init", &[ROOT, ENTRIES], b""), 0);
    word(&node.execute(&Call::new("lock", "locate", &[ROOT], NAME), 0).0, 0)
}

/// Whose turn it is where two owners share one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rivals {
    /// Others are other clients: a refused attempt is made again at once.
    Others,
    /// Behind each grant, a second owner is refused once.
    Refused,
}

/// Where an owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockState {
    Idle,
    Acquiring,
    /// The second owner's attempt.
    Trying,
    Releasing,
}

/// By executions.
#[derive(Clone, Copy, Debug)]
pub struct ActiveLock {
    rivals: Rivals,
    state: LockState,
    token: u64,
}

impl ActiveLock {
    /// An owner.
    #[must_use]
    pub fn new(rivals: Rivals) -> Self {
        Self { rivals, state: LockState::Idle, token: 0 }
    }

    fn attempt(&mut self, state: LockState) -> Step {
        self.state = state;
        Step::one(Operation::Execute(Call::new("lock", "acquire", &[ROOT, 1, LEASE_NS], NAME)))
    }

    fn release(&mut self) -> Step {
        self.state = LockState::Releasing;
        Step::one(Operation::Execute(Call::new("lock", "release", &[ROOT, self.token], NAME)))
    }
}

impl Program for ActiveLock {
    fn step(&mut self, moment: Moment<'_>) -> Step {
        let Some(answer) = moment.answer else { return self.attempt(LockState::Acquiring) };
        let is_granted = word(answer, 0) == GRANTED;
        match self.state {
            LockState::Acquiring if !is_granted => self.attempt(LockState::Acquiring),
            LockState::Acquiring => {
                self.token = word(answer, 8);
                match self.rivals {
                    Rivals::Refused => self.attempt(LockState::Trying),
                    Rivals::Others => self.release(),
                }
            }
            LockState::Trying => {
                assert!(!is_granted, "two owners");
                self.release()
            }
            LockState::Releasing => {
                assert!(is_granted, "the lock was lost");
                Step::Finished
            }
            LockState::Idle => panic!("an answer to nothing"),
        }
    }
}

/// Where an owner is who uses plain verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VerbState {
    /// The entry was asked for.
    Looking,
    /// The word was to be replaced by this one.
    Swapping { from: u64, to: u64, token: u64 },
    /// The entry was asked for by the second owner.
    Trying,
    /// The expiry was to be replaced by 0.
    Releasing { from: u64 },
}

/// By plain verbs.
#[derive(Clone, Copy, Debug)]
pub struct PlainLock {
    rivals: Rivals,
    entry: u64,
    state: VerbState,
    held: u64,
    token: u64,
}

impl PlainLock {
    /// An owner, and the lock's offset.
    #[must_use]
    pub fn new(rivals: Rivals, entry: u64) -> Self {
        Self { rivals, entry, state: VerbState::Looking, held: 0, token: 0 }
    }

    fn read(&self) -> Operation {
        Operation::Read { at: self.entry, len: ENTRY }
    }

    fn look(&mut self) -> Step {
        self.state = VerbState::Looking;
        Step::one(self.read())
    }

    /// An entry came: takes the lock if it is free.
    fn looked(&mut self, entry: &[u8], now_ns: u64) -> Step {
        let (from, hint) = (word(entry, 0), word(entry, 8));
        let now_ms = SimulatedNode::wall_ns(now_ns) / MS - EPOCH_MS;
        if from & EXPIRY_MASK > now_ms {
            return self.look();
        }
        let token = hint + (((from >> EXPIRY_BITS).wrapping_sub(hint)) & TOKEN_MASK) + 1;
        let to = (token & TOKEN_MASK) << EXPIRY_BITS | (now_ms + LEASE_NS / MS);
        self.state = VerbState::Swapping { from, to, token };
        Step::one(Operation::CompareSwap { at: self.entry, compare: from, swap: to })
    }

    /// The token and the owner are written behind the grant; nobody waits for it.
    fn granted(&mut self) -> Step {
        let bytes = words(&[self.token, 1], b"");
        let told = Operation::Write { at: self.entry + 8, bytes };
        match self.rivals {
            Rivals::Refused => {
                self.state = VerbState::Trying;
                Step::Post(vec![told, self.read()])
            }
            Rivals::Others => Step::Post(vec![told, self.release()]),
        }
    }

    fn release(&mut self) -> Operation {
        self.state = VerbState::Releasing { from: self.held };
        let swap = self.held & !EXPIRY_MASK;
        Operation::CompareSwap { at: self.entry, compare: self.held, swap }
    }
}

impl Program for PlainLock {
    fn step(&mut self, moment: Moment<'_>) -> Step {
        let Some(answer) = moment.answer else { return self.look() };
        match self.state {
            VerbState::Looking => self.looked(answer, moment.now_ns),
            VerbState::Swapping { from, .. } if word(answer, 0) != from => self.look(),
            VerbState::Swapping { to, token, .. } => {
                (self.held, self.token) = (to, token);
                self.granted()
            }
            VerbState::Trying => {
                assert_eq!(word(answer, 0), self.held, "held");
                Step::one(self.release())
            }
            VerbState::Releasing { from } => {
                assert_eq!(word(answer, 0), from, "the lock was lost");
                Step::Finished
            }
        }
    }
}
