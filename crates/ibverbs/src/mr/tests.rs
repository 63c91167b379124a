//! Regions registered, changed and refused.

// Entries are called as programs call them; the tests choose the arguments.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::*;
use crate::abi::IBV_ACCESS_RELAXED_ORDERING;
use crate::context::{ibv_close_device, ibv_open_device};
use crate::device::devices;
use crate::pd::{ibv_alloc_pd, ibv_dealloc_pd};
use std::ptr::{dangling_mut, null_mut};

/// Whether requests may name these bytes: key, address, length.
fn names(domain: &Pd, (lkey, addr, length): (u32, u64, u32), sink: bool) -> bool {
    domain.keys().has(&ibv_sge { addr, length, lkey }, sink)
}

const WRITE: c_int = IBV_ACCESS_LOCAL_WRITE.cast_signed();

struct Pages(*mut c_void);

impl Pages {
    const LEN: usize = 8192;

    fn new(protection: c_int) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Self(unsafe { libc::mmap(null_mut(), Self::LEN, protection, flags, -1, 0) })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        unsafe { libc::munmap(self.0, Self::LEN) };
    }
}

fn with_domains(test: impl FnOnce(*mut ibv_pd, *mut ibv_pd)) {
    unsafe {
        let context = ibv_open_device(devices()[0].0);
        let (one, other) = (ibv_alloc_pd(context), ibv_alloc_pd(context));
        test(one, other);
        assert_eq!([one, other].map(|pd| ibv_dealloc_pd(pd)), [0, 0]);
        assert_eq!(ibv_close_device(context), 0);
    }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The errno of a registration that must fail.
fn refused(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> c_int {
    assert!(unsafe { ibv_reg_mr(pd, addr, length, access) }.is_null());
    errno()
}

#[test]
fn a_domain_is_kept_while_it_has_regions() {
    with_domains(|pd, _| unsafe {
        let pages = Pages::new(libc::PROT_READ | libc::PROT_WRITE);
        let access = (IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_LOCAL_WRITE).cast_signed();
        let mr = ibv_reg_mr(pd, pages.0, Pages::LEN, access);
        assert_eq!(((*mr).addr, (*mr).length, (*mr).pd), (pages.0, Pages::LEN, pd));
        assert_eq!(ibv_dealloc_pd(pd), libc::EBUSY);
        assert_eq!(ibv_dereg_mr(mr), 0);
        assert_eq!(ibv_dereg_mr(mr), libc::EINVAL);
    });
}

#[test]
fn memory_that_is_not_there_is_refused() {
    with_domains(|pd, _| {
        let (gone, sealed) = (Pages::new(libc::PROT_NONE), Pages::new(libc::PROT_READ));
        assert_eq!(refused(pd, null_mut(), 8, WRITE), libc::EINVAL);
        assert_eq!(refused(pd, dangling_mut::<u8>().cast(), 8, WRITE), libc::EFAULT);
        assert_eq!(refused(pd, gone.0, 8, 0), libc::EFAULT);
        assert_eq!(refused(pd, sealed.0, 8, WRITE), libc::EFAULT);
        assert_eq!(refused(pd, sealed.0, usize::MAX - 5, 0), libc::EINVAL);
        let readable = unsafe { ibv_reg_mr(pd, sealed.0, 8, 0) };
        assert_eq!(unsafe { ibv_dereg_mr(readable) }, 0);
    });
}

#[test]
fn mappings_are_read_from_the_kernels_list() {
    let maps = "1000-3000 r--p 0 0:0 0\n3000-5000 rw-p 0 0:0 0 [heap]\n6000-7000 rw-p 0 0:0 0\n";
    let mapped = |start, end, write| is_mapped(maps, start, end, write);
    assert!(mapped(0x1000, 0x5000, false) && mapped(0x3000, 0x5000, true));
    assert!(!mapped(0x2000, 0x4000, true) && !mapped(0x4000, 0x7000, false));
    assert!(!mapped(0, 0x1000, false) && !mapped(0x7000, 0x8000, false));
}

#[test]
fn flags_are_checked() {
    with_domains(|pd, _| {
        let pages = Pages::new(libc::PROT_READ | libc::PROT_WRITE);
        let remote = IBV_ACCESS_REMOTE_WRITE.cast_signed();
        assert_eq!(refused(pd, pages.0, 8, remote), libc::EINVAL);
        assert_eq!(refused(pd, pages.0, 8, 1 << 10), libc::EINVAL);
        let on_demand = IBV_ACCESS_ON_DEMAND.cast_signed();
        assert_eq!(refused(pd, pages.0, 8, on_demand), libc::EOPNOTSUPP);
        assert_eq!(refused(null_mut(), pages.0, 8, WRITE), libc::EINVAL);
        assert_eq!(refused(dangling_mut(), pages.0, 8, WRITE), libc::EINVAL);
    });
}

#[test]
fn offsets_of_a_zero_based_region_start_at_zero() {
    with_domains(|pd, _| unsafe {
        let pages = Pages::new(libc::PROT_READ | libc::PROT_WRITE);
        let mr = ibv_reg_mr(pd, pages.0, 100, WRITE | IBV_ACCESS_ZERO_BASED.cast_signed());
        let domain: &Pd = find(pd).unwrap();
        let local = |address, len| names(domain, ((*mr).lkey, address, len), true);
        assert_eq!([local(0, 100), local(1, 100)], [true, false]);
        assert_eq!(ibv_dereg_mr(mr), 0);
        let mr = ibv_reg_mr_iova(pd, pages.0, 100, 5000, WRITE);
        let local = |address, len| names(domain, ((*mr).lkey, address, len), true);
        assert_eq!([local(5000, 100), local(4999, 1)], [true, false]);
        assert_eq!(ibv_dereg_mr(mr), 0);
        assert!(ibv_reg_mr_iova(pd, pages.0, 100, u64::MAX - 50, WRITE).is_null());
    });
}

#[test]
fn a_region_changes_place_domain_and_rights() {
    with_domains(|pd, other| unsafe {
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        let (here, there) = (Pages::new(writable), Pages::new(writable));
        let mr = ibv_reg_mr(pd, here.0, 100, WRITE);
        let before = (*mr).lkey;
        let all = IBV_REREG_MR_FLAGS_SUPPORTED.cast_signed();
        assert_eq!(ibv_rereg_mr(mr, all, other, there.0, 200, 0), 0);
        assert_eq!(((*mr).addr, (*mr).length, (*mr).pd), (there.0, 200, other));
        let (one, two): (&Pd, &Pd) = (find(pd).unwrap(), find(other).unwrap());
        let (old, new) = (here.0.addr() as u64, there.0.addr() as u64);
        assert!(!names(one, (before, old, 1), false));
        // Peers need not be told.
        assert_eq!(((*mr).lkey, (*mr).rkey), (before, before));
        assert!(names(two, (before, new, 200), false));
        // The right to write has gone.
        assert!(!names(two, (before, new, 200), true));
        assert_eq!((ibv_dealloc_pd(other), one.users.load(Ordering::SeqCst)), (libc::EBUSY, 0));
        assert_eq!(ibv_dereg_mr(mr), 0);
    });
}

#[test]
fn a_change_that_cannot_be_leaves_the_region_as_it_was() {
    with_domains(|pd, _| unsafe {
        let pages = Pages::new(libc::PROT_READ | libc::PROT_WRITE);
        let mr = ibv_reg_mr(pd, pages.0, 100, WRITE);
        let (key, place) = ((*mr).lkey, IBV_REREG_MR_CHANGE_TRANSLATION.cast_signed());
        let change = |flags, pd, addr, length, access| {
            (ibv_rereg_mr(mr, flags, pd, addr, length, access), errno())
        };
        let input = (IBV_REREG_MR_ERR_INPUT, libc::EINVAL);
        assert_eq!(change(0, pd, pages.0, 8, 0), input);
        assert_eq!(change(64, pd, pages.0, 8, 0), input);
        assert_eq!(change(place, pd, null_mut(), 8, 0), input);
        assert_eq!(change(place, pd, pages.0, 8, WRITE), input);
        let domain = IBV_REREG_MR_CHANGE_PD.cast_signed();
        assert_eq!(change(domain, null_mut(), pages.0, 8, 0), input);
        let away = dangling_mut::<u8>().cast();
        assert_eq!(change(place, pd, away, 8, 0), (IBV_REREG_MR_ERR_CMD, libc::EFAULT));
        assert_eq!(ibv_rereg_mr(null_mut(), place, pd, pages.0, 8, 0), IBV_REREG_MR_ERR_INPUT);
        assert_eq!((*mr).lkey, key);
        let start = pages.0.addr() as u64;
        assert!(names(find::<Pd>(pd).unwrap(), (key, start, 100), true));
        assert_eq!(ibv_dereg_mr(mr), 0);
    });
}

#[test]
fn advice_names_registered_memory() {
    with_domains(|pd, _| unsafe {
        let pages = Pages::new(libc::PROT_READ | libc::PROT_WRITE);
        let mr = ibv_reg_mr(pd, pages.0, 100, WRITE);
        let mut sge = ibv_sge { addr: pages.0.addr() as u64, length: 100, lkey: (*mr).lkey };
        assert_eq!(advise_mr(pd, 0, ADVISE_FLUSH, &mut sge, 1), 0);
        assert_eq!(advise_mr(pd, 9, 0, &mut sge, 1), libc::EINVAL);
        assert_eq!(advise_mr(pd, 0, 8, &mut sge, 1), libc::EINVAL);
        assert_eq!(advise_mr(pd, 0, 0, null_mut(), 1), libc::EINVAL);
        assert_eq!(advise_mr(null_mut(), 0, 0, &mut sge, 1), libc::EINVAL);
        sge.length += 1;
        assert_eq!(advise_mr(pd, 0, 0, &mut sge, 1), libc::EINVAL);
        assert_eq!(ibv_dereg_mr(mr), 0);
    });
}
