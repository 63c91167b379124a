//! Namespaces, the bridge between them, and the rate limits of their links.
//!
//! The bridge is in a namespace of its own. Neighbours are static entries, because the kernel's
//! neighbour table is shared by the whole machine; there is no default route, because programs
//! would wait for a name server behind it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command;

/// The rate of a host's link to the bridge, in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Unlimited: as fast as the machine is.
    Unlimited,
    /// Bits per second. Up to `BURST` bytes pass an idle link at once, so the serialization delay
    /// of a short message is not emulated: with a smaller burst, whole segments would not fit and
    /// the machine would be busy splitting them.
    BitsPerSecond(u64),
    /// Bits per second with the delays of short messages: only two packets pass an idle link at
    /// once. Costs ten times the processor time.
    ShortMessages(u64),
}

/// Whether a host's link is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cable {
    /// Everything is dropped silently.
    Cut,
    /// Everything is passed.
    Joined,
}

/// Bytes.
const BURST: u32 = 70_000;
/// Bytes: two packets.
const SHORT_BURST: u32 = 3_000;
/// Bytes of a link's queue: those of 8 ms at 1 Gbit/s.
const QUEUE: u32 = 1_000_000;

/// TCP's buffers where a link delays: least, first, most bytes. The most is what 10 Gbit/s have
/// under way in 20 ms.
const WINDOWS: [&str; 2] =
    ["net.ipv4.tcp_rmem=4096 131072 50000000", "net.ipv4.tcp_wmem=4096 131072 25000000"];

/// The address of a host in its lab, from the range for tests between networks (RFC 2544 §C.2.2).
pub(super) fn address(index: usize) -> Ipv4Addr {
    let number = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
    Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits().saturating_add(number))
}

pub(super) fn hardware(index: usize) -> String {
    let [.., high, low] = address(index).octets();
    format!("02:00:c6:12:{high:02x}:{low:02x}")
}

/// Makes the namespaces and connects them.
pub(super) fn make(bridge: &str, hosts: &[String], link: Link) -> Result<()> {
    make_bare(hosts)?;
    batch("ip", None, &format!("netns add {bridge}\n"))?;
    batch("ip", Some(bridge), &bridge_of(hosts))?;
    batch("tc", Some(bridge), &limits((0..hosts.len()).map(|host| format!("p{host}")), link))?;
    configure(hosts, link)
}

/// Makes namespaces without any interface.
pub(super) fn make_bare(hosts: &[String]) -> Result<()> {
    let add: String = hosts.iter().map(|name| format!("netns add {name}\n")).collect();
    batch("ip", None, &add)
}

/// Gives each host the address of its interface, which is there already, and limits what it sends.
pub(super) fn configure(hosts: &[String], link: Link) -> Result<()> {
    for (index, host) in hosts.iter().enumerate() {
        batch("ip", Some(host), &host_of(index, hosts.len()))?;
        batch("tc", Some(host), &limits(["eth0".to_owned()].into_iter(), link))?;
    }
    Ok(())
}

/// Lets TCP in a namespace keep more bytes under way than the system's default.
pub(super) fn widen(host: &str) -> Result<()> {
    let mut set = Command::new("ip");
    set.args(["netns", "exec", host, "sysctl", "--quiet", "--write"]);
    command::run(set.args(WINDOWS))
}

/// The bridge, and for each host a pair of interfaces with one end in the host.
fn bridge_of(hosts: &[String]) -> String {
    let mut text = "link set lo up\n\
                    link add br0 type bridge forward_delay 0 stp_state 0 mcast_snooping 0\n\
                    link set br0 up\n"
        .to_owned();
    for (index, host) in hosts.iter().enumerate() {
        let (here, hardware) = (format!("p{index}"), hardware(index));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "link add {here} type veth peer name eth0 address {hardware} netns {host}\n\
             link set {here} master br0 up"
        );
    }
    text
}

fn host_of(index: usize, hosts: usize) -> String {
    let mut text = format!(
        "link set lo up\naddr add {}/15 brd + dev eth0\nlink set eth0 up\n\
         route add 224.0.0.0/4 dev eth0\n",
        address(index)
    );
    for other in (0..hosts).filter(|other| *other != index) {
        let (address, hardware) = (address(other), hardware(other));
        let _ = writeln!(text, "neigh replace {address} lladdr {hardware} nud permanent dev eth0");
    }
    text
}

fn limits(interfaces: impl Iterator<Item = String>, link: Link) -> String {
    let (rate, burst) = match link {
        Link::Unlimited => return String::new(),
        Link::BitsPerSecond(rate) => (rate, BURST),
        Link::ShortMessages(rate) => (rate, SHORT_BURST),
    };
    let limit = |interface| {
        let limit = format!("rate {rate}bit burst {burst} limit {QUEUE}");
        format!("qdisc replace dev {interface} root tbf {limit}\n")
    };
    interfaces.map(limit).collect()
}

/// Cuts or connects a link at the bridge.
pub(super) fn cable(bridge: &str, index: usize, cable: Cable) -> Result<()> {
    let state = match cable {
        Cable::Cut => "down",
        Cable::Joined => "up",
    };
    batch("ip", Some(bridge), &format!("link set p{index} {state}\n"))
}

/// Changes a link's rate in both directions; what waits in its queues is lost.
pub(super) fn relink(bridge: &str, host: &str, index: usize, link: Link) -> Result<()> {
    batch("tc", Some(bridge), &limits([format!("p{index}")].into_iter(), link))?;
    batch("tc", Some(host), &limits(["eth0".to_owned()].into_iter(), link))
}

/// Moves hosts to a second bridge, behind a link of its own.
pub(super) fn part(bridge: &str, hosts: &[usize], link: Link) -> Result<()> {
    let mut text = "link add br1 type bridge forward_delay 0 stp_state 0 mcast_snooping 0\n\
                    link set br1 up\n\
                    link add near type veth peer name far\n\
                    link set near master br0 up\n\
                    link set far master br1 up\n"
        .to_owned();
    for host in hosts {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "link set p{host} master br1");
    }
    batch("ip", Some(bridge), &text)?;
    let ends = ["near", "far"].map(str::to_owned);
    batch("tc", Some(bridge), &limits(ends.into_iter(), link))
}

/// Moves them back.
pub(super) fn join(bridge: &str, hosts: &[usize]) -> Result<()> {
    let back = hosts.iter().map(|host| format!("link set p{host} master br0\n"));
    let text: String = back.chain(["link del near\nlink del br1\n".to_owned()]).collect();
    batch("ip", Some(bridge), &text)
}

/// The bytes that the link between two bridges has brought to the second.
pub(super) fn crossed(bridge: &str) -> Result<u64> {
    sent_by(bridge, "near")
}

/// The bytes that a host's interface has sent.
pub(super) fn sent(namespace: &str) -> Result<u64> {
    sent_by(namespace, "eth0")
}

fn sent_by(namespace: &str, interface: &str) -> Result<u64> {
    let mut show = Command::new("ip");
    show.args(["-n", namespace, "-statistics", "-json", "link", "show", interface]);
    let shown: Value = serde_json::from_str(&command::output(&mut show)?)?;
    let bytes = shown.pointer("/0/stats64/tx/bytes").and_then(Value::as_u64);
    bytes.with_context(|| format!("ip shows no bytes sent: {shown}"))
}

/// Passes several commands to `ip` or `tc` at once.
fn batch(program: &str, namespace: Option<&str>, lines: &str) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut tool = Command::new(program);
    tool.args(namespace.iter().flat_map(|name| ["-n", name])).args(["-batch", "-"]);
    tool.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = tool.spawn();
    let mut child = child.with_context(|| format!("cannot start {}", command::line(&tool)))?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(lines.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        bail!("{} failed: {said}", command::line(&tool));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_do_not_end_at_255() {
        assert_eq!(address(0), Ipv4Addr::new(198, 18, 0, 1));
        assert_eq!(address(299), Ipv4Addr::new(198, 18, 1, 44));
        assert_eq!(hardware(299), "02:00:c6:12:01:2c");
    }

    #[test]
    fn an_unlimited_link_has_no_limits() {
        let ports = || ["p0".to_owned(), "p1".to_owned()].into_iter();
        assert_eq!(limits(ports(), Link::Unlimited), "");
        assert_eq!(limits(ports(), Link::BitsPerSecond(1_000_000_000)).lines().count(), 2);
    }
}
