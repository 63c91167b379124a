//! A volatile file system: three regions that clients change by one-sided verbs. Nobody executes
//! anything at the server; the metadata have the same structures as elsewhere.
//!
//! - [`REGION`](super::REGION): the metadata;
//! - [`DATA_REGION`]: the blocks of files, one behind the other;
//! - [`SHARED_REGION`]: who may change them now, and what is being changed.
//!
//! LAYOUT of the shared region: the words [`LOCK_AT`] (0: free, else its holder's) and [`SEQ_AT`]
//! (odd while metadata are being changed), in the server's byte order; at [`JOURNAL_HEAD_AT`] two
//! words, how many bytes the journal has and a hash of them; at [`JOURNAL_AT`] the journal: for
//! each run of bytes u64 where in the metadata, u64 how many, the bytes, zeroes up to a multiple of
//! 8.

use super::places::{module_hash, word_of};

/// The region that has files' bytes.
pub const DATA_REGION: &str = "fs.data";
/// The region that has the lock and the journal.
pub const SHARED_REGION: &str = "fs.shared";
/// Where the lock is.
pub const LOCK_AT: u64 = 0;
/// Where the number is that grows with each change.
pub const SEQ_AT: u64 = 8;
/// Where the journal's length and hash are.
pub const JOURNAL_HEAD_AT: u64 = 64;
/// Where the journal is.
pub const JOURNAL_AT: u64 = 128;
/// Bytes of metadata that one change writes, at most.
pub const WRITES_MAX: usize = 8 << 20;
/// Bytes of the shared region: the journal of such a change, if each of its words is a run.
pub const SHARED_LEN: usize = 32 << 20;
/// Bytes of files of a volatile file system, at most: a region's.
pub const VOLATILE_MAX: u64 = 3 << 30;

/// Where the journal's hash begins.
const JOURNAL_SEED: u64 = 0x6a6f_7572_6e61_6c31;

/// Bytes that are written to the metadata: where, and which.
pub type WrittenRun = (u64, Vec<u8>);

/// A journal and its head.
#[must_use]
pub fn journal_of(runs: &[WrittenRun]) -> (Vec<u8>, [u8; 16]) {
    let mut journal = Vec::new();
    for (at, bytes) in runs {
        journal.extend_from_slice(&at.to_le_bytes());
        journal.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        journal.extend_from_slice(bytes);
        journal.resize(journal.len().next_multiple_of(8), 0);
    }
    let mut head = [0; 16];
    head[..8].copy_from_slice(&(journal.len() as u64).to_le_bytes());
    head[8..].copy_from_slice(&module_hash(JOURNAL_SEED, &journal).to_le_bytes());
    (journal, head)
}

/// How many bytes a journal has; `None` if it cannot have so many.
#[must_use]
pub fn journal_len(head: &[u8]) -> Option<usize> {
    let len = usize::try_from(word_of(head.get(..8)?)).ok()?;
    (len <= SHARED_LEN - usize::try_from(JOURNAL_AT).ok()?).then_some(len)
}

/// What a journal says; `None` if it is not the one of its head.
#[must_use]
pub fn parse_journal(head: &[u8], mut journal: &[u8]) -> Option<Vec<WrittenRun>> {
    let is_its = word_of(head.get(8..16)?) == module_hash(JOURNAL_SEED, journal);
    is_its.then_some(())?;
    let mut runs = Vec::new();
    while !journal.is_empty() {
        let (head, rest) = journal.split_at_checked(16)?;
        let (at, len) = (word_of(&head[..8]), usize::try_from(word_of(&head[8..])).ok()?);
        runs.push((at, rest.get(..len)?.to_vec()));
        journal = rest.get(len.checked_next_multiple_of(8)?..)?;
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_what_was_written_or_none() {
        let runs = vec![(64, vec![1; 8]), (4096, vec![2; 5]), (8, vec![3; 16])];
        let (journal, head) = journal_of(&runs);
        assert_eq!(journal_len(&head), Some(journal.len()));
        assert_eq!(parse_journal(&head, &journal), Some(runs));
        for at in 0..journal.len() {
            let mut torn = journal.clone();
            torn[at] ^= 4;
            assert_eq!(parse_journal(&head, &torn), None, "byte {at}");
        }
        assert_eq!(parse_journal(&head, &journal[8..]), None);
        assert_eq!(journal_len(&[0xff; 16]), None);
    }
}
