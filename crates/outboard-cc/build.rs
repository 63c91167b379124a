//! Links the wrapper statically where that is possible: it starts once for each file of a build,
//! and the dynamic loader would take longer than the wrapper itself.
//!
//! The standard library links the dynamic C library. Linker scripts under the same names lead to
//! the static one instead, so that no option for the whole build is needed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The libraries that the standard library links.
const ASKED_FOR: &[&str] = &["c", "dl", "gcc_s", "m", "pthread", "rt", "util"];
/// The archives that replace all of them. They refer to each other.
const ARCHIVES: &[&str] = &["libc.a", "libgcc_eh.a", "libgcc.a"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let is_native = env::var("HOST").ok() == env::var("TARGET").ok();
    let is_gnu = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    let is_static = is_gnu && is_native && link_statically().is_some();
    if is_gnu && !is_static {
        println!("cargo::warning=there is no static C library here: outboard-cc starts slower");
    }
    // For the test that checks how the wrapper is linked.
    let link = if is_static { "static" } else { "dynamic" };
    println!("cargo::rustc-env=OUTBOARD_CC_LINK={link}");
}

fn link_statically() -> Option<()> {
    let directory = Path::new(&env::var_os("OUT_DIR")?).join("static");
    write_scripts(&directory, &archives()?).ok()?;
    for argument in ["-static", "-no-pie", &format!("-L{}", directory.display())] {
        println!("cargo::rustc-link-arg-bin=outboard-cc={argument}");
    }
    Some(())
}

fn archives() -> Option<Vec<PathBuf>> {
    ARCHIVES.iter().map(|name| archive(name)).collect()
}

/// Where the linker's driver finds an archive; if it finds none, it prints the bare name again.
fn archive(name: &str) -> Option<PathBuf> {
    let output = Command::new("cc").arg(format!("-print-file-name={name}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}

fn write_scripts(directory: &Path, archives: &[PathBuf]) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    let files: Vec<_> = archives.iter().map(|path| format!("\"{}\"", path.display())).collect();
    let script = format!("GROUP({})\n", files.join(" "));
    let file = |name| directory.join(format!("lib{name}.so"));
    ASKED_FOR.iter().try_for_each(|name| fs::write(file(name), &script))
}
