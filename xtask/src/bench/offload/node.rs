//! A channel to a node, beside Sends over a session with nothing but verbs.

use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use super::programs::{example, figures, load, panel};
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::{Contender, Server, alternate, free_port, json, pinned};
use crate::bench::stack::ours::build;
use crate::command;
use crate::process::Process;
use crate::scratch::Scratch;

const ROUNDS: usize = 5;
const TURNS: &str = "3000";
const MS: &str = "500";
const LISTEN_MAX: Duration = Duration::from_secs(20);

/// A key of its own, and the programs.
struct NodeStage {
    scratch: Scratch,
    outboard: String,
    load: String,
    pings: String,
}

/// Both in turn.
pub(super) fn beside_sends() -> Result<AimedFindings> {
    let stage = NodeStage {
        scratch: Scratch::new(&env::temp_dir(), "outboard-bench-offload-")?,
        outboard: build()?,
        load: load()?,
        pings: example("active_load")?,
    };
    command::output(stage.own(Command::new(&stage.outboard).args(["key", "new"])))?;
    let address = format!("127.0.0.1:{}", free_port()?);
    let _node = stage.node(&address)?;
    let end = |_: &str| {
        let mut load = pinned("0", &stage.load, &["end", &address, "64", TURNS]);
        json(stage.own(&mut load))
    };
    let offcodes = |_: &str| {
        let mut load = pinned("0", &stage.load, &["channel", &address, "64", TURNS]);
        json(stage.own(&mut load))
    };
    let mut contenders: [Contender<'_, Value>; 3] = [
        Contender { name: "application", measure: Box::new(end) },
        Contender { name: "offcode", measure: Box::new(offcodes) },
        Contender { name: "Sends", measure: Box::new(|_| stage.ping()) },
    ];
    let points = &["64 B"];
    let series = alternate(&mut contenders, points, ROUNDS)?;
    let [own, offcode, sends] = &series[..] else { anyhow::bail!("three were measured") };
    let drawn = vec![
        figures("application and an offcode on the node", own, "/p50_us", 1.0)?,
        figures("encrypted Sends of 8 B", sends, "/p50_us", 1.0)?,
        figures("offcode on host and one on the node", offcode, "/mean_us", 1.0)?,
    ];
    let figures = vec![drawn[0].ratio_to(&drawn[1], 0)];
    let title = "To a node on loopback: round trip, sleeping";
    let panels = vec![panel(title, "µs, less is better", "message", points, drawn)];
    Ok(AimedFindings { figures, panels, ..AimedFindings::default() })
}

impl NodeStage {
    fn own<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("HOME", self.scratch.path("home")).env("OUTBOARD_FABRIC", "untrusted");
        command.env("OUTBOARD_KEY", self.scratch.path("key"))
    }

    /// A node on processor 1.
    fn node(&self, address: &str) -> Result<Process> {
        let words = ["node", "--serve", "offload", "--listen", address];
        let mut node = pinned("1", &self.outboard, &words);
        let mut process = Process::start(self.own(&mut node), &self.scratch.path("node.log"))?;
        let port = address.rsplit(':').next().unwrap_or_default().parse()?;
        process.wait_listening(port, Instant::now() + LISTEN_MAX)?;
        Ok(process)
    }

    fn ping(&self) -> Result<Value> {
        let mut pong = pinned("1", &self.pings, &["pong"]);
        let (_pong, address) = Server::start_with_line(self.own(&mut pong))?;
        json(self.own(&mut pinned("0", &self.pings, &["ping", address.trim(), "block", MS])))
    }
}
