//! A network interface's properties from the kernel: its flags, MTU, hardware address, speed.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// linux/sockios.h: asks for a neighbour.
const SIOCGARP: libc::c_ulong = 0x8954;
/// As the 16-bit integer of socket addresses.
const AF_INET: libc::sa_family_t = 2;
/// net/if_arp.h: the neighbour has answered.
const ATF_COM: libc::c_int = 2;

/// Asks the kernel about an interface; `None` when it is gone.
fn ask(name: &str, request: libc::c_ulong) -> Option<libc::ifreq> {
    // SAFETY: integers, and unions of integers: zero is valid.
    let mut question: libc::ifreq = unsafe { std::mem::zeroed() };
    crate::device::put(&mut question.ifr_name, name);
    let socket = UdpSocket::bind(("127.0.0.1", 0)).ok()?;
    // SAFETY: these requests read and write one ifreq.
    let code = unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut question) };
    (code == 0).then_some(question)
}

/// True while the interface is up and has a carrier.
pub(crate) fn is_running(name: &str) -> bool {
    let wanted = libc::IFF_UP | libc::IFF_RUNNING;
    ask(name, libc::SIOCGIFFLAGS).is_some_and(|answer| {
        // SAFETY: the kernel has written the flags.
        let flags = unsafe { answer.ifr_ifru.ifru_flags };
        libc::c_int::from(flags) & wanted == wanted
    })
}

/// Bytes that an IP packet may have.
pub(crate) fn mtu(name: &str) -> Option<u32> {
    // SAFETY: the kernel has written the MTU.
    let mtu = |answer: libc::ifreq| unsafe { answer.ifr_ifru.ifru_mtu };
    ask(name, libc::SIOCGIFMTU).and_then(|answer| u32::try_from(mtu(answer)).ok())
}

/// The Ethernet address; `None` without one, as on loopback.
pub(crate) fn hardware_address(name: &str) -> Option<[u8; 6]> {
    let answer = ask(name, libc::SIOCGIFHWADDR)?;
    // SAFETY: the kernel has written the address.
    let address = unsafe { answer.ifr_ifru.ifru_hwaddr };
    let mut bytes = [0; 6];
    for (to, from) in bytes.iter_mut().zip(address.sa_data) {
        *to = from.cast_unsigned();
    }
    (address.sa_family == libc::ARPHRD_ETHER && bytes != [0; 6]).then_some(bytes)
}

/// Megabits per second, where the driver knows.
pub(crate) fn speed(name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    text.trim().parse().ok().filter(|speed| *speed > 0)
}

/// Its number in the kernel; 0 when it is gone.
pub(crate) fn index(name: &str) -> u32 {
    let Ok(name) = std::ffi::CString::new(name) else { return 0 };
    // SAFETY: a text that ends with a zero.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// The Ethernet address of a neighbour, if the kernel knows it.
pub(crate) fn neighbour(name: &str, of: std::net::Ipv4Addr) -> Option<[u8; 6]> {
    // SAFETY: integers: zero is valid.
    let mut question: libc::arpreq = unsafe { std::mem::zeroed() };
    let address = (&raw mut question.arp_pa).cast::<libc::sockaddr_in>();
    // SAFETY: both are socket addresses of the same size.
    unsafe {
        (*address).sin_family = AF_INET;
        (*address).sin_addr.s_addr = u32::from_ne_bytes(of.octets());
    }
    crate::device::put(&mut question.arp_dev, name);
    let socket = UdpSocket::bind(("127.0.0.1", 0)).ok()?;
    // SAFETY: reads and writes one arpreq.
    let code = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGARP as _, &raw mut question) };
    let complete = question.arp_flags & ATF_COM != 0;
    let mut bytes = [0; 6];
    for (to, from) in bytes.iter_mut().zip(question.arp_ha.sa_data) {
        *to = from.cast_unsigned();
    }
    (code == 0 && complete).then_some(bytes)
}
