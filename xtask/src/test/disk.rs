//! Whether all suites have room to build: a disk that fills up fails whichever suite writes next,
//! with an error that names neither the disk nor who filled it.

use std::fs;

use anyhow::Result;
use rustix::fs::statvfs;

use crate::command;

/// What a clean checkout writes while all suites run: measured, rounded up.
const NEEDED_GB: u64 = 20;

/// The sentence to print if less than that is free where cargo builds.
pub(super) fn warning() -> Result<Option<String>> {
    let target = command::target_dir();
    fs::create_dir_all(&target)?;
    let disk = statvfs(&target)?;
    let free_gb = disk.f_bavail * disk.f_frsize / 1_000_000_000;
    Ok(sentence(free_gb).map(|words| format!("{}: {words}", target.display())))
}

pub(super) fn sentence(free_gb: u64) -> Option<String> {
    (free_gb < NEEDED_GB).then(|| {
        format!(
            "{free_gb} GB are free here; all suites write up to {NEEDED_GB} GB from a clean \
             checkout. Should tests fail for lack of room, free some, or set CARGO_TARGET_DIR."
        )
    })
}
