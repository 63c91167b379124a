//! The tree that is cast: every kind of entry, and enough bytes for several seconds.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use std::ffi::OsStr;

use anyhow::Result;
use rustix::fs::{XattrFlags, setxattr};

use super::site::CastSite;

/// Bytes of the larger files together: two seconds of a link.
const BULK: usize = 48 << 20;
const MIB: usize = 1 << 20;

/// What is cast in most checks.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// A directory and a file.
    pub(super) sources: Vec<PathBuf>,
    /// Bytes that every node receives, about.
    pub(super) bytes: u64,
}

impl Sample {
    /// Makes it, unless it is there.
    pub(super) fn prepare(site: &CastSite) -> Result<Self> {
        let top = site.source().join("sample");
        let sources = vec![top.join("tree"), top.join("single.bin")];
        if !top.exists() {
            fs::create_dir(&top)?;
            fs::write(&sources[1], noise(2, BULK / 12))?;
            make_tree(&sources[0])?;
        }
        Ok(Self { sources, bytes: BULK as u64 })
    }
}

/// Bytes that cannot be compressed, the same for the same seed (xorshift64).
pub(super) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn make_tree(top: &Path) -> Result<()> {
    fs::create_dir_all(top.join("bulk"))?;
    fs::write(top.join("bulk/large"), noise(1, BULK / 12 * 10 + 12_345))?;
    fs::write(top.join("bulk/chunk"), noise(3, MIB))?;
    make_small(&top.join("small"))?;
    make_sparse(&top.join("sparse"))?;
    make_names(&top.join("names"))?;
    make_links(&top.join("links"))?;
    make_attributes(&top.join("attributes"))
}

/// The part that any user may read, of few bytes.
pub(super) fn make_ordinary(top: &Path) -> Result<()> {
    make_small(&top.join("small"))?;
    make_sparse(&top.join("sparse"))?;
    make_names(&top.join("names"))?;
    make_links(&top.join("links"))
}

fn make_small(at: &Path) -> Result<()> {
    fs::create_dir_all(at.join("empty directory"))?;
    fs::write(at.join("empty"), "")?;
    let make = |number: usize| fs::write(at.join(number.to_string()), noise(9, number * 41));
    Ok((0..200).try_for_each(make)?)
}

/// Holes in front, between and behind.
fn make_sparse(at: &Path) -> Result<()> {
    fs::create_dir_all(at)?;
    let mixed = File::create(at.join("mixed"))?;
    mixed.set_len(64 * MIB as u64)?;
    for (seed, mebibyte) in [(4, 3), (5, 17), (6, 40)] {
        mixed.write_all_at(&noise(seed, 3 * 4096), mebibyte * MIB as u64)?;
    }
    File::create(at.join("hole"))?.set_len(1 << 33)?;
    let last = File::create(at.join("last byte"))?;
    Ok(last.write_all_at(b"x", 1 << 30)?)
}

/// Names that shells, terminals and careless programs stumble over.
pub(super) const NAMES: &[&[u8]] = &[
    b" ",
    b"-rf",
    b"--json",
    b"*?[a-z]",
    b"new\nline",
    b"tab\tand\x1b[31mred",
    b"\xff\xfe not text",
    b"...",
    b".hidden",
    b"back\\slash",
    b"'\"$(exit)`",
    "\u{e9}\u{202e}\u{1f4a5}".as_bytes(),
    b"e\xcc\x81",
];

fn make_names(at: &Path) -> Result<()> {
    fs::create_dir_all(at)?;
    let long = [b'n'; 255];
    for name in NAMES.iter().copied().chain([&long[..]]) {
        fs::write(at.join(OsStr::from_bytes(name)), name)?;
    }
    let deep = (0..100).fold(at.to_owned(), |at, _| at.join("deeper"));
    fs::create_dir_all(&deep)?;
    Ok(fs::write(deep.join("deepest"), "deepest")?)
}

fn make_links(at: &Path) -> Result<()> {
    fs::create_dir_all(at.join("directory"))?;
    fs::write(at.join("file"), "file")?;
    fs::hard_link(at.join("file"), at.join("same"))?;
    let (long, up) = ("x/".repeat(2000), "../".repeat(4));
    let targets = ["file", "directory", "nothing", "/etc/passwd", &*up, ".", &*long];
    for (number, target) in targets.into_iter().enumerate() {
        symlink(target, at.join(format!("link{number}")))?;
    }
    Ok(())
}

fn make_attributes(at: &Path) -> Result<()> {
    fs::create_dir_all(at)?;
    for mode in [0o000, 0o200, 0o400, 0o444, 0o640, 0o755, 0o777] {
        let path = at.join(format!("mode{mode:o}"));
        fs::write(&path, noise(7, 100))?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    for (number, time) in times().into_iter().enumerate() {
        let file = File::create(at.join(format!("time{number}")))?;
        file.set_times(FileTimes::new().set_modified(time))?;
    }
    let file = at.join("xattrs");
    fs::write(&file, "")?;
    let set =
        |path: &Path, name: &str, value: &[u8]| setxattr(path, name, value, XattrFlags::empty());
    set(&file, "user.plain", b"value")?;
    set(&file, "user.empty", b"")?;
    set(&file, "user.bytes", &noise(8, 1000))?;
    let directory = at.join("closed");
    fs::create_dir(&directory)?;
    fs::write(directory.join("inside"), "inside")?;
    set(&directory, "user.directory", b"\0\xff")?;
    fs::set_permissions(&directory, Permissions::from_mode(0o555))?;
    let time = FileTimes::new().set_modified(times()[0]);
    Ok(File::open(&directory)?.set_times(time)?)
}

fn times() -> [SystemTime; 4] {
    let epoch = SystemTime::UNIX_EPOCH;
    [
        epoch + Duration::new(1_000_000_000, 123_456_789),
        epoch - Duration::new(86_400, 1),
        epoch,
        epoch + Duration::new(5_000_000_000, 999_999_999),
    ]
}
