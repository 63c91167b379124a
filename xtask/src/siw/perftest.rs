//! perftest's programs on our C libraries against the same programs on siw: both ways round.
//!
//! They check no data, rping does; but they have many operations under way at once, from both
//! ends, and end only when every completion has come. They connect by rdma_cm (`-R`), as iWARP
//! must, and exchange their keys on that connection.

use super::meeting::{self, Meeting, Ports, Side};
use super::{HOST_ADDRESS, Vm};

use std::path::Path;
use std::process::Command;

/// What is run, each as our server and as our client.
const PROGRAMS: [&str; 6] =
    ["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat"];

/// Guest port of the first; others than rping's.
const FIRST_PORT: u16 = 18_515;

/// Bytes in each message.
const SIZE: &str = "65536";

/// Runs everything, `iterations` of each, in one boot; `outboard` starts our end. Returns how many
/// runs that were.
///
/// # Errors
/// Names the run, with what our program printed and the end of the guest's console.
pub fn run(vm: &Vm, outboard: &Path, iterations: u32) -> Result<usize, String> {
    let sides = [Side::Server, Side::Client];
    let runs = PROGRAMS.iter().flat_map(|program| sides.map(|ours| (*program, ours)));
    let mut meetings = Vec::new();
    for ((program, ours), port) in runs.zip(FIRST_PORT..) {
        meetings.push(meeting(outboard, program, ours, Ports::find(port)?, iterations));
    }
    let count = meetings.len();
    meeting::hold(vm, "echo UP\n", "UP", meetings)?;
    Ok(count)
}

fn meeting(outboard: &Path, program: &str, ours: Side, ports: Ports, iterations: u32) -> Meeting {
    let iterations = iterations.to_string();
    let options = |port: u16| {
        let port = port.to_string();
        ["-R", "-F", "-n", &iterations, "-s", SIZE, "-p", &port].map(str::to_owned)
    };
    let mut command = Command::new(outboard);
    command.args(["run", "--devices", "lo", "--", program]).args(options(ports.host));
    let guest = match ours {
        Side::Server => format!("{program} {} {HOST_ADDRESS}", options(ports.host).join(" ")),
        Side::Client => format!("{program} {}", options(ports.guest).join(" ")),
    };
    if ours == Side::Client {
        command.arg("127.0.0.1");
    }
    let name = format!("{program}, our {ours:?}, {iterations} times {SIZE} bytes");
    Meeting { name, ours, ports, command, guest, wanted: SIZE.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_has_an_address_and_the_servers_port() {
        let ports = Ports { host: 4000, guest: 5000 };
        let words = |ours| {
            let meeting = meeting(Path::new("outboard"), "ib_read_bw", ours, ports, 7);
            let words = meeting.command.get_args().map(|word| word.to_string_lossy().into_owned());
            (words.collect::<Vec<_>>().join(" "), meeting.guest)
        };
        let (ours, guest) = words(Side::Server);
        assert!(ours.ends_with("ib_read_bw -R -F -n 7 -s 65536 -p 4000"), "{ours}");
        assert_eq!(guest, "ib_read_bw -R -F -n 7 -s 65536 -p 4000 10.0.2.2");
        let (ours, guest) = words(Side::Client);
        assert!(ours.ends_with("-p 4000 127.0.0.1"), "{ours}");
        assert_eq!(guest, "ib_read_bw -R -F -n 7 -s 65536 -p 5000");
    }
}
