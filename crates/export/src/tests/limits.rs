//! Memory that is exhausted, and files that change while they are read.

use super::rig::{Rig, bytes, directory};
use crate::record::{self, LogRecord};
use crate::{
    Answer, Ask, Change, Contents, ExportHeader, HEADER_LEN, LookUp, MetadataLogError, Position,
};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn a_full_log_begins_anew_and_says_everything_again() {
    let mut rig = Rig::new();
    rig.write("kept.h", "kept");
    assert_eq!(rig.read("", "kept.h"), b"kept");
    let first = rig.export.submit();
    let mut epochs = 0;
    let name = "x".repeat(200);
    rig.write(&name, "");
    for _ in 0..10_000 {
        drop(fs::OpenOptions::new().append(true).open(rig.path(&name)).unwrap());
        let position = rig.export.submit();
        if position.epoch != first.epoch {
            epochs += 1;
            break;
        }
    }
    assert_eq!(epochs, 1, "a MiB is full by now");
    let misses = rig.export.counters().misses;
    let changes = rig.read_log();
    assert_eq!(changes[0], Change::Everything);
    assert!(rig.replica.has_reached(first));
    assert!(matches!(rig.look_up("", &name), LookUp::File(_)), "listings are published again");
    assert_eq!(rig.read("", "kept.h"), b"kept");
    assert_eq!(rig.export.counters().misses, misses, "contents too");
}

#[test]
fn a_directory_that_no_log_can_hold_is_refused() {
    let mut rig = Rig::new();
    fs::create_dir(rig.path("big")).unwrap();
    for number in 0..2_500 {
        rig.write(&format!("big/{number:0100}"), "");
    }
    let dir = rig.path("big");
    for _ in 0..2 {
        assert!(matches!(rig.export.list(bytes(&dir)), Answer::TooLarge { .. }));
    }
    let epoch = rig.export.submit().epoch;
    assert_eq!(rig.find("", "x"), LookUp::Absent);
    assert_eq!(rig.export.submit().epoch, epoch, "nothing else was lost");
}

#[test]
fn more_than_a_log_can_hold_is_forgotten_and_found_again() {
    let mut rig = Rig::new();
    for dir in 0..16 {
        fs::create_dir(rig.path(&format!("d{dir}"))).unwrap();
        for file in 0..600 {
            rig.write(&format!("d{dir}/{file:0100}"), "");
        }
    }
    let first = rig.export.submit();
    for dir in 0..16 {
        assert_eq!(rig.find(&format!("d{dir}"), "x"), LookUp::Absent);
    }
    assert!(rig.export.submit().epoch > first.epoch);
    for dir in 0..16 {
        assert_eq!(rig.find(&format!("d{dir}"), "x"), LookUp::Absent);
    }
}

#[test]
fn a_place_that_was_used_again_is_noticed() {
    let mut rig = Rig::new();
    rig.write("x", "old");
    let LookUp::File(attr) = rig.find("", "x") else { panic!() };
    assert_eq!(rig.read("", "x"), b"old");
    let contents = rig.replica.contents(attr.dev, attr.ino, attr.version).unwrap();
    for round in 0..8_u8 {
        // Random bytes cannot be packed.
        let mut random = vec![0; 200_000];
        blake3::Hasher::new().update(&[round]).finalize_xof().fill(&mut random);
        rig.write("y", &random);
        rig.submit();
        assert_eq!(rig.read("", "y"), random);
    }
    let known = rig.replica.contents(attr.dev, attr.ino, attr.version);
    assert_eq!(known, Some(contents), "nothing has changed");
    assert_eq!(rig.fetch(&contents), None, "the hash does");
    assert_eq!(rig.read("", "x"), b"old");
    let again = rig.replica.contents(attr.dev, attr.ino, attr.version).unwrap();
    assert!(again.at != contents.at && again.hash == contents.hash);
}

#[test]
fn contents_that_no_client_hands_out_are_a_fault() {
    let handled = |len: u64| {
        let contents =
            Contents { dev: 1, ino: 2, version: 3, hash: [0; 32], at: 1 << 20, len, packed: len };
        let start = Position { epoch: 1, length: 0 };
        let log = record::emit(&LogRecord::Contents(contents), start, Vec::new()).unwrap();
        let header = ExportHeader {
            position: Position { epoch: 1, length: log.len() as u64 },
            log_at: 4096,
            log_len: 1 << 20,
            arena_at: 1 << 20,
            arena_len: 1 << 40,
            hidden_names: crate::HiddenNames::Withheld,
        };
        let mut replica = crate::Replica::new();
        let want = replica.want(&header).unwrap();
        replica.handle(&want, &log)
    };
    assert!(handled(1 << 30).is_ok());
    let len = (1 << 30) + 1;
    assert_eq!(handled(len), Err(MetadataLogError::TooLarge { len, place: 0 }));
}

#[test]
fn a_reader_of_an_old_epoch_finds_out() {
    let mut rig = Rig::new();
    rig.write("x", "1");
    let memory = rig.export.memory().clone();
    let header = ExportHeader::parse(&memory.snapshot(0..HEADER_LEN).unwrap()).unwrap();
    let want = rig.replica.want(&header).unwrap();
    rig.export.forget_everything();
    rig.export.submit();
    let version = rig.version("", "x");
    let start = usize::try_from(header.log_at).unwrap();
    let log = memory.snapshot(start..start + usize::try_from(want.len).unwrap()).unwrap();
    let mut late = crate::Replica::new();
    let torn = MetadataLogError::Torn { epoch: want.epoch, place: 0 };
    assert_eq!(late.handle(&want, &log), Err(torn));
    assert_eq!(rig.version("", "x"), version);
}

#[test]
fn a_file_that_is_truncated_is_never_half_a_file() {
    let mut rig = Rig::new();
    rig.write("x", vec![7; 100_000]);
    assert_eq!(rig.read("", "x").len(), 100_000);
    let version = rig.version("", "x");
    let file = fs::OpenOptions::new().write(true).open(rig.path("x")).unwrap();
    file.set_len(10).unwrap();
    let path = rig.path("x");
    let answer = rig.export.offer(bytes(&path), version);
    assert!(matches!(answer, Answer::Changed(_)), "{answer:?}");
    rig.read_log();
    assert_eq!(rig.read("", "x"), vec![7; 10]);
    fs::remove_file(rig.path("x")).unwrap();
    let version = rig.version("", "x");
    let answer = rig.export.offer(bytes(&path), version);
    assert!(matches!(answer, Answer::Changed(_)), "{answer:?}");
    assert_eq!(rig.find("", "x"), LookUp::Absent);
}

/// Writes whole states of a file, each of one byte repeated, until `stop` is set.
fn write_states(path: &std::path::Path, stop: &AtomicBool) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    for state in (0..=u8::MAX).cycle() {
        file.write_all_at(&vec![state; 100_000], 0).unwrap();
        std::thread::sleep(std::time::Duration::from_micros(u64::from(state) * 10));
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Offers a file while it is written; returns the number of snapshots, and the versions of those
/// that mix two states: the read came in the middle of a write, as it may locally.
fn offer_meanwhile(rig: &mut Rig) -> (usize, Vec<u64>) {
    let (path, stop) = (rig.path("x"), AtomicBool::new(false));
    let (mut published, mut mixed) = (0, Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| write_states(&path, &stop));
        let begin = std::time::Instant::now();
        while published < 50 && begin.elapsed().as_secs() < 20 {
            rig.submit();
            let LookUp::File(attr) = rig.find("", "x") else { panic!() };
            let answer = rig.export.offer(bytes(&path), attr.version);
            rig.read_log();
            let found = rig.replica.contents(attr.dev, attr.ino, attr.version);
            if let (Answer::Published(_), Some(contents)) = (answer, found) {
                let bytes = rig.fetch(&contents).unwrap();
                let states = bytes.chunk_by(|a, b| a == b).count();
                mixed.extend((states != 1).then_some(attr.version));
                published += 1;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    (published, mixed)
}

#[test]
fn a_file_that_is_written_meanwhile_is_offered_as_one_state() {
    for mut rig in [Rig::new(), Rig::unwatched()] {
        rig.write("x", vec![0; 100_000]);
        let (published, mixed) = offer_meanwhile(&mut rig);
        assert!(published > 0 && mixed.len() <= published / 4, "{published} with {mixed:?}");
        rig.submit();
        assert!(!mixed.contains(&rig.version("", "x")), "a mixture stays");
        assert_eq!(rig.read("", "x"), fs::read(rig.path("x")).unwrap());
    }
}

#[test]
fn roots_may_come_later() {
    let mut rig = Rig::new();
    assert_eq!(rig.find("", "x"), LookUp::Absent);
    let later = directory();
    let base = later.path().canonicalize().unwrap();
    fs::create_dir_all(base.join("a/b")).unwrap();
    fs::write(base.join("a/b/x"), "x").unwrap();
    assert_eq!(rig.find_at(&base, b"a"), LookUp::Outside);
    rig.export.allow(&base.join("a/b")).unwrap();
    let (_, changes) = rig.submit();
    let shown = Change::Name { dir: bytes(&base).into(), name: b"a"[..].into() };
    assert!(changes.contains(&shown), "{changes:?}");
    assert_eq!(rig.read_at(&base.join("a/b/x")), b"x");
    assert_eq!(rig.find_at(&base.join("a"), b"c"), LookUp::Outside);
    rig.export.allow(&base).unwrap();
    rig.submit();
    assert_eq!(rig.find_at(&base.join("a"), b"c"), LookUp::Absent);
    assert_eq!(rig.read_at(&base.join("a/b/x")), b"x");
    fs::rename(base.join("a"), base.join("z")).unwrap();
    rig.submit();
    assert_eq!(rig.find_at(&base.join("a/b"), b"x"), LookUp::Absent);
    assert_eq!(rig.read_at(&base.join("z/b/x")), b"x");
}

#[test]
fn outputs_of_our_own_are_published_once() {
    let mut rig = Rig::new();
    assert_eq!(rig.find("", "x.o"), LookUp::Absent);
    rig.write(".x.o.tmp", "object");
    fs::rename(rig.path(".x.o.tmp"), rig.path("x.o")).unwrap();
    let path = rig.path("x.o");
    rig.export.note_written(&path);
    let length = rig.export.counters().log_now_bytes;
    assert_eq!(rig.version("", "x.o"), 1);
    assert_eq!(rig.export.submit().length, length, "the notice changes nothing");
}

#[test]
fn more_than_the_kernel_keeps_is_noticed() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let mut rig = Rig::new();
    rig.write("x", "1");
    rig.write("y", "1");
    assert_eq!(rig.read("", "x"), b"1");
    let before = rig.export.submit();
    // Two names in turn, so that the kernel does not merge the notices.
    let open = |name: &str| fs::OpenOptions::new().append(true).open(rig.path(name)).unwrap();
    for _ in 0..limit.min(100_000) {
        drop((open("x"), open("y")));
    }
    rig.write("x", "2");
    fs::remove_file(rig.path("y")).unwrap();
    let (after, _) = rig.submit();
    assert!(limit > 100_000 || after.epoch > before.epoch);
    assert_eq!(rig.read("", "x"), b"2");
    assert_eq!(rig.find("", "y"), LookUp::Absent);
}

#[test]
fn roots_that_nobody_asked_for_longest_make_room() {
    use crate::negative_entries::NEGATIVE_ENTRIES_MAX;
    use crate::roots::ROOTS_MAX;
    let mut rig = Rig::new();
    let base = directory();
    let base = base.path().canonicalize().unwrap();
    let root = |number: usize| base.join(format!("d{number}"));
    rig.write("x.h", "x");
    for number in 0..ROOTS_MAX * 2 {
        fs::create_dir(root(number)).unwrap();
        fs::write(root(number).join("y.h"), "y").unwrap();
        rig.export.allow(&root(number)).unwrap();
        // This root is in use all the time.
        rig.export.allow(&rig.path("")).unwrap();
        assert!(rig.export.counters().roots_now <= ROOTS_MAX as u64);
    }
    assert_eq!(rig.read("", "x.h"), b"x");
    assert_eq!(rig.read_at(&root(ROOTS_MAX * 2 - 1).join("y.h")), b"y");
    assert_eq!(rig.replica.look_up(bytes(&base), b"d0"), LookUp::Outside);
    assert!(rig.export.allow(&root(0)).unwrap(), "it is published again");
    assert_eq!(rig.read_at(&root(0).join("y.h")), b"y");
    for number in 0..NEGATIVE_ENTRIES_MAX * 2 {
        assert!(rig.export.allow(&base.join(format!("gap{number}"))).unwrap());
        rig.export.allow(&base.join("gap0")).unwrap();
    }
    rig.read_log();
    let mut gap = |number: usize| {
        rig.read_log();
        rig.replica.look_up(bytes(&base), format!("gap{number}").as_bytes())
    };
    let last = NEGATIVE_ENTRIES_MAX * 2 - 1;
    assert_eq!([0, 1, last].map(&mut gap), [LookUp::Absent, LookUp::Outside, LookUp::Absent]);
}

/// The CPU time of this thread for some work.
fn cpu_of(work: impl FnOnce()) -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let before = now();
    work();
    now() - before
}

/// Each submission makes sure that there is still nothing at each of them. What it, and a new
/// entry, may cost is measured by what a look at each costs here and now: the least of several.
#[test]
fn many_negative_entries_cost_a_submission_little() {
    use crate::negative_entries::NEGATIVE_ENTRIES_MAX;
    const ROUNDS: u32 = 20;
    let mut rig = Rig::new();
    let base = directory();
    let base = base.path().canonicalize().unwrap();
    let path = |number: usize| base.join(format!("include/deep/gap{number}.h"));
    let entries: Vec<Duration> = (0..NEGATIVE_ENTRIES_MAX)
        .map(|number| {
            let asked = Ask::Name { path: bytes(&path(number)).to_vec() };
            cpu_of(|| assert!(matches!(rig.export.answer(&asked), Answer::Published(_))))
        })
        .collect();
    // Those that find many others.
    let entry = *entries[NEGATIVE_ENTRIES_MAX / 2..].iter().min().unwrap();
    let look_at_each = || (0..NEGATIVE_ENTRIES_MAX).for_each(|one| assert!(!path(one).exists()));
    let looks = (0..ROUNDS).map(|_| cpu_of(look_at_each)).min().unwrap();
    let each = (0..ROUNDS).map(|_| cpu_of(|| _ = rig.export.submit())).min().unwrap();
    eprintln!("{each:?} for a submission, {entry:?} for a new entry, {looks:?} for looks");
    assert!(each < looks * 2, "{each:?} for a submission, {looks:?} for a look at each");
    assert!(entry < looks / 4, "{entry:?}, {looks:?}: as if it looked at all others");
}
