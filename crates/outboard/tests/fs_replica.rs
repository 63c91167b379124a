//! A server and its replica, by the commands that users type: either is killed, stopped and started
//! again at any point, and what was synced is there.

#[expect(dead_code, reason = "other tests use the rest")]
mod home;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "home/served.rs"]
mod served;

use home::Home;
use outboard_testkit::{PATIENCE, eventually};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use served::{Mounted, Over, Served, on_a_line};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a mount keeps names.
const LEASE: Duration = Duration::from_secs(5);

fn replica(home: &Home, store: &str, listen: &str, more: &[&str]) -> Served {
    Served::ready_as(home, &["replica", "--store", store], listen, more).start()
}

fn server(home: &Home, store: &str, listen: &str, more: &[&str]) -> Served {
    Served::ready_as(home, &["serve", "--store", store], listen, more).start()
}

/// A server with the store `a` and its replica with the store `b`.
struct TwoServers {
    first: Served,
    second: Served,
}

impl TwoServers {
    fn start(home: &Home, more: &[&str]) -> Self {
        let second = replica(home, "b", "127.0.0.1:0", &[]);
        let more = [&["--size", "64MiB", "--replica", &second.address][..], more].concat();
        let first = server(home, "a", "127.0.0.1:0", &more);
        Self { first, second }
    }

    fn hosts(&self) -> String {
        format!("{},{}", self.first.address, self.second.address)
    }
}

fn stats(home: &Home, address: &str) -> Option<Value> {
    let output = home.run(&["fs", "stats", "--json", address]);
    serde_json::from_slice(&output.stdout).ok()
}

/// Waits until a server says this of its replica.
fn wait_for(home: &Home, address: &str, state: &str) {
    let begun = Instant::now();
    loop {
        let found = stats(home, address);
        if found.as_ref().is_some_and(|found| found["replica"]["state"] == state) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "not {state}: {found:?}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// What will promote a replica. Files of a mount that are open in a process have to be closed in
/// what it starts, and wait for the server, which is dead then: this is started before.
struct ReadyPromotion(Child);

impl ReadyPromotion {
    fn of(home: &Home, address: &str) -> Self {
        // As often as it takes: its service may just be started again.
        let script = "for _ in $(seq 200); do \"$0\" \"$@\" && exit; sleep 0.2; done; exit 1";
        let outboard = home.command(&["fs", "promote", address, "--json"]);
        Self(on_a_line(&outboard, script).spawn().expect("a shell"))
    }

    fn promote(mut self) -> Value {
        self.0.stdin.take().expect("piped").write_all(b"go\n").expect("told");
        let output = self.0.wait_with_output().expect("it ends");
        assert!(output.status.success(), "it is not promoted");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

fn promote(home: &Home, address: &str) -> Value {
    ReadyPromotion::of(home, address).promote()
}

fn checked(home: &Home, store: &str) {
    let told = home.told(&["fs", "check", "--store", store]);
    assert!(told.ends_with("no damage\n"), "{told}");
}

/// Has a file, or the names of a directory, be on the disk.
fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn signal(process: u32, signal: Signal) {
    let pid = Pid::from_raw(process.cast_signed()).expect("a process");
    kill_process(pid, signal).expect("it is there");
}

#[test]
fn a_mount_goes_on_with_the_promoted_replica() {
    let home = Home::new("fs-replica-goes-on");
    let two = TwoServers::start(&home, &[]);
    let mounted = Mounted::at(&home, &two.hosts(), "mnt", "");
    wait_for(&home, &two.first.address, "in step");
    let promotion = ReadyPromotion::of(&home, &two.second.address);
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    write_synced(&mounted.path("big"), &bytes).expect("synced");
    let mut open = File::create(mounted.path("open")).expect("made");
    open.write_all(b"before ").and_then(|()| open.sync_all()).expect("synced");
    let nameless = File::create(mounted.path("nameless")).expect("made");
    (&nameless).write_all(b"bytes").and_then(|()| nameless.sync_all()).expect("synced");
    fs::remove_file(mounted.path("nameless")).expect("removed");
    sync(&mounted.directory).expect("synced");
    let second = two.second;
    two.first.kill_all();
    let promoted = promotion.promote();
    assert_eq!(promoted["epoch"], 2, "{promoted}");
    assert!(fs::read(mounted.path("big")).expect("it is there") == bytes);
    open.write_all(b"after").and_then(|()| open.sync_all()).expect("it goes on");
    assert_eq!(fs::read_to_string(mounted.path("open")).expect("there"), "before after");
    assert_eq!(nameless.metadata().expect("open").len(), 5, "a file without a name is there");
    fs::create_dir(mounted.path("new")).expect("it is the server");
    assert_eq!(stats(&home, &second.address).expect("it answers")["epoch"], 2);
    drop((open, nameless));
    drop(mounted);
    drop(second);
    checked(&home, "b");
    // The operator's command says that it is a replica, and it is the server still.
    let second = replica(&home, "b", "127.0.0.1:0", &[]);
    let mounted = Mounted::of(&home, &second, "mnt", "");
    assert_eq!(mounted.run("ls").split_whitespace().collect::<Vec<_>>(), ["big", "new", "open"]);
}

#[test]
fn only_a_replica_that_was_whole_is_promoted_and_once() {
    let home = Home::new("fs-replica-promote");
    let second = replica(&home, "b", "127.0.0.1:0", &[]);
    let why = home.complaint(&["fs", "promote", &second.address]);
    assert!(why.contains("never had a whole copy"), "{why}");
    let why = home.complaint(&["fs", "stats", &second.address]);
    assert!(why.contains("is a replica and serves nothing"), "{why}");
    let first = server(&home, "a", "127.0.0.1:0", &["--size", "16MiB"]);
    let _stats = home.told(&["fs", "stats", &first.address]);
    let why = home.complaint(&["fs", "promote", &first.address]);
    assert!(why.contains("serves the file system, with epoch 1"), "{why}");
    let address = first.address.clone();
    drop(first);
    let first = server(&home, "a", &address, &["--replica", &second.address]);
    wait_for(&home, &first.address, "in step");
    // Another server's is refused, whatever key it has.
    let other =
        server(&home, "c", "127.0.0.1:0", &["--size", "16MiB", "--replica", &second.address]);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(stats(&home, &other.address).expect("it serves")["replica"]["state"], "away");
    drop(other);
    let begun = Instant::now();
    wait_for(&home, &first.address, "in step");
    let promoted = promote(&home, &second.address);
    let most = begun.elapsed().as_secs() + 5;
    assert!(promoted["behind_s"].as_u64().is_some_and(|seconds| seconds < most), "{promoted}");
    let begun = Instant::now();
    loop {
        let why = home.complaint(&["fs", "promote", &second.address]);
        if why.contains("serves the file system, with epoch 2") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{why}");
    }
    // The first one learns of it by itself.
    eventually("it serves no more", || home.0.join("a/role").exists());
    let role = fs::read_to_string(home.0.join("a/role")).expect("a role");
    assert_eq!(role.trim(), format!("fenced 2 {}", second.address));
    first.kill_all();
}

#[test]
fn the_first_server_does_not_come_back_as_a_liar() {
    let home = Home::new("fs-replica-fenced");
    let two = TwoServers::start(&home, &[]);
    let mounted = Mounted::at(&home, &two.hosts(), "mnt", "");
    wait_for(&home, &two.first.address, "in step");
    write_synced(&mounted.path("old"), b"old").expect("synced");
    let (TwoServers { first, second }, address) = {
        let address = two.first.address.clone();
        (two, address)
    };
    first.kill_all();
    let _promoted = promote(&home, &second.address);
    write_synced(&mounted.path("new"), b"new").expect("synced");
    // It comes back alone, and knows nothing; the mount knows.
    let first = server(&home, "a", &address, &[]);
    let (to, more) = (second.address.clone(), ["--replica", &first.address]);
    drop(second);
    let listing = mounted.path("");
    let listed = thread::spawn(move || fs::read_dir(listing).map(Iterator::count));
    eventually("it serves no more", || home.0.join("a/role").exists());
    assert!(!listed.is_finished(), "nobody has answered");
    let second = server(&home, "b", &to, &more);
    assert_eq!(listed.join().expect("it ends").expect("listed"), 2, "old and new");
    // Nothing starts it as a server any more.
    first.kill_all();
    let why = home.complaint(&["fs", "serve", "--store", "a", "--listen", "127.0.0.1:0"]);
    assert!(why.contains("this store was replaced: epoch 2 is that of"), "{why}");
    assert!(why.contains("`outboard fs replica --store`"), "{why}");
    // It is a replica of the new one, and can have its place again.
    let first = replica(&home, "a", &address, &[]);
    wait_for(&home, &second.address, "in step");
    write_synced(&mounted.path("both"), b"both").expect("synced");
    second.kill_all();
    assert_eq!(promote(&home, &first.address)["epoch"], 3);
    let mut names = mounted.run("cat new old both");
    names.push_str(&mounted.run("ls | wc -l"));
    assert_eq!(names, "newoldboth3\n");
    drop(mounted);
    drop(first);
    checked(&home, "a");
}

/// Writes files over and over until somebody says that it is enough, and counts the rounds.
fn keep_writing(directory: &Path, is_enough: &AtomicBool, rounds: &AtomicU64) {
    while !is_enough.load(Ordering::Relaxed) {
        let round = rounds.load(Ordering::Relaxed) + 1;
        let path = directory.join(format!("f{}", round % 7));
        let bytes =
            format!("round {round}\n").repeat(usize::try_from(round % 40).expect("few") * 50);
        write_synced(&path, bytes.as_bytes()).expect("the server goes on");
        if round.is_multiple_of(5) {
            fs::rename(&path, directory.join("renamed")).expect("renamed");
        }
        rounds.store(round, Ordering::Relaxed);
    }
}

/// Names that were changed last may not be synced. Others were before the server was started anew,
/// which is said once.
fn sync_names(mounted: &Mounted) {
    let directory = File::open(&mounted.directory).expect("opened");
    let _said = directory.sync_all();
    directory.sync_all().expect("synced");
}

#[test]
fn a_replica_that_is_killed_catches_up() {
    let home = Home::new("fs-replica-killed");
    let first = server(&home, "a", "127.0.0.1:0", &["--size", "128MiB"]);
    let mounted = Mounted::of(&home, &first, "mnt", "");
    mounted.run("head -c 60000000 /dev/urandom > big; sync big");
    let address = first.address.clone();
    drop(first);
    let mut second = replica(&home, "b", "127.0.0.1:0", &[]);
    let to = second.address.clone();
    let first = server(&home, "a", &address, &["--replica", &to]);
    // In the midst of the copy.
    let begun = Instant::now();
    while !home.0.join("b/next/data").exists() {
        assert!(begun.elapsed() < PATIENCE, "nothing is copied");
    }
    second.kill_all();
    assert!(!home.0.join("b/superblock").exists(), "it was faster");
    second = replica(&home, "b", &to, &[]);
    wait_for(&home, &address, "in step");
    // A copy and a snapshot exclude each other, and nothing of the first attempt is left.
    assert!(!home.0.join("b/next").exists());
    let (is_enough, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let second = thread::scope(|scope| {
        let _over = Over(&is_enough);
        scope.spawn(|| keep_writing(&mounted.directory, &is_enough, &rounds));
        for round in 0..6_u64 {
            let enough = rounds.load(Ordering::Relaxed) + 4;
            eventually("it writes", || rounds.load(Ordering::Relaxed) >= enough);
            thread::sleep(Duration::from_millis(300 + 97 * round));
            if round.is_multiple_of(2) {
                second.kill_service();
            } else {
                second.kill_all();
                thread::sleep(Duration::from_millis(500));
                second = replica(&home, "b", &to, &[]);
            }
            wait_for(&home, &address, "in step");
        }
        second
    });
    wait_for(&home, &address, "in step");
    sync_names(&mounted);
    let hash = home.told(&["fs", "tree-hash", &format!("{address}:/")]);
    drop(mounted);
    first.kill_all();
    let _promoted = promote(&home, &to);
    let begun = Instant::now();
    let after = loop {
        let output = home.run(&["fs", "tree-hash", &format!("{to}:/")]);
        if output.status.success() {
            break String::from_utf8(output.stdout).expect("text");
        }
        assert!(begun.elapsed() < PATIENCE, "it serves nothing");
    };
    let (before, after) = (&hash[..64], &after[..64]);
    assert_eq!(before, after);
    drop(second);
    checked(&home, "b");
}

#[test]
fn a_replica_that_is_stopped_holds_nobody_up_for_long() {
    let home = Home::new("fs-replica-stopped");
    let two = TwoServers::start(&home, &[]);
    let mounted = Mounted::at(&home, &two.hosts(), "mnt", "");
    wait_for(&home, &two.first.address, "in step");
    write_synced(&mounted.path("a"), b"a").expect("synced");
    let services = two.second.services();
    services.iter().for_each(|service| signal(*service, Signal::STOP));
    let timed = |name: &str, bytes: &str| {
        let begun = Instant::now();
        write_synced(&mounted.path(name), bytes.as_bytes()).expect("it goes on");
        begun.elapsed()
    };
    // This ends while the replica is stopped.
    let waited = timed("b", "b");
    assert!(waited > Duration::from_secs(2), "{waited:?}");
    wait_for(&home, &two.first.address, "away");
    let later: Vec<Duration> = (0..20).map(|round| timed("c", &round.to_string())).collect();
    let wait = later.iter().filter(|took| **took > waited / 2).count();
    assert!(wait <= 2, "{wait} of 20 waited for it, as the first for {waited:?}: {later:?}");
    let lacks =
        stats(&home, &two.first.address).expect("it answers")["replica"]["lacks_commits"].as_u64();
    assert!(lacks.is_some_and(|lacks| lacks >= 20), "{lacks:?}");
    services.iter().for_each(|service| signal(*service, Signal::CONT));
    wait_for(&home, &two.first.address, "in step");
    let second = two.second;
    two.first.kill_all();
    let _promoted = promote(&home, &second.address);
    assert_eq!(mounted.run("cat a b c"), "ab19");
    drop(mounted);
    drop(second);
    checked(&home, "b");
}

/// The replica has what was shipped to it; what it lacks is lost, and fsync says so.
#[test]
fn fsync_says_what_the_replica_lacks() {
    let home = Home::new("fs-replica-fsync");
    let two = TwoServers::start(&home, &[]);
    let mounted = Mounted::at(&home, &two.hosts(), "mnt", "soft,timeo=600");
    wait_for(&home, &two.first.address, "in step");
    let promotion = ReadyPromotion::of(&home, &two.second.address);
    fs::write(mounted.path("shipped"), b"old").expect("written");
    write_synced(&mounted.path("lacking"), b"old").expect("synced");
    fs::write(mounted.path("shipped"), b"new").expect("written");
    // Another mount has the replica have everything, which the first one does not know.
    let other = Mounted::at(&home, &two.hosts(), "other", "soft,timeo=600");
    sync(&other.directory).expect("synced");
    drop(other);
    let services = two.second.services();
    services.iter().for_each(|service| signal(*service, Signal::STOP));
    // More than the connection takes: the last of it cannot be on its way.
    let filling = vec![7; 64 << 10];
    for number in 0..300 {
        fs::write(mounted.path(&format!("filling{number}")), &filling).expect("written");
    }
    fs::write(mounted.path("lacking"), b"new").expect("written");
    two.first.kill_all();
    services.iter().for_each(|service| signal(*service, Signal::CONT));
    let _promoted = promotion.promote();
    sync(&mounted.path("shipped")).expect("nothing of it is lost");
    assert_eq!(fs::read(mounted.path("shipped")).expect("read"), b"new");
    assert_eq!(sync(&mounted.path("lacking")).expect_err("lost").raw_os_error(), Some(5));
    assert_eq!(fs::read(mounted.path("lacking")).expect("read"), b"old");
    sync(&mounted.path("lacking")).expect("it was said");
    drop(mounted);
    drop(two.second);
    checked(&home, "b");
}

/// What is in a file once it is synced, by its version.
fn content(name: &str, version: u64) -> Vec<u8> {
    let len = usize::try_from(version * 7919 % 30_000).expect("small");
    format!("{name} {version}\n").bytes().cycle().take(len + 16).collect()
}

/// Which versions each file may have: the last one that was synced, and the last that was begun.
type Versions = Mutex<BTreeMap<String, (u64, u64)>>;

/// Replaces files, each version under another name first, until it is enough.
fn replace_files(directory: &Path, seed: u64, versions: &Versions, is_enough: &AtomicBool) {
    let mut random = seed;
    while !is_enough.load(Ordering::Relaxed) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let name = format!("f{}", (random >> 33) % 12);
        let version = {
            let mut all = versions.lock().expect("not poisoned");
            let (_, begun) = all.entry(name.clone()).or_default();
            *begun += 1;
            *begun
        };
        let next = directory.join(format!("{name}.next"));
        let done = write_synced(&next, &content(&name, version))
            .and_then(|()| fs::rename(&next, directory.join(&name)))
            .and_then(|()| sync(directory));
        // After a promotion what was not synced may be lost, and is said to be, once.
        if done.is_ok() {
            versions.lock().expect("not poisoned").entry(name).or_default().0 = version;
        }
    }
}

fn check_versions(directory: &Path, versions: &Versions, round: u64) {
    for (name, (synced, begun)) in versions.lock().expect("not poisoned").iter() {
        let bytes = match fs::read(directory.join(name)) {
            Err(_) if *synced == 0 => continue,
            read => read.unwrap_or_else(|why| panic!("round {round}: {name}: {why}")),
        };
        let found = (0..=*begun).find(|version| content(name, *version) == bytes);
        assert!(
            found.is_some_and(|version| version >= *synced),
            "round {round}: {name} has {found:?}, none of {synced} to {begun}"
        );
    }
}

#[test]
fn what_was_synced_is_there_whenever_either_is_killed() {
    let home = Home::new("fs-replica-random");
    let rounds = if std::env::var_os("OUTBOARD_FULL").is_some() { 24 } else { 6 };
    let seed = 7;
    for round in 0..rounds {
        for store in ["a", "b"] {
            let _absent = fs::remove_dir_all(home.0.join(store));
        }
        let mode = if round % 3 == 2 { "always" } else { "second" };
        let two = TwoServers::start(&home, &["--sync", mode]);
        // Where the test fails, nobody waits for a server for ever.
        let name = format!("mnt{round}");
        let mounted = Mounted::at(&home, &two.hosts(), &name, "soft,timeo=100");
        wait_for(&home, &two.first.address, "in step");
        let promotion = ReadyPromotion::of(&home, &two.second.address);
        let (versions, is_enough) = (Versions::default(), AtomicBool::new(false));
        let second = thread::scope(|scope| {
            let (directory, over) = (&mounted.directory, Over(&is_enough));
            scope.spawn(|| replace_files(directory, seed + round, &versions, &is_enough));
            eventually("something is synced", || {
                versions.lock().expect("not poisoned").values().any(|(synced, _)| *synced > 0)
            });
            thread::sleep(Duration::from_millis(200 + 131 * (round * 5 % 12)));
            if round % 2 == 1 {
                // It is away for a moment, in which what is synced is on one disk only, and in step
                // again. The server sees its end at once.
                two.second.kill_service();
                thread::sleep(Duration::from_secs(1));
                wait_for(&home, &two.first.address, "in step");
            }
            thread::sleep(Duration::from_millis(50 + 77 * (round * 7 % 11)));
            let second = two.second;
            two.first.kill_all();
            let _promoted = promotion.promote();
            thread::sleep(Duration::from_millis(300));
            drop(over);
            second
        });
        check_versions(&mounted.directory, &versions, round);
        drop(mounted);
        drop(second);
        checked(&home, "b");
    }
}

/// Whether another process could lock a file now.
fn is_free(mounted: &Mounted, name: &str) -> bool {
    let script = format!("flock -n {name} true");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(&mounted.directory).stdin(Stdio::null());
    command.status().expect("a shell").success()
}

#[test]
fn locks_and_leases_outlive_the_first_server() {
    let home = Home::new("fs-replica-locks");
    let two = TwoServers::start(&home, &[]);
    let [one, other] = ["one", "other"].map(|name| Mounted::at(&home, &two.hosts(), name, ""));
    wait_for(&home, &two.first.address, "in step");
    let promotion = ReadyPromotion::of(&home, &two.second.address);
    write_synced(&one.path("locked"), b"x").expect("synced");
    write_synced(&one.path("named"), b"x").expect("synced");
    let held = OpenOptions::new().read(true).write(true).open(one.path("locked")).expect("opened");
    flock(&held, FlockOperation::NonBlockingLockExclusive).expect("free");
    assert!(!is_free(&other, "locked"));
    assert!(other.path("named").exists());
    signal(other.process.id(), Signal::STOP);
    let _second = two.second;
    let begun = Instant::now();
    two.first.kill_all();
    let _promoted = promotion.promote();
    fs::rename(one.path("named"), one.path("renamed")).expect("renamed");
    assert!(begun.elapsed() > LEASE / 2, "the other's lease ran still: {:?}", begun.elapsed());
    signal(other.process.id(), Signal::CONT);
    assert!(!other.path("named").exists() && other.path("renamed").exists());
    assert!(!is_free(&other, "locked"), "it is held still");
    drop(held);
    eventually("it is held by nobody", || is_free(&other, "locked"));
}
