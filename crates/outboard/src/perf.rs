//! `outboard perf`: the server, and one command for each test.

mod host;
pub(crate) mod local;
mod progress;

use crate::{Outcome, parent};
use clap::{Args, Subcommand, ValueEnum};
use outboard_perf::{
    Goal, Progress, Server, Test, TestKind, TestPlan, Wait, compute, pin, run as measure,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Messages of a latency test unless told otherwise.
const ITERS: u64 = 20_000;
/// Length of a bandwidth or rate test unless told otherwise.
const SECONDS: Duration = Duration::from_secs(3);

/// Measure latency, bandwidth and message rate, beside raw TCP in the same harness.
///
/// Start `outboard perf serve` on one machine and a test on another. A test without a host runs
/// against a server of its own, a second process on this machine.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  outboard perf write-lat
  outboard perf tcp-lat")]
pub(crate) enum Perf {
    #[command(after_help = "Example:
  outboard perf serve --listen 127.0.0.1:7471 --pin 1")]
    Serve(ServeArgs),
    /// Latency of RDMA Writes: ping-pong, half a round trip. Both sides watch their memory.
    #[command(after_help = "Example:
  outboard perf write-lat 127.0.0.1:7471 --size 8 --iters 20000 --wait spin --crc on --json")]
    WriteLat(TestArgs),
    /// Bandwidth of RDMA Writes.
    #[command(after_help = "Example:
  outboard perf write-bw 127.0.0.1 --size 65536 --depth 32 --seconds 3")]
    WriteBw(TestArgs),
    /// Rate of small RDMA Writes, posted in batches.
    #[command(after_help = "Example:
  outboard perf write-rate 127.0.0.1 --size 64 --depth 256")]
    WriteRate(TestArgs),
    /// Latency of RDMA Reads: one at a time, the whole operation.
    #[command(after_help = "Example:
  outboard perf read-lat 127.0.0.1 --size 4096")]
    ReadLat(TestArgs),
    /// Bandwidth of RDMA Reads.
    #[command(after_help = "Example:
  outboard perf read-bw 127.0.0.1 --size 1048576 --depth 8")]
    ReadBw(TestArgs),
    /// Rate of small RDMA Reads, posted in batches.
    #[command(after_help = "Example:
  outboard perf read-rate 127.0.0.1 --qps 2")]
    ReadRate(TestArgs),
    /// Latency of Sends: ping-pong, half a round trip.
    #[command(after_help = "Example:
  outboard perf send-lat 127.0.0.1 --wait block")]
    SendLat(TestArgs),
    /// Bandwidth of Sends.
    #[command(after_help = "Example:
  outboard perf send-bw 127.0.0.1 --crc off")]
    SendBw(TestArgs),
    /// Rate of small Sends, posted in batches.
    #[command(after_help = "Example:
  outboard perf send-rate 127.0.0.1 --seconds 5")]
    SendRate(TestArgs),
    /// Latency of Writes with Immediate Data: ping-pong, half a round trip.
    #[command(after_help = "Example:
  outboard perf write-imm-lat 127.0.0.1 --size 64")]
    WriteImmLat(TestArgs),
    /// Bandwidth of Writes with Immediate Data.
    #[command(after_help = "Example:
  outboard perf write-imm-bw 127.0.0.1 --qps 4")]
    WriteImmBw(TestArgs),
    /// Rate of small Writes with Immediate Data, posted in batches.
    #[command(after_help = "Example:
  outboard perf write-imm-rate 127.0.0.1")]
    WriteImmRate(TestArgs),
    /// Latency of FetchAdd: one at a time, the whole operation.
    #[command(after_help = "Example:
  outboard perf atomic-lat 127.0.0.1 --iters 100000")]
    AtomicLat(TestArgs),
    /// Latency of a raw TCP socket: ping-pong, half a round trip.
    #[command(after_help = "Example:
  outboard perf tcp-lat 127.0.0.1 --size 8 --wait spin")]
    TcpLat(TestArgs),
    /// Bandwidth of a raw TCP socket.
    #[command(after_help = "Example:
  outboard perf tcp-bw 127.0.0.1 --size 65536 --wait block")]
    TcpBw(TestArgs),
    /// Time to make and end an RDMA connection with all objects of both sides; both block.
    #[command(after_help = "Example:
  outboard perf connect-lat 127.0.0.1 --iters 1000")]
    ConnectLat(TestArgs),
    /// Time to make and end a TCP connection with one round trip on it; both block.
    #[command(after_help = "Example:
  outboard perf tcp-connect-lat 127.0.0.1 --iters 1000")]
    TcpConnectLat(TestArgs),
}

/// Serve tests to clients, until interrupted.
///
/// Anyone who reaches the address can run tests: listen where only your own machines are.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address or name, and port; port 0 takes a free one.
    #[arg(long, value_name = "HOST[:PORT]", default_value = "127.0.0.1:7471")]
    listen: String,
    /// Stay on this CPU, with all threads.
    #[arg(long, value_name = "CPU", allow_negative_numbers = true)]
    pin: Option<usize>,
    /// What the server's program does while it serves.
    #[arg(long, value_enum, default_value = "sleep")]
    load: Load,
    /// Print the address as one JSON object.
    #[arg(long)]
    json: bool,
    /// End with the process that started this one.
    #[arg(long, hide = true)]
    with_parent: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Where `outboard perf serve` listens [default: a server of its own on this machine].
    #[arg(value_name = "HOST[:PORT]")]
    host: Option<String>,
    /// Bytes of a message [default: 8 for latency, 65536 for bandwidth, 64 for rate].
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    size: Option<usize>,
    /// Stop after this number of messages [default: 20000 for latency].
    #[arg(long, value_name = "N", conflicts_with = "seconds", allow_negative_numbers = true)]
    iters: Option<u64>,
    /// Stop after this time [default: 3 for bandwidth and rate].
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    seconds: Option<Duration>,
    /// Queue pairs of a bandwidth or rate test.
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    qps: usize,
    /// Operations under way on each queue pair [default: 32 for bandwidth, 256 for rate].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    depth: Option<usize>,
    /// How both sides wait [default: spin; connection tests block].
    #[arg(long, value_enum)]
    wait: Option<WaitArg>,
    /// CRCs on everything that is sent.
    #[arg(long, value_enum, default_value = "on")]
    crc: Switch,
    /// Stay on this CPU, with all threads (the server has its own --pin).
    #[arg(long, value_name = "CPU", allow_negative_numbers = true)]
    pin: Option<usize>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Load {
    /// Nothing.
    Sleep,
    /// Compute on one thread for ever, like a program that computes while peers access its memory.
    Compute,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WaitArg {
    /// Poll without pause: least delay, one CPU on each side.
    Spin,
    /// Sleep until the kernel wakes the thread.
    Block,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

pub(crate) fn run(perf: Perf) -> Outcome {
    match split(perf) {
        Ok((test, args)) => run_test(test, &args),
        Err(args) => serve(&args),
    }
}

/// The test that a command names, with its arguments; `Err` is the server's.
fn split(perf: Perf) -> Result<(Test, TestArgs), ServeArgs> {
    Ok(match perf {
        Perf::Serve(args) => return Err(args),
        Perf::WriteLat(args) => (Test::WriteLat, args),
        Perf::WriteBw(args) => (Test::WriteBw, args),
        Perf::WriteRate(args) => (Test::WriteRate, args),
        Perf::ReadLat(args) => (Test::ReadLat, args),
        Perf::ReadBw(args) => (Test::ReadBw, args),
        Perf::ReadRate(args) => (Test::ReadRate, args),
        Perf::SendLat(args) => (Test::SendLat, args),
        Perf::SendBw(args) => (Test::SendBw, args),
        Perf::SendRate(args) => (Test::SendRate, args),
        Perf::WriteImmLat(args) => (Test::WriteImmLat, args),
        Perf::WriteImmBw(args) => (Test::WriteImmBw, args),
        Perf::WriteImmRate(args) => (Test::WriteImmRate, args),
        Perf::AtomicLat(args) => (Test::AtomicLat, args),
        Perf::TcpLat(args) => (Test::TcpLat, args),
        Perf::TcpBw(args) => (Test::TcpBw, args),
        Perf::ConnectLat(args) => (Test::ConnectLat, args),
        Perf::TcpConnectLat(args) => (Test::TcpConnectLat, args),
    })
}

fn serve(args: &ServeArgs) -> Outcome {
    // Signals before the address is printed: its reader may stop this process at once.
    let (stop, sender) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
    }
    if args.with_parent {
        parent::end_with_it()?;
    }
    if let Some(cpu) = args.pin {
        pin(cpu)?;
    }
    if args.load == Load::Compute {
        compute()?;
    }
    let address = host::resolve(&args.listen)?;
    let server =
        Server::bind(address).map_err(|error| format!("cannot serve at {address}: {error}"))?;
    let address = server.local_addr();
    if args.json {
        print(&serde_json::json!({ "listen": address.to_string() }).to_string())?;
    } else {
        print(&format!("listening on {address}"))?;
    }
    Ok(server.run(&stop)?)
}

fn run_test(test: Test, args: &TestArgs) -> Outcome {
    let (plan, goal) = (plan(test, args), goal(test, args));
    let (_own, peer) = match &args.host {
        Some(host) => (None, host::resolve(host)?),
        None => {
            let own = local::LocalServer::start()?;
            let address = own.address;
            (Some(own), address)
        }
    };
    if let Some(cpu) = args.pin {
        pin(cpu)?;
    }
    let done = Progress::default();
    if !args.json {
        report_when_interrupted(&done)?;
    }
    let line = progress::start(test, goal, &done);
    let report = measure(peer, &plan, goal, &done);
    drop(line);
    let report = report?;
    if args.json {
        print(&serde_json::to_string(&report)?)?;
    } else {
        print(report.to_string().trim_end())?;
    }
    Ok(())
}

fn plan(test: Test, args: &TestArgs) -> TestPlan {
    TestPlan {
        size: args.size.unwrap_or_else(|| test.default_size()),
        qps: args.qps,
        depth: args.depth.unwrap_or_else(|| test.default_depth()),
        wait: match args.wait {
            Some(WaitArg::Spin) => Wait::Spin,
            Some(WaitArg::Block) => Wait::Block,
            None => test.default_wait(),
        },
        crc: args.crc == Switch::On,
        ..TestPlan::new(test)
    }
}

fn goal(test: Test, args: &TestArgs) -> Goal {
    match (args.iters, args.seconds) {
        (Some(count), _) => Goal::Messages(count),
        (None, Some(time)) => Goal::Time(time),
        (None, None) if test.kind() == TestKind::Latency => Goal::Messages(ITERS),
        (None, None) => Goal::Time(SECONDS),
    }
}

/// The first Ctrl-C ends the test, the second the program.
fn report_when_interrupted(done: &Progress) -> io::Result<()> {
    let end = done.interrupt();
    register_conditional_shutdown(SIGINT, 128 + SIGINT, end.clone())?;
    register(SIGINT, end).map(drop)
}

/// Prints a line; a reader that has gone is not an error.
fn print(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}
