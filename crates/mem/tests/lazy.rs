//! Pages that are fetched when they are touched, for an ordinary user, and where the system refuses
//! it. Each case is a process of its own, which runs one test of this binary again.

use outboard_mem::{MemError, SharedRegion, Space};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{env, fs, thread};

/// Says which case the process is; nothing runs without it.
const CASE: &str = "OUTBOARD_LAZY_CASE";
const PAGES: usize = 64;
const NOBODY: u32 = 65534;

/// This binary at a path that every user can reach.
struct Copy(std::path::PathBuf);

impl Copy {
    fn new(name: &str) -> Self {
        let file = format!("outboard-lazy-{name}-{}", std::process::id());
        let copy = env::temp_dir().join(file);
        // A program of its own writes the copy: what this one has open for writing, children of
        // other tests hold open until they are started, and nobody can start it ("text file busy").
        let mut copies = Command::new("cp");
        copies.arg(env::current_exe().expect("a path")).arg(&copy);
        assert!(copies.status().expect("cp").success());
        Self(copy)
    }

    fn run(&self, case: &str, change: impl FnOnce(&mut Command)) {
        let mut child = Command::new(&self.0);
        child.args(["--exact", "the_case", "--nocapture"]).env(CASE, case).current_dir("/");
        change(&mut child);
        let output = child.output().expect("started");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("case passed"), "{output:?}");
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        fs::remove_file(&self.0).expect("removed");
    }
}

#[test]
fn an_ordinary_user_has_them_too() {
    // SAFETY: the call has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("this user is an ordinary one");
        return fill_all();
    }
    Copy::new("user").run("fill", |child| {
        child.uid(NOBODY).gid(NOBODY);
    });
}

#[test]
fn a_system_that_refuses_is_an_error_that_says_so() {
    Copy::new("refused").run("refused", |_| {});
}

#[test]
fn the_case() {
    match env::var(CASE).as_deref() {
        Ok("fill") => fill_all(),
        Ok("refused") => refused(),
        _ => return,
    }
    println!("case passed");
}

fn region() -> SharedRegion {
    // SAFETY: the call takes no pointer.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("positive");
    SharedRegion::memfd(c"lazy", PAGES * page, Space::OnDemand).expect("memory")
}

fn fill_all() {
    let region = region();
    let fill = region.fill_lazily().expect("a kernel with userfaultfd");
    let page = region.len() / PAGES;
    thread::scope(|threads| {
        let reading = threads.spawn(|| {
            (0..PAGES as u64).for_each(|at| {
                let offset = usize::try_from(at).expect("small") * page;
                assert_eq!(region.load_u64(offset), Ok(at + 1));
            });
        });
        while !reading.is_finished() {
            if let Some(offset) = fill.next() {
                let number = (offset / page) as u64 + 1;
                fill.fill(offset, &number.to_ne_bytes()).expect("filled");
            }
        }
    });
}

/// As a container's filter of system calls does it.
fn refused() {
    forbid(libc::SYS_userfaultfd);
    let error = region().fill_lazily().expect_err("forbidden");
    assert_eq!(error, MemError::Lazy { errno: libc::EPERM });
    assert!(error.to_string().contains("filter of system calls"), "{error}");
}

/// Has the kernel answer EPERM to a system call of this thread, for the rest of its life.
fn forbid(call: libc::c_long) {
    let step = |code: u32, jt, k| libc::sock_filter {
        code: u16::try_from(code).expect("16 bits"),
        jt,
        jf: 0,
        k,
    };
    let number = u32::try_from(call).expect("small");
    let denied = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        step(libc::BPF_RET | libc::BPF_K, 0, denied),
    ];
    let filter = libc::sock_fprog { len: 4, filter: steps.as_mut_ptr() };
    // SAFETY: the kernel reads the four steps, which live until both calls are over; the first call
    // takes numbers only.
    let (first, second) = unsafe {
        let no = 0 as libc::c_ulong;
        let first = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as libc::c_ulong, no, no, no);
        let mode = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
        (first, libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter))
    };
    assert_eq!((first, second), (0, 0), "{}", std::io::Error::last_os_error());
}
