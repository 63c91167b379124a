//! Figures of every queue pair, printed on stderr when the process exits, if the environment asks
//! for them. Otherwise they cost a look at one flag. The peers' own Writes and Reads are not
//! counted here: a capture shows that.

use crate::abi::{IBV_WC_RECV, IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR, ibv_wc};
use crate::config::config;
use crate::cq::lock;
use outboard_verbs::{Operation, SendRequest};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::{LazyLock, Mutex, MutexGuard, Once};

static FIGURES: Mutex<BTreeMap<u32, Figures>> = Mutex::new(BTreeMap::new());

/// The figures of a queue pair.
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

/// Work requests and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Volume {
    requests: u64,
    bytes: u64,
}

impl Volume {
    fn add(&mut self, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.requests, self.bytes)
    }
}

impl Figures {
    fn complete(&mut self, wc: &ibv_wc) {
        match wc.status {
            IBV_WC_SUCCESS if wc.opcode & IBV_WC_RECV != 0 => self.receive.add(wc.byte_len.into()),
            IBV_WC_SUCCESS => {}
            IBV_WC_WR_FLUSH_ERR => self.flushed += 1,
            _ => self.errors += 1,
        }
    }

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

/// Whether figures were asked for.
#[inline]
pub(crate) fn on() -> bool {
    static ON: LazyLock<bool> = LazyLock::new(|| config().stats);
    *ON
}

/// The figures of a send request, counted once it is posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFigures {
    operation: Operation,
    bytes: usize,
}

impl RequestFigures {
    /// `None` when nothing is counted.
    #[inline]
    pub(crate) fn of(request: &SendRequest) -> Option<Self> {
        on().then(|| Self { operation: request.op.operation(), bytes: request.local.len() })
    }
}

/// Send requests were posted to the queue pair that programs know by this number.
#[inline]
pub(crate) fn posted(qp: u32, taken: impl IntoIterator<Item = RequestFigures>) {
    for RequestFigures { operation, bytes } in taken {
        count(qp, |figures| figures.of(operation).add(bytes as u64));
    }
}

/// A completion was polled.
#[inline]
pub(crate) fn completed(wc: &ibv_wc) {
    if on() {
        count(wc.qp_num, |figures| figures.complete(wc));
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
    // A child process that made no queue pairs prints nothing.
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
            "sends 1 (8 bytes), writes 1 (8 bytes), reads 1 (8 bytes), atomics 1 (8 bytes), \
             receives 0 (0 bytes), errors 3, flushed 0\n"
        );
    }
}
