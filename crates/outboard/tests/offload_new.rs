//! New offcodes as their authors make them: `outboard offload new`, `make`, `check` and `run`, in C
//! and in Rust, by Debian's compilers; and generated code that is what the example has.

#[expect(dead_code, reason = "other tests use the rest")]
mod home;
#[expect(dead_code, reason = "other tests use the rest")]
mod offload_support;

use offload_support::Playground;
use std::fs;
use std::process::Command;

const LAYOUT: &str = r#"
[app]
name = "fresh"

[[offcode]]
name = "relay"

[[channel]]
from = "app.in"
to = "relay.in"

[[channel]]
from = "relay.out"
to = "app.out"
"#;

fn made_and_run(language: &str) {
    let place = Playground::new(&format!("new-{language}"));
    place.told(&["new", "relay", "--language", language]);
    let again = place.complaint(&["new", "relay", "--language", language]);
    assert!(again.contains("exists"), "{again}");
    let unbuilt = place.complaint(&["check", "relay"]);
    assert!(unbuilt.contains("relay.wasm"), "{unbuilt}");
    let made = Command::new("make").arg("-C").arg(place.path("relay")).output().expect("make");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(place.told(&["check", "relay"]).starts_with("relay 1.0.0, GUID "));
    fs::write(place.path("fresh.toml"), LAYOUT).expect("written");
    fs::write(place.path("packets.txt"), "one\ntwo\n\nlast").expect("written");
    assert_eq!(place.pages("fresh.toml"), ["one", "two", "", "last"]);
}

#[test]
fn an_offcode_in_c_is_made_built_and_run() {
    made_and_run("c");
}

#[test]
fn an_offcode_in_rust_is_made_built_and_run() {
    made_and_run("rust");
}

#[test]
fn headers_of_the_example_are_what_is_generated() {
    let place = Playground::new("generated");
    for name in ["filter", "counter", "page"] {
        let kept = fs::read_to_string(place.path(&format!("{name}/{name}.h"))).expect("there");
        assert_eq!(place.told(&["generate", name]), kept, "{name}: make headers");
        let rust = place.told(&["generate", name, "--language", "rust"]);
        assert!(rust.contains("fn dispatch"), "{rust}");
    }
}
