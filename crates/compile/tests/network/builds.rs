//! Remote outputs are equal to those that the compiler makes locally.

use crate::support::{Lab, as_ordinary_user, cpu, locally, locally_in, trial};
use libtest_mimic::Trial;
use outboard_compile::args::Cause;
use outboard_compile::manager::{RemoteExecutor, Ticket, Verdict};
use outboard_testkit::eventually;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("one_file_compiles_remotely", one_file),
        trial("a_second_job_sees_what_changed", changes),
        trial("outputs_in_hidden_directories_come_back", hidden),
        trial("headers_in_hidden_directories_make_jobs_run_locally", hidden_header),
        trial("outputs_with_hidden_names_come_back", hidden_names),
        trial(UNLISTED, || as_ordinary_user(UNLISTED, unlisted)),
        trial("outputs_outside_the_project_come_back", outside),
        trial("what_the_user_shows_is_shown_below_a_hidden_name", shown),
        trial("dates_are_in_the_clients_time_zone", zones),
        trial("the_directory_is_called_as_the_compiler_sees_it", own_directory),
        trial("other_libraries_for_the_compiler_make_jobs_run_locally", other_libraries),
        trial("what_is_reached_through_links_compiles_remotely", links),
        trial("what_servers_may_not_have_is_not_tried_again", refusals),
        trial("code_for_another_word_size_is_compiled", other_words),
        trial("many_jobs_on_three_servers", many),
        trial("an_identity_has_the_slots_that_it_may_have", limited),
        trial("a_large_output_delays_no_other_job", large),
        trial("long_inputs_delay_no_other_job", large_inputs),
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

/// Compiles locally, keeps the outputs, compiles remotely, compares.
fn compare(lab: &mut Lab, cwd: &Path, words: &[&str], outputs: &[&str]) {
    locally_in(cwd, words, &lab.env);
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

/// As the build files of the Linux kernel do it.
fn hidden_names() {
    let project = directory();
    let at = project.path();
    write(&at.join("sub/a.c"), "#include \"b.h\"\nint a;\n");
    write(&at.join("sub/b.h"), "\n");
    let mut lab = Lab::new(1, 1);
    let words = ["gcc", "-Wp,-MMD,sub/.a.o.d", "-c", "sub/a.c", "-o", "sub/a.o"];
    for _ in 0..2 {
        compare(&mut lab, at, &words, &["sub/a.o", "sub/.a.o.d"]);
    }
    compare(&mut lab, at, &["gcc", "-MD", "-c", "sub/a.c", "-o", ".a.o"], &[".a.o", ".a.d"]);
    // A hidden file that is no output is not known to be absent there either.
    write(&at.join("sub/.c.h"), "#define C 1\n");
    let text = "#if __has_include(\".c.h\")\n#include \".c.h\"\n#endif\nint c = C;\n";
    write(&at.join("sub/c.c"), text);
    let ticket = lab.submit(at, &["gcc", "-Wp,-MMD,sub/.c.o.d", "-c", "sub/c.c", "-o", "sub/c.o"]);
    expect_refused(&mut lab, ticket);
}

fn expect_refused(lab: &mut Lab, ticket: Ticket) {
    match lab.verdicts(1).remove(&ticket) {
        Some(Verdict::Local(reason)) => assert_eq!(reason.cause, Cause::Refused, "{reason:?}"),
        other => panic!("{other:?}"),
    }
}

const UNLISTED: &str = "headers_in_directories_that_cannot_be_listed_are_not_taken_for_absent";

/// Everything can be listed by root.
fn unlisted() {
    let project = directory();
    let at = project.path();
    write(&at.join("inc/v.h"), "#define V 1\n");
    write(&at.join("w.h"), "#define V 2\n");
    let asks = "#if __has_include(\"v.h\")\n#include \"v.h\"\n#else\n#include \"w.h\"\n#endif\n";
    write(&at.join("a.c"), &format!("{asks}int a = V;\n"));
    let mut lab = Lab::new(1, 1);
    let words = ["gcc", "-Iinc", "-I.", "-c", "a.c"];
    compare(&mut lab, at, &words, &["a.o"]);
    let set = |mode| fs::set_permissions(at.join("inc"), Permissions::from_mode(mode));
    set(0o311).expect("it is this user's");
    assert!(fs::read_dir(at.join("inc")).is_err() && at.join("inc/v.h").exists());
    let ticket = lab.submit(at, &words);
    expect_refused(&mut lab, ticket);
    set(0o755).expect("it is this user's");
}

fn outside() {
    let (project, out) = (directory(), directory());
    let (at, out) = (project.path(), out.path().join("deep/out"));
    fs::create_dir_all(&out).expect("a directory");
    write(&out.join("other.h"), "\n");
    write(&at.join("a.c"), "int a;\n");
    let object = out.join("a.o").into_os_string().into_string().expect("a text");
    let mut lab = Lab::new(1, 1);
    let words = ["gcc", "-MD", "-g", "-gsplit-dwarf", "-fstack-usage", "-c", "a.c", "-o", &object];
    let outputs = ["o", "d", "dwo", "su"].map(|end| out.join("a").with_extension(end));
    let outputs = outputs.each_ref().map(|path| path.to_str().expect("a text"));
    for _ in 0..2 {
        compare(&mut lab, at, &words, &outputs);
    }
    // Other files in that directory are not shown.
    let text = format!("#include \"{}/other.h\"\nint b;\n", out.display());
    write(&at.join("b.c"), &text);
    let ticket = lab.submit(at, &["gcc", "-c", "b.c", "-o", &object]);
    expect_refused(&mut lab, ticket);
}

fn shown() {
    let project = directory();
    let at = project.path().join(".cargo/registry/crate");
    write(&at.join("src/a.c"), "#include \"a.h\"\nint a = A;\n");
    write(&at.join("src/a.h"), "#define A 1\n");
    write(&at.join("src/.secret.h"), "#define A 2\n");
    let out = directory();
    let object = out.path().join("a.o").into_os_string().into_string().expect("a text");
    let mut lab = Lab::new(1, 1);
    let words = ["gcc", "-c", "src/a.c", "-o", &object];
    let ticket = lab.submit(&at, &words);
    expect_refused(&mut lab, ticket);
    lab.env = vec![("OUTBOARD_CC_SHOW".into(), project.path().join(".cargo/registry").into())];
    compare(&mut lab, &at, &words, &[&object]);
    write(&at.join("src/b.c"), "#include \".secret.h\"\nint a = A;\n");
    let ticket = lab.submit(&at, &["gcc", "-c", "src/b.c", "-o", &object]);
    expect_refused(&mut lab, ticket);
}

/// `__TIMESTAMP__` is the time of the source's last modification, in the local time zone.
fn zones() {
    let project = directory();
    let at = project.path();
    write(&at.join("a.c"), "const char *changed = __TIMESTAMP__;\n");
    let mut lab = Lab::new(1, 1);
    let mut objects = Vec::new();
    for zone in ["XYZ-5:30", "UTC0"] {
        lab.env = vec![("TZ".into(), zone.into())];
        let words = ["gcc", "-S", "a.c", "-o", "a.s"];
        compare(&mut lab, at, &words, &["a.s"]);
        objects.push(fs::read(at.join("a.s")).expect("made"));
    }
    assert!(objects[0] != objects[1], "the zone is in it");
}

/// The way that Bazel calls a compiler.
fn own_directory() {
    let project = directory();
    let at = project.path();
    write(&at.join("a.c"), "int a;\n");
    let mut lab = Lab::new(1, 1);
    lab.env = vec![("PWD".into(), "/proc/self/cwd".into())];
    compare(&mut lab, at, &["gcc", "-g", "-c", "a.c"], &["a.o"]);
    let object = fs::read(at.join("a.o")).expect("made");
    let named = b"/proc/self/cwd";
    assert!(object.windows(named.len()).any(|part| part == named));
}

/// For `-m32` the driver looks for libraries that are not installed.
fn other_words() {
    let project = directory();
    let at = project.path();
    write(&at.join("a.c"), "long a = sizeof(long);\n");
    let mut lab = Lab::new(1, 1);
    compare(&mut lab, at, &["gcc", "-m32", "-c", "a.c"], &["a.o"]);
    compare(&mut lab, at, &["gcc", "-m16", "-c", "a.c"], &["a.o"]);
}

fn other_libraries() {
    let project = directory();
    let at = project.path();
    write(&at.join("a.c"), "int a;\n");
    write(&at.join("lib/libother.so.1"), "");
    let mut lab = Lab::new(1, 1);
    lab.env = vec![("LD_LIBRARY_PATH".into(), at.join("lib").into())];
    let finished = lab.run(at, &["gcc", "-c", "a.c"]);
    assert_eq!(finished.status, 0, "none of the compiler's libraries is in that directory");
    write(&at.join("lib/libc.so.6"), "");
    let ticket = lab.submit(at, &["gcc", "-c", "a.c"]);
    match lab.verdicts(1).remove(&ticket) {
        Some(Verdict::Local(reason)) => assert_eq!(reason.cause, Cause::Environment, "{reason:?}"),
        other => panic!("{other:?}"),
    }
}

/// Files in a hidden directory are not known to be absent: the header that the source includes is
/// in one.
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
        Some(Verdict::Local(reason)) => assert_eq!(reason.cause, Cause::Refused, "{reason:?}"),
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

/// CPU time that a turn of a loop may not take, whatever it moves: that of a copy of a third of
/// the bytes that are moved here.
fn copying() -> Duration {
    let bytes = vec![1_u8; 100_000_000];
    let copy = || {
        let before = cpu();
        std::hint::black_box(bytes.clone());
        cpu() - before
    };
    (0..5).map(|_| copy()).min().expect("some")
}

/// Times that a build is made at most: the hypervisor's time counts as that of a turn.
const TRIES_MAX: usize = 3;

/// Makes a build among those of others until all turns of the loops were short.
fn among_others(lab: fn() -> Lab, project: &Path, words: &[&str]) {
    let turn_max = copying();
    let is_short = |_| {
        let (client, server) = longest_turns(lab(), project, words);
        eprintln!("{words:?}: longest turn {client:?}, server's {server:?}, limit {turn_max:?}");
        client < turn_max && server < turn_max
    };
    assert!((0..TRIES_MAX).any(is_short), "a turn takes as long as to copy what is moved");
}

/// Runs a long job of one client's, and as many short ones of another's as there is time for.
/// Returns the CPU time of the client's longest turn, and the server's.
fn longest_turns(mut lab: Lab, project: &Path, words: &[&str]) -> (Duration, Duration) {
    let other = directory();
    write(&other.path().join("small.c"), "int small;\n");
    let mut second = lab.another();
    let small = ["gcc", "-c", "small.c"];
    second.run(other.path(), &small);
    lab.run(other.path(), &small);
    lab.servers[0].take_longest_turn();
    lab.submit(project, words);
    let (mut verdicts, mut others, mut count, mut longest) = (vec![], vec![], 0, Duration::ZERO);
    second.submit(other.path(), &small);
    eventually("the long job ends", || {
        let before = cpu();
        lab.executor.turn(Instant::now(), &mut verdicts);
        longest = longest.max(cpu() - before);
        second.executor.turn(Instant::now(), &mut others);
        for (_, verdict) in others.drain(..) {
            assert!(matches!(verdict, Verdict::Done(_)), "{verdict:?}");
            count += 1;
            second.submit(other.path(), &small);
        }
        !verdicts.is_empty()
    });
    assert!(matches!(verdicts[0].1, Verdict::Done(_)), "{verdicts:?}");
    assert!(count > 0, "the other client's jobs waited for the long one");
    (longest, lab.servers[0].take_longest_turn())
}

/// An output of 300 MB.
fn large() {
    let project = directory();
    write(&project.path().join("large.s"), ".data\n.zero 300000000\n.byte 1\n");
    among_others(|| Lab::new(1, 2), project.path(), &["gcc", "-c", "large.s", "-o", "large.o"]);
    locally(project.path(), &["gcc", "-c", "large.s", "-o", "local.o"]);
    let same =
        Command::new("cmp").args(["local.o", "large.o"]).current_dir(project.path()).status();
    assert!(same.expect("cmp").success());
}

/// Files that a source includes: together 300 MB, each nearly as long as a client hands out.
fn large_inputs() {
    const LEN: usize = 60_000_000;
    let project = directory();
    let mut bytes = vec![0; LEN];
    let mut source = String::from(".data\n");
    for number in 0..5_u8 {
        // They cannot be packed.
        blake3::Hasher::new().update(&[number]).finalize_xof().fill(&mut bytes);
        fs::write(project.path().join(format!("{number}.bin")), &bytes).expect("a file");
        source += &format!(".incbin \"{number}.bin\", {}, 16\n", LEN - 16);
    }
    write(&project.path().join("a.s"), &source);
    among_others(|| Lab::accepting(1, 2), project.path(), &["gcc", "-c", "a.s", "-o", "a.o"]);
    let expected = fs::read(project.path().join("a.o")).expect("an object");
    locally(project.path(), &["gcc", "-c", "a.s", "-o", "a.o"]);
    assert!(fs::read(project.path().join("a.o")).expect("an object") == expected);
}

/// Symbolic links: to the working directory (the shell's `PWD`), in the path of an output, and to a
/// directory of outputs outside the project.
fn links() {
    let (project, other) = (directory(), directory());
    let at = project.path().canonicalize().expect("it is there");
    write(&at.join("real/a.c"), "#include \"a.h\"\n");
    write(&at.join("real/a.h"), "int a;\n");
    write(&at.join("real/Makefile"), "");
    std::os::unix::fs::symlink("real", at.join("way")).expect("a link");
    std::os::unix::fs::symlink(other.path(), at.join("real/out")).expect("a link");
    let mut lab = Lab::new(1, 1);
    let way = at.join("way");
    let output = way.join("b.o");
    let output = output.to_str().expect("a text");
    compare(&mut lab, &at.join("real"), &["gcc", "-g", "-c", "a.c", "-o", "out/a.o"], &["out/a.o"]);
    lab.env = vec![("PWD".into(), way.into())];
    compare(&mut lab, &at.join("real"), &["gcc", "-g", "-c", "a.c"], &["a.o"]);
    compare(&mut lab, &at.join("real"), &["gcc", "-g", "-c", "a.c", "-o", output], &["b.o"]);
}

fn refusals() {
    let (project, other) = (directory(), directory());
    let at = project.path();
    let secret = other.path().canonicalize().expect("it is there").join("b.h");
    write(&secret, "int b;\n");
    write(&at.join("a.c"), &format!("#include \"{}\"\n", secret.display()));
    let mut lab = Lab::new(1, 1);
    let words = ["gcc", "-c", "a.c"];
    for round in 0..3 {
        let ticket = lab.submit(at, &words);
        // From the second time on, no server is asked.
        assert_eq!(lab.executor.is_claimed(ticket), round == 0);
        let verdict = lab.verdicts(1).remove(&ticket);
        let Some(Verdict::Local(reason)) = verdict else { panic!("{verdict:?}") };
        assert_eq!(reason.cause, Cause::Refused);
    }
}

fn limited() {
    let project = directory();
    let at = project.path();
    let mut lab = Lab::limited(4, 1);
    for number in 0..4 {
        write(&at.join(format!("a{number}.c")), "int a;\n");
        lab.submit(at, &["gcc", "-c", &format!("a{number}.c")]);
    }
    let done = lab.verdicts(4);
    assert_eq!(lab.executor.capacity().slots, 1);
    let trace = |verdict: &Verdict| match verdict {
        Verdict::Done(finished) => finished.trace.started.zip(finished.trace.ended),
        other => panic!("{other:?}"),
    };
    let mut times: Vec<_> = done.values().map(|verdict| trace(verdict).expect("it ran")).collect();
    times.sort_unstable();
    assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].0), "one after the other: {times:?}");
}
