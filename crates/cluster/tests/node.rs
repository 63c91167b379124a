//! A node as a process of its own: admission and refusal, hostile handshakes, and
//! restarts of services that die.

#[expect(dead_code, reason = "another test uses the rest")]
#[path = "node/setting.rs"]
mod setting;

use outboard_cluster::dial::DialError;
use outboard_cluster::status;
use outboard_secure::{
    ClusterKey, Credentials, Fabric, HandshakeError, Identity, Mode, Revoked, ServiceKey,
};
use outboard_testkit::eventually;
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, setrlimit};
use setting::{Client, Directory, Node, identify, name, places, received, said, soon};
use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

fn address(node: &Node) -> (String, u16) {
    (node.host.name().to_owned(), node.host.port().expect("a port"))
}

fn connect(node: &Node) -> TcpStream {
    TcpStream::connect(address(node)).expect("it listens")
}

fn key_of(cluster: &ClusterKey, service: &str) -> ServiceKey {
    cluster.service(&name(service))
}

/// A client with these keys.
fn holder(keys: impl IntoIterator<Item = ServiceKey>) -> Credentials {
    Credentials {
        identity: Identity::generate().expect("random numbers"),
        keys: keys.into_iter().collect(),
        fabric: Fabric::Untrusted,
        revoked: Revoked::default(),
    }
}

/// The process of a service.
fn pid_of(stream: &mut outboard_verbs::Secured) -> Pid {
    let pid = identify(stream)["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    pid.and_then(Pid::from_raw).expect("a process")
}

fn is_refused(error: &DialError) -> bool {
    matches!(error, DialError::Handshake { source: HandshakeError::Refused { .. }, .. })
}

#[test]
fn a_client_reaches_the_service_it_asks_for_with_its_settings() {
    let node = Node::start("slots = 3\n[echo]\ngreeting = \"welcome\"\n");
    let client = node.client();
    let mut stream = client.dial(&node.host, "echo").expect("reached");
    assert_eq!(stream.peer(), node.id);
    assert_eq!(received(&mut stream, 7), b"welcome");
    let mut other = client.talk(&node.host, "other");
    let (one, other) = (identify(&mut stream), identify(&mut other));
    assert_ne!(one["pid"], other["pid"], "a process for each service");
    assert_eq!(one["key"], false, "no word of the key");
}

#[test]
fn services_of_root_are_users_of_their_own_and_none_shows_its_memory() {
    let node = Node::start("");
    let client = node.client();
    let told = ["echo", "other"].map(|name| identify(&mut client.talk(&node.host, name)));
    for told in &told {
        let pid = told["pid"].as_u64().expect("a process");
        // The files of a process that shows its memory to its user are that user's.
        let owner = fs::metadata(format!("/proc/{pid}/status")).expect("it runs").uid();
        assert_eq!(owner, 0, "it is dumpable");
        if rustix::process::geteuid().is_root() {
            assert_ne!(told["user"], 0);
            assert_eq!(told["groups"], 0);
        } else {
            assert_eq!(told["user"], rustix::process::geteuid().as_raw());
        }
    }
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(told[0]["user"] != told[1]["user"], is_root, "{told:?}");
    // The one that the operator names, where it names one.
    let node = Node::start("user = \"61400:61400\"");
    let told = identify(&mut node.client().talk(&node.host, "echo"));
    assert!(!is_root || told["user"] == 61400, "{told}");
}

#[test]
fn directories_are_made_for_the_services_user() {
    let directory = Directory::new();
    let place = directory.0.join("far/away");
    let settings = format!("[echo]\nplace = {:?}\n", place.display().to_string());
    let node = Node::start_in(directory, &settings);
    let told = identify(&mut node.client().talk(&node.host, "echo"));
    assert_eq!(told["user"], fs::metadata(&place).expect("made").uid());
}

#[test]
fn a_wrong_table_is_refused_before_anything_starts() {
    let directory = Directory::new();
    let file = directory.0.join("node.toml");
    fs::write(&file, "slots = 2\n[echo]\ngreetings = \"typo\"\n").expect("written");
    let mut command = std::process::Command::new(outboard_testkit::example("echo_node"));
    let output = command.arg(&directory.0).arg(&file).output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("node.toml, line 3: the table [echo]: unknown field"), "{said}");
    assert!(!directory.0.join("key").exists(), "nothing has been made");
}

#[test]
fn an_identity_has_so_many_sessions_and_others_have_theirs() {
    let directory = Directory::new();
    let client = Client::with(&directory.cluster());
    let tenant = client.0.node();
    let settings = format!("sessions = 3\n[tenant.{tenant}]\nserve = [\"echo\"]\nsessions = 2\n");
    let node = Node::start_in(directory, &settings);
    let ends = |mut stream: outboard_verbs::Secured| {
        let said = stream.send(b"hello", soon());
        said.is_err() || stream.receive(&mut Vec::new(), soon()).is_err()
    };
    let first = client.talk(&node.host, "echo");
    let _second = client.talk(&node.host, "echo");
    assert!(ends(client.dial(&node.host, "echo").expect("it has the key")), "a third");
    assert!(ends(client.dial(&node.host, "other").expect("it has the key")), "not for it");
    let others = node.client();
    let _held = [(); 3].map(|()| others.talk(&node.host, "echo"));
    assert!(ends(others.dial(&node.host, "echo").expect("it has the key")), "a fourth");
    assert_eq!(node.service()["report"]["sessions_over_limit"], 2);
    drop(first);
    eventually("its place is free", || {
        let stream = client.dial(&node.host, "echo");
        stream.is_ok_and(|stream| !ends(stream))
    });
}

#[test]
fn a_node_that_is_revoked_on_its_way_to_a_service_does_not_get_there() {
    let node = Node::start("");
    let (good, bad) = (node.client(), node.client());
    let pid = pid_of(&mut good.talk(&node.host, "echo"));
    kill_process(pid, Signal::STOP).expect("there");
    let mut streams =
        [&good, &bad].map(|client| client.dial(&node.host, "echo").expect("a handshake"));
    Revoked::append(&places(&node.directory).revoked, bad.0.node(), "lost").expect("written");
    eventually("it is shut out", || bad.dial(&node.host, "echo").is_err());
    // A session that the process had not taken goes to the next process.
    kill_process(pid, Signal::KILL).expect("there");
    assert_eq!(said(&mut streams[0], b"hello"), b"hello");
    let _sent = streams[1].send(b"hello", soon());
    streams[1].receive(&mut Vec::new(), soon()).expect_err("it is revoked");
}

#[test]
fn memory_that_is_kept_outlives_a_services_process() {
    let node = Node::start("");
    let client = node.client();
    let mut stream = client.talk(&node.host, "echo");
    assert_eq!(said(&mut stream, b"kept a"), b"nothing");
    for text in ["keep a one", "keep b two", "keep a three"] {
        assert_eq!(said(&mut stream, text.as_bytes()), b"kept");
    }
    for _ in 0..2 {
        kill_process(pid_of(&mut stream), Signal::KILL).expect("there");
        stream = client.talk(&node.host, "echo");
        assert_eq!(said(&mut stream, b"kept a"), b"three");
        assert_eq!(said(&mut stream, b"kept b"), b"two");
    }
    assert_eq!(node.service()["kept"], serde_json::json!({ "a": 5, "b": 3 }));
    // No other service's.
    assert_eq!(said(&mut client.talk(&node.host, "other"), b"kept a"), b"nothing");
}

#[test]
fn a_service_reaches_another_nodes_service_as_its_configuration_says() {
    let far = Node::start("");
    let directory = Directory::new();
    fs::copy(far.directory.0.join("key"), directory.0.join("key")).expect("the same cluster");
    let near = Node::start_in(directory, &format!("[reach.echo]\nother = \"{}\"\n", far.host));
    let client = near.client();
    let mut stream = client.talk(&near.host, "echo");
    let ask = |stream: &mut _, service: &str| {
        said(stream, format!("dial {} {service}", far.host).as_bytes())
    };
    let told = ask(&mut stream, "other");
    let there: serde_json::Value = serde_json::from_slice(&told).expect("JSON");
    let direct = identify(&mut far.client().talk(&far.host, "other"));
    assert_eq!(there["pid"], direct["pid"], "the other node's process has answered");
    for (service, from) in [("echo", "echo"), ("other", "other")] {
        let told = ask(&mut client.talk(&near.host, from), service);
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(told.contains("does not let"), "{told}");
    }
    // A host that does not exist makes the service wait until its limit, and delays the node in
    // nothing.
    let address = far.host.to_string();
    drop(far);
    let told = said(&mut stream, format!("dial {address} other").as_bytes());
    assert!(String::from_utf8_lossy(&told).contains("is `outboard node` running"), "{told:?}");
    near.status();
}

#[test]
fn bytes_that_come_with_the_proof_are_handed_over() {
    let node = Node::start("");
    let mut stream = node.client().dial(&node.host, "echo").expect("reached");
    // Most of it is sent before the service's process has the socket.
    let data: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let (mut sender, copy) = (data.clone(), data.len());
    sender.truncate(copy);
    for piece in sender.chunks(10_000) {
        stream.send(piece, soon()).expect("sent");
    }
    assert_eq!(received(&mut stream, data.len()), data);
}

#[test]
fn peers_without_a_key_or_with_another_are_refused() {
    let node = Node::start("");
    let cluster = node.directory.cluster();
    let handshake = Client::with(&ClusterKey::generate().expect("random numbers"));
    assert!(is_refused(&handshake.dial(&node.host, "echo").expect_err("no key")));
    // One service's key opens no other.
    let path = node.directory.0.join("exported");
    key_of(&cluster, "other").export(&path).expect("exported");
    let exported = ServiceKey::load(&path).expect("a key");
    let session = Client::of(holder([exported]));
    session.talk(&node.host, "other");
    assert!(session.dial(&node.host, "echo").expect_err("no key").to_string().contains("no key"));
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
fn thousands_of_half_open_handshakes_shut_no_client_out() {
    let node = Node::start("");
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("allowed");
    let hello = node_hello(&node);
    let (mut open, mut dialed) = (VecDeque::new(), 0);
    // A busy machine's handshakes may be over before there are hundreds, but not each time. They
    // end with time: where a client is reached and they are still there, it has not waited for it.
    eventually("a client is reached beside hundreds", || {
        // No more than wait in the kernel's queue: it would have the next one try again later.
        for round in 0..100 {
            let mut socket = connect(&node);
            if round % 2 == 0 {
                // An error is fine: the node may have closed the connection already.
                let _sent = socket.write_all(&hello);
            }
            open.push_back(socket);
            if open.len() > 900 {
                open.pop_front();
            }
        }
        dialed += 100;
        node.client().talk(&node.host, "echo");
        let status = node.status();
        let under_way = status["handshakes"].as_u64().expect("a number");
        assert!(under_way <= 512, "{status}");
        dialed >= 3000 && under_way >= 400
    });
    // The time limit alone ends them.
    eventually("they are gone", || node.status()["handshakes"] == 0);
}

/// The time is over long before its last byte.
#[test]
fn an_byte_a_second_gains_no_time() {
    let node = Node::start("");
    let mut socket = connect(&node);
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("set");
    let hello = node_hello(&node);
    let gone = hello.iter().any(|byte| {
        let written = socket.write_all(&[*byte]).is_ok();
        let answer = socket.read(&mut [0; 1]);
        assert!(!matches!(answer, Ok(1)), "it was waited for");
        !written || !matches!(answer, Err(error) if error.kind() == ErrorKind::WouldBlock)
    });
    assert!(gone, "it was waited for");
}

/// The first bytes of a right handshake.
fn node_hello(node: &Node) -> Vec<u8> {
    let credentials = holder([key_of(&node.directory.cluster(), "echo")]);
    let handshake = outboard_secure::Handshake::initiator(credentials.into(), &name("echo"));
    handshake.expect("a key").poll_transmit().expect("its turn")
}

#[test]
fn other_protocols_are_turned_away() {
    let node = Node::start("");
    let noise: [&[u8]; 3] = [b"GET / HTTP/1.1\r\n\r\n", &[0xff; 2000], b"MPA ID Req Frame\0\0\0\0"];
    for bytes in noise {
        let mut socket = connect(&node);
        let _sent = socket.write_all(bytes);
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
        kill_process(pid_of(&mut stream), Signal::KILL).expect("there");
        let mut bytes = Vec::new();
        stream.receive(&mut bytes, soon()).expect_err("its process is gone");
        // A client that connects before the restart waits for the new process.
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
        let pid = identify(&mut stream)["pid"].as_i64().expect("a process");
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
    let pid = pid_of(&mut stream);
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
    let _session = node.client().talk(&node.host, "echo");
    let status = node.status();
    assert_eq!(status["node"], node.id.to_string());
    assert_eq!(status["slots"], 5);
    let [echo, other] = [&status["services"][0], &status["services"][1]];
    assert_eq!((&echo["name"], &other["name"]), (&"echo".into(), &"other".into()));
    assert_eq!(echo["sessions"], 1);
    let expected = serde_json::json!({
        "jobs_now": 1, "jobs_total": 1, "sessions_over_limit": 0, "sessions_without_descriptor": 0,
    });
    assert_eq!(echo["report"], expected);
    // Its key is a service's key like others.
    let session = Client::of(holder([key_of(&node.directory.cluster(), "echo")]));
    status::ask(&session.0, &node.host, soon()).expect_err("no key");
}

#[test]
fn bytes_are_in_clear_only_where_both_say_so() {
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
