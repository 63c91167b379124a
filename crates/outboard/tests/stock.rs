//! Programs of the distribution load our libraries: every symbol and version that they and their
//! drivers (libmlx5, libefa) ask for is there. `cargo xtask test libraries` makes the libraries
//! first and runs this.

use std::process::{Command, Output};

fn run(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outboard"));
    // All symbols now, not when first called: what is missing shows at once.
    command.env("LD_BIND_NOW", "1").args(["run", "--devices", "lo", "--"]);
    command.args(words).output().unwrap()
}

/// What the loader says when a library does not fit.
fn loads(words: &[&str]) -> String {
    let output = run(words);
    let error = String::from_utf8_lossy(&output.stderr);
    for complaint in ["symbol lookup error", "version `", "Inconsistency", "cannot open shared"] {
        assert!(!error.contains(complaint), "{words:?}: {error}");
    }
    assert_ne!(output.status.code(), Some(127), "{words:?}: {error}");
    assert!(output.status.code().is_some(), "{words:?} ended by a signal: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned() + &error
}

/// The paths that the loader takes `library` from for a program.
fn taken(program: &str, library: &str) -> String {
    let list = loads(&["ldd", program]);
    let line = list.lines().find(|line| line.trim().starts_with(library));
    line.unwrap_or_else(|| panic!("{program} has no {library}: {list}")).to_owned()
}

#[test]
fn the_loader_takes_our_libraries_for_both() {
    for program in ["/usr/bin/rping", "/usr/bin/ib_write_bw"] {
        for library in ["libibverbs.so.1", "librdmacm.so.1"] {
            let line = taken(program, library);
            assert!(line.contains(&format!("/lib/{library} ")), "{line}");
            assert!(!line.contains("=> /lib/") && !line.contains("=> /usr/lib/"), "{line}");
        }
    }
}

#[test]
fn tools_start() {
    assert!(loads(&["rping", "-h"]).contains("rping -s"));
    assert!(loads(&["ibv_devices"]).contains("outboard0"));
    assert!(loads(&["ibv_rc_pingpong", "--help"]).contains("Usage:"));
    assert!(loads(&["fio", "--enghelp=rdma"]).contains("port"));
}

#[test]
fn every_program_of_perftest_starts() {
    let kinds = ["send", "read", "write", "atomic"];
    for kind in kinds {
        for what in ["bw", "lat"] {
            let text = loads(&[&format!("ib_{kind}_{what}"), "--version"]);
            assert!(text.contains("Version: "), "{text}");
        }
    }
}
