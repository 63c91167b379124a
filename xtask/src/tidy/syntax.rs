//! Rules about code: banned words, the length of functions, the places of `unsafe`.

use super::Finding;
use super::house::{
    FUNCTION_LINES, FUNCTION_LINES_CAP, IMPURE, LONG_FUNCTIONS, PURE_CRATES, UNCOUNTED, UNFINISHED,
    UNSAFE_COUNTS, UNSAFE_PLACES,
};
use super::source::{Function, Rust, Source};

/// All rules of this file on one source.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let Some(rust) = &source.rust else {
        return Vec::new();
    };
    let mut findings = banned(source, rust.numbered(), UNFINISHED);
    if is_pure(source) {
        findings.extend(banned(source, rust.shipped(), IMPURE));
    }
    findings.extend(long_functions(source, rust, LONG_FUNCTIONS));
    findings.extend(unsafe_place(source, rust));
    findings.extend(unsafe_count(source, rust, UNSAFE_COUNTS));
    findings
}

fn is_pure(source: &Source) -> bool {
    !source.is_tests() && source.crate_name().is_some_and(|name| PURE_CRATES.contains(&name))
}

fn banned<'a>(
    source: &Source,
    lines: impl Iterator<Item = (usize, &'a str)>,
    table: &[(&str, &str)],
) -> Vec<Finding> {
    let hits = lines.flat_map(|(line, code)| {
        table.iter().filter(move |(text, _)| code.contains(text)).map(move |row| (line, row))
    });
    hits.map(|(line, (text, why))| Finding::new(&source.path, line, format!("`{text}`: {why}")))
        .collect()
}

/// Functions are short, or stand in the table with their exact length.
pub(super) fn long_functions(
    source: &Source,
    rust: &Rust,
    table: &[(&str, &str, usize)],
) -> Vec<Finding> {
    let long = rust.functions.iter().filter(|function| function.lines > FUNCTION_LINES);
    long.filter_map(|function| {
        let allowed = exception(source, function, table);
        let message = too_long(function, allowed)?;
        Some(Finding::new(&source.path, function.line, message))
    })
    .collect()
}

fn exception(source: &Source, function: &Function, table: &[(&str, &str, usize)]) -> Option<usize> {
    let row = table.iter().find(|(path, name, _)| *path == source.path && *name == function.name);
    row.map(|(_, _, lines)| *lines)
}

fn too_long(function: &Function, allowed: Option<usize>) -> Option<String> {
    let Function { name, lines, .. } = function;
    match allowed {
        _ if *lines > FUNCTION_LINES_CAP => {
            Some(format!("{name} has {lines} lines, never more than {FUNCTION_LINES_CAP}"))
        }
        None => Some(format!("{name} has {lines} lines, at most {FUNCTION_LINES}: split it")),
        Some(allowed) if allowed != *lines => {
            Some(format!("{name} has {lines} lines, LONG_FUNCTIONS says {allowed}"))
        }
        Some(_) => None,
    }
}

/// `unsafe` stands in the few places that exist for it.
fn unsafe_place(source: &Source, rust: &Rust) -> Vec<Finding> {
    if UNSAFE_PLACES.iter().any(|place| source.path.starts_with(place)) {
        return Vec::new();
    }
    let message = format!("`unsafe` belongs in {} only", UNSAFE_PLACES.join(" and "));
    rust.unsafe_lines.iter().map(|line| Finding::new(&source.path, *line, &*message)).collect()
}

/// `unsafe` stands as often as the table says.
pub(super) fn unsafe_count(
    source: &Source,
    rust: &Rust,
    table: &[(&str, usize)],
) -> Option<Finding> {
    if UNCOUNTED.iter().any(|place| source.path.starts_with(place)) {
        return None;
    }
    let found = rust.unsafe_lines.len();
    let allowed = table.iter().find(|(path, _)| *path == source.path).map_or(0, |row| row.1);
    (found != allowed).then(|| {
        let message = format!("says `unsafe` {found} times, UNSAFE_COUNTS says {allowed}");
        Finding::new(&source.path, 0, message)
    })
}

/// Exceptions for files or functions that are gone, or short again.
pub(super) fn stale_exceptions(sources: &[Source]) -> Vec<Finding> {
    let stale_functions = LONG_FUNCTIONS.iter().filter(|(path, name, _)| {
        let source = sources.iter().find(|source| source.path == *path);
        let functions = source.and_then(|source| source.rust.as_ref()).map(|rust| &rust.functions);
        !functions.is_some_and(|all| {
            all.iter().any(|function| function.name == *name && function.lines > FUNCTION_LINES)
        })
    });
    let stale_counts =
        UNSAFE_COUNTS.iter().filter(|(path, _)| !sources.iter().any(|source| source.path == *path));
    let functions = stale_functions.map(|(path, name, _)| (path, format!("{name} is not long")));
    let counts = stale_counts.map(|(path, _)| (path, "is gone".to_owned()));
    let stale = functions.chain(counts);
    stale.map(|(path, why)| Finding::new(path, 0, format!("{why}: drop its exception"))).collect()
}
