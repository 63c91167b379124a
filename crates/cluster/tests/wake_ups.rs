//! How many times threads are woken for a message between two hubs, whose loops sleep in
//! [`Hub::wait`]. Alone in its process: the kernel counts for all threads.

use outboard_cluster::hub::{Hub, HubEvent, PeerId};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const MESSAGES: u64 = 2000;

/// Two hubs, each with the other as its peer.
fn connected() -> [(Hub, PeerId); 2] {
    let (mut server, mut client) = (Hub::new().expect("a hub"), Hub::new().expect("a hub"));
    let loopback = "127.0.0.1:0".parse().expect("an address");
    let listener = server.context().listen(loopback, 4).expect("a listener");
    let address = listener.local_addr();
    let admission = client.prepare().expect("an admission");
    let dialling =
        thread::spawn(move || admission.connect(|qp, params, _| qp.connect(address, params)));
    let request = listener.next_request(Some(PATIENCE)).expect("a request");
    let accepted = server.prepare().expect("an admission").connect(|qp, params, channel| {
        request.accept_on(qp, params, channel).map_err(|refused| refused.error)
    });
    let dialled = dialling.join().expect("the client").expect("a connection");
    let dialled = client.enroll(dialled).expect("a peer");
    let accepted = server.enroll(accepted.expect("a connection")).expect("a peer");
    [(server, accepted), (client, dialled)]
}

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
    let [(mut server, accepted), (mut client, dialled)] = connected();
    let (begin, end) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    let woken = thread::scope(|scope| {
        scope.spawn(|| {
            converse(&mut server, accepted, 100, false);
            begin.wait();
            converse(&mut server, accepted, MESSAGES, false);
            // Threads that have ended are not counted any more.
            end.wait();
        });
        converse(&mut client, dialled, 100, true);
        begin.wait();
        let before = sleeps();
        converse(&mut client, dialled, MESSAGES, true);
        let after = sleeps();
        end.wait();
        after - before
    });
    println!("{} messages woke threads {woken} times", 2 * MESSAGES);
    assert!(woken < 2 * MESSAGES * 5 / 4, "{woken} for {} messages", 2 * MESSAGES);
}
