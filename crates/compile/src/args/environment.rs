//! Decides which environment variables are sent with a job, and which make it run locally.

use super::{Cause, DirectoryRole, NamedDirectory, Reason};
use outboard_cc::wire::SHOW;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Variables that make a job run locally: they name other parts of the compiler, libraries that are
/// loaded into it or further outputs, or they change the command line.
const LOCAL: &[&str] = &[
    "CCC_",
    "CC_LOG_DIAGNOSTICS",
    "CC_PRINT_",
    "CLANG_CONFIG_FILE",
    "COLLECT_",
    "COMPILER_PATH",
    "DEPENDENCIES_OUTPUT",
    "GCC_COMPARE_DEBUG",
    "GCC_EXEC_PREFIX",
    "LD_AUDIT",
    "LD_PRELOAD",
    "SUNPRO_DEPENDENCIES",
    "TZDIR",
];

/// Variables that name directories of headers.
const HEADERS: &[&str] = &[
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "C_INCLUDE_PATH",
    "OBJCPLUS_INCLUDE_PATH",
    "OBJC_INCLUDE_PATH",
];

/// Variables that change only texts and names; `TERM` decides about colour.
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
    "TZ",
];

/// The variable that names directories of libraries, for every program.
const LIBRARIES: &str = "LD_LIBRARY_PATH";

/// A link that leads each process to its own working directory.
const OWN_CWD: &str = "/proc/self/cwd";

type Variables = Vec<(OsString, OsString)>;

/// The variables to send, and the directories that they name, for a compiler that runs in `cwd`.
/// Looks at the directory that `PWD` names.
pub(super) fn choose(
    env: &Variables,
    cwd: &Path,
) -> Result<(Variables, Vec<NamedDirectory>), Reason> {
    let mut along = Vec::with_capacity(env.len());
    let mut directories = Vec::new();
    for (name, value) in env {
        let is_own = name == "PWD" && is_of_this_process(value.as_ref());
        if starts(name, LOCAL) && !value.is_empty() || is_own {
            return Err(Reason::with(Cause::Environment, name));
        }
        if HEADERS.iter().any(|header| name == header) {
            directories.extend(named(value, DirectoryRole::System));
        } else if name == SHOW {
            directories.extend(named(value, DirectoryRole::Shown));
            continue;
        } else if name == LIBRARIES {
            // The loader ignores an empty list.
            let value = if value.is_empty() { continue } else { value };
            directories.extend(named(value, DirectoryRole::Libraries));
            continue;
        } else if !starts(name, TEXTS) || name == "PWD" && !is_cwd(value.as_ref(), cwd) {
            continue;
        }
        along.push((name.clone(), value.clone()));
    }
    Ok((along, directories))
}

/// The directories of `PATH` as a compiler that runs in `cwd` finds them: an empty entry means the
/// working directory.
pub(super) fn search_path(path: &OsStr, cwd: &Path) -> Result<OsString, Reason> {
    let mut entries = std::env::split_paths(path);
    if entries.all(|entry| entry.is_absolute()) {
        return Ok(path.to_owned());
    }
    let absolute = |entry: PathBuf| {
        if entry.as_os_str().is_empty() { cwd.to_owned() } else { cwd.join(entry) }
    };
    // A directory whose name has a colon cannot be named.
    std::env::join_paths(std::env::split_paths(path).map(absolute))
        .map_err(|_| Reason::with(Cause::Environment, "PATH"))
}

/// Whether a path means another directory to each process, so that this process cannot tell what it
/// means to the compiler.
fn is_of_this_process(pwd: &Path) -> bool {
    pwd.starts_with("/proc") && pwd != Path::new(OWN_CWD)
}

/// Whether `PWD` names the working directory. Compilers use it if it does, and ignore it otherwise,
/// as when `make -C` passes its caller's on. It is sent only if it does.
fn is_cwd(pwd: &Path, cwd: &Path) -> bool {
    let identity = |path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    let is_same = || identity(pwd).is_some_and(|id| identity(cwd) == Some(id));
    pwd == cwd || pwd == Path::new(OWN_CWD) || pwd.is_absolute() && is_same()
}

fn starts(name: &OsStr, table: &[&str]) -> bool {
    table.iter().any(|start| name.as_bytes().starts_with(start.as_bytes()))
}

/// The directories of a list. An empty entry means the working directory, except in the user's list
/// of directories to show.
fn named(list: &OsStr, role: DirectoryRole) -> impl Iterator<Item = NamedDirectory> {
    let paths = list.as_bytes().split(|byte| *byte == b':');
    let paths = paths.filter(move |path| role != DirectoryRole::Shown || !path.is_empty());
    paths.map(move |path| {
        let path = if path.is_empty() { b"." } else { path };
        NamedDirectory { path: Path::new(OsStr::from_bytes(path)).into(), role }
    })
}
