//! The language of a source: by its name, by `-x`, by the compiler that is called.

use super::{Cause, Language};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use Language::{
    Assembly, AssemblyWithMacros, C, Cxx, ObjectiveC, ObjectiveCxx, PreprocessedC, PreprocessedCxx,
};

/// The kind of driver, which decides how it treats C sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// gcc, cc, clang.
    C,
    /// g++, c++, clang++.
    Cxx,
}

/// Scripts of Debian's that call gcc: through a link of their name the wrapper would call them
/// again.
const SCRIPTS: &[&str] = &["c89-gcc", "c99-gcc"];

/// Whether a program's name is one of a compiler that is known here.
#[must_use]
pub fn is_compiler(program: &Path) -> bool {
    driver(program).is_some()
}

/// The driver that a program's name says it is; `None` for other programs.
pub(super) fn driver(compiler: &Path) -> Option<Driver> {
    let name = compiler.file_name()?.to_str()?;
    // x86_64-linux-gnu-gcc-12, clang-15, g++-12.2.0: a triple in front, a version behind.
    if SCRIPTS.contains(&name) {
        return None;
    }
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    match plain.rsplit('-').next()? {
        "gcc" | "cc" | "clang" => Some(Driver::C),
        "g++" | "c++" | "clang++" => Some(Driver::Cxx),
        _ => None,
    }
}

/// The language of `source`, when no `-x` says otherwise.
pub(super) fn of_source(source: &OsStr, driver: Driver) -> Result<Language, Cause> {
    let extension = Path::new(source).extension().map_or(&b""[..], OsStrExt::as_bytes);
    let language = match extension {
        b"c" => C,
        b"i" => PreprocessedC,
        b"cc" | b"cp" | b"cxx" | b"cpp" | b"CPP" | b"c++" | b"C" => Cxx,
        b"ii" => PreprocessedCxx,
        b"m" => ObjectiveC,
        b"mm" | b"M" => ObjectiveCxx,
        b"S" | b"sx" => AssemblyWithMacros,
        b"s" => Assembly,
        b"h" | b"H" | b"hh" | b"hp" | b"hxx" | b"hpp" | b"HPP" | b"h++" | b"tcc" => {
            return Err(Cause::PrecompiledHeader);
        }
        b"cppm" | b"ccm" | b"cxxm" | b"c++m" | b"ixx" | b"pcm" => return Err(Cause::Modules),
        b"" | b"o" | b"obj" | b"a" | b"so" | b"lo" | b"la" | b"ld" => return Err(Cause::Link),
        _ => return Err(Cause::UnknownLanguage),
    };
    Ok(match (driver, language) {
        (Driver::Cxx, C) => Cxx,
        (Driver::Cxx, PreprocessedC) => PreprocessedCxx,
        (_, language) => language,
    })
}

/// The language that `-x NAME` means; `None` for `none`, which ends an earlier one.
pub(super) fn of_option(name: &OsStr) -> Result<Option<Language>, Cause> {
    let languages = [
        C,
        PreprocessedC,
        Cxx,
        PreprocessedCxx,
        ObjectiveC,
        ObjectiveCxx,
        AssemblyWithMacros,
        Assembly,
    ];
    match name.as_bytes() {
        b"none" => Ok(None),
        header if header.ends_with(b"-header") => Err(Cause::PrecompiledHeader),
        b"c++-module" => Err(Cause::Modules),
        other => match languages.iter().find(|language| language.name().as_bytes() == other) {
            Some(language) => Ok(Some(*language)),
            None => Err(Cause::UnknownLanguage),
        },
    }
}
