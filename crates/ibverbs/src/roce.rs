//! Connections by queue pair number and GID, for the personality roce: which side dials, and how
//! the sides find each other without a daemon.
//!
//! A queue pair's number is its address: the TCP port at which its context listens, and an index
//! under that port. Both sides learn the other's (GID, number) from their programs, and the lower
//! of the two dials. Its Request names both numbers, so the other side knows the queue pair that it
//! is for. If the other side's program has not named its peer yet, the Request waits, or the dialer
//! is asked to retry. As on hardware, only sends notice that a peer does not connect: they fail
//! after their time limit; without sends a queue pair waits for ever.
//!
//! It never touches the data of an established connection. This is no standard: it works between
//! two Outboard ends only.
//!
//! Modules in reading order: [`hello`] (the messages), [`table`] (numbers, and the state of each
//! queue pair), [`worker`] (the thread that dials and answers).

pub(crate) mod hello;
mod table;
#[cfg(test)]
mod tests;
mod worker;

use crate::adapter::Adapter;
use crate::guard::{Errno, Outcome, fail};
use hello::QpName;
use outboard_verbs::{Context as Native, Qp};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use worker::Worker;

/// How long posted sends wait for a peer that is not there, unless the queue pair says otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A queue pair as this module sees it. The worker's thread calls everything here, never after
/// [`release`] or [`disconnect`] have returned; [`Peer::has_sends`] and [`Peer::patience`] with a
/// lock held, so that they must not call this module.
pub(crate) trait Peer: Send + Sync {
    /// The queue pair to connect; idle until it is.
    fn native(&self) -> &Qp;
    /// Sends have been posted that wait for the connection, or, after it, for the time to fail.
    fn has_sends(&self) -> bool;
    /// How long they may wait.
    fn patience(&self) -> Duration {
        PATIENCE
    }
    /// Sends may go out.
    fn connected(&self);
    /// No peer will connect: waiting sends, and those posted from now on, fail with
    /// `IBV_WC_RETRY_EXC_ERR`.
    fn failed(&self);
    /// The connection was there and is over. On hardware a program does not notice that a peer has
    /// left before a send has been repeated without success, and programs rely on that when one
    /// side finishes sooner: if sends are kept, [`Peer::failed`] follows after their time limit.
    fn lost(&self);
}

/// A context's state for this; empty until its first queue pair is made.
#[derive(Debug, Default)]
pub(crate) struct Roce(Mutex<Option<Worker>>);

impl Roce {
    fn worker(&self) -> MutexGuard<'_, Option<Worker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a new queue pair of a device with this address.
    fn number(&self, native: &Native, address: Ipv4Addr) -> Outcome<u32> {
        let mut worker = self.worker();
        if worker.is_none() {
            *worker = Some(Worker::start(native, address).map_err(|error| {
                say!("cannot make queue pairs on {address}: {error}");
                Errno(libc::ENOMEM)
            })?);
        }
        let Some(worker) = worker.as_ref() else { return fail(libc::ENOMEM) };
        worker.reserve(native).map_err(|error| {
            say!("cannot number queue pairs on {address}: {error}");
            Errno(libc::ENOMEM)
        })
    }

    /// Stops: nothing is connected any more.
    pub(crate) fn stop(&self) {
        *self.worker() = None;
    }

    /// Runs `work` on the worker, if there is one.
    fn with<T>(&self, work: impl FnOnce(&Worker) -> T) -> Option<T> {
        self.worker().as_ref().map(work)
    }

    fn connect(&self, ours: u32, theirs: QpName, peer: Arc<dyn Peer>) -> Outcome<()> {
        self.with(|worker| worker.connect(ours, theirs, peer)).unwrap_or_else(|| fail(libc::EINVAL))
    }
}

/// A number for a new queue pair (24 bits).
///
/// # Errors
/// ENOMEM when the system gives no listener, descriptor or thread.
pub(crate) fn number(context: &Adapter) -> Outcome<u32> {
    context.roce.number(&context.native, context.device.address)
}

/// Gives a number back. The queue pair behind it is not used any more when this returns, so call it
/// before the queue pair goes, and with no lock held that a [`Peer`] takes.
pub(crate) fn release(context: &Adapter, number: u32) {
    context.roce.with(|worker| worker.release(number));
}

/// Connects a queue pair, which must be idle, to the one with this number and GID; returns at once.
///
/// # Errors
/// EINVAL for a number that [`number`] did not give or that is connected already, and for a GID
/// that is no IPv4-mapped address; EOPNOTSUPP for a queue pair and itself.
pub(crate) fn connect(
    context: &Adapter,
    ours: u32,
    dest_qpn: u32,
    dgid: [u8; 16],
    peer: Arc<dyn Peer>,
) -> Outcome<()> {
    let Some(address) = Ipv6Addr::from(dgid).to_ipv4_mapped() else {
        return fail(libc::EINVAL);
    };
    context.roce.connect(ours, QpName { address, number: dest_qpn }, peer)
}

/// Forgets the peer that a queue pair was to be connected to; it keeps its number. Call it when the
/// program makes the queue pair's state RESET or ERR, before the native one is reset or
/// disconnected. The same rules as for [`release`].
pub(crate) fn disconnect(context: &Adapter, ours: u32) {
    context.roce.with(|worker| worker.disconnect(ours));
}
