//! What comes back is what the compiler makes at home.

use crate::support::{Lab, at_home, trial};
use libtest_mimic::Trial;
use outboard_compile::args::Cause;
use outboard_compile::front::Verdict;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("one_file_compiles_elsewhere", one_file),
        trial("a_second_job_sees_what_changed", changes),
        trial("outputs_in_hidden_directories_come_back", hidden),
        trial("headers_in_hidden_directories_keep_jobs_at_home", hidden_header),
        trial("many_jobs_on_three_servers", many),
    ]
}

/// Names that begin with a dot are not shown to servers.
pub(crate) fn directory() -> TempDir {
    tempfile::Builder::new().prefix("project-").tempdir().expect("a directory")
}

pub(crate) fn write(at: &Path, text: &str) {
    fs::create_dir_all(at.parent().expect("it has one")).expect("a directory");
    fs::write(at, text).expect("a file");
}

/// Compiles at home, keeps the outputs, compiles elsewhere, compares.
fn compare(lab: &mut Lab, cwd: &Path, words: &[&str], outputs: &[&str]) {
    at_home(cwd, words);
    let expected: Vec<_> = outputs.iter().map(|at| fs::read(cwd.join(at)).expect(at)).collect();
    outputs.iter().for_each(|at| fs::remove_file(cwd.join(at)).expect(at));
    let finished = lab.run(cwd, words);
    let said = String::from_utf8_lossy(&finished.stderr).into_owned();
    assert_eq!(finished.status, 0, "{words:?}: {said}");
    for (at, expected) in outputs.iter().zip(expected) {
        assert!(fs::read(cwd.join(at)).expect(at) == expected, "{words:?}: {at} differs");
    }
}

fn one_file() {
    let project = directory();
    let at = project.path();
    write(&at.join("include/a.h"), "#define A 1\n");
    let text =
        "#include <stdio.h>\n#include \"a.h\"\nint main(void) { return printf(\"%d\", A); }\n";
    write(&at.join("src/a.c"), text);
    write(&at.join("Makefile"), "");
    let mut lab = Lab::new(1, 2);
    let words = ["gcc", "-O2", "-g", "-MD", "-Iinclude", "-c", "src/a.c", "-o", "a.o"];
    compare(&mut lab, at, &words, &["a.o", "a.d"]);
}

fn changes() {
    let project = directory();
    let at = project.path();
    write(&at.join("a.h"), "#define A 1\n");
    write(&at.join("a.c"), "#include \"a.h\"\nint a = A;\n");
    let mut lab = Lab::new(1, 1);
    let words = ["gcc", "-c", "a.c"];
    compare(&mut lab, at, &words, &["a.o"]);
    write(&at.join("a.h"), "#define A 2222\n");
    compare(&mut lab, at, &words, &["a.o"]);
    write(
        &at.join("a.h"),
        "#if __has_include(\"b.h\")\n#include \"b.h\"\n#else\n#define A 3\n#endif\n",
    );
    compare(&mut lab, at, &words, &["a.o"]);
    write(&at.join("b.h"), "#define A 4\n");
    compare(&mut lab, at, &words, &["a.o"]);
    fs::remove_file(at.join("b.h")).expect("removed");
    compare(&mut lab, at, &words, &["a.o"]);
}

fn hidden() {
    let project = directory();
    let at = project.path();
    write(&at.join("a.c"), "int a;\n");
    fs::create_dir_all(at.join("sub/.deps")).expect("a directory");
    fs::create_dir_all(at.join(".libs")).expect("a directory");
    let mut lab = Lab::new(1, 1);
    let words = ["gcc", "-MD", "-MF", "sub/.deps/a.Tpo", "-c", "a.c", "-o", ".libs/a.o"];
    for _ in 0..2 {
        compare(&mut lab, at, &words, &[".libs/a.o", "sub/.deps/a.Tpo"]);
    }
    let words = ["gcc", "-g", "-gsplit-dwarf", "-c", "a.c", "-o", ".libs/a.o"];
    compare(&mut lab, at, &words, &[".libs/a.o", ".libs/a.dwo"]);
}

/// What is in a hidden directory is not known to be absent: the header that is meant is there.
fn hidden_header() {
    let project = directory();
    let at = project.path();
    write(&at.join("include/config.h"), "#define A 1\n");
    write(&at.join(".build/config.h"), "#define A 2\n");
    write(&at.join("a.c"), "#include <config.h>\nint a = A;\n");
    let mut lab = Lab::new(1, 1);
    let words = ["gcc", "-I.build", "-Iinclude", "-c", "a.c", "-o", ".build/a.o"];
    let ticket = lab.submit(at, &words);
    match lab.verdicts(1).remove(&ticket) {
        Some(Verdict::Home(reason)) => assert_eq!(reason.cause, Cause::Refused, "{reason:?}"),
        other => panic!("{other:?}"),
    }
}

fn many() {
    const COUNT: usize = 60;
    let project = directory();
    let at = project.path();
    for number in 0..COUNT {
        write(
            &at.join(format!("f{number}.c")),
            &format!("int f{number}(void) {{ return {number}; }}\n"),
        );
    }
    let mut lab = Lab::new(3, 2);
    for number in 0..COUNT {
        lab.submit(at, &["gcc", "-c", &format!("f{number}.c")]);
    }
    let verdicts = lab.verdicts(COUNT);
    let servers = verdicts.values().filter(|at| matches!(at, Verdict::Done(_)));
    assert_eq!(servers.count(), COUNT);
    assert!((0..COUNT).all(|number| at.join(format!("f{number}.o")).exists()));
}
