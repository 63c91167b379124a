//! Sessions without a network: violations by clients.

use super::*;
use outboard_export::Position;

fn session() -> ClientSession {
    ClientSession::new(Waker::new().expect("a waker"), None, false)
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

/// A job that waits for a metadata log which has not been read yet.
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

fn package() -> Stage {
    let ended = crate::sandbox::FinishedJob {
        end: crate::sandbox::JobEnd::Exited(0),
        usage: crate::sandbox::JobUsage::default(),
        stdout: Vec::new(),
        stderr: Vec::new(),
        object: None,
    };
    let made = crate::view::JobChanges::default();
    Stage::Sending(Package::new(0, ended, made, Took::default()).expect("it ran"))
}

#[test]
fn a_client_that_leaves_slots_waiting_is_not_served() {
    let (begin, seconds) = (Instant::now(), Duration::from_secs);
    for stage in [Stage::Waiting, Stage::Reading(true), Stage::Reading(false), Stage::Sent] {
        let mut session = session();
        session.begin(spec(1), waiting(), 0, begin).expect("a job");
        session.jobs.get_mut(&1).expect("it is there").stage = stage;
        session.heard(begin + seconds(30));
        session.tick(begin + seconds(90)).expect("it has a minute");
        let late = session.tick(begin + seconds(91));
        assert!(matches!(late, Err(SessionEnd::Silent)), "{late:?}");
    }
}

#[test]
fn a_client_whose_jobs_compile_for_long_or_wait_for_others_is_served() {
    let (begin, seconds) = (Instant::now(), Duration::from_secs);
    for stage in [Stage::InSandbox(true), Stage::InSandbox(false), Stage::Held, Stage::Equipping] {
        let mut session = session();
        session.begin(spec(1), waiting(), 0, begin).expect("a job");
        session.jobs.get_mut(&1).expect("it is there").stage = stage;
        session.tick(begin + seconds(1000)).expect("the server waits for nothing from it");
        let job = session.jobs.get_mut(&1).expect("it is there");
        (job.stage, job.since) = (package(), begin + seconds(1000));
        session.tick(begin + seconds(1060)).expect("it has a minute from then on");
        assert!(session.tick(begin + seconds(1061)).is_err());
    }
}
