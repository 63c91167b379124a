//! Compares the linked libraries with the tables: no symbol missing, none in excess, every version
//! right, and none listed as unsupported that Rust code defines.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use super::symbols::{self, Symbol};
use super::{Library, archive, unsupported};

/// The version of the symbols that librdmacm jumps to.
const PRIVATE: &str = "OUTBOARD_PRIVATE";

/// The faults of the libraries in `directory`, one line for each symbol.
///
/// # Errors
/// When a table or a library cannot be read.
pub fn check(directory: &Path) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let mut all = Vec::new();
    for library in Library::ALL {
        let wanted = library.symbols()?;
        let found = symbols::offered(&directory.join(library.soname()))?;
        findings.extend(differences(library, &wanted, &found));
        all.extend(wanted);
    }
    let rows = unsupported()?;
    let unknown = rows.unknown(&all).into_iter();
    findings.extend(unknown.map(|row| format!("unsupported: no library has {row}")));
    let written = symbols::defined(&archive(directory))?;
    let stale = rows.stale(&written).into_iter();
    findings.extend(stale.map(|row| format!("unsupported: {row} is written, remove its row")));
    Ok(findings)
}

/// Symbols that only one side has.
pub(super) fn differences(
    library: Library,
    wanted: &[Symbol],
    found: &BTreeSet<Symbol>,
) -> Vec<String> {
    let name = library.soname();
    let wanted: BTreeSet<&Symbol> = wanted.iter().collect();
    let missing = wanted.iter().filter(|symbol| !found.contains(**symbol));
    let missing = missing.map(|symbol| format!("{name} lacks {symbol}"));
    let more = found.iter().filter(|symbol| symbol.version != PRIVATE && !wanted.contains(symbol));
    let more = more.map(|symbol| format!("{name} has {symbol}, which the table does not"));
    missing.chain(more).collect()
}
