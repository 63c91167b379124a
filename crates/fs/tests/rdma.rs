//! A volatile file system that clients change by one-sided verbs: two at a time, and others that
//! end in the midst of a change, leave structures that are as they should be.
//!
//! Needs FUSE; where there is none the tests of mounts say so and do nothing.

#[path = "support/model.rs"]
mod model;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/served.rs"]
mod served;

use libtest_mimic::{Arguments, Trial};
use model::{Model, Random, is_shown, step};
use outboard_fs::client::{
    ChangeWhat, FsCaller, FsClient, FsClientOptions, FsError, FsVariant, NewInode, SyncWhen,
};
use outboard_fs::protocol::volatile::{
    JOURNAL_AT, JOURNAL_HEAD_AT, LOCK_AT, SEQ_AT, SHARED_REGION, WrittenRun, journal_of,
};
use outboard_fs::protocol::{FsInode, REGION};
use outboard_testkit::PATIENCE;
use rustix::process::Signal;
use served::{MountProcess, RDMA, ServedNode, started};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    if let Some(over) = started() {
        return over;
    }
    let trial = |name: &str, run: fn()| {
        let run = move || {
            run();
            Ok(())
        };
        Trial::test(name, run)
    };
    let mut trials = vec![
        trial("each_kind_of_service_refuses_the_other_kind", each_kind_refuses_the_other),
        trial("operations_cost_round_trips", operations_cost_round_trips),
        trial("two_clients_change_one_tree", two_clients_change_one_tree),
        trial("what_a_client_has_begun_others_finish", what_was_begun_is_finished),
        trial("a_tree_outlives_its_service", a_tree_outlives_its_service),
    ];
    if OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok() {
        trials.extend([
            trial("two_mounts_are_one_tree", two_mounts_are_one_tree),
            trial("a_client_that_is_killed_leaves_a_whole_tree", killed_clients_leave_a_whole_tree),
        ]);
    } else {
        eprintln!("/dev/fuse cannot be used here: nothing is mounted");
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

const CALLER: FsCaller = FsCaller {
    who: outboard_fs::protocol::FsWho {
        uid: 0,
        gid: 0,
        groups_len: 0,
        tenant: 0,
        groups: [0; outboard_fs::protocol::GROUPS_MAX],
        grant: outboard_fs::protocol::FsGrant { proof: [0; 2], rights: 0, zero: 0 },
    },
    thread: 0,
};
const FILE: NewInode<'_> = NewInode { mode: 0o100_644, rdev: 0, target: b"" };
const DIRECTORY: NewInode<'_> = NewInode { mode: 0o040_755, rdev: 0, target: b"" };

fn client(node: &ServedNode, variant: FsVariant) -> Result<Arc<FsClient>, FsError> {
    node.client_with(FsClientOptions { variant, ..FsClientOptions::default() })
}

fn rdma(node: &ServedNode) -> Arc<FsClient> {
    client(node, FsVariant::Rdma).expect("connected")
}

fn is_sound(client: &FsClient) {
    let report = client.check_volatile().expect("looked at");
    assert_eq!(report.damage_count, 0, "{:?}", report.damage);
}

fn each_kind_refuses_the_other() {
    let (durable, volatile) = (ServedNode::start(), ServedNode::volatile());
    let refused = client(&durable, FsVariant::Rdma).expect_err("it is not volatile");
    assert!(matches!(refused, FsError::NotVolatile), "{refused}");
    for variant in [FsVariant::Active, FsVariant::OneSided] {
        let refused = client(&volatile, variant).expect_err("it is volatile");
        assert!(refused.to_string().contains("--variant rdma"), "{refused}");
    }
    let client = rdma(&volatile);
    is_sound(&client);
    // What needs a service is refused, and not done by halves.
    let removed = client.remove_all(
        &CALLER,
        &[outboard_fs::client::RemovedName {
            dir: client.root(),
            name: b"none".to_vec(),
            is_directory: false,
        }],
    );
    assert_eq!(removed.expect_err("no service").errno(), libc::EOPNOTSUPP);
}

fn trips(client: &FsClient) -> u64 {
    client.round_trips().values().sum()
}

fn operations_cost_round_trips() {
    let node = ServedNode::volatile();
    let client = rdma(&node);
    let root = client.root();
    let cost = |about: &str, work: &mut dyn FnMut(usize)| {
        let costs: Vec<u64> = (0..4)
            .map(|number| {
                let before = trips(&client);
                let begun = Instant::now();
                work(number);
                println!("{about}: {:?}", begun.elapsed());
                trips(&client) - before
            })
            .collect();
        println!("{about}: {costs:?}");
        costs[3]
    };
    let name = |number: usize| format!("f{number}").into_bytes();
    let make = cost("create", &mut |number| {
        client.make(&CALLER, root, &name(number), &FILE).expect("made");
    });
    let found: Vec<FsInode> = (0..4)
        .map(|number| client.find(&CALLER, root, &name(number)).expect("there").inode)
        .collect();
    let write = cost("write", &mut |number| {
        let what = ChangeWhat::Write(0, &[7; 4096]);
        client.change(&CALLER, found[number], what, SyncWhen::Later).expect("written");
    });
    let read = cost("read", &mut |number| {
        let read = client.read(&CALLER, found[number], 0, 4096).expect("read");
        assert_eq!(read.bytes, [7; 4096]);
    });
    let find = cost("find", &mut |number| {
        client.find(&CALLER, root, &name(number)).expect("there");
    });
    let unlink = cost("unlink", &mut |number| {
        client.unlink(&CALLER, root, &name(number)).expect("removed");
    });
    // Taking the lock, reading, the journal, the change, giving the lock back.
    for (cost, most) in [(make, 9), (write, 9), (read, 7), (find, 1), (unlink, 12)] {
        assert!((1..=most).contains(&cost), "{cost} of {most}");
    }
    is_sound(&client);
}

/// Operations that succeed, of each of two clients, at least.
const OPERATIONS: u64 = 100;
/// How long they go on, at least.
const WHILE: Duration = Duration::from_secs(20);

/// Random operations of one client, on names that the other one changes, too, for a while and until
/// both have done enough.
fn change_at_random(client: &Arc<FsClient>, dirs: &[FsInode], all: &[AtomicU64; 2], own: usize) {
    let mut random = Random(own as u64 + 3);
    let begun = Instant::now();
    let is_enough = || all.iter().all(|done| done.load(Ordering::Relaxed) >= OPERATIONS);
    while begun.elapsed() < WHILE || !is_enough() {
        assert!(begun.elapsed() < PATIENCE, "{all:?} operations");
        let (dir, other) = (dirs[random.below(dirs.len())], dirs[random.below(dirs.len())]);
        let name = |random: &mut Random| {
            let number = random.below(60);
            format!("{number}{}", "n".repeat(number * 4))
        };
        let (one, two) = (name(&mut random), name(&mut random));
        let (one, two) = (one.as_bytes(), two.as_bytes());
        // What others have done meanwhile makes many of these fail.
        let result = match random.below(8) {
            0 | 1 => client.make(&CALLER, dir, one, &FILE).map(drop),
            2 => client.make(&CALLER, dir, one, &DIRECTORY).map(drop),
            3 => client.unlink(&CALLER, dir, one).map(drop),
            4 => client.rmdir(&CALLER, dir, one).map(drop),
            5 => client.rename(&CALLER, (dir, one), (other, two), 0).map(drop),
            6 => client.list(&CALLER, dir, 0).map(drop),
            _ => client.find(&CALLER, dir, one).and_then(|found| {
                let bytes = vec![b'x'; random.below(60_000)];
                let what = match random.below(3) {
                    0 => ChangeWhat::Write(random.below(100_000) as u64, &bytes),
                    1 => ChangeWhat::Append(&bytes),
                    _ => ChangeWhat::Resize(random.below(50_000) as u64),
                };
                client.change(&CALLER, found.inode, what, SyncWhen::Later).map(drop)
            }),
        };
        match result {
            Ok(()) => _ = all[own].fetch_add(1, Ordering::Relaxed),
            Err(FsError::Failed { errno, text }) => {
                assert!(errno < 200 && errno != libc::EIO, "{errno} {text}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn two_clients_change_one_tree() {
    let node = ServedNode::volatile();
    let clients = [rdma(&node), rdma(&node)];
    let root = clients[0].root();
    let dirs: Vec<FsInode> = (0..2)
        .map(|at| {
            let made = clients[0].make(&CALLER, root, format!("d{at}").as_bytes(), &DIRECTORY);
            made.expect("made").made.inode
        })
        .collect();
    let all = [AtomicU64::new(0), AtomicU64::new(0)];
    thread::scope(|scope| {
        for (own, client) in clients.iter().enumerate() {
            let (dirs, all) = (&dirs, &all);
            scope.spawn(move || change_at_random(client, dirs, all, own));
        }
    });
    println!("{all:?} operations");
    is_sound(&clients[0]);
    let report = clients[1].check_volatile().expect("looked at");
    assert!(report.inodes > 20 && report.blocks > 20, "{report:?}");
}

/// A client that has the lock and ends: with a change that it has begun to write, and before that.
fn what_was_begun_is_finished() {
    let node = ServedNode::volatile();
    let client = rdma(&node);
    let root = client.root();
    for (round, is_begun) in [(0, true), (1, false), (2, true)] {
        client.make(&CALLER, root, format!("before-{round}").as_bytes(), &FILE).expect("made");
        let (marks, seq) = ends_with_the_lock(&node, is_begun, round);
        let begun = Instant::now();
        client.make(&CALLER, root, format!("after-{round}").as_bytes(), &FILE).expect("made");
        let took = begun.elapsed();
        // That it ends at all says that nobody waits for who has gone.
        assert!(took > Duration::from_secs(3), "{took:?}");
        is_sound(&client);
        let mut plain = node.plain_client();
        let metadata = plain.attach(REGION).expect("there");
        let shared = plain.attach(SHARED_REGION).expect("there");
        for (at, bytes) in marks {
            let found = metadata.read(&mut plain, at, 8).expect("read");
            assert_eq!(found == bytes, is_begun, "all of it, or nothing: {at}");
        }
        let word = |bytes: Vec<u8>| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
        let now = word(shared.read(&mut plain, SEQ_AT, 8).expect("read"));
        assert!(now > seq && now.is_multiple_of(2), "{seq} {now}");
    }
}

/// Writes to memory that nobody uses: what, and the number of changes before.
fn ends_with_the_lock(node: &ServedNode, is_begun: bool, round: u8) -> (Vec<WrittenRun>, u64) {
    let mut plain = node.plain_client();
    let metadata = plain.attach(REGION).expect("there");
    let shared = plain.attach(SHARED_REGION).expect("there");
    let end = metadata.len() - 8 * u64::from(round);
    let runs = vec![(end - 8, vec![0xa1; 8]), (end - 4096, vec![0xb2; 8])];
    assert_eq!(shared.compare_swap(&mut plain, LOCK_AT, 0, 4711).expect("swapped"), 0);
    let seq = shared.read(&mut plain, SEQ_AT, 8).expect("read");
    let seq = u64::from_ne_bytes(seq.try_into().expect("8 bytes"));
    let (journal, head) = journal_of(&runs);
    if is_begun {
        shared.write(&mut plain, JOURNAL_AT, &journal).expect("written");
        shared.write(&mut plain, JOURNAL_HEAD_AT, &head).expect("written");
        shared.compare_swap(&mut plain, SEQ_AT, seq, seq + 1).expect("swapped");
        metadata.write(&mut plain, runs[0].0, &runs[0].1).expect("written");
    } else {
        shared.write(&mut plain, JOURNAL_AT, &journal[..20]).expect("written");
    }
    // A Write is there when a later Read is answered.
    metadata.read(&mut plain, 0, 8).expect("read");
    (runs, seq)
}

fn a_tree_outlives_its_service() {
    let node = ServedNode::volatile();
    let client = rdma(&node);
    let root = client.root();
    for round in 0..3 {
        for number in 0..20 {
            let name = format!("{round}-{number}");
            client.make(&CALLER, root, name.as_bytes(), &FILE).expect("made");
        }
        node.kill_service();
        // What was under way then may have been done, or not.
        let begun = Instant::now();
        let again = loop {
            match client.make(&CALLER, root, format!("after-{round}").as_bytes(), &FILE) {
                Err(error) if begun.elapsed() < PATIENCE => drop(error),
                made => break made.map(drop).map_err(|error| error.errno()),
            }
            if client.find(&CALLER, root, format!("after-{round}").as_bytes()).is_ok() {
                break Ok(());
            }
        };
        assert_eq!(again, Ok(()));
        for number in 0..20 {
            client.find(&CALLER, root, format!("{round}-{number}").as_bytes()).expect("there");
        }
    }
    is_sound(&client);
}

fn two_mounts_are_one_tree() {
    let node = ServedNode::volatile();
    let mounts = ["a", "b"].map(|name| MountProcess::of(&node, name, RDMA));
    let (mut random, mut model) = (Random(9), Model::default());
    for dir in ["d", "e"] {
        fs::create_dir(mounts[0].path(dir)).expect("made");
    }
    for _ in 0..300 {
        let at = mounts[random.below(2)].path("");
        let text = step(&at, &mut model, &mut random);
        let look = mounts[random.below(2)].path("");
        is_shown(&look, &model, &text);
    }
    is_sound(&rdma(&node));
}

/// A mount is killed while it changes things, whatever it holds then.
fn killed_clients_leave_a_whole_tree() {
    let node = ServedNode::volatile();
    let client = rdma(&node);
    let mut random = Random(21);
    for round in 0..6 {
        let mount = MountProcess::of(&node, &format!("m{round}"), RDMA);
        let at = mount.path("");
        let writer = thread::spawn(move || {
            for number in 0.. {
                let name = at.join(format!("{round}-{}{}", number % 40, "k".repeat(number % 90)));
                let written = fs::File::create(&name)
                    .and_then(|mut file| file.write_all(&vec![b'k'; number * 977 % 20_000]));
                let done = written.and_then(|()| match number % 3 {
                    0 => fs::remove_file(&name),
                    _ => Ok(()),
                });
                if done.is_err() {
                    return number;
                }
            }
            0
        });
        thread::sleep(Duration::from_millis(700 + random.below(400) as u64));
        mount.signal(Signal::KILL);
        assert!(writer.join().expect("no failure") > 3);
        let name = format!("after-{round}");
        client.make(&CALLER, client.root(), name.as_bytes(), &FILE).expect("made");
        is_sound(&client);
    }
}
