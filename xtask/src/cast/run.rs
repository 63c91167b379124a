//! One run of `outboard cast`, and its report.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::site::CastSite;
use crate::command;

/// Time limit for a cast without one of its own.
pub(super) const CAST_MAX: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(2);

/// What to cast where.
#[derive(Clone, Debug)]
pub(super) struct CastOrder {
    /// Files and directories.
    pub(super) sources: Vec<PathBuf>,
    /// Nodes by number.
    pub(super) nodes: Vec<usize>,
    /// Further arguments.
    pub(super) options: Vec<OsString>,
}

impl CastOrder {
    pub(super) fn new(
        sources: impl IntoIterator<Item = PathBuf>,
        nodes: impl IntoIterator<Item = usize>,
    ) -> Self {
        let (sources, nodes) = (sources.into_iter().collect(), nodes.into_iter().collect());
        Self { sources, nodes, options: Vec::new() }
    }

    pub(super) fn with(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(OsString::from));
        self
    }

    /// The command on the source's host.
    pub(super) fn command(&self, site: &CastSite) -> Command {
        let mut command = site.here(site.program());
        command.args(["cast", "--json", "--nodes"]).arg(site.names(self.nodes.iter().copied()));
        command.args(&self.options).args(&self.sources).arg(site.destination());
        command
    }

    /// Starts it with what [`CastReport::losses`] and [`CastReport::new_plans`] need.
    pub(super) fn start_with_log(&self, site: &CastSite) -> Result<RunningCast> {
        let mut command = self.command(site);
        RunningCast::start(command.env("OUTBOARD_LOG", "info"), &site.directory("said")?)
    }

    pub(super) fn start(&self, site: &CastSite) -> Result<RunningCast> {
        RunningCast::start(&mut self.command(site), &site.directory("said")?)
    }

    /// Casts, and returns the report of whatever comes of it.
    pub(super) fn run(&self, site: &CastSite) -> Result<CastReport> {
        self.start(site)?.finish(CAST_MAX)
    }
}

/// A command that casts; killed when dropped.
#[derive(Debug)]
pub(super) struct RunningCast {
    child: Child,
    output: PathBuf,
    pub(super) began: Instant,
}

/// What a command that has ended said.
#[derive(Clone, Debug)]
pub(super) struct CastReport {
    /// `None` if a signal ended it.
    pub(super) code: Option<i32>,
    /// By node: how many names it has published, or why not. Empty if there was no report.
    pub(super) nodes: BTreeMap<String, Result<u64, String>>,
    /// Standard output.
    pub(super) said: String,
    /// Standard error.
    pub(super) complained: String,
    pub(super) took: Duration,
}

impl RunningCast {
    /// Starts it with its output in files of `directory`.
    pub(super) fn start(command: &mut Command, directory: &Path) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let output = directory.join(COUNT.fetch_add(1, Ordering::Relaxed).to_string());
        command.stdin(Stdio::null()).stdout(File::create(output.with_extension("out"))?);
        command.stderr(File::create(output.with_extension("err"))?);
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot start {}", command::line(command)))?;
        Ok(Self { child, output, began: Instant::now() })
    }

    /// Whether it still runs.
    pub(super) fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it has not ended `limit` after its beginning.
    pub(super) fn finish(mut self, limit: Duration) -> Result<CastReport> {
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if self.began.elapsed() > limit {
                let said = self.read("err");
                bail!("the cast has not ended after {} s: {said}", limit.as_secs());
            }
            sleep(PAUSE);
        };
        let (said, complained) = (self.read("out"), self.read("err"));
        let nodes = serde_json::from_str(&said).map(|report| outcomes(&report));
        Ok(CastReport {
            code: status.code(),
            nodes: nodes.unwrap_or_default(),
            said,
            complained,
            took: self.began.elapsed(),
        })
    }

    fn read(&self, stream: &str) -> String {
        let bytes = fs::read(self.output.with_extension(stream)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for RunningCast {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn outcomes(report: &Value) -> BTreeMap<String, Result<u64, String>> {
    let outcome = |node: &Value| {
        let host = node["host"].as_str()?.to_owned();
        let failed = node["failed"].as_str().unwrap_or("the report does not say").to_owned();
        Some((host, node["published"].as_u64().ok_or(failed)))
    };
    report["nodes"].as_array().into_iter().flatten().filter_map(outcome).collect()
}

impl CastReport {
    /// Requires success at all nodes.
    pub(super) fn expect_success(&self) -> Result<()> {
        if self.code != Some(0) || self.nodes.is_empty() || !self.failed().is_empty() {
            bail!("the cast failed: {self}");
        }
        Ok(())
    }

    /// Requires an error without any node, of which standard error says `word`.
    pub(super) fn expect_refusal(&self, word: &str) -> Result<()> {
        let said = format!("{}{}", self.complained, self.said);
        let is_plain = !said.contains("panicked") && self.complained.lines().count() < 12;
        match self.code {
            Some(code) if code != 0 && is_plain && said.contains(word) => Ok(()),
            _ => bail!("expected an error that says {word:?}: {self}"),
        }
    }

    /// Why the source lost a node, each time that it did, by its log.
    pub(super) fn losses(&self, host: &str) -> Vec<&str> {
        let lost = self.complained.lines().filter(|line| line.contains("a node takes no part"));
        lost.filter(|line| line.contains(host)).collect()
    }

    /// How many plans the source made after the first one, by its log.
    pub(super) fn new_plans(&self) -> usize {
        self.complained.lines().filter(|line| line.contains("a new plan")).count()
    }

    /// Nodes that have not published, with the reasons.
    pub(super) fn failed(&self) -> BTreeMap<&str, &str> {
        let failed = |(host, outcome)| -> Option<(&str, &str)> {
            let (host, outcome): (&String, &Result<u64, String>) = (host, outcome);
            Some((host, outcome.as_ref().err()?))
        };
        self.nodes.iter().filter_map(failed).collect()
    }
}

impl std::fmt::Display for CastReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let failed = self.failed();
        write!(f, "exit status {:?} after {:.1} s", self.code, self.took.as_secs_f64())?;
        write!(f, ", {} nodes reported, failed: {failed:?}", self.nodes.len())?;
        write!(f, ", standard error: {:?}", self.complained.trim())
    }
}
