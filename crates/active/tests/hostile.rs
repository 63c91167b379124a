//! Peers that do what no client of this program does: their sessions end, and nothing else; others
//! are served meanwhile.

#[path = "support/modules.rs"]
#[expect(dead_code, reason = "another test uses the rest")]
mod modules;
#[path = "../../cluster/tests/support/sessions.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod sessions;
#[path = "support/stage.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod stage;

use modules::basics;
use outboard_active::protocol::{
    ActiveAnswer, ActiveClientId, ActiveRequest, ExecuteRequest, KillTarget, ModuleBytes, PROTOCOL,
    ResultPlace,
};
use outboard_active::service::{ActiveLimits, RegionSetup};
use outboard_active::{ActiveCall, ActiveClient, ModuleHash, Outcome, RemoteRegion};
use outboard_cluster::hub::{Exposed, Hub, HubEvent, HubOptions, PeerId};
use outboard_secure::Credentials;
use outboard_testkit::eventually;
use outboard_verbs::{Access, Role, SharedRegion};
use serde_json::Value;
use stage::{BLOCKING, Stage};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A peer that says what it likes.
struct Peer {
    hub: Hub,
    id: PeerId,
    heard: Vec<Vec<u8>>,
    is_over: bool,
}

impl Peer {
    fn new(stage: &Stage) -> Self {
        Self::of(stage, &stage.identity())
    }

    fn of(stage: &Stage, own: &Arc<Credentials>) -> Self {
        // So many requests that it need not look whether they have gone.
        let options = HubOptions { message_max: 1 << 20, sends: 4096, ..HubOptions::default() };
        let mut hub = Hub::with(options);
        let hub_of = hub.as_mut().expect("a hub");
        let stream = stage.session(own);
        let admitted = hub_of
            .prepare()
            .expect("an admission")
            .connect(|qp, params, channel| qp.adopt(stream, Role::Initiator, params, channel));
        let id = hub_of.enroll(admitted.expect("connected")).expect("enrolled");
        Self { hub: hub.expect("a hub"), id, heard: Vec::new(), is_over: false }
    }

    /// One that has said who it is.
    fn known(stage: &Stage) -> Self {
        let mut peer = Self::new(stage);
        peer.say(&ActiveRequest::Hello { client: ActiveClientId([1; 16]) });
        peer
    }

    fn say(&mut self, request: &ActiveRequest<'_>) {
        self.hub.send(self.id, &PROTOCOL.encode(request)).expect("sent");
    }

    fn turn(&mut self) {
        let mut events = Vec::new();
        self.hub.turn(&mut events).expect("a turn");
        for event in events {
            match event {
                HubEvent::Message { bytes, .. } => self.heard.push(bytes),
                HubEvent::Gone { .. } => self.is_over = true,
                _ => {}
            }
        }
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        eventually(what, || {
            self.turn();
            is_so(self)
        });
    }

    /// The service's reason to end the session.
    fn end(&mut self, stage: &Stage) -> String {
        self.until("the end", |peer| peer.is_over);
        stage.report()["latest_end"].as_str().expect("a reason").to_owned()
    }

    /// One that has a region and a module, and an instance of it.
    fn ready(stage: &Stage, entry: &str) -> Self {
        let mut peer = Self::known(stage);
        peer.say(&load("basics", &basics(0)));
        peer.say(&ActiveRequest::Attach { number: 2, handle: 0, region: "kv", epoch: 0 });
        peer.until("it is loaded", |peer| peer.heard.iter().any(|batch| has_loaded(batch)));
        peer.say(&execute(entry, 0, ResultPlace::Inline));
        peer.refusal();
        peer
    }

    /// The latest answer.
    fn refusal(&mut self) -> String {
        self.until("a refusal", |peer| peer.heard.iter().any(|batch| !reasons(batch).is_empty()));
        reasons(self.heard.last().expect("an answer")).pop().expect("a reason")
    }
}

fn has_loaded(batch: &[u8]) -> bool {
    let mut rest = PROTOCOL.open_batch(batch).expect("its version");
    let mut answers = std::iter::from_fn(|| PROTOCOL.decode_next(&mut rest).expect("an answer"));
    answers.any(|answer| matches!(answer, ActiveAnswer::Loaded { .. }))
}

/// The refusals, and the outcomes, of a batch.
fn reasons(batch: &[u8]) -> Vec<String> {
    let mut rest = PROTOCOL.open_batch(batch).expect("its version");
    let mut reasons = Vec::new();
    while let Some(answer) = PROTOCOL.decode_next(&mut rest).expect("an answer") {
        match answer {
            ActiveAnswer::Refused { why, .. } => reasons.push(why.to_owned()),
            ActiveAnswer::Executed { outcome, .. } => reasons.push(format!("{outcome:?}")),
            _ => {}
        }
    }
    reasons
}

fn execute(entry: &str, handle: u32, result: ResultPlace) -> ActiveRequest<'_> {
    ActiveRequest::Execute(ExecuteRequest {
        number: 1,
        retried_since: None,
        handle,
        module: ModuleHash::of(&basics(0)).0,
        entry,
        args: b"",
        result,
        limit_us: 0,
    })
}

/// A client that everything goes well for, before and after.
fn witness(stage: &Stage) -> (ActiveClient, RemoteRegion, ModuleHash) {
    let mut client = stage.client_with(&stage.identity(), BLOCKING);
    let region = client.attach("kv").expect("attached");
    let module = client.load("basics", &basics(0)).expect("loaded").0;
    is_well(&mut client, &region, module);
    (client, region, module)
}

fn is_well(client: &mut ActiveClient, region: &RemoteRegion, module: ModuleHash) {
    let outcome = client.execute(&ActiveCall::new(region, module, "get", b""));
    assert!(matches!(outcome, Ok(Outcome::Done { .. })), "{outcome:?}");
    assert_eq!(client.connections(), 1);
}

/// What a peer does, and what the service says of it.
type BrokenRule = (fn(&mut Peer), &'static str);

#[test]
fn a_peer_that_breaks_the_rules_loses_its_session_and_nobody_else_anything() {
    let stage = Stage::new();
    let (mut client, region, module) = witness(&stage);
    let cases: &[BrokenRule] = &[
        (|peer| peer.hub.send(peer.id, b"hello").expect("sent"), "version 104"),
        (|peer| peer.hub.send(peer.id, b"").expect("sent"), "0 bytes"),
        (
            |peer| {
                let version = PROTOCOL.encode(&())[0];
                peer.hub.send(peer.id, &[version, 0xff, 0xff, 0xff]).expect("sent");
            },
            "no message",
        ),
        (|peer| peer.hub.send_immediate(peer.id, 7).expect("sent"), "immediate data"),
        (|peer| peer.hub.send(peer.id, &vec![1; 70_000]).expect("sent"), ""),
        (|peer| peer.say(&execute("get", 0, ResultPlace::Inline)), "not said who it is"),
        (|peer| peer.say(&ActiveRequest::Stats { number: 1 }), "not said who it is"),
        (|peer| peer.say(&ActiveRequest::Note { bytes: b"listen" }), "no region here listens"),
        (
            |peer| {
                for number in 0..2 {
                    peer.say(&ActiveRequest::Hello { client: ActiveClientId([number; 16]) });
                }
            },
            "twice",
        ),
    ];
    for (act, why) in cases {
        let mut peer = Peer::new(&stage);
        act(&mut peer);
        let end = peer.end(&stage);
        assert!(end.contains(why), "{end}, not {why}");
        is_well(&mut client, &region, module);
    }
}

#[test]
fn requests_that_cannot_be_are_refused_and_cost_nothing() {
    let stage = Stage::new();
    let (mut client, region, module) = witness(&stage);
    let long = "x".repeat(300);
    let requests = [
        (execute("get", 0, ResultPlace::Inline), "no region is attached"),
        (execute("get", u32::MAX, ResultPlace::Inline), "no region is attached"),
        (ActiveRequest::Attach { number: 1, handle: 0, region: "none", epoch: 0 }, "no region"),
        (ActiveRequest::Attach { number: 1, handle: 64, region: "kv", epoch: 0 }, "no region"),
        (ActiveRequest::Flush { number: 1, handle: 0 }, "no region is attached"),
        (ActiveRequest::Drop { number: 1, module: [1; 32] }, "no module"),
        (ActiveRequest::Kill { number: 1, target: KillTarget::Execution(1) }, "no such execution"),
        (ActiveRequest::Kill { number: 1, target: KillTarget::Request(1) }, "no such execution"),
        (load(&long, b"\0asm"), "a name of 255"),
        (load("short", b"\0asm"), "WebAssembly"),
        (load("none", b""), "WebAssembly"),
    ];
    for (request, why) in requests {
        let mut peer = Peer::known(&stage);
        peer.say(&request);
        let found = peer.refusal();
        assert!(found.contains(why), "{found}, not {why}");
    }
    is_well(&mut client, &region, module);
}

fn load<'a>(name: &'a str, bytes: &'a [u8]) -> ActiveRequest<'a> {
    ActiveRequest::Load { number: 1, name, code: ModuleBytes::Inline(bytes) }
}

/// Else one identity could have all that it ever asks for in memory at once.
#[test]
fn modules_in_a_peer_s_memory_count_from_the_moment_when_they_are_read() {
    const LOADS: u64 = 100;
    let stage = Stage::new();
    let (mut client, region, module) = witness(&stage);
    let mut peer = Peer::known(&stage);
    let bytes = basics(7);
    let memory = SharedRegion::zeroed(bytes.len()).expect("memory");
    memory.copy_in(0, &bytes).expect("inside");
    let memory = memory.slice(0..bytes.len()).expect("inside");
    let exposed = peer.hub.expose(peer.id, memory, Access::REMOTE_READ).expect("exposed");
    let mut batch = Vec::new();
    for number in 0..LOADS {
        let code = ModuleBytes::Memory(exposed);
        PROTOCOL.append(&ActiveRequest::Load { number, name: "many", code }, &mut batch);
    }
    peer.hub.send(peer.id, &batch).expect("sent");
    let answered = |report: &Value| {
        let count = |name: &str| report[name].as_u64().unwrap_or(0);
        (count("loads"), count("loads_refused"))
    };
    let before = answered(&stage.report()).0;
    peer.until("all are answered", |_| {
        let (loads, refused) = answered(&stage.report());
        loads - before + refused == LOADS
    });
    let report = stage.report();
    assert!(answered(&report).1 > 0, "{report}");
    let reasons: Vec<_> = peer.heard.iter().flat_map(|batch| reasons(batch)).collect();
    assert!(reasons.iter().any(|why| why.contains("wait to be loaded")), "{reasons:?}");
    is_well(&mut client, &region, module);
}

/// Memory that a peer says it has exposed.
fn lie(len: u64) -> Exposed {
    // What another hub's peer was given means nothing here.
    let context = outboard_verbs::Context::open().expect("a context");
    let pd = context.alloc_pd();
    let memory = SharedRegion::zeroed(1 << 20).expect("memory");
    let mr = pd.register(memory, Access::REMOTE_WRITE).expect("registered");
    Exposed::of(&mr).part(0, len).expect("inside")
}

#[test]
fn memory_that_a_peer_does_not_have_ends_its_own_session() {
    let stage = Stage::new();
    let (mut client, region, module) = witness(&stage);
    let mut peer = Peer::known(&stage);
    let code = ModuleBytes::Memory(lie(1 << 20));
    peer.say(&ActiveRequest::Load { number: 1, name: "lie", code });
    peer.until("the end", |peer| peer.is_over);
    is_well(&mut client, &region, module);
    let mut peer = Peer::ready(&stage, "empty");
    peer.say(&execute("count", 0, ResultPlace::Memory(lie(64))));
    peer.until("the end", |peer| peer.is_over);
    is_well(&mut client, &region, module);
    stage.until("only the witness is left", |report| report["sessions_now"] == 1);
}

#[test]
fn a_client_that_comes_again_replaces_itself_and_no_other_identity() {
    let stage = Stage::new();
    let own = stage.identity();
    let hello = ActiveRequest::Hello { client: ActiveClientId([1; 16]) };
    let [mut older, mut first] = [(); 2].map(|()| Peer::of(&stage, &own));
    older.say(&hello);
    older.until("welcome", |peer| !peer.heard.is_empty());
    first.say(&hello);
    let end = older.end(&stage);
    assert!(end.contains("another connection"), "{end}");
    first.until("welcome", |peer| !peer.heard.is_empty());
    // The same number, another identity.
    let mut second = Peer::known(&stage);
    second.until("welcome", |peer| !peer.heard.is_empty());
    first.say(&ActiveRequest::Stats { number: 1 });
    first.until("counters", |peer| peer.heard.len() >= 2);
    assert!(!first.is_over);
}

/// A peer floods the service with executions that each take a good part of the loop's fuel, and
/// takes no answer. Another's calls are answered all the while, and the flood is cut off.
#[test]
fn a_flood_keeps_nobody_else_waiting() {
    let limits = ActiveLimits::default();
    let stage = Stage::with(vec![RegionSetup::new("kv", 1 << 20)], limits);
    let (mut client, region, module) = witness(&stage);
    let mut peer = Peer::ready(&stage, "work");
    let mut batch = Vec::new();
    while batch.len() < 60_000 {
        PROTOCOL.append(&execute("work", 0, ResultPlace::Inline), &mut batch);
    }
    let deadline = Instant::now() + Duration::from_secs(2);
    let mut worst = Duration::ZERO;
    while Instant::now() < deadline {
        // It posts without ever looking at what comes.
        while !peer.is_over && peer.hub.send(peer.id, &batch).is_ok() && peer.has_room() {}
        let begun = Instant::now();
        is_well(&mut client, &region, module);
        worst = worst.max(begun.elapsed());
    }
    assert!(worst < Duration::from_millis(500), "{worst:?}: {}", stage.report());
    let report = stage.until("only the witness is left", |report| {
        report["sessions_now"] == 1 && report["waiting_now"] == 0
    });
    let end = report["latest_end"].as_str().expect("a reason");
    assert!(end.contains("wait for their turn"), "{end}");
    is_well(&mut client, &region, module);
}

impl Peer {
    /// Whether less than some MiB wait here to be sent.
    fn has_room(&self) -> bool {
        self.hub.counters().waiting_now_bytes < 8 << 20
    }
}

/// Answers that nobody takes are kept up to a bound; then the session ends.
#[test]
fn a_peer_that_takes_no_answers_loses_its_session() {
    let stage = Stage::new();
    let (mut client, region, module) = witness(&stage);
    let mut peer = Peer::ready(&stage, "empty");
    // It takes 200 to fill the hub's limit.
    const ROUNDS_MAX: usize = 400;
    let args = vec![7; 40_000];
    let ActiveRequest::Execute(echo) = execute("echo", 0, ResultPlace::Inline) else { return };
    let echo = PROTOCOL.encode(&ActiveRequest::Execute(ExecuteRequest { args: &args, ..echo }));
    let has_ended = (0..ROUNDS_MAX).any(|_| {
        for _ in 0..8 {
            // No turn: nothing of what comes is taken, and it can send some thousand requests.
            let _full = peer.hub.send(peer.id, &echo);
        }
        is_well(&mut client, &region, module);
        // Else most answers would be short: too much at once.
        let report = stage.until("they are executed", |report| report["executions_now"] == 0);
        report["sessions_now"] == 1
    });
    assert!(has_ended, "it goes on: {}", stage.report());
    let report = stage.report();
    let end = report["latest_end"].as_str().expect("a reason");
    assert!(end.contains("does not accept them"), "{report}");
    assert_eq!(report["hub"]["waiting_now_bytes"], 0, "{report}");
}
