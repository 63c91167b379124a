//! `outboard perf` as users and scripts use it: the program itself, over loopback.
//!
//! Tests that spin need the CPUs to themselves, so one runs at a time.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_outboard");
/// No run takes this long unless something hangs.
const HANG: Duration = Duration::from_secs(40);
const LATENCY: &[&str] =
    &["write-lat", "read-lat", "send-lat", "write-imm-lat", "atomic-lat", "tcp-lat"];
const STREAMS: &[&str] = &[
    "write-bw",
    "write-rate",
    "read-bw",
    "read-rate",
    "send-bw",
    "send-rate",
    "write-imm-bw",
    "write-imm-rate",
    "tcp-bw",
];

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server that is gone at the end of its test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(options: &[&str]) -> Self {
        let mut child = Command::new(PROGRAM)
            .args(["perf", "serve", "--listen", "127.0.0.1:0"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on ").unwrap().trim().to_owned();
        Self { child, address }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn run(&self, test: &str, options: &str) -> Output {
        finish(self.spawn(test, options))
    }

    fn spawn(&self, test: &str, options: &str) -> Child {
        spawn(&[test, &self.address], options)
    }

    /// The object that a good run prints.
    fn report(&self, test: &str, options: &str) -> Value {
        let output = self.run(test, &format!("{options} --json"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{test} {options}: {error}");
        assert!(error.is_empty(), "{test} {options}: {error}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

fn spawn(words: &[&str], options: &str) -> Child {
    Command::new(PROGRAM)
        .arg("perf")
        .args(words)
        .args(options.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for a process, but not for ever.
fn finish(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > HANG {
            child.kill().unwrap();
            panic!("it hangs: {:?}", child.wait_with_output().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// The one line that a failed run prints.
fn error_of(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("outboard: "), "{text}");
    text
}

fn number(report: &Value, field: &str) -> f64 {
    report[field].as_f64().unwrap_or_else(|| panic!("{field} of {report}"))
}

fn check_stream(report: &Value, test: &str, size: u64, iters: u64) {
    assert_eq!(report["size"], size, "{report}");
    check(report, test, iters);
    let mib = number(report, "messages_per_s") * size as f64 / f64::from(1 << 20);
    assert!((number(report, "mib_per_s") / mib - 1.0).abs() < 0.01, "{report}");
}

fn check(report: &Value, test: &str, iters: u64) {
    assert_eq!(report["test"], test);
    assert_eq!(report["iters"], iters, "{report}");
    let messages = number(report, "messages_per_s");
    let expected = iters as f64 / number(report, "seconds");
    assert!((messages / expected - 1.0).abs() < 0.01, "{report}");
    let parts = number(report, "cpu_client_s") + number(report, "cpu_server_s");
    assert!(number(report, "cpu_s") > 0.0 && parts > 0.0, "{report}");
    assert!((number(report, "cpu_s") - parts).abs() < 1e-6, "{report}");
}

fn check_latency(report: &Value, test: &str, size: u64, iters: u64) {
    check_stream(report, test, size, iters);
    check_latencies(report, iters);
}

fn check_latencies(report: &Value, iters: u64) {
    let quantiles = ["p50_us", "p99_us", "p999_us", "max_us"].map(|name| number(report, name));
    assert!(quantiles.is_sorted() && quantiles[0] > 0.1, "{report}");
    let buckets = report["histogram"].as_array().unwrap();
    let counted: u64 = buckets.iter().map(|bucket| bucket["count"].as_u64().unwrap()).sum();
    assert_eq!(counted, iters, "{report}");
}

#[test]
fn latency_tests_spin_and_block() {
    let (_alone, server) = (alone(), Server::start());
    for test in LATENCY {
        for wait in ["spin", "block"] {
            let report = server.report(test, &format!("--iters 200 --wait {wait}"));
            check_latency(&report, test, 8, 200);
            assert_eq!(report["wait"], wait);
            assert_eq!(report["crc"], *test != "tcp-lat");
        }
    }
}

#[test]
fn connections_are_made_and_ended() {
    let (_alone, server) = (alone(), Server::start());
    for (test, crc) in [("connect-lat", true), ("tcp-connect-lat", false)] {
        let report = server.report(test, "--iters 300");
        check(&report, test, 300);
        check_latencies(&report, 300);
        assert_eq!(report["crc"], crc);
        assert_eq!((&report["size"], &report["wait"]), (&Value::Null, &"block".into()));
        let mean = number(&report, "mean_us");
        let expected = 1e6 / number(&report, "messages_per_s");
        assert!((mean / expected - 1.0).abs() < 0.1, "the whole, not half of it: {report}");
    }
}

#[test]
fn a_target_that_computes_still_answers() {
    let (_alone, server) = (alone(), Server::start_with(&["--load", "compute"]));
    let report = server.report("read-lat", "--iters 200 --wait block");
    check_latency(&report, "read-lat", 8, 200);
    let (computing, whole) = (number(&report, "cpu_server_s"), number(&report, "seconds"));
    assert!(computing > whole / 5.0, "its program computes: {report}");
}

#[test]
fn streams_spin_and_block() {
    let (_alone, server) = (alone(), Server::start());
    for test in STREAMS {
        let size = if test.ends_with("rate") { 64 } else { 65536 };
        for wait in ["spin", "block"] {
            let report = server.report(test, &format!("--iters 500 --wait {wait}"));
            check_stream(&report, test, size, 500);
            assert_eq!(report["p50_us"], Value::Null);
        }
    }
}

#[test]
fn sizes_from_one_byte_to_large() {
    let (_alone, server) = (alone(), Server::start());
    for test in ["write-lat", "send-lat", "write-imm-lat", "tcp-lat", "read-lat"] {
        for size in [1, 4096, 1_000_003] {
            let report = server.report(test, &format!("--iters 20 --size {size} --wait block"));
            check_latency(&report, test, size, 20);
        }
    }
    for test in ["write-bw", "send-bw", "read-bw", "tcp-bw"] {
        for size in [1, 1_000_003] {
            let report = server.report(test, &format!("--iters 50 --size {size} --depth 3"));
            check_stream(&report, test, size, 50);
        }
    }
}

#[test]
fn without_crcs() {
    let (_alone, server) = (alone(), Server::start());
    let report = server.report("write-lat", "--iters 100 --crc off");
    check_latency(&report, "write-lat", 8, 100);
    assert_eq!(report["crc"], false);
    let report = server.report("send-bw", "--iters 100 --crc off --wait block");
    check_stream(&report, "send-bw", 65536, 100);
}

#[test]
fn several_queue_pairs() {
    let (_alone, server) = (alone(), Server::start());
    for test in STREAMS.iter().filter(|test| **test != "tcp-bw") {
        let report = server.report(test, "--qps 2 --iters 333 --size 100 --depth 9");
        check_stream(&report, test, 100, 333);
        assert_eq!((&report["qps"], &report["depth"]), (&2.into(), &9.into()));
    }
    let report = server.report("write-rate", "--qps 5 --wait block --iters 5000");
    check_stream(&report, "write-rate", 64, 5000);
    // More under way than one queue takes: the others have to do their part.
    let report = server.report("read-rate", "--qps 4 --iters 20000");
    check_stream(&report, "read-rate", 64, 20_000);
}

#[test]
fn a_goal_in_seconds() {
    let (_alone, server) = (alone(), Server::start());
    for test in ["write-lat", "write-bw", "tcp-lat", "tcp-bw", "send-rate"] {
        let report = server.report(test, "--seconds 0.3 --wait block");
        let seconds = number(&report, "seconds");
        assert!((0.29..2.0).contains(&seconds), "{report}");
        assert!(number(&report, "iters") > 0.0, "{report}");
    }
}

#[test]
fn clients_at_once_and_one_after_another() {
    let (_alone, server) = (alone(), Server::start());
    for _ in 0..2 {
        let tests = ["write-lat", "send-bw", "read-lat", "tcp-bw", "write-imm-rate"];
        let run = |test: &&str| server.spawn(test, "--iters 300 --wait block --json");
        let clients: Vec<Child> = tests.iter().map(run).collect();
        for client in clients {
            let output = finish(client);
            assert!(output.status.success(), "{output:?}");
        }
    }
}

#[test]
fn people_get_a_table_and_a_histogram() {
    let (_alone, server) = (alone(), Server::start());
    let output = server.run("send-lat", "--iters 300 --pin 0");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("p50 us") && text.contains("send-lat"), "{text}");
    assert!(text.contains("us       ") && text.contains("##"), "{text}");
    assert!(output.stderr.is_empty(), "progress is for terminals");
}

#[test]
fn a_server_that_is_not_there() {
    let output = finish(spawn(&["write-lat", "127.0.0.1:1"], ""));
    let error = error_of(&output);
    assert!(error.contains("127.0.0.1:1") && error.contains("is a server listening"), "{error}");
    let output = finish(spawn(&["write-lat", "127.0.0.1:99999"], ""));
    assert!(error_of(&output).contains("the port is 99999"));
    let output = finish(spawn(&["tcp-lat", "no-such-host.invalid"], ""));
    assert!(error_of(&output).contains("HOST:PORT"));
}

#[test]
fn an_address_that_cannot_be_served_at_is_named() {
    let error = error_of(&finish(spawn(&["serve", "--listen", "192.0.2.1:7471"], "")));
    assert!(error.contains("192.0.2.1:7471") && error.contains("not this machine's"), "{error}");
}

#[test]
fn parameters_that_no_test_can_have() {
    let (_alone, server) = (alone(), Server::start());
    let refused = |test, options| error_of(&server.run(test, options));
    assert!(refused("write-bw", "--size 0").contains("--size is 0; it must be from 1 to"));
    assert!(refused("write-bw", "--size 99999999999").contains("--size"));
    assert!(refused("write-lat", "--qps 2").contains("--qps is 2"));
    assert!(refused("tcp-bw", "--qps 2").contains("--qps is 2"));
    assert!(refused("write-lat", "--depth 2").contains("--depth is 2"));
    assert!(refused("send-rate", "--depth 5000").contains("--depth is 5000"));
    assert!(refused("atomic-lat", "--size 16").contains("operand"));
    assert!(refused("connect-lat", "--size 8").contains("--size is 8; it must be 1 here"));
    assert!(refused("tcp-connect-lat", "--wait spin").contains("--wait is spin"));
    assert!(refused("write-lat", "--iters 0").contains("--iters"));
    assert!(refused("write-lat", "--seconds 1e9").contains("--seconds"));
    assert!(refused("write-lat", "--pin 4000").contains("--pin"));
    check_latency(&server.report("write-lat", "--iters 10"), "write-lat", 8, 10);
}

#[test]
fn an_interrupted_test_reports_what_it_has() {
    let _alone = alone();
    for test in ["write-lat", "read-bw", "send-rate", "tcp-lat", "tcp-bw", "connect-lat"] {
        let client = spawn(&[test], "--seconds 100");
        std::thread::sleep(Duration::from_millis(900));
        kill_process(Pid::from_child(&client), Signal::INT).unwrap();
        let output = finish(client);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{test}: {text}");
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row[0], test);
        assert!(row[2].parse::<u64>().unwrap() > 0, "{text}");
    }
}

/// Starts a test without end, does something to the server, and gives the client's error.
fn interrupted(test: &str, options: &str, harm: Signal) -> (String, Duration, Server) {
    let server = Server::start();
    let client = server.spawn(test, &format!("--seconds 100 {options}"));
    std::thread::sleep(Duration::from_millis(700));
    server.signal(harm);
    let start = Instant::now();
    let error = error_of(&finish(client));
    (error, start.elapsed(), server)
}

#[test]
fn a_server_that_dies_in_the_middle() {
    let _alone = alone();
    for wait in ["--wait spin", "--wait block"] {
        for test in LATENCY.iter().chain(STREAMS) {
            let (error, time, _) = interrupted(test, wait, Signal::KILL);
            assert!(error.contains("ended the connection"), "{test} {wait}: {error}");
            assert!(time < Duration::from_secs(5), "{test} {wait}: {time:?}");
        }
    }
}

#[test]
fn a_server_that_falls_silent() {
    let _alone = alone();
    let (error, time, server) = interrupted("write-lat", "--wait spin", Signal::STOP);
    assert!(error.contains("has not answered for 10s"), "{error}");
    assert!(time < Duration::from_secs(15), "{time:?}");
    server.signal(Signal::CONT);
}

#[test]
fn an_interrupted_server_exits_cleanly() {
    let _alone = alone();
    for signal in [Signal::INT, Signal::TERM] {
        let mut idle = Server::start();
        idle.signal(signal);
        assert_eq!(idle.child.wait().unwrap().code(), Some(0));
    }
    for test in ["write-lat", "read-bw --wait block", "tcp-bw --wait block"] {
        let (test, wait) = test.split_once(' ').unwrap_or((test, ""));
        let (error, time, mut server) = interrupted(test, wait, Signal::INT);
        assert!(error.contains("ended the connection"), "{test}: {error}");
        assert!(time < Duration::from_secs(5), "{test}: {time:?}");
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn the_server_says_where_it_listens_as_json() {
    let mut child = spawn(&["serve"], "--listen 127.0.0.1:0 --json");
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let object: Value = serde_json::from_str(&line).unwrap();
    assert!(object["listen"].as_str().unwrap().starts_with("127.0.0.1:"));
}

#[test]
fn a_server_listens_on_a_name() {
    let mut child = spawn(&["serve"], "--listen localhost:0");
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.starts_with("listening on "), "{line}");
}

#[test]
fn a_port_that_is_taken() {
    let server = Server::start();
    let second = finish(spawn(&["serve", "--listen", &server.address], ""));
    assert!(error_of(&second).contains("choose another port"));
}
