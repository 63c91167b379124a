//! How a server gets to know a client's files: questions, the catalogue's log, contents.
//!
//! A value without network or clock: [`Fetch::poll`] says what to ask the client or to read from
//! its memory, answers are handed in. Equal questions are asked once. What is read counts only
//! once it has proved itself: log records carry checks, contents hash to what was announced.

use super::files::Files;
use crate::protocol::TicketNumber;
use crate::view::{Ask, AskError, Done, NodeId};
use outboard_export::{self as export, Answer, CatalogueError, Change, Contents, HEADER_LEN};
use outboard_export::{Header, LookUp, Position, Want};
use outboard_store::{Kind, Store};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a compiler waits for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How often contents are asked for whose snapshot was overwritten meanwhile.
const TRIES: u32 = 4;
/// How often a log is read that was overwritten meanwhile.
const TORN_MAX: u32 = 8;

/// The largest error number of Linux.
const ERRNO_MAX: i32 = libc::EHWPOISON;
/// Octets of contents that are read at once, at most, unless it is a single file.
const READING_MAX: u64 = 256 << 20;

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Ask the client.
    Say { ask: u32, what: export::Ask },
    /// Read from its memory.
    Read { at: u64, len: u64, tag: u64 },
}

/// Why a client is not to be served any longer: it breaks the rules.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    #[error("its catalogue is overwritten faster than it can be read")]
    Torn,
    #[error("it answers what it was not asked")]
    Answer,
}

/// See the [module](self).
pub(crate) struct Fetch {
    files: Arc<Files>,
    store: Option<Arc<Store>>,
    header: Option<Header>,
    goal: Position,
    log: Option<(u64, LogRead)>,
    torn: u32,
    questions: HashMap<u32, Question>,
    keys: HashMap<Key, u32>,
    /// Contents that are read, or will be: whose they are, and how long.
    reads: HashMap<u64, (u32, u64)>,
    /// Reads of contents that wait for others to end.
    held: VecDeque<u64>,
    /// Octets of contents that are being read.
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

/// What makes questions equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    List(Vec<u8>),
    Contents(NodeId),
}

struct Question {
    key: Key,
    what: export::Ask,
    dones: Vec<Done>,
    since: Instant,
    tries: u32,
    stage: Stage,
}

enum Stage {
    /// The client was asked.
    Asked,
    /// It answered that the log says it.
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

    /// The next thing to be done.
    pub(crate) fn poll(&mut self) -> Option<Need> {
        self.needs.pop_front().or_else(|| self.poll_contents())
    }

    /// The next contents to be read, if there is room for them.
    fn poll_contents(&mut self) -> Option<Need> {
        while let Some(&tag) = self.held.front() {
            let (ask, len) = self.reads.get(&tag).copied()?;
            let Some(Stage::Reading(contents)) = self.questions.get(&ask).map(|at| &at.stage)
            else {
                // Given up meanwhile.
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

    /// The next job for which enough is known.
    pub(crate) fn poll_ready(&mut self) -> Option<TicketNumber> {
        self.ready.pop_front()
    }

    /// Octets read from the client's memory so far.
    pub(crate) fn fetched(&self) -> u64 {
        self.fetched
    }

    /// A job may run once everything up to a position is known.
    pub(crate) fn reach(&mut self, position: Position, job: TicketNumber) {
        self.jobs.push((position, job));
        self.read_up_to(position);
        self.advance();
    }

    /// The view wants to know something.
    pub(crate) fn ask(&mut self, ask: Ask, done: Done, now: Instant) {
        let (key, what) = match ask {
            Ask::List { dir } => (Key::List(dir.clone()), export::Ask::List { dir }),
            Ask::Contents { path, node } => {
                (Key::Contents(node), export::Ask::Offer { path, version: node.version })
            }
        };
        if let Some(question) = self.keys.get(&key).and_then(|ask| self.questions.get_mut(ask)) {
            return question.dones.push(done);
        }
        let ask = u32::try_from(self.number() & u64::from(u32::MAX)).expect("masked");
        let (dones, stage) = (vec![done], Stage::Asked);
        let question = Question { key: key.clone(), what, dones, since: now, tries: 0, stage };
        self.questions.insert(ask, question);
        self.keys.insert(key, ask);
        // Another server may have asked for it already.
        if !self.look_for_contents(ask) {
            self.say(ask);
        }
    }

    /// The client has answered.
    ///
    /// # Errors
    /// It answers what it was not asked.
    pub(crate) fn handle_answer(&mut self, ask: u32, answer: Answer) -> Result<(), Fault> {
        let Some(question) = self.questions.get_mut(&ask) else {
            // One that was given up; others were never asked.
            return if u64::from(ask) <= self.next { Ok(()) } else { Err(Fault::Answer) };
        };
        if !matches!(question.stage, Stage::Asked) {
            return Err(Fault::Answer);
        }
        match answer {
            Answer::Published(position) => {
                question.stage = Stage::Published(position);
                self.read_up_to(position);
            }
            Answer::Changed(position) => {
                self.read_up_to(position);
                self.settle(ask, &Err(AskError::Changed));
            }
            Answer::Withheld => {
                self.settle(ask, &Err(AskError::Refused("it is withheld".into())));
            }
            Answer::TooLarge { len, len_max } => {
                let why = format!("{len} octets, and at most {len_max} are handed out");
                self.settle(ask, &Err(AskError::Refused(why)));
            }
            Answer::Failed(errno) => self.settle(ask, &Err(AskError::Failed(known_errno(errno)))),
        }
        self.advance();
        Ok(())
    }

    /// Something was read from the client's memory. Returns what changed for the kernel's caches.
    ///
    /// # Errors
    /// [`Fault`]: the client is not to be believed.
    pub(crate) fn handle_read(&mut self, tag: u64, octets: Vec<u8>) -> Result<Vec<Change>, Fault> {
        self.fetched += octets.len() as u64;
        let mut changes = Vec::new();
        if self.log.as_ref().is_some_and(|(log, _)| *log == tag) {
            let read = self.log.take().expect("it was there").1;
            changes = self.handle_log(read, &octets)?;
        } else if let Some((ask, len)) = self.reads.remove(&tag) {
            self.reading -= len;
            self.handle_contents(ask, octets);
        }
        self.advance();
        Ok(changes)
    }

    fn handle_log(&mut self, read: LogRead, octets: &[u8]) -> Result<Vec<Change>, Fault> {
        let want = match read {
            LogRead::Header => {
                let header = Header::parse(octets)?;
                self.goal = self.goal.max(header.position);
                self.header = Some(header);
                return Ok(Vec::new());
            }
            LogRead::Part(want) => want,
        };
        let handled = self.files.known().replica.handle(&want, octets);
        match handled {
            Ok(changes) => {
                self.torn = 0;
                Ok(changes)
            }
            Err(CatalogueError::Torn { .. }) if self.torn < TORN_MAX => {
                // A new epoch: its header says where it stands.
                self.torn += 1;
                self.header = None;
                Ok(vec![Change::Everything])
            }
            Err(CatalogueError::Torn { .. }) => Err(Fault::Torn),
            Err(error) => Err(error.into()),
        }
    }

    fn handle_contents(&mut self, ask: u32, octets: Vec<u8>) {
        let Some(question) = self.questions.get_mut(&ask) else { return };
        let Stage::Reading(contents) = question.stage else { return };
        if let Some(octets) = contents.open(octets) {
            let octets: Arc<[u8]> = octets.into();
            if let Some(store) = &self.store {
                // A full disk loses nothing: it is here.
                let _stored = store.put(&contents.hash, Arc::clone(&octets), Kind::Data);
            }
            return self.have(ask, octets);
        }
        question.tries += 1;
        if question.tries < TRIES {
            self.say(ask);
        } else {
            self.settle(ask, &Err(AskError::Changed));
        }
    }

    /// Gives up what takes too long.
    pub(crate) fn expire(&mut self, now: Instant) {
        let late = |question: &Question| now - question.since > ANSWER_MAX;
        let late: Vec<_> =
            self.questions.iter().filter(|(_, at)| late(at)).map(|(ask, _)| *ask).collect();
        for ask in late {
            self.settle(ask, &Err(AskError::Gone));
        }
    }

    /// The client is gone: nobody shall wait for it.
    pub(crate) fn abort(&mut self) {
        for ask in self.questions.keys().copied().collect::<Vec<_>>() {
            self.settle(ask, &Err(AskError::Gone));
        }
    }

    fn say(&mut self, ask: u32) {
        let question = self.questions.get_mut(&ask).expect("the caller has seen it");
        question.stage = Stage::Asked;
        let what = question.what.clone();
        self.needs.push_back(Need::Say { ask, what });
    }

    fn read_up_to(&mut self, position: Position) {
        self.goal = self.goal.max(position);
        self.read_log();
    }

    /// Reads what is missing of the log, one read at a time.
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

    /// Goes on with everything that the log has reached.
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
        let published = |question: &Question| match question.stage {
            Stage::Published(position) => reached(position),
            _ => false,
        };
        let answered: Vec<_> = self.questions.iter().filter(|(_, at)| published(at)).collect();
        let answered: Vec<_> = answered.into_iter().map(|(ask, _)| *ask).collect();
        for ask in answered {
            if matches!(self.questions[&ask].key, Key::List(_)) {
                self.settle(ask, &Ok(()));
            } else if !self.look_for_contents(ask) {
                self.settle(ask, &Err(AskError::Changed));
            }
        }
    }

    /// Takes contents from the store or reads them, if the log says where they are.
    fn look_for_contents(&mut self, ask: u32) -> bool {
        let Key::Contents(node) = self.questions[&ask].key else { return false };
        let contents = self.files.known().replica.contents(node.dev, node.ino, node.version);
        let Some(contents) = contents else { return false };
        let store = self.store.as_ref();
        if let Some(octets) = store.and_then(|store| store.get(&contents.hash)) {
            self.have(ask, octets);
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
        question.stage = Stage::Reading(contents);
        true
    }

    /// Whether contents are as long as the log says that the file is, as far as it says so.
    fn is_as_long(&self, ask: u32, contents: &Contents) -> bool {
        let Some(Question {
            key: Key::Contents(node), what: export::Ask::Offer { path, .. }, ..
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

    fn have(&mut self, ask: u32, octets: Arc<[u8]>) {
        if let Key::Contents(node) = self.questions[&ask].key {
            self.files.known().keep(node, octets);
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

/// The client's error number, if Linux has it: the kernel gets it, and would not take others.
fn known_errno(errno: i32) -> i32 {
    if (1..=ERRNO_MAX).contains(&errno) { errno } else { libc::EIO }
}

#[cfg(test)]
mod tests;
