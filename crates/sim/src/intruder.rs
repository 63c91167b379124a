//! Arbitrary bytes to handshakes and sessions, and genuine bytes that an attacker in between
//! changes: nothing panics, an end that fails sends nothing more, and no end gets a session or a
//! byte that the peer did not send. Property tests and the fuzzer share it.
//!
//! Random bytes never hit a tag, so most of what they lead to comes from changing real messages:
//! each three bytes of a script are one change.

use crate::chunk::Chunks;
use outboard_secure::{
    ClusterKey, Credentials, Fabric, Handshake, Identity, Mode, Revoked, SecureSession,
    ServiceName, SessionError,
};
use std::sync::{Arc, OnceLock};

/// What the peer sends in a session: pieces of these lengths, repeated.
const PIECES: [usize; 4] = [1, 40, 300, 17_000];

/// Each repetition may double a message: one that is longer than this is not repeated again.
const LONGEST_REPEATED: usize = 128 * 1024;

/// One change to what crosses.
#[derive(Clone, Copy, Debug)]
struct Edit {
    message: usize,
    kind: Kind,
    at: usize,
    value: u8,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Flip,
    Insert,
    Cut,
    Repeat,
}

/// The edits that a script stands for; a rest of fewer than three bytes is none.
fn edits(script: &[u8]) -> Vec<Edit> {
    let triples = script.chunks_exact(3).map(|triple| {
        let kind = [Kind::Flip, Kind::Insert, Kind::Cut, Kind::Repeat][usize::from(triple[0] >> 6)];
        let message = usize::from(triple[0] & 7);
        Edit { message, kind, at: usize::from(triple[1]), value: triple[2] }
    });
    triples.collect()
}

impl Edit {
    fn apply(self, bytes: &mut Vec<u8>) {
        let at = self.at.min(bytes.len());
        match self.kind {
            Kind::Flip => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= self.value;
                }
            }
            Kind::Insert => bytes.insert(at, self.value),
            Kind::Cut => bytes.truncate(at),
            Kind::Repeat if bytes.len() < LONGEST_REPEATED => bytes.extend_from_within(at..),
            Kind::Repeat => {}
        }
    }
}

/// Applies what a script says of one message.
fn change(edits: &[Edit], message: usize, bytes: &mut Vec<u8>) {
    let meant = edits.iter().filter(|edit| edit.message == message);
    meant.for_each(|edit| edit.apply(bytes));
}

fn service() -> ServiceName {
    "fuzz".parse().expect("a name")
}

fn credentials() -> &'static [Arc<Credentials>; 2] {
    static ENDS: OnceLock<[Arc<Credentials>; 2]> = OnceLock::new();
    ENDS.get_or_init(|| {
        let cluster = ClusterKey::generate().expect("random numbers");
        [Fabric::Untrusted, Fabric::Trusted].map(|fabric| {
            let keys = [cluster.service(&service())].into_iter().collect();
            let identity = Identity::generate().expect("random numbers");
            Arc::new(Credentials { identity, keys, fabric, revoked: Revoked::default() })
        })
    })
}

fn ends() -> [Handshake; 2] {
    let [client, server] = credentials().clone();
    let client = Handshake::initiator(client, &service()).expect("it has the key");
    [client, Handshake::responder(server)]
}

/// Both roles of a handshake: with 0 in the first byte, each end receives the rest of the bytes;
/// otherwise these are edits to what crosses between them. The second byte says into which pieces
/// TCP cuts.
///
/// # Panics
/// When an end breaks a promise.
pub fn handshake(bytes: &[u8]) {
    let [how, cut, script @ ..] = bytes else { return };
    if *how == 0 {
        for mut end in ends() {
            while end.poll_transmit().is_some() {}
            assert!(!handle(&mut end, script, *cut), "keys cannot be guessed");
        }
        return;
    }
    let (mut ends, edits) = (ends(), edits(script));
    let mut changed = false;
    for turn in 0..4 {
        let Some(mut bytes) = ends[turn % 2].poll_transmit() else { break };
        let genuine = bytes.clone();
        change(&edits, turn, &mut bytes);
        changed |= bytes != genuine;
        handle(&mut ends[1 - turn % 2], &bytes, *cut);
    }
    let done = ends.map(|end| end.into_session().is_some());
    // A confirm may be lost: the responder cannot know.
    assert!(!changed || !done[0] || behind_its_end(&edits), "a change went unnoticed");
    assert!(changed || done == [true, true], "it fails by itself");
}

/// Whether edits only add bytes, which may then belong to what follows the handshake.
fn behind_its_end(edits: &[Edit]) -> bool {
    edits.iter().any(|edit| matches!(edit.kind, Kind::Repeat | Kind::Insert))
}

/// Gives an end bytes in pieces, as far as it takes them; returns whether it is done.
fn handle(end: &mut Handshake, bytes: &[u8], cut: u8) -> bool {
    let mut chunks = Chunks::Every(usize::from(cut));
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(chunks.next_len().min(rest.len()));
        match end.handle(piece) {
            Ok(taken) if taken < piece.len() => break,
            Ok(_) => rest = behind,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert_eq!(end.poll_transmit(), None, "an end that fails says nothing");
                assert!(end.handle(bytes).is_err(), "and stays failed");
                return false;
            }
        }
    }
    end.is_done()
}

fn sessions() -> [SecureSession; 2] {
    let mut ends = ends();
    for turn in 0..4 {
        let bytes = ends[turn % 2].poll_transmit().expect("its turn");
        ends[1 - turn % 2].handle(&bytes).expect("no attacker is in between");
    }
    ends.map(|end| end.into_session().expect("it is done"))
}

/// A session: with 0 in the first byte, it receives the rest of the bytes; otherwise these are
/// edits to seven pieces of its peer's records and to their end. The second byte says into which
/// pieces TCP cuts.
///
/// # Panics
/// When the session breaks a promise.
pub fn records(bytes: &[u8]) {
    let [how, cut, script @ ..] = bytes else { return };
    let [mut client, mut server] = sessions();
    assert_eq!(server.mode(), Mode::Encrypted);
    let mut plain = Vec::new();
    if *how == 0 {
        let result = open(&mut server, script, *cut, &mut plain);
        assert!(plain.is_empty() && result.is_err(), "keys cannot be guessed");
        return;
    }
    let edits = edits(script);
    let (mut sent, mut genuine, mut wire) = (Vec::new(), Vec::new(), Vec::new());
    for message in 0..8 {
        let mut bytes = next_records(&mut client, message, *how, &mut sent);
        genuine.extend_from_slice(&bytes);
        change(&edits, message, &mut bytes);
        wire.extend_from_slice(&bytes);
    }
    let result = open(&mut server, &wire, *cut, &mut plain);
    assert!(sent.starts_with(&plain), "bytes that the peer did not send");
    assert_eq!(result.is_err(), wire != genuine, "{result:?}");
    assert!(result.is_err() || plain == sent);
}

fn next_records(
    client: &mut SecureSession,
    message: usize,
    fill: u8,
    sent: &mut Vec<u8>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    if message == 7 {
        client.finish(&mut bytes).expect("it is alive");
        return bytes;
    }
    let piece = vec![fill; PIECES[message % PIECES.len()]];
    client.seal(&piece, &mut bytes).expect("it is alive");
    sent.extend_from_slice(&piece);
    bytes
}

/// Everything that comes, up to the end of the connection.
fn open(
    session: &mut SecureSession,
    bytes: &[u8],
    cut: u8,
    plain: &mut Vec<u8>,
) -> Result<(), SessionError> {
    let size = if cut == 0 { bytes.len().max(1) } else { usize::from(cut) };
    bytes.chunks(size).try_for_each(|piece| session.open(piece, plain))?;
    session.handle_end()
}
