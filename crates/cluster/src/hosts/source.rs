//! Where host lists come from: text, a file, the environment.
//!
//! The environment is asked through a function, so that nothing here depends on it.

use super::parse::{self, ParseFault};
use super::{HostList, HostsError};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The user's variable first, then the scheduler's.
const VARIABLES: [&str; 2] = ["OUTBOARD_HOSTS", "SLURM_JOB_NODELIST"];

/// Bytes of a host list's file, at most: longer than [`super::HOSTS_MAX`] of the longest names.
const FILE_LEN_MAX: u64 = 32 << 20;

/// Characters of an excerpt in an error.
const EXCERPT_MAX: usize = 40;

impl HostList {
    /// Parses a list from text; errors call the text `source_name`.
    ///
    /// # Errors
    /// [`HostsError`] with the first place that is wrong.
    pub fn parse(text: &str, source_name: &str) -> Result<Self, HostsError> {
        let entries = parse::entries(text).map_err(|fault| place(text, source_name, &fault))?;
        if entries.is_empty() {
            return Err(HostsError::Empty { source_name: source_name.into() });
        }
        Self::merged(entries).map_err(|fault| place(text, source_name, &fault))
    }

    /// The list in a file: one host or more a line, `#` before comments.
    ///
    /// # Errors
    /// [`HostsError`] when it cannot be read, is not a host list, or names no host.
    pub fn read(path: &Path) -> Result<Self, HostsError> {
        let failed = |source| HostsError::File { path: path.into(), source };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(failed)?;
        file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        if u64::try_from(bytes.len()).is_ok_and(|len| len > FILE_LEN_MAX) {
            return Err(HostsError::TooLong { path: path.into(), len_max: FILE_LEN_MAX });
        }
        let source_name = path.display().to_string();
        match str::from_utf8(&bytes) {
            Ok(text) => Self::parse(text, &source_name),
            Err(_) => Err(HostsError::NotText { source_name }),
        }
    }

    /// The list in the variable `OUTBOARD_HOSTS`, or else in `SLURM_JOB_NODELIST`; none if neither
    /// is set, or only to blanks. Pass `|name| std::env::var_os(name)`.
    ///
    /// # Errors
    /// [`HostsError`] when the variable that counts is not a host list.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Option<Self>, HostsError> {
        let set = VARIABLES.iter().find_map(|name| {
            let value = variable(name)?;
            let blank = value.to_str().is_some_and(|text| text.trim().is_empty());
            (!blank).then_some((*name, value))
        });
        let Some((name, value)) = set else { return Ok(None) };
        match value.to_str() {
            Some(text) => Self::parse(text, name).map(Some),
            None => Err(HostsError::NotText { source_name: name.into() }),
        }
    }
}

/// The error for a fault: its line, column and what stands there.
fn place(text: &str, source_name: &str, fault: &ParseFault) -> HostsError {
    let (before, rest) = text.split_at_checked(fault.at.start).unwrap_or((text, ""));
    let beside = before.rsplit('\n').next().unwrap_or_default();
    let wrong = rest.get(..fault.at.len()).unwrap_or(rest);
    let mut excerpt: String = wrong.chars().take(EXCERPT_MAX).collect();
    if wrong.chars().nth(EXCERPT_MAX).is_some() {
        excerpt.push('…');
    }
    HostsError::Text {
        source_name: source_name.into(),
        line: before.matches('\n').count() + 1,
        column: beside.chars().count() + 1,
        excerpt: excerpt.escape_debug().to_string(),
        problem: fault.problem,
    }
}
