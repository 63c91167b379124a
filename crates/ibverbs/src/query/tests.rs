//! Queries with valid and with invalid arguments.

// Entries are called as programs call them; the tests choose the arguments.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::*;
use crate::context::{ibv_close_device, ibv_open_device};
use crate::device::*;
use crate::object::zeroed;
use std::ffi::CStr;
use std::ptr::{dangling_mut, null, null_mut};

fn open() -> *mut ibv_context {
    unsafe { ibv_open_device(devices()[0].0) }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[test]
fn the_device_list_ends_with_null_and_is_freed_once() {
    let mut count = 0;
    unsafe {
        let list = ibv_get_device_list(&mut count);
        let count = usize::try_from(count).expect("a number of devices");
        assert!(count > 0 && !(*list).is_null() && (*list.add(count)).is_null());
        let name = CStr::from_ptr(ibv_get_device_name(*list));
        assert_eq!((name, ibv_get_device_index(*list)), (c"outboard0", 0));
        assert_eq!(u64::from_be(ibv_get_device_guid(*list)) >> 56, 2);
        ibv_free_device_list(list);
        ibv_free_device_list(list);
        ibv_free_device_list(null_mut());
        ibv_free_device_list(dangling_mut());
        ibv_free_device_list(ibv_get_device_list(null_mut()));
    }
}

#[test]
fn a_foreign_device_pointer_is_refused() {
    let context = open();
    for device in [null_mut(), dangling_mut(), context.cast()] {
        unsafe {
            assert!(ibv_get_device_name(device).is_null());
            assert_eq!((ibv_get_device_guid(device), ibv_get_device_index(device)), (0, -1));
            assert!(ibv_open_device(device).is_null());
        }
        assert_eq!(errno(), libc::EINVAL);
    }
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
    assert_eq!(unsafe { ibv_close_device(context) }, -1);
}

#[test]
fn both_forms_of_device_query_agree() {
    let context = open();
    let (mut old, mut new): (ibv_device_attr, ibv_device_attr_ex) = (zeroed(), zeroed());
    let size = size_of::<ibv_device_attr_ex>();
    unsafe {
        assert_eq!(ibv_query_device(context, &mut old), 0);
        assert_eq!(query_device_ex(context, null(), &mut new, size), 0);
        assert_eq!(new.orig_attr.node_guid, ibv_get_device_guid((*context).device));
        let version = CStr::from_ptr(old.fw_ver.as_ptr());
        assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    }
    assert_eq!((old.max_qp, old.max_mr), (new.orig_attr.max_qp, new.orig_attr.max_mr));
    assert_eq!((old.phys_port_cnt, new.phys_port_cnt_ex), (1, 1));
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
}

#[test]
fn device_queries_refuse_nonsense() {
    let context = open();
    let mut attr: ibv_device_attr_ex = zeroed();
    let size = size_of::<ibv_device_attr_ex>();
    let asked = ibv_query_device_ex_input { comp_mask: 1 };
    unsafe {
        assert_eq!(ibv_query_device(null_mut(), &mut attr.orig_attr), libc::EINVAL);
        assert_eq!(ibv_query_device(dangling_mut(), &mut attr.orig_attr), libc::EINVAL);
        assert_eq!(ibv_query_device(context, null_mut()), libc::EINVAL);
        assert_eq!(query_device_ex(context, &asked, &mut attr, size), libc::EINVAL);
        assert_eq!(query_device_ex(context, null(), &mut attr, 100), libc::EINVAL);
        assert_eq!(query_device_ex(context, null(), null_mut(), size), libc::EINVAL);
        assert_eq!(ibv_close_device(context), 0);
        // The context is gone.
        assert_eq!(ibv_query_device(context, &mut attr.orig_attr), libc::EINVAL);
    }
}

#[test]
fn a_port_query_writes_no_more_than_the_caller_has_room_for() {
    let context = open();
    let mut attr: ibv_port_attr = zeroed();
    attr.link_layer = 99;
    unsafe {
        assert_eq!(query_port(context, 1, &mut attr, 12), 0);
        assert_eq!((attr.max_mtu, attr.link_layer), (IBV_MTU_4096, 99));
        assert_eq!(query_port(context, 1, &mut attr, size_of::<ibv_port_attr>()), 0);
        assert_eq!((attr.link_layer, attr.gid_tbl_len), (2, 1));
        // What was there before port_cap_flags2, and nothing behind it.
        let mut room = [9u8; 52];
        let old = room.as_mut_ptr().cast::<_compat_ibv_port_attr>();
        assert_eq!(ibv_query_port(context, 1, old), 0);
        let new = std::slice::from_raw_parts((&raw const attr).cast::<u8>(), 48);
        assert_eq!((&room[..48], &room[48..]), (new, &[9; 4][..]));
        for port in [0, 2, 255] {
            assert_eq!(ibv_query_port(context, port, old), libc::EINVAL);
        }
        assert_eq!(ibv_query_port(context, 1, null_mut()), libc::EINVAL);
        assert_eq!(ibv_close_device(context), 0);
    }
}

#[test]
fn there_is_one_gid() {
    let context = open();
    let (mut gid, mut entry): (ibv_gid, ibv_gid_entry) = (zeroed(), zeroed());
    let mut table: [ibv_gid_entry; 4] = zeroed();
    let (size, mut kind) = (size_of::<ibv_gid_entry>(), 7);
    unsafe {
        assert_eq!(ibv_query_gid(context, 1, 0, &mut gid), 0);
        assert_eq!(_ibv_query_gid_ex(context, 1, 0, &mut entry, 0, size), 0);
        assert_eq!(_ibv_query_gid_table(context, table.as_mut_ptr(), 4, 0, size), 1);
        assert_ne!(gid.raw, [0; 16]);
        assert_eq!([entry.gid.raw, table[0].gid.raw], [gid.raw; 2]);
        assert_eq!((entry.port_num, entry.gid_type), (1, IBV_GID_TYPE_IB));
        assert!(entry.ndev_ifindex > 0);
        assert_eq!(ibv_query_gid_type(context, 1, 0, &mut kind), 0);
        assert_eq!(kind, 0);
        for (port, index) in [(1, 1), (1, -1), (0, 0), (2, 0)] {
            assert_eq!(ibv_query_gid(context, port, index, &mut gid), -1);
            let number = index.cast_unsigned();
            assert_eq!(ibv_query_gid_type(context, port, number, &mut kind), -1);
        }
        assert_eq!(ibv_query_gid(context, 1, 0, null_mut()), -1);
        assert_eq!(_ibv_query_gid_ex(context, 1, 0, &mut entry, 1, size), libc::EINVAL);
        assert_eq!(_ibv_query_gid_ex(context, 1, 0, &mut entry, 0, 4), libc::EINVAL);
        let negative = -(libc::EINVAL as libc::ssize_t);
        assert_eq!(_ibv_query_gid_table(context, table.as_mut_ptr(), 0, 0, size), negative);
        assert_eq!(_ibv_query_gid_table(null_mut(), table.as_mut_ptr(), 4, 0, size), negative);
        assert_eq!(ibv_close_device(context), 0);
    }
}

#[test]
fn there_is_one_partition() {
    let (context, mut pkey) = (open(), 0);
    unsafe {
        assert_eq!(ibv_query_pkey(context, 1, 0, &mut pkey), 0);
        assert_eq!((pkey, ibv_get_pkey_index(context, 1, pkey)), (0xFFFF, 0));
        assert_eq!(ibv_query_pkey(context, 1, 1, &mut pkey), -1);
        assert_eq!(ibv_query_pkey(context, 1, 0, null_mut()), -1);
        assert_eq!(ibv_get_pkey_index(context, 1, 3), -1);
        assert_eq!(ibv_get_pkey_index(null_mut(), 1, pkey), -1);
        assert_eq!(ibv_close_device(context), 0);
    }
}

#[test]
fn links_have_the_next_higher_speed() {
    assert_eq!(
        [lanes(Some(1_000)), lanes(Some(25_000)), lanes(Some(100_000))],
        [(1, 1), (1, 32), (2, 32)]
    );
    assert_eq!([lanes(None), lanes(Some(u32::MAX))], [(1, 4), (2, 128)]);
}
