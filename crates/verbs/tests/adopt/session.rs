//! Pairs of sockets with a session, and an attacker between two ends.

use outboard_secure::{
    ClusterKey, Credentials, Fabric, Handshake, Identity, Revoked, SecureSession,
};
use outboard_verbs::Secured;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

/// Both ends of a handshake between nodes that hold the same key.
pub(crate) fn sessions(fabric: Fabric) -> (SecureSession, SecureSession) {
    let cluster = ClusterKey::generate().expect("random numbers");
    let name = "test".parse().expect("a name");
    let end = || {
        Arc::new(Credentials {
            identity: Identity::generate().expect("random numbers"),
            keys: [cluster.service(&name)].into_iter().collect(),
            fabric,
            revoked: Revoked::default(),
        })
    };
    let mut client = Handshake::initiator(end(), &name).expect("a key");
    let mut server = Handshake::responder(end());
    while !(client.is_done() && server.is_done()) {
        if let Some(bytes) = client.poll_transmit() {
            server.handle(&bytes).expect("right");
        }
        if let Some(bytes) = server.poll_transmit() {
            client.handle(&bytes).expect("right");
        }
    }
    (client.into_session().expect("done"), server.into_session().expect("done"))
}

/// Two connected sockets.
fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let one = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    (one, listener.accept().expect("accepted").0)
}

/// Two ends of one connection with its session.
pub(crate) fn secured_pair(fabric: Fabric) -> (Secured, Secured) {
    let (sockets, sessions) = (sockets(), sessions(fabric));
    let one = Secured::new(sockets.0, sessions.0, Vec::new());
    (one, Secured::new(sockets.1, sessions.1, Vec::new()))
}

/// What the attacker in between does.
#[derive(Clone, Copy)]
pub(crate) enum Meddler {
    Pass,
    Alter,
    Cut,
}

pub(crate) struct Handle(Arc<AtomicU8>);

impl Handle {
    pub(crate) fn set(&self, what: Meddler) {
        self.0.store(what as u8, Ordering::SeqCst);
    }
}

/// Two ends with an attacker between them, which changes the bytes of the first.
pub(crate) fn between() -> ((Secured, Secured), Handle) {
    let ((one, near), (far, other)) = (sockets(), sockets());
    let mood = Arc::new(AtomicU8::new(Meddler::Pass as u8));
    let (back, forth) = (far.try_clone().expect("a copy"), near.try_clone().expect("a copy"));
    thread::spawn(move || relay(back, forth, &AtomicU8::new(Meddler::Pass as u8)));
    let handle = Handle(Arc::clone(&mood));
    thread::spawn(move || relay(near, far, &mood));
    let sessions = sessions(Fabric::Untrusted);
    let one = Secured::new(one, sessions.0, Vec::new());
    ((one, Secured::new(other, sessions.1, Vec::new())), handle)
}

fn relay(mut from: TcpStream, mut to: TcpStream, mood: &AtomicU8) {
    let mut bytes = [0; 65_536];
    loop {
        let count = from.read(&mut bytes).unwrap_or(0);
        let mood = mood.load(Ordering::SeqCst);
        if count == 0 || mood == Meddler::Cut as u8 {
            let _gone = to.shutdown(Shutdown::Both);
            let _gone = from.shutdown(Shutdown::Both);
            return;
        }
        if mood == Meddler::Alter as u8 {
            bytes[count - 1] ^= 1;
        }
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}
