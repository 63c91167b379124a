//! The supervisor: creates the client's namespaces, mounts its view, and forks a slot sandbox for
//! each slot.

use std::convert::Infallible;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use rustix::process::{chdir, getgid, getuid, pivot_root};

use super::super::channel::{SandboxChannel, SetUp, SetUpFailure, ToSupervisor};
use super::{At, SetUpResult, init, raw};

/// Where the supervisor finds the machine's own files.
pub(super) const HOST: &str = "/host";
/// Where the view is mounted.
pub(super) const VIEW: &str = "/view";
/// Where a slot sandbox builds its root.
pub(super) const SLOT_ROOT: &str = "/slot_sandbox";

/// The main function of a supervisor's process: the program calls it when it gets the arguments of
/// a [`super::super::Launch`], before it has started a thread. Its standard input is the channel to
/// the service.
pub fn supervisor_main() -> ExitCode {
    let Ok(channel) = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) else {
        return ExitCode::FAILURE;
    };
    let channel = SandboxChannel::from(channel);
    let Err(failure) = serve(&channel);
    // If the service is gone, the failure cannot be reported.
    let _ = channel.send(&SetUp::Failed(failure), &[]);
    ExitCode::FAILURE
}

/// Sets up, then forks slot sandboxes until the service is gone.
fn serve(channel: &SandboxChannel) -> SetUpResult<Infallible> {
    quiet_stdin().at("open /dev/null")?;
    raw::close_others(channel.as_fd());
    enter_namespaces()?;
    let fuse = mount_view()?;
    raw::ignore_children();
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .at("become untraceable")?;
    channel.send(&SetUp::Ready, &[fuse.as_fd()]).at("answer the service")?;
    // An open copy of the device would keep the view alive after the service.
    drop(fuse);
    loop {
        let (ToSupervisor::SlotSandbox(spec), fds) =
            channel.receive().at("receive from the service")?;
        let Some(fd) = fds.into_iter().next() else {
            continue;
        };
        match raw::fork_into_namespaces() {
            Ok(raw::Fork::Parent) => {}
            Ok(raw::Fork::Child) => init::run(&spec, &SandboxChannel::from(fd)),
            Err(error) => {
                let failed: SetUpResult<()> =
                    Err(error).at("clone with new pid and mount namespaces");
                if let Err(failure) = failed {
                    let _ = SandboxChannel::from(fd).send(&SetUp::Failed(failure), &[]);
                }
            }
        }
    }
}

/// Replaces standard input, which is the channel, and standard output by `/dev/null`, so that no
/// slot sandbox inherits the channel.
fn quiet_stdin() -> rustix::io::Result<()> {
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)
}

fn enter_namespaces() -> SetUpResult<()> {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    if uid == 0 || gid == 0 {
        return Err(SetUpFailure { step: ROOT.to_owned(), errno: libc::EPERM });
    }
    raw::unshare().at("unshare user, mount, network, IPC and UTS namespaces")?;
    fs::write("/proc/self/setgroups", "deny").at("write /proc/self/setgroups")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).at("write /proc/self/uid_map")?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).at("write /proc/self/gid_map")?;
    rustix::system::sethostname(b"outboard").at("set a host name")
}

const ROOT: &str = "run jobs as root (a service must have given up root by now)";

/// Gives the supervisor a root of its own, with the machine's root beneath [`HOST`], and mounts the
/// view.
fn mount_view() -> SetUpResult<OwnedFd> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).at("make all mounts private")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("outboard", "/tmp", "tmpfs", flags, c"size=64k,mode=755").at("mount a tmpfs")?;
    for dir in [HOST, VIEW, SLOT_ROOT] {
        fs::create_dir(format!("/tmp{dir}")).at("make a directory in a tmpfs")?;
    }
    pivot_root("/tmp", format!("/tmp{HOST}")).at("change the root")?;
    chdir("/").at("change into the root")?;
    let fuse = open(format!("{HOST}/dev/fuse"), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .at("open /dev/fuse")?;
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},allow_other,max_read={}",
        fuse.as_raw_fd(),
        getuid().as_raw(),
        getgid().as_raw(),
        READ_MAX
    );
    let options = std::ffi::CString::new(options).unwrap_or_default();
    mount("outboard", VIEW, "fuse", flags, options.as_c_str()).at("mount FUSE from /dev/fuse")?;
    Ok(fuse)
}

/// Bytes of one read request of the kernel.
const READ_MAX: usize = 1 << 20;

/// Detaches the machine's files from a slot sandbox that has built its root.
pub(super) fn leave_host() -> SetUpResult<()> {
    chdir(SLOT_ROOT).at("change into the slot sandbox's root")?;
    pivot_root(".", ".").at("make the slot sandbox's root the root")?;
    unmount(".", UnmountFlags::DETACH).at("detach the machine's files")?;
    chdir("/").at("change into the root")
}
