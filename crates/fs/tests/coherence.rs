//! What one mount changes others see: names and attributes at once, bytes when a file is opened.
//!
//! Needs FUSE; where there is none the tests say so and do nothing.

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/served.rs"]
mod served;

use libtest_mimic::{Arguments, Trial};
use outboard_fs::mount::unmount_at;
use outboard_testkit::{PATIENCE, eventually};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::process::Signal;
use served::{MountProcess, ServedNode, number, started};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a client may keep what it was told.
const LEASE: Duration = Duration::from_secs(5);

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
    let mut trials = Vec::new();
    if OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok() {
        trials.extend([
            trial("four_mounts_are_one_tree", four_mounts_are_one_tree),
            trial("mounts_race_for_names", mounts_race_for_names),
            trial("attributes_are_those_of_now", attributes_are_those_of_now),
            trial(
                "another_name_s_attributes_are_those_of_now",
                another_name_s_attributes_are_those_of_now,
            ),
            trial("a_name_that_the_kernel_has_is_waited_for", a_name_is_waited_for),
            trial("what_is_set_later_is_shown_at_once", what_is_set_later_is_shown_at_once),
            trial("what_is_renamed_is_whole_elsewhere", what_is_renamed_is_whole_elsewhere),
            trial(
                "what_is_set_while_a_file_is_closed_is_kept",
                what_is_set_while_a_file_is_closed_is_kept,
            ),
            trial("what_stays_open_is_seen_soon", what_stays_open_is_seen_soon),
            trial("a_mount_that_is_stopped_is_waited_for", a_mount_that_is_stopped_is_waited_for),
            trial("leases_outlive_the_service", leases_outlive_the_service),
            trial("leases_outlive_the_memory", leases_outlive_the_memory),
            trial("nobody_waits_for_a_mount_that_ended", nobody_waits_for_a_mount_that_ended),
            trial("a_strict_mount_reads_what_was_written", a_strict_mount_reads_what_was_written),
        ]);
    } else {
        eprintln!("/dev/fuse cannot be used here: nothing is mounted");
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap_or_default() % most
    }
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    File(u64),
    Dir,
}

/// The tree as it must be: two directories and what is in them; bytes of files by number.
#[derive(Default)]
struct Model {
    names: BTreeMap<String, Node>,
    bytes: BTreeMap<u64, String>,
    next: u64,
}

impl Model {
    fn is_empty(&self, dir: &str) -> bool {
        !self.names.keys().any(|name| name.starts_with(&format!("{dir}/")))
    }

    /// Does a random thing in one mount; the mount must say of it what the model says.
    fn step(&mut self, at: &Path, random: &mut Random) -> String {
        let name =
            |random: &mut Random| format!("{}/{}", ["d", "e"][random.below(2)], random.below(4));
        let (one, other) = (name(random), name(random));
        let (here, there) = (at.join(&one), at.join(&other));
        let is_there = self.names.get(&one).cloned();
        let (did, done) = match random.below(6) {
            0 => ("creates", self.creates(&one, &here)),
            1 => ("makes", self.makes(&one, &here)),
            2 => ("removes", self.removes(&one, &here)),
            3 => ("renames", self.renames((&one, &here), (&other, &there))),
            4 => ("links", self.links((&one, &here), (&other, &there))),
            _ => ("writes", self.writes(&one, &here)),
        };
        let text = format!("{did} {one} {other}, which is {is_there:?}, in {at:?}");
        done.unwrap_or_else(|why| panic!("{text}: {why}"));
        text
    }

    fn creates(&mut self, name: &str, here: &Path) -> Result<(), String> {
        let created = OpenOptions::new().write(true).create_new(true).open(here);
        let expected =
            if self.names.contains_key(name) { Err(ErrorKind::AlreadyExists) } else { Ok(()) };
        if expected.is_ok() {
            self.next += 1;
            self.names.insert(name.to_owned(), Node::File(self.next));
            self.bytes.insert(self.next, String::new());
        }
        same(created.map(drop), expected)
    }

    fn makes(&mut self, name: &str, here: &Path) -> Result<(), String> {
        let expected = match self.names.contains_key(name) {
            true => Err(ErrorKind::AlreadyExists),
            false => {
                self.names.insert(name.to_owned(), Node::Dir);
                Ok(())
            }
        };
        same(fs::create_dir(here), expected)
    }

    fn removes(&mut self, name: &str, here: &Path) -> Result<(), String> {
        match self.names.remove(name) {
            None => same(fs::remove_file(here), Err(ErrorKind::NotFound)),
            Some(Node::File(_)) => same(fs::remove_file(here), Ok(())),
            Some(Node::Dir) => same(fs::remove_dir(here), Ok(())),
        }
    }

    fn renames(
        &mut self,
        (one, here): (&str, &Path),
        (other, there): (&str, &Path),
    ) -> Result<(), String> {
        let renamed = renameat_with(CWD, here, CWD, there, RenameFlags::NOREPLACE);
        let expected = match (self.names.get(one).cloned(), self.names.contains_key(other)) {
            (None, _) => Err(ErrorKind::NotFound),
            (Some(_), true) => Err(ErrorKind::AlreadyExists),
            (Some(node), false) => {
                self.names.remove(one);
                self.names.insert(other.to_owned(), node);
                Ok(())
            }
        };
        same(renamed.map_err(Into::into), expected)
    }

    fn links(
        &mut self,
        (one, here): (&str, &Path),
        (other, there): (&str, &Path),
    ) -> Result<(), String> {
        let expected = match (self.names.get(one).cloned(), self.names.contains_key(other)) {
            (None, _) => Err(ErrorKind::NotFound),
            (Some(_), true) => Err(ErrorKind::AlreadyExists),
            (Some(Node::Dir), false) => Err(ErrorKind::PermissionDenied),
            (Some(node), false) => {
                self.names.insert(other.to_owned(), node);
                Ok(())
            }
        };
        same(fs::hard_link(here, there), expected)
    }

    fn writes(&mut self, name: &str, here: &Path) -> Result<(), String> {
        let text = format!("{name} {}", self.next);
        let written = OpenOptions::new().write(true).truncate(true).open(here);
        let written = written.and_then(|mut file| file.write_all(text.as_bytes()));
        let expected = match self.names.get(name) {
            None => Err(ErrorKind::NotFound),
            Some(Node::Dir) => Err(ErrorKind::IsADirectory),
            Some(Node::File(number)) => {
                self.bytes.insert(*number, text);
                Ok(())
            }
        };
        same(written, expected)
    }

    /// What a mount shows is what the model says.
    fn is_shown(&self, at: &Path, text: &str) {
        for dir in ["d", "e"] {
            let mut shown: Vec<String> = fs::read_dir(at.join(dir))
                .expect("a directory")
                .map(|entry| entry.expect("a name").file_name().into_string().expect("text"))
                .collect();
            shown.sort();
            let names = self.names.keys().filter_map(|name| name.strip_prefix(&format!("{dir}/")));
            assert_eq!(shown, names.collect::<Vec<_>>(), "after: {text}; in {at:?}");
            for name in (0..4).map(|number| format!("{dir}/{number}")) {
                self.is_as(&at.join(&name), &name, text);
            }
        }
    }

    fn is_as(&self, path: &Path, name: &str, text: &str) {
        let shown = fs::symlink_metadata(path);
        let text = format!("after: {text}; {path:?}");
        match self.names.get(name) {
            None => assert_eq!(
                shown.map(drop).map_err(|error| error.kind()),
                Err(ErrorKind::NotFound),
                "{text}"
            ),
            Some(Node::Dir) => assert!(shown.expect(&text).is_dir(), "{text}"),
            Some(node @ Node::File(number)) => {
                let shown = shown.expect(&text);
                let links = self.names.values().filter(|other| *other == node).count() as u64;
                assert_eq!((shown.nlink(), shown.is_file()), (links, true), "{text}");
                let bytes = fs::read_to_string(path).expect(&text);
                assert_eq!(bytes, self.bytes[number], "{text}");
            }
        }
    }
}

fn same(shown: std::io::Result<()>, expected: Result<(), ErrorKind>) -> Result<(), String> {
    let shown = shown.map_err(|error| error.kind());
    if shown == expected { Ok(()) } else { Err(format!("{shown:?} instead of {expected:?}")) }
}

fn mounts<const COUNT: usize>(node: &ServedNode) -> [MountProcess; COUNT] {
    std::array::from_fn(|at| MountProcess::of(node, &format!("m{at}"), ""))
}

fn four_mounts_are_one_tree() {
    let node = ServedNode::start();
    let mounts: [MountProcess; 4] = mounts(&node);
    let mut random = Random(7);
    let mut model = Model::default();
    for dir in ["d", "e"] {
        fs::create_dir(mounts[0].path(dir)).expect("made");
    }
    let (mut took, steps) = (Vec::new(), 400);
    for _ in 0..steps {
        let at = mounts[random.below(4)].path("");
        let begun = Instant::now();
        let text = model.step(&at, &mut random);
        let look = mounts[random.below(4)].path("");
        model.is_shown(&look, &text);
        took.push(begun.elapsed());
    }
    assert!(model.next > 20, "files were made");
    assert!(model.is_empty("d") || model.is_empty("e") || model.names.len() > 1);
    few_waited(&took);
}

/// That nobody waits for leases to end: hardly any step took as long as one runs, whatever all of
/// them took.
fn few_waited(took: &[Duration]) {
    let waited = took.iter().filter(|took| **took > LEASE * 3 / 4).count();
    assert!(waited <= took.len() / 20, "{waited} of {} waited: {took:?}", took.len());
}

/// Of many that make the same name at once one does it, and nobody waits for a lease to end.
fn mounts_race_for_names() {
    let node = ServedNode::start();
    let mounts: [MountProcess; 2] = mounts(&node);
    let dir = |at: usize| mounts[at % 2].path("d");
    fs::create_dir(dir(0)).expect("made");
    let (rounds, threads) = (60, 4);
    let mut took = Vec::new();
    for round in 0..rounds {
        let begun = Instant::now();
        let name = format!("{}", round % 5);
        let made = thread::scope(|scope| {
            let racers = (0..threads).map(|at| {
                let path = dir(at).join(&name);
                scope.spawn(move || File::create_new(path).is_ok())
            });
            let racers: Vec<_> = racers.collect();
            racers.into_iter().filter_map(|racer| racer.join().ok()).filter(|made| *made).count()
        });
        assert_eq!(made, 1, "round {round}");
        assert!(dir(round).join(&name).exists() && dir(round + 1).join(&name).exists());
        fs::remove_file(dir(round).join(&name)).expect("removed");
        assert!(!dir(round).join(&name).exists() && !dir(round + 1).join(&name).exists());
        took.push(begun.elapsed());
    }
    few_waited(&took);
}

fn attributes_are_those_of_now() {
    let node = ServedNode::start();
    let [one, two]: [MountProcess; 2] = mounts(&node);
    File::create(one.path("a")).expect("made");
    for round in 0..50 {
        let mode = 0o600 + round % 8;
        assert!(two.path("a").exists(), "it is kept there");
        fs::set_permissions(one.path("a"), PermissionsExt::from_mode(mode)).expect("set");
        let shown = fs::metadata(two.path("a")).expect("there").mode();
        assert_eq!(shown & 0o777, mode, "round {round}");
        let text = "x".repeat(round as usize + 1);
        fs::write(one.path("a"), &text).expect("written");
        let file = File::open(two.path("a")).expect("opened");
        let size = file.metadata().expect("open").len();
        assert_eq!(size, text.len() as u64, "round {round}");
        assert_eq!(std::io::read_to_string(file).expect("text"), text);
    }
}

/// An inode's attributes change with any of its names.
fn another_name_s_attributes_are_those_of_now() {
    let node = ServedNode::start();
    let [one, two]: [MountProcess; 2] = mounts(&node);
    fs::create_dir(one.path("d")).expect("made");
    File::create(one.path("a")).expect("made");
    fs::hard_link(one.path("a"), one.path("d/b")).expect("linked");
    for round in 0..20 {
        let before = fs::metadata(two.path("d/b")).expect("there").ctime_nsec();
        let (from, to) = if round % 2 == 0 { ("a", "c") } else { ("c", "a") };
        fs::rename(one.path(from), one.path(to)).expect("renamed");
        let shown = fs::metadata(two.path("d/b")).expect("there").ctime_nsec();
        assert_ne!(shown, before, "round {round}");
    }
}

/// In a directory that nobody else has changed lately the kernel keeps names for moments.
fn a_name_is_waited_for() {
    let node = ServedNode::start();
    let [one, two]: [MountProcess; 2] = mounts(&node);
    for round in 0..20 {
        let dir = format!("d{round}");
        fs::create_dir(one.path(&dir)).expect("made");
        let [a, b] = ["a", "b"].map(|name| format!("{dir}/{name}"));
        fs::write(one.path(&a), "a").expect("written");
        assert!(two.path(&a).exists());
        match round % 2 {
            0 => fs::rename(one.path(&a), one.path(&b)).expect("renamed"),
            _ => fs::remove_file(one.path(&a)).expect("removed"),
        }
        assert!(!two.path(&a).exists(), "round {round}");
        assert_eq!(two.path(&b).exists(), round % 2 == 0, "round {round}");
        fs::rename(one.path(&dir), one.path("moved")).expect("renamed");
        assert!(!two.path(&dir).exists() && two.path("moved").exists());
        fs::remove_dir_all(two.path("moved")).expect("removed");
        assert!(!one.path("moved").exists());
    }
}

/// What a program sets of a file that it writes, it sees, and others when the file is closed.
fn what_is_set_later_is_shown_at_once() {
    let node = ServedNode::of_root();
    let [one, two]: [MountProcess; 2] = mounts(&node);
    let long_ago = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let is_new = |time: std::io::Result<SystemTime>| time.expect("a time") > long_ago + LEASE;
    for round in 0..20_u32 {
        let name = format!("f{round}");
        let mut file = File::create(one.path(&name)).expect("made");
        file.write_all(b"some bytes").expect("written");
        let mode = 0o600 + round % 8;
        file.set_permissions(PermissionsExt::from_mode(mode)).expect("set");
        file.set_modified(long_ago).expect("set");
        if round % 2 == 0 {
            let shown = fs::metadata(one.path(&name)).expect("there");
            assert_eq!((shown.mode() & 0o777, shown.len()), (mode, 10));
            assert_eq!(shown.modified().expect("a time"), long_ago);
        }
        if round % 4 < 2 {
            file.write_all(b", and more").expect("written");
            assert!(is_new(file.metadata().expect("open").modified()), "round {round}");
            file.set_modified(long_ago).expect("set");
        }
        drop(file);
        let shown = fs::metadata(two.path(&name)).expect("there");
        let len = if round % 4 < 2 { 20 } else { 10 };
        assert_eq!((shown.mode() & 0o777, shown.len()), (mode, len), "round {round}");
        assert_eq!(shown.modified().expect("a time"), long_ago);
        fs::write(one.path(&name), "anew").expect("written");
        let opened = File::open(two.path(&name)).expect("opened");
        assert!(is_new(opened.metadata().expect("open").modified()));
    }
}

fn what_stays_open_is_seen_soon() {
    let node = ServedNode::of_root();
    let [one, two]: [MountProcess; 2] = mounts(&node);
    let mut file = File::create(one.path("log")).expect("made");
    file.write_all(b"a line").expect("written");
    file.set_permissions(PermissionsExt::from_mode(0o640)).expect("set");
    let shown = || fs::metadata(two.path("log")).map(|it| (it.len(), it.mode() & 0o777));
    eventually("what is open is shown", || shown().expect("there") == (6, 0o640));
    // It goes on writing, and nobody asks its own mount for anything.
    for round in 1..6 {
        file.write_all(b", another").expect("written");
        let len = 6 + 9 * round;
        eventually(&format!("{len} bytes are shown"), || shown().expect("there").0 == len);
    }
}

/// A file that is still open: its bytes and rights go before its new name.
fn what_is_renamed_is_whole_elsewhere() {
    let node = ServedNode::of_root();
    let [one, two]: [MountProcess; 2] = mounts(&node);
    for round in 0..24_u32 {
        let [old, new] = ["old", "new"].map(|name| format!("{name}{round}"));
        let mut file = File::create(one.path(&old)).expect("made");
        file.write_all(b"some bytes").expect("written");
        let mode = 0o600 + round % 8;
        file.set_permissions(PermissionsExt::from_mode(mode)).expect("set");
        match round % 3 {
            0 => fs::rename(one.path(&old), one.path(&new)).expect("renamed"),
            1 => fs::hard_link(one.path(&old), one.path(&new)).expect("linked"),
            _ => {
                fs::create_dir(one.path(&new)).expect("made");
                let (old, new) = (one.path(&old), one.path(&new));
                renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE).expect("exchanged");
            }
        }
        let shown = fs::metadata(two.path(&new)).expect("there");
        assert_eq!((shown.mode() & 0o777, shown.len()), (mode, 10), "round {round}");
    }
}

/// The kernel tells of a file's end when `close` has returned already; a chmod that comes with it
/// is not lost.
fn what_is_set_while_a_file_is_closed_is_kept() {
    const FILES: u32 = 1000;
    let node = ServedNode::of_root();
    let [one, two]: [MountProcess; 2] = mounts(&node);
    let mode = |number: u32| 0o600 + number % 8;
    for number in 0..FILES {
        let path = one.path(number.to_string());
        fs::write(&path, "bytes").expect("written");
        fs::set_permissions(&path, PermissionsExt::from_mode(mode(number))).expect("set");
    }
    let is_set = |number: u32| {
        let shown = fs::metadata(two.path(number.to_string())).expect("there");
        shown.mode() & 0o777 == mode(number)
    };
    // What is held is sent within half a second.
    let begun = Instant::now();
    while !(0..FILES).all(is_set) && begun.elapsed() < PATIENCE {
        thread::sleep(LEASE / 100);
    }
    let lost: Vec<u32> = (0..FILES).filter(|number| !is_set(*number)).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// That the service tells nobody of a change, and waits for nobody.
fn waits_for_nobody(node: &ServedNode, change: impl FnOnce()) {
    let told = || number(&node.report(), "/backend/recalls");
    assert_eq!(number(&node.report(), "/backend/recalls_now"), 0);
    let before = told();
    change();
    assert_eq!(told(), before, "somebody was waited for");
}

fn a_mount_that_is_stopped_is_waited_for() {
    let node = ServedNode::start();
    let [one, two]: [MountProcess; 2] = mounts(&node);
    fs::write(one.path("a"), "a").expect("written");
    assert!(two.path("a").exists());
    two.signal(Signal::STOP);
    let begun = Instant::now();
    fs::rename(one.path("a"), one.path("b")).expect("renamed");
    let took = begun.elapsed();
    // That this ends at all, where the other is stopped still, is the end of a lease.
    assert!(took > LEASE / 2, "its lease ran still: {took:?}");
    waits_for_nobody(&node, || fs::rename(one.path("b"), one.path("c")).expect("renamed"));
    two.signal(Signal::CONT);
    assert!(!two.path("a").exists() && two.path("c").exists());
}

fn nobody_waits_for_a_mount_that_ended() {
    let node = ServedNode::start();
    let [one, two]: [MountProcess; 2] = mounts(&node);
    fs::write(one.path("a"), "a").expect("written");
    assert!(two.path("a").exists());
    unmount_at(&two.path("")).expect("unmounted");
    // It says so before it ends.
    node.wait_for("/sessions_now", 1);
    waits_for_nobody(&node, || fs::rename(one.path("a"), one.path("b")).expect("renamed"));
}

fn leases_outlive_the_service() {
    let node = ServedNode::start();
    let [one, two]: [MountProcess; 2] = mounts(&node);
    fs::write(one.path("a"), "a").expect("written");
    assert!(two.path("a").exists());
    two.signal(Signal::STOP);
    let begun = Instant::now();
    node.kill_service();
    fs::rename(one.path("a"), one.path("b")).expect("renamed");
    assert!(begun.elapsed() > LEASE / 2, "the other's lease ran still: {:?}", begun.elapsed());
    two.signal(Signal::CONT);
    assert!(!two.path("a").exists() && two.path("b").exists());
}

fn leases_outlive_the_memory() {
    let mut node = ServedNode::start();
    let [one, two]: [MountProcess; 2] = mounts(&node);
    fs::write(one.path("a"), "a").expect("written");
    File::open(one.path("a")).and_then(|file| file.sync_all()).expect("synced");
    assert!(two.path("a").exists());
    two.signal(Signal::STOP);
    let begun = Instant::now();
    node.lose_memory();
    fs::rename(one.path("a"), one.path("b")).expect("renamed");
    assert!(begun.elapsed() > LEASE / 2, "the other's lease ran still: {:?}", begun.elapsed());
    two.signal(Signal::CONT);
    assert!(!two.path("a").exists() && two.path("b").exists());
}

fn a_strict_mount_reads_what_was_written() {
    let node = ServedNode::start();
    let one = MountProcess::of(&node, "one", "");
    let two = MountProcess::of(&node, "two", "cache=strict");
    let mut writer = File::create(one.path("a")).expect("made");
    let reader = File::open(two.path("a")).expect("opened");
    for round in 0..50_u64 {
        let text = round.to_le_bytes();
        writer.write_all(&text).expect("written");
        // This mount gathers writes; once they are synced they are finished.
        writer.sync_data().expect("synced");
        let mut read = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&reader, &mut read, round * 8).expect("there");
        assert_eq!(read, text);
        assert_eq!(reader.metadata().expect("open").len(), (round + 1) * 8);
    }
}
