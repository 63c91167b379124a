//! Sources of other people's projects, for tests and benchmarks that compile something real.
//!
//! They come from the Debian or Ubuntu archives that this machine already uses, by `apt-get
//! source`, which checks them against the archive's signature; the system's own configuration and
//! lists are left unchanged. Each is fetched once and kept unmodified in `target/sources`: to
//! compile it, copy it with [`Project::copy_to`] first.
//!
//! `archives` finds the archives; `fetch` downloads and unpacks.

mod archives;
mod fetch;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command;

/// The Debian packages with which sources are fetched and unpacked.
pub const PACKAGES: &[&str] = &["apt", "dpkg-dev", "xz-utils"];

/// A project, by the name of its source package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Project(&'static str);

/// Redis: some 150 files of C, built by make.
pub const REDIS: Project = Project("redis");
/// ZeroMQ: some 105 files of C++, built by CMake.
pub const ZEROMQ: Project = Project("zeromq3");

/// Lua: some 35 files of C.
pub const LUA: Project = Project("lua5.4");
/// SQLite, with its own test of locks.
pub const SQLITE: Project = Project("sqlite3");

/// The directory that has all projects which were fetched, each by its name.
#[must_use]
pub fn directory() -> PathBuf {
    command::target_dir().join("sources")
}

impl Project {
    /// The directory of its sources, which is read-only; they are fetched on first use.
    ///
    /// # Errors
    /// When no archive is configured or reachable, or the package cannot be unpacked.
    pub fn path(self) -> Result<PathBuf> {
        let kept = directory().join(self.0);
        if !kept.is_dir() {
            fetch::into(self.0, &kept)
                .with_context(|| format!("cannot get the sources of {}", self.0))?;
        }
        Ok(kept)
    }

    /// Makes `directory`, which must not exist, a copy of the sources with their times.
    ///
    /// # Errors
    /// When they cannot be fetched or copied.
    pub fn copy_to(self, directory: &Path) -> Result<()> {
        if let Some(parent) = directory.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut copy = Command::new("cp");
        copy.args(["--archive", "--no-target-directory"]).arg(self.path()?).arg(directory);
        command::run(&mut copy)
    }
}
