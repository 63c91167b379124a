//! The system calls that are denied to a job: those that reach further parts of the kernel or lead
//! out of the sandbox. Everything that a compiler needs is allowed.
//!
//! System calls of other architectures (32-bit, x32) end the process; calls newer than this table
//! fail as if they did not exist.

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, sock_filter,
};

/// Refused with EPERM, whatever the arguments.
const FORBIDDEN: &[c_long] = &[
    // Sockets of any kind.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    // Namespaces, mounts, roots.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    // Other processes' memory and files.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Large parts of the kernel that no compiler needs.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_fanotify_init,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_vhangup,
    libc::SYS_acct,
    libc::SYS_syslog,
    // Memory that belongs to no process and is not accounted for.
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_shmget,
    libc::SYS_semget,
    libc::SYS_msgget,
    libc::SYS_mq_open,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// Refused with EPERM on x86-64, the only architecture that has them.
#[cfg(target_arch = "x86_64")]
const FORBIDDEN_HERE: &[c_long] =
    &[libc::SYS_ioperm, libc::SYS_iopl, libc::SYS_modify_ldt, libc::SYS_uselib, libc::SYS__sysctl];
#[cfg(not(target_arch = "x86_64"))]
const FORBIDDEN_HERE: &[c_long] = &[];

/// Refused with ENOSYS: the C library then uses older calls.
const UNKNOWN: &[c_long] = &[
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// The last call that was considered for this table (`set_mempolicy_home_node`); later ones fail
/// with ENOSYS. The number is the same on all architectures of today.
const LAST: u32 = 450;
/// Calls of x32 have this bit.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// Flags of `clone` that make namespaces.
const NAMESPACES: &[libc::c_int] = &[
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Installs the filter on this process and all that it will start. It cannot be removed.
///
/// # Errors
/// When the kernel rejects the filter.
pub(super) fn apply() -> io::Result<()> {
    let forbidden = compile(forbidden().map_err(io::Error::other)?, libc::EPERM)?;
    let unknown = UNKNOWN.iter().map(|&call| (call, Vec::new())).collect();
    let unknown = compile(unknown, libc::ENOSYS)?;
    for program in [numbers(), unknown, forbidden] {
        apply_filter(&program).map_err(io::Error::other)?;
    }
    Ok(())
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn compile(rules: Rules, errno: i32) -> io::Result<BpfProgram> {
    let arch: TargetArch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let refused = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch);
    filter.and_then(TryInto::try_into).map_err(io::Error::other)
}

fn forbidden() -> Result<Rules, seccompiler::BackendError> {
    let whole = FORBIDDEN.iter().chain(FORBIDDEN_HERE).map(|&call| (call, Vec::new()));
    let mut rules: Rules = whole.collect();
    let namespaces = NAMESPACES.iter().map(|&flag| {
        let flag = u64::from(flag.unsigned_abs());
        rule(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)
    });
    rules.insert(libc::SYS_clone, namespaces.collect::<Result<_, _>>()?);
    // Without flags, or only queried.
    let plain = |value| condition(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value);
    let other = SeccompRule::new(vec![plain(0)?, plain(0xffff_ffff)?])?;
    rules.insert(libc::SYS_personality, vec![other]);
    // Input faked as typed at a terminal.
    let typing = [libc::TIOCSTI, libc::TIOCLINUX]
        .map(|request| rule(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, request));
    rules.insert(libc::SYS_ioctl, typing.into_iter().collect::<Result<_, _>>()?);
    Ok(rules)
}

fn condition(
    argument: u8,
    length: SeccompCmpArgLen,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, length, operator, value)
}

fn rule(
    argument: u8,
    length: SeccompCmpArgLen,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![condition(argument, length, operator, value)?])
}

/// Calls of x32 end the process, unknown ones fail with ENOSYS. The library cannot express this; it
/// checks the architecture itself.
fn numbers() -> BpfProgram {
    let load = statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0);
    let refuse = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    let mut program = vec![load];
    #[cfg(target_arch = "x86_64")]
    program.extend([
        jump(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, X32, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS),
    ]);
    program.extend([
        jump(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, LAST, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, refuse),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ]);
    program
}

fn statement(code: u32, k: u32) -> sock_filter {
    jump(code, k, 0, 0)
}

fn jump(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: u16::try_from(code).unwrap_or_default(), jt, jf, k }
}
