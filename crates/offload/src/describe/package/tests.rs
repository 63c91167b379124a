//! Tests of packages: what is read, and what is not.

use super::*;
use crate::describe::offcode::DeviceKind;
use std::fs;
use std::os::unix::fs::symlink;

const DESCRIPTION: &str = "name = \"counter\"\nversion = \"1.0.0\"\n\
    [[body]]\nkind = \"wasm\"\nfile = \"counter.wasm\"\nlibraries = [\"lib/sum.wasm\"]\n\
    [[body]]\nkind = \"builtin\"\nname = \"lines\"\n";

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    fs::create_dir(at.join("wit")).expect("made");
    fs::create_dir(at.join("lib")).expect("made");
    fs::write(at.join(OFFCODE_FILE), DESCRIPTION).expect("written");
    fs::write(at.join("counter.wasm"), b"\0asm counter").expect("written");
    fs::write(at.join("lib/sum.wasm"), b"\0asm sum").expect("written");
    fs::write(at.join("wit/b.wit"), "package demo:b;").expect("written");
    fs::write(at.join("wit/a.wit"), "package demo:a;").expect("written");
    fs::write(at.join("wit/README"), "none").expect("written");
    directory
}

/// What is wrong with a package, without the directory's own path.
fn fault(directory: &Path) -> String {
    let error = match OffcodePackage::read(directory) {
        Ok(package) => panic!("taken: {package:?}"),
        Err(error) => error.to_string(),
    };
    let real = directory.canonicalize().expect("there");
    error.replace(&format!("{}/", real.display()), "")
}

#[test]
fn a_package_is_read_whole() {
    let directory = directory();
    let package = OffcodePackage::read(directory.path()).expect("valid");
    assert_eq!(package.file.name.as_str(), "counter");
    assert_eq!(package.bodies.len(), 2);
    let code = package.bodies[0].code.as_ref().expect("code");
    assert_eq!(&code.bytes[..], b"\0asm counter");
    assert_eq!(code.hash, *blake3::hash(b"\0asm counter").as_bytes());
    assert_eq!(&package.bodies[0].libraries[0].bytes[..], b"\0asm sum");
    assert_eq!(package.bodies[1].code, None);
    let wit: Vec<&str> = package.wit.iter().map(|wit| wit.text.as_str()).collect();
    assert_eq!(wit, ["package demo:a;", "package demo:b;"]);
    assert_eq!(package.code_len(), 12 + 8);
    let body = package.body(DeviceKind::Node).expect("a body");
    assert_eq!(body.body.kind(), "wasm");
    assert!(package.body(DeviceKind::Nic).is_none());
}

#[test]
fn a_package_without_interfaces_needs_no_wit() {
    let directory = directory();
    fs::remove_dir_all(directory.path().join("wit")).expect("removed");
    assert!(OffcodePackage::read(directory.path()).expect("valid").wit.is_empty());
}

#[test]
fn what_is_missing_is_named() {
    let directory = directory();
    fs::remove_file(directory.path().join("lib/sum.wasm")).expect("removed");
    let message = fault(directory.path());
    assert!(message.starts_with("lib/sum.wasm: No such file"), "{message}");
    assert!(message.ends_with("; build it, by make in its directory"), "{message}");
    fs::remove_file(directory.path().join(OFFCODE_FILE)).expect("removed");
    assert!(fault(directory.path()).starts_with("offcode.toml: No such file"));
}

#[test]
fn faults_of_the_description_have_its_path() {
    let directory = directory();
    let text = format!("nmae = 1\n{DESCRIPTION}");
    fs::write(directory.path().join(OFFCODE_FILE), text).expect("written");
    let expected = "offcode.toml:1: the file has no key \"nmae\"; did you mean name?";
    assert_eq!(fault(directory.path()), expected);
    fs::write(directory.path().join(OFFCODE_FILE), b"\xff").expect("written");
    assert_eq!(fault(directory.path()), "offcode.toml: it is no text in UTF-8");
}

#[test]
fn no_path_leads_out_of_the_directory() {
    let directory = directory();
    let outside = tempfile::NamedTempFile::new().expect("a file");
    let body = directory.path().join("counter.wasm");
    fs::remove_file(&body).expect("removed");
    symlink(outside.path(), &body).expect("linked");
    assert_eq!(fault(directory.path()), "counter.wasm: it leads out of the package's directory");
    fs::remove_file(&body).expect("removed");
    symlink("lib/sum.wasm", &body).expect("linked");
    assert!(OffcodePackage::read(directory.path()).is_ok());
    let wit = directory.path().join("wit");
    fs::remove_dir_all(&wit).expect("removed");
    symlink("/", &wit).expect("linked");
    assert_eq!(fault(directory.path()), "wit: it leads out of the package's directory");
}

#[test]
fn only_regular_files_of_some_length_are_read() {
    let directory = directory();
    let body = directory.path().join("counter.wasm");
    fs::remove_file(&body).expect("removed");
    fs::create_dir(&body).expect("made");
    assert_eq!(fault(directory.path()), "counter.wasm: this is no regular file");
    fs::remove_dir(&body).expect("removed");
    // Long without taking space.
    let file = fs::File::create(&body).expect("made");
    file.set_len(BODY_LEN_MAX as u64 + 1).expect("longer");
    let expected = format!("counter.wasm: it has more than {BODY_LEN_MAX} bytes");
    assert_eq!(fault(directory.path()), expected);
}

#[test]
fn interfaces_are_bounded() {
    let directory = directory();
    for number in 0..=WIT_FILES_MAX {
        fs::write(directory.path().join(format!("wit/{number}.wit")), "").expect("written");
    }
    assert_eq!(fault(directory.path()), "wit: it has more than 64 WIT files");
}
