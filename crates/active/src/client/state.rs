//! What a client knows and asks, without a connection: batches to be sent, answers that came, what
//! must be asked again when a connection was lost.
//!
//! Opens no connection, reads no clock, waits for nothing.

use super::call::{ActiveCall, CallTicket, Executed, RegionRun};
use super::error::ActiveError;
use super::window::{Asked, PendingCall, PendingRequest, RequestWindow, Settled};
use crate::protocol::{
    ActiveAnswer, ActiveClientId, ActiveRequest, AnswerOutcome, BATCH_MAX, ExecuteRequest,
    PROTOCOL, ResultPlace, UNDER_WAY_MAX,
};
use outboard_cluster::codec::CodecError;
use outboard_cluster::hub::Exposed;
use outboard_offcode::{ModuleHash, Outcome};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a module is loaded for one call, or for one load, before that is given up.
const LOADS_MAX: u32 = 8;
/// Notices that nobody has taken, at most.
const NOTICES_MAX: usize = 4096;
/// Buffers of calls that are kept for later ones.
const SPARE_MAX: usize = 64;

/// A region as this client has it.
#[derive(Debug)]
pub(super) struct RegionState {
    pub(super) name: Arc<str>,
    /// `None` while it is being attached.
    pub(super) attached: Option<AttachedRegion>,
    /// The latest commit that is known.
    seq: u64,
    pub(super) incarnation: Option<u64>,
    /// The latest that was seen.
    pub(super) epoch: u64,
    /// No longer wanted.
    is_dropped: bool,
}

/// A region that is exposed to this connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttachedRegion {
    pub(super) memory: Exposed,
    /// Where its version is.
    pub(super) head: Exposed,
    pub(super) may_write: bool,
}

/// A module that can be loaded when the node does not have it.
#[derive(Clone, Debug)]
pub(super) struct KnownModule {
    pub(super) name: Arc<str>,
    pub(super) bytes: Arc<[u8]>,
}

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct ClientState {
    client: ActiveClientId,
    /// This client's identity, as the service has said.
    pub(super) caller: [u8; 32],
    pub(super) window: RequestWindow,
    pub(super) regions: Vec<RegionState>,
    pub(super) modules: HashMap<ModuleHash, KnownModule>,
    /// What waits for a module to be loaded.
    waiting_for: HashMap<ModuleHash, Vec<u64>>,
    /// Loads to be sent: they may need memory to be exposed.
    pub(super) loads: Vec<(u64, ModuleHash)>,
    /// Memory with modules that are being loaded, by the request's number.
    pub(super) loading: HashMap<u64, Exposed>,
    /// Such memory that is of no use any more.
    pub(super) loaded: Vec<Exposed>,
    /// Where results go, on this connection.
    pub(super) results: Vec<Option<Exposed>>,
    full: VecDeque<Vec<u8>>,
    batch: Vec<u8>,
    is_connected: bool,
    /// Bytes of the calls that are under way.
    under_way: usize,
    spare: Vec<Vec<u8>>,
    /// What a region's backend has said.
    pub(super) notices: VecDeque<Vec<u8>>,
    /// It has said more than is kept.
    pub(super) is_flooded: bool,
    /// The service has an epoch before one that was seen: this one.
    pub(super) outdated: Option<u64>,
}

impl ClientState {
    pub(super) fn new(client: ActiveClientId) -> Self {
        Self {
            client,
            caller: [0; 32],
            window: RequestWindow::new(),
            regions: Vec::new(),
            modules: HashMap::new(),
            waiting_for: HashMap::new(),
            loads: Vec::new(),
            loading: HashMap::new(),
            loaded: Vec::new(),
            results: Vec::new(),
            full: VecDeque::new(),
            batch: Vec::new(),
            is_connected: false,
            under_way: 0,
            spare: Vec::new(),
            notices: VecDeque::new(),
            is_flooded: false,
            outdated: None,
        }
    }

    /// The next batch to be sent.
    pub(super) fn next_batch(&mut self) -> Option<Vec<u8>> {
        let last = || (!self.batch.is_empty()).then(|| std::mem::take(&mut self.batch));
        self.full.pop_front().or_else(last)
    }

    /// Gives the buffer of a batch back.
    pub(super) fn recycle(&mut self, mut batch: Vec<u8>) {
        if self.batch.capacity() == 0 {
            batch.clear();
            self.batch = batch;
        }
    }

    /// Begins a call.
    pub(super) fn submit(
        &mut self,
        call: &ActiveCall<'_>,
        deadline: Instant,
    ) -> Result<CallTicket, ActiveError> {
        let handle = call.region.handle;
        let own = self.regions.get(handle as usize).filter(|own| !own.is_dropped);
        let seen = own.ok_or(ActiveError::NotOwn { what: "region" })?.seq;
        self.under_way += ExecuteRequest::counted(call.entry.len() + call.args.len());
        let mut text = self.spare.pop().unwrap_or_default();
        text.extend_from_slice(call.entry.as_bytes());
        text.extend_from_slice(call.args);
        let limit_us = call
            .limit
            .map_or(0, |limit| u32::try_from(limit.as_micros()).unwrap_or(u32::MAX).max(1));
        let pending = PendingCall {
            handle,
            module: call.module,
            text,
            entry_len: call.entry.len(),
            result: call.result.as_ref().map(|(memory, range)| (memory.0, range.clone())),
            limit_us,
            seen,
            loads: 0,
        };
        let number = self.ask(Asked::Execute(pending), deadline, false);
        Ok(CallTicket(number))
    }

    /// Asks anything; returns the request's number.
    pub(super) fn ask(&mut self, asked: Asked, deadline: Instant, is_internal: bool) -> u64 {
        let request = PendingRequest { asked, deadline, was_sent: false, is_internal };
        let number = self.window.push(request);
        self.send(number);
        number
    }

    /// A new region's handle; its Attach is on its way.
    pub(super) fn attach(&mut self, name: Arc<str>, deadline: Instant) -> (u32, u64) {
        let free = self.regions.iter().position(|region| region.is_dropped);
        let at = free.unwrap_or(self.regions.len());
        let (attached, incarnation) = (None, None);
        let region =
            RegionState { name, attached, seq: 0, incarnation, epoch: 0, is_dropped: false };
        match free {
            Some(at) => self.regions[at] = region,
            None => self.regions.push(region),
        }
        let handle = u32::try_from(at).unwrap_or(u32::MAX);
        (handle, self.ask(Asked::Attach { handle }, deadline, false))
    }

    /// Whether a region was given up.
    pub(super) fn is_dropped(&self, handle: u32) -> bool {
        self.regions.get(handle as usize).is_none_or(|region| region.is_dropped)
    }

    /// Whether none of the regions was given up.
    pub(super) fn is_full_of_regions(&self) -> bool {
        self.regions.iter().all(|region| !region.is_dropped)
    }

    /// Gives a region up.
    pub(super) fn detach(&mut self, handle: u32) {
        let Some(region) = self.regions.get_mut(handle as usize) else { return };
        (region.is_dropped, region.attached) = (true, None);
        if self.is_connected {
            self.append(&ActiveRequest::Detach { handle });
        }
        self.give_up_calls(handle, "the client has given the region up");
    }

    /// A connection is there: everything that was asked is asked again, what needs a region as soon
    /// as that is attached.
    pub(super) fn connected(&mut self, deadline: Instant) {
        self.disconnected();
        self.is_connected = true;
        self.append(&ActiveRequest::Hello { client: self.client });
        let numbers = self.window.numbers();
        let mut attaching = Vec::new();
        for number in &numbers {
            if let Some(PendingRequest { asked: Asked::Attach { handle }, .. }) =
                self.window.waiting(*number)
            {
                attaching.push(*handle);
            }
        }
        for at in 0..self.regions.len() {
            let handle = u32::try_from(at).unwrap_or(u32::MAX);
            if !self.regions[at].is_dropped && !attaching.contains(&handle) {
                self.ask(Asked::Attach { handle }, deadline, true);
            }
        }
        numbers.into_iter().for_each(|number| self.send(number));
    }

    /// The connection is lost.
    pub(super) fn disconnected(&mut self) {
        self.is_connected = false;
        self.batch.clear();
        self.full.clear();
        self.loads.clear();
        self.loading.clear();
        self.loaded.clear();
        self.waiting_for.clear();
        self.regions.iter_mut().for_each(|region| region.attached = None);
        self.notices.clear();
        (self.is_flooded, self.outdated) = (false, None);
    }

    /// The service's answers.
    pub(super) fn handle(&mut self, batch: &[u8], deadline: Instant) -> Result<(), CodecError> {
        let mut rest = PROTOCOL.open_batch(batch)?;
        while let Some(answer) = PROTOCOL.decode_next::<ActiveAnswer<'_>>(&mut rest)? {
            self.answer(answer, deadline);
        }
        Ok(())
    }

    fn answer(&mut self, answer: ActiveAnswer<'_>, deadline: Instant) {
        match answer {
            ActiveAnswer::Executed { number, seq, outcome } => {
                self.executed(number, seq, &outcome, deadline);
            }
            ActiveAnswer::Welcome { caller } => self.caller = caller,
            ActiveAnswer::Attached { number, memory, head, seq, incarnation, epoch, may_write } => {
                let attached = AttachedRegion { memory, head, may_write };
                self.attached(number, attached, (RegionRun { epoch, incarnation }, seq));
            }
            ActiveAnswer::Loaded { number, module, entries } => {
                self.loaded.extend(self.loading.remove(&number));
                self.settle(number, Settled::Loaded(entries));
                self.loaded(ModuleHash(module));
            }
            ActiveAnswer::NotLoaded { number, missing } => {
                self.loaded.extend(self.loading.remove(&number));
                self.load_before(number, ModuleHash(missing), deadline);
            }
            ActiveAnswer::Modules { number, modules, total } => {
                self.settle(number, Settled::Modules(modules, total));
            }
            ActiveAnswer::Ok { number } => {
                self.settle(number, Settled::Ok);
            }
            ActiveAnswer::Text { number, json } => {
                self.settle(number, Settled::Text(json.to_owned()));
            }
            ActiveAnswer::Notice { .. } if self.notices.len() >= NOTICES_MAX => {
                self.is_flooded = true;
            }
            ActiveAnswer::Notice { bytes } => self.notices.push_back(bytes.to_vec()),
            ActiveAnswer::Refused { number, why } => self.refused(number, why),
        }
    }

    fn executed(&mut self, number: u64, seq: u64, outcome: &AnswerOutcome<'_>, deadline: Instant) {
        let Some(PendingRequest { asked: Asked::Execute(call), was_sent, .. }) =
            self.window.waiting(number)
        else {
            return;
        };
        let module = call.module;
        if let Some(region) = self.regions.get_mut(call.handle as usize) {
            region.seq = region.seq.max(seq);
            if let AnswerOutcome::NoCode = outcome
                && call.loads < LOADS_MAX
                && self.modules.contains_key(&module)
            {
                // Nothing was executed: it is asked for the first time once more.
                (call.loads, call.seen, *was_sent) = (call.loads + 1, region.seq, false);
                return self.wait_for(number, module, deadline);
            }
        }
        self.end_call(number, owned(outcome, module, seq));
    }

    /// A request that is no call is answered.
    fn settle(&mut self, number: u64, settled: Settled) -> Option<PendingRequest> {
        match self.window.waiting(number)?.asked {
            Asked::Execute(_) => None,
            _ => self.window.settle(number, settled),
        }
    }

    /// A call is over.
    fn end_call(&mut self, number: u64, (outcome, written): (Outcome, Option<u64>)) {
        let handle = match self.window.waiting(number).map(|request| &request.asked) {
            Some(Asked::Execute(call)) => Some(call.handle),
            _ => None,
        };
        let run = handle.and_then(|handle| self.run(handle)).unwrap_or_default();
        let executed = Executed { ticket: CallTicket(number), outcome, written, run };
        let settled = self.window.settle(number, Settled::Executed(executed));
        if let Some(PendingRequest { asked: Asked::Execute(call), .. }) = settled {
            self.free(call);
        }
    }

    /// The latest run of a region that is known.
    pub(super) fn run(&self, handle: u32) -> Option<RegionRun> {
        let RegionState { epoch, incarnation, .. } = *self.regions.get(handle as usize)?;
        Some(RegionRun { epoch, incarnation: incarnation? })
    }

    /// A call is not under way any more.
    fn free(&mut self, call: PendingCall) {
        let PendingCall { mut text, .. } = call;
        self.under_way -= ExecuteRequest::counted(text.len());
        if self.spare.len() < SPARE_MAX {
            text.clear();
            self.spare.push(text);
        }
    }

    /// Nobody asks for this answer any more. Whether it may have been asked for.
    pub(super) fn abandon(&mut self, number: u64) -> bool {
        let Some(PendingRequest { asked, was_sent, .. }) = self.window.abandon(number) else {
            return false;
        };
        if let Asked::Execute(call) = asked {
            self.free(call);
        }
        was_sent
    }

    /// Whether another call of so many bytes may be under way.
    pub(super) fn has_room(&self, text_len: usize) -> bool {
        self.under_way + ExecuteRequest::counted(text_len) <= UNDER_WAY_MAX
    }

    /// A call whose time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(number) = self.window.expired(now) {
            match self.window.waiting(number).map(|request| &request.asked) {
                Some(Asked::Execute(_)) => self.end_call(number, (Outcome::Unknown, None)),
                _ => drop(self.window.settle(number, Settled::Refused("no answer in time".into()))),
            }
        }
    }

    fn attached(&mut self, number: u64, attached: AttachedRegion, (run, seq): (RegionRun, u64)) {
        if self.is_outdated(number, run.epoch) {
            self.outdated = Some(run.epoch);
            return;
        }
        let RegionRun { epoch, incarnation } = run;
        let asked = self.settle(number, Settled::Attached).map(|request| request.asked);
        let Some(Asked::Attach { handle }) = asked else { return };
        let Some(region) = self.regions.get_mut(handle as usize) else { return };
        let is_another = region.incarnation.is_some_and(|known| known != incarnation);
        // A later service may not have all that the one before it had committed.
        let is_later = epoch > region.epoch;
        region.seq = if is_another || is_later { seq } else { region.seq.max(seq) };
        (region.incarnation, region.attached) = (Some(incarnation), Some(attached));
        region.epoch = epoch;
        for number in self.calls_on(handle) {
            if let Some(PendingRequest { asked: Asked::Execute(call), .. }) =
                self.window.waiting(number).filter(|_| is_later)
            {
                call.seen = call.seen.min(seq);
            }
            let was_sent = self.window.waiting(number).is_some_and(|request| request.was_sent);
            if is_another && was_sent {
                // Its answer was kept in memory that is no more.
                self.end_call(number, (Outcome::Unknown, None));
            } else {
                self.send(number);
            }
        }
    }

    /// Whether a service that attaches a region was replaced by one that was seen already.
    fn is_outdated(&mut self, number: u64, epoch: u64) -> bool {
        let Some(PendingRequest { asked: Asked::Attach { handle }, .. }) =
            self.window.waiting(number)
        else {
            return false;
        };
        let handle = *handle as usize;
        self.regions.get(handle).is_some_and(|region| epoch < region.epoch)
    }

    /// The numbers of the calls that wait on a region.
    fn calls_on(&mut self, handle: u32) -> Vec<u64> {
        let mut numbers = self.window.numbers();
        numbers.retain(|number| {
            let asked = self.window.waiting(*number).map(|request| &request.asked);
            matches!(asked, Some(Asked::Execute(call)) if call.handle == handle)
        });
        numbers
    }

    fn give_up_calls(&mut self, handle: u32, why: &str) {
        for number in self.calls_on(handle) {
            let was_sent = self.window.waiting(number).is_some_and(|request| request.was_sent);
            let refused = || Outcome::Refused(why.to_owned());
            let outcome = if was_sent { Outcome::Unknown } else { refused() };
            self.end_call(number, (outcome, None));
        }
    }

    fn refused(&mut self, number: u64, why: &str) {
        self.loaded.extend(self.loading.remove(&number));
        let settled = self.settle(number, Settled::Refused(why.to_owned()));
        match settled.map(|request| request.asked) {
            Some(Asked::Attach { handle }) => {
                if let Some(region) = self.regions.get_mut(handle as usize) {
                    (region.is_dropped, region.attached) = (true, None);
                }
                self.give_up_calls(handle, why);
            }
            Some(Asked::Load { module, .. }) => self.not_loaded(module, why),
            _ => {}
        }
    }

    /// A request goes on when the module is loaded.
    fn wait_for(&mut self, number: u64, module: ModuleHash, deadline: Instant) {
        let waiting = self.waiting_for.entry(module).or_default();
        waiting.push(number);
        if waiting.len() == 1 {
            self.ask(Asked::Load { module, tries: 0 }, deadline, true);
        }
    }

    fn loaded(&mut self, module: ModuleHash) {
        let waiting = self.waiting_for.remove(&module);
        waiting.into_iter().flatten().for_each(|number| self.send(number));
    }

    fn not_loaded(&mut self, module: ModuleHash, why: &str) {
        for number in self.waiting_for.remove(&module).into_iter().flatten() {
            match self.window.waiting(number).map(|request| &request.asked) {
                Some(Asked::Execute(_)) => {
                    self.end_call(number, (Outcome::Refused(why.to_owned()), None));
                }
                _ => self.refused(number, why),
            }
        }
    }

    /// A module needs another one, which is loaded first if this client knows it.
    fn load_before(&mut self, number: u64, missing: ModuleHash, deadline: Instant) {
        let Some(PendingRequest { asked: Asked::Load { tries, .. }, .. }) =
            self.window.waiting(number)
        else {
            return;
        };
        *tries += 1;
        if *tries <= LOADS_MAX && self.modules.contains_key(&missing) {
            return self.wait_for(number, missing, deadline);
        }
        self.refused(number, &format!("it imports module {missing}, which is not loaded"));
    }

    /// Sends a request, or again, if it can be sent now.
    fn send(&mut self, number: u64) {
        if !self.is_connected {
            return;
        }
        let Some(request) = self.window.waiting(number) else { return };
        let again = request.was_sent;
        let old = self.batch.len();
        match &request.asked {
            Asked::Execute(call) => {
                let region = self.regions.get(call.handle as usize);
                if region.is_none_or(|region| region.attached.is_none()) {
                    return;
                }
                let results = &self.results;
                let place = call.place(|index, range| {
                    let all = results.get(index).copied().flatten();
                    let part = all.and_then(|all| all.part(range.start as u64, range.len() as u64));
                    part.map_or(ResultPlace::Inline, ResultPlace::Memory)
                });
                let execute = ExecuteRequest {
                    number,
                    retried_since: again.then_some(call.seen),
                    handle: call.handle,
                    module: call.module.0,
                    entry: call.entry(),
                    args: call.args(),
                    result: place,
                    limit_us: call.limit_us,
                };
                PROTOCOL.append(&ActiveRequest::Execute(execute), &mut self.batch);
            }
            Asked::Attach { handle } => {
                let Some(region) = self.regions.get(*handle as usize) else { return };
                let request = ActiveRequest::Attach {
                    number,
                    handle: *handle,
                    region: &region.name,
                    epoch: region.epoch,
                };
                PROTOCOL.append(&request, &mut self.batch);
            }
            Asked::Load { module, .. } => self.loads.push((number, *module)),
            Asked::Other(bytes) => {
                let behind = if self.batch.is_empty() { &bytes[..] } else { &bytes[1..] };
                self.batch.extend_from_slice(behind);
            }
        }
        request.was_sent = true;
        self.cut(old);
    }

    /// Appends a request that nothing is kept of.
    pub(super) fn append(&mut self, request: &ActiveRequest<'_>) {
        let old = self.batch.len();
        PROTOCOL.append(request, &mut self.batch);
        self.cut(old);
    }

    /// What was appended behind the first `old` bytes goes into a batch of its own if this one has
    /// become too long.
    fn cut(&mut self, old: usize) {
        if self.batch.len() > BATCH_MAX && old > 0 {
            let mut next = self.batch[..1].to_vec();
            next.extend_from_slice(&self.batch[old..]);
            self.batch.truncate(old);
            self.full.push_back(std::mem::replace(&mut self.batch, next));
        }
    }
}

/// An outcome that outlives its message, and how many bytes are in the caller's memory.
fn owned(outcome: &AnswerOutcome<'_>, module: ModuleHash, seq: u64) -> (Outcome, Option<u64>) {
    let text = |text: &str| text.to_owned();
    let outcome = match *outcome {
        AnswerOutcome::Done(result) => Outcome::Done { result: result.to_vec(), seq },
        AnswerOutcome::Written(len) => {
            return (Outcome::Done { result: Vec::new(), seq }, Some(len));
        }
        AnswerOutcome::Failed { code, text } => Outcome::Failed { code, text: text.to_owned() },
        AnswerOutcome::NoCode => Outcome::NoCode(module),
        AnswerOutcome::NoEntry(entry) => Outcome::NoEntry(text(entry)),
        AnswerOutcome::Trap(why) => Outcome::Trap(text(why)),
        AnswerOutcome::Timeout(why) => Outcome::Timeout(text(why)),
        AnswerOutcome::Killed => Outcome::Killed,
        AnswerOutcome::Conflict => Outcome::Conflict,
        AnswerOutcome::Busy(why) => Outcome::Busy(text(why)),
        AnswerOutcome::Refused(why) => Outcome::Refused(text(why)),
        AnswerOutcome::Unknown => Outcome::Unknown,
        AnswerOutcome::Machine(why) => Outcome::Machine(text(why)),
    };
    (outcome, None)
}

/// What is left of a limit, from now.
pub(super) fn after(now: Instant, limit: Duration) -> Instant {
    // A limit beyond the clock's range means no limit in practice.
    now.checked_add(limit).unwrap_or_else(|| now + Duration::from_secs(86_400))
}

#[cfg(test)]
mod tests;
