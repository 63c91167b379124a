//! Clients that take one lock at the same time, by executions and by plain verbs, for leases that
//! pass: some holders sleep too long, some never release. What the lock protects is a fenced word.

use crate::checker::Event;
use crate::clients::{Missing, RandomClient, missing};
use outboard_active_apps::{
    ActiveLock, AppError, FencedWord, LockAnswer, LockGrant, PlainLock, create_locks,
};
use outboard_testkit::look_until;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const ROOT: u64 = 4096;
/// Where the protected word is.
const GUARDED: u64 = 2048;
const NAME: &[u8] = b"the one lock";
/// The longest lease.
const LEASE_MS: u64 = 12;
/// How much a moment of the wall clock may be off when it is made one of the other clock.
const SLACK_MS: u64 = 3;

/// An operation and its result. Each lease has a number of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LockOp {
    /// The lease that begins, and the token; `None`: somebody held it.
    Acquire(u64, Option<u64>),
    /// The token, the lease that begins, and whether the lock was the holder's.
    Renew(u64, u64, bool),
    /// The token, and whether it was the holder's.
    Release(u64, bool),
    /// The holder's token.
    Look(Option<u64>),
    /// A lease passes.
    Pass(u64),
}

/// Who holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holder {
    token: u64,
    lease: u64,
    /// Nobody has acquired it since.
    has_passed: bool,
}

/// The holder, and the latest token.
pub(crate) type LockState = (Option<Holder>, u64);

/// The lock after an operation: see [`crate::checker::is_linearizable`].
pub(crate) fn apply(state: &LockState, op: &LockOp, is_known: bool) -> Option<LockState> {
    let (holder, latest) = *state;
    let is_free = holder.is_none_or(|holder| holder.has_passed);
    let its = |token| holder.filter(|holder| holder.token == token);
    let held = |token, lease| Some(Holder { token, lease, has_passed: false });
    let next = latest + 1;
    match *op {
        LockOp::Acquire(lease, None) if !is_known => is_free.then_some((held(next, lease), next)),
        LockOp::Acquire(lease, Some(token)) => {
            (is_free && token == next).then_some((held(token, lease), token))
        }
        LockOp::Acquire(_, None) => (!is_free).then_some(*state),
        // What was not taken since it passed may be found renewed or released all the same: the
        // moment that was looked at is the request's, not the commit's.
        LockOp::Renew(token, lease, was_its) if was_its || !is_known => {
            its(token).map(|_| (held(token, lease), latest))
        }
        LockOp::Release(token, was_its) if was_its || !is_known => {
            its(token).map(|_| (None, latest))
        }
        LockOp::Renew(token, ..) | LockOp::Release(token, _) => {
            its(token).is_none_or(|holder| holder.has_passed).then_some(*state)
        }
        LockOp::Look(Some(token)) => {
            its(token).is_some_and(|holder| !holder.has_passed).then_some(*state)
        }
        LockOp::Look(None) => is_free.then_some(*state),
        LockOp::Pass(lease) => {
            let holder = holder.filter(|holder| holder.lease == lease)?;
            Some((Some(Holder { has_passed: true, ..holder }), latest))
        }
    }
}

/// An operation on the protected word, and its result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GuardedOp {
    /// Token, value, and whether it was stored.
    Write(u64, u32, bool),
    /// The newest token, and the value.
    Read(u64, u32),
}

/// The newest token that has written, and the value.
pub(crate) type GuardedState = (u64, u32);

/// The word after an operation: no token older than one that has written changes it.
pub(crate) fn apply_guarded(
    state: &GuardedState,
    op: &GuardedOp,
    is_known: bool,
) -> Option<GuardedState> {
    match *op {
        GuardedOp::Read(token, value) => ((token, value) == *state).then_some(*state),
        GuardedOp::Write(token, value, was_stored) if was_stored || !is_known => {
            (token >= state.0).then_some((token, value))
        }
        GuardedOp::Write(token, ..) => (token < state.0).then_some(*state),
    }
}

/// What a client has done with the lock and the word in a round.
#[derive(Default)]
pub(crate) struct LockHistory {
    pub(crate) lock: Vec<Event<LockOp>>,
    pub(crate) guarded: Vec<Event<GuardedOp>>,
}

/// See this file's first lines.
pub(crate) struct LockClient {
    pub(crate) own: RandomClient,
    number: u64,
    active: ActiveLock,
    plain: PlainLock,
    guarded: FencedWord,
    /// The next number of a lease, or of a value: no other client has the same.
    next: u64,
}

impl LockClient {
    pub(crate) fn init(own: &mut RandomClient) {
        create_locks(&mut own.client, &own.region, ROOT, 16).expect("locks");
    }

    pub(crate) fn new(mut own: RandomClient, number: u64) -> Self {
        let active = ActiveLock::open(&mut own.client, &own.region, ROOT, NAME).expect("a module");
        let plain = PlainLock::of(&mut own.client, active.clone()).expect("an entry");
        let guarded = FencedWord::new(&own.region, GUARDED);
        Self { own, number, active, plain, guarded, next: (number + 1) << 24 }
    }

    /// Some attempts to acquire it.
    pub(crate) fn visit(&mut self, times: usize) -> LockHistory {
        let mut history = LockHistory::default();
        for _ in 0..times {
            if self.own.random(6) == 0 {
                self.look(&mut history);
            }
            if let Some(grant) = self.acquire(&mut history) {
                self.hold(grant, &mut history);
            }
            self.pause(1_500);
        }
        history
    }

    /// One attempt, and writes of the protected word with whatever token is the newest, without a
    /// pause.
    pub(crate) fn burst(&mut self, writes: usize) -> LockHistory {
        let mut history = self.visit(1);
        for _ in 0..writes {
            let newest = self.guarded.read(&mut self.own.client).map_err(missing);
            let (Ok((token, _)), begun) = (newest, Instant::now()) else { continue };
            self.store(token, begun, &mut history);
        }
        history
    }

    /// Works under a grant, which may pass meanwhile.
    fn hold(&mut self, grant: LockGrant, history: &mut LockHistory) {
        let mut grant = grant;
        self.write(grant.token, history);
        self.pause(LEASE_MS * 1_500);
        if self.own.random(3) == 0
            && let Some(renewed) = self.renew(&grant, history)
        {
            grant = renewed;
        }
        // Whether or not the lease has passed: a holder cannot know.
        self.write(grant.token, history);
        if self.own.random(3) != 0 {
            self.release(&grant, history);
        }
    }

    fn pause(&mut self, us_max: u64) {
        thread::sleep(Duration::from_micros(self.own.random(us_max)));
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn is_plain(&mut self) -> bool {
        self.own.random(2) == 1
    }

    fn acquire(&mut self, history: &mut LockHistory) -> Option<LockGrant> {
        let (lease, time) = (self.next(), Duration::from_millis(1 + self.own.random(LEASE_MS)));
        let (is_plain, begun, begun_ms) = (self.is_plain(), Instant::now(), wall_ms());
        let (client, owner) = (&mut self.own.client, self.number);
        let answer = match is_plain {
            true => self.plain.acquire(client, owner, time),
            false => self.active.acquire(client, owner, time),
        };
        if let Ok(LockAnswer::Held { grant, .. }) = &answer {
            assert!(grant.expiry_ms + SLACK_MS > begun_ms, "held by a lease that had passed");
        }
        let granted = answer.map(LockAnswer::granted);
        let token = |granted: &Option<LockGrant>| granted.map(|grant| grant.token);
        let op = |granted: &Option<LockGrant>| LockOp::Acquire(lease, token(granted));
        let granted = history.note(LockOp::Acquire(lease, None), begun, granted, op)?;
        history.pass(lease, granted, begun + time);
        granted.ok().flatten()
    }

    fn renew(&mut self, grant: &LockGrant, history: &mut LockHistory) -> Option<LockGrant> {
        let (lease, time) = (self.next(), Duration::from_millis(1 + self.own.random(LEASE_MS)));
        let (is_plain, begun) = (self.is_plain(), Instant::now());
        let client = &mut self.own.client;
        let renewed = match is_plain {
            true => self.plain.renew(client, grant, time),
            false => self.active.renew(client, grant, time),
        };
        let op = |renewed: &Option<LockGrant>| LockOp::Renew(grant.token, lease, renewed.is_some());
        let unknown = LockOp::Renew(grant.token, lease, false);
        let renewed = history.note(unknown, begun, renewed, op)?;
        history.pass(lease, renewed, begun + time);
        renewed.ok().flatten()
    }

    fn release(&mut self, grant: &LockGrant, history: &mut LockHistory) {
        let (is_plain, begun) = (self.is_plain(), Instant::now());
        let client = &mut self.own.client;
        let released = match is_plain {
            true => self.plain.release(client, grant),
            false => self.active.release(client, grant),
        };
        let op = |was_its: &bool| LockOp::Release(grant.token, *was_its);
        history.note(LockOp::Release(grant.token, false), begun, released, op);
    }

    fn look(&mut self, history: &mut LockHistory) {
        let (is_plain, begun) = (self.is_plain(), Instant::now());
        let client = &mut self.own.client;
        let looked = if is_plain { self.plain.look(client) } else { self.active.look(client) };
        let Ok(look) = looked.map_err(missing) else { return };
        let op = LockOp::Look(look.is_held.then_some(look.latest.token));
        history.lock.push(Event { op, begun, ended: Some(Instant::now()) });
    }

    /// Changes the protected word, or does not, and reads it.
    fn write(&mut self, token: u64, history: &mut LockHistory) {
        self.store(token, Instant::now(), history);
        let (begun, client) = (Instant::now(), &mut self.own.client);
        if let Ok((token, value)) = self.guarded.read(client).map_err(missing) {
            let op = GuardedOp::Read(token, value);
            history.guarded.push(Event { op, begun, ended: Some(Instant::now()) });
        }
    }

    fn store(&mut self, token: u64, begun: Instant, history: &mut LockHistory) {
        let value = u32::try_from(self.next()).expect("few");
        let client = &mut self.own.client;
        let came = self.guarded.write(client, token, value).map_err(missing);
        let ended = came.is_ok().then(Instant::now);
        let op = GuardedOp::Write(token, value, came.unwrap_or(false));
        if came != Err(Missing::NotDone) {
            history.guarded.push(Event { op, begun, ended });
        }
    }

    /// Waits until nobody has the lock; the latest token, and the protected word.
    pub(crate) fn until_free(&mut self) -> (u64, GuardedState) {
        let free = || {
            let client = &mut self.own.client;
            let look = self.plain.look(client).map_err(missing).ok()?;
            let guarded = self.guarded.read(client).map_err(missing).ok()?;
            (!look.is_held).then_some((look.latest.token, guarded))
        };
        look_until("the lease passes", free, Option::is_some).expect("just seen")
    }
}

impl LockHistory {
    /// Notes an operation: with its result, or as `unknown` if it may have taken effect. `None`: it
    /// has not; else its result, if that is known.
    fn note<T>(
        &mut self,
        unknown: LockOp,
        begun: Instant,
        came: Result<T, AppError>,
        op: impl Fn(&T) -> LockOp,
    ) -> Option<Result<T, ()>> {
        let ended = Some(Instant::now());
        match came.map_err(missing) {
            Ok(result) => {
                self.lock.push(Event { op: op(&result), begun, ended });
                Some(Ok(result))
            }
            Err(Missing::Unknown) => {
                self.lock.push(Event { op: unknown, begun, ended: None });
                Some(Err(()))
            }
            Err(Missing::NotDone) => None,
        }
    }

    /// A lease, if one was granted or may have been, passes at its end or later.
    fn pass(&mut self, lease: u64, came: Result<Option<LockGrant>, ()>, at_earliest: Instant) {
        let end = match came {
            Ok(None) => return,
            // It may have passed before this thread ran again.
            Ok(Some(grant)) => match (grant.expiry_ms, wall_ms()) {
                (end, now) if end > now => Instant::now() + Duration::from_millis(end - now),
                (end, now) => Instant::now() - Duration::from_millis(now - end),
            },
            Err(()) => at_earliest,
        };
        let begun = end - Duration::from_millis(SLACK_MS);
        self.lock.push(Event { op: LockOp::Pass(lease), begun, ended: None });
    }
}

/// This machine's wall clock, by which leases pass.
fn wall_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    u64::try_from(now.as_millis()).expect("a clock")
}
