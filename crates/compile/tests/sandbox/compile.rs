//! Compilers in a sandbox see the client's files and produce the same output as local ones.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;

use libtest_mimic::Trial;
use outboard_compile::sandbox::{FinishedJob, JobEnd};
use outboard_compile::view::JobChanges;
use outboard_testkit::eventually;

use crate::support::{Server, job, toolchain, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("gcc_makes_what_it_makes_locally", gcc_makes_what_it_makes_locally),
        trial("what_a_job_removes_of_its_own_is_not_missed", what_a_job_removes_of_its_own),
        trial("a_warm_job_asks_for_what_it_makes_only", a_warm_job_asks_for_what_it_makes_only),
        trial("gpp_makes_what_it_makes_locally", gpp_makes_what_it_makes_locally),
        trial("files_below_dev_are_the_clients", files_below_dev_are_the_clients),
        trial("outputs_that_exist_are_replaced", outputs_that_exist_are_replaced),
        trial("slots_do_not_see_each_other", slots_do_not_see_each_other),
        trial("names_are_bytes", names_are_bytes),
        trial("a_generated_header_is_found", a_generated_header_is_found),
        trial("a_job_waits_for_a_slow_client", a_job_waits_for_a_slow_client),
        trial("a_file_that_changes_unread_is_stale", a_file_that_changes_unread_is_stale),
        trial("everything_can_be_forgotten", everything_can_be_forgotten),
        trial("a_changed_header_is_seen_by_the_next_job", a_changed_header_is_seen_by_the_next_job),
    ]
}

/// The directories that the client exports: its project, and the compiler's header directories.
fn roots(project: &Path) -> Vec<&Path> {
    vec![project, Path::new("/usr/include"), Path::new("/usr/local/include")]
}

fn project(dir: &Path) {
    fs::create_dir_all(dir.join("include/deep")).unwrap();
    fs::create_dir_all(dir.join("src")).unwrap();
    fs::write(dir.join("include/a.h"), "#include \"deep/b.h\"\nint a(int);\n").unwrap();
    fs::write(dir.join("include/deep/b.h"), "#define B 7\n").unwrap();
    let main = "#include <stdio.h>\n#include <a.h>\n#ifdef NUMBER\n\
        int number(void) { return NUMBER; }\n#endif\nint a(int x) { return x * B; }\n\
        int main(void) { printf(\"%d %s\\n\", a(6), __FILE__); return 0; }\n";
    fs::write(dir.join("src/main.c"), main).unwrap();
}

/// All files that gcc produces from `main.c` here.
const GCC: &str = "/usr/bin/gcc -O2 -g -MD -I../include -fstack-usage --coverage -frandom-seed=1 \
    -c main.c -o main.o";

fn arguments(line: &str) -> Vec<&OsStr> {
    line.split_whitespace().map(OsStr::new).collect()
}

/// Bytes of the number that ties an object to its `.dwo`: gcc 12 chooses it at random every time,
/// even with `-frandom-seed`.
const DWO_ID: usize = 8;

/// Runs the same command locally and compares the results.
fn same_locally(arguments: &[&OsStr], dir: &Path, outcome: &JobChanges) {
    let random = if arguments.contains(&OsStr::new("-gsplit-dwarf")) { DWO_ID } else { 0 };
    let mut local = Command::new(arguments[0]);
    local.args(&arguments[1..]).current_dir(dir).env("LC_ALL", "C");
    assert!(local.status().unwrap().success());
    for created in &outcome.created {
        let path = Path::new(OsStr::from_bytes(&created.path));
        let (here, there) = (fs::read(path).unwrap(), &created.contents);
        assert_eq!(here.len(), there.len(), "{} differs", path.display());
        let differing = here.iter().zip(there).filter(|(here, there)| here != there).count();
        assert!(differing <= random, "{} differs", path.display());
    }
}

fn succeeded(ended: &FinishedJob, outcome: &JobChanges) {
    let refused = outcome.refused.as_ref().map(|refused| String::from_utf8_lossy(&refused.path));
    assert_eq!(refused, None);
    assert_eq!(ended.end, JobEnd::Exited(0), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(!outcome.stale);
}

fn gcc_makes_what_it_makes_locally() {
    let home = home();
    project(home.path());
    let (src, gcc) = (home.path().join("src"), arguments(GCC));
    let server = Server::start(1, &roots(home.path()), toolchain(&["/usr/bin/gcc"]));
    for _ in 0..3 {
        let (ended, outcome) = server.run(0, &job(&src, &gcc));
        succeeded(&ended, &outcome);
        assert_eq!(outcome.created.len(), 4, "{:?}", outcome.created);
        same_locally(&gcc, &src, &outcome);
    }
}

/// The sandbox hides none of the client's files in `/dev/shm`.
fn files_below_dev_are_the_clients() {
    let home = tempfile::Builder::new().prefix("home").tempdir_in("/dev/shm").unwrap();
    project(home.path());
    let src = home.path().join("src");
    let gcc = arguments("/usr/bin/gcc -O2 -I../include -c main.c -o main.o");
    let server = Server::start(1, &roots(home.path()), toolchain(&["/usr/bin/gcc"]));
    let (ended, outcome) = server.run(0, &job(&src, &gcc));
    succeeded(&ended, &outcome);
    assert_eq!(outcome.created.len(), 1, "{:?}", outcome.created);
    same_locally(&gcc, &src, &outcome);
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
        same_locally(&gcc, &src, &outcome);
    }
}

fn a_warm_job_asks_for_what_it_makes_only() {
    let home = home();
    project(home.path());
    let (src, gcc) = (home.path().join("src"), arguments(GCC));
    let server = Server::start(1, &roots(home.path()), toolchain(&["/usr/bin/gcc"]));
    // After the first job the kernel asks once more for the attributes of files that were read.
    for _ in 0..2 {
        let (ended, outcome) = server.run(0, &job(&src, &gcc));
        succeeded(&ended, &outcome);
    }
    let cold = server.view.upcalls();
    let (ended, outcome) = server.run(0, &job(&src, &gcc));
    succeeded(&ended, &outcome);
    let warm = server.view.upcalls();
    assert_eq!(warm.waits, cold.waits);
    // The job looks up each file that it makes, and reads some of them again.
    let made = outcome.created.len() as u64;
    assert!(warm.look_ups - cold.look_ups <= made, "{cold:?} {warm:?}");
    assert!(warm.reads - cold.reads < made, "{cold:?} {warm:?}");
    let changes = warm.changes - cold.changes;
    assert!(warm.others - cold.others <= changes, "{cold:?} {warm:?}");
    assert!(outcome.touched.is_empty(), "{:?}", outcome.touched);
}

fn a_changed_header_is_seen_by_the_next_job() {
    let home = home();
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
    same_locally(&gcc, &src, &second);
}

fn home() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("home").tempdir().unwrap()
}

fn gpp_makes_what_it_makes_locally() {
    let home = home();
    let text = "#include <map>\n#include <string>\n#include \"t.h\"\n\
        int f() { return m.size(); }\n";
    fs::write(home.path().join("t.cpp"), text).unwrap();
    fs::write(home.path().join("t.h"), "inline std::map<int, std::string> m;\n").unwrap();
    let binds = toolchain(&["/usr/bin/g++", "/usr/bin/objcopy"]);
    let server = Server::start(1, &roots(home.path()), binds);
    for line in [
        "/usr/bin/g++ -O2 -g -std=c++17 -gsplit-dwarf -MMD -MP -c t.cpp -o t.o",
        "/usr/bin/g++ -O0 -std=c++17 -pipe -S t.cpp",
        "/usr/bin/g++ -O1 -std=c++17 -MD -MF new.d -MT x -c t.cpp",
    ] {
        let gpp = arguments(line);
        let (ended, outcome) = server.run(0, &job(home.path(), &gpp));
        succeeded(&ended, &outcome);
        assert!(!outcome.created.is_empty());
        same_locally(&gpp, home.path(), &outcome);
    }
    // A local error is reported remotely in the same words.
    fs::write(home.path().join("t.h"), "oops\n").unwrap();
    server.changed(&home.path().join("t.h"));
    let gpp = arguments("/usr/bin/g++ -fdiagnostics-color=always -c t.cpp");
    let (ended, outcome) = server.run(0, &job(home.path(), &gpp));
    let mut local = Command::new(gpp[0]);
    let local = local.args(&gpp[1..]).current_dir(home.path()).env("LC_ALL", "C").output().unwrap();
    assert_eq!((ended.end, outcome.refused), (JobEnd::Exited(1), None));
    assert_eq!(ended.stderr, local.stderr);
}

/// As in a second build: the outputs of the first exist at the client and in the view.
fn outputs_that_exist_are_replaced() {
    let home = home();
    project(home.path());
    let (src, gcc) = (home.path().join("src"), arguments(GCC));
    for name in ["main.o", "main.d", "main.su", "main.gcno"] {
        fs::write(src.join(name), "old and much longer than what comes\n".repeat(1000)).unwrap();
    }
    let server = Server::start(1, &roots(home.path()), toolchain(&["/usr/bin/gcc"]));
    for _ in 0..2 {
        let (ended, outcome) = server.run(0, &job(&src, &gcc));
        succeeded(&ended, &outcome);
        assert_eq!(outcome.created.len(), 4);
        assert!(outcome.created.iter().all(|made| !made.contents.starts_with(b"old")));
        for made in &outcome.created {
            let old = fs::read(OsStr::from_bytes(&made.path)).unwrap();
            assert!(old.starts_with(b"old"), "the client's own file was changed");
        }
    }
    let (ended, outcome) = server.run(0, &job(&src, &gcc));
    succeeded(&ended, &outcome);
    same_locally(&gcc, &src, &outcome);
    // A read-only file is not overwritten here either.
    let locked = src.join("main.d");
    fs::set_permissions(&locked, PermissionsExt::from_mode(0o444)).unwrap();
    server.changed(&locked);
    let (ended, _) = server.run(0, &job(&src, &gcc));
    assert_eq!(ended.end, JobEnd::Exited(1));
}

fn slots_do_not_see_each_other() {
    let home = home();
    project(home.path());
    let src = home.path().join("src");
    let server = Server::start(8, &roots(home.path()), toolchain(&["/usr/bin/gcc"]));
    std::thread::scope(|scope| {
        for slot in 0..8 {
            let (server, src) = (&server, &src);
            scope.spawn(move || {
                for round in 0..4 {
                    let number = format!("-DNUMBER=1{slot}{round}");
                    let line = format!("/usr/bin/gcc -O1 {number} -I../include -S main.c -o out.s");
                    let (ended, outcome) = server.run(slot, &job(src, &arguments(&line)));
                    succeeded(&ended, &outcome);
                    assert_eq!(outcome.created.len(), 1);
                    let text = String::from_utf8_lossy(&outcome.created[0].contents).into_owned();
                    assert!(text.contains(&format!("$1{slot}{round}, %eax")), "{text}");
                }
            });
        }
    });
}

fn names_are_bytes() {
    let home = home();
    let dir = home.path().join(OsStr::from_bytes(b"a b'c\"d\ne\xff\xfe"));
    fs::create_dir(&dir).unwrap();
    let source = OsStr::from_bytes(b"x \n\xe9.c");
    fs::write(dir.join("h '\u{e9}.h"), "#define X 3\n").unwrap();
    fs::write(dir.join(source), "#include \"h '\u{e9}.h\"\nint x = X;\n").unwrap();
    let gcc = [&b"/usr/bin/gcc"[..], b"-g", b"-MD", b"-c", source.as_bytes(), b"-o", b"o\xff\n.o"];
    let gcc: Vec<_> = gcc.into_iter().map(OsStr::from_bytes).collect();
    let server = Server::start(1, &roots(home.path()), toolchain(&["/usr/bin/gcc"]));
    let (ended, outcome) = server.run(0, &job(&dir, &gcc));
    succeeded(&ended, &outcome);
    assert_eq!(outcome.created.len(), 2);
    same_locally(&gcc, &dir, &outcome);
}

fn a_generated_header_is_found() {
    let home = home();
    project(home.path());
    let src = home.path().join("src");
    fs::write(src.join("uses.c"), "#include <generated.h>\nint g = G;\n").unwrap();
    let gcc = arguments("/usr/bin/gcc -I../include -I../include/deep -c uses.c");
    let server = Server::start(1, &roots(home.path()), toolchain(&["/usr/bin/gcc"]));
    let (ended, outcome) = server.run(0, &job(&src, &gcc));
    assert_eq!((ended.end, outcome.refused), (JobEnd::Exited(1), None));
    for (dir, value) in [("include/deep", "1"), ("include", "2")] {
        let header = home.path().join(dir).join("generated.h");
        fs::write(&header, format!("#define G {value}\n")).unwrap();
        server.changed(&header);
        let (ended, outcome) = server.run(0, &job(&src, &gcc));
        succeeded(&ended, &outcome);
        same_locally(&gcc, &src, &outcome);
    }
    fs::remove_file(home.path().join("include/generated.h")).unwrap();
    server.changed(&home.path().join("include/generated.h"));
    let (ended, outcome) = server.run(0, &job(&src, &gcc));
    succeeded(&ended, &outcome);
    same_locally(&gcc, &src, &outcome);
}

fn a_job_waits_for_a_slow_client() {
    let home = home();
    project(home.path());
    let (src, gcc) = (home.path().join("src"), arguments(GCC));
    let server = Server::start(2, &roots(home.path()), toolchain(&["/usr/bin/gcc"]));
    server.source.slow.store(true, Ordering::Relaxed);
    let (ended, outcome) = server.run(0, &job(&src, &gcc));
    succeeded(&ended, &outcome);
    same_locally(&gcc, &src, &outcome);
    // A job that waits for ever can nevertheless be stopped.
    server.source.silent.store(true, Ordering::Relaxed);
    server.view.begin(1, outboard_compile::view::Places::default()).unwrap();
    let mut slot_sandbox = server.slot_sandboxes[1].lock().unwrap();
    fs::write(home.path().join("include/new.h"), "").unwrap();
    server.source.forget(&home.path().join("include"));
    server.source.forget(&src);
    let before = server.view.upcalls().waits;
    slot_sandbox.start(&job(&src, &arguments("/usr/bin/gcc -I../include -c new.c"))).unwrap();
    eventually("the job waits for the client", || server.view.upcalls().waits > before);
    slot_sandbox.stop().unwrap();
    server.view.cancel(1);
    // On a busy machine the compiler sees the failed request before the stop takes effect.
    let end = slot_sandbox.wait().unwrap().end;
    assert!(matches!(end, JobEnd::Stopped | JobEnd::Exited(1)), "{end:?}");
    server.view.finish(1).unwrap();
}

fn a_file_that_changes_unread_is_stale() {
    let home = home();
    project(home.path());
    let (src, gcc) = (home.path().join("src"), arguments(GCC));
    let server = Server::start(1, &roots(home.path()), toolchain(&["/usr/bin/gcc"]));
    server.run(0, &job(&src, &arguments("/usr/bin/gcc -I../include -E nothing.c")));
    server.source.list_all(&[&src]);
    // The name is known, the contents are not read, and the client reports no change.
    fs::write(src.join("main.c"), "int changed;\n").unwrap();
    let (ended, outcome) = server.run(0, &job(&src, &gcc));
    assert_eq!(ended.end, JobEnd::Exited(1));
    assert!(outcome.stale);
    server.changed(&src.join("main.c"));
    let (ended, outcome) = server.run(0, &job(&src, &gcc));
    succeeded(&ended, &outcome);
    same_locally(&gcc, &src, &outcome);
}

fn everything_can_be_forgotten() {
    let home = home();
    project(home.path());
    let (src, gcc) = (home.path().join("src"), arguments(GCC));
    let server = Server::start(1, &roots(home.path()), toolchain(&["/usr/bin/gcc"]));
    for round in 0..3 {
        fs::write(home.path().join("include/deep/b.h"), format!("#define B {round}\n")).unwrap();
        server.source.forget(&home.path().join("include/deep"));
        server.view.forget_all();
        let (ended, outcome) = server.run(0, &job(&src, &gcc));
        succeeded(&ended, &outcome);
        same_locally(&gcc, &src, &outcome);
    }
}
