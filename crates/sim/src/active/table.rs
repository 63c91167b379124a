//! A hash table (`modules/table/table.h`) at a client's hands: get and put of random keys, by plain
//! verbs or by one execution. Values of 16 bytes lie in their bucket: one Read; longer ones beside
//! it: two.

use super::node::{Call, SimulatedNode};
use super::operation::{Moment, Operation, Program, Step, word, words};
use super::random::Random;

/// Where the table begins.
pub const ROOT: u64 = 4096;
const SEED: u64 = 0x0074_6162_6c65;
const SEGMENTS: u64 = ROOT + 64;
const BUCKET: usize = 128;
const SLOTS: usize = 3;
const ITEM: u64 = 1;
const INLINE: u64 = 2;
/// The logarithm of the number of buckets: enough that the table does not grow.
const FIRST: u32 = 14;
/// Keys that are there.
const KEYS: u64 = 10_000;
const KEY: usize = 8;
/// Items that a client has in store.
const TAKEN: u64 = 16;

/// As `ob_mix` in `modules/include/outboard.h`.
fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 32)
}

/// As `ob_hash` there.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    mix(bytes.chunks(8).map(padded).fold(seed, mix), bytes.len() as u64)
}

/// Up to eight bytes as a number.
fn padded(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn key(number: u64) -> [u8; KEY] {
    format!("{number:08x}").as_bytes().try_into().expect("eight digits")
}

fn put(key: &[u8; KEY], value: &[u8]) -> Call {
    let lengths = KEY as u64 | (value.len() as u64) << 32;
    Call::new("table", "put", &[ROOT, lengths], &[key, value].concat())
}

/// Makes a table whose values have so many bytes.
pub fn prepare(node: &mut SimulatedNode, value_len: usize) {
    let len = node.region().memory().len() as u64 - ROOT;
    node.execute(&Call::new("table", "init", &[ROOT, len, u64::from(FIRST)], b""), 0);
    for number in 0..KEYS {
        node.execute(&put(&key(number), &vec![b'v'; value_len]), 0);
    }
}

/// What is done to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableWork {
    /// Finds a key's value.
    Get,
    /// Replaces it.
    Put,
}

/// By one execution.
#[derive(Clone, Debug)]
pub struct ActiveTable {
    work: TableWork,
    value: Vec<u8>,
}

impl ActiveTable {
    /// Works on values of so many bytes.
    #[must_use]
    pub fn new(work: TableWork, value_len: usize) -> Self {
        Self { work, value: vec![b'v'; value_len] }
    }
}

impl Program for ActiveTable {
    fn step(&mut self, moment: Moment<'_>) -> Step {
        let Some(answer) = moment.answer else {
            let key = key(moment.random.below(KEYS));
            return Step::one(Operation::Execute(match self.work {
                TableWork::Get => Call::new("table", "get", &[ROOT], &key),
                TableWork::Put => put(&key, &self.value),
            }));
        };
        assert_eq!(word(answer, 0), 1, "the key is there");
        if self.work == TableWork::Get {
            assert_eq!(answer[8..], self.value, "its value");
        }
        Step::Finished
    }
}

/// Where a search is.
#[derive(Clone, Copy, Debug)]
struct Slot {
    at: u64,
    word: u64,
}

#[derive(Clone, Debug)]
enum TableState {
    Idle,
    /// The place of the buckets was asked for.
    Root,
    /// Memory for items was asked for.
    Taking,
    Bucket {
        at: u64,
    },
    /// An item was asked for, of a slot of this bucket.
    Item {
        slot: Slot,
        bucket: u64,
        bytes: Vec<u8>,
    },
    /// A slot was to be replaced by an item.
    Replacing {
        slot: Slot,
        item: u64,
    },
}

/// By plain verbs.
#[derive(Clone, Debug)]
pub struct PlainTable {
    work: TableWork,
    value: Vec<u8>,
    /// The first segment of buckets, which never moves.
    buckets: u64,
    /// Memory of items that is the client's.
    own: Vec<u64>,
    key: [u8; KEY],
    state: TableState,
}

impl PlainTable {
    /// Works on values of so many bytes.
    #[must_use]
    pub fn new(work: TableWork, value_len: usize) -> Self {
        let value = vec![b'v'; value_len];
        Self { work, value, buckets: 0, own: Vec::new(), key: [0; KEY], state: TableState::Idle }
    }

    fn begin(&mut self) -> Step {
        if self.buckets == 0 {
            self.state = TableState::Root;
            return Step::one(Operation::Read { at: SEGMENTS, len: 8 });
        }
        if self.work == TableWork::Put && self.own.is_empty() {
            self.state = TableState::Taking;
            let len = 16 + KEY as u64 + self.value.len() as u64;
            return Step::one(Operation::Execute(Call::new(
                "table",
                "take",
                &[ROOT, len, TAKEN],
                b"",
            )));
        }
        let index = hash(SEED, &self.key) & ((1 << FIRST) - 1);
        self.read_bucket(self.buckets + index * BUCKET as u64)
    }

    fn read_bucket(&mut self, at: u64) -> Step {
        assert_ne!(at, 0, "the key is there");
        self.state = TableState::Bucket { at };
        Step::one(Operation::Read { at, len: BUCKET })
    }

    /// Looks at the slots of a bucket from one on.
    fn search(&mut self, at: u64, bytes: &[u8], from: usize) -> Step {
        let fingerprint = hash(SEED, &self.key) >> 56;
        for slot in from..SLOTS {
            let found = word(bytes, 8 + 8 * slot);
            if found >> 2 & 0xff != fingerprint {
                continue;
            }
            let place = Slot { at: at + 8 + 8 * slot as u64, word: found };
            if found & 3 == ITEM {
                let len = 16 * usize::try_from(found >> 23 & 0x1fff).expect("small");
                self.state = TableState::Item { slot: place, bucket: at, bytes: bytes.to_vec() };
                return Step::one(Operation::Read { at: (found >> 36) * 16, len });
            }
            if found & 3 == INLINE && self.is_in_cell(&bytes[32 * (slot + 1)..]) {
                return self.found(place);
            }
        }
        self.read_bucket((word(bytes, 0) >> 8 & 0x0fff_ffff) * 16)
    }

    fn is_in_cell(&self, cell: &[u8]) -> bool {
        usize::from(cell[0]) == KEY && cell[2..2 + KEY] == self.key
    }

    /// An item came: it is the key's, or another one's, or it was replaced meanwhile.
    fn item(&mut self, slot: Slot, bucket: u64, bytes: &[u8], item: &[u8]) -> Step {
        let second = word(item, 8);
        let lens =
            [second >> 16 & 0xffff, second >> 32].map(|len| usize::try_from(len).unwrap_or(0));
        let whole = item.get(16..16 + lens[0] + lens[1]);
        let is_whole = whole.is_some_and(|whole| {
            let (key, value) = whole.split_at(lens[0]);
            hash(hash(second, key), value) == word(item, 0)
                && second & 0x1fff == slot.word >> 10 & 0x1fff
        });
        if !is_whole {
            return self.begin();
        }
        if item[16..16 + lens[0]] == self.key {
            return self.found(slot);
        }
        let next = usize::try_from(slot.at - bucket - 8).expect("small") / 8 + 1;
        self.search(bucket, bytes, next)
    }

    fn found(&mut self, slot: Slot) -> Step {
        if self.work == TableWork::Get {
            return Step::Finished;
        }
        let item = self.own.pop().expect("memory was taken");
        let (bytes, fresh) = self.fresh_item(item);
        self.state = TableState::Replacing { slot, item };
        Step::Post(vec![
            Operation::Write { at: item, bytes },
            Operation::CompareSwap { at: slot.at, compare: slot.word, swap: fresh },
        ])
    }

    /// An item's bytes and the slot's word for it.
    fn fresh_item(&self, at: u64) -> (Vec<u8>, u64) {
        let nonce = (at / 16) & 0x1fff;
        let second = nonce | (KEY as u64) << 16 | (self.value.len() as u64) << 32;
        let check = hash(hash(second, &self.key), &self.value);
        let bytes = words(&[check, second], &[&self.key, &*self.value].concat());
        let units = (bytes.len() as u64).div_ceil(16);
        let fingerprint = hash(SEED, &self.key) >> 56;
        (bytes, ((at / 16) << 36) | (units << 23) | (nonce << 10) | (fingerprint << 2) | ITEM)
    }

    fn replaced(&mut self, slot: Slot, item: u64, old: u64) -> Step {
        if old != slot.word {
            self.own.push(item);
            return self.begin();
        }
        if old & 3 == ITEM {
            self.own.push((old >> 36) * 16);
        }
        Step::Finished
    }

    fn next_key(&mut self, random: &mut Random) -> Step {
        self.key = key(random.below(KEYS));
        self.begin()
    }
}

impl Program for PlainTable {
    fn step(&mut self, moment: Moment<'_>) -> Step {
        let Some(answer) = moment.answer else { return self.next_key(moment.random) };
        match std::mem::replace(&mut self.state, TableState::Idle) {
            TableState::Idle => panic!("an answer to nothing"),
            TableState::Root => {
                self.buckets = word(answer, 0);
                self.begin()
            }
            TableState::Taking => {
                self.own = answer.chunks(8).map(|item| word(item, 0)).collect();
                self.begin()
            }
            TableState::Bucket { at } => self.search(at, answer, 0),
            TableState::Item { slot, bucket, bytes } => self.item(slot, bucket, &bytes, answer),
            TableState::Replacing { slot, item } => self.replaced(slot, item, word(answer, 0)),
        }
    }
}
