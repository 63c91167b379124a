//! perftest's programs on Outboard's C libraries against the same programs on siw, each as server
//! and as client.
//!
//! They check no data, as rping does; but they have many operations under way at once, from both
//! ends, and end only when every completion has come. They connect by rdma_cm (`-R`), as iWARP
//! requires, and exchange their keys on that connection.

use super::meeting::{self, Meeting, Ports, Side};
use super::proxy::Proxy;
use super::{HOST_ADDRESS, Vm};

use std::path::Path;
use std::process::Command;

/// The programs, each run as Outboard's server and as its client.
const PROGRAMS: [&str; 6] =
    ["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat"];

/// Guest port of the first run; different from rping's.
const FIRST_PORT: u16 = 18_515;

/// Bytes in each message.
const SIZE: &str = "65536";

/// Runs everything in one boot, with `iterations` each; `outboard` starts Outboard's end. Returns
/// the number of runs.
///
/// # Errors
/// Names the run, with the output of Outboard's program and the end of the guest's console.
pub fn run(vm: &Vm, outboard: &Path, iterations: u32) -> Result<usize, String> {
    let sides = [Side::Server, Side::Client];
    let runs = PROGRAMS.iter().flat_map(|program| sides.map(|ours| (*program, ours)));
    let (mut meetings, mut proxies) = (Vec::new(), Vec::new());
    for ((program, ours), guest_port) in runs.zip(FIRST_PORT..) {
        let ports = Ports::find(guest_port)?;
        let proxy = Proxy::open(ports.host)?;
        let work = Work { program, ours, iterations };
        meetings.push(work.meeting(outboard, ports, proxy.port()));
        proxies.push(proxy);
    }
    let count = meetings.len();
    meeting::hold(vm, "echo UP\n", "UP", meetings)?;
    Ok(count)
}

/// One connection, and the work on it.
struct Work<'a> {
    program: &'a str,
    ours: Side,
    iterations: u32,
}

impl Work<'_> {
    /// A client connects to `proxy`, which leads to `ports.host`.
    fn meeting(&self, outboard: &Path, ports: Ports, proxy: u16) -> Meeting {
        let Self { program, ours, iterations } = *self;
        let options = |port: u16| format!("-R -F -n {iterations} -s {SIZE} -p {port}");
        let (port, peer, guest, wanted) = match ours {
            Side::Server => {
                let guest = format!("{program} {} {HOST_ADDRESS}", options(proxy));
                (ports.host, None, guest, "")
            }
            // The client's report has a line that begins with the size.
            Side::Client => {
                let guest = format!("{program} {}", options(ports.guest));
                (proxy, Some("127.0.0.1"), guest, SIZE)
            }
        };
        let mut command = Command::new(outboard);
        command.args(["run", "--devices", "lo", "--", program]);
        command.args(options(port).split(' ')).args(peer);
        let name = format!("{program}, our {ours:?}, {iterations} times {SIZE} bytes");
        Meeting { name, ours, ports, command, guest, wanted: wanted.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_has_an_address_and_its_way_to_the_server() {
        let ports = Ports { host: 4000, guest: 5000 };
        let words = |ours| {
            let work = Work { program: "ib_read_bw", ours, iterations: 7 };
            let meeting = work.meeting(Path::new("outboard"), ports, 6000);
            let words = meeting.command.get_args().map(|word| word.to_string_lossy().into_owned());
            (words.collect::<Vec<_>>().join(" "), meeting.guest)
        };
        let (ours, guest) = words(Side::Server);
        assert!(ours.ends_with("ib_read_bw -R -F -n 7 -s 65536 -p 4000"), "{ours}");
        assert_eq!(guest, "ib_read_bw -R -F -n 7 -s 65536 -p 6000 10.0.2.2");
        let (ours, guest) = words(Side::Client);
        assert!(ours.ends_with("-p 6000 127.0.0.1"), "{ours}");
        assert_eq!(guest, "ib_read_bw -R -F -n 7 -s 65536 -p 5000");
    }
}
