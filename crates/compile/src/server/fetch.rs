//! How a server learns of a client's files: requests, reads of the metadata log, reads of contents.
//!
//! A value without network or clock: [`Fetch::poll`] returns the next request to the client or read
//! of its memory; answers are handed in. Equal requests are sent once. Data read from the client is
//! used only after a check: log records carry checksums, contents must have the announced hash.

use super::files::Files;
use crate::protocol::TicketNumber;
use crate::view::{Ask, AskError, Done, NodeId};
use outboard_export::{self as export, Answer, Change, Contents, HEADER_LEN, MetadataLogError};
use outboard_export::{Header, LookUp, Position, Want};
use outboard_store::{Kind, Store};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a job's request waits for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How often contents are requested again when their snapshot was overwritten before it was read.
const TRIES: u32 = 4;
/// How often the log is read again when it was overwritten during the read.
const TORN_MAX: u32 = 8;

/// The largest error number of Linux.
const ERRNO_MAX: i32 = libc::EHWPOISON;
/// Bytes of contents that are being read at once, at most, unless a single file is longer.
const READING_MAX: u64 = 256 << 20;

/// The next action for the connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Send a request to the client.
    Say { ask: u32, what: export::Ask },
    /// Read from its memory.
    Read { at: u64, len: u64, tag: u64 },
}

/// Why a client is no longer served: it violated the protocol.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    MetadataLog(#[from] MetadataLogError),
    #[error("it overwrites its metadata log faster than it can be read")]
    Torn,
    #[error("it answers a request that it was not sent")]
    Answer,
}

/// Fetches one client's files; see the [module](self).
pub(crate) struct Fetch {
    files: Arc<Files>,
    store: Option<Arc<Store>>,
    header: Option<Header>,
    goal: Position,
    log: Option<(u64, LogRead)>,
    torn: u32,
    questions: HashMap<u32, ClientRequest>,
    keys: HashMap<Key, u32>,
    /// Contents to be read: the request that they answer, and their length.
    reads: HashMap<u64, (u32, u64)>,
    /// Reads of contents that wait for other reads to end.
    held: VecDeque<u64>,
    /// Bytes of contents that are being read.
    reading: u64,
    reading_max: u64,
    jobs: Vec<(Position, TicketNumber)>,
    ready: VecDeque<TicketNumber>,
    needs: VecDeque<Need>,
    next: u64,
    fetched: u64,
}

enum LogRead {
    Header,
    Part(Want),
}

/// Requests with equal keys are sent once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    List(Vec<u8>),
    Contents(NodeId),
    Name(Vec<u8>),
}

struct ClientRequest {
    key: Key,
    what: export::Ask,
    dones: Vec<Done>,
    since: Instant,
    tries: u32,
    stage: RequestStage,
}

enum RequestStage {
    /// The request has been sent to the client.
    Asked,
    /// The client answered that the log has the answer.
    Published(Position),
    /// Contents are being read.
    Reading(Contents),
}

impl Fetch {
    pub(crate) fn new(files: Arc<Files>, store: Option<Arc<Store>>) -> Self {
        Self {
            files,
            store,
            header: None,
            goal: Position::default(),
            log: None,
            torn: 0,
            questions: HashMap::new(),
            keys: HashMap::new(),
            reads: HashMap::new(),
            held: VecDeque::new(),
            reading: 0,
            reading_max: READING_MAX,
            jobs: Vec::new(),
            ready: VecDeque::new(),
            needs: VecDeque::new(),
            next: 0,
            fetched: 0,
        }
    }

    /// The next action.
    pub(crate) fn poll(&mut self) -> Option<Need> {
        self.needs.pop_front().or_else(|| self.poll_contents())
    }

    /// The next contents to be read, if the limit leaves room for them.
    fn poll_contents(&mut self) -> Option<Need> {
        while let Some(&tag) = self.held.front() {
            let (ask, len) = self.reads.get(&tag).copied()?;
            let Some(RequestStage::Reading(contents)) =
                self.questions.get(&ask).map(|at| &at.stage)
            else {
                // The request was given up meanwhile.
                self.reads.remove(&tag);
                self.held.pop_front();
                continue;
            };
            if self.reading > 0 && self.reading.saturating_add(len) > self.reading_max {
                return None;
            }
            self.reading += len;
            self.held.pop_front();
            return Some(Need::Read { at: contents.at, len: contents.packed, tag });
        }
        None
    }

    /// The next job whose position in the log has been reached.
    pub(crate) fn poll_ready(&mut self) -> Option<TicketNumber> {
        self.ready.pop_front()
    }

    /// Bytes read from the client's memory so far.
    pub(crate) fn fetched(&self) -> u64 {
        self.fetched
    }

    /// Marks a job as ready once the log is known up to a position.
    pub(crate) fn reach(&mut self, position: Position, job: TicketNumber) {
        self.jobs.push((position, job));
        self.read_up_to(position);
        self.advance();
    }

    /// Handles a request of the view.
    pub(crate) fn ask(&mut self, ask: Ask, done: Done, now: Instant) {
        let (key, what) = match ask {
            Ask::List { dir } => (Key::List(dir.clone()), export::Ask::List { dir }),
            Ask::Contents { path, node } => {
                (Key::Contents(node), export::Ask::Offer { path, version: node.version })
            }
            Ask::Name { path } => (Key::Name(path.clone()), export::Ask::Name { path }),
        };
        if let Some(question) = self.keys.get(&key).and_then(|ask| self.questions.get_mut(ask)) {
            return question.dones.push(done);
        }
        let ask = u32::try_from(self.number() & u64::from(u32::MAX)).expect("masked");
        let (dones, stage) = (vec![done], RequestStage::Asked);
        let question = ClientRequest { key: key.clone(), what, dones, since: now, tries: 0, stage };
        self.questions.insert(ask, question);
        self.keys.insert(key, ask);
        // The store may have the contents because another server requested them.
        if !self.look_for_contents(ask) {
            self.send_request(ask);
        }
    }

    /// Handles an answer of the client.
    ///
    /// # Errors
    /// When the client answers a request that was never sent.
    pub(crate) fn handle_answer(&mut self, ask: u32, answer: Answer) -> Result<(), Fault> {
        let Some(question) = self.questions.get_mut(&ask) else {
            // The request was given up; answers to requests that were never sent are faults.
            return if u64::from(ask) <= self.next { Ok(()) } else { Err(Fault::Answer) };
        };
        if !matches!(question.stage, RequestStage::Asked) {
            return Err(Fault::Answer);
        }
        match answer {
            Answer::Published(position) => {
                question.stage = RequestStage::Published(position);
                self.read_up_to(position);
            }
            Answer::Changed(position) => {
                self.read_up_to(position);
                self.settle(ask, &Err(AskError::Changed));
            }
            Answer::Withheld => {
                self.settle(ask, &Err(AskError::Refused("it is withheld".into())));
            }
            Answer::Directory => {
                let Key::Name(path) = &question.key else { return Err(Fault::Answer) };
                self.files.known().note_directory(path);
                self.settle(ask, &Ok(()));
            }
            Answer::TooLarge { len, len_max } => {
                let why = format!("{len} bytes, and at most {len_max} are handed out");
                self.settle(ask, &Err(AskError::Refused(why)));
            }
            Answer::Failed(errno) => self.settle(ask, &Err(AskError::Failed(known_errno(errno)))),
        }
        self.advance();
        Ok(())
    }

    /// Handles bytes read from the client's memory. Returns the changes that the kernel's caches
    /// must drop.
    ///
    /// # Errors
    /// [`Fault`]: the client violates the protocol.
    pub(crate) fn handle_read(&mut self, tag: u64, bytes: Vec<u8>) -> Result<Vec<Change>, Fault> {
        self.fetched += bytes.len() as u64;
        let mut changes = Vec::new();
        if self.log.as_ref().is_some_and(|(log, _)| *log == tag) {
            let read = self.log.take().expect("it was there").1;
            changes = self.handle_log(read, &bytes)?;
        } else if let Some((ask, len)) = self.reads.remove(&tag) {
            self.reading -= len;
            self.handle_contents(ask, bytes);
        }
        self.advance();
        Ok(changes)
    }

    fn handle_log(&mut self, read: LogRead, bytes: &[u8]) -> Result<Vec<Change>, Fault> {
        let want = match read {
            LogRead::Header => {
                let header = Header::parse(bytes)?;
                self.goal = self.goal.max(header.position);
                self.header = Some(header);
                return Ok(Vec::new());
            }
            LogRead::Part(want) => want,
        };
        let handled = self.files.known().replica.handle(&want, bytes);
        match handled {
            Ok(changes) => {
                self.torn = 0;
                Ok(changes)
            }
            Err(MetadataLogError::Torn { .. }) if self.torn < TORN_MAX => {
                // A new epoch begins: its header has its position.
                self.torn += 1;
                self.header = None;
                Ok(vec![Change::Everything])
            }
            Err(MetadataLogError::Torn { .. }) => Err(Fault::Torn),
            Err(error) => Err(error.into()),
        }
    }

    fn handle_contents(&mut self, ask: u32, bytes: Vec<u8>) {
        let Some(question) = self.questions.get_mut(&ask) else { return };
        let RequestStage::Reading(contents) = question.stage else { return };
        if let Some(bytes) = contents.open(bytes) {
            let bytes: Arc<[u8]> = bytes.into();
            if let Some(store) = &self.store {
                // If the disk is full nothing is lost: the bytes are in memory.
                let _stored = store.put_soon(&contents.hash, Arc::clone(&bytes), Kind::Data);
            }
            return self.have(ask, bytes);
        }
        question.tries += 1;
        if question.tries < TRIES {
            self.send_request(ask);
        } else {
            self.settle(ask, &Err(AskError::Changed));
        }
    }

    /// Gives up requests that take too long.
    pub(crate) fn expire(&mut self, now: Instant) {
        let late = |question: &ClientRequest| now - question.since > ANSWER_MAX;
        let late: Vec<_> =
            self.questions.iter().filter(|(_, at)| late(at)).map(|(ask, _)| *ask).collect();
        for ask in late {
            self.settle(ask, &Err(AskError::Gone));
        }
    }

    /// Fails all requests: the client is gone.
    pub(crate) fn abort(&mut self) {
        for ask in self.questions.keys().copied().collect::<Vec<_>>() {
            self.settle(ask, &Err(AskError::Gone));
        }
    }

    fn send_request(&mut self, ask: u32) {
        let question = self.questions.get_mut(&ask).expect("the caller has seen it");
        question.stage = RequestStage::Asked;
        let what = question.what.clone();
        self.needs.push_back(Need::Say { ask, what });
    }

    fn read_up_to(&mut self, position: Position) {
        self.goal = self.goal.max(position);
        self.read_log();
    }

    /// Reads the missing part of the log, one read at a time.
    fn read_log(&mut self) {
        if self.log.is_some() || self.files.known().replica.has_reached(self.goal) {
            return;
        }
        let (read, at, len) = match self.header {
            None => (LogRead::Header, 0, HEADER_LEN as u64),
            Some(header) => {
                let goal = Header { position: self.goal, ..header };
                let want = self.files.known().replica.want(&goal);
                let Some(want) = want else { return };
                (LogRead::Part(want), header.log_at.saturating_add(want.offset), want.len)
            }
        };
        let tag = self.number();
        self.log = Some((tag, read));
        self.needs.push_back(Need::Read { at, len, tag });
    }

    /// Continues with all requests that the log's position has reached.
    fn advance(&mut self) {
        self.read_log();
        let reached = |position: Position| self.files.known().replica.has_reached(position);
        let ready = &mut self.ready;
        self.jobs.retain(|(position, job)| {
            let reached = reached(*position);
            if reached {
                ready.push_back(*job);
            }
            !reached
        });
        let published = |question: &ClientRequest| match question.stage {
            RequestStage::Published(position) => reached(position),
            _ => false,
        };
        let answered: Vec<_> = self.questions.iter().filter(|(_, at)| published(at)).collect();
        let answered: Vec<_> = answered.into_iter().map(|(ask, _)| *ask).collect();
        for ask in answered {
            if !matches!(self.questions[&ask].key, Key::Contents(_)) {
                self.settle(ask, &Ok(()));
            } else if !self.look_for_contents(ask) {
                self.settle(ask, &Err(AskError::Changed));
            }
        }
    }

    /// Takes contents from the store, or reads them if the log says where they are.
    fn look_for_contents(&mut self, ask: u32) -> bool {
        let Key::Contents(node) = self.questions[&ask].key else { return false };
        let contents = self.files.known().replica.contents(node.dev, node.ino, node.version);
        let Some(contents) = contents else { return false };
        let store = self.store.as_ref();
        if let Some(bytes) = store.and_then(|store| store.get(&contents.hash)) {
            self.have(ask, bytes);
            return true;
        }
        if !self.is_as_long(ask, &contents) {
            self.settle(ask, &Err(AskError::Changed));
            return true;
        }
        let tag = self.number();
        self.reads.insert(tag, (ask, contents.len));
        self.held.push_back(tag);
        let question = self.questions.get_mut(&ask).expect("it was there");
        question.stage = RequestStage::Reading(contents);
        true
    }

    /// Whether contents have the length that the log has for the file, if it has one.
    fn is_as_long(&self, ask: u32, contents: &Contents) -> bool {
        let Some(ClientRequest {
            key: Key::Contents(node),
            what: export::Ask::Offer { path, .. },
            ..
        }) = self.questions.get(&ask)
        else {
            return true;
        };
        let is_it = |attr: &export::Attr| {
            (attr.dev, attr.ino, attr.version) == (node.dev, node.ino, node.version)
        };
        match self.files.known().replica.node(path) {
            LookUp::File(attr) if is_it(&attr) => attr.size == contents.len,
            _ => true,
        }
    }

    fn have(&mut self, ask: u32, bytes: Arc<[u8]>) {
        if let Key::Contents(node) = self.questions[&ask].key {
            self.files.known().keep(node, bytes);
        }
        self.settle(ask, &Ok(()));
    }

    fn settle(&mut self, ask: u32, result: &Result<(), AskError>) {
        let Some(question) = self.questions.remove(&ask) else { return };
        self.keys.remove(&question.key);
        for done in question.dones {
            done(result.clone());
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// The client's error number, if Linux defines it: the kernel accepts no others.
fn known_errno(errno: i32) -> i32 {
    if (1..=ERRNO_MAX).contains(&errno) { errno } else { libc::EIO }
}

#[cfg(test)]
mod tests;
