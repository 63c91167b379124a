//! Protection domains, and the keys of the memory registered in them.

use crate::abi::{ibv_context, ibv_pd, ibv_sge};
use crate::adapter::Adapter;
use crate::context::Context;
use crate::guard::{code, fail, pointer};
use crate::holders::{Holder, Holders};
use crate::object::{Kind, Object, Shown, find, give, take};
use outboard_verbs::{Pd as Native, SharedSlice};
use std::collections::HashMap;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// A protection domain.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Pd {
    shown: Shown<ibv_pd>,
    tag: Kind,
    pub(crate) native: Native,
    pub(crate) adapter: Arc<Adapter>,
    /// Registered memory by local key: its address for the program, and the region.
    keys: RwLock<HashMap<u32, LocalMemory>>,
    /// Objects that must be destroyed first.
    pub(crate) users: AtomicU32,
}

/// Memory that work requests may name.
#[derive(Clone, Debug)]
pub(crate) struct LocalMemory {
    /// The program's address of the first byte.
    pub(crate) address: u64,
    pub(crate) memory: SharedSlice,
    /// Receives, Reads and atomics may write there.
    pub(crate) writable: bool,
    /// The queues whose requests name it.
    pub(crate) holders: Arc<Holders>,
}

// SAFETY: the structure is the first field.
unsafe impl Object for Pd {
    type C = ibv_pd;
    const KIND: Kind = Kind::Pd;
    const OFFSET: usize = offset_of!(Self, shown);
    fn tag(&self) -> Kind {
        self.tag
    }
}

impl Pd {
    /// The structure that programs see.
    pub(crate) fn shown(&self) -> *mut ibv_pd {
        self.shown.get()
    }

    /// The context it belongs to, as C knows it.
    pub(crate) fn context(&self) -> *mut ibv_context {
        // SAFETY: set once, before anybody else knew the structure.
        unsafe { (*self.shown.get()).context }
    }

    pub(crate) fn add_key(&self, lkey: u32, memory: LocalMemory) {
        self.keys.write().unwrap_or_else(PoisonError::into_inner).insert(lkey, memory);
    }

    pub(crate) fn remove_key(&self, lkey: u32) {
        self.keys.write().unwrap_or_else(PoisonError::into_inner).remove(&lkey);
    }

    /// The keys as they are now. A thread that posts requests holds this lock until the requests
    /// are queued: [`Self::remove_key`] waits for that, so that memory can be taken away from all
    /// requests that name it.
    pub(crate) fn keys(&self) -> Keys<'_> {
        Keys(self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// See [`Pd::keys`].
#[derive(Debug)]
pub(crate) struct Keys<'a>(RwLockReadGuard<'a, HashMap<u32, LocalMemory>>);

impl Keys<'_> {
    /// The registered bytes at `address`, for a work request of `holder`'s. `None` for an unknown
    /// key, bytes outside its memory, or sinks in memory without `IBV_ACCESS_LOCAL_WRITE`.
    pub(crate) fn lend<H: Holder + 'static>(
        &self,
        sge: &ibv_sge,
        sink: bool,
        holder: &Arc<H>,
    ) -> Option<SharedSlice> {
        let (known, slice) = self.find(sge, sink)?;
        known.holders.enter(holder);
        Some(slice)
    }

    /// True when a request may name this.
    pub(crate) fn has(&self, sge: &ibv_sge, sink: bool) -> bool {
        self.find(sge, sink).is_some()
    }

    fn find(&self, sge: &ibv_sge, sink: bool) -> Option<(&LocalMemory, SharedSlice)> {
        let known = self.0.get(&sge.lkey).filter(|known| known.writable || !sink)?;
        let start = usize::try_from(sge.addr.checked_sub(known.address)?).ok()?;
        let end = start.checked_add(sge.length as usize)?;
        Some((known, known.memory.slice(start..end).ok()?))
    }
}

/// ibv_alloc_pd(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    pointer("ibv_alloc_pd", || {
        let adapter = find::<Context>(context)?.adapter();
        let native = adapter.native.alloc_pd();
        let shown = Shown::<ibv_pd>::zeroed();
        // SAFETY: no other code has the structure yet.
        unsafe { (*shown.get()).context = context };
        let (keys, users) = (RwLock::default(), AtomicU32::new(0));
        Ok(give(Box::new(Pd { shown, tag: Kind::Pd, native, adapter, keys, users })))
    })
}

/// ibv_dealloc_pd(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> libc::c_int {
    code("ibv_dealloc_pd", || {
        if find::<Pd>(pd)?.users.load(Ordering::SeqCst) > 0 {
            return fail(libc::EBUSY);
        }
        take::<Pd>(pd).map(drop)
    })
}
