//! Whether this machine has what a sandbox needs, and what to do when it has not.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::service::{Launch, SandboxError, SandboxSupervisor};

/// A server cannot start: it cannot make sandboxes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MissingFeature(#[from] SandboxError);

/// Checks whether sandboxes can be made here, by making one. For a server's start.
///
/// # Errors
/// Says what is missing and how to enable it.
pub fn check(launch: &Launch) -> Result<(), MissingFeature> {
    let (_supervisor, _fuse) = SandboxSupervisor::start(launch)?;
    Ok(())
}

/// A kernel setting that denies user namespaces to ordinary users.
struct Switch {
    path: &'static str,
    /// The value with which it denies them.
    off: &'static str,
    name: &'static str,
    on: &'static str,
}

const SWITCHES: &[Switch] = &[
    Switch {
        path: "/proc/sys/kernel/unprivileged_userns_clone",
        off: "0",
        name: "kernel.unprivileged_userns_clone",
        on: "1",
    },
    Switch {
        path: "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        off: "1",
        name: "kernel.apparmor_restrict_unprivileged_userns",
        on: "0",
    },
    Switch {
        path: "/proc/sys/user/max_user_namespaces",
        off: "0",
        name: "user.max_user_namespaces",
        on: "10000",
    },
];

const CONTAINER: &str = "in a container, start it with --device /dev/fuse --security-opt \
    seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined";

fn fuse_advice(errno: i32) -> String {
    match errno {
        // Where udev runs, every user may open it.
        libc::EACCES => "; as root, let every user open it: chmod 666 /dev/fuse".to_owned(),
        libc::ENOENT | libc::ENODEV | libc::ENXIO => {
            format!("; load the kernel's module (modprobe fuse); {CONTAINER}")
        }
        _ => format!("; {CONTAINER}"),
    }
}

/// What to do about a set-up step that failed, after a semicolon; empty when there is no advice.
pub(super) fn advice(step: &str, errno: i32) -> String {
    if step.contains("/dev/fuse") {
        return fuse_advice(errno);
    }
    if errno != libc::EPERM && errno != libc::EACCES && errno != libc::ENOSPC {
        return String::new();
    }
    let off = SWITCHES.iter().filter(|switch| {
        fs::read_to_string(switch.path).is_ok_and(|value| value.trim() == switch.off)
    });
    let set: Vec<_> = off.map(|switch| format!("{}={}", switch.name, switch.on)).collect();
    if !set.is_empty() {
        return format!("; allow user namespaces: sysctl -w {}", set.join(" "));
    }
    let container =
        ["/.dockerenv", "/run/.containerenv"].iter().any(|path| Path::new(path).exists());
    if container {
        return format!("; {CONTAINER}");
    }
    // The rest is about the namespaces' making, not about what is done in them.
    if !step.starts_with("unshare") || errno != libc::EPERM {
        return String::new();
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok();
    namespace_advice(is_chroot(mounts.as_deref())).to_owned()
}

/// Whether this process's root directory is another than its mount namespace's, where the kernel
/// makes no user namespace (`user_namespaces(7)`); `None` if it does not show.
fn is_chroot(mounts: Option<&str>) -> Option<bool> {
    // The table has what lies in the root directory; the mount that has it itself lies outside of
    // a chroot, unless something is mounted at just that place.
    let is_root = |line: &str| line.split(' ').nth(4) == Some("/");
    if mounts.is_some_and(|mounts| !mounts.is_empty() && !mounts.lines().any(is_root)) {
        return Some(true);
    }
    let (init, own) = (fs::metadata("/proc/1/root").ok()?, fs::metadata("/").ok()?);
    let place = |of: &fs::Metadata| (of.dev(), of.ino());
    // In a mount namespace of its own a process has another root without a chroot.
    let namespaces = ["/proc/1/ns/mnt", "/proc/self/ns/mnt"].map(|path| fs::read_link(path).ok());
    (namespaces[0] == namespaces[1]).then(|| place(&init) != place(&own))
}

fn namespace_advice(is_chroot: Option<bool>) -> &'static str {
    match is_chroot {
        Some(true) => {
            "; this process runs in a chroot, where the kernel makes no user namespaces: start it \
             outside, or in a container"
        }
        Some(false) => {
            "; no switch of the kernel's denies user namespaces: a security policy does (a seccomp \
             filter, SELinux, a service manager's RestrictNamespaces)"
        }
        None => {
            "; no switch of the kernel's denies user namespaces: this process runs in a chroot, \
             where the kernel makes none, or a security policy denies them (a seccomp filter, \
             SELinux, a service manager's RestrictNamespaces)"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_may_not_be_opened_is_no_missing_module() {
        let advice = |errno| advice("open /dev/fuse", errno);
        assert!(advice(libc::EACCES).contains("chmod 666 /dev/fuse"));
        assert!(!advice(libc::EACCES).contains("modprobe"));
        assert!(advice(libc::ENOENT).contains("modprobe fuse"));
        assert!(!advice(libc::EPERM).contains("modprobe"));
    }

    #[test]
    fn a_chroot_is_told_by_the_mount_table() {
        let outside = "21 1 0:20 / / rw - ext4 /dev/a rw\n22 21 0:21 / /proc rw - proc proc rw\n";
        let inside = "30 21 0:21 / /proc rw - proc proc rw\n";
        assert_eq!(is_chroot(Some(inside)), Some(true));
        assert_ne!(is_chroot(Some(outside)), Some(true), "the tests run in none");
        assert!(namespace_advice(Some(true)).contains("in a chroot"));
        assert!(!namespace_advice(Some(false)).contains("chroot"));
        assert!(namespace_advice(None).contains("chroot"));
    }
}
