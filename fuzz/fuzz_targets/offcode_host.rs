//! A module makes arbitrary host calls. What it sees and what is committed is what a plain copy of
//! the region says; what is outside is refused.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use outboard_offcode::ActiveRegion;
use outboard_offcode::host::{Execution, Scratch};

const LEN: usize = 1024;
const SCRATCH: usize = 256;

#[derive(Arbitrary, Debug)]
enum Call {
    Read { offset: u64, to: u32, len: u32 },
    Write { offset: u64, from: u32, len: u32 },
    Load { offset: u64 },
    Store { offset: u64, value: u64 },
    Swap { offset: u64, compare: u64, swap: u64 },
    Add { offset: u64, delta: u64 },
    Log { at: u32, len: u32 },
    Fail { at: u32, len: u32 },
    Commit,
    Abort,
}

struct Bytes([u8; SCRATCH]);

impl Bytes {
    fn range(at: u32, len: usize) -> Option<std::ops::Range<usize>> {
        let end = (at as usize).checked_add(len)?;
        (end <= SCRATCH).then_some(at as usize..end)
    }
}

impl Scratch for Bytes {
    fn read(&self, at: u32, into: &mut [u8]) -> bool {
        let Some(range) = Self::range(at, into.len()) else { return false };
        into.copy_from_slice(&self.0[range]);
        true
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> bool {
        let Some(range) = Self::range(at, bytes.len()) else { return false };
        self.0[range].copy_from_slice(bytes);
        true
    }
}

/// Mostly inside: every fourth offset stays as it is.
fn near(offset: u64) -> u64 {
    if offset.is_multiple_of(4) { offset } else { offset % (LEN as u64 + 8) }
}

fn range(offset: u64, len: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(len)?;
    (end <= LEN).then_some(start..end)
}

fn word(offset: u64) -> Option<std::ops::Range<usize>> {
    range(offset, 8).filter(|range| range.start.is_multiple_of(8))
}

fn value(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight"))
}

libfuzzer_sys::fuzz_target!(|calls: Vec<Call>| {
    let region = ActiveRegion::new("fuzz", LEN, LEN).expect("memory");
    let mut execution = Execution::new(region.memory().clone(), LEN);
    execution.reset(true);
    let (mut committed, mut seen) = (vec![0_u8; LEN], vec![0_u8; LEN]);
    let mut scratch = Bytes([7; SCRATCH]);
    let mut since = region.begin();
    for call in calls.into_iter().take(200) {
        match call {
            Call::Read { offset, to, len } => {
                let (offset, to, len) = (near(offset), to % 300, len % 300);
                let expected = range(offset, len as usize)
                    .filter(|_| Bytes::range(to, len as usize).is_some());
                let read = execution.read(&mut scratch, offset, to, len);
                assert_eq!(read.is_ok(), expected.is_some());
                if let Some(expected) = expected {
                    let at = to as usize;
                    assert_eq!(&scratch.0[at..at + len as usize], &seen[expected]);
                }
            }
            Call::Write { offset, from, len } => {
                let (offset, from, len) = (near(offset), from % 300, len % 300);
                let expected = range(offset, len as usize);
                let source = Bytes::range(from, len as usize);
                let written = execution.write(&scratch, offset, from, len);
                assert_eq!(written.is_ok(), expected.is_some() && source.is_some());
                if let (Some(expected), Some(source)) = (expected, source) {
                    seen[expected].copy_from_slice(&scratch.0[source]);
                }
            }
            Call::Load { offset } => {
                let offset = near(offset);
                let expected = word(offset).map(|range| value(&seen[range]));
                assert_eq!(execution.load64(offset).ok(), expected);
            }
            Call::Store { offset, value } => {
                let offset = near(offset);
                assert_eq!(execution.store64(offset, value).is_ok(), word(offset).is_some());
                if let Some(range) = word(offset) {
                    seen[range].copy_from_slice(&value.to_le_bytes());
                }
            }
            Call::Swap { offset, compare, swap } => {
                let offset = near(offset);
                let expected = word(offset).map(|range| value(&seen[range]));
                assert_eq!(execution.cas64(offset, compare, swap).ok(), expected);
                if let Some(range) = word(offset).filter(|_| expected == Some(compare)) {
                    seen[range].copy_from_slice(&swap.to_le_bytes());
                }
            }
            Call::Add { offset, delta } => {
                let offset = near(offset);
                let expected = word(offset).map(|range| value(&seen[range]));
                assert_eq!(execution.add64(offset, delta).ok(), expected);
                if let (Some(range), Some(old)) = (word(offset), expected) {
                    seen[range].copy_from_slice(&old.wrapping_add(delta).to_le_bytes());
                }
            }
            Call::Log { at, len } => {
                let _said = execution.say(&scratch, at, len);
                assert!(execution.log().len() <= 4096);
            }
            Call::Fail { at, len } => drop(execution.fail(&scratch, 1, at, len)),
            Call::Commit => {
                region.writer().commit(&execution, since, None, None).expect("nobody else writes");
                committed.copy_from_slice(&seen);
                execution.reset(true);
                since = region.begin();
            }
            Call::Abort => {
                seen.copy_from_slice(&committed);
                execution.reset(true);
            }
        }
        assert!(region.snapshot().expect("memory") == committed);
    }
});
