//! All ways in which dialing fails, and a success.

use super::*;
use crate::hosts::HostList;
use outboard_secure::ClusterKey;
use outboard_testkit::{PATIENCE, eventually};
use std::net::TcpListener;

fn name(text: &str) -> ServiceName {
    text.parse().expect("a name")
}

fn credentials(cluster: &ClusterKey) -> Arc<Credentials> {
    crate::sessions::credentials(cluster, "test")
}

fn cluster() -> ClusterKey {
    ClusterKey::generate().expect("random numbers")
}

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// Dials in vain. A busy machine may spend all the time on the name: then there is more.
fn times_out_in_the_handshake(dialer: &Dialer, host: &Host) -> bool {
    let within = |millis| dialer.dial(host, &name("test"), Instant::now() + millis);
    let mut limits = (0..8).map(|more| Duration::from_millis(300 << more));
    let last = limits.find_map(|limit| match within(limit) {
        Err(DialError::TimedOut { step: Step::Name | Step::Connect, .. }) => None,
        other => Some(other),
    });
    matches!(last, Some(Err(DialError::TimedOut { step: Step::Handshake, .. })))
}

/// A local port, as a host, and its listener.
fn listen() -> (Host, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let hosts: HostList = format!("localhost:{port}").parse().expect("a list");
    (hosts.hosts()[0].clone(), listener)
}

/// Answers one caller as a node does, and sends data right after its last handshake message.
fn serve(listener: TcpListener, credentials: Arc<Credentials>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a caller");
        let mut handshake = Handshake::responder(credentials);
        let mut bytes = [0; READ_LEN];
        loop {
            let count = socket.read(&mut bytes).expect("bytes");
            if handshake.handle(&bytes[..count]).is_err() {
                return;
            }
            let Some(mut message) = handshake.poll_transmit() else { continue };
            if !handshake.is_done() {
                socket.write_all(&message).expect("sent");
                continue;
            }
            let mut session = handshake.into_session().expect("done");
            session.seal(b"welcome", &mut message).expect("sealed");
            return socket.write_all(&message).expect("sent");
        }
    })
}

fn dial(dialer: &Dialer, host: &Host) -> Result<Secured, DialError> {
    dialer.dial(host, &name("test"), soon())
}

#[test]
fn a_host_with_the_key_is_reached() {
    let (key, (host, listener)) = (cluster(), listen());
    let theirs = credentials(&key);
    let node = theirs.identity.node();
    let server = serve(listener, theirs);
    let mut stream = dial(&Dialer::new(credentials(&key)), &host).expect("reached");
    assert_eq!(stream.peer(), node);
    let mut received = Vec::new();
    stream.receive(&mut received, soon()).expect("what came early");
    assert_eq!(received, b"welcome");
    server.join().expect("no panic");
}

#[test]
fn a_host_with_another_key_refuses() {
    let (host, listener) = listen();
    let server = serve(listener, credentials(&cluster()));
    let error = dial(&Dialer::new(credentials(&cluster())), &host).expect_err("another key");
    let refused =
        matches!(&error, DialError::Handshake { source: HandshakeError::Refused { .. }, .. });
    assert!(refused, "{error}");
    server.join().expect("no panic");
}

#[test]
fn a_service_without_a_key_is_not_dialed() {
    let (host, _listener) = listen();
    let dialer = Dialer::new(credentials(&cluster()));
    let error = dialer.dial(&host, &name("other"), soon()).expect_err("no key");
    assert!(error.to_string().contains("outboard key export other"), "{error}");
}

#[test]
fn a_closed_port_silence_and_another_protocol_have_different_errors() {
    let dialer = Dialer::new(credentials(&cluster()));
    let (host, listener) = listen();
    assert!(times_out_in_the_handshake(&dialer, &host), "silence");
    drop(listener);
    let error = dial(&dialer, &host).expect_err("nobody");
    assert!(matches!(error, DialError::Unreachable { .. }), "{error}");
    let (host, listener) = listen();
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a caller");
        socket.write_all(b"SSH-2.0-OpenSSH\r\n").expect("sent");
        socket
    });
    let error = dial(&dialer, &host).expect_err("another protocol");
    assert!(error.to_string().contains("does not speak Outboard"), "{error}");
    server.join().expect("no panic");
}

#[test]
fn what_to_do_depends_on_the_systems_error() {
    let said = |errno: i32| {
        let (host, address) = ("n1".into(), "10.0.0.1:7410".parse().expect("an address"));
        let source = std::io::Error::from_raw_os_error(errno);
        DialError::Unreachable { host, address, source }.to_string()
    };
    let refused = rustix::io::Errno::CONNREFUSED.raw_os_error();
    assert!(said(refused).ends_with("is `outboard node` running there?"), "{}", said(refused));
    for (errno, advice) in [
        (rustix::io::Errno::NETUNREACH, "this machine's network"),
        (rustix::io::Errno::PERM, "a firewall or policy"),
        (rustix::io::Errno::MFILE, "open files"),
        (rustix::io::Errno::ADDRNOTAVAIL, "no port left"),
        (rustix::io::Errno::INVAL, "name another"),
        (rustix::io::Errno::NOMEM, "(os error 12)"),
    ] {
        let said = said(errno.raw_os_error());
        assert!(said.starts_with("n1 (10.0.0.1:7410): ") && said.contains(advice), "{said}");
        assert!(!said.contains("outboard node"), "{said}");
    }
}

/// The right answer, which is complete long after the time is over.
#[test]
fn an_byte_now_and_then_gains_no_time() {
    let (key, (host, listener)) = (cluster(), listen());
    let theirs = credentials(&key);
    let (told, counts) = mpsc::channel();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("a caller");
            let answer = answer(&mut socket, &theirs);
            let sent = answer.iter().take_while(|&&byte| {
                thread::sleep(Duration::from_millis(20));
                socket.write_all(&[byte]).is_ok()
            });
            told.send((sent.count(), answer.len())).expect("it is waited for");
        }
    });
    let dialer = Dialer::new(credentials(&key));
    eventually("an answer is cut off", || {
        let is_late = times_out_in_the_handshake(&dialer, &host);
        let (sent, whole) = counts.recv_timeout(PATIENCE).expect("counts");
        is_late && (1..whole).contains(&sent)
    });
}

/// The answer to a caller; nothing to one that has no time left for its first message.
fn answer(socket: &mut TcpStream, credentials: &Arc<Credentials>) -> Vec<u8> {
    let mut handshake = Handshake::responder(Arc::clone(credentials));
    let mut bytes = [0; READ_LEN];
    loop {
        let count = socket.read(&mut bytes).unwrap_or_default();
        if count == 0 {
            return Vec::new();
        }
        handshake.handle(&bytes[..count]).expect("a right one");
        if let Some(answer) = handshake.poll_transmit() {
            return answer;
        }
    }
}

#[test]
fn a_name_that_does_not_resolve() {
    let hosts: HostList = "no-such-host.invalid".parse().expect("a list");
    let dialer = Dialer::new(credentials(&cluster()));
    let error = dialer.dial(&hosts.hosts()[0], &name("test"), soon()).expect_err("no such host");
    let told = matches!(
        error,
        DialError::Unresolved { .. } | DialError::TimedOut { step: Step::Name, .. }
    );
    assert!(told, "{error}");
}
