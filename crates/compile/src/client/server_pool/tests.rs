//! An executor whose files and compilers do not respond. It has no servers: a job that can be
//! prepared runs locally because of that.

use super::placing::Ready;
use super::*;
use crate::args::{Classification, CompilerCall, Job, classify};
use crate::protocol::{Made, Took};
use outboard_testkit::eventually;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set in the environment of a child that runs in its own namespaces.
const ALONE: &str = "OUTBOARD_TEST_ALONE";

/// Runs a test of this module in its own user and mount namespaces.
fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("client::server_pool::tests::{name}"), "--nocapture"]);
    let output = command.env(ALONE, "1").output().expect("util-linux's unshare");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn executor() -> ServerPool {
    let dial: Dial = Arc::new(|_, _| Err("nobody".into()));
    ServerPool::new(Vec::new(), dial, "test".into(), Toolchains::new(None)).expect("an executor")
}

/// A directory of this test, with a source.
fn project(name: &str) -> PathBuf {
    let at = std::env::temp_dir().join(format!("outboard-executor-{name}-{}", std::process::id()));
    fs::create_dir_all(&at).unwrap();
    fs::write(at.join("a.c"), "int a;\n").unwrap();
    at.canonicalize().unwrap()
}

fn submit(executor: &mut ServerPool, ticket: u64, compiler: PathBuf, cwd: &Path) {
    executor.submit(Ticket(ticket), job(compiler, cwd));
}

fn job(compiler: PathBuf, cwd: &Path) -> Job {
    let argv = ["gcc", "-c", "a.c"].map(Into::into).to_vec();
    let (cwd, path) = (cwd.into(), "/usr/bin:/bin".into());
    let Classification::Remote(job) =
        classify(CompilerCall { compiler, argv, cwd, path, ..CompilerCall::default() })
    else {
        panic!("it is plain")
    };
    *job
}

/// The result of a server's compiler for a job in `cwd`.
fn made(cwd: &Path) -> Ready {
    use std::os::unix::ffi::OsStrExt;
    let path = cwd.join("a.o").as_os_str().as_bytes().to_vec();
    let made = Made { path, mode: 0o644, len: 3 };
    let (files, took) = (vec![made], Took::default());
    let ran = Ran { slot: 0, status: 0, stdout: 0, stderr: 0, files, len: 3, hash: [0; 32], took };
    let results = Results::of(b"abc".to_vec(), &ran);
    let job = Arc::new(job("/usr/bin/gcc".into(), cwd));
    Ready { job, ran, results, trace: Trace::default() }
}

/// The next `count` verdicts; waits until they are there.
fn verdicts(executor: &mut ServerPool, count: usize) -> Vec<(Ticket, Verdict)> {
    let mut verdicts = Vec::new();
    eventually("the next verdicts", || {
        executor.turn(Instant::now(), &mut verdicts);
        verdicts.len() >= count
    });
    verdicts
}

/// The verdicts of an executor that stands still for an hour and then runs for some seconds.
fn after_a_pause(executor: &mut ServerPool, seconds: u64) -> Vec<(Ticket, Verdict)> {
    let (now, mut verdicts) = (Instant::now() + Duration::from_secs(3600), Vec::new());
    for second in 0..seconds {
        executor.turn(now + Duration::from_secs(second), &mut verdicts);
    }
    verdicts
}

/// The next `count` jobs that run locally, and why; sleeps until then.
fn gone(executor: &mut ServerPool, count: usize) -> Vec<(u64, Cause)> {
    let gone =
        verdicts(executor, count).into_iter().map(|(Ticket(ticket), verdict)| match verdict {
            Verdict::Local(reason) => (ticket, reason.cause),
            other => panic!("{other:?}"),
        });
    let mut gone: Vec<_> = gone.collect();
    gone.sort_unstable();
    gone
}

/// The next job that runs locally, and why.
fn next(executor: &mut ServerPool) -> (u64, Cause) {
    gone(executor, 1)[0]
}

/// Mounts a FUSE file system without a server: every access to it waits.
fn hang(at: &Path) -> fs::File {
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
    rustix::io::fcntl_setfd(&device, rustix::io::FdFlags::empty()).unwrap();
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let mut mount = Command::new("mount");
    mount.args(["-i", "-t", "fuse", "-o", &options, "none"]).arg(at);
    assert!(mount.status().unwrap().success());
    device
}

#[test]
fn an_output_directory_that_hangs_stops_only_its_own_job() {
    alone("an_output_directory_that_hangs_stops_only_its_own_job", || {
        let (at, hung) = (project("placed"), project("unplaced"));
        let mut executor = executor();
        let device = hang(&hung);
        let begin = Instant::now();
        executor.place(1, made(&hung), begin);
        executor.place(2, made(&at), begin);
        assert!(executor.is_claimed(Ticket(1)));
        let done = verdicts(&mut executor, 1).remove(0);
        assert!(matches!(done, (Ticket(2), Verdict::Done(_))), "{done:?}");
        assert_eq!(fs::read(at.join("a.o")).unwrap(), b"abc");
        assert!(executor.is_claimed(Ticket(1)), "the other job was waited for");
        let early = after_a_pause(&mut executor, 8);
        assert!(early.is_empty(), "{early:?}");
        let late = after_a_pause(&mut executor, 60);
        assert!(matches!(&late[..], [(Ticket(1), Verdict::Local(_))]), "{late:?}");
        assert!(!executor.is_claimed(Ticket(1)));
        executor.place(3, made(&hung), begin);
        executor.cancel(Ticket(3));
        assert!(executor.placings.is_empty(), "a cancelled job is not waited for");
        drop(device);
    });
}

#[test]
fn a_compiler_that_does_not_answer_stops_only_its_own_jobs() {
    let (at, mut executor) = (project("mute"), executor());
    let gcc = at.join("gcc");
    // Opening it waits for a writer that never comes.
    assert!(Command::new("mkfifo").arg(&gcc).status().unwrap().success());
    submit(&mut executor, 1, gcc, &at);
    submit(&mut executor, 2, "/usr/bin/gcc".into(), &at);
    assert_eq!(next(&mut executor), (2, Cause::NoServers));
    assert!(executor.is_claimed(Ticket(1)), "it is being looked at");
    assert_eq!(next(&mut executor), (1, Cause::Unanswered));
    fs::remove_dir_all(at).unwrap();
}

#[test]
fn a_file_system_that_hangs_stops_only_its_own_jobs() {
    alone("a_file_system_that_hangs_stops_only_its_own_jobs", || {
        let (at, hung) = (project("here"), project("hung"));
        let mut executor = executor();
        submit(&mut executor, 1, "/usr/bin/gcc".into(), &at);
        assert_eq!(next(&mut executor), (1, Cause::NoServers));
        let device = hang(&hung);
        submit(&mut executor, 2, "/usr/bin/gcc".into(), &hung);
        submit(&mut executor, 3, "/usr/bin/gcc".into(), &at);
        assert_eq!(gone(&mut executor, 2), [(2, Cause::Unanswered), (3, Cause::Unanswered)]);
        assert_eq!(executor.hung.len(), 1);
        submit(&mut executor, 4, "/usr/bin/gcc".into(), &hung);
        assert_eq!(next(&mut executor), (4, Cause::Unanswered));
        submit(&mut executor, 5, "/usr/bin/gcc".into(), &at);
        assert_eq!(next(&mut executor), (5, Cause::NoServers));
        // Closing the device wakes the thread that waits.
        drop(device);
        eventually("the thread that hung ends", || {
            executor.hung.retain(|hung| !hung.is_over());
            executor.hung.is_empty()
        });
    });
}
