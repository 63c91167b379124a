//! Open devices as programs know them. A context has an adapter, and so an engine, of its own; the
//! connection manager opens each device once for all its identifiers.

use crate::abi::{ibv_context, ibv_device, verbs_context};
use crate::adapter::Adapter;
use crate::cm::news::errno;
use crate::device::{Device, devices};
use crate::guard::{Outcome, fail, minus_one, pointer};
use crate::object::{Kind, Object, Shown, find, give, take};
use outboard_verbs::Context as Native;
use std::mem::offset_of;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// An open device.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Context {
    shown: Shown<verbs_context>,
    tag: Kind,
    adapter: Arc<Adapter>,
    /// The descriptor that programs expect as the kernel's device file: they can only duplicate it.
    _command: OwnedFd,
}

// SAFETY: programs see the `context` at the end of `verbs_context`.
unsafe impl Object for Context {
    type C = ibv_context;
    const KIND: Kind = Kind::Context;
    const OFFSET: usize = offset_of!(Self, shown) + offset_of!(verbs_context, context);
    fn tag(&self) -> Kind {
        self.tag
    }
}

/// The context adds only what C sees.
impl Deref for Context {
    type Target = Adapter;
    fn deref(&self) -> &Adapter {
        &self.adapter
    }
}

impl Context {
    /// Opens a device.
    pub(crate) fn open(device: *mut ibv_device) -> Outcome<*mut ibv_context> {
        let native = match crate::record::recorder() {
            None => Native::open(),
            Some(tap) => Native::open_tapped(tap),
        };
        let native = native.map_err(|error| {
            say!("cannot open a device: {error}");
            errno(&error)
        })?;
        Self::open_on(device, native)
    }

    /// Opens a device whose engine exists already.
    pub(crate) fn open_on(device: *mut ibv_device, native: Native) -> Outcome<*mut ibv_context> {
        let found: &'static Device = find(device)?;
        crate::fork::watch();
        let shown = Shown::<verbs_context>::zeroed();
        // SAFETY: no other code has the structure yet.
        let c = unsafe { &mut *shown.get() };
        c.sz = size_of::<verbs_context>();
        c.context.device = device;
        let command = native.async_fd().try_clone_to_owned()?;
        c.context.cmd_fd = command.as_raw_fd();
        c.context.async_fd = native.async_fd().as_raw_fd();
        crate::channel::may_block(c.context.async_fd)?;
        c.context.num_comp_vectors = 1;
        // What marks a `verbs_context` around the context (verbs.h, verbs_get_ctx).
        c.context.abi_compat = std::ptr::without_provenance_mut(usize::MAX);
        c.context.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
        set_operations(c);
        let adapter = Arc::new(Adapter::new(native, found));
        Ok(give(Box::new(Self { shown, tag: Kind::Context, adapter, _command: command })))
    }

    /// The adapter, which every object made on the context keeps.
    pub(crate) fn adapter(&self) -> Arc<Adapter> {
        Arc::clone(&self.adapter)
    }
}

/// Fills in the functions that inline code in the headers calls.
fn set_operations(c: &mut verbs_context) {
    crate::query::set_operations(c);
    crate::cq::set_operations(c);
    crate::qp::set_operations(c);
    crate::srq::set_operations(c);
}

/// ibv_open_device(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    pointer("ibv_open_device", || {
        let known = devices().iter().any(|known| known.0 == device);
        if known { Context::open(device) } else { fail(libc::EINVAL) }
    })
}

/// ibv_close_device(3). Connections and registrations that the program has left open end here, as
/// they do in a kernel; its objects remain and must still be destroyed. The connection manager's
/// own devices stay open (rdma_get_devices(3)).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> libc::c_int {
    minus_one("ibv_close_device", || {
        if crate::cm::nic::is_open(context) {
            return fail(libc::EBUSY);
        }
        take::<Context>(context)?.adapter.close();
        Ok(0)
    })
}
