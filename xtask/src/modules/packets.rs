//! The offcodes of the example `modules/packets`: building them by its Makefile, and checking that
//! the built files in the repository are what their sources give.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::sources;
use crate::command;

/// Every offcode of the example.
const OFFCODES: &[&str] = &["filter", "counter", "page"];

fn directory() -> PathBuf {
    sources().join("packets")
}

/// Builds all offcodes into the repository, and prints their hashes.
pub(super) fn build() -> Result<()> {
    build_into(&directory())?;
    for name in OFFCODES {
        let bytes = fs::read(directory().join(file(name)))?;
        println!("{}  {name}.wasm", blake3::hash(&bytes).to_hex());
    }
    Ok(())
}

/// Builds all offcodes into `scratch`, and returns how those of the repository differ.
pub(super) fn check(scratch: &Path) -> Result<Vec<String>> {
    build_into(scratch)?;
    let mut findings = Vec::new();
    for name in OFFCODES {
        let rebuilt = fs::read(scratch.join(file(name)))?;
        match fs::read(directory().join(file(name))) {
            Ok(kept) if kept == rebuilt => {}
            Ok(_) => findings.push(format!(
                "modules/packets/{} is not what its source gives: cargo xtask modules build",
                file(name)
            )),
            Err(error) => findings.push(format!("modules/packets/{}: {error}", file(name))),
        }
    }
    Ok(findings)
}

fn file(name: &str) -> String {
    format!("{name}/{name}.wasm")
}

fn build_into(out: &Path) -> Result<()> {
    let mut make = Command::new("make");
    make.arg("-C").arg(directory()).args(["--silent", "--always-make", "all"]);
    make.arg(format!("OUT={}", out.display()));
    command::run(&mut make).context("the example packets")
}
