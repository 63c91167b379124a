//! clang and wasm-ld as the shipped modules are built with: which version, which options.
//!
//! A built module's bytes, and so its hash, depend on the compiler's version: another one is
//! refused, not tried.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::sources;
use crate::command;

/// The version of clang and lld in Debian 12.
const VERSION: &str = "14.0.6";

/// Options for modules that can be linked with others. The target is the one for which this clang
/// makes position-independent code. The directory of the sources is named `modules` in the lines
/// of traps, wherever they are.
const OPTIONS: &[&str] = &[
    "--target=wasm32-unknown-emscripten",
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffreestanding",
    "-nostdlib",
    "-fno-unroll-loops",
    "-gdwarf-4",
    // Behind the version, which would ask for all debug information.
    "-gline-tables-only",
    "-fdebug-compilation-dir=modules",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-I.",
    "-Iinclude",
];

/// Whether both tools are there, and of the right version.
///
/// # Errors
/// When they are not; it says what to do.
pub(super) fn check() -> Result<()> {
    for (tool, package) in [("clang", "clang"), ("wasm-ld", "lld")] {
        let Ok(text) = command::output(Command::new(tool).arg("--version")) else {
            bail!("{tool} cannot be started: apt-get install {package} (Debian 12 has {VERSION})");
        };
        if !text.contains(VERSION) {
            let found = text.lines().next().unwrap_or_default();
            bail!(
                "the shipped modules are built with {tool} {VERSION}, which Debian 12 has; here \
                 is {found}, whose files would have other hashes: use a machine with Debian 12"
            );
        }
    }
    Ok(())
}

/// Compiles `NAME/NAME.c`; `built` holds the header with the hashes of imported modules.
pub(super) fn compiler(name: &str, built: &Path, object: &Path) -> Command {
    let mut command = Command::new("clang");
    command.current_dir(sources()).args(OPTIONS);
    command.arg(format!("-ffile-prefix-map={}=built", built.display()));
    command.arg("-I").arg(built);
    command.arg("-c").arg(format!("{name}/{name}.c")).arg("-o").arg(object);
    command
}

pub(super) fn linker(object: &Path, file: &Path) -> Command {
    let mut command = Command::new("wasm-ld");
    command.args(["-shared", "--experimental-pic", "--no-entry"]);
    command.arg(object).arg("-o").arg(file);
    command
}
