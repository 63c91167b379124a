//! `HOST` or `HOST:PORT`, as users write it: names, IPv4, IPv6 with or without brackets.

use outboard_perf::DEFAULT_PORT;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};

/// The first address that a host has.
pub(super) fn resolve(text: &str) -> Result<SocketAddr, String> {
    let (host, port) = split(text)?;
    (host, port)
        .to_socket_addrs()
        .map_err(|error| error.to_string())
        .and_then(|mut all| all.next().ok_or_else(|| "it has no address".to_owned()))
        .map_err(|why| format!("cannot find {host}: {why}; write it as HOST or HOST:PORT"))
}

/// The host's name or address, and its port.
fn split(text: &str) -> Result<(&str, u16), String> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok((text, DEFAULT_PORT));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, parse_port(port)?),
        _ => (text, DEFAULT_PORT),
    };
    let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    Ok((inside.unwrap_or(host), port))
}

fn parse_port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("the port is {text}; it must be a number from 0 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_ports() {
        for (text, host, port) in [
            ("localhost", "localhost", DEFAULT_PORT),
            ("localhost:80", "localhost", 80),
            ("127.0.0.1:0", "127.0.0.1", 0),
            ("::1", "::1", DEFAULT_PORT),
            ("[::1]", "::1", DEFAULT_PORT),
            ("[::1]:80", "::1", 80),
            ("fe80::1:2", "fe80::1:2", DEFAULT_PORT),
        ] {
            assert_eq!(split(text), Ok((host, port)), "{text}");
        }
        assert_eq!(resolve("[::1]:80").unwrap().to_string(), "[::1]:80");
    }

    #[test]
    fn a_bad_port_is_called_one() {
        for port in ["99999", "-1", "x", ""] {
            let error = resolve(&format!("127.0.0.1:{port}")).unwrap_err();
            assert!(error.starts_with(&format!("the port is {port};")), "{error}");
        }
    }
}
