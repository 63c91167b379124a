//! The files that a job will make, according to its arguments: they need not exist before it runs.
//!
//! Opens no file: a job whose arguments are in response files is not analysed.

use crate::args::{Classification, CompilerCall, Job, classify};
use crate::protocol::JobSpec;
use crate::view::Places;
use outboard_unix::names::without_dots;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The object that a job makes, by its absolute path.
pub(super) fn object(job: &Job) -> Option<Vec<u8>> {
    Some(at(job, job.outputs.first()?.path()))
}

/// The directories in which a job makes files, with those files.
pub(super) fn places(spec: &JobSpec, job: Option<&Job>) -> Places {
    let directories = spec.places.clone();
    // Most jobs have none.
    let job = job.filter(|_| !directories.is_empty());
    let Some(job) = job else { return Places { directories, ..Places::default() } };
    let outputs = || job.outputs.iter().map(|output| output.path());
    let stems = outputs().chain([&*job.source]).filter_map(Path::file_stem);
    Places {
        directories,
        files: outputs().map(|path| at(job, path)).collect(),
        stems: stems.map(|stem| stem.as_bytes().to_vec()).collect(),
    }
}

fn at(job: &Job, path: &Path) -> Vec<u8> {
    without_dots(&job.absolute(path)).into_os_string().into_vec()
}

/// The job that the arguments describe, unless some of them are in a response file.
pub(super) fn job_of(spec: &JobSpec) -> Option<Job> {
    let word = |word: &Vec<u8>| OsString::from_vec(word.clone());
    if spec.argv.iter().any(|word| word.starts_with(b"@")) {
        return None;
    }
    let call = CompilerCall {
        compiler: word(&spec.compiler).into(),
        argv: spec.argv.iter().map(word).collect(),
        cwd: Path::new(OsStr::from_bytes(&spec.cwd)).into(),
        umask: spec.umask,
        ..CompilerCall::default()
    };
    match classify(call) {
        Classification::Remote(job) => Some(*job),
        Classification::Local(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Places {
        let spec = JobSpec {
            ticket: 1,
            compiler: b"/usr/bin/gcc".to_vec(),
            toolchain: [1; 32],
            argv: line.split(' ').map(|word| word.as_bytes().to_vec()).collect(),
            cwd: b"/p".to_vec(),
            env: Vec::new(),
            umask: 0o022,
            places: vec![b"/p/.build".to_vec()],
        };
        places(&spec, job_of(&spec).as_ref())
    }

    #[test]
    fn outputs_and_their_names_are_known_from_the_words() {
        let places = of("gcc -MD -MF .deps/x.Tpo -c src/a.c -o ./.build/b.o");
        assert_eq!(places.files, [&b"/p/.build/b.o"[..], b"/p/.deps/x.Tpo"]);
        assert_eq!(places.stems, [&b"b"[..], b"x", b"a"]);
    }

    #[test]
    fn words_in_files_are_not_looked_for() {
        let places = of("gcc @/etc/passwd -c a.c -o .build/a.o");
        assert_eq!((places.files.len(), places.directories.len()), (0, 1));
    }
}
