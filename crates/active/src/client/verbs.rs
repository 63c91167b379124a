//! Plain verbs on several regions, posted together: Reads, Writes and CompareSwaps, which a node
//! answers in order, in one round trip.

use super::region::{Verb, into_bytes};
use super::{ActiveClient, ActiveError, RemoteRegion};
use outboard_verbs::{OwnedBuf, SendOp, SgList};

/// What is done with bytes of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerbWhat<'a> {
    /// So many are read.
    Read(usize),
    /// These are written.
    Write(&'a [u8]),
    /// The word becomes the second one if it is the first one, in the node's byte order; what it
    /// was is read.
    Swap(u64, u64),
}

/// A one-sided operation on a region.
#[derive(Clone, Copy, Debug)]
pub struct RegionVerb<'a> {
    /// On which.
    pub region: &'a RemoteRegion,
    /// From which byte on.
    pub at: u64,
    /// What is done.
    pub what: VerbWhat<'a>,
}

impl RegionVerb<'_> {
    fn len(&self) -> u64 {
        match self.what {
            VerbWhat::Read(len) => len as u64,
            VerbWhat::Write(bytes) => bytes.len() as u64,
            VerbWhat::Swap(..) => 8,
        }
    }
}

impl ActiveClient {
    /// Posts one-sided operations together and waits for all of them; what was read by each. A
    /// Write is there before a later Read or CompareSwap is done, and need not be behind an earlier
    /// one (RFC 5040 §5.5).
    ///
    /// # Errors
    /// [`ActiveError::Interrupted`]: some of them were done, or none; as all calls.
    pub fn verbs(&mut self, verbs: &[RegionVerb<'_>]) -> Result<Vec<Vec<u8>>, ActiveError> {
        let deadline = self.deadline();
        let Some(first) = verbs.first() else { return Ok(Vec::new()) };
        let mut places = Vec::with_capacity(verbs.len());
        for verb in verbs {
            if !matches!(verb.what, VerbWhat::Read(_)) {
                verb.region.check_write()?;
            }
            // The node would end the connection.
            if matches!(verb.what, VerbWhat::Swap(..)) && !verb.at.is_multiple_of(8) {
                return Err(ActiveError::Unaligned { at: verb.at });
            }
            let memory = self.attached(verb.region, deadline)?.memory;
            places.push((memory, verb.at, verb.len()));
        }
        let make = |index: usize, remote| -> Verb {
            match verbs[index].what {
                VerbWhat::Read(len) => {
                    (SendOp::Read { from: remote }, OwnedBuf::zeroed(len).into())
                }
                VerbWhat::Write(bytes) => (SendOp::Write { to: remote }, SgList::copied(bytes)),
                VerbWhat::Swap(old, new) => {
                    (SendOp::compare_swap(remote, old, new), OwnedBuf::zeroed(8).into())
                }
            }
        };
        let done = self.verbs_in(first.region, places.into_iter(), make, deadline)?;
        Ok(done.into_iter().map(into_bytes).collect())
    }
}
