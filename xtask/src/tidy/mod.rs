//! Rules about the source that the compiler and clippy do not check.
//!
//! Every rule is a function from a file (or the whole workspace) to findings, and has a test that
//! shows it failing. Never changes a file. In reading order: `house` holds the numbers and tables,
//! `source` reads files, `text` has the rules about lines, `syntax` about code, `twins` about
//! functions that stand twice, `workspace` about crates, `features` about their dependencies,
//! `programs` about what suites start, `links` about documents, `messages` about the messages of
//! the C libraries.

mod features;
mod house;
mod links;
mod messages;
mod programs;
mod source;
mod syntax;
mod text;
mod twins;
mod workspace;

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs;

use anyhow::Result;

use crate::command;
use source::Source;

/// A violation of a rule, and how to correct it.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// File or crate, relative to the workspace's root.
    pub path: String,
    /// Line counted from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// What was found and what to do.
    pub message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Checks the whole workspace.
///
/// # Errors
/// When the sources cannot be read or parsed, or `cargo metadata` fails.
pub fn check() -> Result<Vec<Finding>> {
    let sources = source::read_all(command::root())?;
    let mut findings: Vec<Finding> = sources.iter().flat_map(check_file).collect();
    findings.extend(syntax::stale_exceptions(&sources));
    let metadata = command::metadata()?;
    findings.extend(workspace::arrows(&metadata));
    let fuzz_lock = fs::read_to_string(command::root().join(workspace::FUZZ_LOCK))?;
    findings.extend(workspace::fuzz_lock(&metadata, &fuzz_lock));
    findings.extend(features::check(&metadata)?);
    findings.extend(programs::check(&sources, &metadata));
    findings.extend(workspace::crates_have_tests(&sources));
    findings.extend(workspace::one_meaning(&sources));
    findings.extend(twins::check(&sources));
    findings.extend(messages::check(&sources));
    findings.extend(links::check(&sources, &source::list(command::root())?));
    Ok(findings)
}

fn check_file(source: &Source) -> Vec<Finding> {
    if house::GENERATED.contains(&&*source.path) {
        return Vec::new();
    }
    let mut findings = text::check(source);
    findings.extend(syntax::check(source));
    findings
}
