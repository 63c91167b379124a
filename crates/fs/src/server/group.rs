//! Names of one directory that a batch removes one after the other: the module removes some of them
//! by one execution, up to the first that cannot be removed, which is then asked for by itself.
//!
//! The same batch, asked for again, makes the same groups under the same numbers: the journal's
//! answer for a group says how many it removed.

use super::backend::FsBackend;
use super::batch::ANSWER_MAX;
use super::call::{BatchWork, FsWork};
use crate::protocol::{
    BATCH_QUIET, BatchDone, FsAnswer, FsInode, FsLayout, FsNameArgs, FsRemoved, FsUnlinkArgs,
    TouchedInodes, UNLINK_MAX,
};
use outboard_active::Outcome;

const UNLINK: &str = "unlink";

/// Names that are removed together, the first one first.
#[derive(Debug, Default)]
pub(super) struct RemovedGroup(Vec<Vec<u8>>);

impl RemovedGroup {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl BatchWork {
    /// Takes the next names that can be removed together from the changes; the arguments for that.
    pub(super) fn next_group(&mut self) -> Option<Vec<u8>> {
        if self.flags & BATCH_QUIET == 0 || std::mem::take(&mut self.is_alone) {
            return None;
        }
        let head = |(entry, args): &(String, Vec<u8>)| match entry.as_str() {
            UNLINK => FsNameArgs::split(args).map(|(head, _)| head),
            _ => None,
        };
        let first = self.changes.last().and_then(head)?;
        let is_of_it = |change: &&(String, Vec<u8>)| head(change) == Some(first);
        let count = self.changes.iter().rev().take(UNLINK_MAX).take_while(is_of_it).count();
        if count < 2 {
            return None;
        }
        let taken = self.changes.drain(self.changes.len() - count..).rev();
        self.group = RemovedGroup(taken.map(|(_, args)| args).collect());
        let FsNameArgs { who, dir, flags, .. } = first;
        let args = FsUnlinkArgs { who, dir, flags, count: u32::try_from(count).unwrap_or(0) };
        let mut bytes = args.bytes();
        for name in self.group.0.iter().filter_map(|args| FsNameArgs::split(args)) {
            let len = u16::try_from(name.1.len()).unwrap_or(u16::MAX);
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(name.1);
        }
        Some(bytes)
    }

    /// What of a group was not removed is asked for again, the first of it by itself.
    fn end_group(&mut self, removed: usize) {
        let names = std::mem::take(&mut self.group).0;
        self.is_alone = removed < names.len();
        let rest = names.into_iter().skip(removed).rev();
        self.changes.extend(rest.map(|args| (UNLINK.to_owned(), args)));
        // The group's number is the first of them.
        self.place += removed.saturating_sub(1) as u64;
        for _ in 0..removed {
            BatchDone { failure: 0, len: 0 }.put(&mut self.result);
        }
    }
}

/// What a group's execution says: the directory, and what was removed.
fn parse(result: &[u8]) -> Option<(FsInode, Vec<FsRemoved>)> {
    let (dir, mut rest) = FsAnswer::split(result)?;
    let mut removed = Vec::new();
    while !rest.is_empty() {
        removed.push(FsRemoved::take(&mut rest)?);
    }
    (removed.len() <= UNLINK_MAX).then_some((dir.inode, removed))
}

impl FsBackend {
    /// A group's execution is over.
    pub(super) fn done_of_group(&mut self, token: u64, outcome: &Outcome) {
        let (dir, removed) = match outcome {
            Outcome::Done { result, .. } => parse(result).unwrap_or_default(),
            _ => (FsInode::default(), Vec::new()),
        };
        for one in &removed {
            self.name_removed(one);
        }
        let Some(call) = self.calls.get_mut(&token) else { return };
        let FsWork::Batch(work) = &mut call.work else { return };
        let peer = call.peer;
        work.end_group(removed.len());
        if let Outcome::Done { seq, .. } = outcome {
            work.seq = work.seq.max(*seq);
        }
        if !removed.is_empty() {
            let touched = TouchedInodes { dirs: vec![dir], inode: None };
            let inodes = removed.iter().map(|one| one.inode);
            self.recall_removed((peer, token), &touched, inodes);
        }
        self.next_of_batch(token);
    }
}

const _: () = assert!(FsAnswer::LEN + UNLINK_MAX * FsRemoved::LEN <= ANSWER_MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::BATCH_GOES_ON;

    fn unlink(dir: u64, name: &str) -> (String, Vec<u8>) {
        let dir = FsInode { number: dir, generation: 1 };
        let args = FsNameArgs { dir, ..FsNameArgs::default() };
        (UNLINK.to_owned(), [&args.bytes(), name.as_bytes()].concat())
    }

    fn work(flags: u32, changes: Vec<(String, Vec<u8>)>) -> BatchWork {
        let mut work = BatchWork { flags, changes, ..BatchWork::default() };
        work.changes.reverse();
        work
    }

    fn names(work: &BatchWork) -> Vec<&[u8]> {
        work.group.0.iter().filter_map(|args| FsNameArgs::split(args)).map(|all| all.1).collect()
    }

    #[test]
    fn what_follows_in_one_directory_is_a_group() {
        let changes = [(1, "a"), (1, "b"), (2, "c"), (2, "d"), (3, "e")];
        let changes = changes.map(|(dir, name)| unlink(dir, name)).to_vec();
        let quiet = BATCH_QUIET | BATCH_GOES_ON;
        let mut batch = work(quiet, changes.clone());
        let args = batch.next_group().expect("two");
        let (head, rest) = FsUnlinkArgs::split(&args).expect("arguments");
        assert_eq!((head.dir.number, head.count, rest), (1, 2, &b"\x01\0a\x01\0b"[..]));
        batch.place = 1;
        batch.end_group(2);
        assert_eq!((batch.place, batch.is_alone, batch.result.len()), (2, false, 16));
        // The second of these cannot be removed.
        assert!(batch.next_group().is_some());
        assert_eq!(names(&batch), [b"c", b"d"]);
        batch.place = 3;
        batch.end_group(1);
        assert_eq!((batch.place, batch.is_alone), (3, true));
        assert_eq!(batch.changes.last(), Some(&unlink(2, "d")));
        assert!(batch.next_group().is_none(), "it is asked for by itself");
        batch.changes.pop();
        assert!(batch.next_group().is_none(), "there is one");
        assert!(work(BATCH_GOES_ON, changes).next_group().is_none(), "its answers are wanted");
    }

    #[test]
    fn a_group_of_which_none_can_be_removed_takes_one_number() {
        let mut batch = work(BATCH_QUIET, vec![unlink(1, "a"), unlink(1, "b")]);
        assert!(batch.next_group().is_some());
        batch.place = 1;
        batch.end_group(0);
        assert_eq!((batch.place, batch.is_alone, batch.result.len()), (1, true, 0));
        assert_eq!(batch.changes, [unlink(1, "b"), unlink(1, "a")]);
    }

    #[test]
    fn a_group_has_so_many_names_at_most() {
        let names: Vec<_> = (0..40).map(|number| unlink(1, &format!("f{number}"))).collect();
        let mut batch = work(BATCH_QUIET, names);
        for left in [32, 24, 16, 8, 0] {
            assert!(batch.next_group().is_some());
            assert_eq!(batch.changes.len(), left);
        }
    }
}
