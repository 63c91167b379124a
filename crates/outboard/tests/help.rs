//! The command line's definition: help with examples, manual pages, completions.

use std::path::Path;
use std::process::{Command, Output};

fn outboard(words: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_outboard");
    Command::new(program).args(words).output().unwrap()
}

fn help(words: &[&str]) -> String {
    let output = outboard(&[words, &["--help"]].concat());
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that a help text lists.
fn commands(help: &str) -> Vec<String> {
    let list = help.split("Commands:\n").nth(1).unwrap();
    let words = list.lines().map_while(|line| line.split_whitespace().next());
    let words = words.filter(|word| *word != "help");
    words.map(str::to_owned).collect()
}

#[test]
fn every_command_has_an_example_that_names_it() {
    let all = "tour run cc cast sbcast active fs offload perf node key status top";
    assert_eq!(commands(&help(&[])).join(" "), all);
    assert!(help(&["cc"]).contains("Example:\n  outboard cc gcc "));
    assert!(help(&["cast"]).contains("Example:\n  outboard cast "));
    assert!(help(&["tour"]).contains("Example:\n  outboard tour"));
    assert!(help(&["run"]).contains("Example:\n  outboard run -- "));
    for command in ["node", "status", "top", "key new", "key export", "key revoke", "key show"] {
        let words: Vec<&str> = command.split(' ').collect();
        assert!(help(&words).contains(&format!("Example:\n  outboard {command}")), "{command}");
    }
    for group in ["active", "fs", "offload"] {
        for command in commands(&help(&[group])) {
            let text = help(&[group, &command]);
            let example = format!("Example:\n  outboard {group} {command}");
            assert!(text.contains(&example), "{group} {command}");
        }
    }
    let all = commands(&help(&["perf"]));
    assert_eq!(all.len(), 18, "{all:?}");
    assert!(help(&["perf"]).contains("Example:\n"));
    for command in all {
        let text = help(&["perf", &command]);
        let example = text.split("Example:\n").nth(1).unwrap().trim();
        assert!(example.starts_with(&format!("outboard perf {command} ")), "{example}");
    }
}

#[test]
fn a_wrong_option_is_a_usage_error() {
    let output = outboard(&["perf", "write-lat", "127.0.0.1", "--wait", "never"]);
    assert_eq!(output.status.code(), Some(2));
    let both = outboard(&["perf", "write-lat", "h", "--iters", "1", "--seconds", "1"]);
    assert_eq!(both.status.code(), Some(2));
    for option in ["--size", "--iters", "--seconds", "--qps", "--depth", "--pin"] {
        let output = outboard(&["perf", "write-bw", "127.0.0.1", option, "-1"]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(text.contains(&format!("invalid value '-1' for '{option} ")), "{text}");
    }
}

#[test]
fn words_that_contradict_each_other_are_usage_errors() {
    for words in [
        &["fs", "serve"][..],
        &["fs", "serve", "--volatile", "--store", "x"],
        &["fs", "serve", "--volatile", "--one-sided"],
        &["fs", "mount", "h:/", "x", "--variant", "rdma", "--one-sided"],
        &["fs", "mount", "h:/", "x", "--variant", "other"],
    ] {
        assert_eq!(outboard(words).status.code(), Some(2), "{words:?}");
    }
}

#[test]
fn manual_pages_and_completions_come_from_the_definition() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("generated");
    let dir = dir.to_str().unwrap();
    for what in ["man", "completions"] {
        assert!(outboard(&["generate", what, dir]).status.success());
    }
    let read = |name| std::fs::read_to_string(Path::new(dir).join(name)).unwrap();
    assert!(read("outboard-perf-write-lat.1").contains("\\-\\-iters"));
    assert!(read("outboard.bash").contains("write-imm-rate"));
    assert!(read("outboard-cast.1").contains("\\-\\-topology"));
    assert!(read("outboard.bash").contains("--plan-nodes"));
    assert!(!outboard(&["generate", "man", "/proc/none"]).status.success());
}
