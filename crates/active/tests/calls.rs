//! Clients and the service end to end: calls, modules, plain verbs, limits.

#[path = "support/modules.rs"]
#[expect(dead_code, reason = "another test uses the rest")]
mod modules;
#[path = "../../cluster/tests/support/sessions.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod sessions;
#[path = "support/stage.rs"]
#[expect(dead_code, reason = "another test uses the rest")]
mod stage;

use modules::{basics, library_and_user};
use outboard_active::protocol::KillTarget;
use outboard_active::service::{ActiveLimits, RegionSetup};
use outboard_active::{ActiveCall, ActiveError, ModuleHash, Outcome};
use outboard_testkit::{PATIENCE, eventually, look_until};
use outboard_verbs::SharedRegion;
use stage::{BLOCKING, Stage};
use std::time::Duration;

fn result(outcome: Outcome) -> Vec<u8> {
    match outcome {
        Outcome::Done { result, .. } => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_module_is_loaded_when_it_is_needed_and_its_entries_answer() {
    let stage = Stage::new();
    let mut client = stage.client();
    let region = client.attach("kv").expect("attached");
    assert_eq!((region.len(), region.may_write()), (1 << 20, true));
    let module = client.know("basics", &basics(0)).expect("a short name");
    let mut call = |entry: &str, args: &[u8]| {
        client.execute(&ActiveCall::new(&region, module, entry, args)).expect("an outcome")
    };
    assert_eq!(result(call("empty", b"")), b"");
    for count in 0..3_u64 {
        assert_eq!(result(call("count", b"")), count.to_le_bytes());
    }
    assert_eq!(result(call("get", b"")), 3_u64.to_le_bytes());
    let long = vec![7; 40_000];
    assert_eq!(result(call("echo", &long)), long);
    assert_eq!(call("refuse", b""), Outcome::Failed { code: 5, text: "no more".into() });
    assert!(matches!(call("trap", b""), Outcome::Trap(_)));
    assert_eq!(call("nothing", b""), Outcome::NoEntry("nothing".into()));
    assert_eq!(result(call("get", b"")), 3_u64.to_le_bytes());
    let report = stage.report();
    assert_eq!((&report["no_code"], &report["loads"]), (&1.into(), &1.into()), "{report}");
    assert_eq!(report["executions_now"], 0);
    let unknown = ActiveCall::new(&region, ModuleHash([9; 32]), "get", b"");
    let outcome = client.execute(&unknown).expect("an outcome");
    assert_eq!(outcome, Outcome::NoCode(ModuleHash([9; 32])), "nobody knows it");
}

#[test]
fn plain_verbs_and_calls_see_the_same_region() {
    let stage = Stage::new();
    let mut client = stage.client();
    let region = client.attach("kv").expect("attached");
    let module = client.know("basics", &basics(0)).expect("a short name");
    region.write(&mut client, 0, &41_u64.to_le_bytes()).expect("written");
    let count = ActiveCall::new(&region, module, "count", b"");
    assert_eq!(result(client.execute(&count).expect("an outcome")), 41_u64.to_le_bytes());
    assert_eq!(region.read(&mut client, 0, 8).expect("read"), 42_u64.to_le_bytes());
    assert_eq!(region.fetch_add(&mut client, 0, 8).expect("added"), 42);
    assert_eq!(region.compare_swap(&mut client, 0, 50, 7).expect("swapped"), 50);
    assert_eq!(region.compare_swap(&mut client, 0, 50, 8).expect("not swapped"), 7);
    assert_eq!(result(client.execute(&count).expect("an outcome")), 7_u64.to_le_bytes());
    let both = region.read_each(&mut client, &[(0, 8), (1024, 4)]).expect("read");
    assert_eq!(both, [8_u64.to_le_bytes().to_vec(), vec![0; 4]]);
    let own = SharedRegion::zeroed(16).expect("memory");
    let half = own.slice(8..16).expect("inside");
    region.read_to(&mut client, 0, &half).expect("read");
    assert_eq!(own.load_u64(8), Ok(8));
    let outside = region.read(&mut client, (1 << 20) - 4, 8);
    assert!(matches!(outside, Err(ActiveError::Outside { .. })), "{outside:?}");
    // Nothing of that has cost the connection.
    assert_eq!(client.connections(), 1);
}

#[test]
fn results_go_into_the_callers_memory() {
    let stage = Stage::new();
    let mut client = stage.client();
    let region = client.attach("kv").expect("attached");
    let module = client.know("basics", &basics(0)).expect("a short name");
    let own = SharedRegion::zeroed(64).expect("memory");
    let memory = client.expose(own.clone().into()).expect("exposed");
    let mut call = ActiveCall::new(&region, module, "echo", b"twelve bytes");
    call.result = Some((memory, 8..40));
    let ticket = client.submit(&call).expect("submitted");
    let executed = client.finish(ticket).expect("an outcome");
    assert_eq!(executed.written, Some(12));
    assert_eq!(own.snapshot(0..24).expect("inside"), b"\0\0\0\0\0\0\0\0twelve bytes\0\0\0\0");
    call.result = Some((memory, 60..70));
    assert!(matches!(client.submit(&call), Err(ActiveError::Outside { .. })));
    call.result = Some((memory, 0..4));
    let outcome = client.execute(&call).expect("an outcome");
    assert!(matches!(outcome, Outcome::Trap(_)), "it has room for 4: {outcome:?}");
    client.withdraw(memory);
    assert!(matches!(client.submit(&call), Err(ActiveError::NotOwn { .. })));
    call.result = None;
    assert_eq!(result(client.execute(&call).expect("an outcome")), b"twelve bytes");
}

#[test]
fn calls_that_are_submitted_together_travel_together() {
    const CALLS: u64 = 2000;
    let stage = Stage::new();
    let mut client = stage.client_with(&stage.identity(), BLOCKING);
    let region = client.attach("kv").expect("attached");
    let module = client.load("basics", &basics(0)).expect("loaded").0;
    let count = ActiveCall::new(&region, module, "count", b"");
    result(client.execute(&count).expect("an outcome"));
    let before = stage.report()["hub"]["messages_received"].as_u64().expect("a number");
    let tickets: Vec<_> = (0..CALLS).map(|_| client.submit(&count).expect("room")).collect();
    let mut seen = Vec::new();
    while seen.len() < tickets.len() {
        let executed = client.next(PATIENCE).expect("connected").expect("in time");
        seen.push((executed.ticket, result(executed.outcome)));
    }
    // One client's calls that are executed where they arrive are executed in order.
    for ((ticket, value), (number, expected)) in seen.iter().zip((1_u64..).zip(&tickets)) {
        assert_eq!((ticket, &value[..]), (expected, &number.to_le_bytes()[..]));
    }
    let report = stage.report();
    let messages = report["hub"]["messages_received"].as_u64().expect("a number") - before;
    assert!(messages <= 4, "{messages} messages: {report}");
    assert!(client.poll().expect("connected").is_none());
}

#[test]
fn the_window_is_bounded_and_polled() {
    let stage = Stage::new();
    let options = outboard_active::ActiveClientOptions { in_flight: 8, ..BLOCKING };
    let mut client = stage.client_with(&stage.identity(), options);
    let region = client.attach("kv").expect("attached");
    let module = client.load("basics", &basics(0)).expect("loaded").0;
    let empty = ActiveCall::new(&region, module, "empty", b"");
    for _ in 0..8 {
        client.submit(&empty).expect("room");
    }
    assert!(matches!(client.submit(&empty), Err(ActiveError::WindowFull { limit: 8 })));
    let mut over = 0;
    while over < 8 {
        over += usize::from(client.poll().expect("connected").is_some());
    }
    let long = vec![0; 40_000];
    client.options_mut().in_flight = 1000;
    let long = ActiveCall::new(&region, module, "echo", &long);
    let taken = (0..1000).find(|_| client.submit(&long).is_err()).expect("bounded in bytes, too");
    assert!((40..60).contains(&taken), "{taken}");
    for _ in 0..taken {
        let executed = client.next(PATIENCE).expect("connected").expect("in time");
        assert_eq!(result(executed.outcome).len(), 40_000);
    }
    client.submit(&long).expect("room again");
}

#[test]
fn modules_are_listed_dropped_and_loaded_with_what_they_import() {
    let stage = Stage::new();
    let mut client = stage.client();
    let region = client.attach("kv").expect("attached");
    let (library, user) = library_and_user(|bytes| ModuleHash::of(bytes).to_string());
    let refused = client.load("user", &user).expect_err("its library is not known");
    assert!(refused.to_string().contains("imports module"), "{refused}");
    client.know("library", &library).expect("a short name");
    let module = client.know("user", &user).expect("a short name");
    let ask = ActiveCall::new(&region, module, "ask", b"");
    assert_eq!(result(client.execute(&ask).expect("an outcome")), 42_u64.to_le_bytes());
    let mut names: Vec<_> = client.list().expect("a list").into_iter().map(|m| m.name).collect();
    names.sort();
    assert_eq!(names, ["library", "user"]);
    assert_eq!(stage.client().list().expect("a list"), [], "another identity has none");
    client.drop_module(module).expect("dropped");
    let outcome = client.execute(&ask).expect("an outcome");
    assert_eq!(outcome, Outcome::NoCode(module), "it was forgotten, too");
    let error = client.drop_module(module).expect_err("it is gone");
    assert!(matches!(error, ActiveError::Refused { .. }), "{error}");
}

#[test]
fn modules_of_identities_that_left_make_room_for_others() {
    let len = basics(0).len();
    let limits = ActiveLimits { all_bytes: 3 * len, ..ActiveLimits::default() };
    let stage = Stage::with(vec![RegionSetup::new("kv", 1 << 20)], limits);
    let own = stage.identity();
    let mut first = stage.client_of(&own);
    first.load("one", &basics(0)).expect("loaded");
    drop(first);
    stage.until("it is gone", |report| report["sessions_now"] == 0);
    let mut second = stage.client();
    second.load("one", &basics(1)).expect("loaded");
    second.load("two", &basics(2)).expect("loaded");
    let mut first = stage.client_of(&own);
    assert_eq!(first.list().expect("a list").len(), 1, "there was room for all");
    drop(first);
    stage.until("it is gone", |report| report["sessions_now"] == 1);
    second.load("three", &basics(3)).expect("loaded, in the place of one that nobody uses");
    let error = second.load("four", &basics(4)).expect_err("all are in use");
    assert!(error.to_string().contains("all identities"), "{error}");
    let mut first = stage.client_of(&own);
    assert_eq!(first.list().expect("a list").len(), 0);
    second.drop_module(ModuleHash::of(&basics(1))).expect("dropped");
    first.load("one", &basics(0)).expect("loaded again");
}

#[test]
fn a_long_module_is_read_from_the_clients_memory() {
    let stage = Stage::new();
    let mut client = stage.client();
    let filler = "x".repeat(100_000);
    let text = modules::BASICS.replacen("\"no more\"", &format!("\"no more{filler}\""), 1);
    let bytes = wat::parse_str(text).expect("legal text");
    assert!(bytes.len() > 100_000);
    let (module, entries) = client.load("long", &bytes).expect("loaded");
    assert_eq!(module, ModuleHash::of(&bytes));
    let find = |name: &str| entries.iter().find(|entry| entry.name == name).expect("an entry");
    assert!(find("get").is_read_only && !find("count").is_read_only);
    let reads = &stage.report()["hub"]["reads_bytes"];
    assert_eq!(reads.as_u64(), Some(bytes.len() as u64));
}

#[test]
fn identities_see_what_they_may() {
    let [writer, reader, other] = [(); 3].map(|()| {
        let key = outboard_secure::ClusterKey::generate().expect("a key");
        sessions::credentials(&key, "active")
    });
    // The stage's key, these identities.
    let stage = Stage::new();
    let with_key = |own: &std::sync::Arc<outboard_secure::Credentials>| {
        let fresh = stage.identity();
        std::sync::Arc::new(outboard_secure::Credentials {
            identity: own.identity.clone(),
            keys: fresh.keys.clone(),
            fabric: fresh.fabric,
            revoked: outboard_secure::Revoked::default(),
        })
    };
    let [writer, reader, other] = [&writer, &reader, &other].map(with_key);
    let mut setup = RegionSetup::new("kv", 1 << 20);
    setup.allow = Some([writer.identity.node()].into());
    setup.read = [reader.identity.node()].into();
    let mut stage = stage;
    stage.kill();
    stage.setups = vec![setup];
    stage.start();
    let mut client = stage.client_of(&reader);
    let region = client.attach("kv").expect("attached");
    assert!(!region.may_write());
    let module = client.know("basics", &basics(0)).expect("a short name");
    let call = |entry| ActiveCall::new(&region, module, entry, b"");
    assert_eq!(result(client.execute(&call("get")).expect("an outcome")), [0; 8]);
    let outcome = client.execute(&call("count")).expect("an outcome");
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    assert!(region.write(&mut client, 0, b"x").is_err());
    assert!(client.flush_region(&region).is_err());
    let refused = stage.client_of(&other).attach("kv").expect_err("not its");
    let missing = stage.client_of(&other).attach("nothing").expect_err("none");
    assert_eq!(refused.to_string().replace("kv", "nothing"), missing.to_string());
    let mut client = stage.client_of(&writer);
    let region = client.attach("kv").expect("attached");
    region.write(&mut client, 0, b"x").expect("written");
    assert_eq!(region.read(&mut client, 0, 1).expect("read"), b"x");
}

#[test]
fn long_calls_are_listed_killed_timed_out_and_logged() {
    let limits = ActiveLimits { time: Duration::from_secs(20), ..ActiveLimits::default() };
    let stage = Stage::with(vec![RegionSetup::new("kv", 1 << 20)], limits);
    let own = stage.identity();
    let mut client = stage.client_of(&own);
    let region = client.attach("kv").expect("attached");
    let module = client.know("basics", &basics(0)).expect("a short name");
    let mut spin = ActiveCall::new(&region, module, "spin", b"");
    spin.limit = Some(Duration::from_millis(20));
    let outcome = client.execute(&spin).expect("an outcome");
    let is_callers = |why: &str| why.contains("its caller's limit of 20ms");
    assert!(matches!(&outcome, Outcome::Timeout(why) if is_callers(why)), "{outcome:?}");
    spin.limit = None;
    let ticket = client.submit(&spin).expect("submitted");
    assert!(client.poll().expect("connected").is_none());
    // Another program of the same user sees it, another user does not.
    let mut other = stage.client_of(&own);
    let running = || other.running().expect("a list");
    let running = look_until("it runs", running, |text| text != "[]");
    let running: serde_json::Value = serde_json::from_str(&running).expect("JSON");
    assert_eq!(running[0]["entry"], "spin", "{running}");
    let id = running[0]["number"].as_u64().expect("a number");
    let mut stranger = stage.client();
    assert_eq!(stranger.running().expect("a list"), "[]");
    assert!(stranger.kill(KillTarget::Execution(id)).is_err());
    other.kill(KillTarget::Execution(id)).expect("killed");
    assert_eq!(client.finish(ticket).expect("over").outcome, Outcome::Killed);
    let ticket = client.submit(&spin).expect("submitted");
    eventually("it is killed", || client.kill(KillTarget::Request(ticket.number())).is_ok());
    assert_eq!(client.finish(ticket).expect("over").outcome, Outcome::Killed);
    let slow = client.slowlog().expect("a log");
    assert!(slow.contains("timeout") && slow.contains("killed"), "{slow}");
    assert_eq!(stranger.slowlog().expect("a log"), "[]");
    let stats = client.stats().expect("counters");
    assert!(stats.contains("\"name\":\"kv\""), "{stats}");
}

#[test]
fn an_identity_that_has_too_much_under_way_is_told_so() {
    let mut limits = ActiveLimits { time: Duration::from_secs(20), ..ActiveLimits::default() };
    (limits.background.running, limits.background.waiting) = (1, 2);
    (limits.store.modules, limits.store.module.bytes) = (2, 60_000);
    let stage = Stage::with(vec![RegionSetup::new("kv", 1 << 20)], limits);
    let mut client = stage.client();
    let region = client.attach("kv").expect("attached");
    let module = client.load("basics", &basics(0)).expect("loaded").0;
    client.load("second", &basics(1)).expect("loaded");
    let error = client.load("third", &basics(2)).expect_err("too many");
    assert!(error.to_string().contains("at most 2"), "{error}");
    let error = client.load("long", &vec![0; 70_000]).expect_err("too long");
    assert!(error.to_string().contains("60000"), "{error}");
    assert_eq!(stage.report()["hub"]["reads"], 0, "its bytes were not even read");
    let empty = ActiveCall::new(&region, module, "empty", b"");
    result(client.execute(&empty).expect("an outcome"));
    let spin = ActiveCall::new(&region, module, "spin", b"");
    let tickets: Vec<_> = (0..5).map(|_| client.submit(&spin).expect("submitted")).collect();
    let mut busy = 0;
    while busy < 2 {
        let executed = client.next(PATIENCE).expect("connected").expect("in time");
        assert!(matches!(executed.outcome, Outcome::Busy(_)), "{executed:?}");
        busy += 1;
    }
    // Neither what is short nor another identity is kept waiting.
    result(client.execute(&empty).expect("an outcome"));
    let mut other = stage.client();
    let others = other.attach("kv").expect("attached");
    other.know("basics", &basics(0)).expect("a short name");
    let call = ActiveCall::new(&others, module, "empty", b"");
    result(other.execute(&call).expect("an outcome"));
    for ticket in tickets {
        // As many calls as the window has do not wait for the oldest.
        for _ in 0..250 {
            result(client.execute(&empty).expect("an outcome"));
        }
        // Those that are over are not under way.
        let _is_over = client.kill(KillTarget::Request(ticket.number()));
    }
}
