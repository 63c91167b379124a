//! Casts by an ordinary user to nodes of that user on the loopback interface: without root,
//! namespaces, or services of another user.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::image::{Contents, TreeImage};
use super::run::{CAST_MAX, CastReport, RunningCast};
use super::sample;
use super::site::{build, scratch};
use super::traces::expect_names;
use crate::command::{self, PATH};
use crate::scratch::Scratch;
use crate::test::needs::is_root;

/// The user, if this one is root: nobody.
const USER: u32 = 65534;

/// A check that needs no root.
pub(super) type OrdinaryCheck = (&'static str, fn(&Account) -> Result<()>);

pub(super) const CHECKS: &[OrdinaryCheck] = &[
    ("ordinary: two nodes of a user", two_nodes),
    ("ordinary: umask, time zone, directory", surroundings),
    ("ordinary: two nodes, one directory", one_directory),
    ("ordinary: what the user may not read or write", forbidden),
];

/// A user with a key and files.
#[derive(Debug)]
pub(super) struct Account {
    scratch: Scratch,
}

/// A node of that user, ended when dropped.
#[derive(Debug)]
struct OwnNode {
    child: Child,
    address: String,
    root: PathBuf,
}

impl Account {
    pub(super) fn new() -> Result<Self> {
        build()?;
        let account = Self { scratch: scratch()? };
        let program = account.directory("bin")?.join("outboard");
        fs::copy(command::target_dir().join("debug/outboard"), program)?;
        command::run(account.outboard().args(["key", "new"]).stdout(Stdio::null()))?;
        sample::make_ordinary(&account.directory("tree")?)?;
        Ok(account)
    }

    /// A directory of the user's.
    fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.scratch.directory(name)?;
        if is_root() {
            chown(&path, Some(USER), Some(USER))?;
        }
        Ok(path)
    }

    /// A program that this user runs.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = match is_root() {
            true => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={USER}")).arg(format!("--regid={USER}"));
                command.arg("--clear-groups").arg(program);
                command
            }
            false => Command::new(program),
        };
        command.env_clear().env("PATH", PATH).env("HOME", self.scratch.path("home"));
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    fn outboard(&self) -> Command {
        let _ = self.directory("home");
        self.command(self.scratch.path("bin/outboard"))
    }

    /// A node with a root of its own.
    fn node(&self, name: &str, line: &str) -> Result<OwnNode> {
        let root = self.directory(name)?;
        let configuration = self.scratch.path(format!("{name}.toml"));
        let text = format!("[reach.cast]\ncast = \"*\"\n[cast]\nroots = [{root:?}]\n");
        fs::write(&configuration, text)?;
        fs::set_permissions(&configuration, fs::Permissions::from_mode(0o644))?;
        let mut node = self.command("sh");
        node.args(["-ec", &format!("{line}\nexec \"$@\""), "sh"]);
        node.arg(self.scratch.path("bin/outboard")).arg("node").arg("--config");
        node.arg(configuration).args(["--serve", "cast", "--listen", "127.0.0.1:0"]);
        node.stderr(File::create(self.scratch.path(format!("{name}.log")))?);
        let mut child = node.stdout(Stdio::piped()).spawn().context("cannot start a node")?;
        let mut said = String::new();
        let output = child.stdout.take().context("a node has no output")?;
        BufReader::new(output).read_line(&mut said)?;
        let address = said.split(" listens on ").nth(1).and_then(|rest| rest.split(' ').next());
        let address = address.with_context(|| format!("a node says {said:?}"))?.to_owned();
        Ok(OwnNode { child, address, root })
    }

    fn cast(&self, nodes: &[&OwnNode], words: &[&Path], line: &str) -> Result<CastReport> {
        let nodes: Vec<&str> = nodes.iter().map(|node| &*node.address).collect();
        let mut cast = self.command("sh");
        cast.args(["-ec", &format!("{line}\nexec \"$@\""), "sh"]);
        cast.arg(self.scratch.path("bin/outboard"));
        cast.args(["cast", "--json", "--nodes", &nodes.join(",")]).args(words);
        RunningCast::start(&mut cast, &self.scratch.directory("said")?)?.finish(CAST_MAX)
    }

    fn tree(&self) -> PathBuf {
        self.scratch.path("tree")
    }
}

impl Drop for OwnNode {
    fn drop(&mut self) {
        // A node that has ended already is no matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Requires that a root has the tree and nothing else.
fn expect_tree(account: &Account, root: &Path) -> Result<()> {
    expect_names(root, &["tree"])?;
    TreeImage::read(&account.tree())?.expect(&root.join("tree"), Contents::Whole)
}

/// One of the nodes has the destination among its roots, the other does not.
fn two_nodes(account: &Account) -> Result<()> {
    let (one, two) = (account.node("one", "")?, account.node("two", "")?);
    for (own, other) in [(&one, &two), (&two, &one)] {
        let report = account.cast(&[&one, &two], &[&account.tree(), &own.root], "")?;
        let failed: Vec<&str> = report.failed().into_keys().collect();
        if report.code != Some(1) || failed != [&*other.address] {
            bail!("one of two nodes has another root: {report}");
        }
        expect_tree(account, &own.root)?;
    }
    Ok(())
}

fn surroundings(account: &Account) -> Result<()> {
    let lines = [
        "umask 077; export TZ=Pacific/Kiritimati",
        "umask 000; export TZ=America/St_Johns LC_ALL=tr_TR.UTF-8",
        "cd /proc/self; ulimit -n 256",
    ];
    for (number, line) in lines.into_iter().enumerate() {
        let node = account.node(&format!("around{number}"), line)?;
        for cast in lines {
            let report = account.cast(&[&node], &[&account.tree(), &node.root], cast)?;
            report.expect_success().context(cast)?;
            expect_tree(account, &node.root).context(cast)?;
            fs::remove_dir_all(node.root.join("tree"))?;
        }
    }
    Ok(())
}

/// A directory that two nodes have in common, as on a network file system: one of them makes the
/// names, and the other says why it does not.
fn one_directory(account: &Account) -> Result<()> {
    let (one, two) = (account.node("common", "")?, account.node("common", "")?);
    let report = account.cast(&[&one, &two], &[&account.tree(), &one.root], "")?;
    if report.code != Some(1) || report.failed().len() != 1 {
        bail!("two nodes have one directory: {report}");
    }
    expect_tree(account, &one.root)
}

fn forbidden(account: &Account) -> Result<()> {
    let node = account.node("forbidden", "")?;
    let secret = account.directory("secrets")?;
    let file = secret.join("secret");
    fs::write(&file, "secret")?;
    if is_root() {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
    } else {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o000))?;
    }
    account.cast(&[&node], &[&secret, &node.root], "")?.expect_refusal("secret")?;
    expect_names(&node.root, &[])?;
    let closed = node.root.join("closed");
    fs::create_dir(&closed)?;
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555))?;
    let report = account.cast(&[&node], &[&account.tree(), &closed], "")?;
    if report.code != Some(1) || report.failed().len() != 1 {
        bail!("the user may not write there: {report}");
    }
    expect_names(&closed, &[])?;
    Ok(fs::remove_dir(closed)?)
}
