//! Tests of new offcodes: they are read as what they are and, where the compilers are, built.

use super::*;
use crate::describe::OffcodePackage;
use crate::describe::offcode::OffcodeFile;
use std::collections::BTreeSet;
use std::process::Command;
use wasmparser::{Parser, Payload, Validator, WasmFeatures};

/// What devices take of WebAssembly (`inspect::FEATURES` of offcode).
const FEATURES: WasmFeatures = WasmFeatures::WASM1
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::SIMD);

const LANGUAGES: [SkeletonLanguage; 2] = [SkeletonLanguage::C, SkeletonLanguage::Rust];

fn name(text: &str) -> OffcodeName {
    text.parse().expect("a name")
}

fn skeleton(text: &str, language: SkeletonLanguage) -> Skeleton {
    Skeleton::new(&name(text), language).expect("a name")
}

#[test]
fn a_skeleton_is_a_package_but_for_its_body() {
    for language in LANGUAGES {
        let directory = tempfile::tempdir().expect("a directory");
        skeleton("my-counter", language).write(directory.path()).expect("written");
        let error = OffcodePackage::read(directory.path()).expect_err("not built yet").to_string();
        assert!(
            error.contains("my-counter.wasm") && error.contains("build it, by make"),
            "{error}"
        );
        fs::write(directory.path().join("my-counter.wasm"), b"\0asm").expect("written");
        let package = OffcodePackage::read(directory.path()).expect("a package");
        assert_eq!(package.file.interfaces[0].as_str(), "offcode:my-counter/counter@1.0.0");
        assert!(package.wit[0].text.starts_with("package offcode:my-counter@1.0.0;"));
    }
}

#[test]
fn no_word_of_the_template_is_left() {
    for language in LANGUAGES {
        let files = skeleton("offcode", language).files;
        let paths: BTreeSet<&PathBuf> = files.iter().map(|(path, _)| path).collect();
        assert_eq!(paths.len(), files.len(), "{paths:?}");
        for (path, text) in files {
            let path = path.to_str().expect("text");
            for word in ["NAME", "SOURCE"] {
                let is_left = |line: &&str| line.contains(word) && !line.contains("WATCHDOG");
                assert_eq!(text.lines().find(is_left), None, "{path}");
                assert!(!path.contains(word), "{path}");
            }
        }
    }
}

#[test]
fn names_that_wit_does_not_have_are_refused_or_escaped() {
    for text in ["1st", "a-1", "-a", "a--b"] {
        let error = Skeleton::new(&name(text), SkeletonLanguage::C).expect_err("no name in WIT");
        assert!(error.to_string().starts_with(&format!("{text} would be no name in WIT")));
    }
    let files = skeleton("stream", SkeletonLanguage::C).files;
    let wit = files.iter().find(|(path, _)| path.ends_with("stream.wit")).expect("there");
    assert!(wit.1.starts_with("package offcode:%stream@1.0.0;"), "{}", wit.1);
}

#[test]
fn nothing_is_overwritten() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("README.md"), "mine").expect("written");
    let skeleton = skeleton("a", SkeletonLanguage::C);
    let error = skeleton.write(directory.path()).expect_err("in the way").to_string();
    assert!(error.contains("README.md"), "{error}");
    assert_eq!(fs::read(directory.path().join("README.md")).expect("there"), b"mine");
    assert!(!directory.path().join("offcode.toml").exists());
}

#[test]
fn the_skeleton_in_c_is_built() {
    if ["make", "clang", "wasm-ld"].iter().any(|tool| !is_there(tool, "--version")) {
        println!("skipped: make, clang and lld are not installed");
        return;
    }
    let module = build(SkeletonLanguage::C);
    let expected = ["memory", "oc_buffer", "oc_call", "oc_message", "oc_restore", "oc_save"];
    check_module(&module, &expected);
}

#[test]
fn the_skeleton_in_rust_is_built() {
    let library = Command::new("/usr/bin/rustc")
        .args(["--print", "target-libdir", "--target", "wasm32-unknown-unknown"])
        .output();
    let library = library.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    if !library.is_ok_and(|path| Path::new(&path).is_dir()) || !is_there("make", "--version") {
        println!("skipped: make, Debian's rustc and its library for WebAssembly are not installed");
        return;
    }
    let module = build(SkeletonLanguage::Rust);
    check_module(&module, &["memory", "oc_buffer", "oc_call", "oc_message", "oc_timer"]);
}

fn is_there(tool: &str, argument: &str) -> bool {
    Command::new(tool).arg(argument).output().is_ok_and(|output| output.status.success())
}

/// The module that `make` builds of a new offcode.
fn build(language: SkeletonLanguage) -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a directory");
    skeleton("my-counter", language).write(directory.path()).expect("written");
    let output = Command::new("make").current_dir(directory.path()).output().expect("make");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("warning"), "{said}");
    let package = OffcodePackage::read(directory.path()).expect("a package");
    package.bodies[0].code.as_ref().expect("code").bytes.to_vec()
}

/// A module that devices take: valid, with these exports, and imports of `offcode` alone.
fn check_module(module: &[u8], expected: &[&str]) {
    Validator::new_with_features(FEATURES).validate_all(module).expect("valid");
    let (mut exports, mut imports) = (Vec::new(), Vec::new());
    for payload in Parser::new(0).parse_all(module) {
        match payload.expect("parsed") {
            Payload::ExportSection(section) => {
                exports.extend(section.into_iter().map(|export| export.expect("one").name));
            }
            Payload::ImportSection(section) => {
                imports.extend(section.into_imports().map(|import| import.expect("one").module));
            }
            Payload::MemorySection(section) => {
                let memory = section.into_iter().next().expect("one").expect("a memory");
                let bytes = memory.initial * 65_536;
                let file = OffcodeFile::parse(&fill_toml()).expect("valid");
                assert!(bytes <= file.needs.memory_bytes, "{bytes} bytes of memory");
            }
            _ => {}
        }
    }
    for name in expected {
        assert!(exports.contains(name), "{name} is not in {exports:?}");
    }
    assert!(!imports.is_empty() && imports.iter().all(|module| *module == "offcode"));
}

fn fill_toml() -> String {
    include_str!("../../../guest/offcode.toml").replace("NAME", "a")
}
