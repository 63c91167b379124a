//! How many times threads are woken for a message between two hubs, whose loops sleep in
//! [`Hub::wait`]. Alone in its process: the kernel counts for all threads.

#[path = "../src/hub/tests/pair.rs"]
mod pair;

use outboard_cluster::hub::{Admitted, Hub, HubEvent, HubOptions, PeerId};
use pair::{Dialled, PATIENCE, dialled};
use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::thread;

/// Messages of each side between two looks at the count.
const ROUND: u64 = 200;
/// Threads sleep for reasons of their own, and more often on a busy machine, but not in each round.
const ROUNDS: u64 = 20;

/// Answers each message with another until this many have come; tells how many have.
fn converse(hub: &mut Hub, peer: PeerId, count: u64, mut told: impl FnMut(u64)) {
    let (mut events, mut seen) = (Vec::new(), 0);
    while seen < count {
        hub.turn(&mut events).expect("a turn");
        for event in events.drain(..) {
            assert!(matches!(event, HubEvent::Message { .. }), "{event:?}");
            seen += 1;
            told(seen);
            hub.send(peer, b"pong").expect("sent");
        }
        if seen < count {
            hub.wait(Some(PATIENCE), &[hub.as_fd()]);
        }
    }
}

/// How often this process's threads have gone to sleep.
fn sleeps() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("tasks").flatten();
    let statuses =
        tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let counts = statuses.filter_map(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<u64>().ok())
    });
    counts.sum()
}

#[test]
fn a_message_wakes_one_thread() {
    let Dialled { mut server, accepted, mut client, peer } = dialled(HubOptions::default());
    let accepted = server.enroll(accepted).expect("a peer");
    let (over, end) = channel::<()>();
    let mut counts = Vec::new();
    thread::scope(|scope| {
        scope.spawn(move || {
            converse(&mut server, accepted, ROUND * ROUNDS, |_| {});
            // Threads that have ended are not counted any more.
            let _over = end.recv();
        });
        client.send(peer, b"ping").expect("sent");
        converse(&mut client, peer, ROUND * ROUNDS, |seen| {
            if seen % ROUND == 0 {
                counts.push(sleeps());
            }
        });
        drop(over);
    });
    let woken: Vec<u64> = counts.windows(2).map(|two| two[1].saturating_sub(two[0])).collect();
    println!("{} messages woke threads so many times: {woken:?}", 2 * ROUND);
    let least = woken.iter().min().expect("rounds");
    assert!(*least < 2 * ROUND * 5 / 4, "{least} for {} messages", 2 * ROUND);
}
