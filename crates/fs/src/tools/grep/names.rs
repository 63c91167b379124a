//! Which files grep looks through, by their names: `--include`, `--exclude` and `--exclude-dir`,
//! of which the last one that fits counts.
//!
//! Files that a command line names are asked about here, those below directories by an expression
//! that the server decides.

use super::super::ToolError;
use super::super::expression::{FindExpression, FindMoment};
use super::charset::CharRules;
use super::matcher::LineMatcher;
use super::syntax::glob;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What becomes of files with a name that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrepNameRule {
    /// They are looked through, and if this is the first rule, others are not.
    Include,
    /// They are not.
    Exclude,
}

/// See this file's first lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrepNames {
    /// Patterns for files, as a command line has them, one after the other.
    pub files: Vec<(GrepNameRule, Vec<u8>)>,
    /// Patterns for directories in which nothing is looked for.
    pub directories: Vec<Vec<u8>>,
}

impl GrepNames {
    /// Whether a file or directory is left out that the command line names: a pattern may fit the
    /// path from its beginning or from behind any slash to its end.
    #[must_use]
    pub fn leaves_out(&self, path: &[u8], is_directory: bool, is_utf8: bool) -> bool {
        let fits = |pattern: &[u8]| {
            let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            let mut begins = std::iter::once(0).chain(ends.map(|(at, _)| at + 1));
            begins.any(|begin| name_fits(pattern, &path[begin..], is_utf8))
        };
        if is_directory {
            return self.directories.iter().any(|pattern| fits(without_slashes(pattern)));
        }
        let last = self.files.iter().rev().find(|(_, pattern)| fits(pattern));
        match (last, self.files.first()) {
            (Some((rule, _)), _) => *rule == GrepNameRule::Exclude,
            (None, Some((first, _))) => *first == GrepNameRule::Include,
            (None, None) => false,
        }
    }

    /// Which files below a directory are meant, in find's words.
    ///
    /// # Errors
    /// [`ToolError::Words`]: the patterns are too long.
    pub fn expression(&self, moment: FindMoment) -> Result<FindExpression, ToolError> {
        let mut words: Vec<OsString> =
            [".", "-mindepth", "1", "-type", "d", "(", "-false"].map(OsString::from).into();
        for pattern in &self.directories {
            words.extend(["-o", "-name"].map(OsString::from));
            words.push(OsString::from_vec(without_slashes(pattern).to_vec()));
        }
        words.extend([")", "-prune", "-o", "-type", "f"].map(OsString::from));
        words.extend(self.kept());
        words.push("-print".into());
        FindExpression::parse(&words, moment)
    }

    /// The test whether a file's name is meant: each rule comes before those that the command line
    /// has before it.
    fn kept(&self) -> Vec<OsString> {
        let first = self.files.first().map(|(rule, _)| *rule);
        let otherwise = if first == Some(GrepNameRule::Include) { "-false" } else { "-true" };
        let mut words = vec![OsString::from(otherwise)];
        for run in self.files.chunk_by(|one, next| one.0 == next.0) {
            let names = run.iter().map(|(_, pattern)| OsStr::from_bytes(pattern).to_owned());
            let mut before = Vec::new();
            if run[0].0 == GrepNameRule::Include {
                before.push("(".into());
                names.for_each(|name| before.extend(["-name".into(), name, "-o".into()]));
                words.push(")".into());
            } else {
                names.for_each(|name| before.extend(["!".into(), "-name".into(), name]));
            }
            words.splice(0..0, before);
        }
        words
    }
}

fn without_slashes(pattern: &[u8]) -> &[u8] {
    let len = pattern.iter().rposition(|byte| *byte != b'/').map_or(1, |last| last + 1);
    &pattern[..len.min(pattern.len())]
}

/// fnmatch(3) without flags.
fn name_fits(pattern: &[u8], name: &[u8], is_utf8: bool) -> bool {
    let is_text = [pattern, name].iter().all(|bytes| std::str::from_utf8(bytes).is_ok());
    let rules = CharRules { is_utf8: is_utf8 && is_text, folds: false };
    let matcher = LineMatcher::new(&glob(pattern, rules), rules);
    let found = matcher.and_then(|mut matcher| matcher.find(name, 0).ok()?);
    found == Some(0..name.len())
}

#[cfg(test)]
mod tests {
    use super::GrepNameRule::{Exclude, Include};
    use super::*;

    fn names(files: &[(GrepNameRule, &str)]) -> GrepNames {
        let owned = |(rule, pattern): &(GrepNameRule, &str)| (*rule, pattern.as_bytes().to_vec());
        let directories = vec![b"d/".to_vec(), b"e*".to_vec()];
        GrepNames { files: files.iter().map(owned).collect(), directories }
    }

    #[test]
    fn the_last_rule_that_fits_counts() {
        let all = names(&[(Include, "*.txt"), (Exclude, "a*"), (Include, "*.c")]);
        for (path, expected) in [
            ("b.txt", false),
            ("a.txt", true),
            ("d/a.c", false),
            ("d/x", true),
            ("d/a/b.txt", true),
        ] {
            assert_eq!(all.leaves_out(path.as_bytes(), false, true), expected, "{path}");
        }
        let few = names(&[(Exclude, "e/*")]);
        assert!(few.leaves_out(b"d/e/f/g", false, true) && !few.leaves_out(b"de/f", false, true));
        for (path, expected) in
            [("d", true), ("x/d", true), ("d/x", false), ("d/", false), ("ef/g", true)]
        {
            assert_eq!(few.leaves_out(path.as_bytes(), true, true), expected, "{path}");
        }
    }

    #[test]
    fn patterns_are_those_of_fnmatch() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("a?c", "aéc", true),
            ("a?c", "a\nc", true),
            ("[!a]b", "ab", false),
            ("[^a]b", "éb", true),
            ("[a-c]*", "bx/y", true),
            ("[]a]", "]", true),
            ("[\\]]", "]", true),
            ("[[:digit:]x]", "7", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[a", "[a", true),
            (".", "a", false),
            ("a+", "aa", false),
        ] {
            assert_eq!(name_fits(pattern.as_bytes(), name.as_bytes(), true), expected, "{pattern}");
        }
        assert!(name_fits(b"*\xff?", b"x\xff\xfe", true));
    }
}
