//! Records as a trace, in any pieces, and every way in which they are spoilt.

use super::*;
use crate::credentials::{Credentials, Fabric};
use crate::handshake::Handshake;
use crate::identity::Identity;
use crate::key::ClusterKey;
use crate::revoked::Revoked;
use proptest::prelude::*;
use std::sync::Arc;

fn pair(fabric: Fabric) -> (SecureSession, SecureSession) {
    let service = "compile".parse().expect("a name");
    let cluster = ClusterKey::generate().expect("random numbers");
    let end = || {
        let keys = [cluster.service(&service)].into_iter().collect();
        let identity = Identity::generate().expect("random numbers");
        Arc::new(Credentials { identity, keys, fabric, revoked: Revoked::default() })
    };
    let mut client = Handshake::initiator(end(), &service).expect("it has the key");
    let mut server = Handshake::responder(end());
    for _ in 0..2 {
        server.handle(&client.poll_transmit().expect("its turn")).expect("it is right");
        client.handle(&server.poll_transmit().expect("its turn")).expect("it is right");
    }
    let [client, server] = [client, server].map(|end| end.into_session().expect("it is done"));
    (client, server)
}

fn sealed(session: &mut SecureSession, plain: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    session.seal(plain, &mut wire).expect("it is alive");
    wire
}

fn finished(session: &mut SecureSession) -> Vec<u8> {
    let mut wire = Vec::new();
    session.finish(&mut wire).expect("it is alive");
    wire
}

fn opened(session: &mut SecureSession, wire: &[u8]) -> Result<Vec<u8>, SessionError> {
    let mut plain = Vec::new();
    session.open(wire, &mut plain).map(|()| plain)
}

/// Lengths of the records, as they cross.
fn lengths(mut wire: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let Some(len) = length(wire) {
        lengths.push(usize::from(len));
        wire = &wire[LENGTH_LEN + usize::from(len)..];
    }
    assert!(wire.is_empty());
    lengths
}

/// An engine's thread and its user's take turns with them.
#[test]
fn handshakes_and_sessions_may_move_between_threads() {
    fn moves<T: Send + Sync>() {}
    moves::<Handshake>();
    moves::<SecureSession>();
    moves::<Credentials>();
}

#[test]
fn bytes_become_records_and_bytes() {
    let (mut client, mut server) = pair(Fabric::Untrusted);
    for (len, records) in [
        (0, vec![]),
        (1, vec![17]),
        (RECORD_PLAIN_MAX, vec![16400]),
        (RECORD_PLAIN_MAX + 1, vec![16400, 17]),
        (3 * RECORD_PLAIN_MAX, vec![16400; 3]),
    ] {
        let plain: Vec<u8> = (0..=250).cycle().take(len).collect();
        let wire = sealed(&mut client, &plain);
        assert_eq!(lengths(&wire), records);
        assert_eq!(client.sealed_len(len), wire.len());
        assert_eq!(opened(&mut server, &wire), Ok(plain));
    }
    let back = sealed(&mut server, b"done");
    assert_eq!(opened(&mut client, &back).as_deref(), Ok(&b"done"[..]));
}

#[test]
fn the_same_bytes_never_look_the_same() {
    let (mut client, mut server) = pair(Fabric::Untrusted);
    let [one, two] = [(); 2].map(|()| sealed(&mut client, b"the same"));
    let back = sealed(&mut server, b"the same");
    assert!(one != two && one != back);
    assert!(!one.windows(4).any(|window| window == b"same"));
}

#[test]
fn where_both_trust_the_fabric_bytes_stay_as_they_are() {
    let (mut client, mut server) = pair(Fabric::Trusted);
    let wire = sealed(&mut client, b"bytes");
    assert_eq!(wire, b"bytes");
    assert_eq!(client.sealed_len(6), 6);
    assert_eq!(opened(&mut server, &wire).as_deref(), Ok(&b"bytes"[..]));
    assert_eq!(finished(&mut client), b"");
    assert_eq!(server.handle_end(), Ok(()));
}

#[test]
fn an_end_is_told_from_a_cut() {
    let (mut client, mut server) = pair(Fabric::Untrusted);
    let wire = [sealed(&mut client, b"one"), sealed(&mut client, b"two"), finished(&mut client)];
    assert_eq!(lengths(&wire.concat()), [19, 19, 16]);
    let mut nothing = Vec::new();
    assert_eq!(client.seal(b"more", &mut nothing), Err(SessionError::Finished));
    assert_eq!(client.finish(&mut nothing), Err(SessionError::Finished));
    assert_eq!(opened(&mut server, &wire.concat()).as_deref(), Ok(&b"onetwo"[..]));
    assert_eq!(server.handle_end(), Ok(()));
    // The other direction goes on.
    let back = sealed(&mut server, b"well");
    assert_eq!(opened(&mut client, &back).as_deref(), Ok(&b"well"[..]));
    assert_eq!(client.handle_end(), Err(SessionError::Truncated { record: 1 }));
    assert_eq!(client.handle_end(), Err(SessionError::Over));
}

#[test]
fn a_cut_anywhere_is_found() {
    for cut in 0..21 + 18 {
        let (mut client, mut server) = pair(Fabric::Untrusted);
        let wire = [sealed(&mut client, b"one"), finished(&mut client)].concat();
        opened(&mut server, &wire[..cut]).expect("nothing is wrong yet");
        let record = u64::from(cut >= 21);
        assert_eq!(server.handle_end(), Err(SessionError::Truncated { record }), "at {cut}");
    }
}

#[test]
fn nothing_follows_an_end() {
    for more in 1..4 {
        let (mut client, mut server) = pair(Fabric::Untrusted);
        let wire = [finished(&mut client), vec![0; more]].concat();
        assert_eq!(opened(&mut server, &wire), Err(SessionError::BehindEnd));
    }
}

/// What the network does to three records, and what the receiver finds.
#[test]
fn records_that_are_spoilt_end_the_session() {
    type Spoil = fn(&mut Vec<Vec<u8>>);
    let cases: [(&str, Spoil, SessionError); 8] = [
        ("swapped", |wire| wire.swap(0, 1), SessionError::Altered { record: 1 }),
        ("repeated", |wire| wire[1] = wire[0].clone(), SessionError::Altered { record: 2 }),
        ("left out", |wire| drop(wire.remove(1)), SessionError::Altered { record: 2 }),
        ("flipped", |wire| wire[2][9] ^= 4, SessionError::Altered { record: 3 }),
        ("shorter", |wire| wire[0][1] -= 1, SessionError::Altered { record: 1 }),
        ("longer", |wire| wire[1][1] += 1, SessionError::Altered { record: 2 }),
        ("too short", |wire| wire[1][1] = 15, SessionError::Length { record: 2, found: 15 }),
        (
            "too long",
            |wire| wire[1][..2].fill(0xff),
            SessionError::Length { record: 2, found: 65535 },
        ),
    ];
    for (what, spoil, error) in cases {
        let (mut client, mut server) = pair(Fabric::Untrusted);
        let mut wire: Vec<_> =
            [b"one", b"two", b"six"].map(|plain| sealed(&mut client, plain)).into();
        spoil(&mut wire);
        let mut plain = Vec::new();
        assert_eq!(server.open(&wire.concat(), &mut plain), Err(error), "{what}");
        assert!(b"onetwosix".starts_with(&plain), "{what}: {plain:?} is not the peer's");
        // Both directions are over, also for records that are right.
        assert_eq!(server.open(&[], &mut plain), Err(SessionError::Over));
        assert_eq!(server.seal(b"still", &mut plain), Err(SessionError::Over));
        assert_eq!(server.finish(&mut plain), Err(SessionError::Over));
        assert_eq!(server.handle_end(), Err(SessionError::Over));
    }
}

#[test]
fn what_an_end_sends_does_not_come_back_to_it() {
    let (mut client, _) = pair(Fabric::Untrusted);
    let wire = sealed(&mut client, b"one");
    assert_eq!(opened(&mut client, &wire), Err(SessionError::Altered { record: 1 }));
}

#[test]
fn a_long_session_changes_its_keys_and_goes_on() {
    let (mut client, mut server) = pair(Fabric::Untrusted);
    let (mut wire, mut plain) = (Vec::new(), Vec::new());
    for record in 0..2 * REKEY_RECORDS + 2 {
        let bytes = record.to_be_bytes();
        wire.clear();
        plain.clear();
        client.seal(&bytes, &mut wire).expect("it is alive");
        server.open(&wire, &mut plain).expect("no attacker is in between");
        assert_eq!(plain, bytes);
    }
}

/// An end that does not change its keys is not understood.
#[test]
fn keys_change_after_65536_records() {
    let (mut client, mut server) = pair(Fabric::Untrusted);
    // The responder's confirm was its first message.
    let first = REKEY_RECORDS - 1;
    for _ in 0..first {
        let wire = sealed(&mut server, b"x");
        opened(&mut client, &wire).expect("no attacker is in between");
    }
    let RecordState::Encrypted(records) = &mut server.state else { panic!("it is encrypted") };
    assert_eq!(records.ciphers.sealing.count(), REKEY_RECORDS);
    records.ciphers.sealing.rekey();
    let wire = sealed(&mut server, b"x");
    let error = SessionError::Altered { record: REKEY_RECORDS };
    assert_eq!(opened(&mut client, &wire), Err(error));
}

/// Whatever length the peer announces, a session holds one record at most, and none at rest.
#[test]
fn a_session_keeps_little() {
    let (mut client, mut server) = pair(Fabric::Untrusted);
    let wire = sealed(&mut client, &[7; RECORD_PLAIN_MAX]);
    let held = |session: &SecureSession| match &session.state {
        RecordState::Encrypted(records) => records.partial.capacity(),
        _ => 0,
    };
    let mut plain = Vec::new();
    for byte in &wire[..wire.len() - 1] {
        server.open(&[*byte], &mut plain).expect("no attacker is in between");
        assert!(held(&server) <= 2 * (LENGTH_LEN + SEALED_MAX), "{}", held(&server));
    }
    server.open(&wire[wire.len() - 1..], &mut plain).expect("no attacker is in between");
    assert_eq!((plain.len(), held(&server)), (RECORD_PLAIN_MAX, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any pieces to seal, any pieces to open: the same bytes.
    #[test]
    fn chunking_does_not_matter(
        pieces in prop::collection::vec(0usize..40_000, 0..6),
        cuts in prop::collection::vec(1usize..20_000, 1..40),
    ) {
        let (mut client, mut server) = pair(Fabric::Untrusted);
        let (mut sent, mut wire, mut plain) = (Vec::new(), Vec::new(), Vec::new());
        for (number, len) in pieces.into_iter().enumerate() {
            let piece: Vec<u8> = (0..len).map(|at| (at + number).to_le_bytes()[0]).collect();
            client.seal(&piece, &mut wire).expect("it is alive");
            sent.extend_from_slice(&piece);
        }
        client.finish(&mut wire).expect("it is alive");
        let mut rest = &wire[..];
        for cut in cuts.iter().cycle() {
            let (piece, behind) = rest.split_at((*cut).min(rest.len()));
            server.open(piece, &mut plain).expect("no attacker is in between");
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert!(plain == sent);
        prop_assert_eq!(server.handle_end(), Ok(()));
    }

    /// One byte changed anywhere is found, and nothing that the peer did not send comes out.
    #[test]
    fn a_changed_byte_is_found(at in 0usize..4 * 28 + 18, change in 1u8.., cut in 1usize..60) {
        let (mut client, mut server) = pair(Fabric::Untrusted);
        let sent = b"ten bytes!".repeat(4);
        let mut wire = Vec::new();
        sent.chunks(10).for_each(|piece| client.seal(piece, &mut wire).expect("it is alive"));
        client.finish(&mut wire).expect("it is alive");
        wire[at] ^= change;
        let mut plain = Vec::new();
        let found = wire.chunks(cut).try_for_each(|piece| server.open(piece, &mut plain));
        prop_assert!(found.and_then(|()| server.handle_end()).is_err());
        prop_assert!(sent.starts_with(&plain));
    }
}

/// What another process would make of it.
fn handed_over(session: SecureSession) -> SecureSession {
    let bytes = session.into_bytes().expect("it is alive");
    SecureSession::from_bytes(&bytes).expect("they are a session's")
}

#[test]
fn a_session_goes_on_where_it_was_handed_over() {
    for fabric in [Fabric::Untrusted, Fabric::Trusted] {
        let (client, server) = pair(fabric);
        let (node, service) = (server.peer(), server.service().clone());
        let (mut client, mut server) = (handed_over(client), handed_over(server));
        assert_eq!((server.peer(), server.service()), (node, &service));
        let plain = vec![9; RECORD_PLAIN_MAX + 5];
        let mut wire = sealed(&mut client, &plain);
        wire.extend(finished(&mut client));
        // In every part of a record, and behind the end.
        let mut received = Vec::new();
        for piece in wire.chunks(4001) {
            server.open(piece, &mut received).expect("it is right");
            server = handed_over(server);
            client = handed_over(client);
        }
        assert_eq!(received, plain);
        assert_eq!(server.handle_end(), Ok(()));
        let back = sealed(&mut server, b"back");
        assert_eq!(opened(&mut client, &back).as_deref(), Ok(&b"back"[..]));
        if fabric == Fabric::Untrusted {
            assert_eq!(client.seal(b"more", &mut wire), Err(SessionError::Finished));
        }
    }
}

#[test]
fn keys_that_have_changed_are_handed_over() {
    let (mut client, mut server) = pair(Fabric::Untrusted);
    for _ in 0..REKEY_RECORDS + 1 {
        let wire = sealed(&mut client, b"x");
        opened(&mut server, &wire).expect("it is right");
    }
    let (mut client, mut server) = (handed_over(client), handed_over(server));
    let wire = sealed(&mut client, b"after");
    assert_eq!(opened(&mut server, &wire).as_deref(), Ok(&b"after"[..]));
}

#[test]
fn a_session_that_has_failed_is_not_handed_over() {
    let (mut client, _) = pair(Fabric::Untrusted);
    opened(&mut client, &[0; 100]).expect_err("no record");
    assert_eq!(client.into_bytes().err(), Some(SessionError::Over));
}

#[test]
fn only_whole_bytes_of_a_session_are_one() {
    let (_, mut server) = pair(Fabric::Untrusted);
    opened(&mut server, &[0, 100, 3]).expect("the start of a record");
    let bytes = server.into_bytes().expect("it is alive");
    for len in 0..bytes.len() {
        assert_eq!(SecureSession::from_bytes(&bytes[..len]).err(), Some(NotASession), "{len}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(SecureSession::from_bytes(&longer).err(), Some(NotASession));
}

proptest! {
    #[test]
    fn any_bytes_are_a_session_or_not(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = SecureSession::from_bytes(&bytes);
    }
}
