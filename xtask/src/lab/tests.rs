//! Labs of two hosts, on machines that allow them.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Instant;

use super::*;
use crate::bench::measure::Server;
use crate::command;

/// `None` if the user is not root, or there are no control groups.
fn lab() -> Option<Lab> {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    let allowed = ALLOWED.get_or_init(|| {
        Group::at_root(&format!("outboard-probe-{}", std::process::id()))
            .is_ok_and(|group| group.create().is_ok() && group.remove().is_ok())
            && command::succeeds("unshare", &["--net", "true"])
    });
    allowed.then(|| Lab::new(&["0", "0"], Link::BitsPerSecond(1_000_000_000)).unwrap())
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
