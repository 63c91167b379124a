//! Whether this machine has what a sandbox needs, and what to do when it has not.

use std::fs;
use std::path::Path;

use super::service::{Launch, SandboxError, SandboxSupervisor};

/// A server cannot start: it cannot make sandboxes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Missing(#[from] SandboxError);

/// Checks whether sandboxes can be made here, by making one. For a server's start.
///
/// # Errors
/// Says what is missing and how to enable it.
pub fn check(launch: &Launch) -> Result<(), Missing> {
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
    if container { format!("; {CONTAINER}") } else { String::new() }
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
}
