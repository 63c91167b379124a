//! How many times threads are woken for a message between two hubs whose loops sleep in
//! [`Hub::wait`], beside loops that sleep on the hub's descriptor. Alone in its process: the kernel
//! counts for all threads.

#[path = "../src/hub/tests/pair.rs"]
mod pair;

use outboard_cluster::hub::{Admitted, Hub, HubEvent, HubOptions, PeerId};
use pair::{Dialled, PATIENCE, dialled};
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::thread;

/// Messages of each side.
const MESSAGES: u64 = 4000;

/// Answers each message with another until `MESSAGES` have come.
fn converse(hub: &mut Hub, peer: PeerId, sleep: fn(&Hub)) {
    let (mut events, mut seen) = (Vec::new(), 0);
    while seen < MESSAGES {
        hub.turn(&mut events).expect("a turn");
        for event in events.drain(..) {
            assert!(matches!(event, HubEvent::Message { .. }), "{event:?}");
            seen += 1;
            hub.send(peer, b"pong").expect("sent");
        }
        if seen < MESSAGES {
            sleep(hub);
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

/// How often threads sleep during a conversation of two hubs whose loops sleep like this.
fn sleeps_of_hubs_that(sleep: fn(&Hub)) -> u64 {
    let Dialled { mut server, accepted, mut client, peer } = dialled(HubOptions::default());
    let accepted = server.enroll(accepted).expect("a peer");
    let (over, end) = channel::<()>();
    thread::scope(|scope| {
        let before = sleeps();
        scope.spawn(move || {
            converse(&mut server, accepted, sleep);
            // The kernel does not count threads that have ended.
            let _over = end.recv();
        });
        client.send(peer, b"ping").expect("sent");
        converse(&mut client, peer, sleep);
        let slept = sleeps() - before;
        drop(over);
        slept
    })
}

/// A loop that sleeps on the hub's descriptor is woken by the engine's thread, which the message
/// has woken: two threads for each message.
#[test]
fn a_message_wakes_one_thread() {
    let one = sleeps_of_hubs_that(|hub| hub.wait(Some(PATIENCE), &[hub.as_fd()]));
    let two = sleeps_of_hubs_that(|hub| {
        let limit = PATIENCE.try_into().expect("short");
        poll(&mut [PollFd::new(hub, PollFlags::IN)], Some(&limit)).expect("poll");
    });
    println!("{} messages: threads slept {one} times, and {two} times", 2 * MESSAGES);
    assert!(one * 4 < two * 3, "{one} times, and {two} times");
}
