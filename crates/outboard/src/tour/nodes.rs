//! Nodes on loopback: processes of this program, with a key, identities and directories of their
//! own. They end with the tour, or with the thread that started them.

use super::cluster::{clean_command, end, last_line};
use super::{Guide, Trouble};
use outboard_secure::ClusterKey;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Where nodes publish, as sources name it: each node has a directory of its own for it.
const ROOT: &str = "/outboard-tour";
/// A node ends in order within 5 s; then it is ended by force.
const END_MAX: Duration = Duration::from_secs(6);
const LOOK: Duration = Duration::from_millis(20);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct TourNodes {
    nodes: Vec<TourNode>,
    settings: Vec<(&'static str, PathBuf)>,
}

#[derive(Debug)]
struct TourNode {
    child: Child,
    /// Held open, so that its writes succeed.
    _out: BufReader<ChildStdout>,
    address: String,
    directory: PathBuf,
}

/// What a node is started with.
struct NodeSetup<'a> {
    service: &'a str,
    /// Its directory.
    own: &'a Path,
    /// Its configuration's file.
    config: String,
    /// Where it publishes files.
    files: PathBuf,
}

impl TourNodes {
    /// Nodes that receive what is cast.
    pub(super) fn start(guide: &Guide, count: usize) -> Result<Self, Trouble> {
        let (mut all, own) = Self::none(guide, "cast")?;
        for at in 1..=count {
            let node = all.receiver(guide, &own.join(format!("node-{at}")))?;
            all.nodes.push(node);
        }
        Ok(all)
    }

    /// One node whose regions modules work on: names and sizes.
    pub(super) fn with_regions(guide: &Guide, regions: &[(&str, &str)]) -> Result<Self, Trouble> {
        let (mut all, own) = Self::none(guide, "active")?;
        let region = |(name, size): &(&str, &str)| format!("{name} = {{ size = \"{size}\" }}\n");
        let regions: String = regions.iter().map(region).collect();
        let config = format!("[active.regions]\n{regions}");
        let (own, files) = (own.join("node"), own);
        let setup = NodeSetup { service: "active", own: &own, config, files };
        let node = all.node(guide, setup)?;
        all.nodes.push(node);
        Ok(all)
    }

    /// One node with a file system.
    pub(super) fn with_store(guide: &Guide) -> Result<Self, Trouble> {
        let (mut all, own) = Self::none(guide, "fs")?;
        // A string of JSON is one of TOML.
        let store = json!(own.join("store").to_string_lossy());
        let config = format!("[fs]\nstore = {store}\nsize = \"256MiB\"\nroot_squash = false\n");
        let (own, files) = (own.join("node"), own);
        let node = all.node(guide, NodeSetup { service: "fs", own: &own, config, files })?;
        all.nodes.push(node);
        Ok(all)
    }

    /// What a command of this program prints, with the nodes' key.
    pub(super) fn told(&self, words: &[&str]) -> Result<String, Trouble> {
        let output = self.command()?.args(words).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(Trouble::failed(&words.join(" "), said.trim())),
        }
    }

    /// A key in a directory of its own, and no nodes.
    fn none(guide: &Guide, name: &str) -> Result<(Self, PathBuf), Trouble> {
        let own = guide.place.directory(name)?;
        let key = own.join("key");
        ClusterKey::create(&key).map_err(|error| Trouble::failed("the key", error))?;
        let settings = vec![("OUTBOARD_KEY", key), ("XDG_CONFIG_HOME", own.join("config"))];
        let all = Self { nodes: Vec::new(), settings };
        if geteuid().is_root() {
            // Services run as a user of their own, who must reach their directories.
            reachable(guide.place.path())?;
            reachable(&own)?;
        }
        Ok((all, own))
    }

    /// What the environment of this program's commands says about the key.
    pub(super) fn setting(&self, name: &str) -> Option<OsString> {
        let known = self.settings.iter().find(|(setting, _)| *setting == name);
        known
            .map(|(_, path)| path.clone().into())
            .or_else(|| (!name.starts_with("OUTBOARD_")).then(|| std::env::var_os(name)).flatten())
    }

    /// The addresses of all.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.address.as_str())
    }

    fn command(&self) -> io::Result<Command> {
        let mut command = clean_command()?;
        command.envs(self.settings.iter().cloned());
        Ok(command)
    }

    fn receiver(&self, guide: &Guide, own: &Path) -> Result<TourNode, Trouble> {
        let directory = own.join("files");
        fs::create_dir_all(&directory)?;
        if geteuid().is_root() {
            reachable(own)?;
            fs::set_permissions(&directory, Permissions::from_mode(0o777))?;
        }
        // A string of JSON is one of TOML.
        let root = json!(directory.to_string_lossy());
        let config = format!(
            "[cast]\nroots = [{{ path = \"{ROOT}\", directory = {root} }}]\n\
             [reach.cast]\ncast = \"*\"\n"
        );
        self.node(guide, NodeSetup { service: "cast", own, config, files: directory })
    }

    fn node(&self, guide: &Guide, setup: NodeSetup<'_>) -> Result<TourNode, Trouble> {
        guide.goes_on()?;
        let NodeSetup { service, own, config: text, files } = setup;
        fs::create_dir_all(own)?;
        let (config, log) = (own.join("node.toml"), own.join("log"));
        fs::write(&config, text)?;
        let mut command = self.command()?;
        command.args(["node", "--with-parent", "--listen=127.0.0.1:0", "--serve", service]);
        command.arg("--config").arg(&config).env("XDG_CONFIG_HOME", own.join("config"));
        command.stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = command.process_group(0).spawn()?;
        let Some(out) = child.stdout.take() else {
            return Err(Trouble::Failed("a node has standard output".into()));
        };
        let (mut out, mut line) = (BufReader::new(out), String::new());
        out.read_line(&mut line)?;
        let address = line.split_whitespace().skip_while(|word| *word != "on").nth(1);
        match address.map(str::to_owned) {
            Some(address) => Ok(TourNode { child, _out: out, address, directory: files }),
            None => {
                end(&mut child);
                let why = last_line(&log, service).unwrap_or_default();
                Err(Trouble::Failed(format!("a node does not start: {why}")))
            }
        }
    }

    /// The directories in which names appear.
    pub(super) fn directories(&self) -> impl Iterator<Item = &Path> {
        self.nodes.iter().map(|node| node.directory.as_path())
    }

    /// Casts a tree to all, and gives the report of that.
    pub(super) fn cast(&self, tree: &Path) -> Result<Value, Trouble> {
        let hosts: Vec<&str> = self.addresses().collect();
        let mut command = self.command()?;
        command.args(["cast", "--json", "--launch=none", "--nodes", &hosts.join(",")]);
        let output = command.arg(tree).arg(ROOT).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| Trouble::failed("the cast", said.trim()))?;
        if output.status.success() { Ok(report) } else { Err(Trouble::failed("the cast", report)) }
    }
}

/// Lets others pass through a directory of the tour's; they do not see what is in it.
fn reachable(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o711))
}

impl Drop for TourNodes {
    fn drop(&mut self) {
        for node in &self.nodes {
            // Fails only when it has ended already.
            let _asked = kill_process(Pid::from_child(&node.child), Signal::TERM);
        }
        let limit = Instant::now() + END_MAX;
        for node in &mut self.nodes {
            while matches!(node.child.try_wait(), Ok(None)) && Instant::now() < limit {
                thread::sleep(LOOK);
            }
            end(&mut node.child);
        }
    }
}
