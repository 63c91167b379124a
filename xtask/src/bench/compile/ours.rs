//! Outboard, as users start it: nodes that serve `compile`, and `outboard-cc` before the compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::build::Wrapper;
use super::contender::Contender;
use super::stage::Stage;
use crate::builds;
use crate::command;
use crate::lab::Host;

const PORT: u16 = 7410;
/// How long all nodes together may take to start on one processor.
const READY_MAX: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);
/// Compilers by the names under which clients know them.
const COMPILERS: [&str; 2] = ["gcc", "g++"];

/// The paths of the programs.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    outboard: PathBuf,
    wrapper: PathBuf,
}

/// Builds them in release mode.
pub(super) fn build() -> Result<Programs> {
    let outboard = builds::outboard(true)?;
    Ok(Programs { wrapper: outboard.with_file_name("outboard-cc"), outboard })
}

/// `outboard cc`, with one way of handing jobs over.
#[derive(Debug)]
pub(super) struct Ours {
    pub(super) programs: Programs,
    pub(super) way: Way,
}

/// How a job is handed to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Servers read the files that the compiler asks for.
    Pull,
    /// The paper's way: the client preprocesses.
    Preprocess,
    /// As [`Self::Preprocess`], with the manager on the servers' processor: the paper's substitute
    /// for a network card that runs the protocol itself.
    PreprocessElsewhere,
}

impl Contender for Ours {
    fn name(&self) -> &'static str {
        match self.way {
            Way::Pull => "pull",
            Way::Preprocess => "preprocess",
            Way::PreprocessElsewhere => "preprocess, engine on a core of its own",
        }
    }

    fn start(&self, stage: &Stage) -> Result<Wrapper> {
        let programs = self.programs.copied_to(&stage.shared("bin")?)?;
        let key = stage.shared("key")?.join("key");
        let mut make_key = locally(stage, stage.client(), Command::new(&programs.outboard));
        command::output(make_key.args(["key", "new"]).env("OUTBOARD_KEY", &key))?;
        let (mut hosts, slots) = (Vec::new(), stage.slots().to_string());
        for (host, place) in stage.servers() {
            let listen = format!("{}:{PORT}", host.address);
            let own = stage.temporary(host);
            let configuration = own.join("node.toml");
            fs::write(&configuration, format!("[compile]\ncache = {:?}\n", own.join("cache")))?;
            let mut node = locally(stage, host, host.command(&programs.outboard));
            node.args(["node", "--config"]).arg(configuration).args(["--serve", "compile"]);
            node.args(["--slots", &slots, "--listen", &listen, "--key"]).arg(&key);
            let stand_ins = place.into_iter().flat_map(|place| {
                COMPILERS.map(|name| format!("{name}={}", place.join("bin").join(name).display()))
            });
            node.args(stand_ins.flat_map(|stand_in| ["--toolchain".to_owned(), stand_in]));
            stage.serve(host, &mut node, PORT)?;
            hosts.push(format!("{listen}/{slots}"));
        }
        let mut environment = home(stage, stage.client());
        environment.extend([
            ("OUTBOARD_HOSTS", hosts.join(",")),
            ("OUTBOARD_KEY", key.display().to_string()),
        ]);
        if self.way != Way::Pull {
            environment.push(("OUTBOARD_CC_MODE", "preprocess".to_owned()));
        }
        wait_ready(stage, &programs, &environment)?;
        let wrapper = programs.wrapper.display().to_string();
        let wrapper = Wrapper { program: Some(wrapper), environment };
        if self.way == Way::PreprocessElsewhere {
            start_manager(stage, &programs, &wrapper)?;
        }
        Ok(wrapper)
    }
}

impl Programs {
    /// Services run as an ordinary user, which may have no access to the workspace.
    fn copied_to(&self, directory: &Path) -> Result<Self> {
        let copy = |program: &Path| -> Result<PathBuf> {
            let copy = directory.join(program.file_name().unwrap_or_default());
            fs::copy(program, &copy)?;
            Ok(copy)
        };
        Ok(Self { outboard: copy(&self.outboard)?, wrapper: copy(&self.wrapper)? })
    }
}

/// Waits until all nodes have identified this machine's compilers.
fn wait_ready(
    stage: &Stage,
    programs: &Programs,
    environment: &[(&'static str, String)],
) -> Result<()> {
    let deadline = Instant::now() + READY_MAX;
    loop {
        let mut status = locally(stage, stage.client(), stage.client().command(&programs.outboard));
        status.args(["status", "--json"]).envs(environment.iter().cloned());
        // The command fails as long as one node does not answer.
        let said = status.output()?;
        let text = String::from_utf8_lossy(&said.stdout);
        if text.matches("\"free\":").count() == stage.servers().count() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("not all nodes are ready: {text}");
        }
        thread::sleep(PAUSE);
    }
}

/// Starts the manager before its first job, on the servers' processor; it ends with the stage.
fn start_manager(stage: &Stage, programs: &Programs, wrapper: &Wrapper) -> Result<()> {
    let mut manager = stage.client().command("taskset");
    manager.args(["--cpu-list", super::stage::SERVERS]).arg(&programs.outboard);
    manager.args(["cc", "--manager"]).envs(wrapper.environment.iter().cloned());
    manager.stdin(Stdio::null()).spawn()?;
    Ok(())
}

/// The command with directories of its own instead of the user's.
fn locally(stage: &Stage, host: &Host, mut command: Command) -> Command {
    command.envs(home(stage, host));
    command
}

/// The variables that replace a user's home directory for a host's programs.
fn home(stage: &Stage, host: &Host) -> Vec<(&'static str, String)> {
    let own = stage.temporary(host).display().to_string();
    let variables = [
        "HOME",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_RUNTIME_DIR",
        "XDG_STATE_HOME",
        "TMPDIR",
    ];
    variables.map(|name| (name, own.clone())).to_vec()
}
