//! A lock that is acquired and released by plain verbs or by executions: by one client, where a
//! second owner is refused behind each grant, or by several clients, each in a thread of its own,
//! that try until they are granted.

use crate::Failure;
use crate::list::Side;
use crate::session::connect;
use crate::shipped::{ROOT, ShippedModule};
use crate::timing::{Timing, milliseconds};
use outboard_active_apps::bytes::words;
use outboard_active_apps::{ActiveLock, LockGrant, PlainLock};
use serde_json::{Value, json};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

const ENTRIES: u64 = 16;
const NAME: &[u8] = b"the lock";
/// Longer than any measurement.
const LEASE: Duration = Duration::from_secs(3600);
/// The number that every owner here goes by.
const OWNER: u64 = 1;

/// An owner, who uses one client.
struct LockOwner {
    module: ShippedModule,
    active: ActiveLock,
    plain: PlainLock,
}

impl LockOwner {
    /// Connects; `Some`: makes so many locks first.
    fn new([host, modules, wait]: [&str; 3], entries: Option<u64>) -> Result<Self, Failure> {
        let mut module = ShippedModule::load(connect(host, "list", wait)?, modules, "lock")?;
        if let Some(entries) = entries {
            module.call("init", &words(&[ROOT, entries]))?;
        }
        let active = ActiveLock::on(module.structure(), NAME);
        let plain = PlainLock::of(&mut module.client, active.clone())?;
        Ok(Self { module, active, plain })
    }

    /// One attempt; `None`: somebody else has the lock.
    fn acquire(&mut self, side: Side) -> Result<Option<LockGrant>, Failure> {
        let client = &mut self.module.client;
        let answer = match side {
            Side::Plain => self.plain.acquire(client, OWNER, LEASE)?,
            Side::Active => self.active.acquire(client, OWNER, LEASE)?,
        };
        Ok(answer.granted())
    }

    fn release(&mut self, side: Side, grant: LockGrant) -> Result<(), Failure> {
        let client = &mut self.module.client;
        let is_released = match side {
            Side::Plain => self.plain.release(client, &grant)?,
            Side::Active => self.active.release(client, &grant)?,
        };
        is_released.then_some(()).ok_or_else(|| "the lock was lost".into())
    }

    fn round_trips(&self) -> u64 {
        self.active.structure().round_trips() + self.plain.structure().round_trips()
    }

    fn until_granted(&mut self, side: Side) -> Result<LockGrant, Failure> {
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
pub(crate) fn run(place: [&str; 3], [side, clients, ms]: [&str; 3]) -> Result<Value, Failure> {
    let (side, clients, time) = (Side::parse(side)?, clients.parse()?, milliseconds(ms)?);
    let mut first = LockOwner::new(place, Some(ENTRIES))?;
    if clients == 1 {
        return alone(&mut first, side, time);
    }
    let start = Barrier::new(clients);
    let contend = || -> Result<(Vec<u64>, u64), String> {
        let owner = LockOwner::new(place, None);
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
    let (mut rounds, before) = (0, owner.round_trips());
    let timing = Timing::of(time, || {
        rounds += 1;
        owner.once_refused(side)
    })?;
    let mut found = timing.json();
    found["round_trips"] = json!((owner.round_trips() - before) as f64 / f64::from(rounds));
    Ok(found)
}

/// Nanoseconds of each acquisition with its release, and round trips.
fn contend(owner: &mut LockOwner, side: Side, time: Duration) -> Result<(Vec<u64>, u64), Failure> {
    let (mut took, start, before) = (Vec::new(), Instant::now(), owner.round_trips());
    while start.elapsed() < time {
        let began = Instant::now();
        let grant = owner.until_granted(side)?;
        owner.release(side, grant)?;
        took.push(u64::try_from(began.elapsed().as_nanos())?);
    }
    Ok((took, owner.round_trips() - before))
}
