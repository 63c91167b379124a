//! Fetching from a real export, without a network in between.

use super::*;
use crate::{Export, HiddenNames, Sizes};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use tempfile::TempDir;

struct Lab {
    directory: TempDir,
    export: Export,
    mirror: Arc<Mirror>,
    fetch: Fetch<u32>,
    /// What this machine has kept.
    kept: HashMap<[u8; 32], Arc<[u8]>>,
    /// What is done: by its tag, and how.
    done: HashMap<u32, Result<(), FetchError>>,
    next: u32,
    /// Requests that reached the client.
    said: usize,
    /// Bytes read from the client's memory.
    read: u64,
}

impl Lab {
    fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("fetch-").tempdir().expect("a directory");
        let mut export = Export::new(Sizes::default(), HiddenNames::Withheld).expect("an export");
        export.allow(directory.path()).expect("a root");
        let mirror = Arc::new(Mirror::new());
        let fetch = Fetch::new(Arc::clone(&mirror));
        let (kept, done) = (HashMap::new(), HashMap::new());
        Self { directory, export, mirror, fetch, kept, done, next: 0, said: 0, read: 0 }
    }

    fn path(&self) -> &[u8] {
        self.directory.path().as_os_str().as_bytes()
    }

    fn path_of(&self, name: &str) -> Vec<u8> {
        self.directory.path().join(name).as_os_str().as_bytes().to_vec()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).expect("a file");
    }

    fn request(&mut self, request: FetchRequest) -> u32 {
        self.next += 1;
        self.fetch.request(request, self.next, Instant::now());
        self.next
    }

    fn list(&mut self) -> u32 {
        let dir = self.path().to_vec();
        self.request(FetchRequest::List { dir })
    }

    /// Bytes of the client's memory.
    fn memory(&self, at: u64, len: u64) -> Vec<u8> {
        let range = usize::try_from(at).expect("small")..usize::try_from(at + len).expect("small");
        self.export.memory().snapshot(range).expect("inside")
    }

    /// Plays all but reads, which it returns: place, length, tag.
    fn step(&mut self) -> Result<Option<(u64, u64, u64)>, FetchFault> {
        while let Some(need) = self.fetch.poll() {
            match need {
                Need::Say { ask, what } => {
                    self.said += 1;
                    let answer = self.export.answer(&what);
                    self.fetch.handle_answer(ask, answer)?;
                }
                Need::Find { ask, hash } => {
                    self.fetch.handle_found(ask, self.kept.get(&hash).cloned());
                }
                Need::Check { ask, contents, bytes } => {
                    let checked: Option<Arc<[u8]>> = contents.open(bytes).map(Into::into);
                    if let Some(bytes) = &checked {
                        self.kept.insert(contents.hash, Arc::clone(bytes));
                    }
                    self.fetch.handle_checked(ask, checked);
                }
                Need::Read { at, len, tag } => return Ok(Some((at, len, tag))),
            }
        }
        Ok(None)
    }

    /// Plays the client and the network until no action is left.
    fn settle(&mut self) -> Result<(), FetchFault> {
        self.settle_with(|_| {})
    }

    /// The same on a network that changes what is read.
    fn settle_with(&mut self, mut change: impl FnMut(&mut Vec<u8>)) -> Result<(), FetchFault> {
        while let Some((at, len, tag)) = self.step()? {
            let mut bytes = self.memory(at, len);
            change(&mut bytes);
            self.read += len;
            self.fetch.handle_read(tag, bytes)?;
        }
        Ok(())
    }

    fn outcome(&mut self, tag: u32) -> Option<Result<(), FetchError>> {
        self.done.extend(std::iter::from_fn(|| self.fetch.poll_done()));
        self.done.get(&tag).cloned()
    }

    fn file(&self, name: &str) -> Option<FileVersion> {
        match self.mirror.look_up(self.path(), name.as_bytes()) {
            LookUp::File(attr) => Some(FileVersion::of(&attr)),
            _ => None,
        }
    }

    fn contents_of(&mut self, name: &str) -> u32 {
        let (path, file) = (self.path_of(name), self.file(name).expect("it is listed"));
        self.request(FetchRequest::Contents { path, file })
    }

    /// A directory with this file, which has been listed.
    fn with(name: &str, text: &str) -> Self {
        let mut lab = Self::new();
        lab.write(name, text);
        lab.list();
        lab.settle().expect("no fault");
        lab
    }
}

#[test]
fn a_listing_and_contents_come_from_the_clients_memory() {
    let mut lab = Lab::new();
    lab.write("a.h", "int a;");
    let listed = lab.list();
    lab.settle().expect("no fault");
    assert_eq!(lab.outcome(listed), Some(Ok(())));
    assert_eq!(lab.mirror.look_up(lab.path(), b"b.h"), LookUp::Absent);
    let here = lab.contents_of("a.h");
    lab.settle().expect("no fault");
    assert_eq!(lab.outcome(here), Some(Ok(())));
    let file = lab.file("a.h").expect("it is listed");
    assert_eq!(lab.mirror.contents(&file).as_deref(), Some(&b"int a;"[..]));
    assert_eq!(lab.kept.len(), 1, "this machine may keep it");
    assert_eq!(lab.fetch.fetched(), lab.read);
}

#[test]
fn equal_requests_reach_the_client_once() {
    let mut lab = Lab::new();
    lab.write("a.h", "");
    let listed: Vec<_> = (0..5).map(|_| lab.list()).collect();
    lab.settle().expect("no fault");
    assert!(listed.into_iter().all(|tag| lab.outcome(tag) == Some(Ok(()))));
    assert_eq!(lab.said, 1);
}

#[test]
fn contents_that_the_log_has_are_not_requested_again() {
    let mut lab = Lab::with("a.h", "int a;");
    let file = lab.file("a.h").expect("it is listed");
    lab.export.offer(&lab.path_of("a.h"), file.version);
    lab.fetch.reach(lab.export.submit(), 99);
    lab.settle().expect("no fault");
    lab.said = 0;
    let here = lab.contents_of("a.h");
    lab.settle().expect("no fault");
    assert_eq!((lab.outcome(here), lab.said), (Some(Ok(())), 0));
}

#[test]
fn contents_that_this_machine_has_kept_are_not_read_again() {
    let mut lab = Lab::with("a.h", "int a;");
    let text: Arc<[u8]> = b"int a;"[..].into();
    lab.kept.insert(*blake3::hash(&text).as_bytes(), text);
    let file = lab.file("a.h").expect("it is listed");
    lab.export.offer(&lab.path_of("a.h"), file.version);
    lab.fetch.reach(lab.export.submit(), 99);
    lab.settle().expect("no fault");
    lab.read = 0;
    let here = lab.contents_of("a.h");
    lab.settle().expect("no fault");
    assert_eq!((lab.outcome(here), lab.read), (Some(Ok(())), 0));
    assert_eq!(lab.mirror.contents(&file).as_deref(), Some(&b"int a;"[..]));
}

#[test]
fn a_position_is_reached_when_it_is_known_and_at_once_if_it_is() {
    let mut lab = Lab::with("a.h", "");
    lab.write("b.h", "");
    let position = lab.export.submit();
    lab.fetch.reach(position, 70);
    assert_eq!(lab.outcome(70), None);
    lab.settle().expect("no fault");
    assert_eq!(lab.outcome(70), Some(Ok(())));
    assert!(lab.file("b.h").is_some());
    lab.fetch.reach(position, 80);
    assert_eq!(lab.outcome(80), Some(Ok(())));
}

#[test]
fn a_file_that_changed_meanwhile_is_not_handed_out() {
    let mut lab = Lab::with("a.h", "old");
    lab.write("a.h", "newer");
    let asked = lab.contents_of("a.h");
    lab.settle().expect("no fault");
    assert_eq!(lab.outcome(asked), Some(Err(FetchError::Changed)));
}

#[test]
fn a_snapshot_that_was_overwritten_is_asked_for_again() {
    let mut lab = Lab::with("a.h", "int a;");
    let asked = lab.contents_of("a.h");
    let mut spoilt = 0;
    let spoil = |bytes: &mut Vec<u8>| {
        if bytes.len() == 6 && spoilt < 2 {
            spoilt += 1;
            bytes[0] ^= 1;
        }
    };
    lab.settle_with(spoil).expect("no fault");
    assert_eq!((lab.outcome(asked), spoilt), (Some(Ok(())), 2));
}

#[test]
fn a_client_that_never_proves_its_contents_is_given_up() {
    let mut lab = Lab::with("a.h", "int a;");
    let asked = lab.contents_of("a.h");
    let lie = |bytes: &mut Vec<u8>| {
        if bytes.len() == 6 {
            *bytes = b"wrong!".to_vec();
        }
    };
    lab.settle_with(lie).expect("no fault");
    assert_eq!(lab.outcome(asked), Some(Err(FetchError::Changed)));
    assert!(lab.kept.is_empty());
}

#[test]
fn contents_are_as_long_as_the_file() {
    let mut lab = Lab::with("a.h", "int a;");
    let file = lab.file("a.h").expect("it is listed");
    let place = lab.mirror.lock().replica.position();
    lab.export.offer(&lab.path_of("a.h"), file.version);
    lab.fetch.reach(lab.export.submit(), 99);
    let (at, len, tag) = lab.step().expect("no fault").expect("a read of the log");
    let mut log = lab.memory(at, len);
    // The record ends with the length, twice as it is not packed, and its frame begins with its own
    // length and its check.
    log.iter_mut().rev().take(2).for_each(|len| *len += 1);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&place.epoch.to_le_bytes()).update(&place.length.to_le_bytes());
    let check = hasher.update(&log[8..]).finalize();
    log[4..8].copy_from_slice(&check.as_bytes()[..4]);
    lab.fetch.handle_read(tag, log).expect("no fault");
    let asked = lab.contents_of("a.h");
    assert_eq!(lab.fetch.poll(), None);
    assert_eq!(lab.outcome(asked), Some(Err(FetchError::Changed)));
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
    let asked = names.map(|name| lab.contents_of(name));
    let mut most = 0;
    loop {
        let reads: Vec<_> = std::iter::from_fn(|| lab.step().expect("no fault")).collect();
        most = most.max(reads.iter().map(|(_, len, _)| *len).filter(|len| *len < 10).sum());
        if reads.is_empty() {
            break;
        }
        for (at, len, tag) in reads {
            let bytes = lab.memory(at, len);
            lab.fetch.handle_read(tag, bytes).expect("no fault");
        }
    }
    assert!(asked.into_iter().all(|tag| lab.outcome(tag) == Some(Ok(()))));
    assert_eq!((most, lab.fetch.reading), (8, 0), "the long one alone");
}

/// A loop that fetches does no work in proportion to a file: its check is for another thread, and
/// counts as reading until it is over, also for a request that was given up.
#[test]
fn contents_are_checked_where_the_caller_wants() {
    let mut lab = Lab::with("a.h", "int a;");
    let asked = lab.contents_of("a.h");
    let read = |lab: &mut Lab| {
        while let Some((at, len, tag)) = lab.step().expect("no fault") {
            let bytes = lab.memory(at, len);
            lab.fetch.handle_read(tag, bytes).expect("no fault");
            match lab.fetch.needs.pop_front() {
                Some(Need::Check { ask, bytes, .. }) => return (ask, bytes),
                other => lab.fetch.needs.extend(other),
            }
        }
        panic!("it is not read");
    };
    let (ask, bytes) = read(&mut lab);
    assert_eq!((lab.outcome(asked), lab.fetch.reading), (None, 6));
    lab.fetch.handle_checked(ask, None);
    assert_eq!(lab.fetch.reading, 0);
    assert_eq!(read(&mut lab), (ask, bytes.clone()), "it is asked for again");
    lab.fetch.abort();
    assert_eq!((lab.outcome(asked), lab.fetch.reading), (Some(Err(FetchError::Gone)), 6));
    lab.fetch.handle_checked(ask, Some(bytes.into()));
    lab.fetch.handle_checked(ask, None);
    assert_eq!(lab.fetch.reading, 0);
}

#[test]
fn requests_fail_when_the_client_is_silent_or_gone() {
    let mut lab = Lab::new();
    let late = lab.list();
    lab.fetch.expire(Instant::now() + ANSWER_MAX + Duration::from_secs(1));
    assert_eq!(lab.outcome(late), Some(Err(FetchError::Gone)));
    let lost = lab.list();
    lab.fetch.abort();
    assert_eq!(lab.outcome(lost), Some(Err(FetchError::Gone)));
}

#[test]
fn what_is_found_for_a_request_that_was_given_up_is_dropped() {
    let mut lab = Lab::with("a.h", "int a;");
    let file = lab.file("a.h").expect("it is listed");
    lab.export.offer(&lab.path_of("a.h"), file.version);
    lab.fetch.reach(lab.export.submit(), 99);
    lab.settle().expect("no fault");
    lab.contents_of("a.h");
    let Some(Need::Find { ask, .. }) = lab.fetch.poll() else { panic!("it is in the log") };
    lab.fetch.abort();
    lab.fetch.handle_found(ask, None);
    assert_eq!(lab.fetch.poll(), None);
}

#[test]
fn a_metadata_log_that_lies_is_a_fault() {
    let mut lab = Lab::new();
    lab.write("a.h", "");
    lab.list();
    let lie = |bytes: &mut Vec<u8>| {
        if bytes.len() != HEADER_LEN {
            bytes.fill(0x55);
        }
    };
    assert!(matches!(lab.settle_with(lie), Err(FetchFault::MetadataLog(_))));
}

#[test]
fn a_directory_that_is_not_exported_is_known_by_name() {
    let mut lab = Lab::new();
    let path = b"/somewhere/else".to_vec();
    let asked = lab.request(FetchRequest::Name { path: path.clone() });
    let Some(Need::Say { ask, .. }) = lab.fetch.poll() else { panic!("a request") };
    lab.fetch.handle_answer(ask, Answer::Directory).expect("no fault");
    assert_eq!(lab.outcome(asked), Some(Ok(())));
    assert!(lab.mirror.is_directory(&path) && !lab.mirror.is_directory(b"/somewhere"));
}

#[test]
fn an_answer_to_nothing_is_a_fault() {
    let mut lab = Lab::new();
    assert!(matches!(lab.fetch.handle_answer(99, Answer::Withheld), Err(FetchFault::Answer)));
}
