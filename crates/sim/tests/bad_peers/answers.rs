//! Responses without a request, and Terminates.

use crate::SEND;
use crate::victim::Victim;
use outboard_sim::lone::{self, Lone, agreed, response, untagged};
use outboard_wire::ddp::{Header, Stag, Tagged, Untagged};
use outboard_wire::rdmap::Opcode;

#[test]
fn responses_to_nothing() {
    let mut lone = Lone::new(agreed());
    lone.segment(Header::Tagged(response(Stag(1), 0)), b"what");
    assert_eq!(
        lone.lines(),
        ["Terminate msn=1 0x1/0x1/0x00 of [ReadResponse last stag=1 to=0] len=18"]
    );
    let mut lone = Lone::new(agreed());
    lone.segment(Header::Untagged(untagged(Opcode::AtomicResponse, 1)), &[0; 12]);
    assert_eq!(lone.lines(), ["Terminate msn=1 0x0/0x2/0x06 of [AtomicResponse msn=1] len=30"]);
}

#[test]
fn responses_that_do_not_fit_the_request() {
    let short = Tagged { last: true, ..response(Stag(1), 0) };
    for (header, len, terminate) in [
        (response(Stag(2), 0), 100, "0x1/0x1/0x00 of [ReadResponse last stag=2 to=0] len=114"),
        (response(Stag(3), 0), 50, "0x1/0x1/0x00 of [ReadResponse last stag=3 to=0] len=64"),
        (response(Stag(1), 1), 99, "0x1/0x1/0x01 of [ReadResponse last stag=1 to=1] len=113"),
        (response(Stag(1), 0), 101, "0x1/0x1/0x01 of [ReadResponse last stag=1 to=0] len=115"),
        (short, 99, "0x1/0x1/0x01 of [ReadResponse last stag=1 to=0] len=113"),
    ] {
        Victim::new().refuses(header, &vec![9; len], terminate);
    }
}

#[test]
fn a_response_that_goes_on_elsewhere_or_too_long() {
    for (offset, len) in [(39, 60), (41, 60), (0, 60), (40, 61)] {
        let mut victim = Victim::new();
        let first = Tagged { last: false, ..response(Stag(1), 0) };
        victim.lone.segment(Header::Tagged(first), &[9; 40]);
        let told =
            format!("0x1/0x1/0x01 of [ReadResponse last stag=1 to={offset}] len={}", len + 14);
        victim.refuses(response(Stag(1), offset), &vec![9; len], &told);
    }
}

#[test]
fn responses_out_of_turn() {
    let mut payload = Vec::new();
    outboard_wire::rdmap::AtomicResponse { request_id: 1, original: 7 }.emit(&mut payload);
    let header = untagged(Opcode::AtomicResponse, 1);
    Victim::new().refuses(header, &payload, "0x0/0x2/0x06 of [AtomicResponse msn=1] len=30");

    let mut victim = Victim::new();
    victim.lone.segment(Header::Tagged(response(Stag(1), 0)), &[9; 100]);
    victim.lone.segment(Header::Tagged(response(Stag(2), 0)), &[9; 50]);
    assert_eq!(
        victim.lone.lines(),
        ["Terminate msn=1 0x0/0x2/0x06 of [ReadResponse last stag=2 to=0] len=64"]
    );
    victim.is_over(&["1 Read Success 100", "2 FetchAdd Flushed 0", "3 Read Flushed 0"]);
}

#[test]
fn an_atomic_response_with_anothers_number() {
    let mut victim = Victim::new();
    victim.lone.segment(Header::Tagged(response(Stag(1), 0)), &[9; 100]);
    let mut payload = Vec::new();
    outboard_wire::rdmap::AtomicResponse { request_id: 77, original: 7 }.emit(&mut payload);
    victim.lone.segment(Header::Untagged(untagged(Opcode::AtomicResponse, 1)), &payload);
    assert_eq!(
        victim.lone.lines(),
        ["Terminate msn=1 0x0/0x2/0x06 of [AtomicResponse msn=1] len=30"]
    );
    victim.is_over(&["1 Read Success 100", "2 FetchAdd Flushed 0", "3 Read Flushed 0"]);
}

// ---- Terminates ------------------------------------------------------------------------------

#[test]
fn a_terminate_ends_everything_silently() {
    let mut victim = Victim::new();
    let payload = [0x12, 0x02, 0, 0];
    victim.refuses(untagged(Opcode::Terminate, 1), &payload, "");
}

#[test]
fn a_terminate_too_short_to_read() {
    let told = "0x0/0x2/0xff";
    Victim::new().refuses(untagged(Opcode::Terminate, 1), &[0x12], told);
    Victim::new().refuses(untagged(Opcode::Terminate, 1), &[0x12, 2, 0xc0, 0, 0], told);
}

#[test]
fn the_receive_in_progress_comes_back_too() {
    let mut victim = Victim::new();
    victim.lone.segment(Header::Untagged(Untagged { last: false, ..SEND(1) }), &[5; 10]);
    victim.lone.segment(Header::Tagged(lone::write(Stag(0), 0)), b"x");
    victim.lone.lines();
    let completions = std::mem::take(&mut victim.lone.side.completions);
    let receive = completions.iter().find(|c| c.wr_id == 11).expect("it came back");
    assert_eq!(receive.local.len(), 32);
    assert_eq!(completions.len(), 4);
    assert!(completions.iter().all(|c| c.status == outboard_iwarp::work::Status::Flushed));
    let lens: Vec<usize> = completions.iter().map(|c| c.local.len()).collect();
    assert_eq!(lens, [100, 8, 50, 32], "buffers come back");
}
