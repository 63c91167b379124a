//! Open devices. A context has an engine of its own; the connection manager opens each device once
//! for all its identifiers.

use crate::abi::{ibv_context, ibv_device, ibv_qp, ibv_srq, verbs_context};
use crate::cq::lock;
use crate::device::{Device, devices};
use crate::guard::{Errno, Outcome, fail, pointer};
use crate::object::{Kind, Object, Shown, find, give, take};
use crate::qp::Qp;
use crate::roce::Roce;
use crate::srq::Srq;
use outboard_verbs::{Context as Native, SharedRegion};
use std::collections::HashMap;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;

/// An open device.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Context {
    shown: Shown<verbs_context>,
    tag: Kind,
    /// The engine and everything on it.
    pub(crate) native: Native,
    pub(crate) device: &'static Device,
    /// What programs take for the kernel's end of the device: they may copy it, and that is all.
    _command: OwnedFd,
    /// C pointers (as addresses) of queue pairs by number, for events and completions.
    pub(crate) qps: Mutex<HashMap<u32, usize>>,
    /// The same of completion queues.
    pub(crate) cqs: Mutex<HashMap<u32, usize>>,
    /// The same of shared receive queues.
    pub(crate) srqs: Mutex<HashMap<u32, usize>>,
    /// Numbers and connections of queue pairs in the personality roce.
    pub(crate) roce: Roce,
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

impl Context {
    /// Opens a device.
    pub(crate) fn open(device: *mut ibv_device) -> Outcome<*mut ibv_context> {
        let found: &'static Device = find(device)?;
        crate::fork::watch();
        let native = match crate::record::recorder() {
            None => Native::open(),
            Some(tap) => Native::open_tapped(tap),
        };
        let native = native.map_err(|error| {
            say!("cannot open a device: {error}");
            Errno(libc::EIO)
        })?;
        let shown = Shown::<verbs_context>::zeroed();
        // SAFETY: nobody else knows the structure yet.
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
        Ok(give(Box::new(Self {
            shown,
            tag: Kind::Context,
            native,
            device: found,
            _command: command,
            qps: Mutex::default(),
            cqs: Mutex::default(),
            srqs: Mutex::default(),
            roce: Roce::default(),
        })))
    }
}

impl Context {
    /// Takes memory away from all requests, so that it is not touched any more. Its keys are gone
    /// already: no new request names it.
    pub(crate) fn revoke(&self, region: &SharedRegion) {
        // Queue pairs take receives from shared queues, never the other way. What is in a map
        // stays while it is locked.
        for address in lock(&self.srqs).values() {
            let shown = std::ptr::with_exposed_provenance_mut::<ibv_srq>(*address);
            find::<Srq>(shown).iter().for_each(|srq| srq.native.revoke(region));
        }
        for address in lock(&self.qps).values() {
            let shown = std::ptr::with_exposed_provenance_mut::<ibv_qp>(*address);
            find::<Qp>(shown).iter().for_each(|qp| qp.revoke(region));
        }
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

/// ibv_close_device(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> libc::c_int {
    crate::guard::minus_one("ibv_close_device", || {
        drop(take::<Context>(context)?);
        Ok(0)
    })
}
