use super::*;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

fn call(line: &str) -> Call {
    let argv: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    Call { compiler: PathBuf::from(&argv[0]), argv, cwd: "/src".into(), ..Call::default() }
}

fn remote(line: &str) -> Job {
    match classify(call(line)) {
        Plan::Remote(job) => *job,
        Plan::Home(reason) => panic!("{line}: {reason}"),
    }
}

fn home(line: &str) -> Cause {
    match classify(call(line)) {
        Plan::Remote(job) => panic!("{line}: {job:?}"),
        Plan::Home(reason) => reason.cause,
    }
}

#[test]
fn a_plain_compilation_goes_with_its_words_as_they_are() {
    let line = "gcc -std=c11 -Wall -W -O2 -g -ggdb -I../deps/lua/src -DUSE_JEMALLOC -MMD -o \
                adlist.o -c adlist.c";
    let job = remote(line);
    assert_eq!(job.argv, call(line).argv);
    assert_eq!(job.source, Path::new("adlist.c"));
    assert_eq!(job.language, Language::C);
    assert_eq!(
        job.outputs,
        [Output::Object("adlist.o".into()), Output::Dependencies("adlist.d".into())]
    );
    let include = Directory { path: "../deps/lua/src".into(), role: Role::Include };
    assert_eq!(job.directories, [include]);
}

#[test]
fn what_is_no_compilation_stays_at_home_for_that_reason() {
    assert_eq!(home("gcc -o a a.o -fuse-ld=lld"), Cause::Link);
    assert_eq!(home("gcc a.c"), Cause::Link);
    assert_eq!(home("gcc -E a.c"), Cause::Preprocess);
    assert_eq!(home("gcc -dumpmachine"), Cause::Query);
    assert_eq!(home("gcc --version"), Cause::Query);
    assert_eq!(home("gcc -c a.c b.c"), Cause::ManySources);
    assert_eq!(home("gcc -c -x c -"), Cause::StandardInput);
    assert_eq!(home("gcc -c a.c -o /dev/null"), Cause::StandardOutput);
    assert_eq!(home("gcc -c a.c -march=native"), Cause::Native);
    assert_eq!(home("rustc -c a.c"), Cause::UnknownCompiler);
}
