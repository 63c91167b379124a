//! Everything that can end: connections, the service's process, the node, with requests pending.
//! What writes is executed once, whatever happens.

#[path = "support/modules.rs"]
#[expect(dead_code, reason = "another test uses the rest")]
mod modules;
#[path = "../../cluster/tests/support/sessions.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod sessions;
#[path = "support/stage.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod stage;

use modules::{basics, word};
use outboard_active::protocol::KillTarget;
use outboard_active::service::{ActiveLimits, RegionSetup};
use outboard_active::{ActiveCall, ActiveClient, ActiveError, CallTicket, Outcome, RemoteRegion};
use outboard_active::{ActiveClientOptions, ModuleHash};
use outboard_testkit::{PATIENCE, eventually};
use stage::{BLOCKING, Stage};
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

/// A client with a region and a module that is loaded.
fn ready(stage: &Stage) -> (ActiveClient, RemoteRegion, ModuleHash) {
    let mut client = stage.client_with(&stage.identity(), BLOCKING);
    let region = client.attach("kv").expect("attached");
    let module = client.load("basics", &basics(0)).expect("loaded").0;
    let empty = ActiveCall::new(&region, module, "empty", b"");
    client.execute(&empty).expect("an outcome");
    (client, region, module)
}

/// Calls the counter many times, many at a time, while something happens to the service now and
/// then. Each call must have been executed once: the counter's old values are all different, and
/// none is missing.
fn count_through(stage: &mut Stage, disturb: impl Fn(&mut Stage), entry: &str, calls: usize) {
    let (mut client, region, module) = ready(stage);
    let call = ActiveCall::new(&region, module, entry, b"");
    let (mut open, mut seen) = (0, BTreeMap::new());
    let mut begun = 0;
    while seen.len() < calls {
        while open < 64 && begun < calls {
            client.submit(&call).expect("room");
            (open, begun) = (open + 1, begun + 1);
        }
        if begun % 192 == 0 && open == 64 && begun < calls {
            // They are on their way; some of them have been executed, some have not.
            let _some = client.poll().expect("this machine").map(|executed| {
                seen.insert(word(&executed.outcome), executed.ticket);
                open -= 1;
            });
            disturb(stage);
        }
        let executed = client.next(PATIENCE).expect("connected").expect("in time");
        let twice = seen.insert(word(&executed.outcome), executed.ticket);
        assert_eq!(twice, None, "{executed:?}");
        open -= 1;
    }
    let values: Vec<u64> = seen.into_keys().collect();
    assert_eq!(values, (0..calls as u64).collect::<Vec<_>>());
    assert!(client.connections() > 3, "{} connections", client.connections());
}

#[test]
fn calls_are_executed_once_however_often_the_connection_is_lost() {
    let mut stage = Stage::new();
    let disturb = |stage: &mut Stage| {
        let report = stage.report();
        assert_eq!(report["sessions_now"], 1, "{report}");
        stage.end_sessions();
    };
    count_through(&mut stage, disturb, "count", 2000);
    assert!(stage.report()["retries"].as_u64() > Some(0));
}

#[test]
fn calls_are_executed_once_however_often_the_service_is_killed() {
    let mut stage = Stage::new();
    let disturb = |stage: &mut Stage| {
        stage.kill();
        stage.start();
    };
    count_through(&mut stage, disturb, "count", 2000);
}

#[test]
fn long_calls_are_executed_once_however_often_the_connection_is_lost() {
    let mut limits = ActiveLimits { time: Duration::from_secs(20), ..ActiveLimits::default() };
    // One after the other: otherwise they are in each other's way all the time.
    limits.background.running = 1;
    let mut stage = Stage::with(vec![RegionSetup::new("kv", 1 << 20)], limits);
    let disturb = |stage: &mut Stage| stage.end_sessions();
    count_through(&mut stage, disturb, "slow_count", 600);
}

#[test]
fn a_call_that_goes_on_while_its_connection_is_lost_is_answered_on_the_next_one() {
    let limits = ActiveLimits { time: Duration::from_secs(20), ..ActiveLimits::default() };
    let stage = Stage::with(vec![RegionSetup::new("kv", 1 << 20)], limits);
    let (mut client, region, module) = ready(&stage);
    let spin = ActiveCall {
        limit: Some(Duration::from_millis(500)),
        ..ActiveCall::new(&region, module, "spin", b"")
    };
    let ticket = client.submit(&spin).expect("room");
    assert!(client.poll().expect("connected").is_none());
    stage.until("it runs", |report| report["executions_now"] == 1);
    stage.end_sessions();
    let outcome = client.finish(ticket).expect("over").outcome;
    assert!(matches!(outcome, Outcome::Timeout(_)), "{outcome:?}");
    let report = stage.until("it is over", |report| report["executions_now"] == 0);
    assert_eq!(report["executor"]["on_threads"], 1, "it ran once: {report}");
    assert_eq!(client.connections(), 2);
}

/// The node would give them a minute.
#[test]
fn what_a_gone_client_has_begun_is_killed_and_executed_anew_if_it_comes_back() {
    let limits = ActiveLimits { time: Duration::from_secs(60), ..ActiveLimits::default() };
    let stage = Stage::with(vec![RegionSetup::new("kv", 1 << 20)], limits);
    let (mut client, region, module) = ready(&stage);
    let spin = ActiveCall::new(&region, module, "spin", b"");
    let ticket = client.submit(&spin).expect("room");
    assert!(client.poll().expect("connected").is_none());
    stage.until("it runs", |report| report["executions_now"] == 1);
    // The client notices that when it is called next.
    stage.end_sessions();
    let killed = |report: &serde_json::Value| report["executor"]["stopped"] == 1;
    let report = stage.until("it is killed", killed);
    assert_eq!(report["executions_now"], 0, "{report}");
    // It asks for the call again on its new connection.
    eventually("it is killed", || client.kill(KillTarget::Request(ticket.number())).is_ok());
    assert_eq!(client.finish(ticket).expect("over").outcome, Outcome::Killed);
    let report = stage.until("it is over", |report| report["executions_now"] == 0);
    assert_eq!(report["executor"]["on_threads"], 2, "{report}");
}

#[test]
fn what_a_dead_client_has_begun_ends_and_leaves_nothing() {
    let limits = ActiveLimits { time: Duration::from_millis(300), ..ActiveLimits::default() };
    let stage = Stage::with(vec![RegionSetup::new("kv", 1 << 20)], limits);
    let (mut client, region, module) = ready(&stage);
    for entry in ["spin", "count", "slow_count", "spin"] {
        client.submit(&ActiveCall::new(&region, module, entry, b"")).expect("room");
    }
    // What is short may be answered at once.
    let _some = client.poll().expect("connected");
    stage.until("it runs", |report| report["executions_now"].as_u64() > Some(0));
    drop(client);
    let nothing = |report: &serde_json::Value| {
        ["executions_now", "sessions_now", "waiting_now"].iter().all(|what| report[what] == 0)
    };
    stage.until("it is over", nothing);
    let (mut client, region, module) = ready(&stage);
    let count = client.execute(&ActiveCall::new(&region, module, "count", b""));
    assert_eq!(word(&count.expect("an outcome")), 1, "what was asked was done, once");
}

#[test]
fn a_revoked_identity_loses_its_connection_and_what_it_has_under_way() {
    let limits = ActiveLimits { time: Duration::from_secs(60), ..ActiveLimits::default() };
    let stage = Stage::with(vec![RegionSetup::new("kv", 1 << 20)], limits);
    let (mut client, region, module) = ready(&stage);
    client.submit(&ActiveCall::new(&region, module, "spin", b"")).expect("room");
    assert!(client.poll().expect("connected").is_none());
    stage.until("it runs", |report| report["executions_now"] == 1);
    stage.end_sessions();
    stage.until("nothing runs", |report| report["executions_now"] == 1);
    stage.revoke_all();
    stage.until("it is killed", |report| report["executions_now"] == 0);
}

#[test]
fn a_region_that_is_given_up_answers_nothing_more() {
    let stage = Stage::new();
    let (mut client, region, module) = ready(&stage);
    let spin = ActiveCall {
        limit: Some(Duration::from_millis(100)),
        ..ActiveCall::new(&region, module, "spin", b"")
    };
    let ticket = client.submit(&spin).expect("room");
    assert!(client.poll().expect("connected").is_none());
    stage.until("it runs", |report| report["executions_now"] == 1);
    let again = region.clone();
    client.detach(region);
    assert_eq!(client.finish(ticket).expect("over").outcome, Outcome::Unknown);
    let read = again.read(&mut client, 0, 8);
    assert!(matches!(read, Err(ActiveError::Refused { .. })), "{read:?}");
    let call = client.submit(&ActiveCall::new(&again, module, "get", b""));
    assert!(matches!(call, Err(ActiveError::NotOwn { .. })), "{call:?}");
    let region = client.attach("kv").expect("attached");
    assert_eq!(region.read(&mut client, 0, 8).expect("read"), [0; 8]);
    stage.until("it is over", |report| report["executions_now"] == 0);
    assert_eq!(client.connections(), 1);
}

#[test]
fn after_a_node_has_lost_its_memory_nobody_claims_to_know_what_was_executed() {
    let mut stage = Stage::new();
    let (mut client, region, module) = ready(&stage);
    let count = ActiveCall::new(&region, module, "count", b"");
    assert_eq!(word(&client.execute(&count).expect("an outcome")), 0);
    stage.kill();
    for name in stage.keeper.names() {
        stage.keeper.lose(&name);
    }
    // The connection's end is not known yet: this is sent on it, or not.
    let sent: Vec<CallTicket> = (0..3).map(|_| client.submit(&count).expect("room")).collect();
    let _none = client.poll().expect("this machine");
    stage.start();
    let outcomes: Vec<Outcome> =
        sent.into_iter().map(|ticket| client.finish(ticket).expect("over").outcome).collect();
    assert_eq!(outcomes, vec![Outcome::Unknown; 3]);
    assert_eq!(word(&client.execute(&count).expect("an outcome")), 0, "a new region");
}

#[test]
fn a_node_that_ends_keeps_its_regions_in_their_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("kv");
    let setup = RegionSetup { persist: Some(path.clone()), ..RegionSetup::new("kv", 1 << 20) };
    let mut stage = Stage::with(vec![setup], ActiveLimits::default());
    let (mut client, region, module) = ready(&stage);
    let count = ActiveCall::new(&region, module, "count", b"");
    client.execute(&count).expect("an outcome");
    assert!(!path.exists());
    client.flush_region(&region).expect("flushed");
    assert_eq!(std::fs::read(&path).expect("a file")[0], 1);
    client.execute(&count).expect("an outcome");
    // Executing all the while, too.
    client.submit(&ActiveCall::new(&region, module, "spin", b"")).expect("room");
    assert!(client.poll().expect("connected").is_none());
    stage.end();
    assert_eq!(std::fs::read(&path).expect("a file")[0], 2);
    for name in stage.keeper.names() {
        stage.keeper.lose(&name);
    }
    stage.start();
    let (mut client, region, module) = ready(&stage);
    let count = ActiveCall::new(&region, module, "count", b"");
    assert_eq!(word(&client.execute(&count).expect("an outcome")), 2);
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let within = directory.path().join("within");
    std::fs::create_dir(&within).expect("a directory");
    let setup = RegionSetup { persist: Some(within.join("kv")), ..RegionSetup::new("kv", 1 << 20) };
    let stage = Stage::with(vec![setup], ActiveLimits::default());
    let (mut client, region, _) = ready(&stage);
    std::fs::remove_dir_all(&within).expect("removed");
    let error = client.flush_region(&region).expect_err("no directory").to_string();
    assert!(error.contains("No such file"), "{error}");
    assert_eq!(region.read(&mut client, 0, 8).expect("read"), [0; 8]);
    let report = stage.report();
    assert_eq!((&report["flushes"], &report["flushes_failed"]), (&1.into(), &1.into()));
}

#[test]
fn a_client_that_reaches_no_service_says_so_in_time() {
    let mut stage = Stage::new();
    let options = ActiveClientOptions { limit: Duration::from_millis(700), ..BLOCKING };
    let mut client = stage.client_with(&stage.identity(), options);
    let region = client.attach("kv").expect("attached");
    // Another client has a long limit.
    let mut patient = stage.client();
    let patients = patient.attach("kv").expect("attached");
    stage.kill();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| patients.read(&mut patient, 0, 8));
        region.read(&mut client, 0, 8).expect_err("no answer");
        let unknown = ActiveCall::new(&region, ModuleHash([1; 32]), "get", b"");
        client.execute(&unknown).expect_err("no answer");
        assert!(!waiting.is_finished(), "each waits for its own limit");
        stage.start();
        assert_eq!(waiting.join().expect("no panic").expect("read"), [0; 8]);
    });
    client.options_mut().limit = PATIENCE;
    assert_eq!(region.read(&mut client, 0, 8).expect("read"), [0; 8]);
}
