//! Compilers that the server lacks and the client has.

use crate::builds::{directory, write};
use crate::support::{Lab, as_ordinary_user, locally, trial};
use libtest_mimic::Trial;
use outboard_compile::args::Cause;
use outboard_compile::manager::Verdict;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const TAKES: &str = "a_server_takes_its_clients_compiler_if_it_may";

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial(TAKES, takes_ordinarily), trial("a_server_takes_no_compiler_unasked", refuses)]
}

/// A fetched compiler's files belong to the user that runs jobs, and a server is never root.
fn takes_ordinarily() {
    as_ordinary_user(TAKES, takes);
}

/// A copy of gcc's files under another prefix, two of them different.
fn foreign(at: &Path) -> Option<PathBuf> {
    let ask = |word: &str| {
        let output = Command::new("/usr/bin/gcc").arg(word).output().expect("gcc");
        PathBuf::from(String::from_utf8(output.stdout).expect("a text").trim())
    };
    let own = ask("-print-prog-name=cc1").canonicalize().ok()?.parent()?.to_owned();
    let lib = at.join(own.strip_prefix("/usr").ok()?);
    let bin = at.join("bin");
    fs::create_dir_all(&lib).expect("a directory");
    fs::create_dir_all(&bin).expect("a directory");
    fs::copy("/usr/bin/gcc", bin.join("gcc")).expect("a driver");
    for name in ["cc1", "collect2", "lto-wrapper", "liblto_plugin.so"] {
        fs::copy(own.join(name), lib.join(name)).expect(name);
    }
    let copied = Command::new("cp").arg("-rL").arg(own.join("include")).arg(&lib).status();
    assert!(copied.expect("cp").success());
    for changed in [bin.join("gcc"), lib.join("lto-wrapper")] {
        let mut file = fs::OpenOptions::new().append(true).open(changed).expect("a program");
        file.write_all(b"of another release").expect("written");
    }
    Some(bin.join("gcc"))
}

fn project(at: &Path) {
    write(&at.join("a.h"), "#include <stddef.h>\n#define A 1\n");
    write(&at.join("a.c"), "#include <stdio.h>\n#include \"a.h\"\nsize_t a = A;\n");
}

fn takes() {
    let (project_at, prefix) = (directory(), directory());
    let at = project_at.path();
    project(at);
    let Some(gcc) = foreign(prefix.path()) else { return };
    let gcc = gcc.to_str().expect("a text");
    let mut lab = Lab::accepting(1, 2);
    // A compiler that only the client has, one that the server has, and the first again.
    for compiler in [gcc, "/usr/bin/gcc", gcc] {
        for words in [
            [compiler, "-O2", "-g", "-c", "a.c", "-o", "a.o"],
            [compiler, "-O0", "-MD", "-c", "a.c", "-o", "a.o"],
        ] {
            locally(at, &words);
            let expected = fs::read(at.join("a.o")).expect("an object");
            fs::remove_file(at.join("a.o")).expect("removed");
            let finished = lab.run(at, &words);
            let said = String::from_utf8_lossy(&finished.stderr).into_owned();
            assert_eq!(finished.status, 0, "{words:?}: {said}");
            assert!(fs::read(at.join("a.o")).expect("an object") == expected, "{words:?}");
            let finished = lab.run_preprocessed(at, &words);
            assert_eq!(finished.status, 0, "{words:?}");
        }
    }
    // Jobs of both compilers at once: they get one sandbox after the other.
    for number in 0..6 {
        let compiler = if number % 2 == 0 { gcc } else { "/usr/bin/gcc" };
        lab.submit(at, &[compiler, "-c", "a.c", "-o", &format!("a{number}.o")]);
    }
    let done = lab.verdicts(6);
    assert!(done.values().all(|verdict| matches!(verdict, Verdict::Done(at) if at.status == 0)));
}

fn refuses() {
    let (project_at, prefix) = (directory(), directory());
    let at = project_at.path();
    project(at);
    let Some(gcc) = foreign(prefix.path()) else { return };
    let gcc = gcc.to_str().expect("a text");
    let mut lab = Lab::new(1, 1);
    let ticket = lab.submit(at, &[gcc, "-c", "a.c"]);
    match lab.verdicts(1).remove(&ticket) {
        Some(Verdict::Local(reason)) => assert_eq!(reason.cause, Cause::NoToolchain),
        other => panic!("{other:?}"),
    }
}
