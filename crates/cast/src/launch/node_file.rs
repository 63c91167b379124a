//! Node files of PBS and of mpiexec: the hosts in their order, each once.
//!
//! ```text
//! PBS_NODEFILE   n1          a line for each slot
//! MPICH          n1:4        the number is of slots, not a port
//! Open MPI       n1 slots=4
//! ```
//!
//! What stands behind the host is not looked at: a cast has one receiver on a host.

use super::LaunchError;
use outboard_cluster::hosts::HostList;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The hosts of such a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFile(HostList);

impl NodeFile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`LaunchError::File`], [`LaunchError::NodeFile`], [`LaunchError::Hosts`].
    pub fn read(path: &Path) -> Result<Self, LaunchError> {
        let failed = |source| LaunchError::File { path: path.into(), source };
        Self::parse(&fs::read_to_string(path).map_err(failed)?, path)
    }

    /// The file that PBS names in `PBS_NODEFILE`, if it does. Pass `|name| std::env::var_os(name)`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn of_pbs(
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Option<Self>, LaunchError> {
        let path = variable("PBS_NODEFILE").filter(|path| !path.is_empty());
        path.map(|path| Self::read(&PathBuf::from(path))).transpose()
    }

    /// The hosts.
    #[must_use]
    pub fn into_hosts(self) -> HostList {
        self.0
    }

    fn parse(text: &str, path: &Path) -> Result<Self, LaunchError> {
        let (mut known, mut list) = (HashSet::new(), String::new());
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let Some(word) = line.split_whitespace().next() else { continue };
            let host = host_of(word).ok_or_else(|| LaunchError::NodeFile {
                path: path.into(),
                line: index + 1,
                found: word.chars().take(40).collect(),
            })?;
            if known.insert(host) {
                // A string takes everything.
                let _ = writeln!(list, "{host}");
            }
        }
        Ok(Self(HostList::parse(&list, &path.display().to_string())?))
    }
}

/// The name before a number of slots.
fn host_of(word: &str) -> Option<&str> {
    // An IPv6 address stands in brackets, and its colons are its own.
    let behind = word.rfind(']').map_or(0, |at| at + 1);
    let host = match word[behind..].split_once(':') {
        Some((name, slots)) if slots.bytes().all(|byte| byte.is_ascii_digit()) => {
            &word[..behind + name.len()]
        }
        Some(_) => return None,
        None => word,
    };
    (!host.is_empty() && !host.contains(['/', ','])).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str) -> Result<String, String> {
        let parsed = NodeFile::parse(text, Path::new("nodes"));
        parsed.map(|file| file.into_hosts().to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn every_format_names_each_host_once_in_order() {
        assert_eq!(hosts("n2\nn2\nn1\n\nn2\n").as_deref(), Ok("n2,n1"));
        assert_eq!(hosts("# of MPICH\nn1:4\nn2:16 ifhn=ib2\n").as_deref(), Ok("n1,n2"));
        assert_eq!(hosts("n1 slots=4 max-slots=8\n\tn2\n").as_deref(), Ok("n1,n2"));
        assert_eq!(hosts("[::1]:4\n10.0.0.7\n").as_deref(), Ok("[::1],10.0.0.7"));
        assert_eq!(hosts("n1.cluster.example # head\n").as_deref(), Ok("n1.cluster.example"));
    }

    #[test]
    fn a_line_without_a_host_is_named() {
        assert!(hosts("n1\nn2:ib0\n").is_err_and(|why| why.contains("line 2")));
        assert!(hosts(":4\n").is_err_and(|why| why.contains("line 1")));
        assert!(hosts("n1,n2\n").is_err_and(|why| why.contains("line 1")));
        assert!(hosts("\n# none\n").is_err());
    }

    #[test]
    fn an_environment_without_pbs_has_none() {
        assert!(NodeFile::of_pbs(|_| None).expect("nothing to read").is_none());
        let missing = NodeFile::of_pbs(|_| Some("/does/not/exist".into()));
        assert!(missing.is_err_and(|error| error.to_string().contains("/does/not/exist")));
    }
}
