//! `outboard cast` as users type it, with real nodes on loopback: what arrives, what is reported,
//! and what is said to each wrong use.

use outboard_testkit::eventually;
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The root's path as sources name it; each node has a directory of its own there.
const ROOT: &str = "/var/cast-of-tests";

/// A user with a key and some nodes.
struct Lab {
    home: PathBuf,
    /// Lines of each node's table [cast].
    settings: &'static str,
    nodes: Vec<Node>,
}

struct Node {
    child: Child,
    /// Held open, so that its writes succeed.
    _out: BufReader<std::process::ChildStdout>,
    address: String,
    root: PathBuf,
}

impl Lab {
    fn new(name: &str, nodes: usize) -> Self {
        Self::with_settings(name, nodes, "")
    }

    fn with_settings(name: &str, nodes: usize, settings: &'static str) -> Self {
        let home = std::env::temp_dir();
        let home = home.join(format!("outboard-cast-{name}-{}", std::process::id()));
        let _absent = fs::remove_dir_all(&home);
        fs::create_dir_all(&home).unwrap();
        let mut lab = Self { home, settings, nodes: Vec::new() };
        if nodes > 0 {
            assert!(lab.command(&["key", "new"]).output().unwrap().status.success());
        }
        lab.nodes = (0..nodes).map(|at| lab.node(at)).collect();
        lab
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outboard"));
        command.args(words).current_dir(&self.home).env("HOME", &self.home);
        for word in [
            "XDG_CONFIG_HOME",
            "OUTBOARD_KEY",
            "OUTBOARD_HOSTS",
            "OUTBOARD_LOG",
            "SLURM_JOB_ID",
            "SLURM_JOB_NODELIST",
            "PBS_NODEFILE",
        ] {
            command.env_remove(word);
        }
        command
    }

    fn node(&self, at: usize) -> Node {
        let own = self.home.join(format!("node-{at}"));
        let root = own.join("root");
        fs::create_dir_all(&root).unwrap();
        // As root, services run as a user of their own.
        fs::set_permissions(&root, Permissions::from_mode(0o777)).unwrap();
        let config = format!(
            "listen = [\"127.0.0.1:0\"]\nserve = [\"cast\"]\nlog = \"error\"\nkey = {:?}\n\
             [cast]\n{}\nroots = [{{ path = {ROOT:?}, directory = {root:?} }}]\n\
             [reach.cast]\ncast = \"*\"\n",
            self.home.join(".config/outboard/key"),
            self.settings,
        );
        fs::write(own.join("node.toml"), config).unwrap();
        let mut command = self.command(&["node", "--with-parent", "--config"]);
        command.arg(own.join("node.toml")).env("XDG_CONFIG_HOME", own.join("config"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let address = line.split(' ').nth(4).unwrap_or_else(|| panic!("{line}")).to_owned();
        Node { child, _out: out, address, root }
    }

    fn hosts(&self) -> String {
        self.nodes.iter().map(|node| &*node.address).collect::<Vec<_>>().join(",")
    }

    /// A tree of some files, a link and an empty directory.
    fn tree(&self, bytes: usize) {
        let tree = self.home.join("tree");
        fs::create_dir_all(tree.join("below/empty")).unwrap();
        fs::write(tree.join("short"), "short").unwrap();
        fs::write(tree.join("nothing"), "").unwrap();
        let mut state = 1_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        fs::write(tree.join("below/large"), (0..bytes).map(|_| random()).collect::<Vec<_>>())
            .unwrap();
        fs::set_permissions(tree.join("short"), Permissions::from_mode(0o750)).unwrap();
        let _there = symlink("below/large", tree.join("link"));
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(&[&["cast"], words].concat()).output().unwrap()
    }

    /// What a cast reports as JSON, and its exit code.
    fn report(&self, words: &[&str]) -> (Value, Option<i32>) {
        let hosts = self.hosts();
        let output = self.run(&[&["--json", "--nodes", &hosts], words].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
        (report, output.status.code())
    }

    fn check(&self) {
        let known = contents(&self.home.join("tree"));
        for node in &self.nodes {
            assert!(contents(&node.root.join("tree")) == known, "{}", node.root.display());
            assert_eq!(fs::read_dir(&node.root).unwrap().count(), 1, "nothing but the tree");
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let pid = rustix::process::Pid::from_child(&node.child);
            let _sent = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ended = node.child.wait();
        }
        let _gone = fs::remove_dir_all(&self.home);
    }
}

/// Paths below a directory, their permissions, and contents of files or targets of links.
fn contents(top: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let (mut found, mut left) = (Vec::new(), vec![top.to_owned()]);
    while let Some(path) = left.pop() {
        let known = fs::symlink_metadata(&path).unwrap();
        let bytes = if known.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            Vec::new()
        } else if known.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else {
            fs::read(&path).unwrap()
        };
        found.push((path.strip_prefix(top).unwrap().to_owned(), known.permissions().mode(), bytes));
    }
    found.sort();
    found
}

#[test]
fn a_tree_arrives_at_all_nodes_and_the_report_says_so() {
    let lab = Lab::new("tree", 3);
    lab.tree(3_000_000);
    let (report, code) = lab.report(&["--chunk", "1M", "--schedule", "binomial", "tree", ROOT]);
    assert_eq!(code, Some(0), "{report:#}");
    lab.check();
    let nodes = report["nodes"].as_array().unwrap();
    let hosts: Vec<&str> = nodes.iter().map(|node| node["host"].as_str().unwrap()).collect();
    assert_eq!(hosts.join(","), lab.hosts(), "in the order of the list");
    for node in nodes {
        assert_eq!((&node["published"], &node["bytes"]), (&1.into(), &report["bytes"]));
        assert!(
            node["seconds"].as_f64() > Some(0.0) && node["bytes_per_second"].as_u64() > Some(0)
        );
    }
    assert_eq!((&report["succeeded"], &report["required_nodes"]), (&true.into(), &3.into()));
    assert_eq!((&report["chunks"], &report["chunk_bytes"]), (&3.into(), &(1 << 20).into()));
    assert_eq!(report["schedule"], "binomial");

    // The same name again: refused, replaced, merged.
    let (again, code) = lab.report(&["tree", ROOT]);
    let why = again["nodes"][0]["failed"].as_str().unwrap();
    assert!(code == Some(1) && why.contains("--replace"), "{why}");
    lab.tree(100);
    let (replaced, code) = lab.report(&["--replace", "--sync", "--chunk", "64K", "tree", ROOT]);
    assert_eq!((code, &replaced["chunk_bytes"]), (Some(0), &65_536.into()), "{replaced:#}");
    lab.check();
    assert_eq!(lab.report(&["--merge", "tree", ROOT]).1, Some(0));
    lab.check();
}

#[test]
fn the_number_of_nodes_that_must_have_it_decides_the_exit_status() {
    let mut lab = Lab::new("enough", 2);
    lab.tree(1_000);
    let there = lab.nodes[1].root.join("tree");
    fs::create_dir(&there).unwrap();
    fs::set_permissions(&there, Permissions::from_mode(0o777)).unwrap();
    let (report, code) = lab.report(&["--min-nodes", "1", "tree", ROOT]);
    assert_eq!((code, &report["succeeded"]), (Some(0), &true.into()), "{report:#}");
    assert!(report["nodes"][1]["failed"].is_string());
    let (report, code) = lab.report(&["--replace", "--min-nodes", "2", "tree", ROOT]);
    assert_eq!((code, &report["required_nodes"]), (Some(0), &2.into()), "{report:#}");
    lab.check();
    // Text says which node has it.
    let hosts = lab.hosts();
    lab.nodes.truncate(2);
    let output = lab.run(&["--nodes", &hosts, "--replace", "tree/short", ROOT]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("{}  1 published after ", lab.nodes[0].address)), "{text}");
    assert!(text.contains(" to 2 of 2 nodes in ") && text.contains("by schedule star"), "{text}");
}

/// It has the files once, and counts once.
#[test]
fn a_machine_under_two_names_is_told_which() {
    let lab = Lab::new("twice", 2);
    let twice = lab.nodes[0].address.replace("127.0.0.1", "localhost");
    let hosts = format!("{},{twice}", lab.hosts());
    // A cast of one message, and one of chunks.
    for bytes in [10, 3_000_000] {
        lab.tree(bytes);
        let words = ["--json", "--replace", "--nodes", &hosts, "tree", ROOT];
        let output = lab.run(&words);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let nodes = report["nodes"].as_array().unwrap();
        let published: Vec<_> = nodes.iter().filter(|node| node["published"] == 1).collect();
        assert_eq!(published.len(), 2, "{report:#}");
        assert_eq!(output.status.code(), Some(1), "of three that are asked for there are two");
        let failed = nodes.iter().find(|node| node["failed"].is_string()).unwrap();
        let (why, own) = (failed["failed"].as_str().unwrap(), failed["host"].as_str().unwrap());
        let other = if own == twice { &lab.nodes[0].address } else { &twice };
        assert!(why.contains(&format!("the same node as {other}")), "{own}: {why}");
        lab.check();
    }
    let output = lab.run(&["--replace", "--min-nodes=2", "--nodes", &hosts, "tree", ROOT]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn switches_order_the_nodes_and_the_report_keeps_the_lists_order() {
    let lab = Lab::new("switches", 4);
    lab.tree(3_000_000);
    // Two names of one machine stand for machines below two switches.
    let port = |at: usize| lab.nodes[at].address.split_once(':').unwrap().1;
    let hosts = format!(
        "localhost:{},127.0.0.1:{},localhost:{},127.0.0.1:{}",
        port(0),
        port(1),
        port(2),
        port(3)
    );
    let text = "SwitchName=a Nodes=localhost\nSwitchName=b Nodes=127.0.0.1\n\
                SwitchName=top Switches=a,b\n";
    fs::write(lab.home.join("topology.conf"), text).unwrap();
    let words = ["--json", "--topology", "topology.conf", "--nodes", &hosts, "tree", ROOT];
    let output = lab.run(&words);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!(report["schedule"], "switches");
    let nodes = report["nodes"].as_array().unwrap().iter();
    let named: Vec<&str> = nodes.map(|node| node["host"].as_str().unwrap()).collect();
    assert_eq!(named.join(","), hosts);
    lab.check();
    let plan = lab.run(&[&["--plan"], &words[..]].concat());
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    let names: Vec<&str> = plan["schedule"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["node"].as_str().unwrap())
        .collect();
    assert!(names[1].starts_with("localhost") && names[2].starts_with("localhost"), "{names:?}");
    assert_eq!(plan["chosen"], "switches");
}

#[test]
fn the_papers_tree_and_its_buffers_give_the_same_files() {
    let lab = Lab::new("paper", 3);
    lab.tree(5_000_000);
    for buffers in ["mmap-all", "multi-send-one-map", "multi-send-multi-map"] {
        // What a node has published before would not be sent again.
        for node in &lab.nodes {
            let _absent = fs::remove_dir_all(node.root.join("tree"));
        }
        let words = ["--schedule", "paper:2", "--chunk", "64K", "--buffers", buffers];
        let (report, code) = lab.report(&[&words[..], &["tree", ROOT]].concat());
        assert_eq!((code, &report["schedule"]), (Some(0), &"paper:2".into()), "{report:#}");
        lab.check();
        // A source with two children sends everything twice.
        assert_eq!(report["sent_chunks"].as_u64(), report["chunks"].as_u64().map(|all| 2 * all));
    }
}

/// Commands, and what each complaint must say.
const COMPLAINTS: &[(&[&str], i32, &[&str])] = &[
    (&[], 2, &["SRC... DEST"]),
    (&["tree"], 2, &["last the directory at the nodes"]),
    (&["tree", "relative"], 2, &["write an absolute path"]),
    (&["tree", "/x"], 2, &["--nodes n[01-16]", "OUTBOARD_HOSTS"]),
    (&["tree", "/x", "--nodes", "n[1-"], 2, &["--nodes"]),
    (&["none", "/x", "--nodes", "n1"], 1, &["\"none\"", "see that it is there"]),
    (&["tree", "tree/../tree", "/x", "--nodes", "n1"], 2, &["called \"tree\"", "rename"]),
    (&["tree", "/x", "--nodes", "n1", "--replace", "--merge"], 2, &["--merge"]),
    (&["tree", "/x", "--nodes", "n1", "--lazy", "--merge"], 2, &["--merge"]),
    (&["tree", "/x", "--nodes", "n1", "--min-nodes", "2"], 2, &["only 1 nodes"]),
    (&["tree", "/x", "--nodes", "n1", "--chunk", "100K"], 2, &["power of two"]),
    (&["tree", "/x", "--nodes", "n1", "--chunk", "1X"], 2, &["64K, 1M or 2G"]),
    (&["tree", "/x", "--nodes", "n1", "--rate", "fast"], 2, &["100Mbit"]),
    (&["tree", "/x", "--nodes", "n1", "--schedule", "magic"], 2, &["two-tree", "or auto"]),
    (&["tree", "/x", "--nodes", "n1", "--schedule", "switches"], 2, &["--topology"]),
    (&["tree", "/x", "--nodes", "n1", "--topology", "none"], 1, &["none", "topology.conf"]),
    (&["tree", "/x", "--nodes", "n1", "--topology", "tree/short"], 1, &["line 1", "SwitchName="]),
    (&["tree", "/x", "--nodes", "n1", "--chown", "no-such-user"], 1, &["/etc/passwd", "number"]),
    (&["tree", "/x", "--nodes", "n1", "--buffers", "mmap"], 2, &["multi-send-one-map"]),
    (&["tree", "/x", "--nodes", "n1", "--xattrs", "all"], 2, &["none, user or security"]),
    (&["--plan", "--nodes", "n1"], 2, &["--plan-size"]),
    (&["--plan", "--plan-size", "1M"], 2, &["--nodes"]),
    (&["tree", "/x", "--plan-size", "1M"], 2, &["--plan"]),
];

#[test]
fn each_wrong_use_is_told_what_to_do() {
    let lab = Lab::new("wrong", 0);
    lab.tree(10);
    for (words, code, expected) in COMPLAINTS {
        let output = lab.run(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(*code), "{words:?}: {said}");
        assert!(output.stdout.is_empty(), "{words:?}");
        // With --json the same in one object, whatever is wrong.
        let output = lab.run(&[&["--json"], *words].concat());
        assert_eq!(output.status.code(), Some(*code), "{words:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["succeeded"], false, "{words:?}");
        let error = report["error"].as_str().unwrap();
        for word in *expected {
            assert!(said.contains(word), "{words:?} lacks {word:?}: {said}");
            assert!(error.contains(word), "{words:?} lacks {word:?}: {error}");
        }
    }
    // All else being right, there is no key.
    let said = String::from_utf8(lab.run(&["tree", "/x", "--nodes", "n1"]).stderr).unwrap();
    assert!(said.contains("there is no key at") && said.contains("outboard key new"), "{said}");
}

#[test]
fn file_capabilities_go_only_to_nodes_that_keep_them() {
    let lab = Lab::new("capable", 1);
    lab.tree(10);
    let file = File::open(lab.home.join("tree/short")).unwrap();
    let capability: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let none = rustix::fs::XattrFlags::empty();
    if rustix::fs::fsetxattr(&file, "security.capability", &capability, none).is_err() {
        println!("skipped: file capabilities, which only root gives");
        return;
    }
    let (refused, code) = lab.report(&["--xattrs", "security", "tree", ROOT]);
    let why = refused["nodes"][0]["failed"].as_str().unwrap();
    assert!(code == Some(1) && why.contains("security_xattrs and as_root = true"), "{why}");
    // Without the option, nothing of it is sent.
    assert_eq!(lab.report(&["tree", ROOT]).1, Some(0));
    lab.check();
}

#[test]
fn a_service_that_is_root_gives_owners_and_keeps_capabilities() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: a service that is root");
        return;
    }
    let settings = "as_root = true\nchown = true\nsecurity_xattrs = true";
    let lab = Lab::with_settings("root", 1, settings);
    lab.tree(10);
    let file = File::open(lab.home.join("tree/short")).unwrap();
    let capability: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::fsetxattr(&file, "security.capability", &capability, none).unwrap();
    let words = ["--chown", "7:8", "--xattrs", "security", "tree", ROOT];
    // The second time, what is there belongs to another user.
    for replace in [&[][..], &["--replace"]] {
        let (report, code) = lab.report(&[replace, &words].concat());
        assert_eq!(code, Some(0), "{report:#}");
        let there = lab.nodes[0].root.join("tree");
        for below in ["", "short", "below/empty", "link"] {
            let found = fs::symlink_metadata(there.join(below)).unwrap();
            assert_eq!((found.uid(), found.gid()), (7, 8), "{below}");
        }
        let mut value = [0; 20];
        rustix::fs::getxattr(there.join("short"), "security.capability", &mut value).unwrap();
        assert_eq!(value, capability);
        lab.check();
    }
}

#[test]
fn receivers_that_do_not_start_are_named_when_too_few_are_left() {
    let lab = Lab::new("launched", 0);
    lab.tree(1_000);
    let to = lab.home.join("to");
    fs::create_dir(&to).unwrap();
    let script = lab.home.join("rsh");
    let line = "case $1 in localhost) eval \"$2\";; *) echo no route to $1 >&2; exit 255;; esac";
    fs::write(&script, format!("#!/bin/sh\n{line}\n")).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let run = |min: &str| {
        let (script, to) = (script.to_str().unwrap(), to.to_str().unwrap());
        let hosts = ["--launch-command", script, "--nodes", "localhost,n2.invalid"];
        lab.run(&[&hosts[..], &["--min-nodes", min, "tree", to]].concat())
    };
    for (min, code, expected) in [
        ("3", 2, "--min-nodes 3: only 2 nodes are named"),
        ("2", 1, "started on 1 of 2 nodes only\n  n2.invalid: no receiver: no route to n2.invalid"),
    ] {
        let output = run(min);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && said.contains(expected), "{said}");
        assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
    }
    let output = run("1");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(contents(&to.join("tree")) == contents(&lab.home.join("tree")));
}

#[test]
fn a_cast_logs_what_its_variable_says_here_and_at_receivers_that_it_starts() {
    let lab = Lab::new("logs", 0);
    lab.tree(100_000);
    let script = lab.home.join("rsh");
    // As ssh, which carries no environment.
    fs::write(&script, "#!/bin/sh\nunset OUTBOARD_LOG\neval \"$2\"\n").unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let run = |levels: Option<&str>, to: &str| {
        let to = lab.home.join(to);
        fs::create_dir(&to).unwrap();
        let words = ["cast", "--nodes=localhost", "tree", to.to_str().unwrap()];
        let mut command = lab.command(&words);
        command.arg("--launch-command").arg(&script).env_remove("OUTBOARD_LOG");
        command.envs(levels.map(|levels| ("OUTBOARD_LOG", levels)));
        let output = command.output().unwrap();
        (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
    };
    let (said, code) = run(None, "quiet");
    assert!(said.is_empty() && code == Some(0), "{said}");
    let (said, code) = run(Some("info"), "info");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("outboard_cast::source::care: the first plan"), "{said}");
    let receiver = said.lines().find(|line| line.starts_with("localhost: "));
    // Which part of it speaks first depends on what it notices first.
    assert!(receiver.is_some_and(|line| line.contains(" INFO outboard_")), "{said}");
    let (said, code) = run(Some("loud"), "loud");
    assert!(code == Some(1) && said.contains("OUTBOARD_LOG is \"loud\": write a level"), "{said}");
}

#[test]
fn what_nodes_refuse_is_told_with_what_to_do() {
    let lab = Lab::new("refused", 1);
    lab.tree(10);
    let outside = lab.report(&["tree", "/etc"]).0["nodes"][0]["failed"].to_string();
    assert!(outside.contains(ROOT), "{outside}");
    let missing = format!("{ROOT}/missing");
    let missing = lab.report(&["tree", &missing]).0["nodes"][0]["failed"].to_string();
    assert!(missing.contains("make the directory first"), "{missing}");
    // No program listens on port 1.
    let output = lab.run(&["tree", ROOT, "--nodes", "127.0.0.1:1"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("127.0.0.1:1  failed: ") && text.contains("refused"), "{text}");
}

#[test]
fn a_file_that_may_not_be_read_is_named() {
    let lab = Lab::new("unreadable", 0);
    lab.tree(10);
    fs::set_permissions(lab.home.join("tree/short"), Permissions::from_mode(0o000)).unwrap();
    let words = ["cast", "--dry-run", "tree", "/x"];
    let mut command = lab.command(&words);
    if rustix::process::geteuid().is_root() {
        // Root may read everything, and others may not start a program of root's directories.
        let program = lab.home.join("outboard");
        // By a program of its own: what this one has open for writing, children of other tests
        // hold open until they are started, and nobody can start it ("text file busy").
        let built = env!("CARGO_BIN_EXE_outboard");
        assert!(Command::new("cp").args([built.as_ref(), &*program]).status().unwrap().success());
        command = Command::new(program);
        command.args(words).current_dir(&lab.home).env("HOME", &lab.home).uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("tree/short") && said.contains("or exclude it"), "{said}");
}

#[test]
fn a_dry_run_counts_what_would_go_and_what_is_left_out() {
    let lab = Lab::new("dry", 0);
    lab.tree(3_000_000);
    pipe(&lab.home.join("tree/pipe"));
    File::create(lab.home.join("tree/below/holes")).unwrap().set_len(1 << 20).unwrap();
    let words = [
        "--dry-run",
        "--chunk",
        "1M",
        "--exclude",
        "empty/",
        "--exclude",
        "tree/sh*",
        "tree",
        "/x",
    ];
    let output = lab.run(&words);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let expected =
        "/x/tree: 3 files, 2 directories, 1 links, 3.0 MB (1.0 MB of holes are not sent)";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("6 entries, 3000") && text.contains("in 3 chunks of 1048576"), "{text}");
    let left_out = "left out, 2 excluded:\n  tree/below/empty\n  tree/short\n\
                    left out, 1 devices, sockets and pipes, which are not cast:\n  tree/pipe\n";
    assert!(text.ends_with(left_out), "{text}");
    let json = lab.run(&[&["--json"], &words[..]].concat());
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["entries"], &json["all"]["files"]), (&6.into(), &3.into()), "{json:#}");
    assert_eq!((&json["excluded"]["count"], &json["skipped"]["count"]), (&2.into(), &1.into()));
    assert_eq!(json["sources"][0]["hole_bytes"], 1 << 20);
}

/// A named pipe.
fn pipe(at: &Path) {
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, at, kind, mode, 0).unwrap();
}

#[test]
fn what_is_never_cast_is_named_in_the_result() {
    let lab = Lab::new("skipped", 1);
    lab.tree(10);
    let odd = OsStr::from_bytes(b"pipe\xff");
    pipe(&lab.home.join("tree/below").join(odd));
    let _listens = std::os::unix::net::UnixListener::bind(lab.home.join("tree/so\ncket")).unwrap();
    let (report, code) = lab.report(&["tree", ROOT]);
    assert_eq!((code, &report["skipped"]["count"]), (Some(0), &2.into()), "{report:#}");
    assert_eq!(report["skipped"]["first"][0], "tree/below/pipe\u{fffd}");
    let there = lab.nodes[0].root.join("tree");
    assert!(there.join("below/large").exists() && !there.join("below").join(odd).exists());
    let output = lab.run(&["--nodes", &lab.hosts(), "--replace", "tree", ROOT]);
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = "left out, 2 devices, sockets and pipes, which are not cast:\n  \
                    tree/below/pipe\u{fffd}\n  \"tree/so\\ncket\"\n";
    assert!(output.status.code() == Some(0) && text.ends_with(expected), "{text}");
    let json = lab.run(&["--dry-run", "--json", "tree", ROOT]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["skipped"], report["skipped"]);
}

#[test]
fn a_source_has_the_name_of_what_it_is_spelled_as() {
    let lab = Lab::new("spelled", 1);
    lab.tree(10);
    symlink("tree", lab.home.join("also")).unwrap();
    let inside = lab.home.join("tree/below");
    for (at, source, name) in [
        (&lab.home, "tree/", "tree"),
        (&lab.home, "tree/.", "tree"),
        (&lab.home, "also", "also"),
        (&inside, "..", "tree"),
        (&inside, "../.", "tree"),
    ] {
        let hosts = lab.hosts();
        let words = ["cast", "--replace", "--nodes", &hosts, source, ROOT];
        let output = lab.command(&words).current_dir(at).output().unwrap();
        assert!(output.status.success(), "{source}: {output:?}");
        let there = lab.nodes[0].root.join(name);
        assert!(contents(&there) == contents(&lab.home.join("tree")), "{source}");
        fs::remove_dir_all(there).unwrap();
    }
    let output = lab.command(&["cast", "--dry-run", "--json", ".", "/x"]);
    let json = { output }.current_dir(&inside).output().unwrap();
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["sources"][0]["path"], "/x/below");
    let said = lab.run(&["/", ROOT, "--nodes", "n1"]).stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("gives no name for the destination"), "{said}");
}

#[test]
fn a_destination_must_be_a_directory_that_is_reached_without_links() {
    let lab = Lab::new("to", 1);
    lab.tree(10);
    let root = &lab.nodes[0].root;
    fs::write(root.join("file"), "").unwrap();
    fs::create_dir(root.join("real")).unwrap();
    fs::set_permissions(root.join("real"), Permissions::from_mode(0o777)).unwrap();
    symlink("real", root.join("inner")).unwrap();
    symlink("/", root.join("outer")).unwrap();
    for (below, expected) in [
        ("file", "see that it is a directory"),
        ("none", "make the directory first"),
        ("inner", "no link: links below a root are not followed"),
        ("outer/tmp", "name the directory itself"),
    ] {
        let (report, code) = lab.report(&["tree", &format!("{ROOT}/{below}")]);
        let why = report["nodes"][0]["failed"].as_str().unwrap();
        assert!(code == Some(1) && why.contains(expected), "{below}: {why}");
    }
    let (report, code) = lab.report(&["tree", &format!("{ROOT}/real/")]);
    assert_eq!(code, Some(0), "{report:#}");
    assert!(root.join("real/tree/short").exists());
}

/// Processes that a process has started.
fn children(of: u32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{of}/task")).unwrap();
    let lists = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("children")));
    let all: Vec<String> = lists.map(Result::unwrap_or_default).collect();
    all.join(" ").split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_service_that_is_killed_leaves_no_dead_view() {
    // Without root a view needs fusermount3.
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && !Path::new("/usr/bin/fusermount3").exists() || !Path::new("/dev/fuse").exists() {
        println!("skipped: views, which this machine lacks FUSE for");
        return;
    }
    let lab = Lab::with_settings("killed", 1, if is_root { "as_root = true" } else { "" });
    lab.tree(20_000_000);
    let (node, hosts) = (&lab.nodes[0], lab.hosts());
    let name = node.root.join("tree");
    let words = ["cast", "--lazy", "--rate=1MB", "--nodes", &hosts, "tree", ROOT];
    let mut source = lab.command(&words).stdout(Stdio::null()).spawn().unwrap();
    eventually("the name is seen", || name.is_symlink() && name.join("short").exists());
    let services = children(node.child.id());
    assert_eq!(services.len(), 1, "cast alone");
    kill(services[0]);
    source.kill().unwrap();
    source.wait().unwrap();
    let root = node.root.to_str().unwrap().to_owned();
    eventually("the service has cleaned up", || {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        !mounts.contains(&root) && !name.is_symlink() && !children(node.child.id()).is_empty()
    });
    let (report, code) = lab.report(&["--lazy", "tree", ROOT]);
    assert_eq!(code, Some(0), "{report:#}");
    assert!(contents(&name) == contents(&lab.home.join("tree")));
}

#[test]
fn plans_need_no_node_and_no_key() {
    let lab = Lab::new("plan", 0);
    lab.tree(2_000_000);
    let began = Instant::now();
    let words = ["--plan", "--plan-nodes=10000", "--plan-size=10G", "--rate=100Gbit", "--chunk=1M"];
    let output = lab.run(&[&words[..], &["--json"]].concat());
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert_eq!(plan["schedule"].as_array().unwrap().len(), 10_001);
    let bound = plan["bound_s"].as_f64().unwrap();
    assert!((bound - 0.86).abs() < 0.01, "{bound}");
    let binomial = &plan["plans"][0];
    assert_eq!((&binomial["kind"], &binomial["chunks"]), (&"binomial".into(), &10_240.into()));
    assert!(binomial["predicted_s"].as_f64() > Some(bound));

    let output = lab.run(&["--plan", "--nodes", "n[1-8]", "tree", "/x"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("2.0 MB to 8 nodes over links of 1.000 Gbit/s (assumed"), "{text}");
    assert!(text.contains("binomial") && text.contains("  <- chosen"), "{text}");
    assert!(text.contains("\n  source -> ") && text.contains("\n  n8 -> "), "{text}");
    let small = lab.run(&["--plan", "--nodes", "n[1-64]", "--plan-size", "10K"]);
    let small = String::from_utf8(small.stdout).unwrap();
    let chosen = small.lines().find(|line| line.ends_with("<- chosen")).unwrap();
    assert!(!chosen.starts_with("binomial"), "{chosen}");
    // A reader that has gone is no error.
    let mut cut = lab.command(&[&["cast"], &words[..]].concat());
    let mut child = cut.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_terminal_shows_progress_and_is_clean_afterwards() {
    let lab = Lab::new("progress", 2);
    // Slow enough to be seen.
    lab.tree(30_000_000);
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let name = OsStr::from_bytes(name.as_bytes()).to_owned();
    let terminal = || File::options().read(true).write(true).open(&name).unwrap();
    let hosts = lab.hosts();
    let mut command = lab.command(&["cast", "--rate=20MB", "--nodes", &hosts, "tree", ROOT]);
    command.env("TERM", "xterm").stderr(terminal()).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    drop(command);
    // Meanwhile, as a terminal does: its buffer is small. Reading ends with EIO.
    let reader = thread::spawn(move || {
        let mut shown = Vec::new();
        let _ = File::from(master).read_to_end(&mut shown);
        String::from_utf8_lossy(&shown).into_owned()
    });
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let shown = reader.join().unwrap();
    assert!(shown.contains(" to 2 nodes  ") && shown.contains(&lab.nodes[1].address), "{shown}");
    assert!(shown.ends_with("\x1b[3A\r\x1b[J"), "{shown:?}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains('\x1b'));
}
