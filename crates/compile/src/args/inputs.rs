//! Checks of a job that need this machine's file system: whether its inputs are files that servers
//! can be shown, and which time zone it uses.
//!
//! Looks at names and reads no file. It blocks if a file system hangs.

use super::{Cause, Classification, DirectoryRole, Job, NamedDirectory, Reason};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

/// Symbolic links in one path, at most, as in the kernel.
const LINKS_MAX: usize = 40;
/// The C library's time zone if `TZ` is not set.
const LOCALTIME: &str = "/etc/localtime";
/// The directory of the zones that `TZ` names.
const ZONES: &str = "/usr/share/zoneinfo";

/// Looks at the files of a job that may run remotely by its command line.
#[must_use]
pub fn examine(plan: Classification) -> Classification {
    let Classification::Remote(mut job) = plan else { return plan };
    if let Some(name) = special(&job) {
        return Classification::Local(Reason::with(Cause::StandardInput, name));
    }
    match add_zone(&mut job) {
        Ok(()) => Classification::Remote(job),
        Err(reason) => Classification::Local(reason),
    }
}

/// An input of the job that is no ordinary file, or another one for each process.
fn special(job: &Job) -> Option<&OsStr> {
    let files = || [&job.source].into_iter().chain(&job.files);
    let file = files().find(|file| is_special(&job.absolute(file)));
    let directories = || job.directories.iter().map(|directory| &directory.path);
    let directory = || directories().find(|path| is_processes(&job.absolute(path)));
    file.or_else(directory).map(|path| path.as_os_str())
}

/// `/dev/stdin`, `/dev/fd/3`, `/proc/self/fd/3` and links to them, pipes and devices but
/// `/dev/null`, which is the same everywhere.
fn is_special(path: &Path) -> bool {
    let Some(path) = resolve(path) else { return true };
    if is_processes(&path) {
        return true;
    }
    let Ok(found) = fs::symlink_metadata(&path) else { return false };
    let kind = found.file_type();
    let is_device = kind.is_char_device() && path != Path::new("/dev/null");
    is_device || kind.is_fifo() || kind.is_socket() || kind.is_block_device()
}

/// Whether a path means another file to each process.
fn is_processes(path: &Path) -> bool {
    ["/proc", "/dev/fd", "/dev/stdin"].iter().any(|own| path.starts_with(own))
}

/// Follows links, except those of `/proc`, which lead to this process's own files. `None` if the
/// links form a circle.
fn resolve(path: &Path) -> Option<PathBuf> {
    let mut ahead: VecDeque<OsString> = path.iter().map(OsStr::to_owned).collect();
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(name) = ahead.pop_front() {
        match Path::new(&name).components().next() {
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::Normal(_)) => at.push(&name),
            _ => {}
        }
        if is_processes(&at) {
            break;
        }
        if let Ok(target) = fs::read_link(&at) {
            links += 1;
            at.pop();
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            target.iter().rev().for_each(|name| ahead.push_front(name.to_owned()));
        }
        if links > LINKS_MAX {
            return None;
        }
    }
    Some(at)
}

/// Compilers write dates: sets `TZ` so that the remote compiler uses the client's time zone.
fn add_zone(job: &mut Job) -> Result<(), Reason> {
    let named = job.env.iter().find(|(name, _)| name == "TZ").map(|(_, value)| value);
    let named = named.map(|value| match value.as_bytes() {
        [b':', zone @ ..] | zone => Path::new(OsStr::from_bytes(zone)),
    });
    match named {
        Some(zone) if zone == Path::new(LOCALTIME) => job.env.retain(|(name, _)| name != "TZ"),
        Some(zone) if zone.is_absolute() && !zone.starts_with(ZONES) => {
            return Err(Reason::with(Cause::Environment, "TZ"));
        }
        _ => {}
    }
    if !job.env.iter().any(|(name, _)| name == "TZ") {
        job.env.extend(zone_here().map(|zone| ("TZ".into(), zone)));
    }
    job.directories.push(NamedDirectory { path: ZONES.into(), role: DirectoryRole::Shown });
    Ok(())
}

/// The value of `TZ` for this machine's zone; `None` if that is a file outside the directory of
/// zones.
fn zone_here() -> Option<OsString> {
    match fs::canonicalize(LOCALTIME) {
        Ok(zone) if zone.starts_with(ZONES) => {
            Some([OsStr::new(":"), zone.as_os_str()].into_iter().collect())
        }
        Ok(_) => None,
        Err(_) => Some("UTC0".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CompilerCall, classify};
    use super::*;
    use std::os::unix::fs::symlink;

    fn call(line: &str, cwd: &Path) -> CompilerCall {
        let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        CompilerCall {
            compiler: "/usr/bin/gcc".into(),
            argv,
            cwd: cwd.into(),
            ..CompilerCall::default()
        }
    }

    #[test]
    fn inputs_that_differ_for_each_process_stay_local() {
        let dir = tempfile::tempdir().unwrap();
        symlink("/dev/stdin", dir.path().join("link.c")).unwrap();
        symlink("link.c", dir.path().join("further.c")).unwrap();
        symlink("circle.c", dir.path().join("circle.c")).unwrap();
        symlink("/proc/self", dir.path().join("own")).unwrap();
        symlink("real.c", dir.path().join("good.c")).unwrap();
        fs::write(dir.path().join("real.c"), "").unwrap();
        let made = std::process::Command::new("mkfifo").arg(dir.path().join("pipe.c")).status();
        assert!(made.unwrap().success());
        let examined = |line: &str| examine(classify(call(line, dir.path())));
        for line in [
            "gcc -x c -c /dev/stdin",
            "gcc -x c -c /dev/fd/0",
            "gcc -x c -c /dev/../dev/fd/63",
            "gcc -x c -c /proc/self/fd/0",
            "gcc -c link.c",
            "gcc -c further.c",
            "gcc -c circle.c",
            "gcc -c pipe.c",
            "gcc -x c -c own/fd/3",
            "gcc -c real.c -include /dev/fd/3",
            "gcc -c real.c -imacros link.c",
            "gcc -c real.c -I/proc/self/fd/4",
        ] {
            match examined(line) {
                Classification::Local(reason) => {
                    assert_eq!(reason.cause, Cause::StandardInput, "{line}")
                }
                Classification::Remote(_) => panic!("{line} may run remotely"),
            }
        }
        for line in ["gcc -c good.c", "gcc -c absent.c", "gcc -x c -c /dev/null -include real.c"] {
            assert!(matches!(examined(line), Classification::Remote(_)), "{line}");
        }
    }

    #[test]
    fn every_job_has_the_zone_of_this_machine_or_its_own() {
        let zone = |value: Option<&str>| {
            let env = value.map(|value| ("TZ".into(), value.into())).into_iter().collect();
            match examine(classify(CompilerCall { env, ..call("gcc -c a.c", Path::new("/p")) })) {
                Classification::Remote(job) => {
                    let zones = |at: &NamedDirectory| at.path == Path::new(ZONES);
                    assert!(job.directories.iter().any(zones), "{value:?}");
                    job.env.into_iter().find(|(name, _)| name == "TZ").map(|(_, zone)| zone)
                }
                Classification::Local(reason) => Some(reason.to_string().into()),
            }
        };
        for named in ["Europe/Berlin", ":Europe/Berlin", "XYZ-5:30", "", "/usr/share/zoneinfo/UTC"]
        {
            assert_eq!(zone(Some(named)), Some(named.into()));
        }
        assert_eq!(zone(Some("/my/zone")), Some("has a special environment: TZ".into()));
        assert_eq!(zone(None), zone_here());
        assert_eq!(zone(Some(":/etc/localtime")), zone_here());
    }
}
