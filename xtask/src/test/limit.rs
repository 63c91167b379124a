//! A time limit for a suite: when it expires, every process that the suite has started is killed,
//! so that the suite ends, and the suite counts as failed.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// If the suite then starts another process, that is killed after this time, too.
const AGAIN: Duration = Duration::from_secs(1);

/// The process that runs the tests beside the suite.
static SPARED: AtomicU32 = AtomicU32::new(0);

/// From now on this process and its children are never killed: the tests that it runs have limits
/// of their own.
pub(super) fn spare(process: u32) {
    SPARED.store(process, Ordering::Relaxed);
}

/// Does the work; false if it took longer than `limit`.
pub(super) fn within<T>(limit: Duration, work: impl FnOnce() -> T) -> (T, bool) {
    watched(limit, work, || {
        let spared = SPARED.load(Ordering::Relaxed);
        kill(&descendants(std::process::id(), &parents(), spared));
    })
}

fn watched<T>(
    limit: Duration,
    work: impl FnOnce() -> T,
    mut stop: impl FnMut() + Send + 'static,
) -> (T, bool) {
    let (working, over) = mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        let mut next = limit;
        let mut in_time = true;
        while over.recv_timeout(next) == Err(RecvTimeoutError::Timeout) {
            (in_time, next) = (false, AGAIN);
            stop();
        }
        in_time
    });
    let result = work();
    drop(working);
    (result, watch.join().unwrap_or(false))
}

/// Every process of the machine with its parent.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter_map(|process| Some((process, parent(process)?))).collect()
}

fn parent(process: u32) -> Option<u32> {
    // "number (name) state parent ...", where the name may hold anything.
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The descendants of a process, but for one of them and its own.
fn descendants(root: u32, parents: &[(u32, u32)], spared: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let of = found[next];
        let children = parents.iter().filter(|(_, parent)| *parent == of).map(|(child, _)| child);
        found.extend(children.filter(|child| **child != spared));
        next += 1;
    }
    found.split_off(1)
}

fn kill(processes: &[u32]) {
    let numbers = processes.iter().map(u32::to_string);
    let mut command = Command::new("kill");
    // An error for a process that has ended by itself is expected.
    let _ = command.arg("-KILL").args(numbers).stderr(Stdio::null()).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_suite_is_stopped_and_reported() {
        let (stopped, stops) = mpsc::channel();
        let stop = move || stopped.send(()).unwrap();
        let ((), in_time) = watched(Duration::ZERO, || stops.recv().unwrap(), stop);
        assert!(!in_time);
        assert_eq!(watched(Duration::from_secs(60), || 7, || panic!("too early")), (7, true));
    }

    #[test]
    fn only_descendants_are_found() {
        let parents = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 4)];
        assert_eq!(descendants(2, &parents, 0), [3, 4, 6]);
        assert_eq!(descendants(1, &parents, 3), [2, 5]);
        assert!(descendants(6, &parents, 0).is_empty());
    }

    #[test]
    fn our_own_parent_is_known() {
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
    }
}
