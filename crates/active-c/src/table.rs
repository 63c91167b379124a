//! The clients that C has, by number, and what fork(2) does to them.
//!
//! What C takes for a pointer is such a number: one that was closed, or never was a client's, is
//! not found, and nothing follows it. Numbers are not used twice.

use crate::abi::COutboardActive;
use crate::client::CClient;
use crate::guard::CResult;
use crate::status::{CFailure, CStatus};
use outboard_active::ClientStopper;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

/// A client, for one thread at a time.
struct SharedClient {
    stopper: ClientStopper,
    /// `None` once it is closed.
    inner: Mutex<Option<CClient>>,
}

struct ClientTable {
    open: BTreeMap<usize, Arc<SharedClient>>,
    next: usize,
    /// Numbers below are the parent process's.
    own: usize,
}

static TABLE: Mutex<ClientTable> =
    Mutex::new(ClientTable { open: BTreeMap::new(), next: 1, own: 1 });

fn table() -> MutexGuard<'static, ClientTable> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientTable {
    fn check(&self, number: usize) -> CResult<()> {
        match number {
            0 => Err(CFailure::argument("client is NULL")),
            _ if number < self.own => Err(CFailure::new(
                CStatus::Forked,
                "the client belongs to the parent process: open one in this process",
            )),
            _ => Ok(()),
        }
    }
}

fn closed() -> CFailure {
    CFailure::new(CStatus::Closed, "there is no such client; it may have been closed")
}

/// Gives a client to C.
pub(crate) fn insert(mut client: CClient) -> *mut COutboardActive {
    watch_forks();
    let (stopper, inner) = (client.active.stopper(), Mutex::new(Some(client)));
    let mut table = table();
    let number = table.next;
    table.next += 1;
    table.open.insert(number, Arc::new(SharedClient { stopper, inner }));
    ptr::without_provenance_mut(number)
}

/// Does something in a client, when no other thread does.
pub(crate) fn with<T>(
    client: *mut COutboardActive,
    body: impl FnOnce(&mut CClient) -> CResult<T>,
) -> CResult<T> {
    let shared = {
        let table = table();
        table.check(client.addr())?;
        Arc::clone(table.open.get(&client.addr()).ok_or_else(closed)?)
    };
    let broken = || "an earlier call failed inside Outboard: close the client";
    let inner = shared.inner.lock();
    let mut inner = inner.map_err(|_| CFailure::new(CStatus::Bug, broken()))?;
    body(inner.as_mut().ok_or_else(closed)?)
}

/// Closes a client: ends the call that waits in it, and frees it.
pub(crate) fn remove(client: *mut COutboardActive) -> CResult<()> {
    let shared = {
        let mut table = table();
        table.check(client.addr())?;
        table.open.remove(&client.addr()).ok_or_else(closed)?
    };
    shared.stopper.stop();
    let mut inner = shared.inner.lock().unwrap_or_else(PoisonError::into_inner);
    drop(inner.take());
    Ok(())
}

thread_local! {
    /// The table while this thread forks: no other thread is in the middle of changing it.
    static HELD: RefCell<Option<MutexGuard<'static, ClientTable>>> = const { RefCell::new(None) };
}

fn watch_forks() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: functions that live for ever. Without memory for it, forks go unnoticed.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

extern "C" fn before() {
    // Fails only in a thread that is ending; then there is nothing to guard against.
    let _held = HELD.try_with(|held| held.replace(Some(table())));
}

extern "C" fn in_parent() {
    let _held = HELD.try_with(|held| drop(held.take()));
}

/// The child has neither the threads of its parent's clients nor their sockets for itself: closing
/// one would end the parent's. They are left as they are.
extern "C" fn in_child() {
    let _held = HELD.try_with(|held| {
        if let Some(mut table) = held.take() {
            table.own = table.next;
            let _left = ManuallyDrop::new(mem::take(&mut table.open));
        }
    });
}
