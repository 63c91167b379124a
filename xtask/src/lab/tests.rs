//! Labs of two hosts, and pairs with a delay, on machines that allow them.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Instant;

use super::*;
use crate::bench::measure::{Server, number};
use crate::command;

/// Whether the user is root, and there are control groups.
fn is_allowed() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| {
        Group::at_root(&format!("outboard-probe-{}", std::process::id()))
            .is_ok_and(|group| group.create().is_ok() && group.remove().is_ok())
            && command::succeeds("unshare", &["--net", "true"])
    })
}

/// `None` if this machine allows none.
fn lab() -> Option<Lab> {
    is_allowed().then(|| Lab::new(&["0", "0"], Link::BitsPerSecond(1_000_000_000)).unwrap())
}

/// The same; it also takes a C compiler and TAP devices.
fn delayed(one_way: Duration) -> Option<DelayedPair> {
    let tools = Path::new("/dev/net/tun").exists() && command::succeeds("cc", &["--version"]);
    let delay = Delay { one_way, link: Link::Unlimited };
    (is_allowed() && tools).then(|| DelayedPair::new(delay).unwrap())
}

#[test]
fn hosts_reach_each_other_and_nobody_else() {
    let Some(lab) = lab() else { return };
    let [one, other] = lab.hosts() else { panic!("two were asked for") };
    let said = command::output(one.command("ip").args(["-4", "-o", "route"])).unwrap();
    assert!(!said.contains("default"), "{said}");
    let get = format!("exec 3<>/dev/tcp/{}/7; cat <&3", other.address);
    let serve = "import socket; s = socket.create_server(('', 7)); print('up', flush=True); \
                 s.accept()[0].sendall(b'hello')";
    let mut server = other.command("python3");
    let _server = Server::start_with_line(server.args(["-c", serve]));
    assert_eq!(command::output(one.command("bash").args(["-c", &get])).unwrap(), "hello");
    // The same port is free on this machine's loopback, so the server was in the host.
    assert!(!matches!(TcpListener::bind("127.0.0.1:7"),
        Err(error) if error.kind() == ErrorKind::AddrInUse));
}

#[test]
fn what_a_host_computes_is_known_and_pinned() {
    let Some(lab) = lab() else { return };
    let [busy, idle] = lab.hosts() else { panic!("two were asked for") };
    let loops = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; taskset -pc $$";
    let said = command::output(busy.command("sh").args(["-c", loops])).unwrap();
    assert!(said.trim_end().ends_with(": 0"), "{said}");
    assert!(busy.cpu().unwrap() > Duration::from_millis(5));
    assert_eq!(idle.cpu().unwrap(), Duration::ZERO);
    assert!(lab.group().cpu().unwrap() >= busy.cpu().unwrap());
}

#[test]
fn nothing_is_left_of_a_lab() {
    let Some(lab) = lab() else { return };
    let host = &lab.hosts()[0];
    let group = host.group.path().to_owned();
    let namespace = format!("/run/netns/{}", host.namespace);
    let mut sleeper = host.command("sh");
    let _sleeper = Server::start_with_line(sleeper.args(["-c", "echo up; exec sleep 1000"]));
    assert!(group.is_dir() && Path::new(&namespace).exists());
    drop(lab);
    assert!(!group.exists() && !Path::new(&namespace).exists());
}

#[test]
fn a_group_is_killed_with_its_children() {
    let Some(lab) = lab() else { return };
    let group = &lab.hosts()[0].group;
    let children = "sleep 1000 & sleep 1000 & wait";
    let mut shell = group.command("sh").args(["-c", children]).spawn().unwrap();
    let began = Instant::now();
    let inside = || fs::read_to_string(group.path().join("cgroup.procs")).unwrap().lines().count();
    while inside() < 3 && began.elapsed() < Duration::from_secs(10) {
        sleep(Duration::from_millis(1));
    }
    group.kill().unwrap();
    assert_eq!(inside(), 0);
    assert!(!shell.wait().unwrap().success());
}

#[test]
fn a_delayed_round_trip_takes_twice_the_delay() {
    // The fastest, and with room, because other tests run on the same processors. What uses the
    // delay checks it more closely first.
    let Some(pair) = delayed(Duration::from_millis(5)) else { return };
    let program = command::compile_c("xtask/src/lab/probe.c", &[]).unwrap();
    for what in ["udp", "tcp"] {
        let fastest = || number(&pair.probe(&program, what, "100").unwrap(), "/least_us").unwrap();
        assert!((0..20).any(|_| {
            let fastest = fastest();
            assert!(fastest >= 10_000.0, "{what}: {fastest} µs");
            fastest < 14_000.0
        }));
    }
    let report = pair.finish().unwrap();
    assert!(report.packets >= 400, "{report:?}");
}

#[test]
fn a_delayed_stream_arrives_as_it_was() {
    // Several times what the link holds at once; nobody sums these packets on the way.
    const SEND: &str = "import hashlib, random, signal, socket, sys; signal.alarm(120)\n\
        s = socket.create_connection((sys.argv[1], 7)); h = hashlib.blake2b()\n\
        for n in range(200): b = random.randbytes(1000003 + n); s.sendall(b); h.update(b)\n\
        s.shutdown(1); print(h.hexdigest() == s.makefile().read())";
    const HASH: &str = "import hashlib, signal, socket; signal.alarm(120)\n\
        s = socket.create_server(('', 7)); print('up', flush=True); c = s.accept()[0]\n\
        h = hashlib.blake2b()\n\
        while b := c.recv(1 << 20): h.update(b)\n\
        c.sendall(h.hexdigest().encode())";
    let Some(pair) = delayed(Duration::from_millis(1)) else { return };
    let [a, b] = pair.hosts();
    let _server = Server::start_with_line(b.command("python3").args(["-c", HASH])).unwrap();
    let mut send = a.command("python3");
    send.args(["-c", SEND, &b.address.to_string()]);
    assert_eq!(command::output(&mut send).unwrap(), "True\n");
    // The whole segments of a large stream were passed in one piece.
    let report = pair.finish().unwrap();
    assert!(report.bytes > 200_000_000 && report.bytes / report.packets > 5_000, "{report:?}");
}

#[test]
fn nothing_is_left_of_a_delayed_pair_and_its_link() {
    let Some(pair) = delayed(Duration::ZERO) else { return };
    let (wire, group) = (pair.wire.process(), pair.hosts()[0].group.path().to_owned());
    let namespace = format!("/run/netns/{}", pair.hosts()[0].namespace);
    let alive = || Path::new(&format!("/proc/{wire}")).exists();
    assert!(alive() && group.is_dir() && Path::new(&namespace).exists());
    drop(pair);
    assert!(!alive() && !group.exists() && !Path::new(&namespace).exists());
}
