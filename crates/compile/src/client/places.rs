//! Where a job's outputs may go: a server that lies shall not write wherever it likes.
//!
//! What the command line names may be made. Compilers make other files beside these, or in the
//! directory where they run, and name them after the source or the object: those of known kinds,
//! none of which anybody writes by hand.

use super::roots::plain;
use crate::args::{Job, Output};
use crate::protocol::{Made, Ran};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// How files end that compilers make beside the object: dependencies, split debug information,
/// stack usage, notes for coverage, call graphs.
const SIDE_ENDINGS: &[&str] = &["d", "dwo", "su", "gcno", "ci"];

/// Whether `path`, which is absolute, may be an output of `job`.
pub(crate) fn may_hold(job: &Job, path: &Path) -> bool {
    let places = || job.outputs.iter().map(|output| plain(&job.absolute(output.path())));
    if path != plain(path) {
        return false;
    }
    if places().any(|place| place == path) {
        return true;
    }
    let beside = places().any(|place| place.parent() == path.parent());
    let here = path.parent() == Some(&plain(&job.cwd));
    let is_known = SIDE_ENDINGS.iter().any(|ending| path.extension() == Some(OsStr::new(ending)));
    is_known && (beside || here) && path.file_name().is_some_and(|name| is_named_after(job, name))
}

/// The object, if a server says that it compiled and does not bring it.
pub(crate) fn missing(job: &Job, ran: &Ran) -> Option<PathBuf> {
    let object = plain(&job.absolute(job.outputs.first()?.path()));
    let is_object = |made: &Made| *made.path == *object.as_os_str().as_bytes();
    (!ran.files.iter().any(is_object)).then_some(object)
}

/// Directories of outputs that are not shown to servers because a name in their paths begins with a
/// dot: automake's `.deps`, libtool's `.libs`.
pub(crate) fn hidden(job: &Job) -> Vec<Vec<u8>> {
    let is_hidden = |path: &Path| path.iter().any(|name| name.as_bytes().starts_with(b"."));
    let places = job.outputs.iter().map(|output| plain(&job.absolute(output.path())));
    let directories = places.filter_map(|place| Some(place.parent()?.to_path_buf()));
    let mut hidden: Vec<_> = directories.filter(|at| is_hidden(at)).collect();
    hidden.sort_unstable();
    hidden.dedup();
    hidden.into_iter().map(|at| at.into_os_string().into_vec()).collect()
}

/// The directories that a job needs whose source is brought to it: where it runs, and the way to
/// its source and to every output, letter by letter.
pub(crate) fn needed(job: &Job) -> Vec<Vec<u8>> {
    let files = job.outputs.iter().map(Output::path).chain([&*job.source]);
    let mut needed = vec![plain(&job.cwd)];
    for file in files {
        let file = job.absolute(file);
        let mut at = PathBuf::new();
        for part in file.parent().into_iter().flat_map(Path::components) {
            match part {
                Component::CurDir => {}
                // The kernel goes into a directory before it goes up again.
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
    fn what_the_command_line_names_and_what_is_named_after_it() {
        for path in [
            "/p/build/obj/net.o",
            "/p/.deps/net.Tpo",
            "/p/build/obj/net.dwo",
            "/p/build/obj/net.gcno",
            "/p/build/net.su",
            "/p/build/net.c-net.o.dwo",
        ] {
            assert!(may_hold(&job(), path.as_ref()), "{path}");
        }
    }

    #[test]
    fn hidden_directories_of_outputs_are_named_once() {
        assert_eq!(hidden(&job()), [b"/p/.deps".to_vec()]);
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
    fn nothing_else() {
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
