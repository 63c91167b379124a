//! Commits of a region told to somebody in their order, and what was told applied to other memory.
//!
//! Says nothing of where commits are kept: whoever observes does.

use super::{ActiveRegion, RegionWriter};
use crate::journal::RequestId;
use crate::write_set::{ENCODED, WrittenLine};
use outboard_mem::{MemError, SharedRegion};
use std::fmt;

/// Is told of each commit of a region.
pub trait CommitObserver: fmt::Debug + Send + Sync {
    /// A commit was made: its number, the lines that it has written, as [`replay`] takes them, and
    /// whose request it answers by which bytes. All other commits wait until this returns; an
    /// execution may be waiting on the service's own thread, so that this must not wait for
    /// anything.
    fn committed(&self, seq: u64, lines: &[u8], answer: Option<(RequestId, &[u8])>);
}

/// A region tells one observer only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the region has an observer of its commits already: make it once, when it is opened")]
pub struct AlreadyObserved;

/// Why lines were not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// They are none that a region has told.
    #[error("{found} bytes are no whole number of written lines: whoever kept them has lost some")]
    Cut {
        /// Their bytes.
        found: usize,
    },
    /// They lie outside of the memory, or this machine's memory fails.
    #[error(transparent)]
    Memory(#[from] MemError),
}

impl ActiveRegion {
    /// Tells all commits from now on to an observer. Returns the number of the last commit that it
    /// is not told.
    ///
    /// # Errors
    /// [`AlreadyObserved`].
    pub fn observe(&self, observer: Box<dyn CommitObserver>) -> Result<u64, AlreadyObserved> {
        let _writer: RegionWriter<'_> = self.writer();
        self.observer.set(observer).map_err(|_| AlreadyObserved)?;
        Ok(self.seq())
    }
}

/// Applies the lines of a commit to memory that nobody else uses yet.
///
/// # Errors
/// [`ReplayError`]; then some of them may be applied.
pub fn replay(memory: &SharedRegion, lines: &[u8]) -> Result<(), ReplayError> {
    if !lines.len().is_multiple_of(ENCODED) {
        return Err(ReplayError::Cut { found: lines.len() });
    }
    for line in WrittenLine::decode(lines) {
        for (offset, bytes) in line.runs() {
            memory.copy_in(usize::try_from(offset).unwrap_or(usize::MAX), bytes)?;
        }
    }
    Ok(())
}

/// What the lines of a commit have written: where each run of bytes is, in order, and the bytes.
///
/// # Errors
/// [`ReplayError::Cut`].
pub fn written_runs(lines: &[u8]) -> Result<Vec<(u64, Vec<u8>)>, ReplayError> {
    if !lines.len().is_multiple_of(ENCODED) {
        return Err(ReplayError::Cut { found: lines.len() });
    }
    let mut lines: Vec<WrittenLine> = WrittenLine::decode(lines).collect();
    lines.sort_by_key(|line| line.number);
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    for line in &lines {
        for (at, bytes) in line.runs() {
            match runs.last_mut() {
                Some((start, run)) if *start + run.len() as u64 == at => run.extend(bytes),
                _ => runs.push((at, bytes.to_vec())),
            }
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Execution;
    use std::sync::{Arc, Mutex};

    type Commits = Vec<(u64, Vec<u8>)>;

    #[derive(Debug, Default)]
    struct Told(Arc<Mutex<Commits>>);

    impl CommitObserver for Told {
        fn committed(&self, seq: u64, lines: &[u8], _: Option<(RequestId, &[u8])>) {
            self.0.lock().expect("not poisoned").push((seq, lines.to_vec()));
        }
    }

    fn commit(region: &ActiveRegion, words: &[(u64, u64)]) {
        let mut execution = Execution::new(region.memory().clone(), region.write_max());
        execution.reset(true);
        for (offset, value) in words {
            execution.store64(*offset, *value).expect("inside");
        }
        let (since, mut writer) = (region.begin(), region.writer());
        writer.commit(&execution, since, None, None).expect("nothing else commits");
    }

    #[test]
    fn what_was_told_makes_the_same_memory() {
        let region = ActiveRegion::new("test", 1 << 16, 4096).expect("memory");
        commit(&region, &[]);
        let told = Told::default();
        let all = Arc::clone(&told.0);
        assert_eq!(region.observe(Box::new(told)), Ok(1));
        commit(&region, &[(8, 1), (16, 2), (4096, 3)]);
        commit(&region, &[(16, 4), (0xfff8, 5)]);
        assert_eq!(region.observe(Box::new(Told::default())), Err(AlreadyObserved));
        let memory = SharedRegion::zeroed(1 << 16).expect("memory");
        let told = all.lock().expect("not poisoned");
        assert_eq!(told.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [2, 3]);
        told.iter().for_each(|(_, lines)| replay(&memory, lines).expect("inside"));
        assert_eq!(memory.snapshot(0..1 << 16), region.snapshot());
        let runs = written_runs(&told[0].1).expect("whole lines");
        let words = [1_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat();
        assert_eq!(runs, [(8, words), (4096, 3_u64.to_le_bytes().to_vec())]);
    }

    #[test]
    fn lines_of_something_else_are_refused() {
        let memory = SharedRegion::zeroed(4096).expect("memory");
        assert_eq!(replay(&memory, &[1; 81]), Err(ReplayError::Cut { found: 81 }));
        assert!(matches!(replay(&memory, &[0xff; 80]), Err(ReplayError::Memory(_))));
    }
}
