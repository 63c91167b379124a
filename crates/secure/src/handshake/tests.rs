//! Handshakes as traces, and every way in which they fail.

use super::*;
use crate::credentials::{Fabric, Keyring};
use crate::identity::Identity;
use crate::key::{ClusterKey, ServiceKey};
use crate::name::ServiceNameError;
use crate::revoked::Revoked;
use std::fmt::Write;

fn name(text: &str) -> ServiceName {
    text.parse().expect("a name")
}

fn end(keys: impl IntoIterator<Item = ServiceKey>, fabric: Fabric) -> Credentials {
    let keys: Keyring = keys.into_iter().collect();
    let identity = Identity::generate().expect("random numbers");
    Credentials { identity, keys, fabric, revoked: Revoked::default() }
}

/// Two ends that hold the same key.
fn ends(one: Fabric, other: Fabric) -> [Credentials; 2] {
    let cluster = ClusterKey::generate().expect("random numbers");
    [one, other].map(|fabric| end([cluster.service(&name("compile"))], fabric))
}

/// What crosses, as text, and how it ends at either end.
struct Meeting {
    trace: String,
    ends: [Result<SecureSession, HandshakeError>; 2],
}

/// What the network makes of each message.
type Network<'a> = &'a mut dyn FnMut(Message, &mut Vec<u8>);

fn faithful(_: Message, _: &mut Vec<u8>) {}

fn meet(ends: [Credentials; 2]) -> Meeting {
    meet_over(ends, &mut faithful)
}

fn meet_over(ends: [Credentials; 2], network: Network<'_>) -> Meeting {
    let [client, server] = ends.map(Arc::new);
    let client = Handshake::initiator(client, &name("compile")).expect("it has the key");
    talk([client, Handshake::responder(server)], network)
}

/// Messages cross in turn; an end that fails closes, and the other sees the end.
fn talk(mut ends: [Handshake; 2], network: Network<'_>) -> Meeting {
    let mut trace = String::new();
    let mut failures = [None, None];
    let messages = [Message::Hello, Message::Answer, Message::Proof, Message::Confirm];
    for (turn, message) in messages.into_iter().enumerate() {
        let (from, to) = (turn % 2, 1 - turn % 2);
        let arrow = ["->", "<-"][from];
        let Some(mut bytes) = ends[from].poll_transmit() else { break };
        network(message, &mut bytes);
        writeln!(trace, "{arrow} {message:8} {}", bytes.len()).expect("memory");
        match ends[to].handle(&bytes) {
            Ok(taken) => assert_eq!(taken, bytes.len()),
            Err(error) => {
                assert_eq!(ends[to].poll_transmit(), None, "a failed end sends nothing");
                failures[to] = Some(error);
                failures[from] = Some(ends[from].handle_end());
                writeln!(trace, "{} closes", ["initiator", "responder"][to]).expect("memory");
                break;
            }
        }
    }
    let mut failures = failures.into_iter();
    let ends = ends.map(|end| match failures.next().flatten() {
        Some(error) => Err(error),
        None => end.into_session().ok_or(HandshakeError::Over),
    });
    Meeting { trace, ends }
}

fn refused() -> HandshakeError {
    HandshakeError::Refused { service: name("compile") }
}

impl Meeting {
    #[track_caller]
    fn failures(self) -> [HandshakeError; 2] {
        self.ends.map(|end| end.expect_err("it has failed"))
    }

    #[track_caller]
    fn sessions(self) -> [SecureSession; 2] {
        self.ends.map(|end| end.expect("it has succeeded"))
    }
}

#[test]
fn four_messages_make_a_session() {
    let ends = ends(Fabric::Untrusted, Fabric::Untrusted);
    let nodes = [ends[0].identity.node(), ends[1].identity.node()];
    let meeting = meet(ends);
    assert_eq!(
        meeting.trace,
        "-> hello    65\n\
         <- answer   105\n\
         -> proof    72\n\
         <- confirm  24\n"
    );
    let [client, server] = meeting.sessions();
    assert_eq!([client.peer(), server.peer()], [nodes[1], nodes[0]]);
    assert_eq!([client.service(), server.service()], [&name("compile"), &name("compile")]);
}

#[test]
fn hello_says_in_clear_what_is_asked_for_and_nothing_else_does() {
    let [client, server] = ends(Fabric::Trusted, Fabric::Untrusted).map(Arc::new);
    let public = |end: &Credentials| crate::noise::public_key(end.identity.private());
    let publics = [public(&client), public(&server)];
    let mut client = Handshake::initiator(client, &name("compile")).expect("it has the key");
    let mut server = Handshake::responder(server);
    let hello = client.poll_transmit().expect("a hello");
    assert_eq!(hello[..17], *b"OUTB\x01\x01\x00\x39\x01\x07compile");
    server.handle(&hello).expect("it is right");
    let answer = server.poll_transmit().expect("an answer");
    assert_eq!(answer[..8], *b"OUTB\x01\x02\x00\x61");
    client.handle(&answer).expect("it is right");
    let proof = client.poll_transmit().expect("a proof");
    assert_eq!(proof[..8], *b"OUTB\x01\x03\x00\x40");
    server.handle(&proof).expect("it is right");
    let confirm = server.poll_transmit().expect("a confirm");
    assert_eq!(confirm[..8], *b"OUTB\x01\x04\x00\x10");
    for bytes in [&hello, &answer, &proof, &confirm] {
        let shows = |key: &[u8; 32]| bytes.windows(32).any(|window| window == key);
        assert!(!publics.iter().any(shows), "a static key crosses in clear");
    }
}

#[test]
fn bytes_pass_in_clear_only_if_both_operators_say_so() {
    for (one, other, mode) in [
        (Fabric::Untrusted, Fabric::Untrusted, Mode::Encrypted),
        (Fabric::Untrusted, Fabric::Trusted, Mode::Encrypted),
        (Fabric::Trusted, Fabric::Untrusted, Mode::Encrypted),
        (Fabric::Trusted, Fabric::Trusted, Mode::Trusted),
    ] {
        let sessions = meet(ends(one, other)).sessions();
        assert_eq!(sessions.map(|session| session.mode()), [mode, mode], "{one:?} {other:?}");
    }
}

#[test]
fn messages_may_come_in_any_pieces_and_what_follows_is_left() {
    for size in 1..=24 {
        let [client, server] = ends(Fabric::Untrusted, Fabric::Untrusted).map(Arc::new);
        let client = Handshake::initiator(client, &name("compile")).expect("it has the key");
        let mut ends = [client, Handshake::responder(server)];
        for turn in 0..4 {
            let bytes = ends[turn % 2].poll_transmit().expect("its turn");
            let to = &mut ends[1 - turn % 2];
            assert!(!to.is_done());
            for piece in bytes.chunks(size) {
                assert_eq!(to.handle(piece), Ok(piece.len()));
            }
        }
        let [client, server] = &mut ends;
        assert!(client.is_done() && server.is_done());
        assert_eq!(client.handle(b"record"), Ok(0), "that is for the session");
    }
    let [client, server] = ends(Fabric::Untrusted, Fabric::Untrusted).map(Arc::new);
    let mut client = Handshake::initiator(client, &name("compile")).expect("it has the key");
    let mut server = Handshake::responder(server);
    let hello = client.poll_transmit().expect("a hello");
    server.handle(&hello).expect("it is right");
    client.handle(&server.poll_transmit().expect("an answer")).expect("it is right");
    let proof = client.poll_transmit().expect("a proof");
    let with_record = [&proof[..], b"record"].concat();
    assert_eq!(server.handle(&with_record), Ok(proof.len()));
    assert!(!server.is_done(), "the confirm is not taken yet");
    assert!(server.into_session().is_none());
}

/// The peer sees the same in each case: an answer, and the end upon its proof.
#[test]
fn a_refused_peer_cannot_tell_why() {
    let cluster = ClusterKey::generate().expect("random numbers");
    let other = ClusterKey::generate().expect("random numbers");
    let untrusted = Fabric::Untrusted;
    let client = || end([cluster.service(&name("compile"))], untrusted);
    let server = |cluster: &ClusterKey, service| end([cluster.service(&name(service))], untrusted);
    let (service, revoked_client) = (name("compile"), client());
    let peer = revoked_client.identity.node();
    let mut revoking = server(&cluster, "compile");
    revoking.revoked.add(peer);

    for (client, server, error) in [
        (
            client(),
            server(&other, "compile"),
            HandshakeError::WrongKey { service: service.clone() },
        ),
        (client(), server(&cluster, "cast"), HandshakeError::UnknownService { service }),
        (revoked_client, revoking, HandshakeError::Revoked { peer }),
    ] {
        let meeting = meet([client, server]);
        assert_eq!(
            meeting.trace,
            "-> hello    65\n\
             <- answer   105\n\
             -> proof    72\n\
             responder closes\n"
        );
        assert_eq!(meeting.failures(), [refused(), error]);
    }
}

#[test]
fn another_services_key_opens_nothing() {
    let cluster = ClusterKey::generate().expect("random numbers");
    // An end that has only the key of compile calls it the key of fs.
    let compile = cluster.service(&name("compile")).to_line();
    let directory = std::env::temp_dir().join(format!("outboard-forged-{}", std::process::id()));
    let line = compile.replace("compile", "fs");
    crate::keyfile::create(&directory, &line).expect("a file");
    let forged = ServiceKey::load(&directory);
    std::fs::remove_file(&directory).expect("it is ours");

    let client = Arc::new(end([forged.expect("it looks right")], Fabric::Untrusted));
    let server = end(["compile", "fs"].map(|it| cluster.service(&name(it))), Fabric::Untrusted);
    let client = Handshake::initiator(client, &name("fs")).expect("it has a key");
    let meeting = talk([client, Handshake::responder(Arc::new(server))], &mut faithful);
    assert_eq!(meeting.failures()[1], HandshakeError::WrongKey { service: name("fs") });
}

#[test]
fn an_initiator_without_the_key_does_not_start() {
    let client = Arc::new(end([], Fabric::Untrusted));
    let error = Handshake::initiator(client, &name("compile")).expect_err("no key");
    assert_eq!(error, HandshakeError::NoKey { service: name("compile") });
}

#[test]
fn a_revoked_responder_does_not_learn_who_asks() {
    let [mut client, server] = ends(Fabric::Untrusted, Fabric::Untrusted);
    let peer = server.identity.node();
    client.revoked.add(peer);
    let meeting = meet([client, server]);
    assert_eq!(meeting.trace, "-> hello    65\n<- answer   105\ninitiator closes\n");
    let ended = HandshakeError::Ended { expected: Message::Proof };
    assert_eq!(meeting.failures(), [HandshakeError::Revoked { peer }, ended]);
}

/// A server without the key that answers as if it had one: it cannot confirm.
#[test]
fn a_responder_without_the_key_is_found_out() {
    let cluster = ClusterKey::generate().expect("random numbers");
    let client = end([cluster.service(&name("compile"))], Fabric::Trusted);
    let server = end([], Fabric::Trusted);
    let client = Handshake::initiator(Arc::new(client), &name("compile")).expect("it has the key");
    let mut ends = [client, Handshake::responder(Arc::new(server))];
    let hello = ends[0].poll_transmit().expect("a hello");
    ends[1].handle(&hello).expect("it goes on with a decoy");
    let answer = ends[1].poll_transmit().expect("an answer");
    ends[0].handle(&answer).expect("the fault does not show yet");
    ends[0].poll_transmit().expect("a proof");
    let mut confirm = message::fixed(Message::Confirm);
    confirm.extend_from_slice(&[0; 16]);
    let error = ends[0].handle(&confirm).expect_err("that proves nothing");
    assert_eq!(error, HandshakeError::WrongKey { service: name("compile") });
}

/// A bit of every byte of every message, flipped once: its receiver gets no session.
#[test]
fn one_bit_changed_on_the_way_spoils_the_handshake() {
    let lens = [
        (Message::Hello, 65),
        (Message::Answer, 105),
        (Message::Proof, 72),
        (Message::Confirm, 24),
    ];
    for (changed, len) in lens {
        for at in 0..len {
            let bit = 1 << (at % 8);
            let flip = &mut |message, bytes: &mut Vec<u8>| {
                if message == changed {
                    bytes[at] ^= bit;
                }
            };
            let meeting = meet_over(ends(Fabric::Trusted, Fabric::Trusted), flip);
            let receiver = usize::from(matches!(changed, Message::Hello | Message::Proof));
            let [client, server] = &meeting.ends;
            assert!(client.is_err(), "{changed} byte {at}: {client:?}");
            assert!(server.is_err() || changed == Message::Confirm, "{changed} byte {at}");
            assert!(meeting.ends[receiver].is_err(), "{changed} byte {at}");
        }
    }
}

/// An attacker in between makes each end believe that the other's operator trusts the fabric, or
/// not, and repairs the hello's check value. The answer shows it.
#[test]
fn the_mode_cannot_be_changed_on_the_way() {
    for (one, fabric) in [(Fabric::Untrusted, 1), (Fabric::Trusted, 0)] {
        let change = &mut |message, bytes: &mut Vec<u8>| {
            if message == Message::Hello {
                let before = bytes.clone();
                repair(bytes);
                assert_eq!(*bytes, before, "that is how a hello is checked");
                assert_ne!(bytes[8], fabric);
                bytes[8] = fabric;
                repair(bytes);
            }
        };
        let meeting = meet_over(ends(one, Fabric::Trusted), change);
        assert_eq!(meeting.trace, "-> hello    65\n<- answer   105\ninitiator closes\n");
        let altered = HandshakeError::Altered { message: Message::Answer };
        assert_eq!(meeting.failures()[0], altered);
    }
}

/// Computes a hello's check value as anybody can: Noise §5.2 as far as its first `e`.
fn repair(hello: &mut [u8]) {
    use ring::{aead, digest, hmac};
    let hash = |parts: [&[u8]; 2]| digest::digest(&digest::SHA256, &parts.concat());
    let mac = |key: &[u8], data: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data);
    let (said, noise) = hello.split_at(hello.len() - 48);
    let ephemeral = &noise[..32];
    let name = b"Noise_XXpsk3_25519_AESGCM_SHA256";
    let h = hash([hash([name, said]).as_ref(), ephemeral]);
    let temporary = mac(name, ephemeral);
    let chaining = mac(temporary.as_ref(), &[1]);
    let key = mac(temporary.as_ref(), &[chaining.as_ref(), &[2]].concat());
    let key = aead::UnboundKey::new(&aead::AES_256_GCM, key.as_ref()).expect("32 bytes");
    let nonce = aead::Nonce::assume_unique_for_key([0; 12]);
    let sealed = aead::LessSafeKey::new(key).seal_in_place_separate_tag(
        nonce,
        aead::Aad::from(h.as_ref()),
        &mut [],
    );
    let at = hello.len() - 16;
    hello[at..].copy_from_slice(sealed.expect("a tag").as_ref());
}

#[test]
fn an_answer_cannot_ask_for_more_than_was_offered() {
    assert_eq!(message::parse_mode(1, Fabric::Untrusted), Err(HandshakeError::InClear));
    assert_eq!(message::parse_mode(1, Fabric::Trusted), Ok(Mode::Trusted));
    assert_eq!(message::parse_mode(0, Fabric::Trusted), Ok(Mode::Encrypted));
    assert_eq!(message::parse_mode(2, Fabric::Trusted), Err(HandshakeError::Mode { found: 2 }));
}

#[test]
fn a_message_cannot_be_played_again_to_another() {
    let cluster = ClusterKey::generate().expect("random numbers");
    let ends = || [(); 2].map(|()| end([cluster.service(&name("compile"))], Fabric::Untrusted));
    let mut first = Vec::new();
    meet_over(ends(), &mut |_, bytes| first.push(bytes.clone())).sessions();
    let mut turn = 0;
    let meeting = meet_over(ends(), &mut |_, bytes| {
        turn += 1;
        if turn == 1 || turn == 3 {
            bytes.clone_from(&first[turn - 1]);
        }
    });
    assert!(meeting.failures()[1] != HandshakeError::Over, "the responder finds out");
}

/// What a responder says to a hello that is wrong, as soon as the wrong byte is there.
#[test]
fn wrong_hellos_are_found_at_the_first_wrong_byte() {
    let hello = |name: &[u8], len: u16| {
        let mut bytes = b"OUTB\x01\x01".to_vec();
        bytes.extend_from_slice(&len.to_be_bytes());
        bytes.extend_from_slice(&[0, u8::try_from(name.len()).expect("short")]);
        bytes.extend_from_slice(name);
        bytes.resize(8 + usize::from(len).max(2 + name.len()), 9);
        bytes
    };
    let length = |found| HandshakeError::Length { message: Message::Hello, found };
    let not_outboard = |found: &[u8; 4]| HandshakeError::NotOutboard { found: *found };
    let out_of_order = |found| HandshakeError::OutOfOrder { expected: Message::Hello, found };
    let mut unknown_fabric = hello(b"fs", 52);
    unknown_fabric[8] = 7;
    for (bytes, error) in [
        (b"G".to_vec(), not_outboard(b"G\0\0\0")),
        (b"OUTC".to_vec(), not_outboard(b"OUTC")),
        (b"MPA ID Req Frame".to_vec(), not_outboard(b"MPA ")),
        (b"OUTB\x02".to_vec(), HandshakeError::Version { expected: 1, found: 2 }),
        (b"OUTB\x01\x02".to_vec(), out_of_order(2)),
        (b"OUTB\x01\x00".to_vec(), out_of_order(0)),
        (b"OUTB\x01\x01\x00\x32".to_vec(), length(50)),
        (b"OUTB\x01\x01\x00\x53".to_vec(), length(83)),
        (b"OUTB\x01\x01\xff\xff".to_vec(), length(65535)),
        (hello(b"compile", 56), length(56)),
        (hello(b"compile", 58), length(58)),
        (hello(b"", 52), length(52)),
        (unknown_fabric, HandshakeError::Mode { found: 7 }),
        (hello(b"Fs", 52), ServiceNameError::Character { position: 1 }.into()),
    ] {
        let server = end([], Fabric::Untrusted);
        let mut server = Handshake::responder(Arc::new(server));
        let (last, before) = bytes.split_last().expect("some bytes");
        if !matches!(error, HandshakeError::NotOutboard { found } if found != *b"OUTC") {
            assert_eq!(server.handle(before), Ok(before.len()), "{error}");
            assert_eq!(server.handle(&[*last]), Err(error));
        } else {
            assert_eq!(server.handle(&bytes), Err(error));
        }
        assert_eq!(server.handle(&bytes), Err(HandshakeError::Over));
        assert_eq!((server.poll_transmit(), server.is_done()), (None, false));
        assert!(server.received.capacity() == 0, "nothing is kept");
    }
}

#[test]
fn an_end_of_bytes_says_what_was_missing() {
    let [client, server] = ends(Fabric::Untrusted, Fabric::Untrusted).map(Arc::new);
    let mut client = Handshake::initiator(client, &name("compile")).expect("it has the key");
    let mut server = Handshake::responder(server);
    server.handle(b"OUTB\x01").expect("so far");
    assert_eq!(server.handle_end(), HandshakeError::Ended { expected: Message::Hello });
    assert_eq!(server.handle_end(), HandshakeError::Over);
    assert_eq!(client.handle_end(), HandshakeError::Ended { expected: Message::Answer });
    assert_eq!(client.poll_transmit(), None);
    assert_eq!(client.handle(&[]), Err(HandshakeError::Over));
}
