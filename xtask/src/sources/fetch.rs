//! Downloading and unpacking a source package, without touching the system's apt.
//!
//! Everything happens in a directory beside the target, which appears by one rename when it is
//! complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::archives;
use crate::command;

/// Puts the unpacked sources of `package`, with Debian's patches applied, at `kept`.
///
/// # Errors
/// When there is no archive, or fetching or unpacking fails.
pub(super) fn into(package: &str, kept: &Path) -> Result<()> {
    let parent = kept.parent().context("sources need a directory to lie in")?;
    let workshop = Workshop::open(parent)?;
    if !archives::write_to(&workshop.path("archives"))? {
        bail!("apt knows no archive of Debian or Ubuntu (looked in /etc/apt)");
    }
    eprintln!("fetching the sources of {package}");
    workshop.apt(&["update"])?;
    workshop.apt(&["source", "--download-only", package])?;
    workshop.unpack()?;
    match fs::rename(workshop.path("unpacked"), kept) {
        Err(error) if !kept.is_dir() => {
            Err(error).with_context(|| format!("cannot create {}", kept.display()))
        }
        // If another process was faster, its directory is used.
        _ => Ok(()),
    }
}

/// A directory of this process; removed when dropped.
struct Workshop(PathBuf);

impl Workshop {
    fn open(parent: &Path) -> Result<Self> {
        let workshop = Self(parent.join(format!("fetching-{}", std::process::id())));
        for part in ["archives", "lists/partial", "cache/archives/partial"] {
            let path = workshop.path(part);
            fs::create_dir_all(&path)
                .with_context(|| format!("cannot create {}", path.display()))?;
        }
        Ok(workshop)
    }

    /// apt-get with its lists, its cache and its list of archives in this directory. apt checks
    /// what it fetches against the keys that the machine trusts.
    fn apt(&self, arguments: &[&str]) -> Result<()> {
        let setting = |name: &str, value: &Path| format!("{name}={}", value.display());
        let settings = [
            "Dir::Etc::SourceList=/dev/null".to_owned(),
            setting("Dir::Etc::SourceParts", &self.path("archives")),
            setting("Dir::State::Lists", &self.path("lists")),
            setting("Dir::Cache", &self.path("cache")),
        ];
        let mut apt = Command::new("apt-get");
        apt.arg("-qq").args(settings.iter().flat_map(|setting| ["-o", setting])).args(arguments);
        quietly(apt.current_dir(&self.0))
    }

    /// Checks the archives' checksums once more and unpacks them.
    fn unpack(&self) -> Result<()> {
        let described = fs::read_dir(&self.0)?.filter_map(|entry| Some(entry.ok()?.path()));
        let mut described = described.filter(|path| path.extension().is_some_and(|e| e == "dsc"));
        let described = described.next().context("apt-get source brought no .dsc file")?;
        let mut unpack = Command::new("dpkg-source");
        unpack.arg("--extract").arg(described).arg("unpacked").current_dir(&self.0);
        quietly(&mut unpack)
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.0.join(relative)
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // If the removal fails, only disk space is lost.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a command whose output matters only when it fails.
fn quietly(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {}", command::line(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("{} failed: {}\n{said}", command::line(command), output.status);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_an_error_with_what_was_said() {
        let mut failing = Command::new("sh");
        let error = quietly(failing.args(["-c", "echo why >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("why"), "{error}");
    }

    #[test]
    fn nothing_is_left_behind() {
        let parent = std::env::temp_dir().join(format!("outboard-sources-{}", std::process::id()));
        let workshop = Workshop::open(&parent).unwrap();
        assert!(workshop.path("lists/partial").is_dir());
        drop(workshop);
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);
        fs::remove_dir(&parent).unwrap();
    }
}
