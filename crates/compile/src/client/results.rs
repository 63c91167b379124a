//! What servers place here: one landing place a slot, emptied part by part, and believed only when
//! everything in it hashes to what the server says.

use crate::protocol::{LANDING, Made, Ran, SLOTS_MAX, TicketNumber};
use outboard_verbs::{MemError, SharedRegion, SharedSlice};
use std::collections::HashMap;

/// Octets of a server's results that are not whole yet, at most.
const RESULTS_MAX: usize = 1 << 30;

/// Why results are of no use. All are the server's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResultsError {
    #[error("slot {slot} of a server that has {slots}")]
    Slot { slot: u32, slots: u32 },
    #[error("{len} octets in a place for {LANDING}")]
    Landing { len: u32 },
    #[error("results of more than {RESULTS_MAX} octets")]
    TooLong,
    #[error("{announced} octets announced and {found} placed")]
    Length { announced: u64, found: u64 },
    #[error("results that do not hash to what was announced")]
    Hash,
}

/// The landing places of one server.
#[derive(Debug)]
pub(crate) struct Landing {
    memory: SharedRegion,
    slots: u32,
    parts: HashMap<TicketNumber, Vec<u8>>,
}

/// What a compiler left behind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Results {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) files: Vec<(Made, Vec<u8>)>,
}

impl Landing {
    /// Room for a server of this many slots. Pages are used once they are written.
    pub(crate) fn new(slots: u32) -> Result<Self, MemError> {
        let slots = slots.clamp(1, SLOTS_MAX);
        let memory = SharedRegion::zeroed(slots as usize * LANDING)?;
        Ok(Self { memory, slots, parts: HashMap::new() })
    }

    pub(crate) fn memory(&self) -> Result<SharedSlice, MemError> {
        self.memory.slice(0..self.memory.len())
    }

    /// Takes a part of a job's results out of a slot's place.
    pub(crate) fn take_part(
        &mut self,
        ticket: TicketNumber,
        slot: u32,
        len: u32,
    ) -> Result<(), ResultsError> {
        let part = self.take(slot, len)?;
        let all: usize = self.parts.values().map(Vec::len).sum();
        if all + part.len() > RESULTS_MAX {
            return Err(ResultsError::TooLong);
        }
        let parts = self.parts.entry(ticket).or_default();
        parts.extend_from_slice(&part);
        Ok(())
    }

    /// Nobody waits for these results any more.
    pub(crate) fn forget(&mut self, ticket: TicketNumber) {
        self.parts.remove(&ticket);
    }

    /// Takes the rest of a job's results, all of which must be what the server says.
    pub(crate) fn take_results(
        &mut self,
        ticket: TicketNumber,
        ran: &Ran,
    ) -> Result<Results, ResultsError> {
        let mut octets = self.parts.remove(&ticket).unwrap_or_default();
        octets.extend_from_slice(&self.take(ran.slot, ran.len)?);
        let lens =
            [ran.stdout, ran.stderr].into_iter().chain(ran.files.iter().map(|made| made.len));
        let announced = lens.fold(0_u64, u64::saturating_add);
        let found = octets.len() as u64;
        if announced != found {
            return Err(ResultsError::Length { announced, found });
        }
        if blake3::hash(&octets) != ran.hash {
            return Err(ResultsError::Hash);
        }
        Ok(split(&octets, ran))
    }

    fn take(&self, slot: u32, len: u32) -> Result<Vec<u8>, ResultsError> {
        if slot >= self.slots {
            return Err(ResultsError::Slot { slot, slots: self.slots });
        }
        if len as usize > LANDING {
            return Err(ResultsError::Landing { len });
        }
        let at = slot as usize * LANDING;
        self.memory.snapshot(at..at + len as usize).map_err(|_| ResultsError::Landing { len })
    }
}

/// `octets` are as many as `ran` announces.
fn split(octets: &[u8], ran: &Ran) -> Results {
    let mut rest = octets;
    let mut next = |len: u64| {
        let (one, others) = rest.split_at(usize::try_from(len).expect("they are all here"));
        rest = others;
        one.to_vec()
    };
    let (stdout, stderr) = (next(ran.stdout), next(ran.stderr));
    let files = ran.files.iter().map(|made| (made.clone(), next(made.len))).collect();
    Results { stdout, stderr, files }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Took;

    fn ran(octets: &[u8], stdout: u64, stderr: u64, files: &[u64]) -> Ran {
        let made = |len: &u64| Made { path: b"/o".to_vec(), mode: 0o644, len: *len };
        Ran {
            slot: 1,
            status: 0,
            stdout,
            stderr,
            files: files.iter().map(made).collect(),
            len: u32::try_from(octets.len()).expect("short"),
            hash: *blake3::hash(octets).as_bytes(),
            took: Took::default(),
        }
    }

    fn landing(octets: &[u8]) -> Landing {
        let landing = Landing::new(2).expect("memory");
        landing.memory.copy_in(LANDING, octets).expect("inside");
        landing
    }

    #[test]
    fn results_come_apart_as_announced() {
        let octets = b"outerr.object.d";
        let results = landing(octets).take_results(1, &ran(octets, 3, 3, &[7, 2])).expect("good");
        assert_eq!((&results.stdout[..], &results.stderr[..]), (&b"out"[..], &b"err"[..]));
        let files: Vec<_> = results.files.iter().map(|(_, octets)| &octets[..]).collect();
        assert_eq!(files, [&b".object"[..], &b".d"[..]]);
    }

    #[test]
    fn parts_come_before_the_rest() {
        let mut landing = landing(b"first");
        landing.take_part(7, 1, 5).expect("a part");
        landing.memory.copy_in(LANDING, b"second").expect("inside");
        let mut ran = ran(b"firstsecond", 0, 0, &[11]);
        ran.len = 6;
        let results = landing.take_results(7, &ran).expect("good");
        assert_eq!(results.files[0].1, b"firstsecond");
    }

    #[test]
    fn parts_of_all_jobs_together_are_bounded() {
        let mut landing = landing(b"");
        landing.parts.insert(0, vec![0; RESULTS_MAX - 1]);
        assert_eq!(landing.take_part(1, 0, 1), Ok(()));
        assert_eq!(landing.take_part(2, 0, 1), Err(ResultsError::TooLong));
        landing.forget(0);
        assert_eq!(landing.take_part(2, 0, 1), Ok(()));
    }

    #[test]
    fn lies_are_found() {
        let octets = b"octets";
        let good = ran(octets, 6, 0, &[]);
        let lies = [
            (Ran { slot: 2, ..good.clone() }, ResultsError::Slot { slot: 2, slots: 2 }),
            (Ran { len: 1 << 21, ..good.clone() }, ResultsError::Landing { len: 1 << 21 }),
            (Ran { stdout: 5, ..good.clone() }, ResultsError::Length { announced: 5, found: 6 }),
            (
                Ran { stderr: u64::MAX, ..good.clone() },
                ResultsError::Length { announced: u64::MAX, found: 6 },
            ),
            (Ran { hash: [0; 32], ..good.clone() }, ResultsError::Hash),
        ];
        for (lie, error) in lies {
            assert_eq!(landing(octets).take_results(1, &lie), Err(error));
        }
        assert!(landing(octets).take_results(1, &good).is_ok());
    }
}
