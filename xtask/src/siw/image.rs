//! The guest's root file system: busybox, the modules, rdma-core and the programs under test.
//!
//! Assembled in memory from the cache and from the host's installed files at every run, so it
//! cannot be out of date. The script to run is a second archive, which the kernel unpacks over the
//! first. It contains no compiler, no network configuration daemon and none of the project's code.

use super::cpio::Archive;
use super::kernel::Kernel;
use super::quiet::run;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Stock programs of Debian's rdma-core, iproute2 and perftest.
const PROGRAMS: [&str; 8] = [
    "ib_read_bw",
    "ib_read_lat",
    "ib_send_bw",
    "ib_send_lat",
    "ib_write_bw",
    "ib_write_lat",
    "rdma",
    "rping",
];

/// Libraries opened at run time, so that no program lists them: the siw provider, by libibverbs,
/// and libgcc_s, by the C library when a thread is cancelled.
const OPENED_LATER: [&str; 2] = ["libibverbs/libsiw-rdmav34.so", "libgcc_s.so.1"];

const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";
const SCRIPT: &str = "/script";

/// The first process of the guest.
const INIT: &str = include_str!("init.sh");

/// Waits until a socket in the guest listens on the given TCP port.
const WAIT_LISTEN: &str = include_str!("wait-listen.sh");
const RPING_ONCE: &str = include_str!("rping-once.sh");

/// The archive with everything but the script.
pub(super) fn build(kernel: &Kernel) -> Result<Vec<u8>, String> {
    let mut archive = Archive::default();
    for directory in ["/proc", "/sys", "/dev", "/tmp"] {
        archive.directory(directory);
    }
    archive.file("/init", 0o755, INIT.as_bytes());
    archive.file("/bin/wait-listen", 0o755, WAIT_LISTEN.as_bytes());
    archive.file("/bin/rping-once", 0o755, RPING_ONCE.as_bytes());
    archive.file("/etc/libibverbs.d/siw.driver", 0o644, b"driver siw\n");
    add_modules(&mut archive, kernel)?;
    add_programs(&mut archive)?;
    Ok(archive.finish())
}

/// The archive with only the script.
pub(super) fn script_archive(script: &str) -> Vec<u8> {
    let mut archive = Archive::default();
    archive.file(SCRIPT, 0o755, script.as_bytes());
    archive.finish()
}

/// An archive with a file of the host under another name, and the libraries that it links to.
pub(super) fn file_archive(from: &Path, to: &str) -> Result<Vec<u8>, String> {
    let mut archive = Archive::default();
    add_copy(&mut archive, from, to)?;
    let libraries = libraries_of(from)?;
    libraries.iter().try_for_each(|path| add_copy(&mut archive, Path::new(path), path))?;
    Ok(archive.finish())
}

fn add_modules(archive: &mut Archive, kernel: &Kernel) -> Result<(), String> {
    let mut order = String::new();
    for (name, content) in kernel.modules()? {
        archive.file(&format!("/modules/{name}.ko"), 0o644, &content);
        order.push_str(&name);
        order.push('\n');
    }
    archive.file("/modules/order", 0o644, order.as_bytes());
    add_copy(archive, &kernel.crc_module(), "/modules/siw_crc.ko")
}

fn add_programs(archive: &mut Archive) -> Result<(), String> {
    add_copy(archive, &program("busybox")?, "/bin/busybox")?;
    archive.link("/bin/sh", "busybox");
    let mut libraries = BTreeSet::new();
    for name in PROGRAMS {
        let path = program(name)?;
        add_copy(archive, &path, &format!("/bin/{name}"))?;
        libraries.extend(libraries_of(&path)?);
    }
    for name in OPENED_LATER {
        let path = Path::new(LIBRARIES).join(name);
        libraries.extend(libraries_of(&path)?);
        libraries.insert(path.display().to_string());
    }
    libraries.iter().try_for_each(|path| add_copy(archive, Path::new(path), path))
}

fn add_copy(archive: &mut Archive, from: &Path, to: &str) -> Result<(), String> {
    let content =
        std::fs::read(from).map_err(|error| format!("cannot read {}: {error}", from.display()))?;
    archive.file(to, 0o755, &content);
    Ok(())
}

/// Where a program is installed; `sbin` may be missing from an ordinary user's `PATH`.
fn program(name: &str) -> Result<PathBuf, String> {
    let places = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    let mut candidates = places.iter().map(|place| Path::new(place).join(name));
    candidates.find(|path| path.is_file()).ok_or_else(|| format!("{name} is not installed"))
}

/// The absolute paths of all libraries the loader would map for `file`.
fn libraries_of(file: &Path) -> Result<Vec<String>, String> {
    let listing = run(Command::new("ldd").arg(file))?;
    let paths = listing.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(str::to_owned).collect())
}
