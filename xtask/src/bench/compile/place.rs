//! The directories of the servers' compilers, each with a stand-in. They are made for each stage;
//! the records in them are links and take no space.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{self, cargo};

/// The target of the build, named explicitly so that programs that run during the build are not
/// linked statically too.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The names under which a stand-in is looked up; distcc uses the second kind.
const NAMES: &[&str] = &["gcc", "g++", "cc", "c++", "x86_64-linux-gnu-gcc", "x86_64-linux-gnu-g++"];

/// The two programs of the stand-in's crate, without shared libraries.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    /// The compiler that replays.
    pub(super) stand_in: PathBuf,
    /// The wrapper that does nothing.
    pub(super) nothing: PathBuf,
}

/// Builds them.
pub(super) fn build() -> Result<Programs> {
    let mut build = cargo(["build", "--release", "--package=outboard-stand-in", "--target"]);
    build.arg(TARGET).env("RUSTFLAGS", "-C target-feature=+crt-static");
    command::run(&mut build)?;
    let built = command::target_dir().join(TARGET).join("release");
    Ok(Programs {
        stand_in: built.join("outboard-stand-in"),
        nothing: built.join("outboard-nothing"),
    })
}

/// Makes `place` a stand-in's directory with all of `records`, which waits `factor` times as long
/// as the real compiler computed.
pub(super) fn make(place: &Path, stand_in: &Path, records: &Path, factor: f64) -> Result<()> {
    let bin = place.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("cannot make {}", bin.display()))?;
    for name in NAMES {
        let program = bin.join(name);
        replace(&program, || fs::copy(stand_in, &program).map(drop))?;
    }
    link_all(records, &place.join("record"))?;
    fs::write(place.join("factor"), factor.to_string())?;
    fs::write(place.join("lock"), "")?;
    fs::write(place.join("real"), real_directory()?)?;
    Ok(())
}

/// Where the real compiler is found.
fn real_directory() -> Result<String> {
    let found = command::output(Command::new("which").arg("gcc"))?;
    let directory = Path::new(found.trim()).parent().context("gcc lies nowhere")?;
    Ok(directory.display().to_string())
}

/// Links every file of one directory into another.
fn link_all(from: &Path, to: &Path) -> Result<()> {
    if to.is_dir() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        fs::hard_link(from.join(&name), to.join(&name))?;
    }
    Ok(())
}

/// Makes a file, replacing an old one.
fn replace(path: &Path, make: impl FnOnce() -> io::Result<()>) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    make().with_context(|| format!("cannot make {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_made_again_over_an_old_one() {
        let base = std::env::temp_dir().join(format!("outboard-place-{}", std::process::id()));
        let (place, records) = (base.join("place"), base.join("records"));
        fs::create_dir_all(&records).unwrap();
        fs::write(records.join("a.c -O2"), "r").unwrap();
        let program = std::env::current_exe().unwrap();
        make(&place, &program, &records, 1.0).unwrap();
        fs::rename(records.join("a.c -O2"), records.join("a.c -O3")).unwrap();
        make(&place, &program, &records, 0.6).unwrap();
        let there = ["bin/gcc", "bin/x86_64-linux-gnu-g++", "record/a.c -O3", "lock"];
        assert!(there.iter().all(|name| place.join(name).is_file()));
        assert!(!place.join("record/a.c -O2").exists());
        assert_eq!(fs::read_to_string(place.join("factor")).unwrap(), "0.6");
        fs::remove_dir_all(&base).unwrap();
    }
}
