//! A lock (`modules/lock/lock.h`) that is acquired and released by plain verbs or by executions:
//! by one client, where a second owner is refused behind each grant, or by several clients, each in
//! a thread of its own, that try until they are granted.

use crate::Failure;
use crate::list::Side;
use crate::session::connect;
use crate::shipped::{ROOT, ShippedModule, word, words};
use crate::timing::{Timing, milliseconds};
use serde_json::{Value, json};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const ENTRIES: u64 = 16;
const NAME: &[u8] = b"the lock";
/// Longer than any measurement.
const LEASE_NS: u64 = 3_600_000_000_000;
const EPOCH_MS: u64 = 1_577_836_800_000;
const MS: u64 = 1_000_000;
const ENTRY: usize = 128;
const EXPIRY_MASK: u64 = (1 << 40) - 1;
const TOKEN_MASK: u64 = 0xff_ffff;
const GRANTED: u64 = 1;

/// An owner, who uses one client.
struct LockOwner {
    module: ShippedModule,
    entry: u64,
    round_trips: u64,
}

/// A grant: the lock's word, if plain verbs have made it, and the token.
#[derive(Clone, Copy)]
struct Grant {
    word: u64,
    token: u64,
}

impl LockOwner {
    fn new(host: &str, modules: &str, wait: &str) -> Result<Self, Failure> {
        let module = ShippedModule::load(connect(host, "list", wait)?, modules, "lock")?;
        Ok(Self { module, entry: 0, round_trips: 0 })
    }

    fn call(&mut self, entry: &str, args: &[u64]) -> Result<Vec<u8>, Failure> {
        self.round_trips += 1;
        let mut args = words(args);
        args.extend(NAME);
        self.module.call(entry, &args)
    }

    fn locate(&mut self) -> Result<(), Failure> {
        self.entry = word(&self.call("locate", &[ROOT])?, 0)?;
        Ok(())
    }

    /// One attempt; `None`: somebody else has the lock.
    fn acquire(&mut self, side: Side) -> Result<Option<Grant>, Failure> {
        if side == Side::Active {
            let answer = self.call("acquire", &[ROOT, 1, LEASE_NS])?;
            let token = word(&answer, 8)?;
            return Ok((word(&answer, 0)? == GRANTED).then_some(Grant { word: 0, token }));
        }
        let ShippedModule { client, region, .. } = &mut self.module;
        self.round_trips += 1;
        let entry = region.read(client, self.entry, ENTRY)?;
        let (from, hint) = (word(&entry, 0)?, word(&entry, 8)?);
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        let now_ms = u64::try_from(now_ms)? - EPOCH_MS;
        if from & EXPIRY_MASK > now_ms {
            return Ok(None);
        }
        let token = hint + ((from >> 40).wrapping_sub(hint) & TOKEN_MASK) + 1;
        let to = (token & TOKEN_MASK) << 40 | (now_ms + LEASE_NS / MS);
        self.round_trips += 1;
        if region.compare_swap(client, self.entry, from, to)? != from {
            return Ok(None);
        }
        region.write(client, self.entry + 8, &words(&[token, 1]))?;
        Ok(Some(Grant { word: to, token }))
    }

    fn release(&mut self, side: Side, grant: Grant) -> Result<(), Failure> {
        let is_released = match side {
            Side::Active => word(&self.call("release", &[ROOT, grant.token])?, 0)? == GRANTED,
            Side::Plain => {
                self.round_trips += 1;
                let ShippedModule { client, region, .. } = &mut self.module;
                let swap = grant.word & !EXPIRY_MASK;
                region.compare_swap(client, self.entry, grant.word, swap)? == grant.word
            }
        };
        is_released.then_some(()).ok_or_else(|| "the lock was lost".into())
    }

    fn until_granted(&mut self, side: Side) -> Result<Grant, Failure> {
        loop {
            if let Some(grant) = self.acquire(side)? {
                return Ok(grant);
            }
        }
    }

    fn once_refused(&mut self, side: Side) -> Result<(), Failure> {
        let grant = self.acquire(side)?.ok_or("the lock is somebody else's")?;
        if self.acquire(side)?.is_some() {
            return Err("the lock has two owners".into());
        }
        self.release(side, grant)
    }
}

/// One client, or several.
pub(crate) fn run(
    [host, modules, wait]: [&str; 3],
    [side, clients, ms]: [&str; 3],
) -> Result<Value, Failure> {
    let (side, clients, time) = (Side::parse(side)?, clients.parse()?, milliseconds(ms)?);
    let mut first = LockOwner::new(host, modules, wait)?;
    first.module.call("init", &words(&[ROOT, ENTRIES]))?;
    first.locate()?;
    if clients == 1 {
        return alone(&mut first, side, time);
    }
    let start = Barrier::new(clients);
    let contend = || -> Result<(Vec<u64>, u64), String> {
        let owner = LockOwner::new(host, modules, wait).and_then(|mut owner| {
            owner.locate()?;
            Ok(owner)
        });
        start.wait();
        let contended = owner.and_then(|mut owner| contend(&mut owner, side, time));
        contended.map_err(|error| error.to_string())
    };
    let all = thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(contend)).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a panic")?.map_err(Failure::from));
        joined.collect::<Result<Vec<_>, Failure>>()
    })?;
    let round_trips: u64 = all.iter().map(|(_, round_trips)| round_trips).sum();
    let took: Vec<u64> = all.into_iter().flat_map(|(took, _)| took).collect();
    let pieces = took.len().max(1) as f64;
    let mut found = Timing::new(took, time).json();
    found["round_trips"] = json!(round_trips as f64 / pieces);
    Ok(found)
}

fn alone(owner: &mut LockOwner, side: Side, time: Duration) -> Result<Value, Failure> {
    let mut rounds = 0;
    owner.round_trips = 0;
    let timing = Timing::of(time, || {
        rounds += 1;
        owner.once_refused(side)
    })?;
    let mut found = timing.json();
    found["round_trips"] = json!(owner.round_trips as f64 / f64::from(rounds));
    Ok(found)
}

/// Nanoseconds of each acquisition with its release, and round trips.
fn contend(owner: &mut LockOwner, side: Side, time: Duration) -> Result<(Vec<u64>, u64), Failure> {
    let (mut took, start) = (Vec::new(), Instant::now());
    owner.round_trips = 0;
    while start.elapsed() < time {
        let began = Instant::now();
        let grant = owner.until_granted(side)?;
        owner.release(side, grant)?;
        took.push(u64::try_from(began.elapsed().as_nanos())?);
    }
    Ok((took, owner.round_trips))
}
