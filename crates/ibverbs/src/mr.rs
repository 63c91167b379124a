//! Memory regions: the program's own memory, which it keeps until it deregisters it.

use crate::abi::{
    IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_OPTIONAL_FIRST, IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED,
    IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_CHANGE_PD, IBV_REREG_MR_CHANGE_TRANSLATION,
    IBV_REREG_MR_ERR_CMD, IBV_REREG_MR_ERR_INPUT, IBV_REREG_MR_FLAGS_SUPPORTED,
    ib_uverbs_advise_mr_advice, ibv_mr, ibv_pd, ibv_sge, verbs_context,
};
use crate::adapter::Adapter;
use crate::cq::lock;
use crate::guard::{Errno, Outcome, code, fail, minus_one, pointer};
use crate::holders::Holders;
use crate::object::{Kind, Object, Shown, find, give, take};
use crate::pd::{LocalMemory, Pd};
use libc::{c_int, c_uint, c_void};
use outboard_verbs::{Access, Mr as Native, SharedRegion, SharedSlice};
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// A memory region.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Mr {
    shown: Shown<ibv_mr>,
    tag: Kind,
    adapter: Arc<Adapter>,
    /// Its keys, local and for peers.
    key: u32,
    registration: Arc<Registration>,
}

/// The present registration of a region: ibv_rereg_mr(3) changes that, and ibv_close_device(3) may
/// have ended it.
#[derive(Debug)]
pub(crate) struct Registration(Mutex<Option<Registered>>);

#[derive(Debug)]
struct Registered {
    /// For peers.
    native: Native,
    local: Local,
    wanted: RegistrationRequest,
}

/// For the program's own requests. It is separate from the region for peers, so that only requests
/// have clones of it.
#[derive(Debug)]
struct Local {
    region: SharedRegion,
    holders: Arc<Holders>,
}

/// The registration that the program asked for.
#[derive(Clone, Copy, Debug)]
struct RegistrationRequest {
    /// Outlives the registration, because it counts its users.
    domain: &'static Pd,
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
    /// The memory that requests name now.
    pub(crate) fn region(&self) -> SharedRegion {
        let registered = lock(&self.registration.0);
        registered.as_ref().map(|registered| registered.local.region.clone()).unwrap()
    }
}

/// Fills in this file's functions.
pub(crate) fn set_operations(c: &mut verbs_context) {
    c.advise_mr = Some(advise_mr);
}

/// Flags that are accepted. Memory windows do not exist, so the flag for binding is ignored.
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

/// The rights in the form of [`outboard_verbs`].
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
    // ibv_reg_mr(3): memory that peers may write must be writable locally.
    if has(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !has(IBV_ACCESS_LOCAL_WRITE) {
        return fail(libc::EINVAL);
    }
    Ok(rights)
}

/// Checks that the memory is there and writable if it must be, and brings it into core, as pinning
/// would: if the engine later finds a page missing, it can only end a connection.
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
    // SAFETY: populating changes no byte, and fails where nothing is mapped.
    if unsafe { libc::madvise(at, end - start, advice) } == 0 {
        return Ok(());
    }
    match std::io::Error::last_os_error().raw_os_error() {
        // Memory of a device, no right, or a kernel before 5.14: the list of mappings decides.
        Some(libc::EINVAL) => {
            // Without /proc, there is no way to tell.
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
    // In ascending order: every mapping extends the part that is known to be accessible.
    let reached = maps.lines().filter_map(mapping).fold(start, |at, (from, to, rights)| {
        let may = rights.starts_with(if write { "rw" } else { "r" });
        if may && from <= at && at < to { to } else { at }
    });
    reached >= end
}

/// The addresses and rights of one mapping: start, end, readable, writable.
fn mapping(line: &str) -> Option<(usize, usize, &str)> {
    let mut words = line.split(' ');
    let (from, to) = words.next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(from)?, number(to)?, words.next()?))
}

impl RegistrationRequest {
    /// The rights of peers and of requests. A peer may take the STag back if it was given a right
    /// to lose, as with hardware's memory windows.
    fn rights(&self) -> Outcome<Access> {
        let rights = rights(self.access)?;
        let remote = rights.intersects(Access::REMOTE);
        Ok(if remote { rights | Access::REMOTE_INVALIDATE } else { rights })
    }

    /// The memory for peers and for requests, if it is there and the arguments are valid.
    fn regions(&self) -> Outcome<[SharedRegion; 2]> {
        let Self { addr, length, iova, access, .. } = *self;
        let ends = addr.checked_add(length).is_some() && iova.checked_add(length as u64).is_some();
        if addr == 0 && length > 0 || !ends {
            return fail(libc::EINVAL);
        }
        check_memory(addr, length, rights(access)?.contains(Access::LOCAL_WRITE))?;
        let start = std::ptr::with_exposed_provenance_mut(addr);
        // SAFETY: the program keeps the memory until it deregisters it (ibv_reg_mr(3)), and knows
        // that peers and the engine use it until then; requests lose it before that call returns.
        // It may be written if it has LOCAL_WRITE, and without that neither requests (`Keys::lend`)
        // nor peers (`rights`) may write it.
        Ok([(); 2].map(|()| unsafe { SharedRegion::from_raw(start, length) }))
    }

    /// Lets work requests of the domain name the memory, and keeps the domain.
    fn add_to_domain(&self, key: u32, region: SharedRegion) -> Local {
        let local = Local { region, holders: Arc::new(Holders::new()) };
        let memory = LocalMemory {
            address: self.iova,
            memory: SharedSlice::from(local.region.clone()),
            writable: self.access & IBV_ACCESS_LOCAL_WRITE != 0,
            holders: Arc::clone(&local.holders),
        };
        self.domain.users.fetch_add(1, Ordering::SeqCst);
        self.domain.add_key(key, memory);
        local
    }

    /// The reverse of [`Self::add_to_domain`]: no request names the memory any more, old or new.
    fn take_from_domain(&self, key: u32, local: &Local) {
        self.domain.remove_key(key);
        local.holders.revoke(&local.region);
        self.domain.users.fetch_sub(1, Ordering::SeqCst);
    }

    /// True if requests that name this memory may go on with `other`: only peers see a difference.
    fn serves_as(&self, other: &Self) -> bool {
        let local = |wanted: &Self| {
            let writable = wanted.access & IBV_ACCESS_LOCAL_WRITE != 0;
            (wanted.addr, wanted.length, wanted.iova, writable)
        };
        local(self) == local(other) && std::ptr::eq(self.domain, other.domain)
    }
}

impl Registered {
    fn new(wanted: RegistrationRequest) -> Outcome<Self> {
        let (access, [peers, requests]) = (wanted.rights()?, wanted.regions()?);
        let native = wanted.domain.native.register_slice(peers.into(), wanted.iova, access);
        let native = native.map_err(|_| Errno(libc::ENOMEM))?;
        let local = wanted.add_to_domain(native.stag().0, requests);
        Ok(Self { native, local, wanted })
    }

    /// Registers it again, under the same keys.
    fn change(&mut self, wanted: RegistrationRequest) -> Outcome<()> {
        let (access, key) = (wanted.rights()?, self.native.stag().0);
        let serves = self.wanted.serves_as(&wanted);
        let [peers, requests] = wanted.regions()?;
        self.native
            .reregister(&wanted.domain.native, peers.into(), wanted.iova, access)
            .map_err(|_| Errno(libc::EINVAL))?;
        let before = std::mem::replace(&mut self.wanted, wanted);
        if !serves {
            before.take_from_domain(key, &self.local);
            self.local = wanted.add_to_domain(key, requests);
        }
        Ok(())
    }

    /// Returns when neither peers nor requests reach the memory through it any more.
    fn end(self) {
        self.wanted.take_from_domain(self.native.stag().0, &self.local);
        // Dropping it waits for placements under way.
        drop(self.native);
    }

    /// Writes the fields that programs see.
    fn show(&self, c: &mut ibv_mr) {
        let key = self.native.stag().0;
        c.pd = self.wanted.domain.shown();
        c.addr = std::ptr::with_exposed_provenance_mut(self.wanted.addr);
        c.length = self.wanted.length;
        (c.handle, c.lkey, c.rkey) = (key, key, key);
    }
}

impl Registration {
    /// Returns when neither peers nor requests reach the memory through it any more; the second
    /// time at once.
    pub(crate) fn end(&self) {
        if let Some(registered) = lock(&self.0).take() {
            registered.end();
        }
    }
}

fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Outcome<*mut ibv_mr> {
    // Bytes of a zero-based region are counted from its first one.
    let iova = if access & IBV_ACCESS_ZERO_BASED == 0 { iova } else { 0 };
    let (domain, addr): (&'static Pd, _) = (find(pd)?, addr.expose_provenance());
    let registered = Registered::new(RegistrationRequest { domain, addr, length, iova, access })?;
    let shown = Shown::<ibv_mr>::zeroed();
    // SAFETY: no other code has the structure yet.
    let c = unsafe { &mut *shown.get() };
    registered.show(c);
    c.context = domain.context();
    let registration = Arc::new(Registration(Mutex::new(Some(registered))));
    let (adapter, key) = (Arc::clone(&domain.adapter), c.lkey);
    let kept = adapter.keep(|live| live.mrs.insert(key, Arc::clone(&registration)));
    if let Err(closed) = kept {
        registration.end();
        return Err(closed);
    }
    Ok(give(Box::new(Mr { shown, tag: Kind::Mr, adapter, key, registration })))
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

/// The function behind the headers' macro `ibv_reg_mr`.
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
        // First, because afterwards the key may be another registration's. After the device was
        // closed, nothing is kept.
        let _kept = taken.adapter.keep(|live| live.mrs.remove(&taken.key));
        taken.registration.end();
        Ok(())
    })
}

/// The new registration of a region, if the arguments are valid.
fn changed(
    before: RegistrationRequest,
    flags: c_uint,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
) -> Outcome<RegistrationRequest> {
    let mut wanted = before;
    let has = |flag: c_uint| flags & flag != 0;
    let pointless = has(IBV_REREG_MR_CHANGE_TRANSLATION) && (addr.is_null() || length == 0)
        || access != 0 && !has(IBV_REREG_MR_CHANGE_ACCESS);
    if flags & !IBV_REREG_MR_FLAGS_SUPPORTED != 0 || flags == 0 || pointless {
        return fail(libc::EINVAL);
    }
    if has(IBV_REREG_MR_CHANGE_PD) {
        wanted.domain = find(pd)?;
        if !Arc::ptr_eq(&wanted.domain.adapter, &before.domain.adapter) {
            return fail(libc::EINVAL);
        }
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
/// If the new registration fails, the old one stays in force.
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
        let mut registered = lock(&found.registration.0);
        let Some(registered) = registered.as_mut() else { return fail(libc::EINVAL) };
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
            if !domain.keys().has(&sge, false) {
                return fail(libc::EINVAL);
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests;
