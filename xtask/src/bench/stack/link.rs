//! Two hosts and a gigabit link between them: network namespaces, a pair of virtual Ethernet
//! devices, a token bucket at each end. Needs root.

use std::process::Command;

use anyhow::Result;

use crate::command;

/// The client's host and the server's.
const HOSTS: [&str; 2] = ["outboard-bench-0", "outboard-bench-1"];
const DEVICES: [&str; 2] = ["bench0", "bench1"];
const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
/// Enough for the largest packet that the kernel hands down whole.
const BUCKET: &str = "tbf rate 1gbit burst 70k latency 50ms";

/// The link; it is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Link(());

impl Link {
    /// Makes it; `None` if this user may not.
    pub(super) fn new() -> Result<Option<Self>> {
        // Left by a run that was killed.
        drop(Self(()));
        if !command::succeeds("ip", &["netns", "add", HOSTS[0]]) {
            return Ok(None);
        }
        let link = Self(());
        ip(&["netns", "add", HOSTS[1]])?;
        let ends = ["type", "veth", "peer", "name", DEVICES[1], "netns", HOSTS[1]];
        ip(&[&["link", "add", DEVICES[0], "netns", HOSTS[0]][..], &ends].concat())?;
        for side in 0..2 {
            let (host, device) = (HOSTS[side], DEVICES[side]);
            let address = format!("{}/24", ADDRESSES[side]);
            ip(&["-n", host, "address", "add", &address, "dev", device])?;
            ip(&["-n", host, "link", "set", device, "up"])?;
            let mut tc = Command::new("tc");
            tc.args(["-n", host, "qdisc", "add", "dev", device, "root"]);
            command::run(tc.args(BUCKET.split(' ')))?;
        }
        Ok(Some(link))
    }

    /// The words in front of a program that run it on the client's host or the server's.
    pub(super) fn on<'a>(&self, side: usize, program: &'a str) -> [&'a str; 5] {
        ["ip", "netns", "exec", HOSTS[side], program]
    }

    /// The server's address.
    pub(super) fn server(&self) -> &'static str {
        ADDRESSES[1]
    }
}

impl Drop for Link {
    /// An error for a host that does not exist is expected.
    fn drop(&mut self) {
        for host in HOSTS {
            let _removed = command::succeeds("ip", &["netns", "delete", host]);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    command::run(Command::new("ip").args(arguments))
}
