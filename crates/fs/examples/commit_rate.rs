//! How many durable commits a second threads make that wait for each, beside a loop that writes
//! the same bytes in groups and brings each to the disk by fdatasync.
//!
//! ```text
//! cargo run --release -p outboard-fs --example commit_rate -- DIR [THREADS] [SECONDS]
//! ```
//!
//! The loop is the best that a program can do for its threads: they hand it their bytes and sleep
//! until their group is on the disk.

use outboard_fs::store::{FsStoreOptions, OpenedStore, StoreShape, SyncMode};
use outboard_offcode::ActiveRegion;
use outboard_offcode::host::Execution;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Lines of 64 bytes that a commit writes: about those of a file's creation.
const LINES: u64 = 12;
/// Bytes of the log for each.
const RECORD: usize = 16 + LINES as usize * 80;
const REGION_LEN: u64 = 16 << 20;

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| ".".into())).join("commit-rate");
    let threads = args.next().and_then(|text| text.parse().ok()).unwrap_or(8);
    let seconds = args.next().and_then(|text| text.parse().ok()).unwrap_or(3);
    let length = Duration::from_secs(seconds);
    std::fs::create_dir_all(&dir).expect("a directory");
    let mut ratios = Vec::new();
    for round in 0..3 {
        let (loop_rate, loop_syncs) = plain(&dir.join("plain"), threads, length);
        let (rate, syncs) = store(&dir.join(format!("store-{round}")), threads, length);
        let ratio = rate / loop_rate;
        println!(
            "{threads} threads: store {rate:.0} commits/s in {syncs:.0} syncs/s, \
            loop {loop_rate:.0} in {loop_syncs:.0}, ratio {ratio:.2}"
        );
        ratios.push(ratio);
    }
    std::fs::remove_dir_all(&dir).expect("removed");
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.2}", ratios[1]);
}

/// Runs threads for a time, each with its number; what they count, by second.
fn run(threads: u64, length: Duration, work: impl Fn(u64) + Sync) -> f64 {
    let (is_over, count, begun) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        for thread in 0..threads {
            let (is_over, count, work) = (&is_over, &count, &work);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    work(thread);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(length);
        is_over.store(true, Ordering::Relaxed);
    });
    count.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

fn store(dir: &Path, threads: u64, length: Duration) -> (f64, f64) {
    let shape = StoreShape { block_count: 1024, region_len: REGION_LEN };
    let opened = OpenedStore::create(dir, shape).expect("made");
    let found = opened.recover().expect("empty");
    let region = ActiveRegion::over("fs", found.memory.clone(), 1 << 16).expect("memory");
    let region = Arc::new(region);
    let at_least_every = Duration::from_secs(1);
    let sync = SyncMode::OnRequest { at_least_every };
    let options = FsStoreOptions { sync, ..FsStoreOptions::default() };
    let store = opened.start(found, &region, 1, options).expect("started");
    let rate = run(threads, length, |thread| {
        let mut execution = Execution::new(region.memory().clone(), 1 << 16);
        let seq = loop {
            let since = region.begin();
            execution.reset(true);
            for line in 0..LINES {
                let at = (thread * 1000 + line) * 4096;
                execution.store64(at, since).expect("inside");
            }
            if let Ok(seq) = region.writer().commit(&execution, since, None, None) {
                break seq;
            }
        };
        assert!(store.wait(store.seq_of(seq), Duration::from_secs(60)).expect("durable"));
    });
    let syncs = store.status().syncs as f64 / length.as_secs_f64();
    store.close().expect("closed");
    (rate, syncs)
}

#[derive(Default)]
struct Group {
    bytes: Vec<u8>,
    number: u64,
    durable: u64,
    is_over: bool,
}

fn plain(path: &Path, threads: u64, length: Duration) -> (f64, f64) {
    let file = File::create(path).expect("a file");
    let (group, woken, told) = (Mutex::new(Group::default()), Condvar::new(), Condvar::new());
    let syncs = AtomicU64::new(0);
    let rate = thread::scope(|scope| {
        scope.spawn(|| {
            let mut at = 0;
            loop {
                let mut state = group.lock().expect("whole");
                while state.bytes.is_empty() {
                    if state.is_over {
                        return;
                    }
                    state = woken.wait(state).expect("whole");
                }
                let (bytes, number) = (std::mem::take(&mut state.bytes), state.number);
                state.number += 1;
                drop(state);
                file.write_all_at(&bytes, at).expect("room");
                file.sync_data().expect("synced");
                syncs.fetch_add(1, Ordering::Relaxed);
                at += bytes.len() as u64;
                group.lock().expect("whole").durable = number + 1;
                told.notify_all();
            }
        });
        let rate = run(threads, length, |_| {
            let mut state = group.lock().expect("whole");
            state.bytes.extend_from_slice(&[7; RECORD]);
            let mine = state.number;
            woken.notify_one();
            while state.durable <= mine {
                state = told.wait(state).expect("whole");
            }
        });
        group.lock().expect("whole").is_over = true;
        woken.notify_one();
        rate
    });
    (rate, syncs.load(Ordering::Relaxed) as f64 / length.as_secs_f64())
}
