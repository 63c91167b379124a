//! What things cost on this machine, in the simulation's terms (`crates/sim/src/active/costs.rs`).
//!
//! Measured, in turn: a Send ping-pong; each kind of request by `active_load probe`, alone; and the
//! processor time of a node that is flooded. None of them is among the workloads that check the
//! simulation. The same kinds are measured once more between hosts whose link delays by
//! [`SHORT`], both sleeping while they wait, because a side that sleeps costs more; these figures
//! are checked on a link with another delay.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::load::{ActivePrograms, NodeSetup, Where};
use super::super::redis::Protection;
use super::model::{CostTable, MEASURED, ModelHardware};
use super::processor::time_of_nodes;
use crate::bench::active::rounds;
use crate::bench::measure::{Summary, number};
use crate::bench::report::Table;
use crate::bench::stack::section::table;
use crate::lab::{Delay, DelayedPair, Link};

const ROUNDS: usize = 5;
const PING_MS: &str = "300";
const PROBE_MS: &str = "1000";
const FLOOD_MS: &str = "1500";
/// Connections of a flood of executions, with one under way on each: as many clients.
const FLOOD: [&str; 2] = ["64", "1"];
/// A flood that ends as soon as it is connected.
const NO_FLOOD: &str = "1";
/// One way, of the link on which sleeping sides are measured.
pub(super) const SHORT: Duration = Duration::from_micros(20);
/// One way, of the link on which they are checked.
pub(super) const LONG: Duration = Duration::from_micros(100);
/// What `active_load empty` does of its time before it counts.
const UNCOUNTED: f64 = 0.25;

/// Everything that was measured, in nanoseconds, and the costs that follow.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MeasuredCosts {
    /// Costs between two sides that spin, on loopback.
    loopback: CostTable,
    /// Costs between two sides that sleep while they wait.
    sleeping: CostTable,
    /// Medians of each round of `ping` and `probe` on loopback.
    raw_loopback: Vec<Value>,
    /// The same between two hosts; without `ping`.
    raw_sleeping: Vec<Value>,
    /// The node's processor time for a Read and for an empty execution of a flood.
    raw_busy: [f64; 2],
}

/// Costs and the hardware on which they are checked.
pub(super) type CheckedOn<'a> = (&'a CostTable, ModelHardware);

/// Measures both.
pub(super) fn measure() -> Result<MeasuredCosts> {
    let programs = ActivePrograms::build()?;
    let setup = NodeSetup { protection: Protection::Encrypted, spin: "always" };
    let node = programs.node(Where::Loopback, setup)?;
    let mut raw_loopback = Vec::new();
    for _ in 0..rounds(ROUNDS) {
        let ping = programs.ping(Protection::Encrypted, "spin", PING_MS)?;
        let mut probe = node.measure("probe", &["table", "spin", PROBE_MS])?;
        probe["ns"]["ping"] = json!(number(&ping, "/p50_us")? * 1e3);
        eprintln!("costs, loopback: {}", probe["ns"]);
        raw_loopback.push(probe);
    }
    drop(node);
    let (first, second) = (busy(&programs)?, busy(&programs)?);
    let raw_busy = [first[0].min(second[0]), first[1].min(second[1])];
    eprintln!("costs, flooded: {raw_busy:?}");
    let pair = DelayedPair::new(Delay { one_way: SHORT, link: Link::Unlimited })?;
    let setup = NodeSetup { protection: Protection::Encrypted, spin: "never" };
    let node = programs.node(Where::Hosts(pair.hosts()), setup)?;
    let mut raw_sleeping = Vec::new();
    for _ in 0..rounds(ROUNDS) {
        let probe = node.measure("probe", &["table", "block", PROBE_MS])?;
        eprintln!("costs, sleeping: {}", probe["ns"]);
        raw_sleeping.push(probe);
    }
    let loopback = on_loopback(&Kinds { rounds: &raw_loopback, picked: Picked::Least }, raw_busy)?;
    let sleeping =
        while_sleeping(&Kinds { rounds: &raw_sleeping, picked: Picked::Middle }, &loopback)?;
    Ok(MeasuredCosts { loopback, sleeping, raw_loopback, raw_sleeping, raw_busy })
}

/// Nanoseconds of a node's processor for a Read and for an empty execution, when many are under
/// way. The node sleeps when it has nothing to do, so that it is not charged for looking.
fn busy(programs: &ActivePrograms) -> Result<[f64; 2]> {
    let setup = NodeSetup { protection: Protection::Encrypted, spin: "never" };
    let node = programs.node(Where::Loopback, setup)?;
    let flood = |kind: &str, words: &[&str]| -> Result<(Duration, f64)> {
        let before = time_of_nodes()?;
        let found = node.measure(kind, words)?;
        Ok((time_of_nodes()? - before, number(&found, "/calls")?))
    };
    let reads = |ms| flood("flood", &["table", ms]);
    let executions = |ms| flood("empty", &["table", FLOOD[0], FLOOD[1], ms]);
    let each = |(took, calls): (Duration, f64), connecting: (Duration, f64)| {
        took.saturating_sub(connecting.0).as_secs_f64() * 1e9 / calls
    };
    let read_ns = each(reads(FLOOD_MS)?, reads(NO_FLOOD)?);
    let execution_ns = each(executions(FLOOD_MS)?, executions(NO_FLOOD)?);
    // What ran before it was counted took processor time, too.
    Ok([read_ns, execution_ns / (1.0 + UNCOUNTED)])
}

/// One figure of all rounds' medians.
#[derive(Clone, Copy, Debug)]
enum Picked {
    /// The least: where both sides spin, whatever else the machine does only adds.
    Least,
    /// The middle one: how long it takes to wake up varies by itself.
    Middle,
}

/// Medians of rounds.
struct Kinds<'a> {
    rounds: &'a [Value],
    picked: Picked,
}

impl Kinds<'_> {
    fn at(&self, pointer: &str) -> Result<f64> {
        let all: Vec<f64> =
            self.rounds.iter().map(|round| number(round, pointer)).collect::<Result<_>>()?;
        let Summary { least, median, .. } = Summary::of(&all).context("nothing was measured")?;
        Ok(match self.picked {
            Picked::Least => least,
            Picked::Middle => median,
        })
    }

    fn ns(&self, kind: &str) -> Result<f64> {
        self.at(&format!("/ns/{kind}"))
    }

    fn fuel(&self, kind: &str) -> Result<f64> {
        self.at(&format!("/used/{kind}/fuel"))
    }

    /// A unit of fuel of one kind.
    fn fuel_ns(&self, kind: &str) -> Result<f64> {
        let fuel = self.fuel(kind)? - self.fuel("empty")?;
        Ok((self.ns(kind)? - self.ns("empty")?) / fuel)
    }

    /// What one kind takes longer than another, besides its fuel.
    fn longer(&self, kind: &str, than: &str, fuel_ns: f64) -> Result<f64> {
        let fuel = self.fuel(kind)? - self.fuel(than)?;
        Ok(self.ns(kind)? - self.ns(than)? - fuel * fuel_ns)
    }

    /// What one-sided operations cost the node, where a client's part of a round trip and the
    /// links' are known.
    fn verbs(&self, else_ns: f64) -> Result<[f64; 4]> {
        let byte_ns = (self.ns("page")? - self.ns("read")?) / 4088.0;
        let read_ns = self.ns("read")? - else_ns - 8.0 * byte_ns;
        let atomic_ns = self.ns("swap")? - else_ns - 8.0 * byte_ns;
        let write_ns = self.ns("write_swap")? - self.ns("swap")? - 64.0 * byte_ns;
        Ok([byte_ns, read_ns, atomic_ns, write_ns])
    }
}

/// No cost is below nothing, whatever noise says.
fn cost(ns: f64) -> f64 {
    (ns * 100.0).round().max(0.0) / 100.0
}

fn on_loopback(
    kinds: &Kinds<'_>,
    [read_busy_ns, execution_busy_ns]: [f64; 2],
) -> Result<CostTable> {
    let message_ns = kinds.ns("ping")? / 2.0;
    let send_ns = kinds.ns("send")?.min(message_ns);
    let [byte_ns, read_ns, atomic_ns, write_ns] = kinds.verbs(message_ns)?;
    let fuel_ns = f64::midpoint(kinds.fuel_ns("work")?, kinds.fuel_ns("stream")?);
    let execute_ns = kinds.ns("empty")? - kinds.ns("ping")? - kinds.fuel("empty")? * fuel_ns;
    let line_ns = kinds.longer("write_17", "write_1", fuel_ns)? / 16.0;
    let commit_ns = kinds.longer("write_1", "empty", fuel_ns)? - line_ns;
    Ok(json!({
        "send_ns": cost(send_ns),
        "receive_ns": cost(message_ns - send_ns),
        "byte_ns": (byte_ns * 1e4).round().max(0.0) / 1e4,
        "read_ns": cost(read_ns),
        "write_ns": cost(write_ns),
        "atomic_ns": cost(atomic_ns),
        "execute_ns": cost(execute_ns),
        "fuel_ns": (fuel_ns * 1e4).round().max(0.0) / 1e4,
        "commit_ns": cost(commit_ns),
        "line_ns": cost(line_ns),
        "verb_busy_ns": cost(read_busy_ns),
        "messages_busy_ns": cost(execution_busy_ns - execute_ns),
    }))
}

/// Only what passes the kernel is another: executing costs what it costs.
fn while_sleeping(kinds: &Kinds<'_>, loopback: &CostTable) -> Result<CostTable> {
    let known = |name: &str| number(loopback, &format!("/{name}"));
    let delays_ns = 2.0 * SHORT.as_secs_f64() * 1e9;
    let messages_ns = kinds.ns("empty")?
        - delays_ns
        - known("execute_ns")?
        - kinds.fuel("empty")? * known("fuel_ns")?;
    let message_ns = messages_ns / 2.0;
    let send_ns = kinds.ns("send")?.min(message_ns);
    let [byte_ns, read_ns, atomic_ns, write_ns] = kinds.verbs(delays_ns + message_ns)?;
    let mut costs = loopback.clone();
    for (name, ns) in [
        ("send_ns", send_ns),
        ("receive_ns", message_ns - send_ns),
        ("read_ns", read_ns),
        ("write_ns", write_ns),
        ("atomic_ns", atomic_ns),
    ] {
        costs[name] = json!(cost(ns));
    }
    costs["byte_ns"] = json!((byte_ns * 1e4).round().max(0.0) / 1e4);
    Ok(costs)
}

impl MeasuredCosts {
    /// On loopback.
    pub(super) fn loopback(&self) -> CheckedOn<'_> {
        (&self.loopback, MEASURED)
    }

    /// On the link where sleeping sides are checked.
    pub(super) fn delayed(&self) -> CheckedOn<'_> {
        let delay_ns = LONG.as_secs_f64() * 1e9;
        (&self.sleeping, ModelHardware { delay_ns, ..MEASURED })
    }

    /// Both, by name.
    pub(super) fn table(&self) -> Table {
        let row = |(name, what): &(&str, &str)| {
            let ns = |costs: &Value| {
                costs[*name].as_f64().map_or_else(String::new, |ns| format!("{ns:.4}"))
            };
            let shorten =
                |text: String| text.trim_end_matches('0').trim_end_matches('.').to_owned();
            let cells = [&self.loopback, &self.sleeping].map(|costs| shorten(ns(costs)));
            [(*what).to_owned()].into_iter().chain(cells).collect()
        };
        let head = ["ns", "loopback, spinning", "between hosts, sleeping"];
        table("Costs, as measured", &head, WHAT.iter().map(row).collect())
    }
}

/// What each cost is, for people.
const WHAT: [(&str, &str); 12] = [
    ("send_ns", "posting a message, either side"),
    ("receive_ns", "receiving a message, either side"),
    ("byte_ns", "each byte of a message"),
    ("read_ns", "a Read at the node, both its messages included"),
    ("write_ns", "a Write at the node"),
    ("atomic_ns", "a CompareSwap at the node, both its messages included"),
    ("execute_ns", "an execution's fixed part, besides its messages"),
    ("fuel_ns", "a unit of fuel (about a WebAssembly instruction)"),
    ("commit_ns", "a commit that writes"),
    ("line_ns", "each 64-byte line of it"),
    ("verb_busy_ns", "node's processor, a Read among many"),
    ("messages_busy_ns", "node's processor, both messages of an execution among many"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a machine on which everything costs what it costs.
    fn round(delays_ns: f64) -> Value {
        let used = |fuel: f64| json!({ "fuel": fuel, "lines": 0 });
        let empty = 8000.0 + 500.0 + 2.0 + delays_ns;
        json!({
            "ns": {
                "ping": 8000.0, "send": 2500.0, "read": 7000.0 + delays_ns + 4.0,
                "page": 7000.0 + delays_ns + 2048.0, "swap": 7300.0 + delays_ns + 4.0,
                "write_swap": 7300.0 + delays_ns + 4.0 + 1200.0 + 32.0,
                "empty": empty, "work": empty + 1332.0, "stream": empty + 666.0,
                "write_1": empty + 10.0 + 340.0,
                "write_17": empty + 170.0 + 980.0,
            },
            "used": {
                "empty": used(4.0), "work": used(2002.0), "stream": used(2002.0),
                "write_1": used(24.0), "write_17": used(344.0),
            },
        })
    }

    #[test]
    fn costs_that_a_machine_has_are_found() {
        let raw = [round(0.0)];
        let costs = on_loopback(&Kinds { rounds: &raw, picked: Picked::Least }, [900.0, 1600.0])
            .expect("complete");
        let expected = json!({
            "send_ns": 2500.0, "receive_ns": 1500.0, "byte_ns": 0.5, "read_ns": 3000.0,
            "write_ns": 1200.0, "atomic_ns": 3300.0, "execute_ns": 500.0, "fuel_ns": 0.5,
            "commit_ns": 300.0, "line_ns": 40.0, "verb_busy_ns": 900.0,
            "messages_busy_ns": 1100.0,
        });
        assert_eq!(costs, expected);
        let raw = [round(40_000.0)];
        let sleeping = while_sleeping(&Kinds { rounds: &raw, picked: Picked::Middle }, &costs)
            .expect("complete");
        assert_eq!(sleeping, expected);
    }
}
