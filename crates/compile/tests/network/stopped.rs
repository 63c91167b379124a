//! What a server or a client waits for is stopped (SIGSTOP), or on a disk that hangs: others are
//! served meanwhile, and the jobs that waited for it end well.

use crate::builds::{directory, write};
use crate::support::{Lab, Server, signal, stops, trial};
use libtest_mimic::Trial;
use outboard_compile::manager::{RemoteExecutor, Verdict};
use outboard_testkit::eventually;
use outboard_testkit::hung::{Hung, may_hang};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// These tests look at the processes of this one.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_stopped_sandbox_holds_up_its_own_client_alone", stopped_supervisor),
        trial("a_killed_sandbox_is_replaced_for_the_next_job", killed_supervisor),
        trial("a_sandbox_that_does_not_start_holds_up_its_own_client_alone", stopped_at_start),
        trial("a_store_that_hangs_holds_up_no_other_client", hung_store),
        trial("a_pause_of_the_client_is_not_its_servers_silence", pause),
    ]
}

/// Processes of sandboxes' supervisors.
fn supervisors() -> Vec<u32> {
    let children = fs::read_dir("/proc/self/task").expect("threads").flat_map(|task| {
        let children = task.expect("a thread").path().join("children");
        fs::read_to_string(children)
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    let is_one = |process: &String| {
        let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1) == Some(b"supervisor")
    };
    children.filter(is_one).map(|process| process.parse().expect("a number")).collect()
}

/// Functions that take a compiler half a second.
const LONG: usize = 5_000;
const NAMES: [&str; 3] = ["a.c", "b.c", "c.c"];

fn project() -> tempfile::TempDir {
    let project = directory();
    for name in NAMES {
        write(&project.path().join(name), "int x;\n");
    }
    project
}

/// Whether a sandbox's supervisor is stopped.
fn is_stopped(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:\tT"))
}

/// A source that takes a compiler half a second.
fn write_long(at: &Path) {
    let functions = (0..LONG).map(|number| format!("int f{number}(int x) {{ return x; }}\n"));
    write(at, &functions.collect::<String>());
}

fn expect_done(verdict: Option<&Verdict>) {
    assert!(matches!(verdict, Some(Verdict::Done(done)) if done.status == 0), "{verdict:?}");
}

/// Runs a job of another client's. The server has not given up yet what hangs.
fn expect_meanwhile(other: &mut Lab, at: &Path, server: &Server) {
    assert_eq!(other.run(at, &["gcc", "-c", "c.c"]).status, 0);
    assert_eq!(server.refused(), 0, "the other client waited until the server gave up");
}

fn stopped_supervisor() {
    let _alone = alone();
    let (ours, theirs) = (project(), project());
    let before = supervisors();
    let mut one = Lab::new(1, 4);
    let mut other = one.another();
    one.run(ours.path(), &["gcc", "-c", "a.c"]);
    let its = supervisors().into_iter().find(|process| !before.contains(process));
    let its = its.expect("a sandbox");
    other.run(theirs.path(), &["gcc", "-c", "a.c"]);
    write_long(&ours.path().join("a.c"));
    signal(its, Signal::STOP);
    // While the first runs, the others need a slot's sandbox that is not there yet.
    let tickets = NAMES.map(|name| one.submit(ours.path(), &["gcc", "-c", name]));
    let mut verdicts = one.until_given(1 + tickets.len() as u64);
    expect_meanwhile(&mut other, theirs.path(), &one.servers[0]);
    verdicts.extend(one.verdicts(tickets.len() - verdicts.len()));
    verdicts.iter().for_each(|(_, verdict)| expect_done(Some(verdict)));
    assert!(one.servers[0].refused() > 0, "no job has waited for the stopped sandbox");
}

fn killed_supervisor() {
    let _alone = alone();
    let project = project();
    let before = supervisors();
    let mut lab = Lab::new(1, 4);
    for _ in 0..3 {
        lab.run(project.path(), &["gcc", "-c", "a.c"]);
        let its = supervisors().into_iter().find(|process| !before.contains(process));
        let its = its.expect("a sandbox");
        signal(its, Signal::KILL);
        let tickets = NAMES.map(|name| lab.submit(project.path(), &["gcc", "-c", name]));
        lab.verdicts(tickets.len()).values().for_each(|verdict| expect_done(Some(verdict)));
        let its = format!("/proc/{its}");
        eventually("no zombie is left", || !Path::new(&its).exists());
    }
}

fn stopped_at_start() {
    let _alone = alone();
    let (ours, theirs) = (project(), project());
    let mut one = Lab::new(1, 4);
    let mut other = one.another();
    other.run(theirs.path(), &["gcc", "-c", "a.c"]);
    fs::write(stops(), "").expect("a file");
    let ticket = one.submit(ours.path(), &["gcc", "-c", "a.c"]);
    one.until_given(1);
    eventually("a supervisor stops when it starts", || supervisors().into_iter().any(is_stopped));
    expect_meanwhile(&mut other, theirs.path(), &one.servers[0]);
    fs::remove_file(stops()).expect("removed");
    expect_done(one.verdicts(1).get(&ticket));
}

fn hung_store() {
    let _alone = alone();
    if !may_hang() {
        return;
    }
    let (ours, theirs) = (project(), project());
    write(&ours.path().join("a.c"), "int of_our_own;\n");
    let mut one = Lab::accepting(1, 4);
    let mut other = one.another();
    other.run(theirs.path(), &["gcc", "-c", "a.c"]);
    let hung = Hung::over(one.servers[0].store.clone()).expect("mounted");
    let ticket = one.submit(ours.path(), &["gcc", "-c", "a.c"]);
    one.until_given(1);
    // What its files are is in the server's memory. The disk answers nothing before the end.
    expect_meanwhile(&mut other, theirs.path(), &one.servers[0]);
    expect_done(one.verdicts(1).get(&ticket));
    drop(hung);
}

/// The client's loop is given the time, and so a pause takes none.
fn pause() {
    let project = project();
    write_long(&project.path().join("a.c"));
    let mut lab = Lab::new(1, 1);
    let (begin, minute) = (Instant::now(), Duration::from_secs(60));
    let ticket = lab.submit(project.path(), &["gcc", "-c", "a.c"]);
    let mut verdicts = lab.until_given(1);
    assert!(verdicts.is_empty(), "{verdicts:?}");
    lab.executor.turn(begin + minute, &mut verdicts);
    assert_eq!(lab.counter("servers_lost"), 0);
    verdicts.extend(lab.verdicts(1));
    expect_done(verdicts.iter().find(|(of, _)| *of == ticket).map(|(_, verdict)| verdict));
    // A client that runs, and hears nothing.
    lab.submit(project.path(), &["gcc", "-c", "a.c"]);
    let mut verdicts = lab.until_given(2);
    for second in 1..600 {
        lab.executor.turn(begin + minute + Duration::from_secs(second), &mut verdicts);
    }
    let lost = verdicts.iter().any(|(_, verdict)| matches!(verdict, Verdict::Local(_)));
    assert!(lost && lab.counter("servers_lost") == 1, "{verdicts:?}");
}
