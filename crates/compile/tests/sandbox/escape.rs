//! Attempts to break out of a sandbox, made by a hostile program that is compiled here and run as a
//! job.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use libtest_mimic::Trial;
use outboard_compile::sandbox::{Bind, FinishedJob, JobEnd, SandboxJob};
use outboard_compile::view::{JobChanges, Why};

use crate::support::{Server, job, libraries, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_job_can_do_nothing_but_compile", a_job_can_do_nothing_but_compile),
        trial(
            "what_is_not_shown_sends_a_job_to_the_local_compiler",
            what_is_not_shown_sends_a_job_to_the_local_compiler,
        ),
        trial("a_job_that_takes_too_much_is_stopped", a_job_that_takes_too_much_is_stopped),
        trial("changes_come_out_and_go_away", changes_come_out_and_go_away),
        trial("nothing_is_left_of_a_job", nothing_is_left_of_a_job),
        trial(
            "however_deep_a_jobs_directories_are_nothing_is_left",
            however_deep_a_jobs_directories_are_nothing_is_left,
        ),
    ]
}

/// Each of the program's commands returns 0 when its attempt has succeeded.
const HOSTILE: &str = include_str!("hostile.c");

struct Prison {
    home: tempfile::TempDir,
    server: Server,
}

impl Prison {
    fn new() -> Self {
        let home = tempfile::Builder::new().prefix("home").tempdir().unwrap();
        let source = home.path().join("hostile.c");
        fs::write(&source, HOSTILE).unwrap();
        let program = home.path().join("hostile");
        let mut gcc = Command::new("gcc");
        gcc.arg("-O1").arg("-o").arg(&program).arg(&source);
        assert!(gcc.status().unwrap().success());
        fs::write(home.path().join(".secret"), "secret").unwrap();
        let binds = libraries(&program).into_iter().chain([PathBuf::from("/usr/bin/true")]);
        let binds = binds.map(|path| Bind::locally(&path).unwrap()).collect();
        let server = Server::start(1, &[home.path()], binds);
        Self { home, server }
    }

    fn job(&self, arguments: &[&str]) -> SandboxJob {
        let program = self.home.path().join("hostile");
        let mut all = vec![program.as_os_str()];
        all.extend(arguments.iter().map(OsStr::new));
        job(self.home.path(), &all)
    }

    fn run(&self, arguments: &[&str]) -> (FinishedJob, JobChanges) {
        self.server.run(0, &self.job(arguments))
    }
}

/// The attempts, one after the other.
const ATTEMPTS: &[&str] = &[
    "socket-inet",
    "socket-unix",
    "socket-netlink",
    "socketpair",
    "mount",
    "umount",
    "unshare-user",
    "unshare-mount",
    "clone-user",
    "clone-pid",
    "clone3",
    "setns",
    "chroot",
    "pivot",
    "ptrace-init",
    "ptrace-child",
    "kill-init",
    "stop-init",
    "read-init-memory",
    "init-root",
    "init-cwd",
    "init-fds",
    "bpf",
    "io-uring",
    "keyctl",
    "add-key",
    "perf",
    "userfaultfd",
    "personality",
    "memfd",
    "shm",
    "fallocate",
    "many-files",
    "mknod",
    "setuid",
    "raise-limit",
    "sethostname",
    "x32",
    "capset",
    "write-root",
    "write-usr",
    "write-toolchain",
    "write-dev",
    "chmod-toolchain",
    "sysrq",
    "host-processes",
    "open-tree",
    "dumpable-init",
    "tiocsti",
];

fn a_job_can_do_nothing_but_compile() {
    let prison = Prison::new();
    assert_eq!(prison.run(&["nothing"]).0.end, JobEnd::Exited(0));
    for &attempt in ATTEMPTS {
        let (ended, _) = prison.run(&[attempt]);
        let harmless = match ended.end {
            JobEnd::Exited(status) => status == 1,
            // A system call of another architecture.
            JobEnd::Signalled(libc::SIGSYS) => attempt == "x32",
            _ => false,
        };
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(harmless, "{attempt}: {:?} {said}", ended.end);
    }
    // And the slot sandbox still works.
    assert_eq!(prison.run(&["nothing"]).0.end, JobEnd::Exited(0));
}

fn what_is_not_shown_sends_a_job_to_the_local_compiler() {
    let prison = Prison::new();
    let secret = prison.home.path().join(".secret");
    let [key, other_key] = ["root", "home/somebody"].map(|home| format!("/{home}/.ssh/id_rsa"));
    let other = std::env::temp_dir().join("other-of-the-client");
    fs::write(&other, "other").unwrap();
    let absent = std::env::temp_dir().join("what-the-client-does-not-have");
    let shared = Path::new("/dev/shm/header-of-the-client");
    fs::write(shared, "shared").unwrap();
    for (path, why) in [
        (secret.to_str().unwrap(), Some(Why::Withheld)),
        (&key, Some(Why::Outside)),
        (&other_key, Some(Why::Outside)),
        (other.to_str().unwrap(), Some(Why::Outside)),
        ("/etc/shadow", Some(Why::Outside)),
        ("/etc/passwd", Some(Why::Outside)),
        ("/proc/version", Some(Why::Outside)),
        ("/usr/bin/env", Some(Why::Outside)),
        (shared.to_str().unwrap(), Some(Why::Outside)),
        // The client says that it has no such file.
        (absent.to_str().unwrap(), None),
        ("/usr/local/bin/no-such-program", None),
        // The loader looks for it by itself.
        ("/etc/ld.so.cache", None),
    ] {
        let (ended, outcome) = prison.run(&["read", path]);
        assert_eq!(ended.end, JobEnd::Exited(1), "{path}");
        assert_eq!(outcome.refused.map(|refused| refused.why), why, "{path}");
    }
    fs::remove_file(other).unwrap();
    fs::remove_file(shared).unwrap();
}

fn a_job_that_takes_too_much_is_stopped() {
    let prison = Prison::new();
    let with = |arguments: &[&str], change: &dyn Fn(&mut SandboxJob)| {
        let mut job = prison.job(arguments);
        job.limits.memory = 300 << 20;
        job.limits.wall = Duration::from_secs(20);
        change(&mut job);
        prison.server.run(0, &job)
    };
    let much = |job: &mut SandboxJob| job.limits.memory = 4 << 30;
    assert_eq!(with(&["fork-bomb"], &much).0.end, JobEnd::OutOfProcesses);
    assert_eq!(with(&["allocate-in-many"], &|_| {}).0.end, JobEnd::OutOfMemory);
    let small = |job: &mut SandboxJob| job.limits.address_space = 100 << 20;
    assert_eq!(with(&["allocate"], &small).0.end, JobEnd::Exited(1));
    let short = |job: &mut SandboxJob| job.limits.wall = Duration::from_millis(300);
    assert_eq!(with(&["sleep"], &short).0.end, JobEnd::OutOfTime);
    assert_eq!(with(&["spin"], &short).0.end, JobEnd::OutOfTime);
    let cpu = |job: &mut SandboxJob| job.limits.cpu_seconds = 1;
    assert_eq!(with(&["spin"], &cpu).0.end, JobEnd::Signalled(libc::SIGKILL));
    let (ended, _) = with(&["talk"], &|job| job.limits.output = 1 << 20);
    assert_eq!((ended.end, ended.stdout.len()), (JobEnd::OutOfOutput, 1 << 20));
    let file = |job: &mut SandboxJob| job.limits.file = 1 << 20;
    assert_eq!(with(&["fill", "big"], &file).0.end, JobEnd::Signalled(libc::SIGXFSZ));
    // More than the view lets a job write, and more than its temporary directory has.
    assert_eq!(with(&["fill", "big"], &|_| {}).0.end, JobEnd::Exited(1));
    assert_eq!(with(&["fill", "/.outboard/tmp/big"], &|_| {}).0.end, JobEnd::Exited(1));
    // Files in memory count against the limit as processes' memory does.
    let files = |job: &mut SandboxJob| job.limits.memory = 40 << 20;
    assert_eq!(with(&["keep", "/.outboard/tmp/big"], &files).0.end, JobEnd::OutOfMemory);
    assert_eq!(prison.run(&["nothing"]).0.end, JobEnd::Exited(0));
}

fn however_deep_a_jobs_directories_are_nothing_is_left() {
    let prison = Prison::new();
    let (ended, _) = prison.run(&["deep"]);
    assert_eq!(ended.end, JobEnd::Exited(0), "{}", String::from_utf8_lossy(&ended.stderr));
    let (ended, _) = prison.run(&["anything-left"]);
    assert_eq!(ended.end, JobEnd::Exited(1), "{}", String::from_utf8_lossy(&ended.stderr));
}

fn nothing_is_left_of_a_job() {
    let prison = Prison::new();
    let (ended, outcome) = prison.run(&["leave"]);
    assert_eq!(ended.end, JobEnd::Exited(0), "{}", String::from_utf8_lossy(&ended.stderr));
    let left: Vec<_> =
        outcome.created.iter().map(|made| Path::new(OsStr::from_bytes(&made.path))).collect();
    assert_eq!(left, [prison.home.path().join("left")]);
    let (ended, outcome) = prison.run(&["anything-left"]);
    assert_eq!(ended.end, JobEnd::Exited(1), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(outcome.created, []);
}

fn changes_come_out_and_go_away() {
    let prison = Prison::new();
    let home = prison.home.path();
    for name in ["client", "gone"] {
        fs::write(home.join(name), name).unwrap();
    }
    fs::create_dir(home.join("dir")).unwrap();
    let bytes = |name: &str| home.join(name).as_os_str().as_bytes().to_vec();
    for _ in 0..2 {
        let (ended, outcome) = prison.run(&["change"]);
        assert_eq!(ended.end, JobEnd::Exited(0), "{}", String::from_utf8_lossy(&ended.stderr));
        let made: Vec<_> = outcome.created.iter().map(|made| (&made.path, made.mode)).collect();
        assert_eq!(made, [(&bytes("renamed"), 0o640)]);
        assert_eq!(outcome.directories, [bytes("made"), bytes("made/deep")]);
        let moved: Vec<_> = outcome.renamed.iter().map(|(path, _)| path.clone()).collect();
        assert_eq!(moved, [bytes("made/moved")]);
        // Removing the job's own files is no loss.
        assert_eq!(outcome.deleted, [bytes("client"), bytes("gone")]);
        assert_eq!(outcome.refused, None);
    }
    assert_eq!(fs::read(home.join("client")).unwrap(), b"client");
    // A job that asks for something that a view cannot do runs locally.
    for attempt in ["append", "link", "symlink", "rename-dir"] {
        let (ended, outcome) = prison.run(&[attempt]);
        assert_eq!(ended.end, JobEnd::Exited(1), "{attempt}");
        assert_eq!(outcome.refused.map(|refused| refused.why), Some(Why::Unsupported), "{attempt}");
    }
}
