//! Start-up between the two sides here, and with other implementations' frames.

use super::*;

fn params() -> LocalParams {
    LocalParams { private_data: b"hello".to_vec(), ..LocalParams::default() }
}

/// Runs a whole start-up; returns what the initiator and the responder agreed on.
fn agree(initiator: LocalParams, responder: &LocalParams) -> (Negotiated, Negotiated) {
    let (mut a, request) = Initiator::new(initiator).expect("request");
    let mut b = Responder::default();
    assert!(b.handle_bytes(&request[..request.len() - 1]).expect("part").is_none());
    assert!(b.handle_bytes(&request).expect("whole").is_some());
    let (reply, theirs) = b.accept(responder).expect("reply").expect("after request");
    match a.handle_bytes(&reply).expect("reply is right") {
        Some((ReplyOutcome::Accepted(ours), used)) => {
            assert_eq!(used, reply.len());
            assert_eq!(a.state(), StartupState::Full);
            assert_eq!(b.state(), StartupState::Full);
            (ours, theirs)
        }
        other => panic!("not accepted: {other:?}"),
    }
}

#[test]
fn every_transition() {
    let mut text = String::new();
    for (from, on, to) in TRANSITIONS {
        text += &format!("{from:?} --{on:?}--> {to:?}\n");
        assert_eq!(from.after(*on), Some(*to));
    }
    assert_eq!(text, include_str!("transitions.txt"), "start-up table changed; now:\n{text}");
    assert_eq!(StartupState::Full.after(StartupEvent::Reply), None);
}

#[test]
fn depths_follow_rfc_6581() {
    let initiator = LocalParams { ird: 4, ord: 100, ..params() };
    let responder = LocalParams { ird: 16, ord: 9, ..params() };
    let (ours, theirs) = agree(initiator, &responder);
    assert_eq!((ours.ird, ours.ord), (4, 16));
    assert_eq!((theirs.ird, theirs.ord), (16, 4));
    assert_eq!(ours.rtr, Some(Rtr::Write));
    assert_eq!(theirs.peer_ord, Some(100));
}

#[test]
fn crc_is_on_when_either_side_asks() {
    for (a, b) in [(false, false), (true, false), (false, true), (true, true)] {
        let (ours, theirs) =
            agree(LocalParams { crc: a, ..params() }, &LocalParams { crc: b, ..params() });
        assert_eq!(ours.crc, a || b);
        assert_eq!(theirs.crc, a || b);
    }
}

#[test]
fn markers_are_each_receivers_wish() {
    let (ours, theirs) = agree(
        LocalParams { markers: true, ..params() },
        &LocalParams { markers: false, ..params() },
    );
    assert!(ours.rx_markers && !ours.tx_markers);
    assert!(theirs.tx_markers && !theirs.rx_markers);
}

#[test]
fn revision_1_has_no_depths_and_no_rtr() {
    let (ours, theirs) = agree(LocalParams { revision: 1, ..params() }, &params());
    assert_eq!((ours.revision, theirs.revision), (1, 1));
    assert_eq!((ours.rtr, theirs.rtr, theirs.peer_ird), (None, None, None));
    assert_eq!(theirs.private_data, b"hello");
}

#[test]
fn unspecified_depths_are_echoed() {
    let initiator = LocalParams { ird: DEPTH_UNSPECIFIED, ord: DEPTH_UNSPECIFIED, ..params() };
    let (ours, theirs) = agree(initiator, &LocalParams { ird: 7, ord: 5, ..params() });
    assert_eq!((theirs.ird, theirs.ord), (7, 5));
    assert_eq!(ours.peer_ird, Some(DEPTH_UNSPECIFIED));
    assert_eq!(ours.peer_ord, Some(DEPTH_UNSPECIFIED));
}

#[test]
fn a_rejection_carries_private_data() {
    for revision in [1, 2] {
        let (mut a, request) = Initiator::new(LocalParams { revision, ..params() }).expect("new");
        let mut b = Responder::default();
        b.handle_bytes(&request).expect("request");
        let reply = b.reject(b"no").expect("fits").expect("after request");
        let outcome = a.handle_bytes(&reply).expect("reply");
        assert!(matches!(outcome, Some((ReplyOutcome::Rejected(data), _)) if data == b"no"));
        assert_eq!((a.state(), b.state()), (StartupState::Rejected, StartupState::Rejected));
    }
}

#[test]
fn two_ends_with_the_same_role_are_an_error() {
    let (mut a, request) = Initiator::new(params()).expect("new");
    assert!(matches!(a.handle_bytes(&request), Err(StartupError::PeerSameRole { .. })));
    assert_eq!(a.state(), StartupState::Failed);
    let mut b = Responder::default();
    b.handle_bytes(&request).expect("request");
    let (reply, _) = b.accept(&params()).expect("reply").expect("some");
    let mut c = Responder::default();
    assert!(matches!(c.handle_bytes(&reply), Err(StartupError::PeerSameRole { .. })));
}

#[test]
fn speaking_before_the_reply_is_an_error() {
    let (_, mut request) = Initiator::new(params()).expect("new");
    request.push(0);
    let error = Responder::default().handle_bytes(&request);
    assert!(matches!(error, Err(StartupError::PeerEarly { count: 1 })));
}

#[test]
fn too_much_private_data_is_the_callers_fault() {
    for (revision, limit) in [(1, 512), (2, 508)] {
        let fits = LocalParams { revision, private_data: vec![7; limit], ..params() };
        assert!(Initiator::new(fits).is_ok());
        let not = LocalParams { revision, private_data: vec![7; limit + 1], ..params() };
        assert!(matches!(Initiator::new(not), Err(StartupError::CallerPrivateData { .. })));
    }
}

#[test]
fn an_unenhanced_reply_to_an_enhanced_request_is_refused() {
    let (mut a, _) = Initiator::new(params()).expect("new");
    let (_, plain) = Initiator::new(LocalParams { revision: 1, ..params() }).expect("new");
    let mut b = Responder::default();
    b.handle_bytes(&plain).expect("request");
    let (reply, _) = b.accept(&params()).expect("reply").expect("some");
    assert!(matches!(a.handle_bytes(&reply), Err(StartupError::PeerRevision { found: 1, .. })));
}
