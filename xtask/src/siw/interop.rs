//! rping, Outboard's against the stock one on siw: each as server and as client, with and without
//! CRC.
//!
//! rping checks every operation: each iteration advertises a buffer by Send, fetches it by RDMA
//! Read, writes it back by RDMA Write, and the client compares. One boot serves all runs. siw never
//! requests a CRC but uses it when the peer requests it (RFC 5044 section 7.1), so only Outboard's
//! side is configured, and only Outboard's side can report the negotiated mode.

use super::meeting::{self, Meeting, Ports};
use super::{GUEST_ADDRESS, HOST_ADDRESS, Vm};

use std::fmt;
use std::path::Path;
use std::process::Command;

pub use super::meeting::Side;

/// The largest size that the stock rping accepts; its message says one byte more, but it refuses
/// that.
pub const MAX_SIZE: u32 = 65_535;

/// Guest ports: one for stock against stock, then one for each run.
const FIRST_PORT: u16 = 7174;

/// The program at Outboard's end.
#[derive(Debug, Clone, Copy)]
pub enum Program<'a> {
    /// The native example: `rping server|client 127.0.0.1:PORT --count N --size S --crc on|off`,
    /// which prints `negotiated crc=on|off`.
    Native(&'a Path),
    /// The stock rping on Outboard's C libraries, started by this `outboard run`. It always
    /// requests CRCs, and cannot report the negotiated mode.
    Stock(&'a Path),
}

/// One connection, and the work on it.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// The role of Outboard's end.
    pub ours: Side,
    /// Whether Outboard's end requests CRC-32C.
    pub crc: bool,
    /// How many buffers are sent there and back.
    pub iterations: u32,
    /// Bytes in each; from 23 to [`MAX_SIZE`].
    pub size: u32,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ours, crc, iterations, size } = self;
        let crc = on_off(*crc);
        write!(f, "rping, our {ours:?}, crc {crc}, {iterations} times {size} bytes")
    }
}

/// The number of short connections in [`matrix`].
const SHORT: usize = 8;

/// Both roles with and without CRC: `iterations` of an odd size that takes several FPDUs and
/// padding, and a twentieth of that at rping's largest size. Then some short connections to siw,
/// which sends its MPA reply before it watches the socket for FPDUs: an FPDU that arrives too early
/// stays unread until more data arrives.
pub fn matrix(iterations: u32) -> Vec<Run> {
    let mut runs = Vec::new();
    for (iterations, size) in [(iterations, 4099), (iterations.div_ceil(20), MAX_SIZE)] {
        for ours in [Side::Server, Side::Client] {
            for crc in [false, true] {
                runs.push(Run { ours, crc, iterations, size });
            }
        }
    }
    let short = Run { ours: Side::Client, crc: false, iterations: 1, size: 64 };
    runs.extend([short; SHORT]);
    runs
}

/// The matrix for the stock rping on Outboard's C libraries, where CRCs cannot be chosen.
pub fn stock_matrix(iterations: u32) -> Vec<Run> {
    matrix(iterations).into_iter().filter(|run| run.crc || run.iterations == 1).collect()
}

/// Runs an rping at Outboard's end against the guest's: all `runs` one after another in one boot.
/// It must exit with 0 if all iterations were right. A run of stock against stock comes first: if
/// that fails, the guest is at fault.
///
/// # Errors
/// Names the run, with the output of Outboard's program and the end of the guest's console.
pub fn rping(vm: &Vm, program: Program<'_>, runs: &[Run]) -> Result<(), String> {
    let mut meetings = Vec::new();
    for (run, guest_port) in runs.iter().zip(FIRST_PORT + 1..) {
        meetings.push(run.meeting(program, Ports::find(guest_port)?));
    }
    meeting::hold(vm, &stock_against_stock(), "STOCK DONE", meetings)
}

impl Run {
    fn meeting(&self, program: Program<'_>, ports: Ports) -> Meeting {
        let wanted = match program {
            Program::Native(_) => format!("negotiated crc={}", on_off(self.crc)),
            Program::Stock(_) => String::new(),
        };
        Meeting {
            name: self.to_string(),
            ours: self.ours,
            ports,
            command: self.command(program, ports.host),
            guest: self.guest(ports),
            wanted,
        }
    }

    fn command(&self, program: Program<'_>, port: u16) -> Command {
        let (count, size) = (self.iterations.to_string(), self.size.to_string());
        match program {
            Program::Native(path) => {
                let role = if self.ours == Side::Server { "server" } else { "client" };
                let mut command = Command::new(path);
                command.args([role, &format!("127.0.0.1:{port}")]);
                command.args(["--count", &count, "--size", &size, "--crc", on_off(self.crc)]);
                command
            }
            Program::Stock(outboard) => {
                let role = if self.ours == Side::Server { "-s" } else { "-c" };
                let mut command = Command::new(outboard);
                command.args(["run", "--devices", "lo", "--", "rping", role, "-a", "127.0.0.1"]);
                command.args(["-p", &port.to_string(), "-C", &count, "-S", &size, "-V"]);
                command
            }
        }
    }

    fn guest(&self, ports: Ports) -> String {
        let options = format!("-C {} -S {} -V", self.iterations, self.size);
        match self.ours {
            Side::Server => format!("rping-once -c -a {HOST_ADDRESS} -p {} {options}", ports.host),
            Side::Client => format!("rping-once -s -a 0.0.0.0 -p {} {options}", ports.guest),
        }
    }
}

/// Three attempts, because siw sometimes misses its own first FPDU as well.
fn stock_against_stock() -> String {
    let options = format!("-a {GUEST_ADDRESS} -p {FIRST_PORT} -C 10 -V");
    format!(
        "stock() {{\n\
         timeout 10 rping -s {options} &\nwait-listen {FIRST_PORT} || return 1\n\
         timeout 8 rping -c {options}\ncode=$?\nwait $!\nreturn $code\n}}\n\
         stock || stock || stock || exit 1\necho STOCK DONE\n"
    )
}

fn on_off(crc: bool) -> &'static str {
    if crc { "on" } else { "off" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meeting(ours: Side) -> Meeting {
        let run = Run { ours, crc: true, iterations: 3, size: 64 };
        run.meeting(Program::Native(Path::new("rping")), Ports { host: 4000, guest: 7175 })
    }

    #[test]
    fn our_command_line_is_the_agreed_one() {
        let command = meeting(Side::Server).command;
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(words.join(" "), "server 127.0.0.1:4000 --count 3 --size 64 --crc on");
    }

    #[test]
    fn only_our_client_needs_a_way_into_the_guest() {
        assert_eq!(meeting(Side::Client).forward(), Some((4000, 7175)));
        assert_eq!(meeting(Side::Server).forward(), None);
    }

    #[test]
    fn the_matrix_has_both_ends_with_and_without_crc_and_both_sizes() {
        let runs = matrix(1000);
        for (ours, crc, size) in [
            (Side::Server, false, 4099),
            (Side::Server, true, MAX_SIZE),
            (Side::Client, false, MAX_SIZE),
            (Side::Client, true, 4099),
        ] {
            let wanted = |run: &&Run| (run.ours, run.crc, run.size) == (ours, crc, size);
            assert_eq!(runs.iter().filter(wanted).count(), 1);
        }
        let all: u32 = runs.iter().map(|run| run.iterations).sum();
        assert_eq!(all, 4 * 1050 + 8);
    }
}
