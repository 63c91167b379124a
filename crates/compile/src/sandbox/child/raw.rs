//! System calls that no library wraps safely: forking, starting programs, waiting with resource
//! usage, attributes of mounts. The only file of this crate that says `unsafe`.
//!
//! Everything here runs in processes with a single thread.

#![allow(unsafe_code, reason = "see each use")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::Duration;

use libc::{c_char, c_int, c_ulong};

/// Which side of a fork a process is on.
pub(super) enum Fork {
    Parent,
    Child,
}

/// Leaves the machine's user, mount, network, IPC and UTS namespaces.
pub(super) fn unshare() -> io::Result<()> {
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    // SAFETY: takes no memory, and no thread shares descriptors with another.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

/// Forks into new pid and mount namespaces.
pub(super) fn fork_into_namespaces() -> io::Result<Fork> {
    let flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::SIGCHLD;
    let flags = c_ulong::from(flags.unsigned_abs());
    // SAFETY: without CLONE_VM and a stack this is fork: the child goes on with a copy of all
    // memory. There is one thread, so no lock is held by another.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match pid {
        0 => Ok(Fork::Child),
        1.. => Ok(Fork::Parent),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Closes all descriptors but `kept` and the standard three, including those opened by libraries.
pub(super) fn close_others(kept: BorrowedFd<'_>) {
    let kept = kept.as_raw_fd().unsigned_abs();
    close_range(3, kept.saturating_sub(1));
    close_range(kept + 1, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    if first <= last {
        // SAFETY: takes no memory; nothing that is closed is used, or dropped, any more. A kernel
        // without the call leaves them open until a program is started.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

/// Makes the kernel reap children that end.
pub(super) fn ignore_children() {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Disables address randomization for jobs' programs: the output of some compilers depends on
/// addresses, and one source must give the same object on every server.
pub(super) fn fix_addresses() -> io::Result<()> {
    // SAFETY: the call has no arguments in memory.
    let before = unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
    if before < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes ended children wait to be reaped again, and resets signals to their defaults.
pub(super) fn default_signals() {
    for signal in [libc::SIGCHLD, libc::SIGPIPE] {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Makes a mount and all beneath it read-only.
pub(super) fn make_read_only(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let set = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID;
    let attr = libc::mount_attr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: path ends with a zero, attr is as long as it is said to be; both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A program to start, with everything that the child needs allocated beforehand.
pub(super) struct PreparedExec {
    pub(super) path: CString,
    pub(super) arguments: Vec<CString>,
    pub(super) environment: Vec<CString>,
    pub(super) directory: CString,
    pub(super) umask: u32,
    /// Resource, limit.
    pub(super) limits: Vec<(u32, u64)>,
    /// Standard input, output and error.
    pub(super) standard: [RawFd; 3],
    /// The descriptor to which the error number is written when the program cannot be started.
    pub(super) failed: RawFd,
}

/// Starts a program in a session of its own, without capabilities, with nothing open but the
/// standard three.
pub(super) fn start(program: &PreparedExec) -> io::Result<i32> {
    let arguments = pointers(&program.arguments);
    let environment = pointers(&program.environment);
    // SAFETY: there is one thread, so the child may do whatever the parent could.
    let pid = check(unsafe { libc::fork() })?;
    if pid != 0 {
        return Ok(pid);
    }
    let error = become_program(program, &arguments, &environment);
    let errno = error.raw_os_error().unwrap_or(libc::EIO).to_ne_bytes();
    // SAFETY: errno outlives the call; nothing of the parent's is undone by _exit.
    unsafe {
        libc::write(program.failed, errno.as_ptr().cast(), errno.len());
        libc::_exit(127)
    }
}

fn become_program(
    program: &PreparedExec,
    arguments: &[*const c_char],
    environment: &[*const c_char],
) -> io::Error {
    match prepare(program) {
        Ok(()) => {
            // SAFETY: both lists end with a null pointer and point to strings that live on.
            unsafe {
                libc::execve(program.path.as_ptr(), arguments.as_ptr(), environment.as_ptr())
            };
            io::Error::last_os_error()
        }
        Err(error) => error,
    }
}

fn prepare(program: &PreparedExec) -> io::Result<()> {
    // SAFETY: numbers only, and a string that ends with a zero.
    unsafe {
        check(libc::setsid())?;
        for (at, &fd) in program.standard.iter().enumerate() {
            check(libc::dup2(fd, c_int::try_from(at).unwrap_or_default()))?;
        }
        libc::umask(program.umask & 0o777);
        for &(resource, limit) in &program.limits {
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            check(libc::setrlimit(resource, &raw const limit))?;
        }
    }
    // From here on with the job's rights: its directory must not be reached with more.
    rustix::thread::set_capabilities(None, no_capabilities())?;
    // SAFETY: a string that ends with a zero.
    check(unsafe { libc::chdir(program.directory.as_ptr()) }).map(drop)
}

fn no_capabilities() -> rustix::thread::CapabilitySets {
    let none = rustix::thread::CapabilitySet::empty();
    rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// A process that ended.
pub(super) struct Dead {
    pub(super) pid: i32,
    pub(super) status: c_int,
    /// Peak memory in bytes, its own children's included.
    pub(super) largest: u64,
}

/// The result of looking for a process that has ended.
pub(super) enum Reaped {
    Dead(Dead),
    /// There are children, and none has ended.
    Alive,
    /// There is none at all.
    Nobody,
}

/// Reaps a child; `block` makes it wait for one.
pub(super) fn reap(block: bool) -> io::Result<Reaped> {
    let (mut status, mut usage) = (0, no_usage());
    let flags = if block { 0 } else { libc::WNOHANG };
    // SAFETY: both places outlive the call.
    let pid = unsafe { libc::wait4(-1, &raw mut status, flags, &raw mut usage) };
    match pid {
        0 => Ok(Reaped::Alive),
        1.. => {
            let largest = u64::try_from(usage.ru_maxrss).unwrap_or_default() << 10;
            Ok(Reaped::Dead(Dead { pid, status, largest }))
        }
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ECHILD) => Ok(Reaped::Nobody),
            error if error.kind() == io::ErrorKind::Interrupted => Ok(Reaped::Alive),
            error => Err(error),
        },
    }
}

/// Kills every process that this one can see, except itself.
pub(super) fn kill_all() {
    // SAFETY: takes no memory. An error says that there was no process, which is fine.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// CPU, user's and kernel's, of all children reaped so far.
pub(super) fn children_cpu() -> (Duration, Duration) {
    let mut usage = no_usage();
    // SAFETY: the place outlives the call, which cannot fail with these arguments.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    (duration(usage.ru_utime), duration(usage.ru_stime))
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

fn no_usage() -> libc::rusage {
    // SAFETY: all zeros is a valid value: it is numbers only.
    unsafe { std::mem::zeroed() }
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
