//! Whether this machine has what a sandbox needs, and what to do when it has not.

use std::fs;
use std::path::Path;

use super::service::{Anchor, Launch, SandboxError};

/// A server cannot serve: it has nowhere to run jobs.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Missing(#[from] SandboxError);

/// Whether sandboxes can be made here, by making one. For a server's start.
///
/// # Errors
/// Says what is missing and how to enable it.
pub fn check(launch: &Launch) -> Result<(), Missing> {
    let (_anchor, _fuse) = Anchor::start(launch)?;
    Ok(())
}

/// A switch of the kernel's that keeps user namespaces from ordinary users.
struct Switch {
    path: &'static str,
    /// What it says when it does so.
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

/// What to do about a step of setting up that failed, after a semicolon; nothing when there is
/// nothing to say.
pub(super) fn advice(step: &str, errno: i32) -> String {
    if step.contains("/dev/fuse") {
        return format!("; load the kernel's module (modprobe fuse); {CONTAINER}");
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
