//! Which tests are new or changed: those that fail once are refused, never run again.
//!
//! New is what the working tree has beyond the last commit that is a day older than HEAD. Where
//! there is no such commit, as in a shallow clone, nothing counts as new.

use std::collections::HashSet;
use std::fs;
use std::process::Command;

use anyhow::Result;

use crate::command;

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// The functions that have changed, by name; none outside of a repository.
///
/// # Errors
/// When git fails, or a file that it names cannot be read.
pub(super) fn functions() -> Result<HashSet<String>> {
    if !command::root().join(".git").exists() {
        return Ok(HashSet::new());
    }
    let head: u64 = git(&["log", "-1", "--format=%ct"])?.trim().parse()?;
    let before = format!("--before={}", head.saturating_sub(DAY_SECONDS));
    let base = git(&["rev-list", "-1", &before, "HEAD"])?;
    if base.trim().is_empty() {
        return Ok(HashSet::new());
    }
    let diff = git(&["diff", "--unified=0", "--no-renames", base.trim(), "--", "*.rs"])?;
    let mut functions = HashSet::new();
    let mut lines: Vec<String> = Vec::new();
    for line in diff.lines() {
        if let Some(file) = line.strip_prefix("+++ b/") {
            let text = fs::read_to_string(command::root().join(file))?;
            lines = text.lines().map(str::to_owned).collect();
        } else if let Some((first, count)) = hunk(line) {
            for at in first..first + count {
                functions.extend(function_around(&lines, at));
            }
        }
    }
    Ok(functions)
}

fn git(arguments: &[&str]) -> Result<String> {
    command::output(Command::new("git").args(arguments).current_dir(command::root()))
}

/// The lines that `@@ -1,2 +3,4 @@` says are new: the first, counted from 1, and their number.
fn hunk(line: &str) -> Option<(usize, usize)> {
    let (_, new) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let (range, _) = new.split_once(" @@")?;
    match range.split_once(',') {
        Some((first, count)) => Some((first.parse().ok()?, count.parse().ok()?)),
        None => Some((range.parse().ok()?, 1)),
    }
}

/// The function that a line belongs to: the last one that begins at or before it.
fn function_around(lines: &[String], line: usize) -> Option<String> {
    let before = lines.get(..line)?.iter().rev();
    let (_, name) = before.filter_map(|text| text.split_once("fn ")).next()?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    Some(name[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_lines_of_a_hunk_are_read() {
        assert_eq!(hunk("@@ -1,2 +3,4 @@ fn a() {"), Some((3, 4)));
        assert_eq!(hunk("@@ -1 +3 @@"), Some((3, 1)));
        assert_eq!(hunk("@@ -1,2 +0,0 @@"), Some((0, 0)));
        assert_eq!(hunk("+ @@"), None);
    }

    #[test]
    fn a_line_belongs_to_the_function_that_begins_before_it() {
        let text = "use a;\nfn first() {\n    1\n}\n\nasync fn second<T>(t: T) {\n";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let around = |line| function_around(&lines, line);
        assert_eq!(around(1), None);
        assert_eq!(around(2).as_deref(), Some("first"));
        assert_eq!(around(3).as_deref(), Some("first"));
        assert_eq!(around(6).as_deref(), Some("second"));
        assert_eq!(around(7), None);
    }
}
