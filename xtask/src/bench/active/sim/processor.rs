//! Processor time of the nodes that this program has started. Measures nothing else.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// How names of processes begin that are a node's: its services have names of their own.
const NODE: &str = "outboard";
const NS: u64 = 1_000_000_000;

/// A process, as `/proc/PID/stat` has it.
#[derive(Debug, PartialEq, Eq)]
struct ProcessTimes {
    process: u32,
    name: String,
    parent: u32,
    ticks: u64,
}

impl ProcessTimes {
    /// The name is in parentheses, and may have some itself.
    fn parse(text: &str) -> Option<Self> {
        let (process, rest) = text.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            process: process.parse().ok()?,
            name: name.to_owned(),
            parent: fields.get(1)?.parse().ok()?,
            ticks: number(11)? + number(12)?,
        })
    }
}

/// Of all nodes that this process has started, and of their children.
pub(super) fn time_of_nodes() -> Result<Duration> {
    let mut all = HashMap::new();
    for entry in fs::read_dir("/proc").context("there is no /proc")? {
        let stat = entry?.path().join("stat");
        // A process may have ended meanwhile.
        if let Some(its) = fs::read_to_string(stat).ok().and_then(|text| ProcessTimes::parse(&text))
        {
            all.insert(its.process, its);
        }
    }
    let ticks: u64 = all.values().filter(|its| is_own_node(its, &all)).map(|its| its.ticks).sum();
    Ok(Duration::from_nanos(ticks * (NS / rustix::param::clock_ticks_per_second())))
}

fn is_own_node(its: &ProcessTimes, all: &HashMap<u32, ProcessTimes>) -> bool {
    let mut at = its.parent;
    while at != std::process::id() {
        match all.get(&at) {
            Some(parent) => at = parent.parent,
            None => return false,
        }
    }
    its.name.starts_with(NODE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_parentheses() {
        let text = "77 (a (b) c) S 5 77 77 0 -1 4194304 1 2 3 4 30 12 0 0 20 0 1 0 99";
        let expected = ProcessTimes { process: 77, name: "a (b) c".into(), parent: 5, ticks: 42 };
        assert_eq!(ProcessTimes::parse(text), Some(expected));
        assert_eq!(ProcessTimes::parse("77 (a) S"), None);
    }

    #[test]
    fn this_process_has_started_no_node() {
        assert_eq!(time_of_nodes().expect("/proc"), Duration::ZERO);
    }
}
