//! Control groups, version 2: accounting for and killing several processes together.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long the end of killed processes may take.
const END_MAX: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

/// A control group.
#[derive(Clone, Debug)]
pub struct Group(PathBuf);

impl Group {
    /// The group called `name` below the root group; it is not made yet.
    pub(super) fn at_root(name: &str) -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let root = root_in(&mounts).context("no cgroup2 file system is mounted")?;
        Ok(Self(root.join(name)))
    }

    pub(super) fn create(&self) -> Result<()> {
        fs::create_dir(&self.0)
            .with_context(|| format!("cannot make the control group {}", self.0.display()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// A new group inside.
    ///
    /// # Errors
    /// When it exists, or this user may not make groups.
    pub fn child(&self, name: &str) -> Result<Self> {
        let child = Self(self.0.join(name));
        child.create()?;
        Ok(child)
    }

    /// Processor time of everything that ran inside, exact to the microsecond.
    ///
    /// # Errors
    /// When the kernel's file cannot be read.
    pub fn cpu(&self) -> Result<Duration> {
        let path = self.0.join("cpu.stat");
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        usage_in(&text).with_context(|| format!("{} has no usage_usec", path.display()))
    }

    /// Everything that runs inside now.
    ///
    /// # Errors
    /// When the kernel's file cannot be read.
    pub fn processes(&self) -> Result<Vec<u32>> {
        let text = fs::read_to_string(self.0.join("cgroup.procs"))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Kills everything inside and waits until it is gone.
    ///
    /// # Errors
    /// When something does not end.
    pub fn kill(&self) -> Result<()> {
        let deadline = Instant::now() + END_MAX;
        while self.is_populated()? {
            // A process that is forked before the kill is complete is killed too.
            fs::write(self.0.join("cgroup.kill"), "1")?;
            if Instant::now() > deadline {
                bail!("processes in {} do not end", self.0.display());
            }
            sleep(PAUSE);
        }
        Ok(())
    }

    /// Removes the group, whose processes must have ended.
    ///
    /// # Errors
    /// When there are any.
    pub fn remove(&self) -> Result<()> {
        match fs::remove_dir(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", self.0.display()))
            }
            _ => Ok(()),
        }
    }

    fn is_populated(&self) -> Result<bool> {
        let events = fs::read_to_string(self.0.join("cgroup.events"))?;
        Ok(events.lines().any(|line| line == "populated 1"))
    }
}

/// Where the unified hierarchy is mounted.
fn root_in(mounts: &str) -> Option<PathBuf> {
    let mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut found = mounts.filter(|fields| fields.get(2) == Some(&"cgroup2"));
    found.next().map(|fields| PathBuf::from(fields[1]))
}

fn usage_in(stat: &str) -> Option<Duration> {
    let line = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    line.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_hierarchy_is_found_beside_the_others() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        assert_eq!(root_in(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(root_in("proc /proc proc rw 0 0\n"), None);
    }

    #[test]
    fn the_usage_is_all_of_it() {
        let stat = "usage_usec 1234567\nuser_usec 1000000\nsystem_usec 234567\n";
        assert_eq!(usage_in(stat), Some(Duration::from_micros(1_234_567)));
        assert_eq!(usage_in("nr_periods 0\n"), None);
    }
}
