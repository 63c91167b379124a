//! The memory into which one server writes results: a region for each of its slots, emptied part by
//! part. Results are accepted only if they have the length and hash that the server announces.
//!
//! Long results are hashed part by part and never copied as a whole: the loop that takes them
//! serves all wrappers.

use crate::protocol::{
    Made, OUTPUT_MAX, RESULT_BUFFER_BYTES, RESULTS_MAX, Ran, SLOTS_MAX, TicketNumber,
};
use outboard_verbs::{MemError, SharedRegion, SharedSlice};
use std::collections::HashMap;
use std::ops::Range;
use std::thread;

/// Bytes that the loop's own thread frees; more are freed by another thread.
const DROPPED_MAX: usize = 64 << 20;

/// Why results cannot be used. The server is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResultsError {
    #[error("the server names slot {slot} and has {slots}")]
    Slot { slot: u32, slots: u32 },
    #[error("the server announces {len} bytes in a result buffer of {RESULT_BUFFER_BYTES}")]
    ResultBuffer { len: u32 },
    #[error("the server returns results of more than {RESULTS_MAX} bytes")]
    TooLong,
    #[error("the server returns messages of more than {OUTPUT_MAX} bytes")]
    Messages,
    #[error("the server announces {announced} bytes and has written {found}")]
    Length { announced: u64, found: u64 },
    #[error("the results do not have the hash that the server announces")]
    Hash,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct ResultBuffer {
    memory: SharedRegion,
    slots: u32,
    parts: HashMap<TicketNumber, Parts>,
}

/// The parts of a job's results so far.
#[derive(Debug, Default)]
struct Parts {
    bytes: Received,
    hasher: Box<blake3::Hasher>,
}

impl Parts {
    fn add(&mut self, part: &[u8]) {
        self.hasher.update(part);
        self.bytes.0.extend_from_slice(part);
    }
}

/// Bytes of results, one after the other.
#[derive(Debug, Default, PartialEq, Eq)]
struct Received(Vec<u8>);

impl Drop for Received {
    fn drop(&mut self) {
        // Freeing a gigabyte takes the kernel longer than wrappers should wait.
        if self.0.len() > DROPPED_MAX {
            let bytes = std::mem::take(&mut self.0);
            thread::spawn(move || drop(bytes));
        }
    }
}

/// The results of a compiler.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Results {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    files: Vec<(Made, Range<usize>)>,
    bytes: Received,
}

impl Results {
    /// Results of which these are the bytes, as many as `ran` announces. Files stay where they are.
    pub(crate) fn of(bytes: Vec<u8>, ran: &Ran) -> Self {
        let mut at = 0;
        let mut next = |len: u64| {
            let start = at;
            at += usize::try_from(len).expect("they are all here");
            start..at
        };
        let [stdout, stderr] = [next(ran.stdout), next(ran.stderr)].map(|at| bytes[at].to_vec());
        let files = ran.files.iter().map(|made| (made.clone(), next(made.len))).collect();
        Self { stdout, stderr, files, bytes: Received(bytes) }
    }

    /// The files, with their contents.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Made, &[u8])> {
        self.files.iter().map(|(made, at)| (made, &self.bytes.0[at.clone()]))
    }

    /// Bytes of all files.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.files.iter().map(|(made, _)| made.len).sum()
    }
}

impl ResultBuffer {
    /// A buffer for a server with this many slots. Pages take memory only once they are written.
    pub(crate) fn new(slots: u32) -> Result<Self, MemError> {
        let slots = slots.clamp(1, SLOTS_MAX);
        let memory = SharedRegion::zeroed(slots as usize * RESULT_BUFFER_BYTES)?;
        Ok(Self { memory, slots, parts: HashMap::new() })
    }

    pub(crate) fn memory(&self) -> Result<SharedSlice, MemError> {
        self.memory.slice(0..self.memory.len())
    }

    /// Takes a part of a job's results out of a slot's region.
    pub(crate) fn take_part(
        &mut self,
        ticket: TicketNumber,
        slot: u32,
        len: u32,
    ) -> Result<(), ResultsError> {
        let part = self.take(slot, len)?;
        let all: usize = self.parts.values().map(|parts| parts.bytes.0.len()).sum();
        if all + part.len() > RESULTS_MAX {
            return Err(ResultsError::TooLong);
        }
        self.parts.entry(ticket).or_default().add(&part);
        Ok(())
    }

    /// Drops the parts of a job that was cancelled.
    pub(crate) fn forget(&mut self, ticket: TicketNumber) {
        self.parts.remove(&ticket);
    }

    /// Takes the rest of a job's results, and checks all of them against what the server announces.
    pub(crate) fn take_results(
        &mut self,
        ticket: TicketNumber,
        ran: &Ran,
    ) -> Result<Results, ResultsError> {
        let mut parts = self.parts.remove(&ticket).unwrap_or_default();
        parts.add(&self.take(ran.slot, ran.len)?);
        let lens =
            [ran.stdout, ran.stderr].into_iter().chain(ran.files.iter().map(|made| made.len));
        let announced = lens.fold(0_u64, u64::saturating_add);
        let found = parts.bytes.0.len() as u64;
        if announced != found {
            return Err(ResultsError::Length { announced, found });
        }
        if parts.hasher.finalize() != ran.hash {
            return Err(ResultsError::Hash);
        }
        if ran.stdout.max(ran.stderr) > OUTPUT_MAX {
            return Err(ResultsError::Messages);
        }
        Ok(Results::of(std::mem::take(&mut parts.bytes.0), ran))
    }

    fn take(&self, slot: u32, len: u32) -> Result<Vec<u8>, ResultsError> {
        if slot >= self.slots {
            return Err(ResultsError::Slot { slot, slots: self.slots });
        }
        if len as usize > RESULT_BUFFER_BYTES {
            return Err(ResultsError::ResultBuffer { len });
        }
        let at = slot as usize * RESULT_BUFFER_BYTES;
        self.memory.snapshot(at..at + len as usize).map_err(|_| ResultsError::ResultBuffer { len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Took;

    fn ran(bytes: &[u8], stdout: u64, stderr: u64, files: &[u64]) -> Ran {
        let made = |len: &u64| Made { path: b"/o".to_vec(), mode: 0o644, len: *len };
        Ran {
            slot: 1,
            status: 0,
            stdout,
            stderr,
            files: files.iter().map(made).collect(),
            len: u32::try_from(bytes.len()).expect("short"),
            hash: *blake3::hash(bytes).as_bytes(),
            took: Took::default(),
        }
    }

    fn result_buffer(bytes: &[u8]) -> ResultBuffer {
        let result_buffer = ResultBuffer::new(2).expect("memory");
        result_buffer.memory.copy_in(RESULT_BUFFER_BYTES, bytes).expect("inside");
        result_buffer
    }

    #[test]
    fn results_are_split_as_announced() {
        let bytes = b"outerr.object.d";
        let results =
            result_buffer(bytes).take_results(1, &ran(bytes, 3, 3, &[7, 2])).expect("good");
        assert_eq!((&results.stdout[..], &results.stderr[..]), (&b"out"[..], &b"err"[..]));
        let files: Vec<_> = results.files().map(|(_, bytes)| bytes).collect();
        assert_eq!(files, [&b".object"[..], &b".d"[..]]);
    }

    #[test]
    fn parts_come_before_the_rest() {
        let mut result_buffer = result_buffer(b"first");
        result_buffer.take_part(7, 1, 5).expect("a part");
        result_buffer.memory.copy_in(RESULT_BUFFER_BYTES, b"second").expect("inside");
        let mut ran = ran(b"firstsecond", 0, 0, &[11]);
        ran.len = 6;
        let results = result_buffer.take_results(7, &ran).expect("good");
        assert_eq!(results.files().next().expect("a file").1, b"firstsecond");
    }

    #[test]
    fn parts_of_all_jobs_together_are_bounded() {
        let mut result_buffer = result_buffer(b"");
        let long = Parts { bytes: Received(vec![0; RESULTS_MAX - 1]), ..Parts::default() };
        result_buffer.parts.insert(0, long);
        assert_eq!(result_buffer.take_part(1, 0, 1), Ok(()));
        assert_eq!(result_buffer.take_part(2, 0, 1), Err(ResultsError::TooLong));
        result_buffer.forget(0);
        assert_eq!(result_buffer.take_part(2, 0, 1), Ok(()));
    }

    #[test]
    fn results_that_differ_from_the_announcement_are_refused() {
        let bytes = b"result";
        let good = ran(bytes, 6, 0, &[]);
        let lies = [
            (Ran { slot: 2, ..good.clone() }, ResultsError::Slot { slot: 2, slots: 2 }),
            (Ran { len: 1 << 21, ..good.clone() }, ResultsError::ResultBuffer { len: 1 << 21 }),
            (Ran { stdout: 5, ..good.clone() }, ResultsError::Length { announced: 5, found: 6 }),
            (
                Ran { stderr: u64::MAX, ..good.clone() },
                ResultsError::Length { announced: u64::MAX, found: 6 },
            ),
            (Ran { hash: [0; 32], ..good.clone() }, ResultsError::Hash),
        ];
        for (lie, error) in lies {
            assert_eq!(result_buffer(bytes).take_results(1, &lie), Err(error));
        }
        assert!(result_buffer(bytes).take_results(1, &good).is_ok());
    }
}
