//! Which slot a process works for that waits in a request of the kernel's. Requests for a file's
//! contents name no slot, since files are one inode for all slots; they name the process.
//!
//! A slot's processes are those below the first process of its pid namespace. Which process that is
//! follows from a look-up of one of them in the slot's own subtree. Where the system does not show
//! processes (`hidepid`, no process for readahead), the slot is unknown.

use super::inodes::SlotId;
use std::collections::HashMap;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Generations of processes that are looked through, at most: more than a job may have processes.
const GENERATIONS_MAX: usize = 128;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Requesters {
    /// The first processes of slots; `None` if the system does not show it.
    firsts: Mutex<HashMap<SlotId, Option<u32>>>,
}

impl Requesters {
    fn firsts(&self) -> MutexGuard<'_, HashMap<SlotId, Option<u32>>> {
        self.firsts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process of this slot has looked a name up.
    pub(super) fn learn(&self, slot: SlotId, process: u32) {
        self.firsts().entry(slot).or_insert_with(|| first_above(process));
    }

    /// A job begins: its slot's sandbox may be a new one.
    pub(super) fn forget(&self, slot: SlotId) {
        self.firsts().remove(&slot);
    }

    /// The slot of a process that waits.
    pub(super) fn slot_of(&self, process: u32) -> Option<SlotId> {
        let first = first_above(process)?;
        self.firsts().iter().find(|(_, known)| **known == Some(first)).map(|(slot, _)| *slot)
    }
}

/// The first process of the pid namespace of `process`, as this process sees it.
fn first_above(process: u32) -> Option<u32> {
    let mut at = process;
    for _ in 0..GENERATIONS_MAX {
        let status = fs::read_to_string(format!("/proc/{at}/status")).ok()?;
        match ProcessStatus::parse(&status)? {
            ProcessStatus::First => return Some(at),
            ProcessStatus::Below(0) => return None,
            ProcessStatus::Below(parent) => at = parent,
        }
    }
    None
}

/// What the system says of a process.
#[derive(Debug, PartialEq, Eq)]
enum ProcessStatus {
    /// It is the first one of a namespace below this one.
    First,
    /// It has this parent.
    Below(u32),
}

impl ProcessStatus {
    fn parse(status: &str) -> Option<Self> {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        // Its numbers in all namespaces, from this one inwards.
        let numbers = field("NSpid:")?.split_whitespace();
        if numbers.skip(1).last() == Some("1") {
            return Some(Self::First);
        }
        field("PPid:")?.trim().parse().ok().map(Self::Below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_of_an_inner_namespace_is_told_from_others() {
        let parse =
            |pids: &str| ProcessStatus::parse(&format!("Name:\tcc1\nPPid:\t7\nNSpid:\t{pids}\n"));
        assert_eq!(parse("812\t1"), Some(ProcessStatus::First));
        assert_eq!(parse("813\t2"), Some(ProcessStatus::Below(7)));
        assert_eq!(parse("1"), Some(ProcessStatus::Below(7)), "this machine's own");
        assert_eq!(ProcessStatus::parse("Name:\tcc1\n"), None);
        assert_eq!(first_above(std::process::id()), first_above(std::process::id()));
    }
}
