//! Address handles (ibv_create_ah(3)): the destinations of datagrams of the RoCE personality. iWARP
//! has none.

use crate::abi::{IBV_WC_GRH, ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_grh, ibv_pd, ibv_wc};
use crate::config::{Personality, config};
use crate::context::Context;
use crate::device::Device;
use crate::guard::{Errno, Outcome, code, fail, minus_one, pointer};
use crate::interface;
use crate::object::{Kind, Object, Shown, find, give, take};
use crate::pd::Pd;
use libc::c_int;
use std::mem::offset_of;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a neighbour may take to answer with its Ethernet address.
const NEIGHBOUR_LIMIT: Duration = Duration::from_secs(3);
/// The value for "no VLAN".
const NO_VLAN: u16 = 0xFFFF;
/// Bytes of a GRH before the IPv4 header, which occupies its end.
const IPV4_AT: usize = 20;
/// IP's number of UDP.
const UDP: u8 = 17;

/// An address handle.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Ah {
    shown: Shown<ibv_ah>,
    tag: Kind,
    /// The machine that datagrams go to.
    pub(crate) to: Ipv4Addr,
}

// SAFETY: the structure is the first field.
unsafe impl Object for Ah {
    type C = ibv_ah;
    const KIND: Kind = Kind::Ah;
    const OFFSET: usize = offset_of!(Self, shown);
    fn tag(&self) -> Kind {
        self.tag
    }
}

/// The IPv4 address that a GID stands for, if it does.
pub(crate) fn ipv4_of(gid: &ibv_gid) -> Option<Ipv4Addr> {
    // SAFETY: 16 bytes however they are named.
    Ipv6Addr::from(unsafe { gid.raw }).to_ipv4_mapped()
}

fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Outcome<*mut ibv_ah> {
    let domain: &Pd = find(pd)?;
    if config().personality == Personality::Iwarp {
        return fail(libc::EOPNOTSUPP);
    }
    // RoCE has no local identifiers: the GRH says everything.
    if attr.port_num != 1 || attr.is_global == 0 || attr.grh.sgid_index != 0 {
        return fail(libc::EINVAL);
    }
    let to = ipv4_of(&attr.grh.dgid).ok_or(Errno(libc::EINVAL))?;
    let shown = Shown::<ibv_ah>::zeroed();
    // SAFETY: no other code has the structure yet.
    let c = unsafe { &mut *shown.get() };
    (c.context, c.pd) = (domain.context(), pd);
    domain.users.fetch_add(1, Ordering::SeqCst);
    Ok(give(Box::new(Ah { shown, tag: Kind::Ah, to })))
}

/// ibv_create_ah(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    pointer("ibv_create_ah", || {
        // SAFETY: null, or the caller's word.
        create(pd, unsafe { attr.as_ref() }.ok_or(Errno(libc::EINVAL))?)
    })
}

/// ibv_destroy_ah(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    code("ibv_destroy_ah", || {
        let taken = take::<Ah>(ah)?;
        // SAFETY: set once, before anybody else knew the structure.
        let pd = unsafe { (*taken.shown.get()).pd };
        find::<Pd>(pd)?.users.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    })
}

/// The way back to the sender of a completed message.
fn way_back(device: &Device, port: u8, wc: &ibv_wc, grh: *const ibv_grh) -> Outcome<ibv_ah_attr> {
    let mut attr: ibv_ah_attr = crate::object::zeroed();
    (attr.dlid, attr.sl, attr.src_path_bits) = (wc.slid, wc.sl, wc.dlid_path_bits);
    attr.port_num = port;
    if wc.wc_flags & IBV_WC_GRH == 0 {
        return Ok(attr);
    }
    // SAFETY: null, or the caller's word; it need not be aligned.
    let bytes = unsafe { grh.cast::<[u8; 40]>().as_ref() }.ok_or(Errno(libc::EINVAL))?;
    attr.is_global = 1;
    attr.grh.flow_label = u32::from_be_bytes([0, bytes[1] & 0xF, bytes[2], bytes[3]]);
    match ipv4_header(bytes) {
        Some(header) => back_to_ipv4(device, &header, &mut attr)?,
        None if bytes[0] >> 4 == 6 => back_to_ipv6(device, bytes, &mut attr)?,
        None => return fail(libc::EPROTONOSUPPORT),
    }
    Ok(attr)
}

/// The IPv4 header at the end of the 40 bytes, if that is what they hold: without IPv6's version
/// at their start any header will do, with it only one of 20 bytes whose checksum is right.
fn ipv4_header(grh: &[u8; 40]) -> Option<[u8; 20]> {
    let header: [u8; 20] = grh[IPV4_AT..].try_into().ok()?;
    let known = if grh[0] >> 4 == 6 {
        header[0] & 0xF == 5 && checksum(&header) == 0xFFFF
    } else {
        header[0] >> 4 == 4
    };
    known.then_some(header)
}

/// Ones' complement sum of 16-bit words (RFC 791): all ones over a header with its checksum.
fn checksum(header: &[u8; 20]) -> u32 {
    let words = header.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    (sum & 0xFFFF) + (sum >> 16)
}

fn back_to_ipv4(device: &Device, header: &[u8; 20], attr: &mut ibv_ah_attr) -> Outcome<()> {
    let [.., a, b, c, d, e, f, g, h] = *header;
    if Ipv4Addr::new(e, f, g, h).to_ipv6_mapped().octets() != device.gid() {
        return fail(libc::EINVAL);
    }
    attr.grh.dgid.raw = Ipv4Addr::new(a, b, c, d).to_ipv6_mapped().octets();
    (attr.grh.traffic_class, attr.grh.hop_limit) = (header[1], header[8]);
    Ok(())
}

fn back_to_ipv6(device: &Device, grh: &[u8; 40], attr: &mut ibv_ah_attr) -> Outcome<()> {
    if grh[6] != UDP {
        return fail(libc::EPROTONOSUPPORT);
    }
    if grh[24..] != device.gid() {
        return fail(libc::EINVAL);
    }
    let mut from = [0; 16];
    from.copy_from_slice(&grh[8..24]);
    attr.grh.dgid.raw = from;
    attr.grh.traffic_class = grh[0] << 4 | grh[1] >> 4;
    attr.grh.hop_limit = grh[7];
    Ok(())
}

fn answer_to(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
) -> Outcome<ibv_ah_attr> {
    let device = find::<Context>(context)?.device;
    // SAFETY: null, or the caller's word.
    let wc = unsafe { wc.as_ref() }.ok_or(Errno(libc::EINVAL))?;
    if port != 1 {
        return fail(libc::EINVAL);
    }
    way_back(device, port, wc, grh)
}

/// ibv_init_ah_from_wc(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    ah_attr: *mut ibv_ah_attr,
) -> c_int {
    minus_one("ibv_init_ah_from_wc", || {
        let answer = answer_to(context, port_num, wc, grh)?;
        // SAFETY: null, or the caller's word.
        *unsafe { ah_attr.as_mut() }.ok_or(Errno(libc::EINVAL))? = answer;
        Ok(0)
    })
}

/// ibv_create_ah_from_wc(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port_num: u8,
) -> *mut ibv_ah {
    pointer("ibv_create_ah_from_wc", || {
        let context = find::<Pd>(pd)?.context();
        create(pd, &answer_to(context, port_num, wc, grh)?)
    })
}

/// The Ethernet address of a machine on this device's network; asks for it if the kernel does not
/// know it yet.
fn resolve(device: &Device, to: Ipv4Addr) -> Outcome<[u8; 6]> {
    if to == device.address || to.is_loopback() {
        return Ok(device.mac);
    }
    let asked = UdpSocket::bind((device.address, 0))?;
    let deadline = Instant::now() + NEIGHBOUR_LIMIT;
    loop {
        if let Some(address) = interface::neighbour(&device.interface, to) {
            return Ok(address);
        }
        if Instant::now() >= deadline {
            return fail(libc::EHOSTUNREACH);
        }
        // Any datagram makes the kernel ask; port 9 discards it. The deadline covers failures.
        let _sent = asked.send_to(&[], (to, 9));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The Ethernet address behind a GID on the same network (RoCE providers ask for it): 0, or an
/// errno number below 0.
///
/// # Safety
/// The structures are the caller's; `vid` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    context: *mut ibv_context,
    attr: *mut ibv_ah_attr,
    eth_mac: *mut [u8; 6],
    vid: *mut u16,
) -> c_int {
    -code("ibv_resolve_eth_l2_from_gid", || {
        let device = find::<Context>(context)?.device;
        // SAFETY: null, or the caller's word.
        let both = unsafe { attr.as_ref().zip(eth_mac.as_mut()) };
        let (attr, mac) = both.ok_or(Errno(libc::EINVAL))?;
        if attr.port_num != 1 || attr.grh.sgid_index != 0 {
            return fail(libc::EINVAL);
        }
        *mac = resolve(device, ipv4_of(&attr.grh.dgid).ok_or(Errno(libc::EINVAL))?)?;
        // SAFETY: null, or the caller's word.
        if let Some(vid) = unsafe { vid.as_mut() } {
            *vid = NO_VLAN;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests;
