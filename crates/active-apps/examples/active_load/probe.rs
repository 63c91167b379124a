//! What each kind of request costs one client, alone: messages, one-sided operations, executions
//! that do nothing, compute, or write. The simulation of active code (`crates/sim`) is made of
//! these figures. All kinds take turns, so that a slow moment of the machine is every kind's.

use crate::Failure;
use crate::calls::done;
use crate::session::connect;
use crate::timing::milliseconds;
use outboard_active::{ActiveCall, ActiveClient, ModuleHash, RemoteRegion};
use outboard_active_apps::bytes::words;
use outboard_offcode::Wasmtime;
use outboard_offcode::executor::{Outcome, Usage};
use outboard_offcode::local::LocalRunner;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// `work`: follows numbers through 64 KiB of the region and computes with them, as often as its
/// argument says, each step from the one before. `stream`: reads one word after the other and
/// compares it, nothing of which waits for anything else. `write`: so many words, each in
/// a line of its own. `empty`: nothing.
const PROBE: &str = r#"(module
    (import "env" "memory" (memory 1))
    (import "ob" "store64" (func $store (param i64 i64)))
    (func $argument (result i64) (i64.load (i32.wrap_i64 (i64.load (i32.const 0x10010)))))
    (func (export "empty") (result i64) (i64.const 0))
    (func (export "work") (result i64) (local $left i64) (local $value i64) (local $at i32)
        (local.set $left (call $argument))
        (loop $again
            (local.set $at (i32.and (i32.wrap_i64 (local.get $value)) (i32.const 0xfff8)))
            (local.set $value (i64.add
                (i64.xor (local.get $value) (i64.shr_u (local.get $value) (i64.const 7)))
                (i64.add (i64.load offset=0x100000 (local.get $at)) (i64.const 12345))))
            (local.set $left (i64.sub (local.get $left) (i64.const 1)))
            (br_if $again (i64.gt_s (local.get $left) (i64.const 0))))
        (i64.store (i32.wrap_i64 (i64.load (i32.const 0x10020))) (local.get $value))
        (i64.const 8))
    (func (export "stream") (result i64)
        (local $left i64) (local $most i64) (local $sum i64) (local $word i64) (local $at i32)
        (local.set $left (call $argument))
        (loop $again
            (local.set $word (i64.load offset=0x100000 (local.get $at)))
            (local.set $sum (i64.add (local.get $sum) (local.get $word)))
            (if (i64.gt_u (local.get $word) (local.get $most))
                (then (local.set $most (local.get $word))))
            (local.set $at (i32.and (i32.add (local.get $at) (i32.const 8)) (i32.const 0xffff)))
            (local.set $left (i64.sub (local.get $left) (i64.const 1)))
            (br_if $again (i64.gt_s (local.get $left) (i64.const 0))))
        (i64.store (i32.wrap_i64 (i64.load (i32.const 0x10020)))
            (i64.add (local.get $sum) (local.get $most)))
        (i64.const 8))
    (func (export "write") (result i64) (local $left i64)
        (local.set $left (call $argument))
        (loop $again
            (local.set $left (i64.sub (local.get $left) (i64.const 1)))
            (call $store (i64.mul (local.get $left) (i64.const 64)) (local.get $left))
            (br_if $again (i64.gt_s (local.get $left) (i64.const 0))))
        (i64.const 0)))"#;

/// Turns of `work` and `stream`: less fuel than a node's loop has for an execution, but most of
/// an execution's time.
const TURNS: u64 = 3000;
/// Lines that `write` writes.
const LINES: u64 = 17;
/// Bytes that are read: a few, and a page.
const FEW: usize = 8;
const PAGE: usize = 4096;
/// Operations of a kind, one behind the other.
const TOGETHER: usize = 16;

/// A client, a region, and the module.
struct Probe {
    client: ActiveClient,
    region: RemoteRegion,
    module: ModuleHash,
}

/// What is timed.
const KINDS: [&str; 10] = [
    "send",
    "read",
    "page",
    "swap",
    "write_swap",
    "empty",
    "work",
    "stream",
    "write_1",
    "write_17",
];

impl Probe {
    fn new(host: &str, region: &str, wait: &str) -> Result<Self, Failure> {
        let (mut client, region) = connect(host, region, wait)?;
        let (module, _) = client.load("probe", &wat::parse_str(PROBE)?)?;
        Ok(Self { client, region, module })
    }

    fn execute(&mut self, entry: &str, argument: u64) -> Result<(), Failure> {
        let args = words(&[argument]);
        let call = ActiveCall::new(&self.region, self.module, entry, &args);
        done(self.client.execute(&call)?).map(drop)
    }

    fn read(&mut self, len: usize) -> Result<(), Failure> {
        Ok(self.region.read(&mut self.client, 0, len).map(drop)?)
    }

    fn write(&mut self) -> Result<(), Failure> {
        Ok(self.region.write(&mut self.client, 1 << 19, &[7; 64])?)
    }

    /// Changes nothing: the word holds something else.
    fn swap(&mut self) -> Result<(), Failure> {
        self.region.compare_swap(&mut self.client, 1 << 20, 7, 7).map(drop)?;
        Ok(())
    }

    /// Does one kind once; nanoseconds.
    fn once(&mut self, kind: &str) -> Result<u64, Failure> {
        let began = Instant::now();
        match kind {
            "send" => self.write()?,
            "read" => self.read(FEW)?,
            "page" => self.read(PAGE)?,
            "swap" => self.swap()?,
            "write_swap" => {
                self.write()?;
                self.swap()?;
            }
            "empty" => self.execute("empty", 0)?,
            "work" | "stream" => self.execute(kind, TURNS)?,
            "write_1" => self.execute("write", 1)?,
            _ => self.execute("write", LINES)?,
        }
        let took = began.elapsed();
        if kind == "send" {
            // The Write has been served before the next one is timed.
            self.swap()?;
        }
        Ok(u64::try_from(took.as_nanos())?)
    }
}

/// What the executions use, by an executor of this process.
fn usage() -> Result<Map<String, Value>, Failure> {
    let mut runner = LocalRunner::new(Wasmtime::new(None)?, 2 << 20)?;
    let module = runner.load("probe", &wat::parse_str(PROBE)?)?.hash;
    let mut used = |entry: &str, argument: u64| -> Result<Usage, Failure> {
        match runner.execute(module, entry, &words(&[argument])) {
            Outcome::Done { .. } => Ok(runner.executor().used()),
            other => Err(format!("{entry} ended with {other:?}").into()),
        }
    };
    let mut found = Map::new();
    for (name, entry, argument) in [
        ("empty", "empty", 0),
        ("work", "work", TURNS),
        ("stream", "stream", TURNS),
        ("write_1", "write", 1),
        ("write_17", "write", LINES),
    ] {
        let Usage { fuel, lines } = used(entry, argument)?;
        found.insert(name.to_owned(), json!({ "fuel": fuel, "lines": lines }));
    }
    Ok(found)
}

/// Medians of every kind, after a quarter of the time that does not count.
pub(crate) fn run(host: &str, region: &str, wait: &str, ms: &str) -> Result<Value, Failure> {
    let (mut probe, time) = (Probe::new(host, region, wait)?, milliseconds(ms)?);
    let mut samples: Vec<Vec<u64>> = vec![Vec::new(); KINDS.len()];
    turns(&mut probe, time / 4, &mut samples)?;
    samples.iter_mut().for_each(Vec::clear);
    turns(&mut probe, time, &mut samples)?;
    let median = |(kind, samples): (&&str, &mut Vec<u64>)| {
        samples.sort_unstable();
        ((*kind).to_owned(), json!(samples[samples.len() / 2]))
    };
    let medians: Map<String, Value> = KINDS.iter().zip(&mut samples).map(median).collect();
    Ok(json!({ "ns": medians, "used": usage()? }))
}

fn turns(probe: &mut Probe, time: Duration, samples: &mut [Vec<u64>]) -> Result<(), Failure> {
    let began = Instant::now();
    while began.elapsed() < time {
        for (kind, samples) in KINDS.iter().zip(&mut *samples) {
            for _ in 0..TOGETHER {
                samples.push(probe.once(kind)?);
            }
        }
    }
    Ok(())
}

/// Reads many small places at a time, again and again: how many a second.
pub(crate) fn flood(host: &str, region: &str, ms: &str) -> Result<Value, Failure> {
    let (mut client, region) = connect(host, region, "spin")?;
    let places: Vec<(u64, usize)> = (0..64).map(|at| (at * 4096, 64)).collect();
    let (time, began, mut reads) = (milliseconds(ms)?, Instant::now(), 0);
    while began.elapsed() < time {
        reads += region.read_each(&mut client, &places)?.len();
    }
    let rate = reads as f64 / began.elapsed().as_secs_f64();
    Ok(json!({ "calls": reads, "calls_per_s": rate }))
}
