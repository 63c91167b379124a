//! A region that follows another one: commits that were told of that one's, made here under the
//! same numbers, with the same answers. Nothing else may commit to it meanwhile.

use super::{ANSWERS_DEFAULT, ActiveRegion, RegionWriter, apply};
use crate::journal::{JournalError, RegionJournal, RequestId};
use crate::write_set::{ENCODED, WrittenLine};
use outboard_mem::{MemError, SharedRegion};
use std::sync::atomic::{Ordering, fence};

/// Why a commit of another region was not made here. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    /// It is none that a region of this shape makes.
    #[error("{what}: whoever has told it follows other rules than this release's")]
    Foreign {
        /// What is wrong with it.
        what: &'static str,
    },
    /// Others come before it, or it was made already.
    #[error("commit {found} was told, and {expected} is next")]
    Order {
        /// Which was told.
        found: u64,
        /// Which is next.
        expected: u64,
    },
    /// This machine's memory.
    #[error(transparent)]
    Memory(#[from] MemError),
}

impl ActiveRegion {
    /// A region with memory of the caller's, which has the state of another region's commit `seq`.
    ///
    /// # Errors
    /// [`JournalError`]: this machine's memory.
    pub fn behind(
        name: &str,
        memory: SharedRegion,
        write_max: usize,
        seq: u64,
    ) -> Result<Self, JournalError> {
        let journal = RegionJournal::behind(write_max, ANSWERS_DEFAULT, seq)?;
        Self::of(name, memory, journal, write_max)
    }
}

impl RegionWriter<'_> {
    /// Makes a commit of the other region: the next one.
    ///
    /// # Errors
    /// [`FollowError`].
    pub fn follow(
        &mut self,
        seq: u64,
        lines: &[u8],
        answer: Option<(RequestId, &[u8])>,
    ) -> Result<(), FollowError> {
        let region = self.region;
        let expected = self.journal.seq() + 1;
        if seq != expected {
            return Err(FollowError::Order { found: seq, expected });
        }
        let decoded = self.sound(lines)?;
        if answer.is_some_and(|(_, bytes)| bytes.len() > self.journal.answer_max()) {
            return Err(FollowError::Foreign { what: "an answer is longer than any" });
        }
        let closed = region.memory.close_gate();
        self.journal.commit(lines, answer)?;
        region.changed.note(&decoded);
        let since = region.version.load(Ordering::Relaxed);
        region.seq.store(seq, Ordering::Release);
        region.version.store(since + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let applied = decoded.iter().try_for_each(|line| apply(&closed, line));
        region.version.store(since + 2, Ordering::Release);
        region.head.store_u64(0, since + 2)?;
        if let Some(observer) = region.observer.get() {
            observer.committed(seq, lines, answer);
        }
        applied?;
        self.journal.applied()?;
        Ok(())
    }

    /// The lines of bytes that came from elsewhere, all of them inside of the region.
    fn sound(&self, lines: &[u8]) -> Result<Vec<WrittenLine>, FollowError> {
        if !lines.len().is_multiple_of(ENCODED) || lines.len() > self.journal.lines_max() {
            return Err(FollowError::Foreign { what: "bytes are no lines of a commit" });
        }
        let len = self.region.memory.len() as u64;
        let decoded: Vec<WrittenLine> = WrittenLine::decode(lines).collect();
        let is_inside = |(at, bytes): (u64, &[u8])| {
            at.checked_add(bytes.len() as u64).is_some_and(|end| end <= len)
        };
        let numbers = len.div_ceil(ENCODED as u64 - 16);
        match decoded.iter().all(|line| line.number < numbers && line.runs().all(is_inside)) {
            true => Ok(decoded),
            false => Err(FollowError::Foreign { what: "a line lies outside of the region" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Execution;
    use crate::journal::Earlier;
    use crate::region::CommitObserver;
    use std::sync::{Arc, Mutex};

    type Commits = Vec<(u64, Vec<u8>, Option<(RequestId, Vec<u8>)>)>;

    #[derive(Debug, Default)]
    struct Told(Arc<Mutex<Commits>>);

    impl CommitObserver for Told {
        fn committed(&self, seq: u64, lines: &[u8], answer: Option<(RequestId, &[u8])>) {
            let answer = answer.map(|(id, bytes)| (id, bytes.to_vec()));
            self.0.lock().expect("not poisoned").push((seq, lines.to_vec(), answer));
        }
    }

    fn commit(region: &ActiveRegion, word: (u64, u64), answer: Option<(RequestId, &[u8])>) {
        let mut execution = Execution::new(region.memory().clone(), region.write_max());
        execution.reset(true);
        execution.store64(word.0, word.1).expect("inside");
        let (since, mut writer) = (region.begin(), region.writer());
        writer.commit(&execution, since, answer, None).expect("nothing else commits");
    }

    #[test]
    fn a_follower_has_the_bytes_and_knows_the_answers() {
        let region = ActiveRegion::new("test", 1 << 16, 4096).expect("memory");
        commit(&region, (8, 1), None);
        let memory = SharedRegion::memfd(c"test", 1 << 16, outboard_mem::Space::OnDemand);
        let memory = memory.expect("memory");
        memory.copy_in(0, &region.snapshot().expect("a copy")).expect("inside");
        let follower = ActiveRegion::behind("test", memory, 4096, 1).expect("memory");
        let told = Told::default();
        let all = Arc::clone(&told.0);
        region.observe(Box::new(told)).expect("nobody does");
        let id = RequestId { client: [3; 16], number: 7 };
        commit(&region, (16, 2), Some((id, b"answer")));
        commit(&region, (0xfff8, 3), None);
        for (seq, lines, answer) in all.lock().expect("not poisoned").iter() {
            let answer = answer.as_ref().map(|(id, bytes)| (*id, &bytes[..]));
            follower.writer().follow(*seq, lines, answer).expect("the next one");
        }
        assert_eq!((follower.seq(), follower.snapshot()), (3, region.snapshot()));
        assert_eq!(follower.find(id, 1), Ok(Earlier::Answered(b"answer".to_vec())));
        let other = RequestId { client: [3; 16], number: 6 };
        assert_eq!(follower.find(other, 1), Ok(Earlier::NotExecuted));
        assert_eq!(follower.find(other, 0), Ok(Earlier::Unknown), "it was not told of that");
    }

    #[test]
    fn what_no_region_makes_is_refused() {
        let region = ActiveRegion::new("test", 4096, 4096).expect("memory");
        let mut writer = region.writer();
        let refused = |made: Result<(), FollowError>| match made {
            Err(FollowError::Foreign { .. }) => true,
            other => panic!("{other:?}"),
        };
        assert_eq!(writer.follow(2, &[], None), Err(FollowError::Order { found: 2, expected: 1 }));
        assert!(refused(writer.follow(1, &[1; 81], None)));
        assert!(refused(writer.follow(1, &[0xff; 80], None)), "outside");
        let mut last = [0; 80];
        last[..8].copy_from_slice(&64_u64.to_le_bytes());
        last[8] = 1;
        assert!(refused(writer.follow(1, &last, None)), "one byte behind the end");
        assert!(refused(writer.follow(1, &vec![0; 80 * 1000], None)), "longer than any");
        assert_eq!(writer.follow(1, &[], None), Ok(()));
    }
}
