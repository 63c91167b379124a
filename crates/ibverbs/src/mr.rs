//! Memory regions: the program's own memory, which it keeps until it deregisters it.

use crate::abi::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, ibv_mr, ibv_pd,
};
use crate::guard::{Errno, Outcome, code, fail, pointer};
use crate::object::{Kind, Object, Shown, find, give, take};
use crate::pd::{LocalMemory, Pd};
use libc::{c_int, c_uint, c_void};
use outboard_verbs::{Access, Mr as Native, SharedRegion};
use std::mem::offset_of;
use std::sync::atomic::Ordering;

/// A memory region.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Mr {
    shown: Shown<ibv_mr>,
    tag: Kind,
    native: Native,
}

// SAFETY: the structure is the first field.
unsafe impl Object for Mr {
    type C = ibv_mr;
    const KIND: Kind = Kind::Mr;
    const OFFSET: usize = offset_of!(Self, shown);
    fn tag(&self) -> Kind {
        self.tag
    }
}

/// Rights as [`outboard_verbs`] has them. Optional flags (relaxed ordering) mean nothing here.
fn rights(access: c_uint) -> Outcome<Access> {
    let has = |flag: c_uint| access & flag != 0;
    let table = [
        (IBV_ACCESS_LOCAL_WRITE, Access::LOCAL_WRITE),
        (IBV_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
        (IBV_ACCESS_REMOTE_READ, Access::REMOTE_READ),
        (IBV_ACCESS_REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
    ];
    let rights = table.iter().filter(|(flag, _)| has(*flag)).map(|(_, right)| *right);
    let rights = rights.fold(Access::empty(), |all, right| all | right);
    // ibv_reg_mr(3): whoever may be written by peers must be writable locally.
    if has(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !has(IBV_ACCESS_LOCAL_WRITE) {
        return fail(libc::EINVAL);
    }
    Ok(rights)
}

fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Outcome<*mut ibv_mr> {
    let domain: &Pd = find(pd)?;
    if addr.is_null() && length > 0 || addr.addr().checked_add(length).is_none() {
        return fail(libc::EINVAL);
    }
    let rights = rights(access)?;
    // SAFETY: the program keeps the memory until it deregisters it (ibv_reg_mr(3)), and knows that
    // peers and the engine use it meanwhile.
    let region = unsafe { SharedRegion::from_raw(addr.cast(), length) };
    let native = domain
        .native
        .register_range(region, 0..length, iova, rights | Access::REMOTE_INVALIDATE)
        .map_err(|_| Errno(libc::ENOMEM))?;
    let key = native.stag().0;
    let shown = Shown::<ibv_mr>::zeroed();
    // SAFETY: nobody else knows the structure yet.
    let c = unsafe { &mut *shown.get() };
    (c.context, c.pd, c.addr, c.length) = (domain.context(), pd, addr, length);
    (c.handle, c.lkey, c.rkey) = (key, key, key);
    let memory = native.memory().clone();
    let writable = rights.contains(Access::LOCAL_WRITE);
    domain.add_key(key, LocalMemory { address: iova, memory, writable });
    domain.users.fetch_add(1, Ordering::SeqCst);
    Ok(give(Box::new(Mr { shown, tag: Kind::Mr, native })))
}

/// ibv_reg_mr(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let iova = addr.addr() as u64;
    pointer("ibv_reg_mr", || register(pd, addr, length, iova, access.cast_unsigned()))
}

/// ibv_reg_mr_iova(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    pointer("ibv_reg_mr_iova", || register(pd, addr, length, iova, access.cast_unsigned()))
}

/// What the macro `ibv_reg_mr` of the headers calls.
///
/// # Safety
/// As ibv_reg_mr(3) says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    pointer("ibv_reg_mr_iova2", || register(pd, addr, length, iova, access))
}

/// ibv_dereg_mr(3). Returns when no peer reaches the memory any more.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    code("ibv_dereg_mr", || {
        let taken = take::<Mr>(mr)?;
        // SAFETY: set once, before anybody else knew the structure.
        let pd = unsafe { (*taken.shown.get()).pd };
        let domain: &Pd = find(pd)?;
        domain.remove_key(taken.native.stag().0);
        domain.users.fetch_sub(1, Ordering::SeqCst);
        taken.native.deregister()?;
        Ok(())
    })
}
