//! `outboard active` and the nodes that serve it, by the commands that users type.

mod home;

use home::{Home, Node};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, Permissions};
use std::mem::ManuallyDrop;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MODULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../modules/built");
const SERVE: [&str; 7] =
    ["node", "--listen", "127.0.0.1:0", "--serve", "active", "--region", "kv=1M"];

/// A directory with some small modules: a node makes all of a directory ready before it serves.
fn small_modules(home: &Home) -> String {
    let directory = home.0.join("small-modules");
    fs::create_dir_all(&directory).expect("a directory");
    for module in ["alloc.wasm", "list.wasm", "table.wasm"] {
        fs::copy(Path::new(MODULES).join(module), directory.join(module)).expect("copied");
    }
    directory.to_str().expect("text").to_owned()
}

/// A node that serves a region, perhaps with a file.
fn serving(home: &Home, region: &str) -> (Node, String) {
    let modules = small_modules(home);
    home.node(&["--serve", "active", "--modules", &modules, "--region", region])
}

fn exec(home: &Home, address: &str, words: &[&str]) -> String {
    let at = ["--region", "kv", "--node", address];
    home.told(&[&["active", "exec"], words, &at].concat())
}

/// The processes that a process has started.
fn children(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let list = fs::read_to_string(path).expect("children");
    list.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
}

fn signal(process: u32, signal: Signal) {
    let pid = Pid::from_raw(process.cast_signed()).expect("a process");
    kill_process(pid, signal).expect("sent");
}

/// As systemd does unless a unit says otherwise.
#[test]
fn a_node_whose_processes_all_get_sigterm_keeps_its_regions() {
    let home = Home::new("active-term");
    let (node, address) = serving(&home, "kv=1MiB,persist=regions/kv");
    exec(&home, &address, &["list", "init", "u64:4096", "u64:65536"]);
    let processes = children(node.0.id());
    assert!(!processes.is_empty());
    processes.iter().for_each(|process| signal(*process, Signal::TERM));
    // It is dropped, and must end in order.
    drop(node);
    assert_eq!(fs::metadata(home.0.join("regions/kv")).expect("flushed").len(), 1 << 20);
}

/// The table of docs/active.md, as it stands but for its paths.
#[test]
fn the_pages_table_works_as_it_stands() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/active.md");
    let page = fs::read_to_string(page).expect("the page");
    let table = page.split("```").find(|part| part.contains("[active.regions.kv]")).expect("it");
    let home = Home::new("active-page");
    let file = home.0.join("regions/kv");
    fs::create_dir(home.0.join("regions")).expect("a directory");
    let table = table.replace("/etc/outboard/modules", &small_modules(&home));
    let table = table.replace("/var/lib/outboard/active/kv", file.to_str().expect("text"));
    fs::write(home.0.join("node.toml"), table).expect("written");
    let (node, address) = home.node(&["--config", "node.toml"]);
    assert!(home.told(&["active", "list", "--node", &address]).contains("table"));
    drop(node);
    assert_eq!(fs::metadata(file).expect("flushed").len(), 64 << 20);
}

#[test]
fn a_node_that_cannot_keep_its_regions_says_so_and_fails() {
    let home = Home::new("active-lost");
    fs::create_dir(home.0.join("within")).expect("a directory");
    let (node, address) = serving(&home, "kv=1MiB,persist=within/kv");
    // Dropped, it would have to end in order.
    let mut node = ManuallyDrop::new(node);
    exec(&home, &address, &["list", "init", "u64:4096", "u64:65536"]);
    fs::remove_dir_all(home.0.join("within")).expect("removed");
    signal(node.0.id(), Signal::TERM);
    assert_eq!(node.0.wait().expect("it ends").code(), Some(1));
}

#[test]
fn what_cannot_be_served_is_refused_before_anything_starts() {
    let home = Home::new("active-refused");
    fs::write(home.0.join("long"), vec![0; (1 << 20) + 1]).expect("written");
    let modules = Path::new(MODULES).join("list.wasm");
    let modules = modules.to_str().expect("text");
    for (words, why) in [
        (&["--region", "kv=1M,persist=/dev/null"][..], "no regular file"),
        (&["--region", "kv=1M,persist=."], "no regular file"),
        (&["--region", "kv=1M,persist=long"], "1048577 bytes"),
        (&["--region", "a=1M,persist=f", "--region", "b=1M,persist=./f"], "a and b have one file"),
        (&["--region", "kv=1M,persist=a,persist=b"], "one file"),
        (&["--region", "kv=1M", "--region", "kv=2M"], "kv twice"),
        (&["--region", "kv=lots"], "\"lots\" is no size"),
        (&["--region", "kv=1M", "--modules", modules], "no such directory"),
        (&[], "no regions"),
    ] {
        let all = [&["node", "--listen", "127.0.0.1:0", "--serve", "active"], words].concat();
        let complaint = home.complaint(&all);
        assert!(complaint.contains(why), "{words:?}: {complaint}");
        assert!(!complaint.contains("panicked"), "{complaint}");
    }
    let unserved = home.complaint(&["node", "--listen", "127.0.0.1:0", "--region", "kv=1M"]);
    assert!(unserved.contains("add --serve active"), "{unserved}");
}

/// Else it would be started again and again, while its node says that it serves.
#[test]
fn a_node_whose_service_cannot_start_fails() {
    let home = Home::new("active-unable");
    let secret = home.0.join("secret");
    fs::create_dir(&secret).expect("a directory");
    fs::set_permissions(&secret, Permissions::from_mode(0o000)).expect("closed");
    for (shell, words, why) in [
        // The node's checks do not find this one: as root, it is not the service's user.
        ("exec timeout 60 \"$@\"", &["--modules", "secret"][..], "Permission denied"),
        ("ulimit -v 3000000 && exec timeout 60 \"$@\"", &[], "ulimit -v"),
    ] {
        let words = [&SERVE[..], words].concat();
        let outboard = home.command(&words);
        let mut command = Command::new("sh");
        command.args(["-c", shell, "sh"]).arg(outboard.get_program()).args(outboard.get_args());
        command.envs(outboard.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = command.current_dir(&home.0).output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why) && said.contains("cannot start"), "{said}");
    }
}

#[test]
fn files_that_never_end_are_no_modules() {
    let home = Home::new("active-endless");
    let (_node, address) = serving(&home, "kv=1MiB");
    let begun = Instant::now();
    for words in [
        &["active", "load", "/dev/zero", "--node", &address][..],
        &["active", "run", "/dev/zero", "get"],
        &["active", "run", modules("list").as_str(), "get", "--region", "/dev/zero"],
    ] {
        let complaint = home.complaint(words);
        assert!(complaint.contains("no regular file"), "{words:?}: {complaint}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60));
}

fn modules(name: &str) -> String {
    format!("{MODULES}/{name}.wasm")
}

#[test]
fn an_output_that_takes_nothing_is_an_error_and_no_panic() {
    let home = Home::new("active-full");
    let (_node, address) = serving(&home, "kv=1MiB");
    for words in [&["list"][..], &["stats"], &["kill"], &["slowlog"], &["list", "--json"]] {
        let words = [&["active"], words, &["--node", &address]].concat();
        let full = File::options().write(true).open("/dev/full").expect("a device");
        let output = home.command(&words).stdout(full).stderr(Stdio::piped()).output();
        let output = output.expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked") && output.status.code() != Some(101), "{said}");
    }
}

#[test]
fn wrong_words_are_refused_in_a_sentence() {
    let home = Home::new("active-words");
    let (_node, address) = serving(&home, "kv=1MiB");
    for (words, why) in [
        (&["kill", "x"][..], "number of the list"),
        (&["drop", "nobody"], "no module of that name"),
        (&["exec", "nobody", "get", "--region", "kv"], "no module of that name"),
        (&["exec", "list", "init", "--region", "kv", "--limit", "0"], "more than 0"),
        (&["exec", "list", "init", "--region", "other"], "other"),
        (&["exec", "list", "absent", "--region", "kv"], "absent"),
    ] {
        let words = [&["active"], words, &["--node", &address]].concat();
        let complaint = home.complaint(&words);
        assert!(complaint.contains(why) && !complaint.contains("panicked"), "{complaint}");
    }
}
