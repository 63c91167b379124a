//! The paths at which a server may have outputs placed, so that a hostile server cannot write
//! anywhere else.
//!
//! Allowed are the outputs that the command line names. Side outputs that a flag asks for may have
//! other names, but lie beside these or in the working directory, and are named after the source or
//! the object.

use crate::args::{Job, Output};
use crate::protocol::{Made, Ran};
use outboard_unix::names::without_dots;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// The extension of a side output that a flag asks for; `None` for the object.
fn ending(asked_for: &Output) -> Option<&'static str> {
    match asked_for {
        Output::Object(_) => None,
        Output::Dependencies(_) => Some("d"),
        Output::SplitDebug(_) => Some("dwo"),
        Output::StackUsage(_) => Some("su"),
        Output::CoverageNotes(_) => Some("gcno"),
    }
}

/// Whether `path`, which is absolute, may be an output of `job`.
pub(crate) fn may_hold(job: &Job, path: &Path) -> bool {
    if path != without_dots(path) {
        return false;
    }
    let places: Vec<_> = job.outputs.iter().flat_map(|output| paths_of(job, output)).collect();
    if places.iter().any(|place| place == path) {
        return true;
    }
    let beside = places.iter().any(|place| place.parent() == path.parent());
    let here = path.parent() == Some(&without_dots(&job.cwd));
    let mut endings = job.outputs.iter().filter_map(ending);
    let is_asked_for = endings.any(|ending| path.extension() == Some(OsStr::new(ending)));
    is_asked_for
        && (beside || here)
        && path.file_name().is_some_and(|name| is_named_after(job, name))
}

/// The paths of an output: as the command line names it, and with links in its directory resolved,
/// as a server reports it if the link is exported.
fn paths_of(job: &Job, output: &Output) -> Vec<PathBuf> {
    let named = without_dots(&job.absolute(output.path()));
    let real = || Some(named.parent()?.canonicalize().ok()?.join(named.file_name()?));
    let real = real().filter(|real| *real != named);
    [named].into_iter().chain(real).collect()
}

/// The object's path, if a server reports success but no object.
pub(crate) fn missing(job: &Job, ran: &Ran) -> Option<PathBuf> {
    let objects = paths_of(job, job.outputs.first()?);
    let is_object =
        |made: &Made| objects.iter().any(|object| *made.path == *object.as_os_str().as_bytes());
    if ran.files.iter().any(is_object) { None } else { objects.into_iter().next() }
}

/// The directories of those outputs that servers do not see: they lie outside `roots`, or a name
/// that begins with a dot hides them (automake's `.deps`, the kernel's `.foo.o.d`).
pub(crate) fn unseen(job: &Job, roots: &[PathBuf]) -> Vec<Vec<u8>> {
    let outputs = job.outputs.iter().map(|output| without_dots(&job.absolute(output.path())));
    let is_seen = |path: &Path| {
        let mut inside = roots.iter().filter_map(|root| path.strip_prefix(root).ok());
        inside.any(|path| !path.iter().any(|name| name.as_bytes().starts_with(b".")))
    };
    let unseen = outputs.filter(|path| !is_seen(path));
    let mut unseen: Vec<_> =
        unseen.filter_map(|path| Some(path.parent()?.as_os_str().to_owned())).collect();
    unseen.sort_unstable();
    unseen.dedup();
    unseen.into_iter().map(OsString::into_vec).collect()
}

/// The directories that must exist for a preprocessed job: the working directory, and those on the
/// paths to its source and outputs, as the command line spells them.
pub(crate) fn needed(job: &Job) -> Vec<Vec<u8>> {
    let files = job.outputs.iter().map(Output::path).chain([&*job.source]);
    let mut needed = vec![without_dots(&job.cwd)];
    for file in files {
        let file = job.absolute(file);
        let mut at = PathBuf::new();
        for part in file.parent().into_iter().flat_map(Path::components) {
            match part {
                Component::CurDir => {}
                // The kernel resolves `dir/..` only if `dir` exists.
                Component::ParentDir => {
                    needed.push(at.clone());
                    at.pop();
                }
                other => at.push(other),
            }
        }
        needed.push(at);
    }
    needed.retain(|at| at.parent().is_some());
    needed.sort_unstable();
    needed.dedup();
    needed.into_iter().map(|at| at.into_os_string().into_vec()).collect()
}

/// Whether a file's name begins as the source's or an output's does, up to its first dot.
fn is_named_after(job: &Job, name: &OsStr) -> bool {
    let outputs = job.outputs.iter().map(|output| output.path());
    let mut stems = outputs.chain([&*job.source]).filter_map(Path::file_stem);
    stems.any(|stem| {
        let rest = name.as_bytes().strip_prefix(stem.as_bytes());
        rest.is_some_and(|rest| matches!(rest.first(), Some(b'.' | b'-')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Language;

    fn job() -> Job {
        Job {
            compiler: "/usr/bin/cc".into(),
            argv: Vec::new(),
            cwd: "/p/build".into(),
            env: Vec::new(),
            path: "/usr/bin".into(),
            umask: 0o022,
            source: "../src/net.c".into(),
            language: Language::C,
            outputs: vec![
                Output::Object("obj/net.o".into()),
                Output::Dependencies("../.deps/net.Tpo".into()),
            ],
            directories: Vec::new(),
            files: Vec::new(),
        }
    }

    #[test]
    fn named_outputs_and_their_side_outputs_are_allowed() {
        let all = |net: &Path| {
            let at = |ending: &str| net.with_extension(ending);
            vec![
                Output::Object("obj/net.o".into()),
                Output::Dependencies("../.deps/net.Tpo".into()),
                Output::SplitDebug(at("dwo")),
                Output::StackUsage(at("su")),
                Output::CoverageNotes(at("gcno")),
            ]
        };
        let asking = Job { outputs: all(Path::new("obj/net")), ..job() };
        for path in ["/p/build/obj/net.o", "/p/.deps/net.Tpo"] {
            assert!(may_hold(&job(), path.as_ref()), "{path}");
        }
        for path in [
            "/p/build/obj/net.d",
            "/p/build/obj/net.dwo",
            "/p/build/obj/net.gcno",
            "/p/build/net.su",
            "/p/build/net.c-net.o.dwo",
        ] {
            assert!(may_hold(&asking, path.as_ref()), "{path}");
            let is_asked_for = path.ends_with(".d");
            assert_eq!(may_hold(&job(), path.as_ref()), is_asked_for, "{path}");
        }
        let plain = Job { outputs: vec![Output::Object("obj/net.o".into())], ..job() };
        assert!(!may_hold(&plain, "/p/build/obj/net.d".as_ref()), "make would run it");
        assert!(!may_hold(&asking, "/p/build/obj/net.ci".as_ref()), "no flag asks for it");
    }

    #[test]
    fn directories_of_outputs_that_are_not_seen_are_named_once() {
        let unseen = |roots: &[&str], outputs: &[&str]| {
            let outputs = outputs.iter().map(|path| Output::Object(path.into())).collect();
            let roots: Vec<_> = roots.iter().map(PathBuf::from).collect();
            let unseen = super::unseen(&Job { outputs, ..job() }, &roots).into_iter();
            unseen.map(|at| String::from_utf8(at).expect("a text")).collect::<Vec<_>>()
        };
        assert_eq!(unseen(&["/p"], &["obj/net.o", "../.deps/net.Tpo", "../.deps/x"]), ["/p/.deps"]);
        assert_eq!(unseen(&["/p"], &["obj/net.o", "obj/.net.o.d"]), ["/p/build/obj"]);
        assert_eq!(unseen(&["/p"], &["/q/out/net.o"]), ["/q/out"]);
        assert_eq!(unseen(&[], &["net.o"]), ["/p/build"]);
        assert_eq!(unseen(&["/p", "/p/.x"], &["/p/.x/net.o"]), [""; 0]);
    }

    #[test]
    fn every_directory_on_the_way_is_needed_once() {
        let needed: Vec<_> = needed(&Job { source: "../x/../src/net.c".into(), ..job() })
            .into_iter()
            .map(|at| String::from_utf8(at).expect("a text"))
            .collect();
        assert_eq!(needed, ["/p/.deps", "/p/build", "/p/build/obj", "/p/src", "/p/x"]);
    }

    #[test]
    fn all_other_paths_are_refused() {
        for path in [
            "/p/build/obj/other.o",
            "/p/build/Makefile",
            "/p/src/net.c",
            "/u/.ssh/authorized_keys",
            "/p/build/obj/../obj/net.o",
            "/p/build/network",
            "/p/build/net.h",
            "/p/build/obj/net.c",
            "/p/build/obj/net.o.txt",
            "/p/build/obj/sub/net.o",
            "obj/net.o",
        ] {
            assert!(!may_hold(&job(), path.as_ref()), "{path}");
        }
    }
}
