//! Which variables go along with a job, and which keep it at home.

use super::{Cause, Directory, Reason, Role};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// They name other parts of the compiler, further outputs, or rewrite the command line.
const HOME: &[&str] = &[
    "CCC_",
    "CLANG_CONFIG_FILE",
    "COLLECT_",
    "COMPILER_PATH",
    "DEPENDENCIES_OUTPUT",
    "GCC_COMPARE_DEBUG",
    "GCC_EXEC_PREFIX",
    "SUNPRO_DEPENDENCIES",
];

/// They name directories of headers.
const HEADERS: &[&str] = &[
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "C_INCLUDE_PATH",
    "OBJCPLUS_INCLUDE_PATH",
    "OBJC_INCLUDE_PATH",
];

/// They change texts and names and nothing else. `TERM` among them: it decides about colour.
const TEXTS: &[&str] = &[
    "CLICOLOR",
    "COLUMNS",
    "GCC_COLORS",
    "GCC_EXTRA_DIAGNOSTIC_OUTPUT",
    "GCC_URLS",
    "LANG",
    "LC_",
    "NO_COLOR",
    "PWD",
    "SDKROOT",
    "SOURCE_DATE_EPOCH",
    "TERM",
];

type Variables = Vec<(OsString, OsString)>;

/// The variables that go along and the directories that they name, for a compiler that runs in
/// `cwd`. Looks at the directory that `PWD` names.
pub(super) fn choose(env: &Variables, cwd: &Path) -> Result<(Variables, Vec<Directory>), Reason> {
    let mut along = Vec::with_capacity(env.len());
    let mut directories = Vec::new();
    for (name, value) in env {
        if starts(name, HOME) && !value.is_empty() {
            return Err(Reason::with(Cause::Environment, name));
        }
        if HEADERS.iter().any(|header| name == header) {
            directories.extend(headers(value));
        } else if !starts(name, TEXTS) || name == "PWD" && !is_same(value.as_ref(), cwd) {
            continue;
        }
        along.push((name.clone(), value.clone()));
    }
    Ok((along, directories))
}

/// Whether both are one directory. Compilers look at the one that `PWD` names, which is shown to
/// servers only if it is, and take no notice of another: what `make -C` starts has its caller's.
fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    one == other || one.is_absolute() && identity(one).is_some_and(|id| identity(other) == Some(id))
}

fn starts(name: &OsStr, table: &[&str]) -> bool {
    table.iter().any(|start| name.as_bytes().starts_with(start.as_bytes()))
}

fn headers(value: &OsStr) -> impl Iterator<Item = Directory> {
    value.as_bytes().split(|octet| *octet == b':').map(|path| {
        // An empty entry is the current directory.
        let path = if path.is_empty() { b"." } else { path };
        Directory { path: Path::new(OsStr::from_bytes(path)).into(), role: Role::System }
    })
}
