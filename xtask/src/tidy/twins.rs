//! The rule against functions that stand twice: the same lines between their braces, whatever they
//! are called.
//!
//! It sees neither renamed variables nor parts of functions: a reviewer's work.

use std::collections::HashMap;

use super::Finding;
use super::house::{GENERATED, TWIN_LINES, TWINS};
use super::source::{Function, Source};

/// A function and its place.
struct Placed<'a> {
    path: &'a str,
    function: &'a Function,
}

/// Every function with a body of some lines stands in one place.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    twins(sources, TWINS)
}

pub(super) fn twins(sources: &[Source], allowed: &[(&str, &str)]) -> Vec<Finding> {
    let mut first: HashMap<String, Placed<'_>> = HashMap::new();
    let mut findings = Vec::new();
    let mut used = vec![false; allowed.len()];
    for (source, function) in sources.iter().flat_map(functions) {
        let (path, body) = (source.path.as_str(), body(source, function));
        if body.lines().count() < TWIN_LINES {
            continue;
        }
        let Some(twin) = first.get(&body) else {
            first.insert(body, Placed { path, function });
            continue;
        };
        let row = allowed.iter().position(|row| *row == (path, function.name.as_str()));
        match row {
            Some(row) => used[row] = true,
            None => {
                let (name, at, line) = (&twin.function.name, twin.path, twin.function.line);
                let what = format!("{} is {name} at {at}:{line} again: keep one", function.name);
                findings.push(Finding::new(path, function.line, what));
            }
        }
    }
    let stale = allowed.iter().zip(used).filter(|(_, used)| !used);
    findings.extend(stale.map(|((path, name), _)| {
        Finding::new(path, 0, format!("{name} stands once: drop its exception from TWINS"))
    }));
    findings
}

fn functions(source: &Source) -> impl Iterator<Item = (&Source, &Function)> {
    let is_ours = !GENERATED.contains(&&*source.path);
    let functions = source.rust.iter().filter(move |_| is_ours).flat_map(|rust| &rust.functions);
    functions.map(move |function| (source, function))
}

/// The lines behind a function's first brace, with its last, but without indentation and comments.
fn body(source: &Source, function: &Function) -> String {
    let lines = source.text.lines().skip(function.line - 1).take(function.lines).map(str::trim);
    let lines = lines.skip_while(|line| !line.ends_with('{')).skip(1);
    lines.filter(|line| !line.starts_with("//")).collect::<Vec<_>>().join("\n")
}
