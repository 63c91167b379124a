//! A slot sandbox's file system: its slot of the view as the root, the toolchain and a few devices
//! bound into it, its own `/proc`, and a directory for temporary files. Nothing is mounted over a
//! directory that a client may have.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount, mount_bind_recursive};

use super::super::service::{Bind, DEVICES, PROC, SlotSandboxSpec};
use super::supervisor::{HOST, SLOT_ROOT, VIEW, leave_host};
use super::{At, SetUpResult, raw};

/// Number of temporary files and directories at once: each takes a kilobyte of kernel memory.
const TMP_FILES: u32 = 16 << 10;

/// Builds the root and enters it; nothing else of the machine is reachable afterwards.
pub(super) fn enter(spec: &SlotSandboxSpec) -> SetUpResult<()> {
    let slot = format!("{VIEW}/{}", spec.slot);
    mount_bind_recursive(&slot, SLOT_ROOT).at("bind the slot's part of the view")?;
    for bind in &spec.binds {
        bind_read_only(bind)?;
    }
    bind_devices()?;
    let options = format!("size={},nr_inodes={TMP_FILES},mode=700", spec.tmp_size);
    mount_new("tmpfs", &inside(&spec.tmp), MountFlags::empty(), &options)?;
    // Only processes: none of the machine's memory, devices or settings.
    mount_new("proc", &inside(PROC.as_bytes()), MountFlags::NOEXEC, "hidepid=2,subset=pid")?;
    leave_host()
}

/// A path of the view as seen before the slot sandbox enters its root [`SLOT_ROOT`].
fn inside(path: &[u8]) -> PathBuf {
    beneath(SLOT_ROOT, path)
}

fn beneath(root: &str, path: &[u8]) -> PathBuf {
    let mut whole = root.as_bytes().to_vec();
    whole.extend_from_slice(path);
    PathBuf::from(std::ffi::OsStr::from_bytes(&whole))
}

fn mount_new(kind: &str, at: &Path, flags: MountFlags, options: &str) -> SetUpResult<()> {
    let flags = flags | MountFlags::NOSUID | MountFlags::NODEV;
    let options = CString::new(options).unwrap_or_default();
    mount("outboard", at, kind, flags, options.as_c_str())
        .at(&format!("mount {kind} for a slot sandbox"))
}

fn bind_read_only(bind: &Bind) -> SetUpResult<()> {
    let (host, view) = bind.paths();
    let (from, to) = (beneath(HOST, host), inside(view));
    let step = format!("bind {}", String::from_utf8_lossy(host));
    mount_bind_recursive(&from, &to).at(&step)?;
    raw::make_read_only(&to).at(&format!("{step} read-only"))
}

fn bind_devices() -> SetUpResult<()> {
    DEVICES.iter().try_for_each(|device| {
        let (from, to) = (Path::new(HOST).join("dev").join(device), inside(b"/dev").join(device));
        mount_bind_recursive(&from, &to).at(&format!("bind /dev/{device}"))
    })
}
