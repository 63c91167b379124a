//! `outboard tour` as a newcomer runs it: it has figures for every stop, compiles on servers, and
//! leaves nothing behind, even when it is interrupted.
//!
//! Fetches sources from cargo's registry unless they are there.

#![forbid(unsafe_code)]

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::iter::successors;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// C files of the project.
const SOURCES: u64 = 97;
/// How long what ends may take to be gone.
const GONE_MAX: Duration = Duration::from_secs(20);

/// One test at a time: what is left behind is looked for among all that this process started.
static ALONE: Mutex<()> = Mutex::new(());

/// A directory for the tours of a test.
struct Tours {
    directory: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Tours {
    fn new(name: &str) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // Orphans become children of this process.
        set_child_subreaper(Some(getpid())).unwrap();
        let name = format!("outboard-tours-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        Self { directory, _alone: alone }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outboard"));
        command.arg("tour").env("TMPDIR", &self.directory);
        command
    }

    /// Processes and files of the tour that do not go.
    fn left_behind(&self) -> Vec<String> {
        let limit = Instant::now() + GONE_MAX;
        loop {
            let files = fs::read_dir(&self.directory).unwrap();
            let mut left: Vec<String> = files.map(|file| format!("{:?}", file.unwrap())).collect();
            left.extend(descendants(getpid()));
            if left.is_empty() || Instant::now() > limit {
                return left;
            }
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Tours {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The command lines of all processes that one has started, and those in turn, and that still run.
fn descendants(of: Pid) -> Vec<String> {
    let mut parents = HashMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name before it may have anything in it.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let mut fields = fields.split_whitespace();
        let (state, parent) = (fields.next(), fields.next().and_then(|pid| pid.parse().ok()));
        if let (Some("R" | "S" | "D" | "T"), Some(parent)) = (state, parent) {
            parents.insert(entry.file_name().into_string().unwrap(), parent);
        }
    }
    let descends = |pid: &String| {
        let up = |pid: &i32| parents.get(&pid.to_string()).copied();
        successors(parents.get(pid).copied(), up).any(|parent| parent == of.as_raw_pid())
    };
    let line = |pid: &String| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let lines = parents.keys().filter(|pid| descends(pid)).map(line);
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).collect()
}

#[test]
fn every_stop_has_its_figures_and_nothing_is_left_behind() {
    let tours = Tours::new("whole");
    let began = Instant::now();
    let output = tours.command().arg("--json").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{told}it took {:?}", began.elapsed());
    assert!(output.status.success());
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    println!("{figures:#}");
    for test in ["write-lat", "tcp-lat"] {
        assert!(figures["stops"]["rdma"][test]["p50_us"].as_f64() > Some(0.0), "{test}");
    }
    let idle = figures["stops"]["rdma"]["idle_processors"].as_f64().expect("Linux tells");
    let wait = if idle < 1.6 { "block" } else { "spin" };
    assert_eq!(figures["stops"]["rdma"]["wait"], wait, "{idle}");
    assert_eq!(told.contains("This machine is busy"), wait == "block", "{told}");
    for test in ["write-bw", "tcp-bw"] {
        assert!(figures["stops"]["rdma"][test]["mib_per_s"].as_f64() > Some(0.0), "{test}");
    }
    let compile = &figures["stops"]["compile"];
    assert_eq!(compile["identical"], 2 * SOURCES);
    assert_eq!(compile["different"].as_array().unwrap().len(), 0);
    let (remote, home) = (&compile["jobs_on_servers"], &compile["jobs_locally"]);
    assert_eq!(remote.as_u64().unwrap() + home.as_u64().unwrap(), SOURCES);
    // On a busy machine jobs may run locally because no slot was free, and for no other reason.
    assert!(remote.as_u64() > Some(0), "{remote}");
    let causes = compile["causes_locally"].as_object().unwrap();
    assert!(causes.keys().all(|cause| cause == "found no free slot in time"), "{causes:?}");
    let servers = compile["servers"].as_array().unwrap();
    assert_eq!(servers.len(), 3);
    assert!(servers.iter().all(|server| server["jobs"].as_u64() > Some(0)), "{servers:?}");
    let cast = &figures["stops"]["cast"];
    assert_eq!((&cast["equal"], &cast["report"]["succeeded"]), (&4.into(), &true.into()));
    let (chunks, sent) = (&cast["report"]["chunks"], &cast["report"]["sent_chunks"]);
    // Nodes relay: a source that sends everything itself would send each chunk four times.
    assert!(sent.as_u64() < Some(3 * chunks.as_u64().unwrap()), "{sent} of {chunks}");
    let active = &figures["stops"]["active"];
    assert_eq!((&active["calls"], &active["allowed"]), (&5.into(), &3.into()));
    // A hundred round trips against one.
    let us = |name: &str| active[name].as_f64().unwrap();
    assert!(us("plain_us") > 5.0 * us("active_us"), "{active}");
    let files = &figures["stops"]["fs"];
    assert_eq!((&files["import"]["names"], &files["equal"]), (&528.into(), &2.into()), "{files}");
    assert_eq!((&files["search"]["lines"], &files["search"]["names"]), (&12.into(), &10.into()));
    assert!(told.contains("the source and both trees have the hash"), "{told}");
    assert!(told.contains("all 4 trees are equal to the source"), "{told}");
    assert!(told.contains("Lua 5.4: the 1229 primes below 10000 add up to 5736396"), "{told}");
    for layout in ["host", "core"] {
        let flow = &figures["stops"]["offload"][layout];
        let number = |name: &str| flow[name].as_u64().unwrap_or(0);
        assert!(number("pages") > 0 && number("pages") <= number("passed") / 100, "{flow}");
        assert!(flow["packets_per_s"].as_f64() > Some(0.0), "{flow}");
    }
    assert_eq!(tours.left_behind(), [""; 0]);
}

/// A tour that has started its servers.
fn at_its_servers(tours: &Tours) -> Child {
    let mut tour = tours.command().stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tour.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("servers   3 on loopback")));
    tour
}

#[test]
fn a_signal_ends_everything() {
    for signal in [Signal::INT, Signal::KILL] {
        let tours = Tours::new(&format!("signal-{}", signal.as_raw()));
        let mut tour = at_its_servers(&tours);
        // While it compiles.
        sleep(Duration::from_millis(500));
        kill_process(Pid::from_child(&tour), signal).unwrap();
        let status = tour.wait().unwrap();
        assert!(!status.success());
        if signal == Signal::KILL {
            // The tour cannot clean up: what it started ends by itself.
            for entry in fs::read_dir(&tours.directory).unwrap() {
                fs::remove_dir_all(entry.unwrap().path()).unwrap();
            }
        }
        assert_eq!(tours.left_behind(), [""; 0], "{signal:?}");
    }
}

#[test]
fn what_is_missing_is_left_out_and_said() {
    let tours = Tours::new("missing");
    let output = tours.command().env("PATH", "/nonexistent").arg("--json").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    let why = figures["stops"]["compile"]["left_out"].as_str().unwrap();
    assert!(why.contains("no C compiler in PATH: apt-get install gcc"), "{why}");
    assert!(figures["stops"]["rdma"]["write-lat"].is_object());
    assert_eq!(figures["stops"]["cast"]["equal"], 4);
    let hidden = tours.directory.join(".hidden");
    fs::create_dir(&hidden).unwrap();
    let output = tours.command().env("TMPDIR", hidden).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("set TMPDIR"), "{output:?}");
}
