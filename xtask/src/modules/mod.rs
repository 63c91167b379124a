//! The shipped modules of active code, the shipped bodies for network interfaces (`bpf`) and the
//! offcodes of the example `packets`: building them from C, and checking that the built files in
//! the repository are what their sources give, byte for byte.
//!
//! Never downloads a tool: clang and wasm-ld are Debian's, of the version that `tools` names.

mod bpf;
mod packets;
mod tools;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command;
use crate::scratch::Scratch;

/// Every shipped module, each behind those that it imports.
pub const MODULES: &[&str] = &[
    "empty", "alloc", "table", "list", "lock", "script", "topk", "blocks", "inode", "names", "fs",
    "find",
];

/// Debian packages that building and testing them needs.
pub const PACKAGES: &[&str] =
    &["clang", "lld", "gcc", "libc6-dev", "make", "rustc", "libstd-rust-dev-wasm32"];

/// Where the sources are.
#[must_use]
pub fn sources() -> PathBuf {
    command::root().join("modules")
}

/// Where the built modules are.
#[must_use]
pub fn built() -> PathBuf {
    sources().join("built")
}

/// Builds all modules into the repository.
///
/// # Errors
/// When a tool is missing or of another version, or a module does not compile.
pub fn build() -> Result<()> {
    for (name, hash) in build_into(&built())? {
        println!("{hash}  {name}");
    }
    packets::build()?;
    bpf::build()
}

/// Builds all modules elsewhere, and returns how the built files of the repository differ.
///
/// # Errors
/// As [`build`].
pub fn check() -> Result<Vec<String>> {
    let scratch = Scratch::new(&std::env::temp_dir(), "outboard-modules-")?;
    build_into(&scratch.path(""))?;
    let names = MODULES.iter().map(|name| format!("{name}.wasm"));
    let lists = ["hashes.h", "hashes.txt"].map(str::to_owned);
    let mut findings = Vec::new();
    for name in names.chain(lists) {
        let rebuilt = fs::read(scratch.path(&name))?;
        match fs::read(built().join(&name)) {
            Ok(kept) if kept == rebuilt => {}
            Ok(_) => findings.push(format!(
                "modules/built/{name} is not what its sources give: cargo xtask modules build"
            )),
            Err(error) => findings.push(format!("modules/built/{name}: {error}")),
        }
    }
    findings.extend(packets::check(&scratch.path("packets"))?);
    findings.extend(bpf::check(&scratch.path("bpf"))?);
    Ok(findings)
}

/// Builds all modules into a directory; their names and hashes, in order.
fn build_into(directory: &Path) -> Result<Vec<(&'static str, String)>> {
    tools::check()?;
    fs::create_dir_all(directory)?;
    let mut built = Vec::new();
    for name in MODULES {
        // What a module imports was built before it; what is built after it, it cannot name.
        fs::write(directory.join("hashes.h"), header(&built))?;
        let file = directory.join(format!("{name}.wasm"));
        build_one(name, directory, &file).with_context(|| format!("module {name}"))?;
        let hash = blake3::hash(&fs::read(&file)?).to_hex().to_string();
        built.push((*name, hash));
    }
    fs::write(directory.join("hashes.h"), header(&built))?;
    fs::write(directory.join("hashes.txt"), list(&built))?;
    Ok(built)
}

fn build_one(name: &str, directory: &Path, file: &Path) -> Result<()> {
    let object = directory.join(format!("{name}.o"));
    command::run(&mut tools::compiler(name, directory, &object))?;
    command::run(&mut tools::linker(&object, file))?;
    // The linker makes programs, which are executable; a module is data.
    fs::set_permissions(file, fs::Permissions::from_mode(0o644))?;
    Ok(fs::remove_file(object)?)
}

fn header(built: &[(&str, String)]) -> String {
    let intro = "/* hashes.h: the shipped modules by name and hash, for OB_IMPORT. Written by\n * \
                 `cargo xtask modules build`. */\n#ifndef OB_HASHES_H\n#define OB_HASHES_H\n\n";
    let line = |(name, hash): &(&str, String)| {
        format!("#define OB_MODULE_{} \\\n    \"{name}#{hash}\"\n", name.to_uppercase())
    };
    let lines: String = built.iter().map(line).collect();
    format!("{intro}{lines}\n#endif\n")
}

fn list(built: &[(&str, String)]) -> String {
    built.iter().map(|(name, hash)| format!("{hash}  {name}\n")).collect()
}

/// `cargo xtask modules check`: prints what differs.
///
/// # Errors
/// As [`build`], and when something differs.
pub fn report() -> Result<()> {
    let findings = check()?;
    findings.iter().for_each(|finding| println!("{finding}"));
    if !findings.is_empty() {
        bail!("{} of the built files differ", findings.len());
    }
    println!("{} modules, the bodies and the example are what their sources give", MODULES.len());
    Ok(())
}
