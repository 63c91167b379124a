//! Child processes of fork(2). A child has the parent's memory, but not the engines' threads, and
//! its copies of the sockets are the parent's: using them would break the parent's connections. So
//! nothing that the parent made exists for the child, except for the devices; it may open them
//! again.

use crate::object::{Inheritance, hold_for_fork};
use libc::c_int;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{MutexGuard, Once};

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// How many forks lie between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// All process-wide state, locked while this thread forks: no other thread
/// is in the middle of changing it when the child's copy is made, and none has a lock that the
/// child would wait for.
struct ForkLocks {
    inheritance: Inheritance,
    figures: MutexGuard<'static, BTreeMap<u32, crate::stats::Figures>>,
    _nics: crate::cm::nic::OpenNics,
    _recorders: MutexGuard<'static, crate::record::Recorders>,
    _lists: [MutexGuard<'static, BTreeSet<usize>>; 2],
}

impl ForkLocks {
    /// In the order in which opening a device takes some of them.
    fn lock() -> Self {
        let (_nics, _recorders) = (crate::cm::nic::hold_for_fork(), crate::record::recorders());
        let _lists = [crate::device::lists(), crate::cm::addrinfo::lists()];
        let (inheritance, figures) = (hold_for_fork(), crate::stats::hold_for_fork());
        Self { inheritance, figures, _nics, _recorders, _lists }
    }
}

thread_local! {
    static HELD: RefCell<Option<ForkLocks>> = const { RefCell::new(None) };
}

/// Differs in a parent and its children. Descriptors that are opened once per process must be
/// opened again in another generation.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Watches for forks from now on.
pub(crate) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: functions that live for ever. Without memory for it, forks go unnoticed: forks
        // are rare.
        unsafe { pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
    });
}

extern "C" fn before() {
    // Fails only in a thread that is ending; then there is nothing to guard against.
    let _held = HELD.try_with(|held| held.replace(Some(ForkLocks::lock())));
}

extern "C" fn after_in_parent() {
    let _held = HELD.try_with(|held| drop(held.take()));
}

extern "C" fn after_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let _held = HELD.try_with(|held| {
        if let Some(mut held) = held.take() {
            held.figures.clear();
            held.inheritance.disown();
        }
    });
}
