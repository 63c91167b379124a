//! Outboard, as users start it: nodes that serve `cast`, and `outboard cast` at the source.

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::stage::{CastStage, SourceFile, StageCost};
use crate::builds;
use crate::command;

const PORT: u16 = 7410;
/// How long services may take to answer, all on one machine.
const READY_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// The program, built in release mode.
pub(super) fn build() -> Result<PathBuf> {
    builds::outboard(true)
}

/// One cast.
#[derive(Debug)]
pub(super) struct OurCast {
    pub(super) cost: StageCost,
    /// What the command said.
    pub(super) report: Value,
}

/// Nodes on all receivers.
#[derive(Debug)]
pub(super) struct OurNodes {
    program: PathBuf,
    key: PathBuf,
    home: PathBuf,
    nodes: String,
}

impl OurNodes {
    /// Starts them; nobody has cast to them yet.
    pub(super) fn start(stage: &mut CastStage) -> Result<Self> {
        let home = stage.directory("home")?;
        // Services run as an ordinary user, which may have no access to the workspace.
        let program = home.join("outboard");
        fs::copy(command::target_dir().join("release/outboard"), &program)?;
        let key = home.join("key");
        if !key.exists() {
            let mut make = Command::new(&program);
            command::output(
                make.args(["key", "new"]).env("OUTBOARD_KEY", &key).env("HOME", &home),
            )?;
        }
        let (mut processes, mut nodes) = (Vec::new(), Vec::new());
        for index in 0..stage.receivers() {
            let name = format!("{}:{PORT}", stage.receiver(index).address);
            let own = stage.directory(&format!("home{index}"))?;
            fs::create_dir_all(own.join(".config/outboard"))?;
            let configuration = own.join("node.toml");
            let text = format!(
                "sessions = 1024\n[cast]\nroots = [{:?}]\n[reach.cast]\ncast = \"*\"\n",
                stage.destination()
            );
            fs::write(&configuration, text)?;
            let mut node = stage.at(index, &program);
            node.env("HOME", &own).args(["node", "--serve", "cast", "--listen", &name]);
            node.arg("--config").arg(configuration).arg("--key").arg(&key);
            processes.push(stage.start(&mut node)?);
            nodes.push(name);
        }
        processes.into_iter().try_for_each(|process| stage.wait_listening(process, PORT))?;
        let nodes = Self { program, key, home, nodes: nodes.join(",") };
        nodes.wait_ready(stage)?;
        Ok(nodes)
    }

    /// Starts them, and casts to them once, so that they know the source and each other.
    pub(super) fn start_warm(stage: &mut CastStage) -> Result<Self> {
        let nodes = Self::start(stage)?;
        let file = stage.file(1)?;
        nodes.cast(stage, &file, &[])?;
        stage.check(&file)?;
        Ok(nodes)
    }

    /// A node listens before its service runs.
    fn wait_ready(&self, stage: &CastStage) -> Result<()> {
        let deadline = Instant::now() + READY_MAX;
        loop {
            match stage.run(self.command(stage).arg("status")) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => sleep(PAUSE),
            }
        }
    }

    fn command(&self, stage: &CastStage) -> Command {
        let mut command = stage.here(&self.program);
        command.env("HOME", &self.home).env("OUTBOARD_KEY", &self.key);
        command.env("OUTBOARD_HOSTS", &self.nodes);
        command
    }

    /// Casts a file, and requires that all receivers have it.
    pub(super) fn cast(
        &self,
        stage: &CastStage,
        file: &SourceFile,
        options: &[&str],
    ) -> Result<OurCast> {
        let mut command = self.command(stage);
        command.args(["cast", "--json"]).args(options).arg(&file.path).arg(stage.destination());
        let (cost, said) = stage.run(&mut command)?;
        let report = serde_json::from_str(&said).with_context(|| format!("no report: {said}"))?;
        Ok(OurCast { cost, report })
    }
}

/// Nodes that have cast before, started when they are needed and not there.
#[derive(Debug, Default)]
pub(super) struct WarmNodes(RefCell<Option<(u32, OurNodes)>>);

impl WarmNodes {
    /// Casts so many new bytes to all receivers, and checks them: what the whole command took.
    pub(super) fn cast(&self, stage: &mut CastStage, bytes: u64, options: &[&str]) -> Result<f64> {
        let mut nodes = self.0.borrow_mut();
        if nodes.as_ref().is_none_or(|(ends, _)| *ends != stage.ends()) {
            // Others listen where these will.
            stage.end_all()?;
            let started = OurNodes::start_warm(stage)?;
            *nodes = Some((stage.ends(), started));
        }
        let (_, nodes) = nodes.as_ref().context("they were started")?;
        let file = stage.file(bytes)?;
        let seconds = nodes.cast(stage, &file, options)?.cost.seconds;
        stage.check(&file)?;
        Ok(seconds)
    }
}

/// What `outboard cast --plan` says of a schedule, or with `auto` of the one that it chooses: a row
/// of its report. Chunks are of the size that it chooses, if none is given.
pub(super) fn plan(nodes: usize, bytes: u64, chunk: Option<u64>, kind: &str) -> Result<Value> {
    let mut command = Command::new(command::target_dir().join("release/outboard"));
    command.args(["cast", "--plan", "--json", "--schedule", kind]);
    chunk.map(|chunk| command.args(["--chunk", &chunk.to_string()]));
    command.args(["--plan-nodes", &nodes.to_string(), "--plan-size", &bytes.to_string()]);
    let said = command::output(&mut command)?;
    let report: Value = serde_json::from_str(&said)?;
    let plans = report["plans"].as_array().context("the plan has no rows")?;
    let found = plans.iter().find(|plan| plan["kind"] == report["chosen"]).cloned();
    found.with_context(|| format!("no plan of the schedule that was chosen for {kind}"))
}
