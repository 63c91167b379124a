//! A sample of a long table, so that a plain run stays short: it changes with the commit, covers
//! the table in a few commits, and is the same whenever a commit is tested again.

use std::process::Command;

use super::check::is_narrowed;
use crate::command;

/// `count` of `rows` at equal distances, from a start that the commit determines; all rows when
/// [`is_narrowed`] says that rows are chosen by name. Prints what it chose.
pub(crate) fn sample<T>(
    what: &str,
    rows: Vec<T>,
    count: usize,
    name: impl Fn(&T) -> String,
) -> Vec<T> {
    if is_narrowed() || rows.len() <= count {
        return rows;
    }
    let total = rows.len();
    let chosen = chosen(total, count, commit_number());
    let kept = rows.into_iter().enumerate().filter(|(index, _)| chosen.contains(index));
    let kept: Vec<T> = kept.map(|(_, row)| row).collect();
    let names: Vec<String> = kept.iter().map(name).collect();
    println!("{what}: {count} of {total} for this commit, all with --full: {}", names.join("; "));
    kept
}

/// Indices at equal distances around the table.
fn chosen(total: usize, count: usize, start: usize) -> Vec<usize> {
    (0..count).map(|number| (start + number * total / count) % total).collect()
}

/// A number that the commit determines; 0 outside of a repository.
fn commit_number() -> usize {
    let mut git = Command::new("git");
    git.args(["rev-parse", "--short=7", "HEAD"]).current_dir(command::root());
    let output = git.output().map(|output| output.stdout).unwrap_or_default();
    usize::from_str_radix(String::from_utf8_lossy(&output).trim(), 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn as_many_rows_as_asked_for_are_chosen() {
        for (total, count) in [(6, 2), (7, 3), (110, 37), (3, 3)] {
            for start in 0..total {
                let rows: BTreeSet<_> = chosen(total, count, start).into_iter().collect();
                assert_eq!(rows.len(), count, "{count} of {total} from {start}");
            }
        }
    }

    #[test]
    fn every_row_is_chosen_from_some_start() {
        let rows: BTreeSet<_> = (0..6).flat_map(|start| chosen(6, 2, start)).collect();
        assert_eq!(rows.len(), 6);
    }
}
