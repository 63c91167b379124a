//! The golden texts of the sample, and interfaces whose names are traps.
//!
//! With `OUTBOARD_BLESS=1` the texts are written anew, to be reviewed; the tests of the golden
//! bytes and of compilers are `tests/generated.rs`.

use std::path::Path;
use std::{env, fs};

use super::*;

#[test]
fn generated_texts_are_the_golden_ones() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let read = |name: &str| fs::read_to_string(golden.join(name)).unwrap();
    let both = Interface::parse_wit("sample.wit", &read("sample.wit")).unwrap();
    for (name, text) in [
        ("guest.rs", rust_guest(&both[..1], &both).unwrap()),
        ("guest.h", c_guest(&both[..1], &both).unwrap()),
        ("host.rs", rust_host(&both).unwrap()),
    ] {
        if env::var_os("OUTBOARD_BLESS").is_some_and(|value| value == "1") {
            fs::write(golden.join(name), &text).unwrap();
        }
        let differs = read(name).lines().zip(text.lines()).position(|(old, new)| old != new);
        assert!(read(name) == text, "{name} differs from line {differs:?} on (from 0)");
    }
}

#[test]
fn guests_without_exports_or_imports_have_code_too() {
    let text = "package a:b@1.0.0; interface wire { f: func(); } interface int { f: func(); }";
    let both = Interface::parse_wit("x", text).unwrap();
    for (exports, imports) in [(&both[..], &both[..0]), (&both[..0], &both[..]), (&[], &[])] {
        rust_guest(exports, imports).unwrap();
        c_guest(exports, imports).unwrap();
    }
    let rust = rust_guest(&both, &[]).unwrap();
    assert!(rust.contains("pub mod wire_ {"), "the runtime's module has this name");
    assert!(c_guest(&both, &[]).unwrap().contains("oc_on_int__f(int64_t call)"));
}

#[test]
fn too_many_interfaces_are_refused() {
    let one = Interface::parse_wit("x", "package a:b@1.0.0; interface i { f: func(); }").unwrap();
    let many = vec![one[0].clone(); INTERFACES_MAX + 1];
    assert!(rust_host(&many).is_err() && rust_guest(&many, &[]).is_err());
    assert!(c_guest(&[], &many).is_err());
}
