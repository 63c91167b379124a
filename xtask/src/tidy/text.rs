//! Rules about the text of a file: its opening, its size, words and paths that do not belong.

use super::Finding;
use super::house::{
    FILE_LINES, HOMES, LINE_COLUMNS, MARKS, TEST_FILE_LINES, UNSAFE_CRATES, UNSAFE_PLACES,
};
use super::source::Source;

/// Lines of `//!` with which a `lib.rs` opens, at least.
const CRATE_OPENING_LINES: usize = 3;

/// All rules of this file on one source.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = machine_paths(source);
    if !source.path.ends_with(".md") {
        findings.extend(marks(source));
    }
    if source.rust.is_some() {
        findings.extend(opening(source));
        findings.extend(root_forbids_unsafe(source));
        findings.extend(file_size(source));
        findings.extend(line_width(source));
    }
    findings
}

/// Files open with `//!`, crates with at least three lines of it.
fn opening(source: &Source) -> Option<Finding> {
    let found = source.text.lines().take_while(|line| line.starts_with("//!")).count();
    let wanted = if source.path.ends_with("src/lib.rs") { CRATE_OPENING_LINES } else { 1 };
    (found < wanted).then(|| {
        let message = format!("opens with {found} lines of //!, needs {wanted} or more");
        Finding::new(&source.path, 1, message)
    })
}

/// The root files of crates without `unsafe` forbid it to the compiler.
fn root_forbids_unsafe(source: &Source) -> Option<Finding> {
    let root = source.path.ends_with("src/lib.rs") || source.path.ends_with("src/main.rs");
    let named = source.crate_name().is_some_and(|name| UNSAFE_CRATES.contains(&name));
    let free = named || UNSAFE_PLACES.iter().any(|place| source.path.starts_with(place));
    let forbids = source.text.lines().any(|line| line == "#![forbid(unsafe_code)]");
    (root && !free && !forbids)
        .then(|| Finding::new(&source.path, 1, "lacks #![forbid(unsafe_code)]"))
}

fn file_size(source: &Source) -> Option<Finding> {
    let limit = if source.is_tests() { TEST_FILE_LINES } else { FILE_LINES };
    let lines = source.text.lines().count();
    (lines > limit).then(|| {
        Finding::new(&source.path, 0, format!("has {lines} lines, at most {limit}: split it"))
    })
}

fn line_width(source: &Source) -> Vec<Finding> {
    let columns = source.lines().map(|(line, text)| (line, text.chars().count()));
    let wide = columns.filter(|(_, columns)| *columns > LINE_COLUMNS);
    wide.map(|(line, columns)| {
        let message = format!("has {columns} columns, at most {LINE_COLUMNS}");
        Finding::new(&source.path, line, message)
    })
    .collect()
}

fn marks(source: &Source) -> Vec<Finding> {
    banned_words(source, MARKS, "finish it, or write an issue and leave the mark out")
}

/// Paths that exist on one machine only: into a user's directory, or out of the workspace.
fn machine_paths(source: &Source) -> Vec<Finding> {
    let depth = source.path.matches('/').count();
    let hits = source.lines().flat_map(|(line, text)| {
        let paths = paths(text).filter(|path| is_in_a_home(path) || ups(path) > depth);
        paths.map(move |path| (line, path))
    });
    hits.map(|(line, path)| {
        Finding::new(&source.path, line, format!("`{path}`: exists on one machine only"))
    })
    .collect()
}

/// The parts of a line that could be paths; what is left of a URL begins with two slashes.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || "/._-+@~".contains(c)))
}

fn is_in_a_home(path: &str) -> bool {
    let mut parts = path.split('/');
    let (start, first) = (parts.next(), parts.next());
    start == Some("") && first.is_some_and(|first| HOMES.contains(&first)) && parts.next().is_some()
}

/// How many directories a path ascends from its start.
fn ups(path: &str) -> usize {
    path.split('/').take_while(|part| *part == "..").count()
}

fn banned_words(source: &Source, words: &[&str], why: &str) -> Vec<Finding> {
    let hits = source.lines().flat_map(|(line, text)| {
        words.iter().filter(move |word| text.contains(*word)).map(move |word| (line, word))
    });
    hits.map(|(line, word)| Finding::new(&source.path, line, format!("`{word}`: {why}"))).collect()
}
