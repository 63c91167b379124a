//! What a server or a client waits for is stopped (SIGSTOP), or on a disk that hangs: others are
//! served meanwhile, and the jobs that waited for it end well.

use crate::builds::{directory, write};
use crate::hung::{Hung, may_hang};
use crate::support::{Lab, signal, stops, trial};
use libtest_mimic::Trial;
use outboard_compile::manager::{RemoteExecutor, Ticket, Verdict};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a job of another client may take: less than a server waits for a sandbox that hangs.
const SOON: Duration = Duration::from_secs(8);

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

/// Runs a job of a client's, which must be there soon.
fn expect_soon(lab: &mut Lab, at: &Path) {
    let start = Instant::now();
    let finished = lab.run(at, &["gcc", "-c", "c.c"]);
    assert_eq!(finished.status, 0);
    assert!(start.elapsed() < SOON, "another client waited for {:?}", start.elapsed());
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
    let functions = (0..LONG).map(|number| format!("int f{number}(int x) {{ return x; }}\n"));
    write(&ours.path().join("a.c"), &functions.collect::<String>());
    signal(its, Signal::STOP);
    // While the first runs, the others need a slot's sandbox that is not there yet.
    let tickets = NAMES.map(|name| one.submit(ours.path(), &["gcc", "-c", name]));
    let mut verdicts = turn_for_a_while(&mut one);
    assert!(verdicts.len() < tickets.len(), "no job waits: nothing is tested");
    expect_soon(&mut other, theirs.path());
    verdicts.extend(one.verdicts(tickets.len() - verdicts.len()));
    for (ticket, verdict) in verdicts {
        assert!(
            matches!(&verdict, Verdict::Done(done) if done.status == 0),
            "{ticket:?} {verdict:?}"
        );
    }
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
        for (ticket, verdict) in lab.verdicts(tickets.len()) {
            assert!(
                matches!(&verdict, Verdict::Done(done) if done.status == 0),
                "{ticket:?} {verdict:?}"
            );
        }
        let start = Instant::now();
        while Path::new(&format!("/proc/{its}")).exists() {
            assert!(start.elapsed() < SOON, "a zombie is left");
            std::thread::sleep(Duration::from_millis(10));
        }
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
    turn_for_a_while(&mut one);
    expect_soon(&mut other, theirs.path());
    fs::remove_file(stops()).expect("removed");
    let verdict = one.verdicts(1).remove(&ticket).expect("a verdict");
    assert!(matches!(&verdict, Verdict::Done(done) if done.status == 0), "{verdict:?}");
}

/// Lets a client go on for a while.
fn turn_for_a_while(lab: &mut Lab) -> Vec<(Ticket, Verdict)> {
    let (start, mut verdicts) = (Instant::now(), Vec::new());
    while start.elapsed() < Duration::from_millis(500) {
        let executor = &mut lab.executor;
        RemoteExecutor::turn(executor, Instant::now(), &mut verdicts);
        std::thread::sleep(Duration::from_millis(10));
    }
    verdicts
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
    one.submit(ours.path(), &["gcc", "-c", "a.c"]);
    assert!(turn_for_a_while(&mut one).is_empty(), "the job does not wait: nothing is tested");
    // What its files are is in the server's memory.
    expect_soon(&mut other, theirs.path());
    let verdict = one.verdicts(1).into_values().next();
    assert!(matches!(&verdict, Some(Verdict::Done(done)) if done.status == 0), "{verdict:?}");
    drop(hung);
}
