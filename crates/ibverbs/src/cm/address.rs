//! Socket addresses, between C and Rust. Devices have IPv4 addresses; IPv6 addresses are understood
//! if they have an IPv4 equivalent (`::`, `::1`, `::ffff:a.b.c.d`).

use super::port;
use crate::config::config;
use crate::guard::{Outcome, fail};
use libc::{c_int, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

const INET: sa_family_t = family(libc::AF_INET);
const INET6: sa_family_t = family(libc::AF_INET6);

/// Families are numbers of a size that fits.
const fn family(number: c_int) -> sa_family_t {
    let [first, second, ..] = number.to_le_bytes();
    sa_family_t::from_le_bytes([first, second])
}

/// Reads what a program passes.
///
/// # Errors
/// EINVAL for null, EAFNOSUPPORT for families other than IPv4 and IPv6.
///
/// # Safety
/// Not null, it points to as many bytes as its family says.
pub(crate) unsafe fn read(address: *const sockaddr) -> Outcome<SocketAddr> {
    if address.is_null() {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's word, for each family.
    unsafe {
        match (*address).sa_family {
            INET => Ok(from_v4(address.cast::<sockaddr_in>().read_unaligned())),
            INET6 => Ok(from_v6(address.cast::<sockaddr_in6>().read_unaligned())),
            _ => fail(libc::EAFNOSUPPORT),
        }
    }
}

fn from_v4(c: sockaddr_in) -> SocketAddr {
    let address = Ipv4Addr::from(u32::from_be(c.sin_addr.s_addr));
    SocketAddrV4::new(address, u16::from_be(c.sin_port)).into()
}

fn from_v6(c: sockaddr_in6) -> SocketAddr {
    let address = Ipv6Addr::from(c.sin6_addr.s6_addr);
    SocketAddrV6::new(address, u16::from_be(c.sin6_port), c.sin6_flowinfo, c.sin6_scope_id).into()
}

/// Writes an address for a program, and zeros behind it.
///
/// # Safety
/// The whole storage may be written.
pub(crate) unsafe fn write(to: *mut sockaddr_storage, address: SocketAddr) {
    // SAFETY: the caller's word; the storage is aligned for and larger than each family's address.
    unsafe {
        to.write_bytes(0, 1);
        match address {
            SocketAddr::V4(v4) => {
                let c = to.cast::<sockaddr_in>();
                (*c).sin_family = INET;
                (*c).sin_port = v4.port().to_be();
                (*c).sin_addr.s_addr = u32::from(*v4.ip()).to_be();
            }
            SocketAddr::V6(v6) => {
                let c = to.cast::<sockaddr_in6>();
                (*c).sin6_family = INET6;
                (*c).sin6_port = v6.port().to_be();
                (*c).sin6_addr.s6_addr = v6.ip().octets();
                (*c).sin6_flowinfo = v6.flowinfo();
                (*c).sin6_scope_id = v6.scope_id();
            }
        }
    }
}

/// The IPv4 equivalent of an address.
///
/// # Errors
/// EADDRNOTAVAIL for an IPv6 address that has no such form: no device has one.
pub(crate) fn v4(address: SocketAddr) -> Outcome<SocketAddrV4> {
    let ip = match address {
        SocketAddr::V4(v4) => return Ok(v4),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => Some(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(v6) if v6.ip().is_loopback() => Some(Ipv4Addr::LOCALHOST),
        SocketAddr::V6(v6) => v6.ip().to_ipv4_mapped(),
    };
    match ip {
        Some(ip) => Ok(SocketAddrV4::new(ip, address.port())),
        None => fail(libc::EADDRNOTAVAIL),
    }
}

/// The TCP address behind an RDMA address, and the other way round.
pub(crate) fn other_side(address: SocketAddrV4) -> SocketAddrV4 {
    let port = port::other_side(config().personality, address.port());
    SocketAddrV4::new(*address.ip(), port)
}

/// An IPv4 address in the family of `like`.
pub(crate) fn in_family(address: SocketAddrV4, like: SocketAddr) -> SocketAddr {
    match like {
        SocketAddr::V4(_) => address.into(),
        SocketAddr::V6(_) => {
            SocketAddrV6::new(address.ip().to_ipv6_mapped(), address.port(), 0, 0).into()
        }
    }
}

/// A copy of the program's bytes.
///
/// # Safety
/// `start` is null or points to that many bytes.
pub(crate) unsafe fn bytes(start: *const u8, len: usize) -> Vec<u8> {
    if start.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's word.
    unsafe { std::slice::from_raw_parts(start, len) }.to_vec()
}
