//! A command that has ended: its exit status and what it said.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

use crate::command;

/// After which a command is killed.
const LIMIT_S: &str = "100";

/// See the [module](self).
#[derive(Debug)]
pub(super) struct CommandRun {
    output: Output,
    line: String,
}

impl CommandRun {
    /// Runs a command, with a limit of time.
    pub(super) fn of(command: &mut Command) -> Result<Self> {
        let line = command::line(command);
        let mut limited = Command::new("timeout");
        limited.args(["--kill-after=5", LIMIT_S]).arg(command.get_program());
        limited.args(command.get_args()).stdin(Stdio::null()).env_clear();
        limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if let Some(directory) = command.get_current_dir() {
            limited.current_dir(directory);
        }
        let output = limited.output().with_context(|| format!("cannot start {line}"))?;
        Ok(Self { output, line })
    }

    pub(super) fn out(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub(super) fn complaints(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// Requires an exit status.
    pub(super) fn expect_code(&self, code: i32) -> Result<&Self> {
        if self.output.status.code() == Some(code) {
            return Ok(self);
        }
        let (out, complaints) = (self.out(), self.complaints());
        bail!("{}: {}, not {code}:\n{out}{complaints}", self.line, self.output.status)
    }

    /// Requires that something was said.
    pub(super) fn expect_said(&self, text: &str) -> Result<&Self> {
        let said = self.out() + &self.complaints();
        if said.contains(text) {
            return Ok(self);
        }
        bail!("{}: nothing of {text:?} in:\n{said}", self.line)
    }

    /// The lines of its output, sorted.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.out().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}
