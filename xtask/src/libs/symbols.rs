//! Symbols: the tables in `crates/ibverbs/symbols`, and `nm`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Library;
use crate::command;

/// A symbol of a shared library with its version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Symbol {
    pub(super) name: String,
    pub(super) version: String,
    /// Whether programs linked today get this version (`@@`).
    pub(super) current: bool,
}

impl Symbol {
    /// `name@@VERSION` or `name@VERSION`; `None` when there is no version.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (name, version) = text.split_once('@')?;
        let current = version.starts_with('@');
        let version = version.trim_start_matches('@').to_owned();
        Some(Self { name: name.to_owned(), version, current })
    }

    /// The symbol's name in the table of unsupported symbols.
    pub(super) fn key(&self) -> String {
        if self.current { self.name.clone() } else { self.to_string() }
    }
}

impl std::fmt::Display for Symbol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if self.current { "@@" } else { "@" };
        write!(f, "{}{mark}{}", self.name, self.version)
    }
}

/// The symbols of a `.symbols` table, one a line.
pub(super) fn listed(table: &str) -> Result<Vec<Symbol>> {
    let symbol = |line| Symbol::parse(line).with_context(|| format!("{line} has no version"));
    rows(table).map(|(_, line)| symbol(line)).collect()
}

/// The lines that are neither empty nor comments, with their numbers.
fn rows(table: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = table.lines().map(str::trim).enumerate();
    let rows = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    rows.map(|(index, line)| (index + 1, line))
}

/// The result of a function that is not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Null(String),
    MinusOne(String),
    Code(String),
    Negative(String),
    Zero,
    Nothing,
    /// Not a function.
    Byte,
}

impl Answer {
    fn parse(words: &[&str]) -> Option<Self> {
        Some(match *words {
            ["null", errno] => Self::Null(errno.to_owned()),
            ["minus-one", errno] => Self::MinusOne(errno.to_owned()),
            ["code", errno] => Self::Code(errno.to_owned()),
            ["negative", errno] => Self::Negative(errno.to_owned()),
            ["zero"] => Self::Zero,
            ["nothing"] => Self::Nothing,
            ["byte"] => Self::Byte,
            _ => return None,
        })
    }
}

/// The table of unsupported symbols.
#[derive(Debug, Default)]
pub(super) struct Unsupported(BTreeMap<String, Answer>);

impl Unsupported {
    /// # Errors
    /// When a row is not understood or a symbol has two.
    pub(super) fn parse(table: &str) -> Result<Self> {
        let mut all = BTreeMap::new();
        for (number, line) in rows(table) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let answer = Answer::parse(&words[1..]);
            let answer =
                answer.with_context(|| format!("unsupported:{number}: what is {line}?"))?;
            if all.insert(words[0].to_owned(), answer).is_some() {
                bail!("unsupported:{number}: {} has two rows", words[0]);
            }
        }
        Ok(Self(all))
    }

    pub(super) fn answer(&self, symbol: &Symbol) -> Option<&Answer> {
        self.0.get(&symbol.key())
    }

    /// Rows of symbols that Rust code defines nevertheless.
    pub(super) fn stale(&self, written: &BTreeSet<String>) -> Vec<&str> {
        let by_rust = |symbol: &str| {
            Library::ALL.iter().any(|library| written.contains(&library.rust_name(symbol)))
        };
        self.0.keys().map(String::as_str).filter(|symbol| by_rust(symbol)).collect()
    }

    /// Rows of symbols that neither library has.
    pub(super) fn unknown(&self, all: &[Symbol]) -> Vec<&str> {
        let keys: BTreeSet<String> = all.iter().map(Symbol::key).collect();
        self.0.keys().map(String::as_str).filter(|row| !keys.contains(*row)).collect()
    }
}

/// The names of all global symbols that a static library defines.
pub(super) fn defined(archive: &Path) -> Result<BTreeSet<String>> {
    let mut nm = Command::new("nm");
    nm.args(["--defined-only", "--extern-only", "--format=posix", "--quiet"]).arg(archive);
    let text = command::output(&mut nm)?;
    let names = text.lines().filter_map(|line| line.split_once(' ').map(|(name, _)| name));
    Ok(names.map(str::to_owned).collect())
}

/// The versioned symbols that a shared library offers.
pub(super) fn offered(library: &Path) -> Result<BTreeSet<Symbol>> {
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--defined-only", "--format=posix"]).arg(library);
    Ok(parse_dynamic(&command::output(&mut nm)?))
}

/// Leaves out the versions themselves, which are absolute symbols (`A`).
pub(super) fn parse_dynamic(text: &str) -> BTreeSet<Symbol> {
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let things = words.filter(|words| words.get(1).is_some_and(|kind| *kind != "A"));
    things.filter_map(|words| Symbol::parse(words[0])).collect()
}
