//! A stock program: started with its output in a file, waited for, and killed when dropped.
//!
//! It gets a process group of its own, because fio and Python start child processes.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::command;

/// Interval between two checks of a program.
pub(crate) const PAUSE: Duration = Duration::from_millis(2);

/// A running program, killed with its children when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    line: String,
}

impl Process {
    /// Starts a program whose both output streams go to `log`.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
        let line = command::line(command);
        let child = command.spawn().with_context(|| format!("cannot start {line}"))?;
        Ok(Self { child, log: log.to_owned(), line })
    }

    /// Waits until a socket listens on `port`, or the program ends without that.
    pub(crate) fn wait_listening(&mut self, port: u16, deadline: Instant) -> Result<()> {
        let listens = wait_listening(&mut self.child, port, deadline);
        listens.map_err(|error| anyhow!("{}: {error}:\n{}", self.line, self.excerpt()))
    }

    /// Whether the program has ended with success; an error if it failed or the deadline has
    /// passed.
    pub(crate) fn succeeded(&mut self, deadline: Instant) -> Result<bool> {
        match self.child.try_wait()? {
            Some(status) if status.success() => Ok(true),
            Some(status) => bail!("{} ended with {status}:\n{}", self.line, self.excerpt()),
            None if Instant::now() > deadline => {
                bail!("{} did not end in time:\n{}", self.line, self.excerpt())
            }
            None => Ok(false),
        }
    }

    /// Waits for success until `deadline`; returns the program's output.
    pub(crate) fn finish(&mut self, deadline: Instant) -> Result<String> {
        while !self.succeeded(deadline)? {
            thread::sleep(PAUSE);
        }
        Ok(self.said())
    }

    /// What the program wrote so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The first and the last lines of the output, for messages. The first, too: what a program
    /// writes to standard error at its end comes before what it has kept for standard output.
    pub(crate) fn excerpt(&self) -> String {
        excerpt(&self.said())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        // If the group has ended already, the error is expected.
        let mut kill = Command::new("kill");
        let _ = kill.args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.wait();
    }
}

/// How many lines of an output are shown from its beginning, and from its end.
const FIRST: usize = 12;
const LAST: usize = 20;

fn excerpt(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    if lines.len() <= FIRST + LAST {
        return lines.join("\n");
    }
    let (first, last) = (&lines[..FIRST], &lines[lines.len() - LAST..]);
    format!("{}\n...\n{}", first.join("\n"), last.join("\n"))
}

/// Waits until a socket listens on `port` beside a program, or the program ends without that. It is
/// looked for in the program's own network namespace, which may differ from this process's.
pub(crate) fn wait_listening(child: &mut Child, port: u16, deadline: Instant) -> Result<()> {
    let process = child.id().to_string();
    while !command::listens_beside(&process, port).unwrap_or(false) {
        if let Some(status) = child.try_wait()? {
            bail!("process {process} ended with {status} before it listened on port {port}");
        }
        if Instant::now() > deadline {
            bail!("process {process} does not listen on port {port}");
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Kills a program, and takes its exit status.
pub(crate) fn reap(child: &mut Child) -> Result<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Process {
        let log = std::env::temp_dir().join(format!("outboard-{}-{name}", std::process::id()));
        Process::start(Command::new("sh").args(["-c", script]), &log).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn success_returns_both_streams() {
        let said = shell("both", "echo out; echo err >&2").finish(soon()).unwrap();
        assert_eq!(said, "out\nerr\n");
    }

    #[test]
    fn failure_is_an_error_with_the_output() {
        let error = shell("bad", "echo why; exit 3").finish(soon()).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("why"), "{error}");
    }

    #[test]
    fn what_a_program_says_on_its_errors_is_shown_before_what_it_kept() {
        let said = |count: usize| (0..count).map(|line| format!("{line}\n")).collect::<String>();
        assert_eq!(excerpt(&said(32)), said(32).trim_end());
        let long = excerpt(&said(1000));
        assert!(long.starts_with("0\n1\n") && long.ends_with("\n998\n999"), "{long}");
        assert!(long.contains("\n11\n...\n980\n"), "{long}");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let mut hanging = shell("hang", "sleep 1000 & echo $!; wait");
        let error = hanging.finish(Instant::now() + Duration::from_millis(300)).unwrap_err();
        assert!(error.to_string().contains("did not end in time"), "{error}");
        let child = hanging.excerpt();
        drop(hanging);
        let gone = || {
            let state = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            state.is_empty() || state.contains(" Z ")
        };
        let deadline = soon();
        while !gone() {
            assert!(Instant::now() < deadline, "{child} lives on");
            thread::sleep(PAUSE);
        }
    }
}
