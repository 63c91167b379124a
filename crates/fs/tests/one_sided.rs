//! Mounts and clients that read names and attributes by one-sided Reads see what others see, also
//! while these change it, and while the service is killed.
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
    FsCaller, FsClient, FsClientOptions, FsError, FsVariant, ListedName, NewInode,
};
use outboard_fs::protocol::{EXCHANGE, FsInode};
use served::{MountProcess, ONE_SIDED, ServedNode, started};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
        trial("a_service_shows_nothing_unless_it_is_told_to", a_service_shows_nothing),
        trial("walks_cost_the_round_trips_that_they_need", walks_cost_round_trips),
        trial("walks_say_what_the_module_says", walks_say_what_the_module_says),
        trial("a_listing_is_of_one_moment", a_listing_is_of_one_moment),
        trial("a_name_that_is_always_there_is_always_found", a_name_is_always_found),
    ];
    if OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok() {
        trials.extend([
            trial("both_kinds_of_mounts_are_one_tree", both_kinds_of_mounts_are_one_tree),
            trial("names_that_are_renamed_are_whole", names_that_are_renamed_are_whole),
            trial("a_mount_outlives_its_service", a_mount_outlives_its_service),
        ]);
    } else {
        eprintln!("/dev/fuse cannot be used here: nothing is mounted");
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

const SHOWN: &str = "one_sided = true\nroot_squash = false\n";

fn reader(node: &ServedNode) -> Arc<FsClient> {
    let options = FsClientOptions { variant: FsVariant::OneSided, ..FsClientOptions::default() };
    node.client_with(options).expect("connected")
}

fn a_service_shows_nothing() {
    let node = ServedNode::start();
    let options = FsClientOptions { variant: FsVariant::OneSided, ..FsClientOptions::default() };
    let refused = node.client_with(options).expect_err("it is not shown");
    assert!(matches!(refused, FsError::NotShown), "{refused}");
    assert!(refused.to_string().contains("--one-sided"), "{refused}");
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

fn made(client: &FsClient, dir: FsInode, name: &str, new: &NewInode<'_>) -> FsInode {
    client.make(&CALLER, dir, name.as_bytes(), new).expect("made").made.inode
}

const FILE: NewInode<'_> = NewInode { mode: 0o100_644, rdev: 0, target: b"" };
const DIRECTORY: NewInode<'_> = NewInode { mode: 0o040_755, rdev: 0, target: b"" };
const LINK: NewInode<'_> = NewInode { mode: 0o120_777, rdev: 0, target: b"somewhere/else" };

fn trips(client: &FsClient) -> u64 {
    client.round_trips().get("one_sided").copied().unwrap_or_default()
}

fn executions(client: &FsClient) -> u64 {
    client.round_trips().values().sum::<u64>() - trips(client)
}

/// First the round trips of what was never read, then those of what was.
fn walks_cost_round_trips() {
    let node = ServedNode::start_with(SHOWN);
    let (writer, reader) = (node.client(), reader(&node));
    let root = writer.root();
    let long = "a name of more than ten bytes";
    let file = made(&writer, root, "short", &FILE);
    made(&writer, root, long, &FILE);
    let link = made(&writer, root, "link", &LINK);
    writer.set_xattr(&CALLER, file, (b"user.a", b"value"), 0).expect("set");
    // The headers, which are kept.
    reader.get(&CALLER, root).expect("there");
    let cost = |about: &str, [cold, warm]: [u64; 2], ask: &dyn Fn()| {
        for (expected, how) in [(cold, "cold"), (warm, "warm")] {
            let before = (trips(&reader), executions(&reader));
            ask();
            let cost = (trips(&reader) - before.0, executions(&reader) - before.1);
            assert_eq!(cost, (expected, 0), "{about}, {how}");
        }
    };
    cost("a short name", [2, 1], &|| assert!(reader.find(&CALLER, root, b"short").is_ok()));
    cost("a long name", [3, 1], &|| {
        assert!(reader.find(&CALLER, root, long.as_bytes()).is_ok());
    });
    cost("no name", [1, 1], &|| assert!(reader.find(&CALLER, root, b"none").is_err()));
    cost("attributes", [1, 1], &|| assert!(reader.get(&CALLER, file).is_ok()));
    cost("a target", [2, 1], &|| drop(reader.target(&CALLER, link).expect("there")));
    cost("a value", [3, 1], &|| drop(reader.xattr(&CALLER, file, b"user.a").expect("there")));
    cost("a directory", [4, 1], &|| drop(reader.list(&CALLER, root, 0).expect("there")));
}

fn all_names(client: &FsClient, dir: FsInode) -> Vec<ListedName> {
    let mut all: Vec<ListedName> = Vec::new();
    loop {
        let at = all.last().map_or(0, |name| name.head.next);
        let some = client.list(&CALLER, dir, at).expect("a directory");
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

/// Random changes, by many names so that the table grows while it is read.
fn walks_say_what_the_module_says() {
    let node = ServedNode::start_with(SHOWN);
    let (writer, reader) = (node.client(), reader(&node));
    let mut random = Random(11);
    let dirs: Vec<FsInode> =
        (0..3).map(|at| made(&writer, writer.root(), &format!("d{at}"), &DIRECTORY)).collect();
    let name = |random: &mut Random| {
        let number = random.below(300);
        format!("{number}-{}", "x".repeat(number * 7 % 230))
    };
    for step in 0..3000 {
        let (dir, other) = (dirs[random.below(3)], dirs[random.below(3)]);
        let (one, two) = (name(&mut random), name(&mut random));
        let kind = [&FILE, &FILE, &DIRECTORY, &LINK][random.below(4)];
        // What cannot be done changes nothing.
        match random.below(6) {
            0..=2 => drop(writer.make(&CALLER, dir, one.as_bytes(), kind)),
            3 => drop(writer.unlink(&CALLER, dir, one.as_bytes())),
            4 => drop(writer.rmdir(&CALLER, dir, one.as_bytes())),
            _ => drop(writer.rename(&CALLER, (dir, one.as_bytes()), (other, two.as_bytes()), 0)),
        }
        for name in [&one, &two] {
            let asked = |client: &FsClient| client.walk(&CALLER, dir, &[name.as_bytes()]);
            let (said, read) = (asked(&writer).expect("a word"), asked(&reader).expect("a word"));
            assert_eq!(said, read, "{name}, step {step}");
            if let (Some(answer), 0) = (said.0.first(), said.1) {
                let value = vec![b'v'; random.below(500)];
                let key = format!("user.{}", random.below(3));
                drop(writer.set_xattr(&CALLER, answer.inode, (key.as_bytes(), &value), 0));
                is_told_alike(&writer, &reader, answer.inode);
            }
        }
        if step % 100 == 0 {
            for dir in &dirs {
                assert_eq!(all_names(&writer, *dir), all_names(&reader, *dir), "step {step}");
            }
        }
    }
    let (read, asked) = (trips(&reader), reader.round_trips());
    assert!(read > 5000, "{asked:?}");
    let names: u64 = ["walk", "get", "list"].iter().filter_map(|entry| asked.get(entry)).sum();
    assert!(names < read / 20, "the module is asked seldom: {asked:?}");
}

fn is_told_alike(writer: &FsClient, reader: &FsClient, inode: FsInode) {
    let told = |client: &FsClient| {
        let errno = |error: FsError| error.errno();
        let record = client.get(&CALLER, inode).map_err(errno);
        let target = client.target(&CALLER, inode).map_err(errno);
        let names = client.xattr_names(&CALLER, inode).map_err(errno);
        let value = client.xattr(&CALLER, inode, b"user.1").map_err(errno);
        (record, target, names, value)
    };
    assert_eq!(told(writer), told(reader));
}

/// A name that others replace all the time is there all the time, and what is told of it belongs
/// together: the rights of each file are the number of its target's bytes.
fn a_name_is_always_found() {
    let node = ServedNode::start_with(SHOWN);
    let (writer, reader) = (node.client(), reader(&node));
    let root = writer.root();
    let names = [&b"always"[..], b"a name that is in no cell, always"];
    let target = |number: usize| vec![b't'; 1 + number % 500];
    let make = |number: usize| {
        let target = target(number);
        let new = NewInode { mode: libc::S_IFLNK | 0o777, rdev: 0, target: &target };
        made(&writer, root, "other", &new)
    };
    for name in names {
        make(1);
        writer.rename(&CALLER, (root, b"other"), (root, name), 0).expect("renamed");
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            let mut number = 0;
            while begun.elapsed() < Duration::from_secs(8) {
                number += 1;
                make(number);
                let name = names[number % 2];
                writer.rename(&CALLER, (root, b"other"), (root, name), 0).expect("renamed");
            }
            is_over.store(true, Ordering::Release);
        });
        let mut looks = 0;
        while !is_over.load(Ordering::Acquire) {
            looks += 1;
            let name = names[looks % 2];
            let found = reader.find(&CALLER, root, name).expect("it is always there");
            // It may be gone by now: then its number is another inode's, or nobody's.
            if let Ok(target) = reader.target(&CALLER, found.inode) {
                assert_eq!(target.len() as u64, found.record.size, "{looks}");
            }
            let listed = all_names(&reader, root);
            for name in names {
                let count = listed.iter().filter(|listed| listed.name == name).count();
                assert_eq!(count, 1, "{name:?} is listed once");
            }
        }
        let asked = reader.round_trips();
        println!("{looks} looks: {asked:?}");
        assert!(trips(&reader) > 100, "{asked:?}");
    });
}

/// Two names change places all the time, with others between so that they are read one after the
/// other: a listing has either both as they were, or both as they are.
fn a_listing_is_of_one_moment() {
    let node = ServedNode::start_with(SHOWN);
    let (writer, reader) = (node.client(), reader(&node));
    let root = writer.root();
    made(&writer, root, "first", &FILE);
    for number in 0..10 {
        made(&writer, root, &format!("{number}-{}", "x".repeat(240)), &FILE);
    }
    made(&writer, root, "last", &FILE);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(8) {
                let both = ((root, &b"first"[..]), (root, &b"last"[..]));
                writer.rename(&CALLER, both.0, both.1, EXCHANGE).expect("exchanged");
            }
            is_over.store(true, Ordering::Release);
        });
        while !is_over.load(Ordering::Acquire) {
            let listed = reader.list(&CALLER, root, 0).expect("a directory");
            let inode = |name: &[u8]| {
                let found = listed.iter().find(|listed| listed.name == name);
                found.expect("it is always there").head.inode
            };
            assert_ne!(inode(b"first"), inode(b"last"), "they have changed places");
        }
    });
    assert!(trips(&reader) > 100, "{:?}", reader.round_trips());
}

fn both_kinds_of_mounts_are_one_tree() {
    let node = ServedNode::start_with(SHOWN);
    let mounts = ["", ONE_SIDED, "", ONE_SIDED];
    let mounts: Vec<MountProcess> = mounts
        .iter()
        .enumerate()
        .map(|(at, options)| MountProcess::of(&node, &format!("m{at}"), options))
        .collect();
    let mut random = Random(5);
    let mut model = Model::default();
    for dir in ["d", "e"] {
        fs::create_dir(mounts[0].path(dir)).expect("made");
    }
    for _ in 0..500 {
        let at = mounts[random.below(4)].path("");
        let text = step(&at, &mut model, &mut random);
        let look = mounts[random.below(4)].path("");
        is_shown(&look, &model, &text);
    }
}

/// As [`a_name_is_always_found`], through the kernel.
fn names_that_are_renamed_are_whole() {
    let node = ServedNode::start_with(SHOWN);
    let ordinary = MountProcess::of(&node, "ordinary", "");
    let one_sided = MountProcess::of(&node, "one-sided", ONE_SIDED);
    let put = |number: usize| {
        let new = ordinary.path("new");
        fs::write(&new, vec![b'c'; number % 400]).expect("written");
        let mode = u32::try_from(number % 400).expect("small");
        fs::set_permissions(&new, PermissionsExt::from_mode(mode)).expect("set");
        fs::rename(&new, ordinary.path("always")).expect("renamed");
    };
    put(1);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            let mut number = 0;
            while begun.elapsed() < Duration::from_secs(6) {
                number += 1;
                put(number);
            }
            is_over.store(true, Ordering::Release);
        });
        let mut looks = 0;
        while !is_over.load(Ordering::Acquire) {
            looks += 1;
            let shown = fs::metadata(one_sided.path("always")).expect("it is always there");
            assert_eq!(u64::from(shown.mode() & 0o7777), shown.len(), "{looks}");
        }
        assert!(looks > 100, "{looks}");
    });
}

fn a_mount_outlives_its_service() {
    let node = ServedNode::start_with(SHOWN);
    let mount = MountProcess::of(&node, "m", ONE_SIDED);
    fs::create_dir(mount.path("d")).expect("made");
    for round in 0..4 {
        for number in 0..50 {
            fs::write(mount.path(format!("d/{round}-{number}")), b"bytes").expect("written");
        }
        node.kill_service();
        for number in 0..50 {
            let shown = fs::metadata(mount.path(format!("d/{round}-{number}")));
            assert_eq!(shown.expect("it is there").len(), 5);
        }
        let count = fs::read_dir(mount.path("d")).expect("a directory").count();
        assert_eq!(count, 50 * (round + 1));
    }
}
