//! rping, ours against the stock one on siw: both ways round, with and without CRC.
//!
//! rping makes every operation count: each iteration advertises a buffer by Send, fetches it by
//! RDMA Read, writes it back by RDMA Write, and the client compares. One boot serves all runs.
//! siw never asks for a CRC but uses it when asked to (RFC 5044 section 7.1), so only our side
//! is told, and only our side can say what was negotiated.

use super::process::Ours;
use super::{GUEST_ADDRESS, Guest, HOST_ADDRESS, Vm};

use std::fmt;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const BOOT_LIMIT: Duration = Duration::from_secs(60);
/// The guest gives up first, so that it can say why.
const GUEST_LIMIT: Duration = Duration::from_secs(100);
const RUN_LIMIT: Duration = Duration::from_secs(110);
const END_LIMIT: Duration = Duration::from_secs(10);

/// The largest size the stock rping takes; it claims one more in its message, but refuses that.
pub const MAX_SIZE: u32 = 65_535;

/// Guest ports: one for stock against stock, then one for each run.
const FIRST_PORT: u16 = 7174;

/// Which end of the connection is our program; the stock one in the guest is the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Ours listens on the host, the guest connects.
    Server,
    /// Ours connects to the guest.
    Client,
}

/// What runs at our end.
#[derive(Debug, Clone, Copy)]
pub enum Program<'a> {
    /// The native example: `rping server|client 127.0.0.1:PORT --count N --size S --crc on|off`,
    /// which prints `negotiated crc=on|off`.
    Native(&'a Path),
    /// The stock rping on our C libraries, started by this `outboard run`. It always asks for
    /// CRCs, and cannot say what was negotiated.
    Stock(&'a Path),
}

/// One connection to be made and what is to happen on it.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// The end that is ours.
    pub ours: Side,
    /// Whether our end asks for CRC-32C.
    pub crc: bool,
    /// How many buffers go there and back.
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

/// How many short connections [`matrix`] has.
const SHORT: usize = 8;

/// Both ways round with and without CRC: `iterations` of an odd size that takes several FPDUs
/// and padding, and a twentieth of that at rping's largest size. Then some short connections to
/// siw, which sends its MPA reply before it watches the socket for FPDUs: one that comes too soon
/// lies there unseen until more arrives.
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

/// The same for the stock rping on our C libraries, which has no say in CRCs.
pub fn stock_matrix(iterations: u32) -> Vec<Run> {
    matrix(iterations).into_iter().filter(|run| run.crc || run.iterations == 1).collect()
}

/// Runs an rping at our end against the guest's, all `runs` one after another in one boot. It must
/// exit with 0 when all iterations were right.
/// A run of stock against stock comes first: if that fails, the guest is to blame.
///
/// # Errors
/// Names the run, with what our program printed and the end of the guest's console.
pub fn rping(vm: &Vm, program: Program<'_>, runs: &[Run]) -> Result<(), String> {
    let mut meetings = Vec::new();
    for (run, guest_port) in runs.iter().zip(FIRST_PORT + 1..) {
        meetings.push(Meeting::prepare(*run, program, guest_port).map_err(|e| blame(run, &e))?);
    }
    let script: String = meetings.iter().map(Meeting::script).collect();
    let forwards: Vec<(u16, u16)> = meetings.iter().filter_map(Meeting::forward).collect();
    let mut guest = vm.boot(&(stock_against_stock() + &script), &forwards)?;
    guest.wait_for("STOCK DONE", BOOT_LIMIT)?;
    for meeting in meetings {
        let run = meeting.run;
        meeting.watch(&mut guest, program).map_err(|error| blame(&run, &error))?;
    }
    guest.wait(END_LIMIT).map(drop)
}

/// The run with the ports it uses, and our program where it has to be there first.
struct Meeting {
    run: Run,
    host_port: u16,
    guest_port: u16,
    server: Option<Ours>,
}

impl Meeting {
    /// Finds a port on the host and, when ours is the server, starts it.
    fn prepare(run: Run, program: Program<'_>, guest_port: u16) -> Result<Self, String> {
        let host_port = free_port()?;
        let mut meeting = Self { run, host_port, guest_port, server: None };
        if run.ours == Side::Server {
            let mut server = Ours::start(&mut meeting.command(program))?;
            server.wait_listening(host_port)?;
            meeting.server = Some(server);
        }
        Ok(meeting)
    }

    /// Follows both ends through this run and holds them to their promises.
    fn watch(mut self, guest: &mut Guest, program: Program<'_>) -> Result<(), String> {
        let wanted = format!("negotiated crc={}", on_off(self.run.crc));
        let said = match self.server.take() {
            Some(server) => self.watch_server(guest, server),
            None => self.watch_client(guest, program),
        }?;
        if matches!(program, Program::Stock(_)) || said.contains(&wanted) {
            return Ok(());
        }
        Err(format!("our program did not print \"{wanted}\" but:\n{said}"))
    }

    fn watch_server(&self, guest: &mut Guest, server: Ours) -> Result<String, String> {
        let guest_side = guest.wait_for(&done(self.guest_port), RUN_LIMIT);
        both(server.finish(END_LIMIT), guest_side)
    }

    /// Our end is waited for first: a client that fails at once leaves the guest listening.
    fn watch_client(&self, guest: &mut Guest, program: Program<'_>) -> Result<String, String> {
        guest.wait_for(&ready(self.guest_port), RUN_LIMIT)?;
        let our_side = Ours::start(&mut self.command(program))?.finish(RUN_LIMIT);
        both(our_side, guest.wait_for(&done(self.guest_port), END_LIMIT))
    }

    fn command(&self, program: Program<'_>) -> Command {
        let Run { ours, crc, iterations, size } = self.run;
        let (count, size, port) = (iterations.to_string(), size.to_string(), self.host_port);
        match program {
            Program::Native(path) => {
                let role = if ours == Side::Server { "server" } else { "client" };
                let mut command = Command::new(path);
                command.args([role, &format!("127.0.0.1:{port}")]);
                command.args(["--count", &count, "--size", &size, "--crc", on_off(crc)]);
                command
            }
            Program::Stock(outboard) => {
                let role = if ours == Side::Server { "-s" } else { "-c" };
                let mut command = Command::new(outboard);
                command.args(["run", "--devices", "lo", "--", "rping", role, "-a", "127.0.0.1"]);
                command.args(["-p", &port.to_string(), "-C", &count, "-S", &size, "-V"]);
                command
            }
        }
    }

    /// The port on the host through which our client reaches the guest.
    fn forward(&self) -> Option<(u16, u16)> {
        (self.run.ours == Side::Client).then_some((self.host_port, self.guest_port))
    }

    /// The guest's part: the first step that fails ends the guest.
    fn script(&self) -> String {
        let Run { ours, iterations, size, .. } = self.run;
        let port = self.guest_port;
        let limit = GUEST_LIMIT.as_secs();
        let options = format!("-C {iterations} -S {size} -V");
        let steps = match ours {
            Side::Server => format!(
                "timeout {limit} rping -c -a {HOST_ADDRESS} -p {} {options} || exit 1\n",
                self.host_port
            ),
            Side::Client => format!(
                "timeout {limit} rping -s -a 0.0.0.0 -p {port} {options} &\n\
                 wait-listen {port} || exit 1\necho {}\nwait $! || exit 1\n",
                ready(port)
            ),
        };
        steps + &format!("echo {}\n", done(port))
    }
}

/// What ours said if both ends succeeded, otherwise what went wrong at either.
fn both(ours: Result<String, String>, guest: Result<(), String>) -> Result<String, String> {
    match (ours, guest) {
        (Ok(said), Ok(())) => Ok(said),
        (Err(error), Ok(())) | (Ok(_), Err(error)) => Err(error),
        (Err(ours), Err(guest)) => Err(format!("{ours}\n{guest}")),
    }
}

/// Three attempts, because siw overlooks its own first FPDU now and then as well.
fn stock_against_stock() -> String {
    let options = format!("-a {GUEST_ADDRESS} -p {FIRST_PORT} -C 10 -V");
    format!(
        "stock() {{\n\
         timeout 10 rping -s {options} &\nwait-listen {FIRST_PORT} || return 1\n\
         timeout 8 rping -c {options}\ncode=$?\nwait $!\nreturn $code\n}}\n\
         stock || stock || stock || exit 1\necho STOCK DONE\n"
    )
}

fn ready(port: u16) -> String {
    format!("RUN {port} READY")
}

fn done(port: u16) -> String {
    format!("RUN {port} DONE")
}

fn on_off(crc: bool) -> &'static str {
    if crc { "on" } else { "off" }
}

fn blame(run: &Run, error: &str) -> String {
    format!("{run}: {error}")
}

/// A port that was free a moment ago, which is as sure as it gets.
fn free_port() -> Result<u16, String> {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    port.map(|address| address.port()).map_err(|error| format!("no free port: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meeting(ours: Side) -> Meeting {
        let run = Run { ours, crc: true, iterations: 3, size: 64 };
        Meeting { run, host_port: 4000, guest_port: 7175, server: None }
    }

    #[test]
    fn our_command_line_is_the_agreed_one() {
        let command = meeting(Side::Server).command(Program::Native(Path::new("rping")));
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
