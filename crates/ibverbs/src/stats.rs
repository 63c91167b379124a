//! Figures of every queue pair, printed on stderr when the process exits, if the environment asks
//! for them. Otherwise a look at one flag is all it costs. What peers do by themselves (Writes and
//! Reads of theirs) is not seen here: a capture shows that.

use crate::config::config;
use crate::cq::lock;
use outboard_verbs::{Completion, Operation, Status};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::{LazyLock, Mutex, MutexGuard, Once};

static FIGURES: Mutex<BTreeMap<u32, Figures>> = Mutex::new(BTreeMap::new());

/// What a queue pair did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    send: Volume,
    write: Volume,
    read: Volume,
    atomic: Volume,
    receive: Volume,
    /// Completions with another status than success; flushed ones apart.
    errors: u64,
    flushed: u64,
}

/// Work requests and their octets.
#[derive(Clone, Copy, Debug, Default)]
struct Volume {
    requests: u64,
    octets: u64,
}

impl Volume {
    fn add(&mut self, octets: u64) {
        self.requests += 1;
        self.octets += octets;
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} octets)", self.requests, self.octets)
    }
}

impl Figures {
    fn of(&mut self, operation: Operation) -> &mut Volume {
        match operation {
            Operation::Send | Operation::Immediate => &mut self.send,
            Operation::Write => &mut self.write,
            Operation::Read => &mut self.read,
            Operation::FetchAdd | Operation::CompareSwap => &mut self.atomic,
            Operation::Receive | Operation::ReceiveImmediate => &mut self.receive,
        }
    }
}

/// Whether anybody wants to know.
#[inline]
pub(crate) fn on() -> bool {
    static ON: LazyLock<bool> = LazyLock::new(|| config().stats);
    *ON
}

/// A send request was posted.
#[inline]
pub(crate) fn posted(qp: u32, operation: Operation, octets: usize) {
    if on() {
        count(qp, |figures| figures.of(operation).add(octets as u64));
    }
}

/// A completion was polled.
#[inline]
pub(crate) fn completed(completion: &Completion) {
    if on() {
        count(completion.qp, |figures| match completion.status {
            Status::Success if completion.operation.is_receive() => {
                figures.receive.add(completion.bytes.into());
            }
            Status::Success => {}
            Status::Flushed => figures.flushed += 1,
            _ => figures.errors += 1,
        });
    }
}

fn count(qp: u32, change: impl FnOnce(&mut Figures)) {
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        // SAFETY: a function that lives for ever. Without memory for it nothing is printed.
        let _full = unsafe { libc::atexit(print) };
    });
    change(lock(&FIGURES).entry(qp).or_default());
}

extern "C" fn print() {
    let all = lock(&FIGURES);
    // A child process that made no queue pairs has nothing to say.
    if !all.is_empty() {
        table(&all).lines().for_each(|line| say!("{line}"));
    }
}

/// The figures, locked over a fork.
pub(crate) fn hold_for_fork() -> MutexGuard<'static, BTreeMap<u32, Figures>> {
    lock(&FIGURES)
}

fn table(all: &BTreeMap<u32, Figures>) -> String {
    let mut text = format!("figures of process {}\n", std::process::id());
    for (qp, figures) in all {
        let Figures { send, write, read, atomic, receive, errors, flushed } = figures;
        // Writing to a String cannot fail.
        let _infallible = writeln!(
            text,
            "queue pair {qp}: sends {send}, writes {write}, reads {read}, \
             atomics {atomic}, receives {receive}, errors {errors}, flushed {flushed}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_counted_once() {
        let mut figures = Figures::default();
        for operation in [Operation::Send, Operation::Write, Operation::Read, Operation::FetchAdd] {
            figures.of(operation).add(8);
        }
        figures.errors = 3;
        let text = table(&BTreeMap::from([(7, figures)]));
        let (_, line) = text.split_once("queue pair 7: ").unwrap();
        assert_eq!(
            line,
            "sends 1 (8 octets), writes 1 (8 octets), reads 1 (8 octets), atomics 1 (8 octets), \
             receives 0 (0 octets), errors 3, flushed 0\n"
        );
    }
}
