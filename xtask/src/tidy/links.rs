//! Rules about documents: every link leads somewhere, and every file in `docs` is linked.

use std::collections::BTreeSet;

use super::Finding;
use super::source::Source;

/// A link in a document: line, and target relative to the workspace's root.
type Link = (usize, String);

/// Checks the documents among `sources` against `files`, all files of the workspace.
pub(super) fn check(sources: &[Source], files: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut linked = BTreeSet::new();
    for document in sources.iter().filter(|source| source.path.ends_with(".md")) {
        for (line, target) in links(document) {
            if !exists(&target, files) {
                let message = format!("links to {target}, which does not exist");
                findings.push(Finding::new(&document.path, line, message));
            }
            linked.insert(target);
        }
    }
    let lost = files.iter().filter(|path| path.starts_with("docs/") && !linked.contains(*path));
    findings.extend(lost.map(|path| Finding::new(path, 0, "no document links to it")));
    findings
}

fn exists(target: &str, files: &[String]) -> bool {
    let directory = format!("{target}/");
    files.iter().any(|path| path == target || path.starts_with(&directory))
}

/// The links of a document to files of the project: `](target)` and `src="target"`.
fn links(document: &Source) -> Vec<Link> {
    let mut links = Vec::new();
    for (line, text) in document.lines() {
        for (open, close) in [("](", ')'), ("src=\"", '"')] {
            let targets = text.split(open).skip(1).filter_map(|rest| rest.split(close).next());
            let targets = targets.filter_map(|target| resolve(&document.path, target));
            links.extend(targets.map(|target| (line, target)));
        }
    }
    links
}

/// A link's target relative to the root; `None` for the web and for places in the same document.
fn resolve(document: &str, target: &str) -> Option<String> {
    let path = target.split('#').next().unwrap_or_default();
    if path.is_empty() || path.contains(':') {
        return None;
    }
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}
