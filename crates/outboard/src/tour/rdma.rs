//! The stop `rdma`: latency and bandwidth of RDMA Writes, and of a TCP socket in the same harness.
//!
//! They are measured in turns, so that other load on the machine affects both. Both sides spin only
//! where two processors have nothing to do: on fewer, they would wait for each other's time slices.

use super::idle::IdleProcessors;
use super::{Guide, Trouble};
use crate::perf::local::LocalServer;
use outboard_perf::{Goal, Report, Test, TestPlan, Wait, run};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

const TESTS: [Test; 4] = [Test::WriteLat, Test::TcpLat, Test::WriteBw, Test::TcpBw];
/// Rounds, in each of which every test has a turn.
const ROUNDS: usize = 4;
const TURN: Duration = Duration::from_millis(250);

/// What all rounds have measured of one test.
#[derive(Clone, Debug, Default, PartialEq)]
struct Figures {
    /// Of each round, in microseconds: what half of the messages stayed within, and 99 of 100.
    p50: Vec<f64>,
    p99: Vec<f64>,
    bandwidths: Vec<f64>,
    messages: u64,
    size: Option<usize>,
}

pub(super) fn show(guide: &Guide) -> Result<Value, Trouble> {
    let server = LocalServer::start().map_err(Trouble::Failed)?;
    let idle = IdleProcessors::now();
    let mut wait = how_to_wait(idle);
    let (mut figures, idle) = match measure(guide, server.address, wait)? {
        Measured::Whole(figures) => (figures, idle),
        Measured::Disturbed(found) => {
            wait = Wait::Block;
            (Vec::new(), Some(found))
        }
    };
    if figures.is_empty()
        && let Measured::Whole(blocking) = measure(guide, server.address, wait)?
    {
        figures = blocking;
    }
    let [write_lat, tcp_lat, write_bw, tcp_bw] = &figures[..] else {
        return Err(Trouble::Failed("a test is missing".into()));
    };
    say_how(guide, idle, wait);
    guide.say(&format!("   {:<12} {:>12} {:>12} {:>14}", "", "8 bytes", "99 in 100", "64 KiB"));
    guide.say(&row("RDMA Write", write_lat, write_bw));
    guide.say(&row("TCP socket", tcp_lat, tcp_bw));
    guide.say("   More: outboard perf write-lat, outboard perf tcp-lat, docs/perf.md");
    let tests = TESTS.iter().zip(&figures).map(|(test, one)| (test.name().to_owned(), one.json()));
    let mut all: serde_json::Map<String, Value> = tests.collect();
    all.insert("wait".into(), wait.to_string().into());
    all.insert("idle_processors".into(), json!(idle.map(|idle| idle.processors)));
    Ok(Value::Object(all))
}

fn how_to_wait(idle: Option<IdleProcessors>) -> Wait {
    if idle.is_none_or(IdleProcessors::is_enough_to_spin) { Wait::Spin } else { Wait::Block }
}

fn say_how(guide: &Guide, idle: Option<IdleProcessors>, wait: Wait) {
    if wait == Wait::Spin {
        guide.say(
            "   Both sides spin while they wait; RDMA has CRCs on; neither is encrypted here.",
        );
        return;
    }
    if let Some(IdleProcessors { processors, of }) = idle {
        guide.say(&format!(
            "   This machine is busy: {processors:.1} of {of} processors had nothing to do, and \
             two sides that spin need two."
        ));
    }
    guide.say(
        "   So both sides sleep while they wait, and a message costs a wake-up; on an idle machine \
         it takes a tenth.",
    );
    guide.say("   RDMA has CRCs on; neither is encrypted here.");
}

enum Measured {
    Whole(Vec<Figures>),
    /// The machine has become too busy for spinning.
    Disturbed(IdleProcessors),
}

/// All tests, a short turn each, round after round.
fn measure(guide: &Guide, address: SocketAddr, wait: Wait) -> Result<Measured, Trouble> {
    let mut figures = vec![Figures::default(); TESTS.len()];
    for round in 0..ROUNDS {
        if wait == Wait::Spin
            && round > 0
            && let Some(idle) = IdleProcessors::now().filter(|idle| !idle.is_enough_to_spin())
        {
            return Ok(Measured::Disturbed(idle));
        }
        for (test, sum) in TESTS.into_iter().zip(&mut figures) {
            guide.goes_on()?;
            guide.whisper(&format!("   {test}, round {} of {ROUNDS} ...", round + 1));
            let plan = TestPlan { wait, ..TestPlan::new(test) };
            let report = run(address, &plan, Goal::Time(TURN), &guide.progress);
            guide.whisper("");
            sum.add(&report.map_err(|error| Trouble::failed(test.name(), error))?);
        }
    }
    Ok(Measured::Whole(figures))
}

impl Figures {
    fn add(&mut self, report: &Report) {
        self.messages += report.iters;
        self.size = report.size;
        self.bandwidths.push(report.mib_per_s);
        self.p50.extend(report.p50_us);
        self.p99.extend(report.p99_us);
    }

    fn json(&self) -> Value {
        json!({
            "p50_us": median(&self.p50),
            "p99_us": median(&self.p99),
            "mib_per_s": median(&self.bandwidths),
            "messages": self.messages,
            "size": self.size,
        })
    }
}

/// The median round: a round that other load has disturbed does not count.
fn median(rounds: &[f64]) -> Option<f64> {
    let mut rounds = rounds.to_vec();
    rounds.sort_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied()
}

fn row(name: &str, latency: &Figures, bandwidth: &Figures) -> String {
    let shown = |rounds: &[f64]| median(rounds).unwrap_or(0.0);
    let (p50, p99) = (shown(&latency.p50), shown(&latency.p99));
    let bandwidth = shown(&bandwidth.bandwidths);
    format!("   {name:<12} {p50:>9.2} us {p99:>9.2} us {bandwidth:>8.0} MiB/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_round_does_not_count() {
        assert_eq!(median(&[5.0, 19_251.0, 4.0]), Some(5.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn sides_that_would_share_a_processor_sleep() {
        let idle = |processors| Some(IdleProcessors { processors, of: 8 });
        assert_eq!(how_to_wait(idle(7.5)), Wait::Spin);
        assert_eq!(how_to_wait(idle(1.1)), Wait::Block);
        assert_eq!(how_to_wait(None), Wait::Spin);
    }
}
