//! A process that commits is killed, again and again: the next one finds all that was acknowledged,
//! and nothing that was not committed.
//!
//! The child is this program, started with a directory in its environment.

use outboard_fs::store::{FsStore, FsStoreOptions, OpenedStore, StoreShape, SyncMode};
use outboard_mem::SharedRegion;
use outboard_offcode::ActiveRegion;
use outboard_offcode::host::Execution;
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const CHILD: &str = "OUTBOARD_TEST_STORE";
const SLOTS: u64 = 1000;
const SHAPE: StoreShape = StoreShape { block_count: 4096, region_len: 1 << 20 };
const WRITE_MAX: usize = 4096;

fn options(seq: u64) -> FsStoreOptions {
    let sync = match seq % 2 {
        0 => SyncMode::Always,
        _ => SyncMode::OnRequest { at_least_every: Duration::from_millis(3) },
    };
    FsStoreOptions { sync, segment_len: 64 << 10, log_max: 200 << 10, ..FsStoreOptions::default() }
}

fn start(dir: &Path) -> (FsStore, Arc<ActiveRegion>) {
    let opened = OpenedStore::open(dir).expect("a store");
    let found = opened.recover().expect("recovered");
    let (seq, memory) = (found.last_seq, found.memory.clone());
    let region = Arc::new(ActiveRegion::over("fs", memory, WRITE_MAX).expect("memory"));
    (opened.start(found, &region, seq, options(seq)).expect("started"), region)
}

/// Commit `seq` gives its slot the number, and a block with the number.
fn commit(store: &FsStore, region: &ActiveRegion, seq: u64) {
    let bytes = seq.to_le_bytes().repeat(512);
    let block = seq % SHAPE.block_count;
    store.data().write(block, 0, &mut [IoSlice::new(&bytes)]).expect("room");
    let mut execution = Execution::new(region.memory().clone(), WRITE_MAX);
    execution.reset(true);
    execution.store64(0, seq).expect("inside");
    execution.store64(4096 + seq % SLOTS * 512, seq).expect("inside");
    let (since, mut writer) = (region.begin(), region.writer());
    let made = writer.commit(&execution, since, None, None).expect("alone");
    assert_eq!(store.seq_of(made), seq);
}

/// Commits until it is killed, and says what is durable.
fn child(dir: &Path) {
    let (store, region) = start(dir);
    let mut out = std::io::stdout();
    for seq in store.durable() + 1.. {
        commit(&store, &region, seq);
        // No block is written again before what freed it is durable.
        if seq % 7 == 0 || store.durable() + SLOTS < seq {
            assert!(store.wait(seq, Duration::from_secs(20)).expect("the disk works"));
        }
        writeln!(out, "durable {}", store.durable()).expect("the parent reads");
    }
}

fn load(memory: &SharedRegion, at: u64) -> u64 {
    memory.load_u64(usize::try_from(at).expect("small")).expect("inside")
}

/// Checks what the child has left.
fn check(dir: &Path, told: u64) -> u64 {
    let (store, region) = start(dir);
    let (last, memory) = (store.durable(), region.memory());
    assert!(last >= told, "commit {told} was acknowledged, {last} is the last one");
    assert_eq!(load(memory, 0), last);
    for slot in 0..SLOTS {
        let wanted = last.saturating_sub((last + SLOTS - slot) % SLOTS);
        let found = load(memory, 4096 + slot * 512);
        assert_eq!(found, if wanted % SLOTS == slot { wanted } else { 0 }, "slot {slot} at {last}");
        if found != 0 {
            let mut word = [0; 8];
            store.data().read(found % SHAPE.block_count, 4088, &mut word).expect("inside");
            assert_eq!(u64::from_le_bytes(word), found, "the block of commit {found} at {last}");
        }
    }
    last
}

/// Starts the child, and kills it a while after it has made so many commits. Returns what it has
/// said last.
fn run_and_kill(dir: &Path, commits: usize, after: Duration) -> u64 {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "killed_processes_lose_nothing", "--nocapture"]);
    command.env(CHILD, dir).stdout(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let out = BufReader::new(child.stdout.take().expect("piped"));
    // A line that was cut short says nothing.
    let lines = out.lines().map_while(Result::ok);
    let mut told = lines.filter_map(|line| line.strip_prefix("durable ")?.parse().ok());
    let first = told.by_ref().take(commits).max();
    let reader = thread::spawn(move || told.max());
    thread::sleep(after);
    child.kill().expect("killed");
    child.wait().expect("ended");
    first.max(reader.join().expect("read")).unwrap_or(0)
}

#[test]
fn killed_processes_lose_nothing() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return child(Path::new(&dir));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let dir = directory.path().join("store");
    drop(OpenedStore::create(&dir, SHAPE).expect("made"));
    let rounds = if std::env::var_os("OUTBOARD_FULL").is_some() { 200 } else { 50 };
    let (mut random, mut last) = (12345_u64, 0);
    for round in 0..rounds {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // One in five is killed while it starts, or soon after.
        let (commits, least_ms) = if round % 5 == 0 { (0, 20) } else { (4, 0) };
        let after = Duration::from_millis(least_ms + (random >> 33) % 150);
        let told = run_and_kill(&dir, commits, after);
        last = check(&dir, told.max(last));
    }
    assert!(last > 100, "only {last} commits were made");
}
