//! The client: modules and calls at a node, and plain one-sided operations on its regions, over one
//! connection that is dialled again when it is lost.
//!
//! A client belongs to one thread at a time and waits in its caller's; a program may have several.
//! It brings no keys: its caller's function dials. What was asked when a connection was lost is
//! asked again, with its number, so that the node executes it once at most; what is known of a
//! write or an atomic that was under way then is said to be unknown.
//!
//! Modules in reading order: `options`, `call` (what is asked for), `window` (requests by number),
//! `state` (what a client knows, without a connection), `link` (the connection), `region` and
//! `verbs` (plain verbs), `local` and `writing` (executions at the client), `place` (where to
//! execute), `ask` (modules, lists, kills), `files` (modules in files), `sleep` (a descriptor to
//! wait on, and the end of a call that waits), `error`.

mod ask;
mod call;
mod error;
mod files;
mod link;
mod local;
mod options;
mod place;
mod region;
mod sleep;
mod state;
mod verbs;
mod window;
mod writing;

pub use call::{ActiveCall, CallTicket, Executed, RegionRun, ResultMemory};
pub use error::ActiveError;
pub use options::{ActiveClientOptions, WaitMode};
pub use place::CallPlace;
pub use region::RemoteRegion;
pub use sleep::ClientStopper;
pub use verbs::{RegionVerb, VerbWhat};
pub use writing::ClientExecution;

use crate::protocol::{ActiveClientId, ActiveRequest, INLINE_MAX, NOTE_MAX};
use error::check_name;
use link::{ClientLink, LinkEvent, LinkLost};
use local::LocalSide;
use outboard_cluster::hub::Exposed;
use outboard_offcode::Outcome;
use outboard_verbs::{Access, AdaptiveSpin, CompChannel, Context, Secured, SgList, SharedSlice};
use place::PlaceChooser;
use ring::rand::{SecureRandom, SystemRandom};
use sleep::{ClientDescriptor, slice};
use state::{ClientState, after};
use std::collections::HashMap;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};
use window::Settled;

/// How a client reaches its node, within a limit: a session with the service `active`, or why there
/// is none.
pub type DialActive = Box<dyn FnMut(Duration) -> Result<Secured, String> + Send>;

/// How long one attempt to connect may take.
const DIAL_LIMIT: Duration = Duration::from_secs(5);
/// After a failed attempt no other is made for this long, and for twice as long after the next.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// See this file's first lines.
pub struct ActiveClient {
    context: Context,
    /// Where the completion queues of all connections say that something has come.
    channel: CompChannel,
    descriptor: Option<ClientDescriptor>,
    stopper: Option<ClientStopper>,
    dial: DialActive,
    options: ActiveClientOptions,
    state: ClientState,
    link: Option<ClientLink>,
    /// Memory for results, and what the service may do there, each until it is withdrawn.
    memories: Vec<Option<(SharedSlice, Access)>>,
    spin: AdaptiveSpin,
    events: Vec<LinkEvent>,
    /// One-sided operations under way, and those that are done.
    verbs: HashMap<u64, Option<SgList>>,
    pause: Duration,
    dial_at: Option<Instant>,
    /// Why the latest connection ended, or was not made.
    why: String,
    connections: u64,
    placement: PlaceChooser,
    local: Option<LocalSide>,
}

impl fmt::Debug for ActiveClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveClient").field("state", &self.state).finish_non_exhaustive()
    }
}

impl ActiveClient {
    /// Connects to a node. All connections use this context; clients of several threads are faster
    /// with a context each.
    ///
    /// # Errors
    /// [`ActiveError::Unreachable`], not later than the options' limit; this machine's.
    pub fn connect(
        context: &Context,
        dial: DialActive,
        options: ActiveClientOptions,
    ) -> Result<Self, ActiveError> {
        let mut client = [0; 16];
        let random = SystemRandom::new().fill(&mut client);
        let why = || "this machine gives no random numbers".to_owned();
        random.map_err(|_| ActiveError::Unreachable { why: why() })?;
        let mut client = Self {
            context: context.clone(),
            channel: context.create_comp_channel()?,
            descriptor: None,
            stopper: None,
            dial,
            options,
            state: ClientState::new(ActiveClientId(client)),
            link: None,
            memories: Vec::new(),
            spin: AdaptiveSpin::default(),
            events: Vec::new(),
            verbs: HashMap::new(),
            pause: PAUSE_MIN,
            dial_at: None,
            why: String::new(),
            connections: 0,
            placement: PlaceChooser::default(),
            local: None,
        };
        let limit = options.limit.min(DIAL_LIMIT);
        let mut connected = client.try_connect(limit);
        for _ in 1..options.attempts {
            if connected.is_err() {
                connected = client.try_connect(limit);
            }
        }
        connected.map(|()| client)
    }

    /// How it waits and for how long, from the next call on.
    pub fn options_mut(&mut self) -> &mut ActiveClientOptions {
        &mut self.options
    }

    /// Connections that were made: one, and one more for each that was lost and made again.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections
    }

    /// Executes an entry and waits for what becomes of it.
    ///
    /// # Errors
    /// [`ActiveError`]. What a module or the node says is an outcome.
    pub fn execute(&mut self, call: &ActiveCall<'_>) -> Result<Outcome, ActiveError> {
        let ticket = self.submit(call)?;
        self.finish(ticket).map(|executed| executed.outcome)
    }

    /// Begins a call. Calls that are begun one after the other travel together, with the next
    /// [`poll`](Self::poll) or [`finish`](Self::finish), or when there are many. They may be
    /// executed in another order.
    ///
    /// # Errors
    /// The caller's mistakes, and [`ActiveError::WindowFull`].
    pub fn submit(&mut self, call: &ActiveCall<'_>) -> Result<CallTicket, ActiveError> {
        check_name("an entry's name", call.entry)?;
        if call.args.len() > INLINE_MAX {
            let (what, found) = ("arguments", call.args.len());
            return Err(ActiveError::TooLong { what, found, limit: INLINE_MAX });
        }
        if let Some((memory, range)) = &call.result {
            let known = self.memories.get(memory.0).and_then(Option::as_ref);
            let size = known.ok_or(ActiveError::NotOwn { what: "memory for results" })?.0.len();
            if range.start > range.end || range.end > size {
                let (at, len) = (range.start as u64, range.len() as u64);
                let what = "the memory for results".to_owned();
                return Err(ActiveError::Outside { what, at, len, size: size as u64 });
            }
        }
        let has_room = self.state.has_room(call.entry.len() + call.args.len());
        if self.state.window.len() >= self.options.in_flight || !has_room {
            return Err(ActiveError::WindowFull { limit: self.options.in_flight });
        }
        self.state.submit(call, self.deadline())
    }

    /// The next call that is over, if there is one. Never waits, besides for a connection that must
    /// be made again.
    ///
    /// # Errors
    /// [`ActiveError`]: this machine's.
    pub fn poll(&mut self) -> Result<Option<Executed>, ActiveError> {
        if let Some(executed) = self.state.window.take_call() {
            // A caller that takes all that is over before it waits sends what it begins meanwhile
            // together.
            if !self.state.window.has_over() {
                self.flush_if_due()?;
            }
            return Ok(Some(executed));
        }
        let now = Instant::now();
        self.turn(now)?;
        self.state.expire(now);
        Ok(self.state.window.take_call())
    }

    /// Sends what was begun, if there is a connection; what has come is taken later. Whoever waits
    /// for nothing need not look for anything.
    ///
    /// # Errors
    /// [`ActiveError`]: this machine's.
    pub fn send_begun(&mut self) -> Result<(), ActiveError> {
        self.flush_if_due()
    }

    /// What its connections are served by.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Waits for the next call that is over; `None` when the limit is.
    ///
    /// # Errors
    /// As [`Self::poll`], and [`ActiveError::Unreachable`].
    pub fn next(&mut self, limit: Duration) -> Result<Option<Executed>, ActiveError> {
        let deadline = after(Instant::now(), limit);
        loop {
            if let Some(executed) = self.state.window.take_call() {
                return Ok(Some(executed));
            }
            let now = Instant::now();
            self.state.expire(now);
            if now >= deadline {
                return Ok(self.state.window.take_call());
            }
            self.step(deadline)?;
        }
    }

    /// Waits until a call is over.
    ///
    /// # Errors
    /// [`ActiveError::TimedOut`], [`ActiveError::Unreachable`], this machine's.
    pub fn finish(&mut self, ticket: CallTicket) -> Result<Executed, ActiveError> {
        match self.settled(ticket.0)? {
            Settled::Executed(executed) => Ok(executed),
            _ => Err(ActiveError::NotOwn { what: "call" }),
        }
    }

    /// Says something to the backend of a region, with the next batch; `false`: there is no
    /// connection, and nothing was said. Whoever has something to say in each connection looks at
    /// [`connections`](Self::connections).
    ///
    /// # Errors
    /// [`ActiveError::TooLong`].
    pub fn note(&mut self, bytes: &[u8]) -> Result<bool, ActiveError> {
        if bytes.len() > NOTE_MAX {
            let (what, found) = ("a note", bytes.len());
            return Err(ActiveError::TooLong { what, found, limit: NOTE_MAX });
        }
        if self.link.is_some() {
            self.state.append(&ActiveRequest::Note { bytes });
        }
        Ok(self.link.is_some())
    }

    /// The next thing that the backend of a region has said, if something has come. Notices of a
    /// connection that was lost are lost.
    pub fn take_notice(&mut self) -> Option<Vec<u8>> {
        self.state.notices.pop_front()
    }

    /// Lets the service write results into memory, until it is [withdrawn](Self::withdraw).
    ///
    /// # Errors
    /// This machine's.
    pub fn expose(&mut self, memory: SharedSlice) -> Result<ResultMemory, ActiveError> {
        self.expose_with(memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE)
    }

    /// As [`Self::expose`], and lets it read the memory as well, for modules and services that are
    /// told where it is ([`Self::exposed`]).
    ///
    /// # Errors
    /// This machine's.
    pub fn expose_both_ways(&mut self, memory: SharedSlice) -> Result<ResultMemory, ActiveError> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        self.expose_with(memory, access)
    }

    /// Where the service finds memory on the present connection; it is elsewhere on the next one.
    /// `None` while there is no connection, and for memory that was withdrawn.
    #[must_use]
    pub fn exposed(&self, memory: ResultMemory) -> Option<Exposed> {
        self.state.results.get(memory.0).copied().flatten()
    }

    fn expose_with(
        &mut self,
        memory: SharedSlice,
        access: Access,
    ) -> Result<ResultMemory, ActiveError> {
        let free = self.memories.iter().position(Option::is_none);
        let at = free.unwrap_or(self.memories.len());
        if free.is_none() {
            self.memories.push(None);
            self.state.results.push(None);
        }
        if let Some(link) = &mut self.link {
            self.state.results[at] = Some(link.expose(memory.clone(), access)?);
        }
        self.memories[at] = Some((memory, access));
        Ok(ResultMemory(at))
    }

    /// Takes memory for results back: once this returns the service does not reach it any more. Of
    /// calls under way whose results go there, only those that have none succeed.
    pub fn withdraw(&mut self, memory: ResultMemory) {
        let Some(place) = self.memories.get_mut(memory.0) else { return };
        *place = None;
        let exposed = self.state.results[memory.0].take();
        if let (Some(link), Some(exposed)) = (&mut self.link, exposed) {
            link.withdraw(exposed);
        }
    }

    /// Waits until a request is answered.
    fn settled(&mut self, number: u64) -> Result<Settled, ActiveError> {
        let deadline = match self.state.window.waiting(number) {
            Some(request) => request.deadline,
            None => Instant::now(),
        };
        loop {
            if let Some(settled) = self.state.window.take(number) {
                return Ok(settled);
            }
            if self.state.window.waiting(number).is_none() {
                return Err(ActiveError::NotOwn { what: "request under way" });
            }
            let stepped = self.step(deadline);
            if stepped.is_err() || Instant::now() >= deadline {
                let late = self.state.window.take(number);
                return late.map_or_else(|| self.give_up(number, stepped), Ok);
            }
        }
    }

    fn give_up<T>(&mut self, number: u64, why: Result<(), ActiveError>) -> Result<T, ActiveError> {
        let was_sent = self.state.abandon(number);
        match why {
            // What was sent on an earlier connection may have been done.
            Err(ActiveError::Unreachable { .. }) if was_sent => {}
            why => why?,
        }
        Err(ActiveError::TimedOut { limit: self.options.limit })
    }

    fn deadline(&self) -> Instant {
        after(Instant::now(), self.options.limit)
    }

    /// Sends what is to be sent, and waits until something has come or the deadline has.
    fn step(&mut self, deadline: Instant) -> Result<(), ActiveError> {
        self.check_stopped()?;
        self.connect_again(deadline)?;
        let sent = self.flush(deadline);
        let until = slice(self.stopper.as_ref(), deadline);
        let mut events = std::mem::take(&mut self.events);
        let came = sent.and_then(|()| match &mut self.link {
            Some(link) if events.is_empty() => {
                link.wait((self.options.wait, &mut self.spin), until, &mut events)
            }
            _ => Ok(()),
        });
        self.handle(events, came);
        Ok(())
    }

    /// Sends what is to be sent, and takes what is there.
    fn turn(&mut self, now: Instant) -> Result<(), ActiveError> {
        if self.link.is_none() {
            if self.dial_at.is_some_and(|at| now < at) {
                return Ok(());
            }
            // The next attempt says it again.
            let _failed = self.try_connect(DIAL_LIMIT.min(self.options.limit));
        }
        let sent = self.flush(after(now, self.options.limit));
        let mut events = std::mem::take(&mut self.events);
        let came =
            sent.and_then(|()| self.link.as_mut().map_or(Ok(()), |link| link.poll(&mut events)));
        self.handle(events, came);
        Ok(())
    }

    /// Sends what is to be sent if there is a connection.
    fn flush_if_due(&mut self) -> Result<(), ActiveError> {
        if self.link.is_some() {
            let sent = self.flush(self.deadline());
            let events = std::mem::take(&mut self.events);
            self.handle(events, sent);
        }
        Ok(())
    }

    fn flush(&mut self, deadline: Instant) -> Result<(), LinkLost> {
        let Some(link) = &mut self.link else { return Ok(()) };
        self.state.loaded.drain(..).for_each(|exposed| link.withdraw(exposed));
        for (number, module) in std::mem::take(&mut self.state.loads) {
            ask::send_load(&mut self.state, link, number, module)?;
        }
        while let Some(batch) = self.state.next_batch() {
            while !link.has_room() {
                let until = slice(self.stopper.as_ref(), deadline);
                link.wait((self.options.wait, &mut self.spin), until, &mut self.events)?;
                if Instant::now() >= deadline
                    || self.stopper.as_ref().is_some_and(|s| s.is_stopped())
                {
                    return Err(LinkLost("the service takes nothing more".into()));
                }
            }
            link.send(&batch)?;
            self.state.recycle(batch);
        }
        Ok(())
    }

    fn handle(&mut self, mut events: Vec<LinkEvent>, came: Result<(), LinkLost>) {
        let mut came = came;
        for event in events.drain(..) {
            match event {
                LinkEvent::Batch(buffer, len) => {
                    let deadline = self.deadline();
                    let handled = self.state.handle(&buffer[..len], deadline);
                    let handled = handled.map_err(|error| LinkLost(error.to_string()));
                    let handled = match (self.state.is_flooded, self.state.outdated) {
                        (true, _) => {
                            Err(LinkLost("the node says more than this side takes".into()))
                        }
                        (_, Some(epoch)) => Err(LinkLost(format!(
                            "the server has epoch {epoch}, and was replaced by a later one"
                        ))),
                        _ => handled,
                    };
                    let again = match &self.link {
                        Some(link) => link.receive(buffer),
                        None => Ok(()),
                    };
                    came = came.and(handled).and(again);
                }
                LinkEvent::Verb(name, local) => {
                    if let Some(place) = self.verbs.get_mut(&name) {
                        *place = Some(local);
                    }
                }
            }
        }
        self.events = events;
        if let Err(LinkLost(why)) = came {
            self.lose(why);
        }
    }

    fn lose(&mut self, why: String) {
        tracing::debug!(why, "the connection to the service active is lost");
        self.why = why;
        self.link = None;
        // What is done is done; of the others nothing is known.
        self.verbs.retain(|_, done| done.is_some());
        self.state.results.iter_mut().for_each(|exposed| *exposed = None);
        self.state.disconnected();
    }

    /// Makes the connection again, as often as it takes until the deadline.
    fn connect_again(&mut self, deadline: Instant) -> Result<(), ActiveError> {
        while self.link.is_none() {
            self.check_stopped()?;
            let now = Instant::now();
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                return Err(ActiveError::Unreachable { why: self.why.clone() });
            }
            match self.dial_at {
                Some(at) if now < at => {
                    let until = slice(self.stopper.as_ref(), deadline.min(at));
                    thread::sleep(until - now);
                }
                _ => {
                    // The reason is kept.
                    let _failed = self.try_connect(left.min(DIAL_LIMIT));
                }
            }
        }
        Ok(())
    }

    fn try_connect(&mut self, limit: Duration) -> Result<(), ActiveError> {
        let connected = self.connected(limit);
        let now = Instant::now();
        match &connected {
            Ok(()) => (self.dial_at, self.pause) = (Some(now + PAUSE_MIN), PAUSE_MIN),
            Err(error) => {
                self.why = match error {
                    ActiveError::Unreachable { why } => why.clone(),
                    other => other.to_string(),
                };
                self.dial_at = Some(now + self.pause);
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
        }
        connected
    }

    fn connected(&mut self, limit: Duration) -> Result<(), ActiveError> {
        let dialled = (self.dial)(limit);
        let stream = dialled.map_err(|why| ActiveError::Unreachable { why })?;
        let mut link = ClientLink::connect(&self.context, &self.channel, stream, limit)?;
        for (memory, exposed) in self.memories.iter().zip(&mut self.state.results) {
            let memory = memory.clone();
            *exposed = memory.map(|(memory, access)| link.expose(memory, access)).transpose()?;
        }
        self.link = Some(link);
        self.connections += 1;
        self.state.connected(self.deadline());
        Ok(())
    }
}
