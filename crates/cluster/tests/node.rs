//! A node as a process of its own: who gets in, who does not, what strangers can do to it, and what
//! becomes of services that die.

#[path = "node/setting.rs"]
mod setting;

use outboard_cluster::dial::DialError;
use outboard_cluster::status;
use outboard_secure::{
    ClusterKey, Credentials, Fabric, HandshakeError, Identity, Mode, Revoked, ServiceKey,
};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, setrlimit};
use setting::{Client, Directory, Node, eventually, heard, name, places, said, soon, who};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

fn address(node: &Node) -> (String, u16) {
    (node.host.name().to_owned(), node.host.port().expect("a port"))
}

fn connect(node: &Node) -> TcpStream {
    TcpStream::connect(address(node)).expect("it listens")
}

fn key_of(cluster: &ClusterKey, service: &str) -> ServiceKey {
    cluster.service(&name(service))
}

/// Somebody with these keys.
fn holder(keys: impl IntoIterator<Item = ServiceKey>) -> Credentials {
    Credentials {
        identity: Identity::generate().expect("random numbers"),
        keys: keys.into_iter().collect(),
        fabric: Fabric::Untrusted,
        revoked: Revoked::default(),
    }
}

fn is_refused(error: &DialError) -> bool {
    matches!(error, DialError::Handshake { source: HandshakeError::Refused { .. }, .. })
}

#[test]
fn a_guest_reaches_the_service_it_asks_for_with_its_settings() {
    let node = Node::start("slots = 3\n[echo]\ngreeting = \"welcome\"\n");
    let client = node.client();
    let mut stream = client.dial(&node.host, "echo").expect("reached");
    assert_eq!(stream.peer(), node.id);
    assert_eq!(heard(&mut stream, 7), b"welcome");
    let mut other = client.talk(&node.host, "other");
    let (one, other) = (who(&mut stream), who(&mut other));
    assert_ne!(one["pid"], other["pid"], "a process for each service");
    assert_eq!(one["key"], false, "no word of the key");
}

#[test]
fn services_of_root_are_nobody() {
    let node = Node::start("");
    let told = who(&mut node.client().talk(&node.host, "echo"));
    if rustix::process::geteuid().is_root() {
        assert_ne!(told["user"], 0);
        assert_eq!(told["groups"], 0);
    } else {
        assert_eq!(told["user"], rustix::process::geteuid().as_raw());
    }
}

#[test]
fn octets_that_come_with_the_proof_are_handed_over() {
    let node = Node::start("");
    let mut stream = node.client().dial(&node.host, "echo").expect("reached");
    // Much of it crosses before the service's process has the socket.
    let data: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let (mut sender, copy) = (data.clone(), data.len());
    sender.truncate(copy);
    for piece in sender.chunks(10_000) {
        stream.send(piece, soon()).expect("sent");
    }
    assert_eq!(heard(&mut stream, data.len()), data);
}

#[test]
fn strangers_and_holders_of_other_keys_stay_out() {
    let node = Node::start("");
    let cluster = node.directory.cluster();
    let stranger = Client::with(&ClusterKey::generate().expect("random numbers"));
    assert!(is_refused(&stranger.dial(&node.host, "echo").expect_err("no key")));
    // One service's key opens no other.
    let path = node.directory.0.join("exported");
    key_of(&cluster, "other").export(&path).expect("exported");
    let exported = ServiceKey::load(&path).expect("a key");
    let guest = Client::of(holder([exported]));
    guest.talk(&node.host, "other");
    assert!(guest.dial(&node.host, "echo").expect_err("no key").to_string().contains("no key"));
    let text = key_of(&cluster, "other").to_line().replace(" other ", " echo ");
    fs::write(&path, text.as_bytes()).expect("written");
    let renamed = Client::of(holder([ServiceKey::load(&path).expect("a key")]));
    assert!(is_refused(&renamed.dial(&node.host, "echo").expect_err("another key")));
    // The same for a service that the node does not offer.
    let absent = Client::of(holder([key_of(&cluster, "absent")]));
    assert!(is_refused(&absent.dial(&node.host, "absent").expect_err("no such service")));
    assert!(node.status()["refused"].as_u64() >= Some(3));
}

#[test]
fn a_node_that_is_revoked_is_shut_out_while_the_list_changes() {
    let node = Node::start("");
    let (good, bad) = (node.client(), node.client());
    bad.talk(&node.host, "echo");
    let list = places(&node.directory).revoked;
    Revoked::append(&list, bad.0.node(), "lost").expect("written");
    eventually("it is shut out", || bad.dial(&node.host, "echo").is_err());
    assert!(is_refused(&bad.dial(&node.host, "echo").expect_err("revoked")));
    good.talk(&node.host, "echo");
    fs::write(&list, "no list").expect("written");
    thread::sleep(Duration::from_millis(2500));
    bad.dial(&node.host, "echo").expect_err("the list before it holds");
}

#[test]
fn a_list_of_those_who_get_in() {
    let directory = Directory::new();
    let list = directory.0.join("allowed");
    let one = Client::with(&directory.cluster());
    Revoked::append(&list, one.0.node(), "").expect("written");
    let node = Node::start_in(directory, &format!("allowed = {:?}\n", list.display().to_string()));
    one.talk(&node.host, "echo");
    let other = node.client();
    let outcome = other.dial(&node.host, "echo").map(|mut stream| {
        stream.send(b"hello", soon()).and_then(|()| stream.receive(&mut Vec::new(), soon()))
    });
    assert!(!matches!(outcome, Ok(Ok(()))), "it is not on the list");
}

#[test]
fn thousands_of_half_open_handshakes_keep_nobody_out() {
    let node = Node::start("");
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("allowed");
    let hello = node_hello(&node);
    let mut open = Vec::new();
    for round in 1..=3000 {
        let mut socket = connect(&node);
        if round % 2 == 0 {
            // As far as it goes: it may have been shown out already.
            let _sent = socket.write_all(&hello);
        }
        open.push(socket);
        if open.len() > 900 {
            open.remove(0);
        }
        if round % 500 == 0 {
            let start = Instant::now();
            node.client().talk(&node.host, "echo");
            assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        }
    }
    let status = node.status();
    let under_way = status["handshakes"].as_u64().expect("a number");
    assert!((400..=512).contains(&under_way), "{status}");
    // Time alone shows them out.
    eventually("they are gone", || node.status()["handshakes"] == 0);
}

#[test]
fn an_octet_a_second_gains_no_time() {
    let node = Node::start("");
    let mut socket = connect(&node);
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("set");
    let start = Instant::now();
    let hello = node_hello(&node);
    let gone = hello.iter().any(|octet| {
        let written = socket.write_all(&[*octet]).is_ok();
        let closed = matches!(socket.read(&mut [0; 1]), Ok(0));
        !written || closed
    });
    assert!(gone, "it was waited for");
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}

/// The first octets of a right handshake.
fn node_hello(node: &Node) -> Vec<u8> {
    let credentials = holder([key_of(&node.directory.cluster(), "echo")]);
    let handshake = outboard_secure::Handshake::initiator(credentials.into(), &name("echo"));
    handshake.expect("a key").poll_transmit().expect("its turn")
}

#[test]
fn other_protocols_are_turned_away() {
    let node = Node::start("");
    let noise: [&[u8]; 3] = [b"GET / HTTP/1.1\r\n\r\n", &[0xff; 2000], b"MPA ID Req Frame\0\0\0\0"];
    for octets in noise {
        let mut socket = connect(&node);
        let _sent = socket.write_all(octets);
        socket.set_read_timeout(Some(Duration::from_secs(3))).expect("set");
        assert!(!matches!(socket.read(&mut [0; 64]), Ok(1..)), "it answers nothing");
    }
    node.client().talk(&node.host, "echo");
}

#[test]
fn a_service_that_is_killed_starts_again_and_others_live_on() {
    let node = Node::start("");
    let client = node.client();
    let mut other = client.talk(&node.host, "other");
    for round in 1..=3 {
        let mut stream = client.talk(&node.host, "echo");
        let pid = who(&mut stream)["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        kill_process(pid.and_then(Pid::from_raw).expect("a process"), Signal::KILL).expect("there");
        let mut octets = Vec::new();
        stream.receive(&mut octets, soon()).expect_err("its process is gone");
        // Whoever comes meanwhile waits for the new one.
        client.talk(&node.host, "echo");
        assert_eq!(node.service()["restarts"], round);
    }
    assert_eq!(said(&mut other, b"still there"), b"still there");
}

#[test]
fn the_end_of_a_node_is_the_end_of_its_services() {
    for signal in [Signal::TERM, Signal::KILL] {
        let mut node = Node::start("");
        let mut stream = node.client().talk(&node.host, "echo");
        let pid = who(&mut stream)["pid"].as_i64().expect("a process");
        node.signal(signal);
        let ended = node.child.wait().expect("it ends");
        assert_eq!(ended.success(), signal == Signal::TERM);
        let process = format!("/proc/{pid}/stat");
        let gone = || fs::read_to_string(&process).map_or(true, |stat| stat.contains(") Z "));
        eventually("its service ends", gone);
    }
}

#[test]
fn a_stopped_service_does_not_stop_the_node() {
    let node = Node::start("");
    let client = node.client();
    let mut stream = client.talk(&node.host, "echo");
    let pid = who(&mut stream)["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::STOP).expect("there");
    client.talk(&node.host, "other");
    assert_eq!(node.service()["state"], "silent");
    kill_process(pid, Signal::CONT).expect("there");
    assert_eq!(said(&mut stream, b"again"), b"again");
    eventually("it reports", || node.service()["state"] == "running");
}

#[test]
fn status_tells_node_services_and_what_they_report() {
    let node = Node::start("slots = 5\n");
    let _guest = node.client().talk(&node.host, "echo");
    let status = node.status();
    assert_eq!(status["node"], node.id.to_string());
    assert_eq!(status["slots"], 5);
    let [echo, other] = [&status["services"][0], &status["services"][1]];
    assert_eq!((&echo["name"], &other["name"]), (&"echo".into(), &"other".into()));
    assert_eq!(echo["guests"], 1);
    assert_eq!(echo["report"], serde_json::json!({ "jobs_now": 1, "jobs_total": 1 }));
    // Its key is a service's key like others.
    let guest = Client::of(holder([key_of(&node.directory.cluster(), "echo")]));
    status::ask(&guest.0, &node.host, soon()).expect_err("no key");
}

#[test]
fn octets_are_in_clear_only_where_both_say_so() {
    for (settings, fabric, mode) in [
        ("trusted_fabric = true", Fabric::Trusted, Mode::Trusted),
        ("trusted_fabric = true", Fabric::Untrusted, Mode::Encrypted),
        ("", Fabric::Trusted, Mode::Encrypted),
    ] {
        let node = Node::start(settings);
        let credentials =
            Credentials { fabric, ..holder([key_of(&node.directory.cluster(), "echo")]) };
        let stream = Client::of(credentials).talk(&node.host, "echo");
        assert_eq!(stream.session().mode(), mode, "{settings} {fabric:?}");
    }
}

#[test]
fn a_node_with_one_services_key_serves_that() {
    let cluster = ClusterKey::generate().expect("random numbers");
    let directory = Directory::new();
    let key = key_of(&cluster, "other");
    key.export(&directory.0.join("key")).expect("exported");
    let node = Node::start_in(directory, "serve = [\"other\"]");
    Client::of(holder([key])).talk(&node.host, "other");
}
