//! Compilers see the client's files and make what they make at home.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use libtest_mimic::Trial;
use outboard_compile::sandbox::{End, Ended};
use outboard_compile::view::Outcome;

use crate::support::{Server, job, toolchain, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("gcc_makes_what_it_makes_at_home", gcc_makes_what_it_makes_at_home),
        trial("what_a_job_removes_of_its_own_is_not_missed", what_a_job_removes_of_its_own),
        trial("a_warm_job_asks_for_what_it_makes_only", a_warm_job_asks_for_what_it_makes_only),
        trial("a_changed_header_is_seen_by_the_next_job", a_changed_header_is_seen_by_the_next_job),
    ]
}

/// What the client shows: its project, and where the compiler looks for headers.
fn roots(project: &Path) -> Vec<&Path> {
    vec![project, Path::new("/usr/include"), Path::new("/usr/local/include")]
}

fn project(dir: &Path) {
    fs::create_dir_all(dir.join("include/deep")).unwrap();
    fs::create_dir_all(dir.join("src")).unwrap();
    fs::write(dir.join("include/a.h"), "#include \"deep/b.h\"\nint a(int);\n").unwrap();
    fs::write(dir.join("include/deep/b.h"), "#define B 7\n").unwrap();
    let main = "#include <stdio.h>\n#include <a.h>\nint a(int x) { return x * B; }\n\
        int main(void) { printf(\"%d %s\\n\", a(6), __FILE__); return 0; }\n";
    fs::write(dir.join("src/main.c"), main).unwrap();
}

/// Everything that gcc makes of `main.c`, here.
const GCC: &str = "/usr/bin/gcc -O2 -g -MD -I../include -fstack-usage --coverage -frandom-seed=1 \
    -c main.c -o main.o";

fn arguments(line: &str) -> Vec<&OsStr> {
    line.split_whitespace().map(OsStr::new).collect()
}

/// Runs the same at home and compares what came out.
fn same_at_home(arguments: &[&OsStr], dir: &Path, outcome: &Outcome) {
    let mut local = Command::new(arguments[0]);
    local.args(&arguments[1..]).current_dir(dir).env("LC_ALL", "C");
    assert!(local.status().unwrap().success());
    for created in &outcome.created {
        let path = Path::new(OsStr::from_bytes(&created.path));
        assert!(fs::read(path).unwrap() == created.contents, "{} differs", path.display());
    }
}

fn succeeded(ended: &Ended, outcome: &Outcome) {
    let refused = outcome.refused.as_ref().map(|refused| String::from_utf8_lossy(&refused.path));
    assert_eq!(refused, None);
    assert_eq!(ended.end, End::Exited(0), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(!outcome.stale);
}

fn gcc_makes_what_it_makes_at_home() {
    let home = tempfile::Builder::new().prefix("home").tempdir().unwrap();
    project(home.path());
    let (src, gcc) = (home.path().join("src"), arguments(GCC));
    let server = Server::start(1, &roots(home.path()), toolchain(&["/usr/bin/gcc"]));
    for _ in 0..3 {
        let (ended, outcome) = server.run(0, &job(&src, &gcc));
        succeeded(&ended, &outcome);
        assert_eq!(outcome.created.len(), 4, "{:?}", outcome.created);
        same_at_home(&gcc, &src, &outcome);
    }
}

/// objcopy makes a file beside the object and removes it.
fn what_a_job_removes_of_its_own() {
    let home = tempfile::Builder::new().prefix("home").tempdir().unwrap();
    project(home.path());
    let src = home.path().join("src");
    let gcc = arguments("/usr/bin/gcc -g -gsplit-dwarf -I../include -c main.c -o main.o");
    let server = Server::start(1, &roots(home.path()), toolchain(&["/usr/bin/gcc"]));
    for _ in 0..2 {
        let (ended, outcome) = server.run(0, &job(&src, &gcc));
        succeeded(&ended, &outcome);
        assert_eq!(outcome.created.len(), 2, "{:?}", outcome.created);
        let deleted = outcome.deleted.iter().map(|path| String::from_utf8_lossy(path));
        assert_eq!(deleted.filter(|path| path.contains("/st")).count(), 0);
        same_at_home(&gcc, &src, &outcome);
    }
}

fn a_warm_job_asks_for_what_it_makes_only() {
    let home = tempfile::Builder::new().prefix("home").tempdir().unwrap();
    project(home.path());
    let (src, gcc) = (home.path().join("src"), arguments(GCC));
    let server = Server::start(1, &roots(home.path()), toolchain(&["/usr/bin/gcc"]));
    let (ended, outcome) = server.run(0, &job(&src, &gcc));
    succeeded(&ended, &outcome);
    let cold = server.view.upcalls();
    let (ended, outcome) = server.run(0, &job(&src, &gcc));
    succeeded(&ended, &outcome);
    let warm = server.view.upcalls();
    eprintln!("cold {cold:?}, with warm {warm:?}");
    assert_eq!(warm.reads, cold.reads);
    assert_eq!(warm.waits, cold.waits);
    let made = outcome.created.len() as u64;
    assert!(warm.look_ups - cold.look_ups <= made, "{cold:?} {warm:?}");
}

fn a_changed_header_is_seen_by_the_next_job() {
    let home = tempfile::Builder::new().prefix("home").tempdir().unwrap();
    project(home.path());
    let (src, gcc) = (home.path().join("src"), arguments(GCC));
    let server = Server::start(1, &roots(home.path()), toolchain(&["/usr/bin/gcc"]));
    let (ended, first) = server.run(0, &job(&src, &gcc));
    succeeded(&ended, &first);
    let deep = home.path().join("include/deep");
    fs::write(deep.join("b.h"), "#define B 8\n").unwrap();
    server.changed(&deep.join("b.h"));
    let (ended, second) = server.run(0, &job(&src, &gcc));
    succeeded(&ended, &second);
    assert_ne!(first.created, second.created);
    same_at_home(&gcc, &src, &second);
}
