//! A client and its servers, set up as by users: programs, keys, nodes, and a directory for each.
//!
//! Servers together have more slots than a small pool of servers, so that a job waits for one of
//! them however long that takes: a local job always has another reason.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::statistics::Statistics;
use crate::builds;
use crate::command::{PATH, signal_all};
use crate::lab::{Cable, Host, Lab, Link};
use crate::process::{Process, reap, wait_listening};
use crate::scratch::Scratch;

/// Number of servers.
pub(super) const SERVERS: usize = 3;
/// The user as which services run: nobody.
pub(super) const SERVICE_USER: u32 = 65534;

const PORT: u16 = 7410;
const LINK: Link = Link::BitsPerSecond(1_000_000_000);
/// How long a node may take to listen, and all servers to get their first jobs.
const READY_MAX: Duration = Duration::from_secs(60);
/// How long a program that makes a query may take.
const ASK_MAX: Duration = Duration::from_secs(30);

/// Gives a host a name of its own and, if requested, a small file system; then executes the rest.
const FURNISH: &str = r#"
echo "$1" > /proc/sys/kernel/hostname
test -z "$2" || mount -t tmpfs -o "size=$2,mode=700,uid=$4" tmpfs "$3"
shift 4
exec "$@"
"#;

/// Names in build files that are the same for both ways of building.
const LAUNCHER: &str = "#!/bin/sh\nexec $LAUNCHER \"$@\"\n";

/// Deviations from the usual start of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Setup {
    /// Further command-line arguments.
    pub(super) arguments: Vec<String>,
    /// Further lines of the service's configuration.
    pub(super) compile: String,
    /// The size of the file system that holds its cache, as mount(8) takes it.
    pub(super) disk: Option<&'static str>,
    /// A key other than the cluster's.
    pub(super) key: Option<PathBuf>,
}

/// A client and its servers; see the [module](self).
#[derive(Debug)]
pub(super) struct Site {
    lab: Lab,
    nodes: Vec<Option<Child>>,
    scratch: Scratch,
}

impl Site {
    /// Hosts without running programs.
    pub(super) fn new() -> Result<Self> {
        let outboard = builds::outboard(false)?;
        let scratch = Scratch::new(&env::temp_dir(), "outboard-test-of-compile-")?;
        for program in ["outboard", "outboard-cc"] {
            let built = outboard.with_file_name(program);
            // Services run as an ordinary user, which may have no access to the workspace.
            fs::copy(&built, scratch.directory("bin")?.join(program))?;
        }
        let launcher = scratch.path("bin/launcher");
        fs::write(&launcher, LAUNCHER)?;
        fs::set_permissions(launcher, Permissions::from_mode(0o755))?;
        let processors = thread::available_parallelism()?.get();
        let all = format!("0-{}", processors - 1);
        let lab = Lab::new(&[&*all; 1 + SERVERS], LINK)?;
        let site = Self { lab, nodes: (0..SERVERS).map(|_| None).collect(), scratch };
        site.make_key()?;
        site.ask("outboard", &["cc", "--install-links", &site.links().to_string_lossy()])?;
        Ok(site)
    }

    /// Starts new nodes, and a client without state.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.silence()?;
        for index in 0..SERVERS {
            self.cable(index, Cable::Joined)?;
            self.clear(&host_name(index))?;
        }
        self.clear("client")?;
        self.directory("client/run")?;
        for index in 0..SERVERS {
            self.launch(index, &Setup::default())?;
        }
        (0..SERVERS).try_for_each(|index| self.wait_listening(index))
    }

    /// Checks for faults that no check looks for, such as panics, and ends everything.
    pub(super) fn end(&mut self) -> Result<()> {
        let logs = self.logs();
        self.silence()?;
        let panicked = |(_, text): &&(PathBuf, String)| text.contains("panicked");
        match logs.iter().find(panicked) {
            Some((path, text)) => bail!("{}: {text}", path.display()),
            None => Ok(()),
        }
    }

    /// Prints all logs.
    pub(super) fn print_logs(&self) {
        for (path, text) in self.logs() {
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(12)..].join("\n    ");
            println!("  {}:\n    {last}", path.display());
        }
    }

    fn logs(&self) -> Vec<(PathBuf, String)> {
        let nodes = (0..SERVERS).map(|index| self.log(index));
        let manager = self.manager_log();
        let read = |path: PathBuf| Some((path.clone(), fs::read_to_string(path).ok()?));
        nodes.chain([manager]).filter_map(read).collect()
    }

    fn manager_log(&self) -> PathBuf {
        self.scratch.path("client/run/outboard/cc.log")
    }

    /// The log of the client's managers so far.
    pub(super) fn manager_said(&self) -> Result<String> {
        Ok(fs::read_to_string(self.manager_log())?)
    }

    fn silence(&mut self) -> Result<()> {
        self.lab.hosts().iter().try_for_each(|host| host.group.kill())?;
        for mut node in self.nodes.iter_mut().filter_map(Option::take) {
            reap(&mut node)?;
        }
        Ok(())
    }

    /// A directory for a check's files.
    pub(super) fn directory(&self, name: &str) -> Result<PathBuf> {
        self.scratch.directory(name)
    }

    fn clear(&self, name: &str) -> Result<()> {
        remove(&self.scratch.path(name))?;
        self.directory(name).map(drop)
    }

    /// The name of a log that is not in use.
    fn unique_log(&self) -> Result<PathBuf> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Ok(self.directory("logs")?.join(number.to_string()))
    }

    fn make_key(&self) -> Result<()> {
        self.ask("outboard", &["key", "new"]).map(drop)
    }

    /// The cluster's key.
    pub(super) fn key(&self) -> PathBuf {
        self.scratch.path("key")
    }

    pub(super) fn links(&self) -> PathBuf {
        self.scratch.path("links")
    }

    /// The launcher in front of a compiler's name in build files: the wrapper in [`Site::away`],
    /// and nothing in [`Site::here`].
    pub(super) fn launcher(&self) -> PathBuf {
        self.scratch.path("bin/launcher")
    }
}

/// Servers.
impl Site {
    /// A server's host.
    pub(super) fn server(&self, index: usize) -> &Host {
        &self.lab.hosts()[1 + index]
    }

    /// The directory of a server's stored contents.
    pub(super) fn cache(&self, index: usize) -> PathBuf {
        self.scratch.path(host_name(index)).join("cache")
    }

    /// A node's process.
    pub(super) fn node(&self, index: usize) -> Result<u32> {
        let node = self.nodes[index].as_ref().map(Child::id);
        node.with_context(|| format!("{} has no node", host_name(index)))
    }

    /// A server's list of revoked identities.
    pub(super) fn revoked(&self, index: usize) -> PathBuf {
        self.scratch.path(host_name(index)).join(".config/outboard/revoked")
    }

    fn log(&self, index: usize) -> PathBuf {
        self.scratch.path(host_name(index)).join("log")
    }

    /// A node's log so far.
    pub(super) fn said(&self, index: usize) -> String {
        fs::read_to_string(self.log(index)).unwrap_or_default()
    }

    /// Kills all processes on a server's host at once.
    pub(super) fn kill(&mut self, index: usize) -> Result<()> {
        self.server(index).group.kill()?;
        self.nodes[index].take().map_or(Ok(()), |mut node| reap(&mut node))
    }

    /// Sends all processes on a server's host a signal, such as `STOP`.
    pub(super) fn signal(&self, index: usize, signal: &str) -> Result<()> {
        let processes = self.server(index).group.processes()?;
        if processes.is_empty() {
            bail!("nothing runs on {}", host_name(index));
        }
        signal_all(&processes, signal)
    }

    /// Cuts or connects a server's link.
    pub(super) fn cable(&self, index: usize, cable: Cable) -> Result<()> {
        self.lab.cable(1 + index, cable)
    }

    /// Ends a node and starts another in its place.
    pub(super) fn replace(&mut self, index: usize, setup: &Setup) -> Result<()> {
        self.kill(index)?;
        self.launch(index, setup)?;
        self.wait_listening(index)
    }

    fn launch(&mut self, index: usize, setup: &Setup) -> Result<()> {
        let home = self.scratch.directory(&host_name(index))?;
        let cache = self.cache(index);
        fs::create_dir_all(&cache)?;
        chown(&cache, Some(SERVICE_USER), Some(SERVICE_USER))?;
        let configuration = home.join("node.toml");
        let text = format!(
            "user = \"{SERVICE_USER}:{SERVICE_USER}\"\n\
             [compile]\ncache = {cache:?}\n{}",
            setup.compile
        );
        fs::write(&configuration, text)?;
        let mut node = self.server(index).command("unshare");
        node.args(["--uts", "--mount", "--propagation", "private", "sh", "-c", FURNISH, "sh"]);
        node.args([&*host_name(index), setup.disk.unwrap_or_default()]).arg(&cache);
        node.arg(SERVICE_USER.to_string()).arg(self.scratch.path("bin/outboard"));
        node.arg("node").arg("--config").arg(configuration);
        node.args(["--serve", "compile", "--slots", &slots().to_string(), "--listen"]);
        node.arg(format!("{}:{PORT}", self.server(index).address)).arg("--key");
        node.arg(setup.key.clone().unwrap_or_else(|| self.key())).args(&setup.arguments);
        node.env_clear().env("PATH", PATH).env("HOME", &home);
        let log = fs::File::options().create(true).append(true).open(self.log(index))?;
        node.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.nodes[index] = Some(node.spawn().context("cannot start a node")?);
        Ok(())
    }

    fn wait_listening(&mut self, index: usize) -> Result<()> {
        let deadline = Instant::now() + READY_MAX;
        let Some(node) = &mut self.nodes[index] else { bail!("{} has no node", host_name(index)) };
        wait_listening(node, PORT, deadline)
            .map_err(|error| anyhow!("{}: {error}:\n{}", host_name(index), self.said(index)))
    }
}

/// The client.
impl Site {
    /// The client's host.
    pub(super) fn client(&self) -> &Host {
        &self.lab.hosts()[0]
    }

    /// A program on the client's host. Compilers are those of the system.
    pub(super) fn here(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.client().command(program);
        let home = self.scratch.path("client");
        command.env_clear().env("HOME", &home).env("OUTBOARD_KEY", self.key());
        command.env("PATH", self.path());
        for (variable, directory) in [
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_STATE_HOME", "state"),
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_RUNTIME_DIR", "run"),
        ] {
            command.env(variable, home.join(directory));
        }
        let hosts = self.lab.hosts().iter().skip(1);
        let hosts: Vec<_> = hosts.map(|host| format!("{}:{PORT}", host.address)).collect();
        command.env("OUTBOARD_HOSTS", hosts.join(","));
        // Variables that compilers write into objects.
        command.env("SOURCE_DATE_EPOCH", "1000000000").env("LC_ALL", "C").env("TERM", "dumb");
        command
    }

    /// The search path of the client's programs.
    pub(super) fn path(&self) -> OsString {
        format!("{}:{PATH}", self.scratch.path("bin").display()).into()
    }

    /// A program on the client's host, with links to the wrapper in place of compilers.
    pub(super) fn away(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.here(program);
        let (links, bin) = (self.links(), self.scratch.path("bin"));
        command.env("PATH", format!("{}:{}:{PATH}", links.display(), bin.display()));
        command.env("LAUNCHER", self.scratch.path("bin/outboard-cc"));
        command
    }

    /// Runs a program to its end; it must succeed.
    pub(super) fn finish(&self, command: &mut Command, limit: Duration) -> Result<String> {
        Process::start(command, &self.unique_log()?)?.finish(Instant::now() + limit)
    }

    /// Starts a program.
    pub(super) fn start(&self, command: &mut Command) -> Result<Process> {
        Process::start(command, &self.unique_log()?)
    }

    fn ask(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.directory("client/run")?;
        self.finish(self.here(program).args(arguments), ASK_MAX)
    }

    /// Where jobs ran since the last call.
    pub(super) fn statistics(&self) -> Result<Statistics> {
        Statistics::parse(&self.ask("outboard", &["cc", "--stats", "--json", "--zero"])?)
    }

    /// Compiles a small file until each of `servers` has had a job, so that all are connected.
    pub(super) fn warm(&self, servers: usize) -> Result<()> {
        let at = self.directory("warm")?;
        fs::write(at.join("nothing.c"), "int nothing;\n")?;
        let deadline = Instant::now() + READY_MAX;
        loop {
            let trifle = |number: usize| {
                let mut command = self.here("outboard-cc");
                command.args(["gcc", "-c", "nothing.c", "-o", &format!("{number}.o")]);
                self.start(command.current_dir(&at))
            };
            let trifles = (0..SERVERS * slots()).map(trifle).collect::<Result<Vec<_>>>()?;
            for mut trifle in trifles {
                trifle.finish(deadline)?;
            }
            let statistics = self.statistics()?;
            if statistics.servers.len() == servers {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("only these servers took jobs: {statistics:?}");
            }
            sleep(Duration::from_millis(200));
        }
    }
}

/// Slots of each server: all together more than those of a small pool, which has up to four for
/// each processor of the client.
pub(super) fn slots() -> usize {
    4 * thread::available_parallelism().map_or(1, usize::from) / SERVERS + 1
}

/// A server's name.
pub(super) fn host_name(index: usize) -> String {
    format!("server{index}")
}

impl Drop for Site {
    fn drop(&mut self) {
        // The nodes, which use the directory, end first; the lab ends the other processes.
        let _ = self.silence();
    }
}

/// Removes a directory, if it is there.
pub(super) fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
