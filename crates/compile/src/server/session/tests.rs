//! Sessions without a network: violations by clients.

use super::*;
use outboard_cluster::waker::Waker;
use outboard_export::Position;

fn session() -> ClientSession {
    ClientSession::new(Threads::new(Waker::new().expect("a waker")), None, false)
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

fn package() -> Package {
    let ended = crate::sandbox::FinishedJob {
        end: crate::sandbox::JobEnd::Exited(0),
        usage: crate::sandbox::JobUsage::default(),
        stdout: Vec::new(),
        stderr: Vec::new(),
        object: None,
    };
    let made = crate::view::JobChanges::default();
    Package::new(0, ended, made, Took::default()).expect("it ran")
}

#[test]
fn a_client_that_leaves_slots_waiting_is_not_served() {
    let (begin, seconds) = (Instant::now(), Duration::from_secs);
    for stage in [Stage::Waiting, Stage::Reading, Stage::Abandoned, Stage::Sent] {
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
    for stage in [Stage::InSandbox, Stage::Stopping, Stage::Held, Stage::Equipping] {
        let mut session = session();
        session.begin(spec(1), waiting(), 0, begin).expect("a job");
        session.jobs.get_mut(&1).expect("it is there").stage = stage;
        session.tick(begin + seconds(1000)).expect("the server waits for nothing from it");
        let job = session.jobs.get_mut(&1).expect("it is there");
        (job.stage, job.since) = (Stage::Sending, begin + seconds(1000));
        job.package = Some(package());
        session.tick(begin + seconds(1060)).expect("it has a minute from then on");
        assert!(session.tick(begin + seconds(1061)).is_err());
    }
}

/// Memory of a client's, as a message describes it.
fn exposed(len: u64) -> Exposed {
    let bytes = postcard::to_stdvec(&(1_u32, 0_u64, len)).expect("numbers");
    postcard::from_bytes(&bytes).expect("the same numbers")
}

#[test]
fn a_job_that_is_cancelled_when_its_source_was_just_read_frees_its_slot() {
    let (mut session, now) = (session(), Instant::now());
    let source = Input::Source { path: b"/a.i".to_vec(), exposed: exposed(3) };
    session.begin(spec(1), source, 5, now).expect("a job");
    let Some(Out::Read { tag, .. }) = session.poll() else { panic!("it is read") };
    session.read(tag, b"int".to_vec()).expect("no fault");
    session.handle_message(ToServer::Cancel { ticket: 1 }, &Programs::none()).expect("no fault");
    assert_eq!((session.poll_released(), session.jobs().count()), (Some(5), 0));
    let Some(Out::Message(ToClient::Return { ticket: 1 })) = session.poll() else { panic!("said") };
}

#[test]
fn a_job_that_is_cancelled_while_its_source_is_read_keeps_its_slot_until_then() {
    let (mut session, now) = (session(), Instant::now());
    let source = Input::Source { path: b"/a.i".to_vec(), exposed: exposed(3) };
    session.begin(spec(1), source, 5, now).expect("a job");
    let Some(Out::Read { tag, .. }) = session.poll() else { panic!("it is read") };
    for _ in 0..2 {
        session
            .handle_message(ToServer::Cancel { ticket: 1 }, &Programs::none())
            .expect("no fault");
        assert_eq!(session.poll_released(), None);
    }
    session.read(tag, b"int".to_vec()).expect("no fault");
    assert_eq!((session.poll_released(), session.jobs().count()), (Some(5), 0));
}
