//! `outboard offload` by the commands that users type: the example `modules/packets` on the host,
//! on a core and on a node; what `check`, `plan` and `explain` say; commands for what runs; and
//! what is left when something is killed.
//!
//! It looks at no time, but for limits that a busy machine keeps, too.

#[expect(dead_code, reason = "other tests use the rest")]
mod home;
mod offload_support;

use offload_support::{Playground, RunningApp, is_over};
use outboard_testkit::PATIENCE;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

/// How soon an application must know that a device is lost is a second; this is ten times that.
const TOLD: Duration = Duration::from_secs(10);

#[test]
fn one_program_gives_the_same_pages_in_every_layout() {
    let place = Playground::new("same");
    let host = place.pages("host.toml");
    assert_eq!(host.len(), 3, "{host:?}");
    assert!(host[2].contains("Packets: 300</h1><table><tr><td>10.0.0.1<td>200"), "{host:?}");
    assert!(host[2].contains("<td>2001:0db8:0000:0000:0000:0000:0000:0001<td>20"), "{host:?}");
    assert_eq!(place.pages(&place.on_core("core.toml")), host);
    let (_node, address) = place.node();
    assert_eq!(place.pages(&place.on_node("node.toml", &address)), host);
    let mixed = place.on_core(&place.on_node("mixed.toml", &address));
    assert_eq!(place.pages(&mixed), host);
    assert_eq!(place.sockets(), [""; 0]);
}

#[test]
fn layout_files_of_the_example_differ_in_placement_alone() {
    let place = Playground::new("differ");
    let program = |name: &str| {
        let text = fs::read_to_string(place.path(name)).expect("there");
        let text = text.split("\n[device]").next().expect("something").to_owned();
        text.lines().filter(|line| !line.starts_with("on = ")).map(str::to_owned).collect()
    };
    let host: Vec<String> = program("host.toml");
    for name in ["core.toml", "node.toml", "mixed.toml"] {
        let other = program(name);
        assert_eq!(host, other[..host.len()], "{name}");
        assert!(other[host.len()..].iter().all(String::is_empty), "{name}");
    }
}

#[test]
fn a_layout_is_checked_planned_and_explained_without_being_run() {
    let place = Playground::new("plan");
    let core = place.on_core("core.toml");
    assert_eq!(place.told(&["check", &core]), "packets: 3 offcodes: all is well\n");
    assert!(place.told(&["check", "filter"]).starts_with("filter 1.0.0, GUID "));
    let checked: Value = place.json(&["check", "filter", "--json"]);
    assert_eq!(checked["assumptions"], json!([]));
    let plan = place.json(&["plan", &core, "--json"]);
    assert_eq!((&plan["application"], &plan["proven"]), (&json!("packets"), &json!(true)));
    let device = |at: usize| plan["offcodes"][at]["device"].as_str().expect("text").to_owned();
    assert!(device(0).starts_with("core:") && device(1) == device(0), "{plan}");
    assert_eq!(device(2), "host");
    let drawn = place.told(&["plan", &core, "--svg", "layout.svg"]);
    assert!(drawn.contains("counter") && drawn.contains("it can run nowhere else"), "{drawn}");
    assert!(fs::read_to_string(place.path("layout.svg")).expect("drawn").contains("<svg"));
    let why = place.told(&["explain", &core, "page"]);
    assert!(why.contains("page on host") && why.contains("not on `core:"), "{why}");
    let devices = place.json(&["devices", &core, "--json"]);
    assert_eq!(devices[0], json!({ "name": "host", "kind": "host", "unusable": null }));
}

#[test]
fn faults_of_files_are_said_with_their_lines() {
    let place = Playground::new("faults");
    let text = fs::read_to_string(place.path("host.toml")).expect("there");
    fs::write(place.path("key.toml"), text.replacen("on = ", "onn = ", 1)).expect("written");
    let said = place.complaint(&["check", "key.toml"]);
    assert!(said.contains("key.toml:8: ") && said.contains("did you mean on?"), "{said}");
    let said = place.complaint(&["run", "missing.toml"]);
    assert!(said.contains("missing.toml: No such file"), "{said}");
    let pulled = format!("{text}\n[[layout]]\npull = [\"filter\", \"page\"]\n");
    let apart = pulled.replacen("on = \"host\"", "on = \"core:0\"", 1);
    fs::write(place.path("apart.toml"), format!("{apart}\n[device]\ncores = [0]\n")).expect("it");
    for command in ["plan", "run"] {
        let said = place.complaint(&[command, "apart.toml"]);
        assert!(said.contains("no layout obeys all of this"), "{said}");
        assert!(said.contains("`filter` and `page` are on the same device"), "{said}");
        assert!(!said.contains("`counter`"), "nothing beside the conflict: {said}");
    }
    fs::remove_file(place.path("page/page.wasm")).expect("removed");
    let said = place.complaint(&["check", "host.toml"]);
    assert!(said.contains("page/page.wasm"), "{said}");
}

#[test]
fn what_runs_is_listed_called_and_stopped() {
    let place = Playground::new("running");
    let mut app = place.start("host.toml", &[]);
    app.feed_all();
    app.wait_for_total(300, PATIENCE);
    let all = place.json(&["ps", "--json"]);
    let status = &all[0];
    assert_eq!((&status["application"], &status["process"]), (&json!("packets"), &app.json_pid()));
    let filter = &status["offcodes"][0];
    assert_eq!((&filter["name"], &filter["phase"]), (&json!("filter"), &json!("started")));
    assert_eq!((&filter["received"], &filter["sent"]), (&json!(400), &json!(300)));
    assert!(place.told(&["ps"]).contains("filter.1 -> counter.0  by inside"));
    let top = place.told(&["call", "packets", "counter", "top", "2"]);
    assert_eq!(top, "[[\"10.0.0.1\",200],[\"10.0.0.2\",80]]\n");
    assert_eq!(place.told(&["call", "packets", "filter", "packets.passed"]), "[300,100]\n");
    for (words, why) in [
        (&["call", "packets", "counter", "most"][..], "most"),
        (&["call", "packets", "counter", "top"], "top"),
        (&["call", "packets", "counter", "top", "x"], "is no JSON"),
        (&["call", "packets", "nobody", "top"], "nobody"),
        (&["move", "packets", "counter", "core:77"], "core:77"),
        (&["ps", "other"], "no application `other`"),
    ] {
        let said = place.complaint(words);
        assert!(said.contains(why), "{words:?}: {said}");
    }
    assert!(place.told(&["logs", "packets"]).contains("filter: the filter has started"));
    let second = place.output(&["run", "host.toml", "--for", "1s"]);
    assert!(!second.status.success(), "its name is taken");
    place.told(&["stop", "packets"]);
    assert!(app.end(PATIENCE).success());
    assert_eq!(place.told(&["ps"]), "");
    assert_eq!(place.sockets(), [""; 0]);
}

#[test]
fn attributes_moves_and_updates_take_effect_while_it_runs() {
    let place = Playground::new("moves");
    // Nothing is pinned: each offcode may go anywhere.
    let core = place.unpinned(&place.on_core("core.toml"));
    let mut app = place.start(&core, &[]);
    app.feed_all();
    app.wait_for_total(300, PATIENCE);
    let number = place.core();
    place.told(&["move", "packets", "counter", &format!("core:{number}")]);
    assert_eq!(app.total(), 300, "its state goes along");
    app.feed_all();
    app.wait_for_total(600, PATIENCE);
    place.told(&["update", "packets", "counter", "counter"]);
    assert_eq!(app.total(), 600, "it goes on from what it has saved");
    place.told(&["attribute", "packets", "filter", "port", "80"]);
    assert!(place.told(&["attribute", "packets", "filter"]).contains("port = 80\n"));
    app.feed_all();
    app.wait_for_total(700, PATIENCE);
    place.told(&["move", "packets", "counter", "host"]);
    let top = place.told(&["call", "packets", "counter", "top", "9"]);
    let top: Value = serde_json::from_str(&top).expect("JSON");
    assert_eq!(top[2], json!(["10.0.0.3", 100]));
    place.told(&["stop", "packets"]);
    assert!(app.end(PATIENCE).success());
}

#[test]
fn a_signal_ends_it_and_nothing_is_left() {
    let place = Playground::new("signals");
    let core = place.on_core("core.toml");
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let mut app = place.start(&core, &[]);
        let cores = app.children();
        assert_eq!(cores.len(), 1, "one core");
        app.signal(signal);
        assert_eq!(app.end(PATIENCE).success(), signal != Signal::KILL);
        let limit = Instant::now() + PATIENCE;
        while cores.iter().any(|core| !is_over(*core)) {
            assert!(Instant::now() < limit, "{signal:?} leaves a core's process");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(place.told(&["ps"]), "", "{signal:?}");
    }
    // After a kill, `ps` has taken the socket away.
    assert_eq!(place.sockets(), [""; 0]);
}

#[test]
fn a_core_that_is_killed_is_told_and_fails_the_run() {
    let place = Playground::new("core-killed");
    let mut app = place.start(&place.on_core("core.toml"), &[]);
    let core = app.children()[0];
    let killed = Instant::now();
    offload_support::signal(core, Signal::KILL);
    app.wait_for_line("is lost", PATIENCE);
    assert!(killed.elapsed() < TOLD, "{:?}", killed.elapsed());
    place.told(&["stop", "packets"]);
    assert!(!app.end(PATIENCE).success(), "the exit code says so");
}

#[test]
fn a_node_that_is_killed_is_told_and_fails_the_run() {
    let place = Playground::new("node-killed");
    let (node, address) = place.node();
    let mut app = place.start(&place.on_node("node.toml", &address), &[]);
    app.feed_all();
    app.wait_for_total(300, PATIENCE);
    let killed = Instant::now();
    node.kill();
    app.wait_for_line("is lost", PATIENCE);
    assert!(killed.elapsed() < TOLD, "{:?}", killed.elapsed());
    place.told(&["stop", "packets"]);
    assert!(!app.end(PATIENCE).success(), "the exit code says so");
}

#[test]
fn without_the_key_of_the_service_nothing_runs_on_a_node() {
    let place = Playground::new("keys");
    let (_node, address) = place.node();
    let layout = place.on_node("node.toml", &address);
    assert_eq!(place.pages(&layout).len(), 3);
    let exported = |service: &str| {
        let file = place.path(&format!("{service}.key"));
        let file = file.to_str().expect("text").to_owned();
        let output =
            place.command(&["key", "export", service, "--to", &file]).output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        file
    };
    assert_eq!(place.pages_with(&layout, Some(&exported("offload"))).expect("it runs").len(), 3);
    for key in [place.path("none").to_str().expect("text").to_owned(), exported("active")] {
        let said = place.pages_with(&layout, Some(&key)).expect_err("it does not run");
        assert!(said.contains("node:127.0.0.1"), "{said}");
        assert!(!said.contains("the counter has started"), "{said}");
    }
}

/// The table of docs/offload.md, as it stands: it allows an identity that is not this user's.
#[test]
fn the_pages_table_works_and_allows_nobody_else() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/offload.md");
    let page = fs::read_to_string(page).expect("the page");
    let table = page.split("```toml\n").find(|part| part.starts_with("[offload]")).expect("it");
    let table = table.split("```").next().expect("its end");
    let place = Playground::new("page");
    let served = |table: &str| {
        fs::write(place.path("service.toml"), table).expect("written");
        let (_node, address) = place.node_with(&["--config", "service.toml"]);
        place.pages_with(&place.on_node("node.toml", &address), None)
    };
    let said = served(table).expect_err("refused");
    assert!(said.contains("node:127.0.0.1"), "{said}");
    assert!(!said.contains("the counter has started"), "{said}");
    let open = table.lines().filter(|line| !line.starts_with("allow")).collect::<Vec<_>>();
    assert_eq!(served(&open.join("\n")).expect("it runs").len(), 3);
}

#[test]
fn two_applications_of_different_names_run_beside_each_other() {
    let place = Playground::new("two");
    let text = fs::read_to_string(place.path("host.toml")).expect("there");
    let other = text.replacen("name = \"packets\"", "name = \"others\"", 1);
    fs::write(place.path("others.toml"), other).expect("written");
    let mut one = place.start("host.toml", &[]);
    let mut two: RunningApp<'_> = place.start("others.toml", &[]);
    let all = place.json(&["ps", "--json"]);
    let names = [&all[0]["application"], &all[1]["application"]];
    assert_eq!(names, ["others", "packets"]);
    place.told(&["stop", "others"]);
    assert!(two.end(PATIENCE).success());
    assert_eq!(place.json(&["ps", "--json"]).as_array().expect("a list").len(), 1);
    place.told(&["stop", "packets"]);
    assert!(one.end(PATIENCE).success());
}

#[test]
fn lines_of_json_are_what_they_say() {
    let place = Playground::new("json");
    let output = place.run_with_packets("host.toml", &["--json"]);
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .expect("text")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["end"], "pages");
    assert!(lines[0]["message"].as_str().expect("text").starts_with("<!doctype html>"));
    let events = String::from_utf8(output.stderr).expect("text");
    let event: Value = serde_json::from_str(events.lines().next().expect("one")).expect("JSON");
    assert!(event["event"].as_str().expect("text").contains("has started"), "{events}");
}
