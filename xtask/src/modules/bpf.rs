//! The shipped bodies for network interfaces: building them from C, for crate `nic`.
//!
//! Never reads a header of the system: the bytes of an object depend on clang's version alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command;

/// Every shipped body.
const BODIES: &[&str] = &["count", "filter", "sample"];

/// Debug information is what the verifier quotes lines of the source from; the directory of the
/// sources is named `bpf` in it, wherever they are.
const OPTIONS: &[&str] = &[
    "--target=bpfel",
    "-mcpu=v3",
    "-std=gnu11",
    "-O2",
    "-g",
    "-ffreestanding",
    "-fdebug-compilation-dir=bpf",
    "-Wall",
    "-Wextra",
    "-Werror",
];

fn sources() -> PathBuf {
    command::root().join("crates/nic/bpf")
}

/// Builds all bodies into the repository, and prints their hashes.
pub(super) fn build() -> Result<()> {
    let directory = sources().join("built");
    build_into(&directory)?;
    for name in BODIES {
        let bytes = fs::read(directory.join(format!("{name}.o")))?;
        println!("{}  {name}.o", blake3::hash(&bytes).to_hex());
    }
    Ok(())
}

/// Builds all bodies into `scratch`, and returns how those of the repository differ.
pub(super) fn check(scratch: &Path) -> Result<Vec<String>> {
    build_into(scratch)?;
    let mut findings = Vec::new();
    for name in BODIES {
        let file = format!("{name}.o");
        let rebuilt = fs::read(scratch.join(&file))?;
        match fs::read(sources().join("built").join(&file)) {
            Ok(kept) if kept == rebuilt => {}
            Ok(_) => findings.push(format!(
                "crates/nic/bpf/built/{file} is not what its source gives: cargo xtask modules \
                 build"
            )),
            Err(error) => findings.push(format!("crates/nic/bpf/built/{file}: {error}")),
        }
    }
    Ok(findings)
}

fn build_into(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)?;
    for name in BODIES {
        let mut clang = Command::new("clang");
        clang.current_dir(sources()).args(OPTIONS).arg("-c").arg(format!("{name}.c"));
        clang.arg("-o").arg(directory.join(format!("{name}.o")));
        command::run(&mut clang).with_context(|| format!("body {name}"))?;
    }
    Ok(())
}
