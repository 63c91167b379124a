//! Eight clients on the hash table and on one lock at the same time, by executions, Reads, Writes
//! and CompareSwaps, while the service is killed: what they find could have happened one after the
//! other, and nobody whose lease has passed changes what the lock protects.
//!
//! What the result depends on: the seed (printed, and taken from `OUTBOARD_SEED`), when threads
//! run, where the service is killed. Values are short (in cells) and long (in items); the table
//! grows; leases last some milliseconds, and some holders sleep longer.

#[path = "checker.rs"]
mod checker;
#[path = "clients.rs"]
mod clients;
#[path = "lock.rs"]
mod lock;
#[path = "../../../active/tests/support/node.rs"]
#[expect(dead_code, reason = "another test uses the rest")]
mod node;
#[path = "table.rs"]
mod table;

use checker::{Event, is_linearizable};
use clients::RandomClient;
use libtest_mimic::{Arguments, Trial};
use lock::{GuardedOp, LockClient, LockHistory, LockOp};
use node::Node;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use table::{TableClient, TableOp, keys_of_one_chain};

const CLIENTS: u64 = 8;
/// Rounds: between two of them nothing is under way. More if something that is to be seen has not
/// happened by then.
const ROUNDS: u64 = 24;
const ROUNDS_MAX: u64 = 240;
/// The service is killed in one round of so many.
const KILL_EVERY: u64 = 6;
/// Operations of a client on the table in a round, and attempts on the lock.
const STEPS: usize = 12;
const VISITS: usize = 3;
/// Writes of a client, one behind the other, in a round in which the service is killed: enough that
/// some are under way then.
const BURST: usize = 10;
/// Keys that all clients work on.
const KEYS: usize = 3;
const REGION: &str = "[active.regions.kv]\nsize = \"4MiB\"\n";

fn main() -> ExitCode {
    if let Some(over) = node::started() {
        return over;
    }
    let trial = |name: &str, run: fn()| {
        let run = move || {
            run();
            Ok(())
        };
        Trial::test(name, run)
    };
    let trials = vec![
        trial("the_checker_judges_known_histories", checker::judges_known_histories),
        trial("a_table_is_linearizable", a_table_is_linearizable),
        trial("a_lock_is_linearizable", a_lock_is_linearizable),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A seed, which is printed.
fn seed() -> u64 {
    let given = std::env::var("OUTBOARD_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let seed = given.unwrap_or_else(|| u64::from(now()));
    eprintln!("OUTBOARD_SEED={seed}");
    seed
}

fn start() -> Node {
    Node::start(tempfile::tempdir().expect("a directory"), REGION)
}

fn is_killed_in(round: u64) -> bool {
    round % KILL_EVERY == KILL_EVERY - 1
}

/// Kills the service some time into a round, if it is one of those.
fn kill_in(round: u64, node: &Node, random: u64) {
    if is_killed_in(round) {
        thread::sleep(Duration::from_micros(random % 20_000));
        node.kill_service();
    }
}

fn a_table_is_linearizable() {
    let (node, seed) = (start(), seed());
    let identity = node.identity();
    let client = |number: u64| {
        let own = RandomClient::new(&node, &identity, seed ^ number << 40);
        TableClient::new(own, number + 1)
    };
    let mut clients: Vec<TableClient> = (0..CLIENTS).map(client).collect();
    clients[0].init();
    let (keys, mut unknown) = (&keys_of_one_chain(KEYS)[..], 0);
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS && unknown > 0 {
            break;
        }
        if round % 6 == 0 {
            // A small table again, whose chain is long.
            clients[0].init();
            clients.iter_mut().for_each(TableClient::forget);
        }
        let before: Vec<Option<u64>> = keys.iter().map(|key| value(&mut clients[0], key)).collect();
        let random = clients[0].own.random(u64::MAX);
        let events = thread::scope(|scope| {
            let work = |client| scope.spawn(move || steps(client, keys));
            let threads: Vec<_> = clients.iter_mut().map(work).collect();
            kill_in(round, &node, random);
            let ends = threads.into_iter().map(|thread| thread.join().expect("no panic"));
            ends.flatten().collect::<Vec<_>>()
        });
        for (at, initial) in before.iter().enumerate() {
            let of_key = events.iter().filter(|(key, _)| *key == at);
            let history: Vec<Event<TableOp>> = of_key.map(|(_, event)| event.clone()).collect();
            unknown += history.iter().filter(|event| event.ended.is_none()).count();
            let is_right = is_linearizable(&history, initial, table::apply);
            assert!(is_right, "round {round}, key {at}, at first {initial:?}: {history:#?}");
        }
    }
    eprintln!("{unknown} operations have no known outcome");
    assert!(unknown > 0, "the service was killed, and no outcome was lost");
}

/// Some operations on random keys.
fn steps(client: &mut TableClient, keys: &[[u8; 8]]) -> Vec<(usize, Event<TableOp>)> {
    let mut events = Vec::new();
    for _ in 0..STEPS {
        let at = usize::try_from(client.own.random(keys.len() as u64)).expect("few");
        events.extend(client.step(&keys[at]).map(|event| (at, event)));
    }
    events
}

/// What a key has while nothing is under way.
fn value(client: &mut TableClient, key: &[u8; 8]) -> Option<u64> {
    loop {
        if let Ok(value) = client.get(key, false) {
            return value;
        }
    }
}

/// What has to have happened for the test of the lock to mean something.
#[derive(Debug, Default)]
struct LockSeen {
    /// Operations whose outcome is not known.
    unknown: usize,
    /// Renewals and releases of a lease that had passed.
    passed: usize,
    /// Writes that were refused because a newer token had written.
    refused: usize,
}

impl LockSeen {
    fn add(&mut self, history: &LockHistory) {
        for event in &history.lock {
            match (event.op, event.ended) {
                (LockOp::Pass(_), _) => {}
                (_, None) => self.unknown += 1,
                (LockOp::Renew(_, _, false) | LockOp::Release(_, false), _) => self.passed += 1,
                _ => {}
            }
        }
        for event in &history.guarded {
            match (event.op, event.ended) {
                (_, None) => self.unknown += 1,
                (GuardedOp::Write(_, _, false), _) => self.refused += 1,
                _ => {}
            }
        }
    }

    fn is_all(&self) -> bool {
        self.unknown > 0 && self.passed > 0 && self.refused > 0
    }
}

fn a_lock_is_linearizable() {
    let (node, seed) = (start(), seed());
    let identity = node.identity();
    let own = |number: u64| RandomClient::new(&node, &identity, seed ^ number << 40);
    LockClient::init(&mut own(CLIENTS));
    let mut clients: Vec<LockClient> =
        (0..CLIENTS).map(|number| LockClient::new(own(number), number)).collect();
    let mut seen = LockSeen::default();
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS && seen.is_all() {
            break;
        }
        let (latest, guarded) = clients[0].until_free();
        let random = clients[0].own.random(u64::MAX);
        let history = thread::scope(|scope| {
            let work = |client: &'_ mut LockClient| match is_killed_in(round) {
                true => client.burst(BURST),
                false => client.visit(VISITS),
            };
            let threads: Vec<_> =
                clients.iter_mut().map(|client| scope.spawn(move || work(client))).collect();
            kill_in(round, &node, random);
            let ends = threads.into_iter().map(|thread| thread.join().expect("no panic"));
            ends.fold(LockHistory::default(), |mut all, one| {
                all.lock.extend(one.lock);
                all.guarded.extend(one.guarded);
                all
            })
        });
        seen.add(&history);
        let LockHistory { lock: of_lock, guarded: of_word } = history;
        let is_right = is_linearizable(&of_lock, &(None, latest), lock::apply);
        assert!(is_right, "round {round}, token {latest} at first: {of_lock:#?}");
        let is_right = is_linearizable(&of_word, &guarded, lock::apply_guarded);
        assert!(is_right, "round {round}, {guarded:?} at first: {of_word:#?}");
    }
    eprintln!("{seen:?}");
    assert!(seen.is_all(), "what the test is about has not happened: {seen:?}");
}
