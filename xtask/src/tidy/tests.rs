//! Each rule on a snippet that breaks it and on one that does not; and the workspace itself.

use serde_json::{Value, json};

use super::house::{
    FILE_LINES, FUNCTION_LINES, FUNCTION_LINES_CAP, LINE_COLUMNS, TEST_FILE_LINES, TWIN_LINES,
};
use super::source::Source;
use super::{Finding, check_file, links, syntax, twins, workspace};

const OPENING: &str = "//! A.\n//! B.\n//! C.\n#![forbid(unsafe_code)]\n";

fn source(path: &str, text: &str) -> Source {
    Source::new(path, text).expect("the snippet parses")
}

/// The messages about a snippet that follows a correct opening.
fn about(path: &str, body: &str) -> Vec<String> {
    let findings = check_file(&source(path, &format!("{OPENING}{body}")));
    findings.into_iter().map(|finding| finding.message).collect()
}

#[track_caller]
fn assert_bad(path: &str, body: &str, complaint: &str) {
    let messages = about(path, body);
    assert!(messages.iter().any(|message| message.contains(complaint)), "{messages:?}");
}

#[track_caller]
fn assert_good(path: &str, body: &str) {
    assert_eq!(about(path, body), Vec::<String>::new());
}

fn lines(count: usize) -> String {
    "// line\n".repeat(count)
}

fn function(lines: usize) -> String {
    format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
}

#[test]
fn a_file_opens_with_what_it_is() {
    let findings = check_file(&source("crates/wire/src/ddp.rs", "use std::fmt;\n"));
    assert_eq!(findings[0].message, "opens with 0 lines of //!, needs 1 or more");
    let short = "//! A.\n#![forbid(unsafe_code)]\n";
    let findings = check_file(&source("crates/wire/src/lib.rs", short));
    assert_eq!(findings[0].message, "opens with 1 lines of //!, needs 3 or more");
    assert_good("crates/wire/src/lib.rs", "");
}

#[test]
fn a_crate_root_forbids_unsafe() {
    let text = "//! A.\n//! B.\n//! C.\n";
    let message = |path| check_file(&source(path, text)).pop().map(|finding| finding.message);
    let complaint = Some("lacks #![forbid(unsafe_code)]".to_owned());
    assert_eq!(message("crates/wire/src/lib.rs"), complaint);
    assert_eq!(message("crates/mem/src/lib.rs"), None);
}

#[test]
fn a_file_has_few_lines() {
    assert_bad("crates/perf/src/a.rs", &lines(FILE_LINES), "604 lines, at most 600");
    assert_good("crates/perf/src/a.rs", &lines(FILE_LINES - 4));
    assert_good("crates/perf/src/a/tests.rs", &lines(FILE_LINES));
    assert_bad("crates/perf/src/a/tests.rs", &lines(TEST_FILE_LINES), "904 lines, at most 900");
}

#[test]
fn a_line_is_narrow() {
    let line = format!("//{}", "é".repeat(LINE_COLUMNS - 2));
    assert_good("crates/perf/src/a.rs", &line);
    assert_bad("crates/perf/src/a.rs", &format!("{line}é"), "101 columns, at most 100");
}

#[test]
fn a_function_is_short() {
    assert_good("crates/perf/src/a.rs", &function(FUNCTION_LINES));
    assert_bad("crates/perf/src/a.rs", &function(FUNCTION_LINES + 1), "long has 61 lines");
    let method = format!("impl A {{\n{}}}", function(FUNCTION_LINES + 1));
    assert_bad("crates/perf/src/a.rs", &method, "long has 61 lines");
}

#[test]
fn an_exception_for_a_long_function_is_exact() {
    let findings = |lines: usize, allowed: usize| -> usize {
        let file = source("a.rs", &function(lines));
        let rust = file.rust.as_ref().expect("the snippet is Rust");
        syntax::long_functions(&file, rust, &[("a.rs", "long", allowed)]).len()
    };
    assert_eq!(findings(70, 70), 0);
    assert_eq!(findings(71, 70), 1);
    assert_eq!(findings(69, 70), 1);
    assert_eq!(findings(FUNCTION_LINES_CAP + 1, FUNCTION_LINES_CAP + 1), 1);
}

#[test]
fn a_function_stands_once() {
    let is_short = function(TWIN_LINES);
    let (one, other) = (function(TWIN_LINES + 1), function(TWIN_LINES + 1).replace("long", "same"));
    let found = |texts: [&str; 2], allowed: &[(&str, &str)]| -> Vec<String> {
        let sources = [source("a.rs", texts[0]), source("b.rs", texts[1])];
        let findings = twins::twins(&sources, allowed);
        findings.into_iter().map(|finding| finding.message).collect()
    };
    assert_eq!(found([&one, &other], &[]), ["same is long at a.rs:1 again: keep one"]);
    let indented = format!("impl A {{\n    // Why.\n{other}}}");
    assert_eq!(found([&one, &indented], &[]).len(), 1);
    assert_eq!(found([&is_short, &is_short], &[]), [""; 0]);
    assert_eq!(found([&one, &other.replace("step", "leap")], &[]), [""; 0]);
    assert_eq!(found([&one, &other], &[("b.rs", "same")]), [""; 0]);
    let stale = found([&one, ""], &[("b.rs", "same")]);
    assert_eq!(stale, ["same stands once: drop its exception from TWINS"]);
}

#[test]
fn unsafe_stands_in_its_places_only() {
    let body = "fn f() {\n    unsafe { g() }\n}\n";
    assert_bad("crates/wire/src/a.rs", body, "`unsafe` belongs in");
    assert_bad("crates/verbs/src/engine/turn.rs", body, "`unsafe` belongs in");
    assert_bad("crates/mem/src/a.rs", body, "says `unsafe` 1 times, UNSAFE_COUNTS says 0");
    assert_good("crates/wire/src/a.rs", "// unsafe is a word here\n");
}

#[test]
fn the_count_of_unsafe_is_exact() {
    let file = source("a.rs", "unsafe fn f() {}\nunsafe impl Send for A {}\n");
    let rust = file.rust.as_ref().expect("the snippet is Rust");
    assert_eq!(syntax::unsafe_count(&file, rust, &[("a.rs", 2)]), None);
    for wrong in [1, 3] {
        assert!(syntax::unsafe_count(&file, rust, &[("a.rs", wrong)]).is_some());
    }
}

#[test]
fn pure_crates_have_no_clock_no_socket_and_no_thread() {
    for body in [
        "use std::net::TcpStream;\n",
        "use std::{fmt, net::TcpStream};\n",
        "fn f() { std::thread::spawn(g); }\n",
        "use std::thread::{Builder, spawn};\n",
        "fn f() { assert!(Instant::now() > g()); }\n",
        "fn f() { SystemTime::now(); }\n",
    ] {
        for name in ["wire", "iwarp", "mem"] {
            assert!(!about(&format!("crates/{name}/src/a.rs"), body).is_empty(), "{body}");
        }
        assert_good("crates/perf/src/a.rs", body);
        assert_good("crates/mem/src/a/tests.rs", body);
        assert_good("crates/mem/src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{body}}}\n"));
    }
    assert_good("crates/wire/src/a.rs", "// Instant::now is not for us\n");
}

#[test]
fn nothing_is_unfinished() {
    let mark = concat!("// TO", "DO: later\n");
    for body in ["fn f() { todo!() }\n", "fn f() { unimplemented!() }\n", mark] {
        assert_bad("crates/perf/src/a.rs", body, "finish it");
    }
    assert_bad("crates/perf/src/a.rs", "fn f() { dbg!(1); }\n", "remove it");
    assert_bad("crates/perf/src/a.rs", "#[test]\n#[ignore]\nfn f() {}\n", "register a suite");
    assert_bad("crates/perf/src/a.rs", "#[ignore = \"slow\"]\nfn f() {}\n", "register a suite");
    let manifest = check_file(&source("crates/perf/Cargo.toml", concat!("# TO", "DO\n")));
    assert_eq!(manifest.len(), 1);
}

#[test]
fn no_path_of_one_machine() {
    // Put together here, so that this file passes.
    for directory in ["home", "root", "Users", "build"] {
        let path = format!("/{directory}/me/x");
        assert_bad("crates/perf/src/a.rs", &format!("// {path}\n"), "one machine only");
        assert_bad("crates/perf/src/a.rs", &format!("const A: &str = \"{path}\";\n"), &path);
    }
    assert_good(
        "crates/perf/src/a.rs",
        "// /proc/net/tcp, /p50_us, https://a.b/home/d, a/home/b\n",
    );
    let up = |count| format!("// {}x\n", "../".repeat(count));
    assert_good("crates/perf/src/a.rs", &up(3));
    assert_bad("crates/perf/src/a.rs", &up(4), "one machine only");
    assert_eq!(check_file(&source("README.md", &up(1))).len(), 1);
}

/// The part of `cargo metadata` for a package with one dependency, beside all crates it may name.
fn metadata(name: &str, dependency: &str, kind: Option<&str>) -> Value {
    json!({ "packages": [
        { "name": name, "dependencies": [
            { "name": dependency, "kind": kind },
            { "name": "serde", "kind": null },
        ] },
        { "name": "outboard-sim", "dependencies": [] },
        { "name": "outboard-wire", "dependencies": [] },
        { "name": "outboard-verbs", "dependencies": [] },
    ] })
}

#[test]
fn arrows_point_down() {
    let wrong = |name, dependency, kind| {
        let findings = workspace::arrows(&metadata(name, dependency, kind));
        findings.into_iter().map(|finding| finding.message).collect::<Vec<_>>()
    };
    let none = Vec::<String>::new();
    assert_eq!(wrong("outboard-iwarp", "outboard-wire", None), none);
    assert_eq!(wrong("outboard-iwarp", "outboard-sim", Some("dev")), none);
    for (name, dependency, kind) in [
        ("outboard-iwarp", "outboard-verbs", None),
        ("outboard-iwarp", "outboard-verbs", Some("dev")),
        ("outboard-iwarp", "outboard-sim", None),
        ("outboard-mem", "outboard-wire", Some("build")),
    ] {
        assert_eq!(
            wrong(name, dependency, kind),
            [format!("must not name {dependency}: see ARROWS")]
        );
    }
    assert!(wrong("outboard-new", "serde", None)[0].contains("has no row"));
}

#[test]
fn the_fuzz_targets_lock_file_has_every_dependency() {
    let lock = |dependencies: &str| {
        format!("[[package]]\nname = \"outboard-mem\"\ndependencies = [\n{dependencies}]\n")
    };
    let found = |dependency, kind, lock: &str| {
        let findings = workspace::fuzz_lock(&metadata("outboard-mem", dependency, kind), lock);
        findings.into_iter().map(|finding| finding.message).collect::<Vec<_>>()
    };
    let none = Vec::<String>::new();
    assert_eq!(found("libc", None, &lock(" \"libc\",\n \"serde 1.0.229\",\n")), none);
    assert_eq!(found("loom", Some("dev"), &lock(" \"serde\",\n")), none);
    assert_eq!(found("libc", None, "[[package]]\nname = \"outboard-memory\"\n"), none);
    let messages = found("libc", None, &lock(" \"libc-types\",\n \"serde\",\n"));
    assert!(messages[0].starts_with("lacks libc, which outboard-mem depends on"), "{messages:?}");
    assert_eq!(messages.len(), 1, "{messages:?}");
}

#[test]
fn every_crate_has_a_test() {
    let tested = source("crates/a/src/lib.rs", "#[test]\nfn f() {}\n");
    let manifest = source("crates/b/Cargo.toml", "[package]\n");
    let untested = source("crates/b/src/lib.rs", "// #[test]\nfn f() {}\n");
    let findings = workspace::crates_have_tests(&[tested, manifest, untested]);
    assert_eq!(findings, [Finding::new("crates/b", 0, "has no test")]);
}

#[test]
fn a_types_name_has_one_meaning() {
    let one = source("crates/mem/src/a.rs", "pub struct Stage;\npub(crate) enum Own { A }\n");
    let two = source("crates/wire/src/b.rs", "pub(crate) type Stage = u8;\nstruct Own;\n");
    let tests = source("crates/wire/src/b/tests.rs", "pub struct Stage;\n");
    let mirror = source("crates/ibverbs/src/c.rs", "pub(crate) struct Stage;\n");
    let findings = workspace::one_meaning(&[one, two, tests, mirror]);
    let message = "a type Stage is in crates/mem/src/a.rs too: call one by what it is";
    assert_eq!(findings, [Finding::new("crates/wire/src/b.rs", 1, message)]);
}

#[test]
fn documents_are_linked_and_links_lead_somewhere() {
    let readme = source("README.md", "[a](docs/a.md#top) [gone](gone.md) [web](https://a.b)\n");
    let nested = source("docs/a.md", "![c](c.svg) [up](../README.md) [dir](../docs)\n");
    let files = ["README.md", "docs/a.md", "docs/c.svg", "docs/lost.md"].map(str::to_owned);
    let findings = links::check(&[readme, nested], &files);
    let report: Vec<String> = findings.iter().map(ToString::to_string).collect();
    let gone = "README.md:1: links to gone.md, which does not exist";
    assert_eq!(report, [gone, "docs/lost.md: no document links to it"]);
}
