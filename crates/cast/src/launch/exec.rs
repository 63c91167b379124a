//! A program that starts on the nodes once its files are there.
//!
//! In a Slurm job `srun` starts it as the job's variables say, so that it has the tasks, the limits
//! and the MPI of any other step; elsewhere each host runs one. Its output is the caller's.

use super::{LaunchError, LaunchWay};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};

/// What to start.
#[derive(Clone, Debug)]
pub struct ExecProgram {
    /// Its path at the nodes.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// A directory at the nodes that its loader searches first.
    pub libraries: Option<PathBuf>,
}

/// How it ended: the exit status of `srun`, or the highest of all hosts'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecResult {
    /// An exit status; a program that died of a signal counts as 128 and its number.
    pub code: u8,
}

impl ExecProgram {
    /// Starts it on these nodes of the way's, and waits for all.
    ///
    /// # Errors
    /// [`LaunchError::Command`], [`LaunchError::System`].
    pub fn run(&self, way: &LaunchWay, nodes: &[String]) -> Result<ExecResult, LaunchError> {
        let commands = way.programs(nodes, &self.words());
        let mut children = Vec::new();
        for mut launch in commands {
            if matches!(way, LaunchWay::Ssh(_) | LaunchWay::Command { .. }) {
                launch.command.stdin(Stdio::null());
            }
            let program = launch.command.get_program().to_string_lossy().into_owned();
            match launch.command.spawn() {
                Ok(child) => children.push(child),
                Err(source) => {
                    // Those that run would wait in vain.
                    children.iter_mut().for_each(end);
                    return Err(LaunchError::Command { program, source });
                }
            }
        }
        let mut code = 0;
        for mut child in children {
            code = code.max(code_of(child.wait()?));
        }
        Ok(ExecResult { code })
    }

    fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        if let Some(libraries) = &self.libraries {
            // Not in srun's own environment: it would load them itself.
            words.push("env".into());
            let mut setting = OsString::from("LD_LIBRARY_PATH=");
            setting.push(libraries);
            if let Some(before) = std::env::var_os("LD_LIBRARY_PATH").filter(|set| !set.is_empty())
            {
                setting.push(":");
                setting.push(before);
            }
            words.push(setting);
        }
        words.push(self.program.clone().into());
        words.extend(self.arguments.iter().cloned());
        words
    }
}

fn end(child: &mut Child) {
    // It may have ended by itself.
    let _killed = child.kill();
    let _status = child.wait();
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, hosts: &str) -> u8 {
        // The host is the script's name, and the line runs in it.
        let words = ["sh", "-c", "host=$0; eval \"$1\""].map(str::to_owned).to_vec();
        let way = LaunchWay::Command { words, hosts: hosts.parse().expect("hosts") };
        let program = ExecProgram {
            program: "sh".into(),
            arguments: vec!["-c".into(), script.into()],
            libraries: Some("/opt/libraries".into()),
        };
        program.run(&way, &way.nodes()).expect("it starts").code
    }

    #[test]
    fn the_highest_status_counts_and_a_signal_is_one() {
        assert_eq!(run("exit 0", "n1,n2"), 0);
        assert_eq!(run("kill -9 $$", "n1"), 137);
        assert_eq!(run("case $LD_LIBRARY_PATH in /opt/libraries*) exit 7;; esac", "n1,n2"), 7);
    }
}
