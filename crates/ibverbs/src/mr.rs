//! Memory regions: the program's own memory, which it keeps until it deregisters it.

use crate::abi::{
    IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_OPTIONAL_FIRST, IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED,
    IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_CHANGE_PD, IBV_REREG_MR_CHANGE_TRANSLATION,
    IBV_REREG_MR_ERR_CMD, IBV_REREG_MR_ERR_INPUT, IBV_REREG_MR_FLAGS_SUPPORTED,
    ib_uverbs_advise_mr_advice, ibv_mr, ibv_pd, ibv_sge, verbs_context,
};
use crate::context::Context;
use crate::guard::{Errno, Outcome, code, fail, minus_one, pointer};
use crate::object::{Kind, Object, Shown, find, give, take};
use crate::pd::{LocalMemory, Pd};
use libc::{c_int, c_uint, c_void};
use outboard_verbs::{Access, Mr as Native, SharedRegion, SharedSlice};
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// A memory region.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Mr {
    shown: Shown<ibv_mr>,
    tag: Kind,
    /// What it is registered as now: ibv_rereg_mr(3) changes that.
    registered: Mutex<Registered>,
}

#[derive(Debug)]
struct Registered {
    native: Native,
    wanted: Wanted,
}

/// What the program asked for.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    pd: usize,
    addr: usize,
    length: usize,
    iova: u64,
    access: c_uint,
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

#[cfg(test)]
impl Mr {
    /// What it is now.
    pub(crate) fn memory(&self) -> SharedSlice {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).native.memory().clone()
    }
}

/// Fills in this file's functions.
pub(crate) fn set_operations(c: &mut verbs_context) {
    c.advise_mr = Some(advise_mr);
}

/// Flags that mean something, or nothing, here. Memory windows do not exist, so nobody binds one.
const KNOWN_ACCESS: c_uint = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND
    | IBV_ACCESS_ZERO_BASED
    | IBV_ACCESS_HUGETLB;
/// ibv_advise_mr(3): do not return before it is done.
const ADVISE_FLUSH: u32 = 1;
/// Flags from here on are wishes (relaxed ordering), which the API allows to ignore.
const OPTIONAL_ACCESS: c_uint = !(IBV_ACCESS_OPTIONAL_FIRST - 1);

/// Rights as [`outboard_verbs`] has them.
fn rights(access: c_uint) -> Outcome<Access> {
    let has = |flag: c_uint| access & flag != 0;
    if has(IBV_ACCESS_ON_DEMAND) {
        return fail(libc::EOPNOTSUPP);
    }
    if has(!(KNOWN_ACCESS | OPTIONAL_ACCESS)) {
        return fail(libc::EINVAL);
    }
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

/// Sees that the memory is there, writable if it must be, and in core, as pinning would: later the
/// engine touches it, and a page that is not there would end the process.
fn check_memory(addr: usize, length: usize, write: bool) -> Outcome<()> {
    if length == 0 {
        return Ok(());
    }
    // SAFETY: asks for a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let start = addr & !(page - 1);
    let end = addr.checked_add(length).and_then(|end| end.checked_next_multiple_of(page));
    let Some(end) = end else { return fail(libc::EINVAL) };
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    let at = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: populating changes no octet, and says so where there is nothing.
    if unsafe { libc::madvise(at, end - start, advice) } == 0 {
        return Ok(());
    }
    match std::io::Error::last_os_error().raw_os_error() {
        // Memory of a device, no right, or a kernel before 5.14: the list of mappings knows.
        Some(libc::EINVAL) => {
            // Without /proc, nobody can tell.
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
            if maps.is_empty() || is_mapped(&maps, start, end, write) {
                Ok(())
            } else {
                fail(libc::EFAULT)
            }
        }
        _ => fail(libc::EFAULT),
    }
}

/// True when a process with these mappings (/proc/pid/maps) may read, or also write, from `start`
/// to `end`.
fn is_mapped(maps: &str, start: usize, end: usize, write: bool) -> bool {
    // In ascending order: every mapping moves the place up to which all is well.
    let reached = maps.lines().filter_map(mapping).fold(start, |at, (from, to, rights)| {
        let may = rights.starts_with(if write { "rw" } else { "r" });
        if may && from <= at && at < to { to } else { at }
    });
    reached >= end
}

/// From where, to where, and what one may do there.
fn mapping(line: &str) -> Option<(usize, usize, &str)> {
    let mut words = line.split(' ');
    let (from, to) = words.next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(from)?, number(to)?, words.next()?))
}

/// A registration as [`outboard_verbs`] takes it.
struct Parts {
    domain: &'static Pd,
    memory: SharedSlice,
    access: Access,
}

impl Wanted {
    fn pd(&self) -> *mut ibv_pd {
        std::ptr::with_exposed_provenance_mut(self.pd)
    }

    fn parts(&self) -> Outcome<Parts> {
        let Self { addr, length, iova, access, .. } = *self;
        let domain: &Pd = find(self.pd())?;
        let ends = addr.checked_add(length).is_some() && iova.checked_add(length as u64).is_some();
        if addr == 0 && length > 0 || !ends {
            return fail(libc::EINVAL);
        }
        let access = rights(access)?;
        check_memory(addr, length, access.contains(Access::LOCAL_WRITE))?;
        let start = std::ptr::with_exposed_provenance_mut(addr);
        // SAFETY: the program keeps the memory until it deregisters it (ibv_reg_mr(3)), and knows
        // that peers and the engine use it meanwhile; requests lose it before that call returns. It
        // may be written if it has LOCAL_WRITE, and without that neither requests (`Keys::local`)
        // nor peers (`rights`) may write it.
        let region = unsafe { SharedRegion::from_raw(start, length) };
        let memory = region.slice(0..length)?;
        Ok(Parts { domain, memory, access: access | Access::REMOTE_INVALIDATE })
    }

    /// Lets work requests of the domain name the memory, and keeps the domain.
    fn add_to(&self, parts: &Parts, key: u32) {
        let writable = parts.access.contains(Access::LOCAL_WRITE);
        let memory = LocalMemory { address: self.iova, memory: parts.memory.clone(), writable };
        parts.domain.add_key(key, memory);
        parts.domain.users.fetch_add(1, Ordering::SeqCst);
    }

    /// The reverse of [`Self::add_to`].
    fn take_from_domain(&self, key: u32) -> Outcome<&'static Pd> {
        let domain: &'static Pd = find(self.pd())?;
        domain.remove_key(key);
        domain.users.fetch_sub(1, Ordering::SeqCst);
        Ok(domain)
    }

    /// The same, and no request names the memory any more, old or new.
    fn take_from_all(&self, key: u32, region: &SharedRegion) -> Outcome<()> {
        let domain = self.take_from_domain(key)?;
        if let Ok(context) = find::<Context>(domain.context()) {
            context.revoke(region);
        }
        Ok(())
    }

    /// True if requests that name this memory may go on with `other`: only peers see a difference.
    fn serves_as(&self, other: &Self) -> bool {
        let local = |wanted: &Self| {
            let writable = wanted.access & IBV_ACCESS_LOCAL_WRITE != 0;
            (wanted.pd, wanted.addr, wanted.length, wanted.iova, writable)
        };
        local(self) == local(other)
    }
}

impl Registered {
    fn new(wanted: Wanted) -> Outcome<Self> {
        let parts = wanted.parts()?;
        let native = parts
            .domain
            .native
            .register_slice(parts.memory.clone(), wanted.iova, parts.access)
            .map_err(|_| Errno(libc::ENOMEM))?;
        wanted.add_to(&parts, native.stag().0);
        Ok(Self { native, wanted })
    }

    /// Makes something else of it, under the same keys.
    fn change(&mut self, wanted: Wanted) -> Outcome<()> {
        let mut parts = wanted.parts()?;
        let serves = self.wanted.serves_as(&wanted);
        if serves {
            parts.memory = self.native.memory().clone();
        }
        let (domain, key) = (&parts.domain.native, self.native.stag().0);
        let before = self.native.memory().region().clone();
        self.native
            .change(domain, parts.memory.clone(), wanted.iova, parts.access)
            .map_err(|_| Errno(libc::EINVAL))?;
        if serves {
            self.wanted.take_from_domain(key)?;
        } else {
            self.wanted.take_from_all(key, &before)?;
        }
        self.wanted = wanted;
        wanted.add_to(&parts, key);
        Ok(())
    }

    /// Returns when nobody reaches the memory through it any more.
    fn end(self) -> Outcome<()> {
        self.wanted.take_from_all(self.native.stag().0, self.native.memory().region())?;
        Ok(self.native.deregister()?)
    }

    /// Writes what programs see of it.
    fn show(&self, c: &mut ibv_mr) {
        let key = self.native.stag().0;
        c.pd = std::ptr::with_exposed_provenance_mut(self.wanted.pd);
        c.addr = std::ptr::with_exposed_provenance_mut(self.wanted.addr);
        c.length = self.wanted.length;
        (c.handle, c.lkey, c.rkey) = (key, key, key);
    }
}

fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Outcome<*mut ibv_mr> {
    // Octets of a zero-based region are counted from its first one.
    let iova = if access & IBV_ACCESS_ZERO_BASED == 0 { iova } else { 0 };
    let (pd, addr) = (pd.expose_provenance(), addr.expose_provenance());
    let registered = Registered::new(Wanted { pd, addr, length, iova, access })?;
    let shown = Shown::<ibv_mr>::zeroed();
    // SAFETY: nobody else knows the structure yet.
    let c = unsafe { &mut *shown.get() };
    registered.show(c);
    c.context = find::<Pd>(c.pd)?.context();
    Ok(give(Box::new(Mr { shown, tag: Kind::Mr, registered: Mutex::new(registered) })))
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

/// ibv_dereg_mr(3). Returns when no peer reaches the memory any more, and no work request of this
/// side: one that still names it fails when its turn comes.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    code("ibv_dereg_mr", || {
        let taken = take::<Mr>(mr)?;
        taken.registered.into_inner().unwrap_or_else(PoisonError::into_inner).end()
    })
}

/// What a region becomes, if the arguments make sense.
fn changed(
    before: Wanted,
    flags: c_uint,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
) -> Outcome<Wanted> {
    let mut wanted = before;
    let has = |flag: c_uint| flags & flag != 0;
    let pointless = has(IBV_REREG_MR_CHANGE_TRANSLATION) && (addr.is_null() || length == 0)
        || access != 0 && !has(IBV_REREG_MR_CHANGE_ACCESS);
    if flags & !IBV_REREG_MR_FLAGS_SUPPORTED != 0 || flags == 0 || pointless {
        return fail(libc::EINVAL);
    }
    if has(IBV_REREG_MR_CHANGE_PD) {
        let same = find::<Pd>(pd)?.context() == find::<Pd>(before.pd())?.context();
        wanted.pd = if same { pd.expose_provenance() } else { return fail(libc::EINVAL) };
    }
    if has(IBV_REREG_MR_CHANGE_ACCESS) {
        rights(access)?;
        wanted.access = access;
    }
    if has(IBV_REREG_MR_CHANGE_TRANSLATION) {
        (wanted.addr, wanted.length) = (addr.expose_provenance(), length);
        let zero_based = wanted.access & IBV_ACCESS_ZERO_BASED != 0;
        wanted.iova = if zero_based { 0 } else { addr.addr() as u64 };
    }
    Ok(wanted)
}

/// ibv_rereg_mr(3): the keys stay, and work requests posted before lose the memory that they had,
/// unless only the rights of peers change.
/// When it cannot be registered anew, the old registration stays in force.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let mut failure = IBV_REREG_MR_ERR_INPUT;
    let done = minus_one("ibv_rereg_mr", || {
        let found: &Mr = find(mr)?;
        let mut registered = found.registered.lock().unwrap_or_else(PoisonError::into_inner);
        let (flags, access) = (flags.cast_unsigned(), access.cast_unsigned());
        let wanted = changed(registered.wanted, flags, pd, addr, length, access)?;
        failure = IBV_REREG_MR_ERR_CMD;
        registered.change(wanted)?;
        // SAFETY: programs do not look at a region while they change it.
        registered.show(unsafe { &mut *mr });
        Ok(0)
    });
    if done == 0 { 0 } else { failure }
}

/// ibv_advise_mr(3), through the context: all memory is in core already.
unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: ib_uverbs_advise_mr_advice,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sge: u32,
) -> c_int {
    code("ibv_advise_mr", || {
        let domain: &Pd = find(pd)?;
        let known = (0..=IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT).contains(&advice);
        if !known || flags & !ADVISE_FLUSH != 0 || sg_list.is_null() || num_sge == 0 {
            return fail(libc::EINVAL);
        }
        for at in 0..num_sge as usize {
            // SAFETY: the caller's word.
            let sge = unsafe { sg_list.add(at).read() };
            let found = domain.keys().local(sge.lkey, sge.addr, sge.length as usize, false);
            found.ok_or(Errno(libc::EINVAL))?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests;
