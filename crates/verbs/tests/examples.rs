//! The example programs, run as their documentation says: two processes on loopback.

mod common;

use outboard_testkit::PATIENCE;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A started program, ended with the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::piped()).spawn().expect("an example"))
    }

    /// The address in a server's first line.
    fn address(&mut self) -> String {
        let mut line = String::new();
        let stdout = self.0.stdout.as_mut().expect("piped");
        // One byte at a time: what follows the line stays in the pipe.
        let mut lines = BufReader::with_capacity(1, stdout);
        lines.read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on ");
        address.unwrap_or_else(|| panic!("no address in {line:?}")).into()
    }

    /// Waits for the end; true when it was a good one, with what was printed.
    fn finish(mut self) -> (bool, String) {
        let mut text = String::new();
        let stdout = self.0.stdout.as_mut().expect("piped");
        stdout.read_to_string(&mut text).expect("text");
        (self.0.wait().expect("an end").success(), text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails when it has ended by itself.
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

fn program(name: &str) -> Command {
    Command::new(outboard_testkit::example(name))
}

#[test]
fn hello_write_writes() {
    let mut server = Running::start(program("hello_write").args(["server", common::ANY]));
    let address = server.address();
    let client = Running::start(program("hello_write").args(["client", &address]));
    assert_eq!(client.finish(), (true, String::new()));
    assert_eq!(server.finish(), (true, "hello, memory\n".into()));
}

#[test]
fn hello_write_alone_is_both_sides() {
    let mut both = Running::start(&mut program("hello_write"));
    both.address();
    assert_eq!(both.finish(), (true, "hello, memory\n".into()));
}

#[test]
fn errors_are_for_people() {
    let nobody = free_port();
    for (name, words) in [
        ("hello_write", &["client", &nobody][..]),
        ("send_recv", &["client", &nobody]),
        ("rping", &["client", &nobody]),
        ("event_loop", &["nowhere"]),
    ] {
        let output = program(name).args(words).output().expect("an end");
        let text = String::from_utf8(output.stderr).expect("text");
        assert!(!output.status.success(), "{name}");
        assert!(text.starts_with(&format!("{name}: ")) && !text.contains('{'), "{text}");
    }
}

#[test]
fn send_recv_answers() {
    let mut server = Running::start(program("send_recv").args(["server", common::ANY]));
    let address = server.address();
    let client = Running::start(program("send_recv").args(["client", &address, "some", "words"]));
    assert_eq!(client.finish(), (true, "SOME\nWORDS\n".into()));
    assert_eq!(server.finish(), (true, String::new()));
}

#[test]
fn event_loop_answers_many_clients() {
    let mut server = Running::start(program("event_loop").arg(common::ANY));
    let address = server.address();
    for _ in 0..3 {
        let clients = ["one", "two", "three"].map(|word| {
            let client = Running::start(program("send_recv").args(["client", &address, word]));
            (word, client)
        });
        for (word, client) in clients {
            assert_eq!(client.finish(), (true, format!("{}\n", word.to_uppercase())));
        }
    }
    assert!(server.0.try_wait().expect("a state").is_none(), "the server goes on");
}

/// Both roles of rping; the sizes are the stock program's least and most and one in between.
#[test]
fn rping_meets_rping() {
    for (size, count, crc) in
        [("23", "70", ["on", "off"]), ("65535", "5", ["off", "off"]), ("4099", "60", ["on", "on"])]
    {
        let port = free_port();
        let rping = |role: &str, crc: &str| {
            let mut command = program("rping");
            command.args([role, &port, "--count", count, "--size", size, "--crc", crc]);
            command
        };
        let server = Running::start(&mut rping("server", crc[0]));
        wait_listening(&port);
        let client = Running::start(&mut rping("client", crc[1]));
        let used = if crc.contains(&"on") { "on" } else { "off" };
        let said = (true, format!("negotiated crc={used}\n"));
        assert_eq!((client.finish(), server.finish()), (said.clone(), said));
    }
}

#[test]
fn rping_fails_when_the_other_side_stops_early() {
    let port = free_port();
    let server = Running::start(program("rping").args(["server", &port, "--count", "5"]));
    wait_listening(&port);
    let client = Running::start(program("rping").args(["client", &port, "--count", "4"]));
    assert!(client.finish().0);
    assert!(!server.finish().0, "the server was promised five iterations");
}

fn free_port() -> String {
    let socket = TcpListener::bind(common::ANY).expect("a port");
    socket.local_addr().expect("an address").to_string()
}

/// Looks into the kernel's table, because a connection would be taken for the client.
fn wait_listening(address: &str) {
    let port: u16 = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let listens = format!(":{port:04X} 00000000:0000 0A");
    let deadline = Instant::now() + PATIENCE;
    while !std::fs::read_to_string("/proc/net/tcp").expect("procfs").contains(&listens) {
        assert!(Instant::now() < deadline, "no program listens on {address}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
