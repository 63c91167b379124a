//! The service in its real place: a node's process, started, killed and ended as an operator or a
//! fault may.

#[path = "support/modules.rs"]
#[expect(dead_code, reason = "another test uses the rest")]
mod modules;
#[path = "support/node.rs"]
mod node;

use libtest_mimic::{Arguments, Trial};
use modules::{basics, word};
use node::Node;
use outboard_active::{ActiveCall, ActiveClient, ModuleHash, RemoteRegion};
use outboard_testkit::{PATIENCE, eventually};
use std::collections::BTreeSet;
use std::fs;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

fn main() -> ExitCode {
    if let Some(over) = node::started() {
        return over;
    }
    let trial = |name: &str, run: fn()| {
        let run = move || {
            run();
            Ok(())
        };
        Trial::test(name, run)
    };
    let trials = vec![
        trial("calls_are_executed_once_across_kills", calls_are_executed_once_across_kills),
        trial("a_node_that_ends_keeps_its_file", a_node_that_ends_keeps_its_file),
        trial("a_revoked_identity_is_shut_out", a_revoked_identity_is_shut_out),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn ready(client: &mut ActiveClient) -> (RemoteRegion, ModuleHash) {
    let region = client.attach("kv").expect("attached");
    let module = client.load("basics", &basics(0)).expect("loaded").0;
    (region, module)
}

/// Short and long calls are pending whenever the service is killed; each is executed once.
fn calls_are_executed_once_across_kills() {
    const CALLS: usize = 4000;
    const KILLS: usize = 4;
    let directory = tempfile::tempdir().expect("a directory");
    // Long ones have a region of their own: others would always commit first.
    let table = "[active]\nexecutions = 1\ntime_ms = 20000\n\
                 [active.regions.kv]\nsize = \"1MiB\"\n[active.regions.long]\nsize = \"1MiB\"\n";
    let node = Node::start(directory, table);
    let mut client = node.client(&node.identity());
    let (region, module) = ready(&mut client);
    let count = ActiveCall::new(&region, module, "count", b"");
    let other = client.attach("long").expect("attached");
    let slow = ActiveCall::new(&other, module, "slow_count", b"");
    let (mut short, mut long) = (BTreeSet::new(), BTreeSet::new());
    let (mut begun, mut kills, mut longs) = (0, 0, Vec::new());
    while short.len() + long.len() < CALLS {
        while begun < CALLS && begun < short.len() + long.len() + 100 {
            let is_long = begun % 50 == 7;
            let ticket = client.submit(if is_long { &slow } else { &count }).expect("room");
            longs.extend(is_long.then_some(ticket));
            begun += 1;
        }
        if kills < KILLS && begun > (kills + 1) * CALLS / (KILLS + 2) {
            // On their way, executed, or answered.
            let some = client.poll().expect("this machine");
            assert!(some.is_none_or(|executed| {
                let to = if longs.contains(&executed.ticket) { &mut long } else { &mut short };
                to.insert(word(&executed.outcome))
            }));
            node.kill_service();
            kills += 1;
            continue;
        }
        let executed = client.next(PATIENCE).expect("connected").expect("in time");
        let to = if longs.contains(&executed.ticket) { &mut long } else { &mut short };
        assert!(to.insert(word(&executed.outcome)), "twice: {executed:?}");
    }
    for (values, count) in [(&short, CALLS - longs.len()), (&long, longs.len())] {
        assert!(values.iter().copied().eq(0..count as u64), "some call was not executed");
    }
    assert_eq!(client.connections(), KILLS as u64 + 1);
    for (region, at, values) in [(&region, 0, &short), (&other, 8, &long)] {
        let word = region.read(&mut client, at, 8).expect("read");
        assert_eq!(word, (values.len() as u64).to_le_bytes());
    }
}

/// With executions under way, the node ends; the next one has the region as it was.
fn a_node_that_ends_keeps_its_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("regions").join("kv");
    let table = format!(
        "[active]\ntime_ms = 20000\n[active.regions.kv]\nsize = \"1MiB\"\npersist = {file:?}\n"
    );
    let node = Node::start(directory, &table);
    let mut client = node.client(&node.identity());
    let (region, module) = ready(&mut client);
    let count = ActiveCall::new(&region, module, "count", b"");
    for expected in 0..3 {
        assert_eq!(word(&client.execute(&count).expect("an outcome")), expected);
    }
    client.submit(&ActiveCall::new(&region, module, "spin", b"")).expect("room");
    assert!(client.poll().expect("connected").is_none());
    thread::sleep(Duration::from_millis(50));
    let directory = node.end();
    assert_eq!(fs::read(&file).expect("a file").len(), 1 << 20);
    let node = Node::start(directory, &table);
    let mut client = node.client(&node.identity());
    let (region, module) = ready(&mut client);
    let count = ActiveCall::new(&region, module, "count", b"");
    assert_eq!(word(&client.execute(&count).expect("an outcome")), 3);
    client.flush_region(&region).expect("flushed");
    assert_eq!(fs::read(&file).expect("a file")[0], 4);
}

fn a_revoked_identity_is_shut_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let table = "[active.regions.kv]\nsize = \"1MiB\"\n";
    let node = Node::start(directory, table);
    let [good, bad] = [node.identity(), node.identity()];
    let [mut kept, mut lost] = [node.client(&good), node.client(&bad)];
    let (region, module) = ready(&mut kept);
    let (others, _) = ready(&mut lost);
    let list = node.directory.path().join("revoked");
    fs::write(&list, format!("{}\n", bad.identity.node())).expect("written");
    lost.options_mut().limit = Duration::from_millis(300);
    let get = ActiveCall::new(&others, module, "get", b"");
    eventually("it is shut out", || lost.execute(&get).is_err());
    let get = ActiveCall::new(&region, module, "get", b"");
    assert_eq!(word(&kept.execute(&get).expect("an outcome")), 0);
    assert_eq!(kept.connections(), 1);
}
