//! How a server learns of a client's files: requests, reads of the metadata log, reads of contents.
//!
//! A value without network, disk or clock: [`Fetch::poll`] returns what to do next, whose outcome
//! is handed in, and [`Fetch::poll_done`] which of the caller's requests are done. Equal requests
//! are sent once. Data read from the client is used only after a check: log records carry
//! checksums, contents must have the announced hash. As contents may be long, the caller checks
//! them where nothing waits for it.

use crate::error::MetadataLogError;
use crate::header::{ExportHeader, HEADER_LEN};
use crate::mirror::Mirror;
use crate::record::{Answer, Ask, Attr, Contents, FileVersion, Position};
use crate::replica::{Change, LookUp, Want};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a request waits for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How often contents are requested again when their snapshot was overwritten before it was read.
const TRIES: u32 = 4;
/// How often the log is read again when it was overwritten during the read.
const TORN_MAX: u32 = 8;

/// Bytes of contents that are being read at once, at most, unless a single file is longer.
const READING_MAX: u64 = 256 << 20;

/// What the caller wants to know of a client's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchRequest {
    /// All names of a directory.
    List {
        /// Its absolute path.
        dir: Vec<u8>,
    },
    /// A file's contents.
    Contents {
        /// An absolute path of the file.
        path: Vec<u8>,
        /// The state that is wanted.
        file: FileVersion,
    },
    /// Whether there is anything at a path outside what the client exports.
    Name {
        /// The path, which is absolute.
        path: Vec<u8>,
    },
}

/// What the caller is to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Need {
    /// Send a request to the client; its answer goes to [`Fetch::handle_answer`].
    Say {
        /// The number that the answer has to repeat.
        ask: u32,
        /// The request.
        what: Ask,
    },
    /// Look for contents among those that this machine has kept; then call
    /// [`Fetch::handle_found`].
    Find {
        /// The request's number.
        ask: u32,
        /// BLAKE3 of the contents.
        hash: [u8; 32],
    },
    /// Read from the client's memory; the bytes go to [`Fetch::handle_read`].
    Read {
        /// Offset in the exported region.
        at: u64,
        /// Bytes.
        len: u64,
        /// Tells reads apart. Tags count from 1.
        tag: u64,
    },
    /// [Open](Contents::open) contents that were read, which takes time in proportion to their
    /// length; then call [`Fetch::handle_checked`]. What is right may be kept by this machine.
    Check {
        /// The request's number.
        ask: u32,
        /// What they must be.
        contents: Contents,
        /// What was read.
        bytes: Vec<u8>,
    },
}

/// Why a request was not fulfilled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The file has another state by now.
    #[error("the file has changed meanwhile")]
    Changed,
    /// The client's own attempt failed with this error number.
    #[error("the client's system says error {0}")]
    Failed(i32),
    /// The client does not hand it out.
    #[error("the client does not hand it out: {0}")]
    Refused(String),
    /// The client is gone, or took too long.
    #[error("the client does not answer")]
    Gone,
}

/// Why a client is no longer served: it violated the protocol.
#[derive(Debug, thiserror::Error)]
pub enum FetchFault {
    /// Its log is at fault.
    #[error(transparent)]
    MetadataLog(#[from] MetadataLogError),
    /// Its log does not hold still.
    #[error("it overwrites its metadata log faster than it can be read")]
    Torn,
    /// It says something unasked.
    #[error("it answers a request that it was not sent")]
    Answer,
}

/// Fetches one client's files; see the [module](self). `T` is what the caller knows its requests
/// by.
#[derive(Debug)]
pub struct Fetch<T> {
    mirror: Arc<Mirror>,
    header: Option<ExportHeader>,
    goal: Position,
    log: Option<(u64, LogRead)>,
    torn: u32,
    requests: HashMap<u32, ClientRequest<T>>,
    keys: HashMap<RequestKey, u32>,
    /// Contents to be read: the request that they answer, and their length.
    reads: HashMap<u64, (u32, u64)>,
    /// Reads of contents that wait for other reads to end.
    held: VecDeque<u64>,
    /// Contents that are being checked: their length, by request.
    checks: HashMap<u32, u64>,
    /// Bytes of contents that are being read or checked.
    reading: u64,
    reading_max: u64,
    /// What waits for positions in the log.
    waiting: Vec<(Position, T)>,
    done: VecDeque<(T, Result<(), FetchError>)>,
    needs: VecDeque<Need>,
    next: u64,
    fetched: u64,
}

#[derive(Debug)]
enum LogRead {
    Header,
    Part(Want),
}

/// Requests with equal keys are sent once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum RequestKey {
    List(Vec<u8>),
    Contents(FileVersion),
    Name(Vec<u8>),
}

#[derive(Debug)]
struct ClientRequest<T> {
    key: RequestKey,
    what: Ask,
    tags: Vec<T>,
    since: Instant,
    tries: u32,
    stage: RequestStage,
}

#[derive(Debug)]
enum RequestStage {
    /// The request has been sent to the client.
    Asked,
    /// The client answered that the log has the answer.
    Published(Position),
    /// This machine is looked through for contents.
    Finding(Contents),
    /// Contents are being read.
    Reading(Contents),
    /// Contents that were read are being checked.
    Checking,
}

impl<T> Fetch<T> {
    /// Fetches what a mirror lacks.
    #[must_use]
    pub fn new(mirror: Arc<Mirror>) -> Self {
        Self {
            mirror,
            header: None,
            goal: Position::default(),
            log: None,
            torn: 0,
            requests: HashMap::new(),
            keys: HashMap::new(),
            reads: HashMap::new(),
            held: VecDeque::new(),
            checks: HashMap::new(),
            reading: 0,
            reading_max: READING_MAX,
            waiting: Vec::new(),
            done: VecDeque::new(),
            needs: VecDeque::new(),
            next: 0,
            fetched: 0,
        }
    }

    /// What to do next.
    pub fn poll(&mut self) -> Option<Need> {
        self.needs.pop_front().or_else(|| self.poll_contents())
    }

    /// The next contents to be read, if the limit leaves room for them.
    fn poll_contents(&mut self) -> Option<Need> {
        while let Some(&tag) = self.held.front() {
            let (ask, len) = self.reads.get(&tag).copied()?;
            let Some(RequestStage::Reading(contents)) = self.requests.get(&ask).map(|at| &at.stage)
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

    /// The next request that is done, and how.
    pub fn poll_done(&mut self) -> Option<(T, Result<(), FetchError>)> {
        self.done.pop_front()
    }

    /// Bytes read from the client's memory so far.
    #[must_use]
    pub fn fetched(&self) -> u64 {
        self.fetched
    }

    /// Is done once the log is known up to a position.
    pub fn reach(&mut self, position: Position, tag: T) {
        self.waiting.push((position, tag));
        self.read_up_to(position);
        self.advance();
    }

    /// Is done once the mirror knows more, or cannot.
    pub fn request(&mut self, request: FetchRequest, tag: T, now: Instant) {
        let (key, what) = match request {
            FetchRequest::List { dir } => (RequestKey::List(dir.clone()), Ask::List { dir }),
            FetchRequest::Contents { path, file } => {
                (RequestKey::Contents(file), Ask::Offer { path, version: file.version })
            }
            FetchRequest::Name { path } => (RequestKey::Name(path.clone()), Ask::Name { path }),
        };
        if let Some(known) = self.keys.get(&key).and_then(|ask| self.requests.get_mut(ask)) {
            return known.tags.push(tag);
        }
        let ask = u32::try_from(self.number() & u64::from(u32::MAX)).expect("masked");
        let (tags, stage) = (vec![tag], RequestStage::Asked);
        let request = ClientRequest { key: key.clone(), what, tags, since: now, tries: 0, stage };
        self.requests.insert(ask, request);
        self.keys.insert(key, ask);
        // The log may have it already, because another server requested it.
        if !self.look_for_contents(ask) {
            self.send_request(ask);
        }
    }

    /// Handles an answer of the client.
    ///
    /// # Errors
    /// When the client answers a request that was never sent.
    pub fn handle_answer(&mut self, ask: u32, answer: Answer) -> Result<(), FetchFault> {
        let Some(request) = self.requests.get_mut(&ask) else {
            // The request was given up; answers to requests that were never sent are faults.
            return if u64::from(ask) <= self.next { Ok(()) } else { Err(FetchFault::Answer) };
        };
        if !matches!(request.stage, RequestStage::Asked) {
            return Err(FetchFault::Answer);
        }
        match answer {
            Answer::Published(position) => {
                request.stage = RequestStage::Published(position);
                self.read_up_to(position);
            }
            Answer::Changed(position) => {
                self.read_up_to(position);
                self.settle(ask, &Err(FetchError::Changed));
            }
            Answer::Withheld => {
                self.settle(ask, &Err(FetchError::Refused("it is withheld".into())));
            }
            Answer::Directory => {
                let RequestKey::Name(path) = &request.key else { return Err(FetchFault::Answer) };
                self.mirror.lock().note_directory(path);
                self.settle(ask, &Ok(()));
            }
            Answer::TooLarge { len, len_max } => {
                let why = format!("{len} bytes, and at most {len_max} are handed out");
                self.settle(ask, &Err(FetchError::Refused(why)));
            }
            Answer::Failed(errno) => self.settle(ask, &Err(FetchError::Failed(errno))),
        }
        self.advance();
        Ok(())
    }

    /// Handles bytes read from the client's memory. Returns the changes that caches of the mirror
    /// must drop.
    ///
    /// # Errors
    /// [`FetchFault`]: the client violates the protocol.
    pub fn handle_read(&mut self, tag: u64, bytes: Vec<u8>) -> Result<Vec<Change>, FetchFault> {
        self.fetched += bytes.len() as u64;
        let mut changes = Vec::new();
        if self.log.as_ref().is_some_and(|(log, _)| *log == tag) {
            let read = self.log.take().expect("it was there").1;
            changes = self.handle_log(read, &bytes)?;
        } else if let Some((ask, len)) = self.reads.remove(&tag) {
            self.handle_contents(ask, len, bytes);
        }
        self.advance();
        Ok(changes)
    }

    fn handle_log(&mut self, read: LogRead, bytes: &[u8]) -> Result<Vec<Change>, FetchFault> {
        let want = match read {
            LogRead::Header => {
                let header = ExportHeader::parse(bytes)?;
                self.goal = self.goal.max(header.position);
                self.header = Some(header);
                return Ok(Vec::new());
            }
            LogRead::Part(want) => want,
        };
        let handled = self.mirror.lock().replica.handle(&want, bytes);
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
            Err(MetadataLogError::Torn { .. }) => Err(FetchFault::Torn),
            Err(error) => Err(error.into()),
        }
    }

    fn handle_contents(&mut self, ask: u32, len: u64, bytes: Vec<u8>) {
        match self.requests.get_mut(&ask).map(|request| &mut request.stage) {
            Some(stage @ &mut RequestStage::Reading(contents)) => {
                *stage = RequestStage::Checking;
                self.checks.insert(ask, len);
                self.needs.push_back(Need::Check { ask, contents, bytes });
            }
            // The request was given up meanwhile.
            _ => self.reading -= len,
        }
    }

    /// Handles contents that were checked: they are none if they are not what they must be.
    pub fn handle_checked(&mut self, ask: u32, checked: Option<Arc<[u8]>>) {
        let Some(len) = self.checks.remove(&ask) else { return };
        self.reading -= len;
        let Some(request) = self.requests.get_mut(&ask) else { return };
        if let Some(bytes) = checked {
            return self.have(ask, bytes);
        }
        request.tries += 1;
        if request.tries < TRIES {
            self.send_request(ask);
        } else {
            self.settle(ask, &Err(FetchError::Changed));
        }
    }

    /// Gives up requests that take too long.
    pub fn expire(&mut self, now: Instant) {
        let late = |request: &ClientRequest<T>| now - request.since > ANSWER_MAX;
        let late: Vec<_> =
            self.requests.iter().filter(|(_, at)| late(at)).map(|(ask, _)| *ask).collect();
        for ask in late {
            self.settle(ask, &Err(FetchError::Gone));
        }
    }

    /// Fails all requests: the client is gone.
    pub fn abort(&mut self) {
        for ask in self.requests.keys().copied().collect::<Vec<_>>() {
            self.settle(ask, &Err(FetchError::Gone));
        }
    }

    fn send_request(&mut self, ask: u32) {
        let request = self.requests.get_mut(&ask).expect("the caller has seen it");
        request.stage = RequestStage::Asked;
        let what = request.what.clone();
        self.needs.push_back(Need::Say { ask, what });
    }

    fn read_up_to(&mut self, position: Position) {
        self.goal = self.goal.max(position);
        self.read_log();
    }

    /// Reads the missing part of the log, one read at a time.
    fn read_log(&mut self) {
        if self.log.is_some() || self.mirror.lock().replica.has_reached(self.goal) {
            return;
        }
        let (read, at, len) = match self.header {
            None => (LogRead::Header, 0, HEADER_LEN as u64),
            Some(header) => {
                let goal = ExportHeader { position: self.goal, ..header };
                let want = self.mirror.lock().replica.want(&goal);
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
        let state = self.mirror.lock();
        let reached = |position: &Position| state.replica.has_reached(*position);
        let arrived = self.waiting.extract_if(.., |(position, _)| reached(position));
        self.done.extend(arrived.map(|(_, tag)| (tag, Ok(()))));
        let published = |request: &ClientRequest<T>| match &request.stage {
            RequestStage::Published(position) => reached(position),
            _ => false,
        };
        let answered: Vec<_> = self.requests.iter().filter(|(_, at)| published(at)).collect();
        let answered: Vec<_> = answered.into_iter().map(|(ask, _)| *ask).collect();
        drop(state);
        for ask in answered {
            if !matches!(self.requests[&ask].key, RequestKey::Contents(_)) {
                self.settle(ask, &Ok(()));
            } else if !self.look_for_contents(ask) {
                self.settle(ask, &Err(FetchError::Changed));
            }
        }
    }

    /// Has contents looked for if the log says where they are.
    fn look_for_contents(&mut self, ask: u32) -> bool {
        let RequestKey::Contents(file) = self.requests[&ask].key else { return false };
        let contents = self.mirror.lock().replica.contents(file.dev, file.ino, file.version);
        let Some(contents) = contents else { return false };
        if !self.is_as_long(ask, &contents) {
            self.settle(ask, &Err(FetchError::Changed));
            return true;
        }
        let request = self.requests.get_mut(&ask).expect("it was there");
        request.stage = RequestStage::Finding(contents);
        self.needs.push_back(Need::Find { ask, hash: contents.hash });
        true
    }

    /// Handles contents that this machine has kept, or that it has not.
    pub fn handle_found(&mut self, ask: u32, found: Option<Arc<[u8]>>) {
        let Some(request) = self.requests.get_mut(&ask) else { return };
        let RequestStage::Finding(contents) = request.stage else { return };
        if let Some(bytes) = found.filter(|bytes| bytes.len() as u64 == contents.len) {
            return self.have(ask, bytes);
        }
        request.stage = RequestStage::Reading(contents);
        let tag = self.number();
        self.reads.insert(tag, (ask, contents.len));
        self.held.push_back(tag);
    }

    /// Whether contents have the length that the log has for the file, if it has one.
    fn is_as_long(&self, ask: u32, contents: &Contents) -> bool {
        let Some(ClientRequest {
            key: RequestKey::Contents(file),
            what: Ask::Offer { path, .. },
            ..
        }) = self.requests.get(&ask)
        else {
            return true;
        };
        let is_it =
            |attr: &Attr| (attr.dev, attr.ino, attr.version) == (file.dev, file.ino, file.version);
        match self.mirror.lock().replica.node(path) {
            LookUp::File(attr) if is_it(&attr) => attr.size == contents.len,
            _ => true,
        }
    }

    fn have(&mut self, ask: u32, bytes: Arc<[u8]>) {
        if let RequestKey::Contents(file) = self.requests[&ask].key {
            self.mirror.lock().keep(file, bytes);
        }
        self.settle(ask, &Ok(()));
    }

    fn settle(&mut self, ask: u32, result: &Result<(), FetchError>) {
        let Some(request) = self.requests.remove(&ask) else { return };
        self.keys.remove(&request.key);
        self.done.extend(request.tags.into_iter().map(|tag| (tag, result.clone())));
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests;
