//! The simulation as a program (`crates/sim/examples/active_sim.rs`): cases in, figures out.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::builds;

/// Costs in nanoseconds by name, as the simulation takes them.
pub(super) type CostTable = Value;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Model {
    program: PathBuf,
}

/// A node and its links.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ModelHardware {
    /// `shared`: one processor does everything; `apart`: a card with a core.
    pub(super) cores: &'static str,
    pub(super) core_slowdown: f64,
    pub(super) engine_speedup: f64,
    pub(super) delay_ns: f64,
    /// `None`: nothing waits for the link.
    pub(super) bits_per_s: Option<f64>,
}

/// The machine that was measured.
pub(super) const MEASURED: ModelHardware = ModelHardware {
    cores: "shared",
    core_slowdown: 1.0,
    engine_speedup: 1.0,
    delay_ns: 0.0,
    bits_per_s: None,
};

/// A network card with a core of its own, beside the host, on a link of 100 Gbit/s.
pub(super) const CARD: ModelHardware =
    ModelHardware { cores: "apart", bits_per_s: Some(100e9), ..MEASURED };

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ModelSide {
    /// The client, by plain verbs.
    Plain,
    /// The node, by executions.
    Active,
}

/// What is simulated.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ModelCase {
    pub(super) costs: CostTable,
    pub(super) hardware: ModelHardware,
    pub(super) workload: &'static str,
    pub(super) size: u64,
    pub(super) side: ModelSide,
    pub(super) clients: u32,
    /// About how many pieces of work each client does.
    pub(super) pieces: u32,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct ModelFigures {
    pub(super) median_us: f64,
    pub(super) per_second: f64,
    pub(super) round_trips: f64,
}

impl Model {
    /// Builds it in release mode.
    pub(super) fn build() -> Result<Self> {
        Ok(Self { program: builds::example("active_sim")? })
    }

    /// The figures of all cases, in their order.
    pub(super) fn figures(&self, cases: &[ModelCase]) -> Result<Vec<ModelFigures>> {
        let mut program = Command::new(&self.program);
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().context("a pipe was asked for")?;
        // It reads all of it before it prints.
        input.write_all(&serde_json::to_vec(cases)?)?;
        drop(input);
        let said = child.wait_with_output()?;
        if !said.status.success() {
            bail!("the simulation ended with {}", said.status);
        }
        let figures: Vec<ModelFigures> = serde_json::from_slice(&said.stdout)?;
        if figures.len() != cases.len() {
            bail!("the simulation has {} figures for {} cases", figures.len(), cases.len());
        }
        Ok(figures)
    }
}
