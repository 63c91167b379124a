//! Sessions without a network: what a client may not do.

use super::*;
use outboard_export::Position;
use rustix::event::{EventfdFlags, eventfd};

fn session() -> Session {
    let bell = eventfd(0, EventfdFlags::CLOEXEC).expect("a bell");
    Session::new(Arc::new(bell), None, false)
}

fn spec(ticket: TicketNumber) -> JobSpec {
    JobSpec {
        ticket,
        compiler: b"/usr/bin/gcc".to_vec(),
        toolchain: [1; 32],
        argv: vec![b"gcc".to_vec()],
        cwd: b"/".to_vec(),
        env: Vec::new(),
        umask: 0o022,
        places: Vec::new(),
    }
}

/// A job that waits for a catalogue which is not there yet.
fn waiting() -> Input {
    Input::Pull { position: Position { epoch: 1, length: 1 } }
}

#[test]
fn a_ticket_that_is_here_already_ends_the_session() {
    let (mut session, now) = (session(), Instant::now());
    session.begin(spec(1), waiting(), 0, now).expect("a job");
    session.begin(spec(2), waiting(), 1, now).expect("another job");
    let again = session.begin(spec(1), waiting(), 2, now);
    assert!(matches!(again, Err(SessionEnd::OutOfTurn(_))), "{again:?}");
    let slots: Vec<_> = session.jobs().map(|(slot, _)| slot).collect();
    assert_eq!(slots, [0, 1], "the first one's is not lost");
}
