//! `cargo xtask libs`: links libibverbs.so.1 and librdmacm.so.1 out of the crate `ibverbs`.
//!
//! Rust's own shared libraries cannot carry versions on their symbols (rustc brings a version
//! script of its own), so the crate is a static library and the C compiler links it. Both libraries
//! run on one engine: it is in libibverbs, and librdmacm only jumps there. The tables of symbols
//! are in `crates/ibverbs/symbols`.
//!
//! - `symbols`: reading the tables and what `nm` says;
//! - `glue`: the C that is written for this step: jumps, and functions that do nothing;
//! - `check`: comparing what was linked with the tables.

mod check;
mod glue;
mod symbols;

#[cfg(test)]
mod tests;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use anyhow::{Context, Result};

use crate::command::{self, cargo, root, target_dir};
use glue::Glue;
use symbols::{Symbol, Unsupported};

pub use check::check;

/// One of the two libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// libibverbs.so.1, with the engine.
    Ibverbs,
    /// librdmacm.so.1, which jumps into the former.
    Rdmacm,
}

impl Library {
    /// Both, in the order in which they are linked.
    pub const ALL: [Self; 2] = [Self::Ibverbs, Self::Rdmacm];

    /// Its name without ending; the tables are called so too.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ibverbs => "libibverbs",
            Self::Rdmacm => "librdmacm",
        }
    }

    /// The name that programs ask for.
    pub fn soname(self) -> String {
        format!("{}.so.1", self.name())
    }

    /// What Rust code calls the function behind `symbol`.
    fn rust_name(self, symbol: &str) -> String {
        match self {
            Self::Ibverbs => symbol.to_owned(),
            Self::Rdmacm => format!("outboard_{symbol}"),
        }
    }

    /// Every symbol that it must have.
    fn symbols(self) -> Result<Vec<Symbol>> {
        symbols::listed(&read(&format!("{}.symbols", self.name()))?)
    }
}

/// Where [`build`] puts the libraries.
pub fn directory(release: bool) -> PathBuf {
    target_dir().join(if release { "release/lib" } else { "debug/lib" })
}

/// Builds both libraries and returns their directory.
///
/// # Errors
/// When the crate does not build, when a symbol is neither written nor listed as unsupported, or
/// when the C compiler fails.
pub fn build(release: bool) -> Result<PathBuf> {
    let mut build = cargo(["build", "--quiet", "--lib", "--package=outboard-ibverbs"]);
    command::run(build.args(release.then_some("--release")))?;
    let directory = directory(release);
    let archive = archive(&directory);
    let written = symbols::defined(&archive)?;
    let unsupported = unsupported()?;
    fs::create_dir_all(&directory)?;
    for library in Library::ALL {
        let symbols = library.symbols()?;
        let glue = Glue::new(library, &symbols, &written, &unsupported)?;
        link(library, &archive, &directory, &glue.text())?;
    }
    Ok(directory)
}

/// The Rust code, beside the directory of the libraries made of it.
fn archive(libraries: &Path) -> PathBuf {
    libraries.with_file_name("liboutboard_ibverbs.a")
}

fn unsupported() -> Result<Unsupported> {
    Unsupported::parse(&read("unsupported")?)
}

/// A table of symbols.
fn table(name: &str) -> PathBuf {
    root().join("crates/ibverbs/symbols").join(name)
}

fn read(name: &str) -> Result<String> {
    let path = table(name);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Replaces the library in one step: programs that run with the old one keep it.
fn link(library: Library, archive: &Path, directory: &Path, glue: &str) -> Result<()> {
    let mine = format!("{}.{}", library.name(), process::id());
    let [source, made] = ["c", "so"].map(|ending| directory.join(format!(".{mine}.{ending}")));
    fs::write(&source, glue)?;
    let mut cc = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-shared", "-fPIC", "-O2", "-fno-lto", "-Wall", "-Werror", "-o"]);
    cc.arg(&made).arg(&source);
    cc.arg(format!("-Wl,-soname,{}", library.soname()));
    let script = table(&format!("{}.map", library.name()));
    cc.arg(format!("-Wl,--version-script={}", script.display()));
    cc.args(["-Wl,--no-undefined-version", "-Wl,-z,defs", "-Wl,-z,relro,-z,now"]);
    match library {
        Library::Ibverbs => link_engine(&mut cc, archive),
        // It must find its own other half, not the distribution's.
        Library::Rdmacm => {
            cc.arg("-Wl,-rpath,$ORIGIN").arg(directory.join(Library::Ibverbs.soname()))
        }
    };
    command::run(&mut cc)?;
    fs::remove_file(&source)?;
    let place = directory.join(library.soname());
    fs::rename(&made, &place).with_context(|| format!("cannot write {}", place.display()))
}

/// Threads of the engine may run when a program unloads us, so that does nothing (`nodelete`).
fn link_engine<'a>(cc: &'a mut Command, archive: &Path) -> &'a mut Command {
    cc.args(["-Wl,-z,nodelete", "-Wl,--gc-sections", "-Wl,--whole-archive"]);
    cc.arg(archive).arg("-Wl,--no-whole-archive");
    cc.args(["-lgcc_s", "-lpthread", "-ldl", "-lm", "-lc"])
}
