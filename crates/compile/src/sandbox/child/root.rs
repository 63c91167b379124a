//! What a cell sees: its slot of the view as the root, the toolchain bound into it read-only,
//! a small `/dev`, its own `/proc`, and a directory for temporary files.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount, mount_bind_recursive};

use super::super::service::{Bind, CellSpec};
use super::anchor::{CELL, HOST, VIEW, leave_host};
use super::{At, Step, raw};

/// Device files of the machine that jobs have.
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom"];

/// Puts the root together and makes it the only thing there is.
pub(super) fn enter(spec: &CellSpec) -> Step<()> {
    let slot = format!("{VIEW}/{}", spec.slot);
    mount_bind_recursive(&slot, CELL).at("bind the slot's part of the view")?;
    for bind in &spec.binds {
        bind_read_only(bind)?;
    }
    make_dev(spec)?;
    let options = format!("size={},mode=700", spec.tmp_size);
    mount_new("tmpfs", &inside(&spec.tmp), MountFlags::empty(), &options)?;
    // Only processes: nothing of the machine's memory, devices or switches.
    mount_new("proc", &inside(b"/proc"), MountFlags::NOEXEC, "hidepid=2,subset=pid")?;
    leave_host()
}

/// A path of the view as long as it is beneath [`CELL`].
fn inside(path: &[u8]) -> PathBuf {
    beneath(CELL, path)
}

fn beneath(root: &str, path: &[u8]) -> PathBuf {
    let mut whole = root.as_bytes().to_vec();
    whole.extend_from_slice(path);
    PathBuf::from(std::ffi::OsStr::from_bytes(&whole))
}

fn mount_new(kind: &str, at: &Path, flags: MountFlags, options: &str) -> Step<()> {
    let flags = flags | MountFlags::NOSUID | MountFlags::NODEV;
    let options = CString::new(options).unwrap_or_default();
    mount("outboard", at, kind, flags, options.as_c_str()).at(&format!("mount {kind} for a cell"))
}

fn bind_read_only(bind: &Bind) -> Step<()> {
    let (host, view) = bind.paths();
    let (from, to) = (beneath(HOST, host), inside(view));
    let step = format!("bind {}", String::from_utf8_lossy(host));
    mount_bind_recursive(&from, &to).at(&step)?;
    raw::make_read_only(&to).at(&format!("{step} read-only"))
}

fn make_dev(spec: &CellSpec) -> Step<()> {
    let dev = inside(b"/dev");
    mount_new("tmpfs", &dev, MountFlags::NOEXEC, "size=64k,mode=755")?;
    for device in DEVICES {
        let (from, to) = (Path::new(HOST).join("dev").join(device), dev.join(device));
        File::create(&to).at("make a file in /dev")?;
        mount_bind_recursive(&from, &to).at(&format!("bind /dev/{device}"))?;
    }
    for (name, target) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")]
    {
        symlink(format!("/proc/self/{target}"), dev.join(name)).at("make a link in /dev")?;
    }
    if spec.tmp.starts_with(b"/dev/") {
        fs::create_dir(inside(&spec.tmp)).at("make a directory in /dev")?;
    }
    raw::make_read_only_alone(&dev).at("make /dev read-only")
}
