//! The address by which this machine is reached from where a cast was started.
//!
//! A source that starts each receiver alone says its own address, and sshd says which one it used
//! (`SSH_CONNECTION`; a Slurm job may have inherited it from elsewhere, so that it does not count
//! there); `srun` says its own (`SLURM_LAUNCH_NODE_IPADDR`). The address from which this machine
//! would answer is then the one. No packet is sent.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Any port: nothing is sent there.
const PORT: u16 = 9;

/// The address to listen on. Pass `|name| std::env::var_os(name)`.
pub(super) fn own_address(
    variable: impl Fn(&str) -> Option<OsString>,
    seen_from: Option<IpAddr>,
) -> io::Result<IpAddr> {
    let text = |name: &str| variable(name)?.into_string().ok();
    let Some(source) = seen_from else {
        let of_srun = text("SLURM_LAUNCH_NODE_IPADDR").and_then(|address| parse(&address));
        let starter =
            of_srun.ok_or_else(|| io::Error::other("SLURM_LAUNCH_NODE_IPADDR is not set here"))?;
        return address_towards(starter);
    };
    // Client's address and port, server's address and port.
    let of_ssh = text("SSH_CONNECTION").and_then(|all| parse(all.split(' ').nth(2)?));
    of_ssh.map_or_else(|| address_towards(source), Ok)
}

/// The address from which this machine sends to another.
pub(super) fn address_towards(other: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match other {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(SocketAddr::new(other, PORT))?;
    Ok(socket.local_addr()?.ip())
}

/// An address, without the zone of a link-local one.
fn parse(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.split('%').next()?.parse().ok()?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(variables: &'static [(&str, &str)], seen_from: Option<&str>) -> io::Result<String> {
        let variable = |name: &str| {
            let set = variables.iter().find(|(known, _)| *known == name);
            set.map(|(_, value)| OsString::from(value))
        };
        let seen_from = seen_from.map(|text| text.parse().expect("an address"));
        own_address(variable, seen_from).map(|address| address.to_string())
    }

    #[test]
    fn what_counts_is_who_has_started_this_process() {
        const SSH: (&str, &str) = ("SSH_CONNECTION", "10.0.0.1 999 10.0.0.2 22");
        const SRUN: (&str, &str) = ("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1");
        assert_eq!(own(&[SSH, SRUN], None).expect("srun"), "127.0.0.1");
        assert_eq!(own(&[SSH], Some("127.0.0.9")).expect("sshd"), "10.0.0.2");
        assert_eq!(own(&[], Some("127.0.0.9")).expect("the source"), "127.0.0.1");
        assert_eq!(own(&[("SSH_CONNECTION", "?")], Some("127.0.0.9")).expect("it"), "127.0.0.1");
        assert!(own(&[SSH], None).is_err());
        assert!(own(&[], None).is_err());
    }
}
