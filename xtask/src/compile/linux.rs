//! The Linux kernel by its own build files, with the objects in a separate directory: hundreds of
//! jobs whose dependency files have names that begin with a dot.
//!
//! A part of the kernel is built: the smallest configuration, and some directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::Check;
use super::site::{SERVERS, Site, remove, slots};
use super::statistics::{ALONE, ORDINARY, PROBES};
use super::tree::Tree;
use crate::command;

/// The source that Debian's package of the same name installs.
const ARCHIVE: &str = "/usr/src/linux-source-6.1.tar.xz";
/// The parts that the build needs: all descriptions of options, and the sources that are built.
const PARTS: &[&str] = &[
    "*/Kconfig*",
    "linux-source-6.1/Kbuild",
    "linux-source-6.1/Makefile",
    "linux-source-6.1/arch/x86",
    "linux-source-6.1/include",
    "linux-source-6.1/init",
    "linux-source-6.1/io_uring",
    "linux-source-6.1/kernel",
    "linux-source-6.1/lib",
    "linux-source-6.1/mm",
    "linux-source-6.1/scripts",
    "linux-source-6.1/tools/arch/x86",
    "linux-source-6.1/tools/include",
];
const MAKE_MAX: Duration = Duration::from_secs(900);
/// The directories to build, and the least number of jobs.
const SAMPLE: (&[&str], u64) = (&["lib/", "mm/"], 60);
const WHOLE: (&[&str], u64) = (&["init/", "kernel/", "lib/", "mm/"], 150);

/// The build files' first sources may come after dozens of probes, one at a time.
const ALONE_MAX: u64 = 16;

pub(super) fn checks(full: bool) -> Vec<Check> {
    let (directories, jobs) = if full { WHOLE } else { SAMPLE };
    let build = move |site: &mut Site| build(site, directories, jobs);
    vec![Check::new("build the Linux kernel", build)]
}

fn build(site: &mut Site, directories: &[&str], jobs: u64) -> Result<()> {
    let source = site.directory("linux")?.join("source");
    unpack(&source)?;
    let objects = site.directory("linux")?.join("objects");
    remove(&objects)?;
    fs::create_dir(&objects)?;
    make(site.here("make"), site, &source, &["tinyconfig"])?;
    let before = Tree::read(&objects)?;
    make(site.here("make"), site, &source, directories)?;
    let home = Tree::read(&objects)?.since(&before);
    if (home.count(".o") as u64) < jobs {
        bail!("{} objects were made locally and not {jobs}", home.count(".o"));
    }
    home.remove(&objects)?;
    site.warm(SERVERS)?;
    make(site.away("make"), site, &source, directories)?;
    home.expect(&Tree::read(&objects)?.since(&before))?;
    let statistics = site.statistics()?;
    statistics.locally_only_for(&[ORDINARY, PROBES].concat())?;
    println!("  {} on servers, {} locally", statistics.remote, statistics.local);
    // Build files try options out, and some of these no compiler knows.
    let alone = statistics.causes.get(ALONE).copied().unwrap_or(0);
    if statistics.remote + alone < home.count(".o") as u64 || alone > ALONE_MAX {
        bail!("{} objects, and {statistics:?}", home.count(".o"));
    }
    Ok(())
}

fn make(mut make: Command, site: &Site, source: &Path, goals: &[&str]) -> Result<()> {
    make.arg("-C").arg(source).arg("O=../objects").arg(format!("-j{}", SERVERS * slots() + 4));
    // They would be compiled into the objects.
    make.env("KBUILD_BUILD_TIMESTAMP", "2000-01-01").env("KBUILD_BUILD_USER", "outboard");
    make.env("KBUILD_BUILD_HOST", "outboard");
    site.finish(make.args(goals), MAKE_MAX).map(drop)
}

/// Copies the sources, which are unpacked once.
fn unpack(to: &Path) -> Result<()> {
    // Another list of parts is unpacked anew.
    let kept = command::target_dir().join(format!("sources/linux-6.1-{}", PARTS.len()));
    if !kept.is_dir() {
        let new = PathBuf::from(format!("{}.new", kept.display()));
        remove(&new)?;
        fs::create_dir_all(&new)?;
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&new).args(["--strip-components=1", "--wildcards", "-xf", ARCHIVE]);
        command::run(tar.args(PARTS))?;
        fs::rename(&new, &kept)?;
    }
    remove(to)?;
    let mut copy = Command::new("cp");
    command::run(copy.args(["--archive", "--no-target-directory"]).arg(kept).arg(to))
}
