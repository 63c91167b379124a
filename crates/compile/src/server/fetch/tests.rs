//! Fetching from a real export, without a network in between.

use super::*;
use crate::view::{Found, Source};
use outboard_cluster::waker::Waker;
use outboard_export::{Export, Sizes};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use tempfile::TempDir;

struct Lab {
    directory: TempDir,
    export: Export,
    files: Arc<Files>,
    fetch: Fetch,
    /// Requests that reached the client.
    said: usize,
}

type Answered = Arc<Mutex<Vec<Result<(), AskError>>>>;

impl Lab {
    fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("fetch-").tempdir().expect("a directory");
        let mut export = Export::new(Sizes::default()).expect("an export");
        export.allow(directory.path()).expect("a root");
        let files = Arc::new(Files::new(Waker::new().expect("a waker")));
        let fetch = Fetch::new(Arc::clone(&files), None);
        Self { directory, export, files, fetch, said: 0 }
    }

    fn path(&self) -> &[u8] {
        self.directory.path().as_os_str().as_bytes()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).expect("a file");
    }

    fn ask(&mut self, ask: Ask) -> Answered {
        let answered = Answered::default();
        let tell = Arc::clone(&answered);
        let done = Box::new(move |result| tell.lock().expect("alone").push(result));
        self.fetch.ask(ask, done, Instant::now());
        answered
    }

    fn list(&mut self) -> Answered {
        let dir = self.path().to_vec();
        self.ask(Ask::List { dir })
    }

    /// Bytes of the client's memory.
    fn memory(&self, at: u64, len: u64) -> Vec<u8> {
        let range = usize::try_from(at).expect("small")..usize::try_from(at + len).expect("small");
        self.export.memory().snapshot(range).expect("inside")
    }

    /// Plays the client and the network until no action is left.
    fn settle(&mut self) -> Result<(), Fault> {
        while let Some(need) = self.fetch.poll() {
            match need {
                Need::Say { ask, what } => {
                    self.said += 1;
                    let answer = self.export.answer(&what);
                    self.fetch.handle_answer(ask, answer)?;
                }
                Need::Read { at, len, tag } => {
                    let bytes = self.memory(at, len);
                    self.fetch.handle_read(tag, bytes)?;
                }
            }
        }
        Ok(())
    }

    fn node(&self, name: &str) -> Option<NodeId> {
        match self.files.look_up(self.path(), name.as_bytes()) {
            Found::File { attr, version } => Some(NodeId { dev: attr.dev, ino: attr.ino, version }),
            _ => None,
        }
    }

    fn contents_of(&mut self, name: &str) -> Answered {
        let node = self.node(name).expect("it is listed");
        let path = self.directory.path().join(name).as_os_str().as_bytes().to_vec();
        self.ask(Ask::Contents { path, node })
    }
}

fn results(answered: &Answered) -> Vec<Result<(), AskError>> {
    answered.lock().expect("alone").clone()
}

#[test]
fn a_listing_and_contents_come_from_the_clients_memory() {
    let mut lab = Lab::new();
    lab.write("a.h", "int a;");
    let listed = lab.list();
    lab.settle().expect("no fault");
    assert_eq!(results(&listed), [Ok(())]);
    assert_eq!(lab.files.look_up(lab.path(), b"b.h"), Found::Absent);
    let here = lab.contents_of("a.h");
    lab.settle().expect("no fault");
    assert_eq!(results(&here), [Ok(())]);
    let node = lab.node("a.h").expect("it is listed");
    let contents = lab.files.contents(&node).expect("it is here");
    assert_eq!((*contents).as_ref(), b"int a;");
}

#[test]
fn equal_requests_reach_the_client_once() {
    let mut lab = Lab::new();
    lab.write("a.h", "");
    let answers: Vec<_> = (0..5).map(|_| lab.list()).collect();
    lab.settle().expect("no fault");
    assert!(answers.iter().all(|answered| results(answered) == [Ok(())]));
    assert_eq!(lab.said, 1);
}

#[test]
fn contents_in_the_store_are_not_requested_again() {
    let mut lab = Lab::new();
    lab.write("a.h", "int a;");
    lab.list();
    lab.settle().expect("no fault");
    let node = lab.node("a.h").expect("it is listed");
    let path = lab.directory.path().join("a.h");
    lab.export.offer(path.as_os_str().as_bytes(), node.version);
    let position = lab.export.submit();
    lab.fetch.reach(position, 1);
    lab.settle().expect("no fault");
    lab.said = 0;
    let here = lab.contents_of("a.h");
    lab.settle().expect("no fault");
    assert_eq!((results(&here), lab.said), (vec![Ok(())], 0));
}

#[test]
fn a_job_is_ready_when_its_position_is_known_and_at_once_if_it_is() {
    let mut lab = Lab::new();
    lab.write("a.h", "");
    lab.list();
    lab.settle().expect("no fault");
    lab.write("b.h", "");
    let position = lab.export.submit();
    lab.fetch.reach(position, 7);
    assert_eq!(lab.fetch.poll_ready(), None);
    lab.settle().expect("no fault");
    assert_eq!(lab.fetch.poll_ready(), Some(7));
    assert!(lab.node("b.h").is_some());
    lab.fetch.reach(position, 8);
    assert_eq!(lab.fetch.poll_ready(), Some(8));
}

#[test]
fn a_file_that_changed_meanwhile_is_not_handed_out() {
    let mut lab = Lab::new();
    lab.write("a.h", "old");
    lab.list();
    lab.settle().expect("no fault");
    lab.write("a.h", "newer");
    let answered = lab.contents_of("a.h");
    lab.settle().expect("no fault");
    assert_eq!(results(&answered), [Err(AskError::Changed)]);
}

#[test]
fn a_snapshot_that_was_overwritten_is_asked_for_again() {
    let mut lab = Lab::new();
    lab.write("a.h", "int a;");
    lab.list();
    lab.settle().expect("no fault");
    let answered = lab.contents_of("a.h");
    let mut spoilt = 0;
    while let Some(need) = lab.fetch.poll() {
        match need {
            Need::Say { ask, what } => {
                let answer = lab.export.answer(&what);
                lab.fetch.handle_answer(ask, answer).expect("no fault");
            }
            Need::Read { at, len, tag } => {
                let mut bytes = lab.memory(at, len);
                if len == 6 && spoilt < 2 {
                    spoilt += 1;
                    bytes[0] ^= 1;
                }
                lab.fetch.handle_read(tag, bytes).expect("no fault");
            }
        }
    }
    assert_eq!((results(&answered), spoilt), (vec![Ok(())], 2));
}

#[test]
fn a_client_that_never_proves_its_contents_is_given_up() {
    let mut lab = Lab::new();
    lab.write("a.h", "int a;");
    lab.list();
    lab.settle().expect("no fault");
    let answered = lab.contents_of("a.h");
    while let Some(need) = lab.fetch.poll() {
        match need {
            Need::Say { ask, what } => {
                let answer = lab.export.answer(&what);
                lab.fetch.handle_answer(ask, answer).expect("no fault");
            }
            Need::Read { at, len, tag } => {
                let bytes = if len == 6 { b"wrong!".to_vec() } else { lab.memory(at, len) };
                lab.fetch.handle_read(tag, bytes).expect("no fault");
            }
        }
    }
    assert_eq!(results(&answered), [Err(AskError::Changed)]);
}

#[test]
fn contents_are_as_long_as_the_file() {
    let mut lab = Lab::new();
    lab.write("a.h", "int a;");
    lab.list();
    lab.settle().expect("no fault");
    let node = lab.node("a.h").expect("it is listed");
    let path = lab.directory.path().join("a.h");
    let place = lab.files.known().replica.position();
    lab.export.offer(path.as_os_str().as_bytes(), node.version);
    lab.fetch.reach(lab.export.submit(), 1);
    let Some(Need::Read { at, len, tag }) = lab.fetch.poll() else { panic!("a read of the log") };
    let mut log = lab.memory(at, len);
    // The record ends with the length, twice as it is not packed, and its frame begins with its own
    // length and its check.
    log.iter_mut().rev().take(2).for_each(|len| *len += 1);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&place.epoch.to_le_bytes()).update(&place.length.to_le_bytes());
    let check = hasher.update(&log[8..]).finalize();
    log[4..8].copy_from_slice(&check.as_bytes()[..4]);
    lab.fetch.handle_read(tag, log).expect("no fault");
    let answered = lab.contents_of("a.h");
    assert_eq!(lab.fetch.poll(), None);
    assert_eq!(results(&answered), [Err(AskError::Changed)]);
}

#[test]
fn few_bytes_are_read_at_once_but_a_single_file_may_be_long() {
    let mut lab = Lab::new();
    let names = ["a.h", "b.h", "c.h", "d.h"];
    for (name, text) in names.iter().zip(["123456", "1", "123", "12345678"]) {
        lab.write(name, text);
    }
    lab.list();
    lab.settle().expect("no fault");
    lab.fetch.reading_max = 7;
    let answers = names.map(|name| lab.contents_of(name));
    let mut most = 0;
    loop {
        let mut reads = Vec::new();
        while let Some(need) = lab.fetch.poll() {
            match need {
                Need::Say { ask, what } => {
                    let answer = lab.export.answer(&what);
                    lab.fetch.handle_answer(ask, answer).expect("no fault");
                }
                Need::Read { at, len, tag } => reads.push((at, len, tag)),
            }
        }
        most = most.max(reads.iter().map(|(_, len, _)| len).filter(|len| **len < 10).sum());
        if reads.is_empty() {
            break;
        }
        for (at, len, tag) in reads {
            let bytes = lab.memory(at, len);
            lab.fetch.handle_read(tag, bytes).expect("no fault");
        }
    }
    assert!(answers.iter().all(|answered| results(answered) == [Ok(())]), "{answers:?}");
    assert_eq!((most, lab.fetch.reading), (8, 0), "the long one alone");
}

#[test]
fn requests_fail_when_the_client_is_silent_or_gone() {
    let mut lab = Lab::new();
    let late = lab.list();
    lab.fetch.expire(Instant::now() + ANSWER_MAX + Duration::from_secs(1));
    assert_eq!(results(&late), [Err(AskError::Gone)]);
    let lost = lab.list();
    lab.fetch.abort();
    assert_eq!(results(&lost), [Err(AskError::Gone)]);
}

#[test]
fn a_metadata_log_that_lies_is_a_fault() {
    let mut lab = Lab::new();
    lab.write("a.h", "");
    lab.list();
    let mut result = Ok(());
    while let Some(need) = lab.fetch.poll() {
        match need {
            Need::Say { ask, what } => {
                let answer = lab.export.answer(&what);
                lab.fetch.handle_answer(ask, answer).expect("no fault");
            }
            Need::Read { at: 0, len, tag } => {
                let bytes = lab.memory(0, len);
                lab.fetch.handle_read(tag, bytes).expect("no fault");
            }
            Need::Read { len, tag, .. } => {
                let bytes = vec![0x55; usize::try_from(len).expect("small")];
                result = lab.fetch.handle_read(tag, bytes).map(drop);
                break;
            }
        }
    }
    assert!(result.is_err());
}

#[test]
fn an_error_number_that_linux_does_not_have_is_eio() {
    for (said, heard) in [(13, 13), (133, 133), (134, 5), (0, 5), (-2, 5), (i32::MIN, 5)] {
        let mut lab = Lab::new();
        let answered = lab.list();
        let Some(Need::Say { ask, .. }) = lab.fetch.poll() else { panic!("a question") };
        lab.fetch.handle_answer(ask, Answer::Failed(said)).expect("no fault");
        assert_eq!(results(&answered), [Err(AskError::Failed(heard))], "{said}");
    }
}

#[test]
fn an_answer_to_nothing_is_a_fault() {
    let mut lab = Lab::new();
    assert!(matches!(lab.fetch.handle_answer(99, Answer::Withheld), Err(Fault::Answer)));
    let _path: &Path = lab.directory.path();
}
