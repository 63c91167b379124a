//! Where Outboard's libraries are: where OUTBOARD_LIB_DIR says, or beside the program.

use std::env;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a program is to load of ours.
pub(super) const LIBRARIES: [&str; 2] = ["libibverbs.so.1", "librdmacm.so.1"];
const VARIABLE: &str = "OUTBOARD_LIB_DIR";

/// The directory of both libraries, as an absolute path.
pub(super) fn directory() -> Result<PathBuf, String> {
    // As with the other variables, empty is unset.
    if let Some(told) = env::var_os(VARIABLE).filter(|told| !told.is_empty()) {
        let told = PathBuf::from(told);
        return whole(&told).ok_or_else(|| {
            let [verbs, cm] = LIBRARIES;
            format!("{VARIABLE} is {}, where {verbs} or {cm} is missing", told.display())
        })?;
    }
    let places = places(&program(env::current_exe())?);
    places.iter().find_map(|place| whole(place)).unwrap_or_else(|| Err(nowhere(&places)))
}

/// This program's path, which the system tells only where it has `/proc`.
fn program(found: io::Result<PathBuf>) -> Result<PathBuf, String> {
    found.map_err(|error| {
        format!(
            "cannot look for {} beside this program ({error}): mount /proc, or say in {VARIABLE} \
             where they are",
            LIBRARIES.join(" and ")
        )
    })
}

/// In a build tree, and where packages put them.
fn places(program: &Path) -> Vec<PathBuf> {
    let beside = program.parent().unwrap_or(program);
    let above = beside.parent().unwrap_or(beside);
    vec![beside.join("lib"), above.join("lib/outboard")]
}

/// `None` when a library is missing; an error when the directory cannot be given to the loader.
fn whole(directory: &Path) -> Option<Result<PathBuf, String>> {
    let directory = directory.canonicalize().ok()?;
    let complete = LIBRARIES.iter().all(|library| directory.join(library).is_file());
    let separates = |byte: &u8| matches!(byte, b':' | b';');
    complete.then(|| match directory.as_os_str().as_bytes().iter().any(separates) {
        false => Ok(directory),
        true => Err(format!(
            "the loader takes no directory with : or ; in its name, but the libraries are in {}; \
             move them and set {VARIABLE}",
            directory.display()
        )),
    })
}

fn nowhere(places: &[PathBuf]) -> String {
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    format!(
        "{} are not in {}: make them with `cargo xtask libs --release`, or say in {VARIABLE} \
         where they are",
        LIBRARIES.join(" and "),
        places.join(" nor ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_know_its_place_says_so() {
        let error = program(Err(io::ErrorKind::NotFound.into())).unwrap_err();
        assert!(error.contains("mount /proc") && error.contains(VARIABLE), "{error}");
        assert!(!error.contains("are not in"), "{error}");
    }
}
