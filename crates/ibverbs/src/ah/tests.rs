//! Ways back, and handles refused. (Unit tests run as iWARP, which has no handles.)

// Entries are called as programs call them; the tests choose the arguments.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::*;
use crate::abi::ibv_context;
use crate::context::{ibv_close_device, ibv_open_device};
use crate::device::devices;
use crate::object::zeroed;
use crate::pd::{ibv_alloc_pd, ibv_dealloc_pd};
use std::ptr::{dangling_mut, null_mut};

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn device() -> &'static Device {
    find(devices()[0].0).unwrap()
}

/// Twenty bytes without options, from 10.1.2.3 to 10.1.2.4, with this checksum.
fn header(version: u8, sum: u16) -> [u8; 20] {
    let [high, low] = sum.to_be_bytes();
    [version << 4 | 5, 8, 0, 60, 0, 0, 0, 0, 61, UDP, high, low, 10, 1, 2, 3, 10, 1, 2, 4]
}

fn grh(first: u8, header: [u8; 20]) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[0] = first;
    bytes[IPV4_AT..].copy_from_slice(&header);
    bytes
}

#[test]
fn an_ipv4_header_is_known_by_its_version_or_checksum() {
    let good = header(4, 0);
    let sum = u16::try_from(checksum(&good)).unwrap();
    assert_eq!(ipv4_header(&grh(0, good)), Some(good));
    assert_eq!(ipv4_header(&grh(0, header(3, 0))), None);
    let summed = header(4, !sum);
    assert_eq!(ipv4_header(&grh(0x60, summed)), Some(summed));
    assert_eq!(ipv4_header(&grh(0x60, good)), None);
}

#[test]
fn a_datagram_for_another_address_has_no_way_back() {
    let mut attr: ibv_ah_attr = zeroed();
    assert_eq!(back_to_ipv4(device(), &header(4, 0), &mut attr), fail(libc::EINVAL));
    let mut bytes = [0; 40];
    assert_eq!(back_to_ipv6(device(), &bytes, &mut attr), fail(libc::EPROTONOSUPPORT));
    bytes[6] = UDP;
    assert_eq!(back_to_ipv6(device(), &bytes, &mut attr), fail(libc::EINVAL));
}

#[test]
fn an_ipv6_header_names_the_sender() {
    let mut bytes = [0; 40];
    (bytes[0], bytes[1], bytes[6], bytes[7]) = (0x6A, 0xB3, UDP, 17);
    bytes[8..24].copy_from_slice(&[9; 16]);
    bytes[24..].copy_from_slice(&device().gid());
    let mut wc: ibv_wc = zeroed();
    wc.wc_flags = IBV_WC_GRH;
    let attr = way_back(device(), 1, &wc, bytes.as_ptr().cast()).unwrap();
    assert_eq!(unsafe { attr.grh.dgid.raw }, [9; 16]);
    assert_eq!((attr.grh.traffic_class, attr.grh.hop_limit), (0xAB, 17));
    assert_eq!((attr.grh.flow_label, attr.is_global, attr.port_num), (0x3_0000, 1, 1));
}

#[test]
fn iwarp_has_no_handles_and_nonsense_is_refused() {
    let (mut attr, mut wc): (ibv_ah_attr, ibv_wc) = (zeroed(), zeroed());
    unsafe {
        let context = ibv_open_device(devices()[0].0);
        let pd = ibv_alloc_pd(context);
        assert!(ibv_create_ah(pd, &mut attr).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        for pd in [null_mut(), dangling_mut(), context.cast::<ibv_pd>()] {
            assert!(ibv_create_ah(pd, &mut attr).is_null());
            assert!(ibv_create_ah_from_wc(pd, &mut wc, null_mut(), 1).is_null());
            assert_eq!(ibv_destroy_ah(pd.cast()), libc::EINVAL);
        }
        assert!(ibv_create_ah(pd, null_mut()).is_null());
        assert_eq!(ibv_init_ah_from_wc(context, 1, &mut wc, null_mut(), &mut attr), 0);
        assert_eq!(ibv_init_ah_from_wc(context, 2, &mut wc, null_mut(), &mut attr), -1);
        assert_eq!(ibv_init_ah_from_wc(context, 1, &mut wc, null_mut(), null_mut()), -1);
        wc.wc_flags = IBV_WC_GRH;
        assert_eq!(ibv_init_ah_from_wc(context, 1, &mut wc, null_mut(), &mut attr), -1);
        assert_eq!((ibv_dealloc_pd(pd), ibv_close_device(context)), (0, 0));
    }
}

#[test]
fn neighbours_are_asked_for_their_ethernet_address() {
    let (mut attr, mut mac, mut vlan): (ibv_ah_attr, _, _) = (zeroed(), [0; 6], 0);
    unsafe {
        let context = ibv_open_device(devices()[0].0);
        let resolve = ibv_resolve_eth_l2_from_gid;
        assert_eq!(resolve(context, &mut attr, &mut mac, &mut vlan), -libc::EINVAL);
        attr.port_num = 1;
        attr.grh.dgid.raw = device().address.to_ipv6_mapped().octets();
        assert_eq!(resolve(context, &mut attr, &mut mac, &mut vlan), 0);
        assert_eq!((mac, vlan), (device().mac, NO_VLAN));
        assert_eq!(resolve(context, &mut attr, null_mut(), &mut vlan), -libc::EINVAL);
        let nobody: *mut ibv_context = null_mut();
        assert_eq!(resolve(nobody, &mut attr, &mut mac, null_mut()), -libc::EINVAL);
        assert_eq!(ibv_close_device(context), 0);
    }
}
