//! Keys, a node and its status, by the commands that users type.

mod home;

use home::{Home, Node};
use outboard_testkit::hung::{Hung, may_hang};
use outboard_testkit::{PATIENCE, eventually};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_key_is_made_once_shown_and_exported() {
    let home = Home::new("key");
    assert!(home.told(&["key", "show"]).contains(": none"));
    assert!(home.complaint(&["key", "export", "compile"]).contains("outboard key new"));
    home.told(&["key", "new"]);
    let key = fs::read_to_string(home.0.join(".config/outboard/key")).unwrap();
    let again = home.complaint(&["key", "new"]);
    assert!(again.contains("is there already") && again.contains("OUTBOARD_KEY"), "{again}");
    assert!(home.told(&["key", "show"]).contains("the cluster's key"));
    assert!(
        !home.told(&["key", "show", "--json"]).contains(key.trim().rsplit(' ').next().unwrap())
    );
    home.told(&["key", "export", "compile"]);
    assert!(fs::read_to_string(home.0.join("compile.key")).unwrap().contains(" compile "));
    assert!(home.complaint(&["key", "export", "compile"]).contains("is there already"));
    home.complaint(&["key", "export", "No Service"]);
    let typo = home.complaint(&["key", "export", "compiler"]);
    let there = "no service \"compiler\"; there are: compile, cast, active, fs, offload, status";
    assert!(typo.contains(there), "{typo}");
    assert!(!home.0.join("compiler.key").exists());
}

#[test]
fn no_key_is_made_where_one_is_named() {
    let home = Home::new("named");
    let missing = home.0.join("etc/key");
    let path = missing.display().to_string();
    fs::write(home.0.join("node.toml"), format!("key = {path:?}\n")).unwrap();
    let said = [
        home.complaint(&["node", "--listen=127.0.0.1:0", "--key", &path]),
        home.complaint(&["node", "--listen=127.0.0.1:0", "--config=node.toml"]),
        {
            let mut node = home.command(&["node", "--listen=127.0.0.1:0"]);
            let output = node.env("OUTBOARD_KEY", &path).output().unwrap();
            assert!(!output.status.success());
            String::from_utf8(output.stderr).unwrap()
        },
    ];
    for said in said {
        assert!(said.contains("there is no key at") && said.contains("etc/key"), "{said}");
    }
    assert!(!missing.exists() && !home.0.join(".config/outboard/key").exists());
    // Where it is made on purpose, it serves.
    let mut make = home.command(&["key", "new"]);
    assert!(make.env("OUTBOARD_KEY", &path).status().unwrap().success());
    let (_node, _address) = home.node(&["--key", &path]);
}

/// The example of docs/node.md, as it stands but for what names this machine's places.
#[test]
fn the_pages_example_works_as_it_stands() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/node.md"));
    let page = page.unwrap();
    let example = page.split("```").find(|part| part.contains("listen = [")).expect("an example");
    let home = Home::new("page");
    let cache = home.0.join("var/cache/compile");
    let example = example.replace("/var/cache/compile", cache.to_str().unwrap());
    fs::write(home.0.join("node.toml"), example.replace("0.0.0.0:7410", "127.0.0.1:0")).unwrap();
    let (_node, address) = home.node(&["--config", "node.toml"]);
    let status = || -> serde_json::Value {
        let told = home.told(&["status", "--json", &address]);
        let json: serde_json::Value = serde_json::from_str(&told).unwrap();
        json[0]["status"]["services"][0].clone()
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while status()["report"]["slots"] != 8 {
        let now = status();
        if now["restarts"].as_u64() > Some(0) && !has_fuse() {
            println!("skipped: no sandbox starts here");
            return;
        }
        assert_eq!(now["restarts"], 0, "{now}");
        assert!(std::time::Instant::now() < deadline, "{now}");
    }
    assert!(cache.join("store").exists(), "the service keeps contents there");
}

/// Whether every user may use FUSE, which the service compile needs.
fn has_fuse() -> bool {
    fs::metadata("/dev/fuse").is_ok_and(|device| device.permissions().mode() & 0o006 == 0o006)
}

#[test]
fn a_node_makes_its_key_and_tells_how_it_is() {
    let home = Home::new("node");
    let (_node, address) = home.node(&["--slots", "3"]);
    let told = home.told(&["status", &address]);
    assert!(told.contains("slots 3"), "{told}");
    let json: serde_json::Value =
        serde_json::from_str(&home.told(&["status", "--json", &address])).unwrap();
    assert_eq!(json[0]["status"]["slots"], 3);
    let by_environment = home.command(&["status"]).env("OUTBOARD_HOSTS", &address).output();
    assert!(by_environment.unwrap().status.success());
    // A user without the key is refused.
    let keyless = Home::new("keyless");
    assert!(keyless.complaint(&["status", &address]).contains("there is no key"));
    keyless.told(&["key", "new"]);
    let output = keyless.run(&["status", &address]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("the peer refuses"), "{output:?}");
    assert!(!output.status.success());
}

/// Why peers are refused and sessions end is said at levels that the operator sets, and counted.
#[test]
fn an_operator_sets_what_is_said() {
    for (words, expected) in [(&["--log", "info"][..], true), (&["--log=off"], false)] {
        let home = Home::new("log");
        let log = home.0.join("log");
        let words = [&["node", "--listen", "127.0.0.1:0"], words].concat();
        let mut node = home.command(&words);
        node.stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
        let mut child = node.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let node = Node(child);
        let address = line.split(' ').nth(4).unwrap().to_owned();
        let keyless = Home::new("log-keyless");
        keyless.told(&["key", "new"]);
        assert!(!keyless.run(&["status", &address]).status.success());
        let told = home.told(&["status", "--json", &address]);
        let json: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(json[0]["status"]["refusals"]["handshake"], 1, "{json}");
        assert_eq!(json[0]["status"]["refused"], 1);
        drop(node);
        let said = fs::read_to_string(&log).unwrap();
        assert_eq!(said.contains("refused (handshake): 127.0.0.1"), expected, "{said}");
    }
}

#[test]
fn a_user_who_is_revoked_is_shut_out() {
    let (home, user) = (Home::new("revoker"), Home::new("revoked"));
    let (_node, address) = home.node(&[]);
    let key = home.0.join(".config/outboard/key");
    let ask = || user.command(&["status", &address]).env("OUTBOARD_KEY", &key).output().unwrap();
    assert!(ask().status.success());
    let shown: serde_json::Value =
        serde_json::from_str(&user.told(&["key", "show", "--json"])).unwrap();
    home.told(&["key", "revoke", shown["node"].as_str().unwrap(), "--why", "lost"]);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while ask().status.success() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    home.told(&["status", &address]);
    home.complaint(&["key", "revoke", "12"]);
}

#[test]
fn another_node_at_a_known_place_is_refused() {
    let home = Home::new("known");
    let (node, address) = home.node(&[]);
    home.told(&["status", &address]);
    drop(node);
    fs::remove_file(home.0.join(".config/outboard/identity")).unwrap();
    let mut again = home.command(&["node", "--listen", &address]);
    let mut child = again.stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let _node = Node(child);
    let output = home.run(&["status", &address]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("remove line 1 of"), "{output:?}");
}

#[test]
fn what_a_node_cannot_do_is_said() {
    let home = Home::new("wrong");
    let (_node, address) = home.node(&[]);
    assert!(home.complaint(&["node", "--listen", &address]).contains("cannot listen on"));
    assert!(home.complaint(&["node", "--serve", "nothing"]).contains("no service \"nothing\""));
    let said = home.complaint(&["node", "--log", "loud"]);
    assert!(said.contains("--log is \"loud\"") && said.contains("write a level"), "{said}");
    assert!(home.complaint(&["node", "--slots", "0"]).contains("1 to 1024 slots, not 0"));
    assert!(home.complaint(&["node", "--config", "none.toml"]).contains("none.toml"));
    fs::write(home.0.join("bad.toml"), "listen = 3").unwrap();
    assert!(
        home.complaint(&["node", "--config", "bad.toml"]).contains("bad.toml, line 1: invalid")
    );
    for (text, expected) in [
        ("\n[compile]\ncache_mb = 3\n", "bad.toml, line 3: the table [compile]: unknown field"),
        ("slots = 1\nslot = 2\n", "bad.toml, line 2: \"slot\" is neither"),
        ("revoked = \"none\"\n", "there is no list of nodes at none: `touch` it"),
    ] {
        fs::write(home.0.join("bad.toml"), text).unwrap();
        let said = home.complaint(&["node", "--config", "bad.toml"]);
        assert!(said.contains(expected) && !said.contains("key new"), "{said}");
    }
    assert!(home.complaint(&["node-service", "nothing"]).contains("`outboard node` starts"));
}

/// A node that logs into a file, at this level: the node, its address, the file.
fn logging(home: &Home, level: &str) -> (Node, String, PathBuf) {
    let log = home.0.join("log");
    let words = ["node", "--listen", "127.0.0.1:0", "--slots", "2", "--log", level];
    let mut node = home.command(&words);
    node.stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
    let mut child = node.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split(' ').nth(4).unwrap_or_else(|| panic!("{line}")).to_owned();
    (Node(child), address, log)
}

/// Waits until a file has all of these words.
fn wait_for(file: &Path, words: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(file).unwrap_or_default();
        if words.iter().all(|word| text.contains(word)) {
            return;
        }
        assert!(Instant::now() < deadline, "{words:?} in {text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The names of all numbers are on a page.
fn is_documented(report: &serde_json::Value, page: &str) {
    for (name, value) in report.as_object().unwrap() {
        let is_there = page.contains(&format!("`{name}`"));
        assert!(
            is_there || !value.is_u64() || ["slots", "free", "done"].contains(&&**name),
            "{name}"
        );
        if value.is_object() {
            is_documented(value, page);
        }
    }
}

/// Counters of every part come from a node and a manager that go on working, and both log what
/// ends, as far as their operators want it.
#[test]
fn a_job_shows_in_the_counters_and_logs_of_both_ends() {
    if !has_fuse() && !rustix::process::geteuid().is_root() {
        eprintln!("skipped: this user may not use /dev/fuse");
        return;
    }
    let home = Home::new("counters");
    for directory in ["run", "project"] {
        fs::create_dir_all(home.0.join(directory)).unwrap();
    }
    fs::set_permissions(home.0.join("run"), Permissions::from_mode(0o700)).unwrap();
    fs::write(home.0.join("project/a.c"), "int main(void) { return 0; }\n").unwrap();
    let (_node, address, log) = logging(&home, "debug");
    let compile = |words: &[&str]| {
        let mut command = home.command(&[&["cc"], words].concat());
        command.current_dir(home.0.join("project")).env("XDG_RUNTIME_DIR", home.0.join("run"));
        command.env("XDG_STATE_HOME", home.0.join("state")).env_remove("OUTBOARD_CC_NESTED");
        command.env("OUTBOARD_HOSTS", &address).env("OUTBOARD_LOG", "debug");
        let output = command.env("OUTBOARD_CC_FALLBACK", "0").output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    compile(&["gcc", "-c", "a.c", "-o", "a.o"]);
    let json = home.told(&["status", "--json", &address]);
    let status: serde_json::Value = serde_json::from_str(&json).unwrap();
    let report = &status[0]["status"]["services"][0]["report"];
    let number = |of: &serde_json::Value| of.as_u64().unwrap_or_else(|| panic!("{of} in {report}"));
    assert_eq!(report["counters"]["jobs_ran"], 1, "{report}");
    assert!(number(&report["counters"]["fetched_bytes"]) > 0, "{report}");
    assert_eq!(report["hub"]["peers_now"], 1, "{report}");
    assert!(number(&report["hub"]["reads_bytes"]) > 0 && number(&report["hub"]["writes"]) > 0);
    assert!(number(&report["hub"]["engine"]["received_bytes"]) > 0, "{report}");
    assert!(number(&report["store"]["written_bytes"]) > 0, "{report}");
    let stats: serde_json::Value = serde_json::from_str(&compile(&["--stats", "--json"])).unwrap();
    assert_eq!(stats["remote"], 1, "{stats}");
    let manager = &stats["manager"];
    assert_eq!((&manager["servers_now"], &manager["slots_now"]), (&1.into(), &2.into()), "{stats}");
    assert_eq!(manager["jobs_given"], 1, "{stats}");
    assert!(manager["export"]["snapshots_bytes"].as_u64().unwrap() > 0, "{stats}");
    assert!(manager["hub"]["engine"]["sent_bytes"].as_u64().unwrap() > 0, "{stats}");
    is_documented(report, include_str!("../../../docs/node.md"));
    let pages = [include_str!("../../../docs/cc.md"), include_str!("../../../docs/node.md")];
    is_documented(manager, &pages.concat());
    let manager = i32::try_from(manager["pid"].as_i64().unwrap()).unwrap();
    wait_for(&home.0.join("run/outboard/cc.log"), &["server is ready", &address]);
    let manager = rustix::process::Pid::from_raw(manager).unwrap();
    rustix::process::kill_process(manager, rustix::process::Signal::KILL).unwrap();
    // The kernel ends a killed process's stream in the middle of its session.
    wait_for(&log, &["session ended", "the connection was cut after", "connection ended"]);
}

/// Sends a process a signal.
fn signal(process: u32, signal: Signal) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(process, signal).unwrap();
}

/// The process of a node's service, which a thread starts.
fn service_of(node: &Node) -> u32 {
    let tasks = format!("/proc/{}/task", node.0.id());
    let mut service = None;
    eventually("there is a service", || {
        let tasks = fs::read_dir(&tasks).unwrap().flatten();
        let children = tasks.flat_map(|task| fs::read_to_string(task.path().join("children")));
        let children = children.collect::<String>();
        service = children.split_whitespace().next().map(|service| service.parse().unwrap());
        service.is_some()
    });
    service.unwrap()
}

/// Asks a node how it is; the state of its service. The command waits for seconds only: where this
/// machine is too busy, one of several is answered. A node that is held up answers none.
fn state_of(home: &Home, address: &str) -> String {
    let ask = || {
        let output = home.run(&["status", "--json", address]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        json[0]["status"]["services"][0]["state"].as_str().map(str::to_owned)
    };
    (0..5).find_map(|_| ask()).expect("it answers")
}

#[test]
fn a_service_that_is_stopped_holds_up_nothing_else_of_its_node() {
    let home = Home::new("stopped");
    let (node, address) = home.node(&[]);
    let service = service_of(&node);
    // The kernel keeps 15 bytes of a process's name.
    let name = format!("/proc/{service}/comm");
    wait_for(Path::new(&name), &["outboard-compil\n"]);
    eventually("it answers", || state_of(&home, &address) == "running");
    signal(service, Signal::STOP);
    for _ in 0..3 {
        assert_eq!(state_of(&home, &address), "silent");
    }
    signal(service, Signal::CONT);
    eventually("it answers again", || state_of(&home, &address) == "running");
}

#[test]
fn a_list_on_a_disk_that_hangs_holds_up_nothing_of_its_node() {
    if !may_hang() {
        return;
    }
    let home = Home::new("hung");
    let lists = home.0.join("lists");
    fs::create_dir(&lists).unwrap();
    fs::write(lists.join("revoked"), "").unwrap();
    let text = format!("revoked = {:?}\n", lists.join("revoked"));
    fs::write(home.0.join("node.toml"), text).unwrap();
    let (_node, address) = home.node(&["--config", "node.toml"]);
    state_of(&home, &address);
    let hung = Hung::over(lists).unwrap();
    // Long enough for it to be looked at.
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        state_of(&home, &address);
        std::thread::sleep(Duration::from_millis(200));
    }
    drop(hung);
    state_of(&home, &address);
}

/// Less than a server that does not answer is waited for.
const MORE: Duration = Duration::from_secs(1);

/// A user with a manager of its own, whose jobs go to this node.
struct Builder<'a> {
    home: &'a Home,
    name: &'static str,
    address: &'a str,
}

impl Builder<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let own = self.home.0.join(self.name);
        for directory in ["run", "state", "project"] {
            fs::create_dir_all(own.join(directory)).unwrap();
        }
        fs::set_permissions(own.join("run"), Permissions::from_mode(0o700)).unwrap();
        fs::write(own.join("project/Makefile"), "").unwrap();
        for name in ["a.c", "b.c"] {
            fs::write(own.join("project").join(name), "int x;\n").unwrap();
        }
        let mut command = self.home.command(&[&["cc"], words].concat());
        command.current_dir(own.join("project")).env("XDG_RUNTIME_DIR", own.join("run"));
        command.env("XDG_STATE_HOME", own.join("state")).env("OUTBOARD_HOSTS", self.address);
        command.env_remove("OUTBOARD_CC_NESTED").stderr(Stdio::inherit());
        command
    }

    fn run(&self, words: &[&str]) -> Duration {
        let start = Instant::now();
        let output = self.command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        start.elapsed()
    }

    /// The least time of several runs.
    fn least(&self, words: &[&str]) -> Duration {
        (0..3).map(|_| self.run(words)).min().unwrap()
    }

    fn stats(&self) -> serde_json::Value {
        let output = self.command(&["--stats", "--json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn manager(&self) -> u32 {
        u32::try_from(self.stats()["manager"]["pid"].as_u64().unwrap()).unwrap()
    }
}

#[test]
fn a_client_that_is_stopped_holds_up_no_other() {
    if !has_fuse() && !rustix::process::geteuid().is_root() {
        eprintln!("skipped: this user may not use /dev/fuse");
        return;
    }
    let home = Home::new("clients");
    // More than the jobs of the client that stops: those that it has stay taken.
    let (_node, address) = home.node(&["--slots", "8"]);
    let builder = |name| Builder { home: &home, name, address: &address };
    let (one, other) = (builder("one"), builder("other"));
    one.run(&["gcc", "-c", "a.c"]);
    other.run(&["gcc", "-c", "a.c"]);
    let usual = other.least(&["gcc", "-c", "b.c"]);
    let remote = || other.stats()["remote"].as_u64().unwrap();
    let manager = one.manager();
    // Its jobs are under way at the server, some of them, when it stops.
    let started = (0..4).map(|_| one.command(&["gcc", "-c", "b.c", "-O2"]).spawn().unwrap());
    let started: Vec<_> = started.collect();
    signal(manager, Signal::STOP);
    let before = remote();
    let took = other.least(&["gcc", "-c", "b.c"]);
    assert!(took < usual * 4 + MORE, "{took:?} instead of {usual:?}");
    assert!(remote() > before, "the server was not used");
    signal(manager, Signal::CONT);
    for mut job in started {
        assert!(job.wait().unwrap().success());
    }
}

#[test]
fn a_server_that_is_stopped_holds_up_its_own_jobs_alone() {
    if !has_fuse() && !rustix::process::geteuid().is_root() {
        eprintln!("skipped: this user may not use /dev/fuse");
        return;
    }
    let home = Home::new("servers");
    let (node, address) = home.node(&["--slots", "2"]);
    let user = Builder { home: &home, name: "user", address: &address };
    user.run(&["gcc", "-c", "a.c"]);
    assert_eq!(user.stats()["remote"], 1, "the server was not used");
    let usual = user.least(&["gcc", "--version"]);
    let service = service_of(&node);
    signal(service, Signal::STOP);
    let mut waits = user.command(&["gcc", "-c", "b.c"]).spawn().unwrap();
    // What runs locally does not wait for the server.
    let took = user.run(&["gcc", "--version"]);
    let is_waiting = waits.try_wait().unwrap().is_none();
    assert!(is_waiting || took < usual * 4 + MORE, "{took:?} instead of {usual:?}");
    assert!(waits.wait().unwrap().success(), "it runs locally in the end");
    signal(service, Signal::CONT);
}
