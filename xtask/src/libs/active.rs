//! liboutboard_active.so.1, the C client of active code, out of the crate `active-c`: with its
//! header and what pkg-config needs, as they are to be installed.
//!
//! `lib/` and `include/` stand side by side in the directory of the build.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::symbols::{self, Symbol};
use super::{directory, link_engine, shared};
use crate::builds;
use crate::command::{self, root};

const NAME: &str = "liboutboard_active.so";
const SONAME: &str = "liboutboard_active.so.1";
/// Every symbol has this version.
const VERSION: &str = "OUTBOARD_ACTIVE_1";

fn source(name: &str) -> PathBuf {
    root().join("crates/active-c").join(name)
}

/// Builds the library and puts header and pkg-config's file beside it. Returns its directory.
///
/// # Errors
/// When the crate does not build or the C compiler fails.
pub fn build(release: bool) -> Result<PathBuf> {
    command::run(builds::workspace(release).arg("--quiet"))?;
    let directory = directory(release);
    let include = directory.with_file_name("include");
    for made in [&directory.join("pkgconfig"), &include] {
        fs::create_dir_all(made)?;
    }
    link(&directory)?;
    fs::copy(source("include/outboard_active.h"), include.join("outboard_active.h"))?;
    fs::copy(source("outboard-active.pc"), directory.join("pkgconfig/outboard-active.pc"))?;
    match symlink(SONAME, directory.join(NAME)) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(directory),
    }
}

fn link(directory: &Path) -> Result<()> {
    let made = directory.join(format!(".{NAME}.{}", std::process::id()));
    let mut cc = shared(SONAME, &source("liboutboard_active.map"), &made);
    let archive = directory.with_file_name("liboutboard_active_c.a");
    command::run(link_engine(&mut cc, &archive))?;
    let place = directory.join(SONAME);
    fs::rename(&made, &place).with_context(|| format!("cannot write {}", place.display()))
}

/// Where the symbols of the library in `directory` are not exactly those of its header.
///
/// # Errors
/// When one of them cannot be read.
pub fn check(directory: &Path) -> Result<Vec<String>> {
    let header = fs::read_to_string(source("include/outboard_active.h"))?;
    let wanted = declared(&header);
    let found = symbols::offered(&directory.join(SONAME))?;
    let missing = wanted.iter().filter(|symbol| !found.contains(symbol));
    let missing = missing.map(|symbol| format!("{SONAME} lacks {symbol}"));
    let more = found.iter().filter(|symbol| !wanted.contains(symbol));
    let more = more.map(|symbol| format!("{SONAME} has {symbol}, which its header does not"));
    Ok(missing.chain(more).collect())
}

/// The functions that a header declares.
fn declared(header: &str) -> BTreeSet<Symbol> {
    let mut code = String::new();
    for (index, part) in header.split("/*").enumerate() {
        let part = if index == 0 { part } else { part.split_once("*/").map_or("", |it| it.1) };
        code.push_str(part);
    }
    let words = code.split('(').filter_map(|before| {
        before.rsplit(|mark: char| !mark.is_ascii_alphanumeric() && mark != '_').next()
    });
    let functions = words.filter(|word| word.starts_with("outboard_active_"));
    let symbol =
        |name: &str| Symbol { name: name.to_owned(), version: VERSION.to_owned(), current: true };
    functions.map(symbol).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_declares_what_is_no_comment_and_no_type() {
        let header = "/* outboard_active_old(x) */ typedef struct outboard_active_call { int x; }\n\
                      sizeof(outboard_active_call)\nint outboard_active_open(const char *node);\n\
                      /* outboard_active_gone(y) */ const char *outboard_active_message(void);";
        let names: Vec<String> = declared(header).into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["outboard_active_message", "outboard_active_open"]);
    }

    #[test]
    fn the_version_script_has_the_symbols_of_the_header() {
        let read = |name| fs::read_to_string(source(name)).unwrap();
        let listed = read("liboutboard_active.map");
        let lines = listed.lines().filter_map(|line| line.trim().strip_suffix(';'));
        let listed: BTreeSet<&str> = lines.filter(|line| line.starts_with("outboard")).collect();
        let wanted = declared(&read("include/outboard_active.h"));
        assert!(wanted.len() > 20);
        assert_eq!(listed, wanted.iter().map(|symbol| symbol.name.as_str()).collect());
    }
}
