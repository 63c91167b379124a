//! Measures a session's bytes a second, sealed and opened, and handshakes a second.
//!
//! `cargo bench -p outboard-secure`; gives the median of several runs of each, on one thread.

use outboard_secure::{
    ClusterKey, Credentials, Fabric, Handshake, Identity, Keyring, Revoked, SecureSession,
    ServiceName,
};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

const ROUNDS: usize = 41;
const MIB: usize = 1 << 20;

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// The time of one call in seconds.
fn time(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64()
}

fn ends() -> Result<[Arc<Credentials>; 2], Box<dyn Error>> {
    let cluster = ClusterKey::generate()?;
    let end = || -> Result<_, Box<dyn Error>> {
        let keys: Keyring = [cluster.service(&"bench".parse()?)].into_iter().collect();
        let (identity, revoked) = (Identity::generate()?, Revoked::default());
        Ok(Arc::new(Credentials { identity, keys, fabric: Fabric::Untrusted, revoked }))
    };
    Ok([end()?, end()?])
}

fn meet(ends: &[Arc<Credentials>; 2], service: &ServiceName) -> (SecureSession, SecureSession) {
    let [client, server] = ends.clone();
    let mut client = Handshake::initiator(client, service).expect("it has the key");
    let mut server = Handshake::responder(server);
    while !(client.is_done() && server.is_done()) {
        if let Some(bytes) = client.poll_transmit() {
            server.handle(&bytes).expect("the client is right");
        }
        if let Some(bytes) = server.poll_transmit() {
            client.handle(&bytes).expect("the server is right");
        }
    }
    let [client, server] = [client, server].map(|end| end.into_session().expect("it is done"));
    (client, server)
}

/// A MiB a round, sealed in pieces and opened in reads of a given size.
fn bulk((mut client, mut server): (SecureSession, SecureSession), piece: usize, read: usize) {
    let plain = vec![0x5a; piece];
    let (mut wire, mut opened) = (Vec::new(), Vec::new());
    let rounds = (0..ROUNDS).map(|_| {
        wire.clear();
        let sealing = time(|| {
            let pieces = 0..MIB / piece;
            pieces.for_each(|_| client.seal(&plain, &mut wire).expect("it is alive"));
        });
        let opening = time(|| {
            wire.chunks(read).for_each(|bytes| {
                opened.clear();
                server.open(bytes, &mut opened).expect("no attacker is in between");
            });
        });
        (sealing, opening)
    });
    let (sealing, opening): (Vec<f64>, Vec<f64>) = rounds.unzip();
    let (seal, open) = (1.0 / median(sealing), 1.0 / median(opening));
    let both = 1.0 / (1.0 / seal + 1.0 / open);
    println!(
        "pieces of {piece:7}, reads of {read:6}: seal {seal:5.0}, open {open:5.0}, both {both:5.0} \
         MiB/s"
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let ends = ends()?;
    let service = "bench".parse()?;
    for piece in [1024, 4096, 16 * 1024, 64 * 1024, MIB] {
        bulk(meet(&ends, &service), piece, 256 * 1024);
    }
    bulk(meet(&ends, &service), MIB, 4096);
    let handshakes = (0..ROUNDS).map(|_| time(|| drop(meet(&ends, &service))));
    println!("handshake, both ends: {:.0} us", median(handshakes.collect()) * 1e6);
    Ok(())
}
