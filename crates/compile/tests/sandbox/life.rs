//! Which processes end together with which others, and which users may start a sandbox.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use libtest_mimic::Trial;
use outboard_compile::sandbox::{
    JobEnd, Launch, SandboxError, SandboxSupervisor, SlotSandbox, check,
};
use outboard_testkit::eventually;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cost::slot_sandboxes_of;
use crate::support::{NOBODY, Server, job, launch, toolchain, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_machine_is_checked", a_machine_is_checked),
        trial("jobs_never_run_as_root", jobs_never_run_as_root),
        trial("all_ends_with_the_service", all_ends_with_the_service),
        trial("a_slot_sandbox_that_died_is_replaced", a_slot_sandbox_that_died_is_replaced),
        trial(
            "what_a_job_left_that_never_ended_is_not_the_nexts",
            what_a_job_left_that_never_ended_is_not_the_nexts,
        ),
        trial("a_cancelled_job_hits_no_other", a_cancelled_job_hits_no_other),
        trial("an_ordinary_user_can_do_all_of_it", an_ordinary_user_can_do_all_of_it),
        trial("a_supervisor_leaves_nothing", a_supervisor_leaves_nothing),
    ]
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn a_machine_is_checked() {
    check(&launch()).unwrap();
    let other = Launch { program: "/usr/bin/false".into(), ..launch() };
    assert!(check(&other).unwrap_err().to_string().contains("supervisor is gone"));
    let none = Launch { program: "/nowhere/outboard".into(), ..launch() };
    assert!(check(&none).unwrap_err().to_string().contains("/nowhere/outboard"));
}

fn jobs_never_run_as_root() {
    if !is_root() {
        return;
    }
    let error = SandboxSupervisor::start(&Launch { identity: None, ..launch() }).unwrap_err();
    assert!(matches!(error, SandboxError::SetUp { .. }), "{error}");
    assert!(error.to_string().contains("root"), "{error}");
}

/// Runs as a service: starts a job that never ends, and prints the processes that work for it.
pub(crate) fn be_a_service() -> ! {
    let home = tempfile::Builder::new().prefix("home").tempdir().unwrap();
    let server = Server::start(2, &[home.path()], toolchain(&["/usr/bin/sleep"]));
    server.view.begin(0, outboard_compile::view::Places::default()).unwrap();
    let sleep = ["/usr/bin/sleep", "1000"].map(OsStr::new);
    server.slot_sandboxes[0].lock().unwrap().start(&job(Path::new("/"), &sleep)).unwrap();
    // The test kills this process, which cannot clean up then.
    home.close().unwrap();
    let supervisor = server.supervisor.id();
    let slot_sandboxes = slot_sandboxes_of(supervisor);
    let jobs = || -> Vec<_> {
        slot_sandboxes
            .iter()
            .flat_map(|slot_sandbox| slot_sandboxes_of(slot_sandbox.parse().unwrap()))
            .collect()
    };
    while jobs().is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    println!("{supervisor} {} {}", slot_sandboxes.join(" "), jobs().join(" "));
    loop {
        thread::park();
    }
}

/// Waits for the end of all processes.
fn expect_gone(processes: &[String]) {
    let is_there = |process: &String| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        !status.is_empty() && !status.contains("State:\tZ")
    };
    eventually("the processes end", || !processes.iter().any(is_there));
}

fn all_ends_with_the_service() {
    let mut command = Command::new("/proc/self/exe");
    command.arg("service").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut service = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(service.stdout.take().unwrap()).read_line(&mut line).unwrap();
    // Before any check that can fail, so that the process does not remain.
    service.kill().unwrap();
    service.wait().unwrap();
    let processes: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    assert_eq!(processes.len(), 4, "{line}");
    expect_gone(&processes);
}

fn a_supervisor_leaves_nothing() {
    let home = tempfile::Builder::new().prefix("home").tempdir().unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let Server { supervisor, slot_sandboxes, view, .. } =
        Server::start(3, &[home.path()], toolchain(&["/usr/bin/true"]));
    let processes = slot_sandboxes_of(supervisor.id());
    assert_eq!(processes.len(), 3);
    drop(supervisor);
    expect_gone(&processes);
    let truth = [OsStr::new("/usr/bin/true")];
    assert!(slot_sandboxes[0].lock().unwrap().run(&job(Path::new("/"), &truth)).is_err());
    drop(view);
    // The sandbox's mounts were never visible outside.
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), mounts);
}

fn a_slot_sandbox_that_died_is_replaced() {
    let home = tempfile::Builder::new().prefix("home").tempdir().unwrap();
    let server = Server::start(1, &[home.path()], toolchain(&["/usr/bin/true", "/usr/bin/sleep"]));
    let sleep = job(Path::new("/"), &["/usr/bin/sleep", "1000"].map(OsStr::new));
    let mut slot_sandbox = server.slot_sandboxes[0].lock().unwrap();
    server.view.begin(0, outboard_compile::view::Places::default()).unwrap();
    slot_sandbox.start(&sleep).unwrap();
    let process = slot_sandboxes_of(server.supervisor.id()).pop().unwrap();
    let pid = rustix::process::Pid::from_raw(process.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let end = slot_sandbox.wait();
    assert!(matches!(end, Err(SandboxError::Gone { what: "slot's sandbox", .. })), "{end:?}");
    server.view.finish(0).unwrap();
    *slot_sandbox = server.supervisor.slot_sandbox(&server.spec).unwrap();
    drop(slot_sandbox);
    let (ended, _) = server.run(0, &job(Path::new("/"), &[OsStr::new("/usr/bin/true")]));
    assert_eq!(ended.end, JobEnd::Exited(0));
}

fn what_a_job_left_that_never_ended_is_not_the_nexts() {
    let home = tempfile::Builder::new().prefix("home").tempdir().unwrap();
    let server = Server::start(1, &[home.path()], toolchain(&["/usr/bin/cat"]));
    let source = home.path().join("secret.i");
    let path = source.as_os_str().as_bytes().to_vec();
    let places = vec![home.path().as_os_str().as_bytes().to_vec()];
    server.view.begin_alone(0, places, (path, b"int secret;".to_vec())).unwrap();
    let words = [OsStr::new("/usr/bin/cat"), source.as_os_str()];
    let (ended, outcome) = server.run(0, &job(Path::new("/"), &words));
    assert_eq!((ended.end, &*ended.stdout), (JobEnd::Exited(1), &b""[..]));
    assert_eq!(outcome.source, None);
}

fn a_cancelled_job_hits_no_other() {
    let home = tempfile::Builder::new().prefix("home").tempdir().unwrap();
    let server = Server::start(2, &[home.path()], toolchain(&["/usr/bin/cat"]));
    for slot in 0..2 {
        fs::write(home.path().join(format!("{slot}.h")), "text").unwrap();
    }
    server.source.list_all(&[home.path()]);
    // Contents are asked for, and nobody answers.
    server.source.silent.store(true, Ordering::Relaxed);
    let mut slot_sandboxes: Vec<_> =
        server.slot_sandboxes.iter().map(|slot| slot.lock().unwrap()).collect();
    for (slot, slot_sandbox) in slot_sandboxes.iter_mut().enumerate() {
        let file = home.path().join(format!("{slot}.h"));
        server.view.begin(slot, outboard_compile::view::Places::default()).unwrap();
        let words = [OsStr::new("/usr/bin/cat"), file.as_os_str()];
        slot_sandbox.start(&job(Path::new("/"), &words)).unwrap();
    }
    let has_ended = |slot_sandbox: &SlotSandbox, milliseconds: i64| {
        let limit = Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
        poll(&mut [PollFd::new(slot_sandbox, PollFlags::IN)], Some(&limit)).unwrap() > 0
    };
    eventually("both read", || server.view.upcalls().waits == 2);
    server.view.cancel(0);
    assert_eq!(slot_sandboxes[0].wait().unwrap().end, JobEnd::Exited(1));
    let is_hit = has_ended(&slot_sandboxes[1], 300);
    server.view.cancel(1);
    assert_eq!(slot_sandboxes[1].wait().unwrap().end, JobEnd::Exited(1));
    drop(slot_sandboxes);
    (0..2).for_each(|slot| drop(server.view.finish(slot).unwrap()));
    assert!(!is_hit, "it still waits");
}

/// Ordinary users can do everything that root can do here: runs these tests again without root.
fn an_ordinary_user_can_do_all_of_it() {
    if !is_root() {
        return;
    }
    for name in ["gcc_makes_what_it_makes_locally", "a_job_can_do_nothing_but_compile"] {
        let mut command = Command::new("/proc/self/exe");
        command.args(["--exact", name]).uid(NOBODY).gid(NOBODY).current_dir("/");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut tests = command.spawn().unwrap();
        let mut said = String::new();
        tests.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(tests.wait().unwrap().success() && said.contains("1 passed"), "{name}: {said}");
    }
}
