//! Processor time of an export for its client, and of a look-up for its server: medians.
//!
//! `cargo bench -p outboard-export`.

use outboard_export::{
    Answer, Ask, Export, ExportHeader, HEADER_LEN, HiddenNames, LookUp, Replica, Sizes,
};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{array, fs};
use tempfile::TempDir;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const FILES: usize = 230;
const NAMES: usize = 500;
const ROUNDS: usize = 200;

fn main() -> Result<()> {
    let (dir, root) = project()?;
    let mut export = Export::new(Sizes::default(), HiddenNames::Withheld)?;
    export.allow(&root)?;
    export.submit();
    report("list 500 names", list(&root)?);
    report("offer 230 files of 13 KB (3 MB), first", offer_all(&root)?);
    report("offer one file of 3 MB", offer_large(&root)?);
    let mut replica = Replica::new();
    ask_all(&mut export, &mut replica, &root)?;
    // Files must be old enough, or else they are hashed again.
    std::thread::sleep(Duration::from_millis(50));
    export.submit();
    report("submit, nothing new", median(ROUNDS * 100, || export.submit()));
    report("submit, one file written", one_written(&mut export, &root)?);
    report("offer, known", known(&mut export, &mut replica, &root)?);
    let name = file_name(7);
    let dir_bytes = root.as_os_str().as_bytes();
    let look = || replica.look_up(dir_bytes, name.as_bytes());
    report("look up, found (of 1,000)", per_thousand(look));
    let look = || replica.look_up(dir_bytes, b"absent.h");
    report("look up, absent (of 1,000)", per_thousand(look));
    drop(dir);
    Ok(())
}

fn report(what: &str, took: Duration) {
    println!("{what:<40} {:>10.2} µs", took.as_secs_f64() * 1e6);
}

fn median<T>(rounds: usize, mut f: impl FnMut() -> T) -> Duration {
    let mut times: Vec<Duration> = (0..rounds).map(|_| time(&mut f)).collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// Processor time of this thread, so that other work on the machine is not counted.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

fn time<T>(f: &mut impl FnMut() -> T) -> Duration {
    let start = cpu();
    black_box(f());
    cpu().saturating_sub(start)
}

fn per_thousand<T>(mut f: impl FnMut() -> T) -> Duration {
    median(50, || (0..1000).for_each(|_| drop(black_box(f()))))
}

fn file_name(number: usize) -> String {
    format!("some_header_{number}.h")
}

/// 500 names: 230 headers of 13 KB, one file of 3 MB, and others.
fn project() -> Result<(TempDir, PathBuf)> {
    let dir = tempfile::Builder::new().prefix("outboard-export-").tempdir()?;
    let root = dir.path().canonicalize()?;
    for number in 0..NAMES - 1 {
        let len = if number < FILES { 13_000 } else { 0 };
        fs::write(root.join(file_name(number)), vec![b'x'; len])?;
    }
    fs::write(root.join("large"), vec![b'x'; 3_000_000])?;
    Ok((dir, root))
}

fn fresh(root: &Path) -> Result<Export> {
    let mut export = Export::new(Sizes::default(), HiddenNames::Withheld)?;
    export.allow(root)?;
    Ok(export)
}

fn list(root: &Path) -> Result<Duration> {
    let mut times = array::from_fn::<_, 21, _>(|_| Duration::ZERO);
    for took in &mut times {
        let mut export = fresh(root)?;
        *took = time(&mut || export.list(root.as_os_str().as_bytes()));
    }
    times.sort_unstable();
    Ok(times[10])
}

fn asks(replica: &Replica, root: &Path, names: &[String]) -> Vec<Ask> {
    let asks = names.iter().filter_map(|name| {
        let found = replica.look_up(root.as_os_str().as_bytes(), name.as_bytes());
        let LookUp::File(attr) = found else { return None };
        let path = root.join(name).as_os_str().as_bytes().to_vec();
        Some(Ask::Offer { path, version: attr.version })
    });
    asks.collect()
}

fn offers(root: &Path, names: &[String]) -> Result<Duration> {
    let mut times = array::from_fn::<_, 21, _>(|_| Duration::ZERO);
    for took in &mut times {
        let (mut export, mut replica) = (fresh(root)?, Replica::new());
        export.list(root.as_os_str().as_bytes());
        read_log(&export, &mut replica)?;
        let asks = asks(&replica, root, names);
        *took = time(&mut || {
            for ask in &asks {
                assert!(matches!(export.answer(ask), Answer::Published(_)));
            }
        });
    }
    times.sort_unstable();
    Ok(times[10])
}

fn offer_all(root: &Path) -> Result<Duration> {
    offers(root, &(0..FILES).map(file_name).collect::<Vec<_>>())
}

fn offer_large(root: &Path) -> Result<Duration> {
    offers(root, &["large".to_owned()])
}

fn ask_all(export: &mut Export, replica: &mut Replica, root: &Path) -> Result<()> {
    export.list(root.as_os_str().as_bytes());
    read_log(export, replica)?;
    for ask in asks(replica, root, &(0..FILES).map(file_name).collect::<Vec<_>>()) {
        export.answer(&ask);
    }
    read_log(export, replica)
}

fn one_written(export: &mut Export, root: &Path) -> Result<Duration> {
    let path = root.join(file_name(NAMES - 2));
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        fs::write(&path, round.to_le_bytes())?;
        times.push(time(&mut || export.submit()));
    }
    times.sort_unstable();
    Ok(times[ROUNDS / 2])
}

fn known(export: &mut Export, replica: &mut Replica, root: &Path) -> Result<Duration> {
    read_log(export, replica)?;
    let asks = asks(replica, root, &[file_name(7)]);
    Ok(median(ROUNDS * 10, || export.answer(&asks[0])))
}

fn read_log(export: &Export, replica: &mut Replica) -> Result<()> {
    let memory = export.memory();
    let header = ExportHeader::parse(&memory.snapshot(0..HEADER_LEN)?)?;
    while let Some(want) = replica.want(&header) {
        let start = usize::try_from(header.log_at + want.offset)?;
        replica.handle(&want, &memory.snapshot(start..start + usize::try_from(want.len)?)?)?;
    }
    Ok(())
}
