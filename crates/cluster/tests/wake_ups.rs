//! How many times threads are woken for a message between two hubs, whose loops sleep in
//! [`Hub::wait`]. Alone in its process: the kernel counts for all threads.

#[path = "../src/hub/tests/pair.rs"]
mod pair;

use outboard_cluster::hub::{Admitted, Hub, HubEvent, HubOptions, PeerId};
use pair::{Dialled, PATIENCE, dialled};
use std::os::fd::AsFd;
use std::thread;

const MESSAGES: u64 = 2000;

/// Answers each message with another until this many have come.
fn converse(hub: &mut Hub, peer: PeerId, count: u64, begins: bool) {
    let (mut events, mut seen) = (Vec::new(), 0);
    if begins {
        hub.send(peer, b"ping").expect("sent");
    }
    while seen < count {
        hub.turn(&mut events).expect("a turn");
        for event in events.drain(..) {
            assert!(matches!(event, HubEvent::Message { .. }), "{event:?}");
            seen += 1;
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
    let (begin, end) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    let woken = thread::scope(|scope| {
        scope.spawn(|| {
            converse(&mut server, accepted, 100, false);
            begin.wait();
            converse(&mut server, accepted, MESSAGES, false);
            // Threads that have ended are not counted any more.
            end.wait();
        });
        converse(&mut client, peer, 100, true);
        begin.wait();
        let before = sleeps();
        converse(&mut client, peer, MESSAGES, true);
        let after = sleeps();
        end.wait();
        after - before
    });
    println!("{} messages woke threads {woken} times", 2 * MESSAGES);
    assert!(woken < 2 * MESSAGES * 5 / 4, "{woken} for {} messages", 2 * MESSAGES);
}
