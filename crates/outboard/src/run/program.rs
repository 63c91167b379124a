//! The program to run: where it is, and whether the loader would use our libraries for it. If not,
//! it would silently run on hardware, or find no device.

use outboard_cc::real::search_path;
use rustix::process::{getgid, getuid};
use rustix::thread::no_new_privs;
use std::env;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// Finds a program as a shell does.
pub(super) fn find(name: &OsStr) -> Result<PathBuf, String> {
    let path = Path::new(name);
    if name.as_bytes().contains(&b'/') {
        return match path.metadata() {
            Ok(data) if executable(&data) => Ok(path.to_owned()),
            Ok(data) if data.is_dir() => Err(format!("{} is a directory", path.display())),
            Ok(_) => Err(format!("{} is not executable", path.display())),
            Err(error) => Err(format!("cannot run {}: {error}", path.display())),
        };
    }
    let list = search_path();
    let candidates = env::split_paths(&list).map(|directory| directory.join(path));
    let mut found = candidates.filter(|path| path.metadata().is_ok_and(|data| executable(&data)));
    found.next().ok_or_else(|| {
        let shown = path.display();
        format!("no program {shown} in PATH; is its package installed, or is it ./{shown}?")
    })
}

fn executable(data: &Metadata) -> bool {
    data.is_file() && data.mode() & 0o111 != 0
}

/// Whether the loader will take libraries from the given directory.
pub(super) fn check(path: &Path) -> Result<(), String> {
    let fault = |why: &str| format!("{} {why}", path.display());
    if gains_rights(path).map_err(|error| fault(&format!("cannot be looked at: {error}")))? {
        return Err(fault(
            "runs with rights of its own (setuid, setgid or setcap), so the loader ignores \
             LD_LIBRARY_PATH; run a copy without them",
        ));
    }
    // A user who may run a program need not be allowed to read it.
    let Ok(file) = File::open(path) else { return Ok(()) };
    let ours = File::open("/proc/self/exe").and_then(|own| Elf::read(&own)).ok().flatten();
    match (Elf::read(&file), ours) {
        (Ok(Some(elf)), Some(ours)) if elf.machine != ours.machine => {
            Err(fault("is built for another kind of processor than Outboard"))
        }
        (Ok(Some(Elf { interpreted: false, .. })), _) => Err(fault(
            "is statically linked, so no other libraries can be put under it; link it dynamically",
        )),
        _ => Ok(()),
    }
}

/// The properties of a process that decide whether it gains rights by starting a program.
#[derive(Clone, Copy, Debug)]
struct Caller {
    uid: u32,
    gid: u32,
}

fn gains_rights(path: &Path) -> io::Result<bool> {
    if no_new_privs()? {
        return Ok(false);
    }
    let caller = Caller { uid: getuid().as_raw(), gid: getgid().as_raw() };
    let data = path.metadata()?;
    let has_capabilities = rustix::fs::getxattr(path, "security.capability", &mut [0; 64]).is_ok();
    Ok(changes_ids(data.mode(), data.uid(), data.gid(), caller)
        || (has_capabilities && caller.uid != 0))
}

/// A setuid program of the caller's own changes nothing.
fn changes_ids(mode: u32, owner: u32, group: u32, caller: Caller) -> bool {
    let user = mode & 0o4000 != 0 && owner != caller.uid;
    // Without the right to execute for the group, the bit means file locking.
    let group = mode & 0o2010 == 0o2010 && group != caller.gid;
    user || group
}

/// The facts about an ELF file that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Elf {
    /// Class, byte order and machine.
    machine: (u8, u8, u16),
    /// Whether the kernel starts the loader (PT_INTERP).
    interpreted: bool,
}

const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const PT_INTERP: u32 = 3;

impl Elf {
    /// `None` for anything else, such as a script.
    fn read(file: &File) -> io::Result<Option<Self>> {
        let mut head = [0; 64];
        let length = file.take(64).read(&mut head)?;
        if length < head.len() || !head.starts_with(b"\x7fELF") {
            return Ok(None);
        }
        let (class, order) = (head[4], head[5]);
        let machine = (class, order, u16::from_le_bytes([head[18], head[19]]));
        // A file for another machine is not examined further.
        let known = class == CLASS_64 && order == LITTLE_ENDIAN;
        let interpreted = !known || interpreted(file, &head)?;
        Ok(Some(Self { machine, interpreted }))
    }
}

/// Walks the program headers.
fn interpreted(file: &File, head: &[u8; 64]) -> io::Result<bool> {
    let half = |at: usize| u64::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let mut first = [0; 8];
    first.copy_from_slice(&head[32..40]);
    let (first, size, count) = (u64::from_le_bytes(first), half(54), half(56));
    for index in 0..count {
        let mut kind = [0; 4];
        file.read_exact_at(&mut kind, first.saturating_add(index * size))?;
        if u32::from_le_bytes(kind) == PT_INTERP {
            return Ok(true);
        }
    }
    Ok(false)
}
