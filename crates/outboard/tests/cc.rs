//! `outboard cc`: compilers with their words as they are, links, statistics, the timeline.

#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A user with an empty state and a directory to work in.
struct User(PathBuf);

impl User {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("outboard-user-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        for part in ["run", "state", "src"] {
            fs::create_dir_all(dir.join(part)).unwrap();
        }
        Self(dir)
    }

    fn cc(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outboard"));
        command.arg("cc").args(words).current_dir(self.0.join("src"));
        command.env("XDG_RUNTIME_DIR", self.0.join("run"));
        command.env("XDG_STATE_HOME", self.0.join("state")).env_remove("OUTBOARD_CC_NESTED");
        command
    }

    /// Standard output of what must work.
    fn said(&self, words: &[&str]) -> String {
        let output = self.cc(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // The manager ends by itself in a minute, because its directory is gone.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_compilers_words_are_its_own() {
    let user = User::new("words");
    assert!(user.said(&["gcc", "--version"]).starts_with("gcc"));
    assert!(user.said(&["gcc", "--help"]).contains("Usage: "));
    fs::write(user.0.join("src/a.c"), "int x;").unwrap();
    assert_eq!(user.said(&["gcc", "-c", "a.c"]), "");
    assert!(user.0.join("src/a.o").exists());
    let failure = user.cc(&["gcc", "-c", "absent.c"]);
    assert_eq!(failure.status.code(), Some(1));
}

#[test]
fn statistics_are_shown_counted_and_cleared() {
    let user = User::new("stats");
    user.said(&["gcc", "--version"]);
    let json: serde_json::Value = serde_json::from_str(&user.said(&["--stats", "--json"])).unwrap();
    assert_eq!(json["local"], 1);
    assert_eq!(json["causes"]["asks the compiler something"], 1);
    assert!(user.said(&["--stats", "--zero"]).contains("  locally                   1"));
    assert!(user.said(&["--stats"]).contains("  locally                   0"));
    for (file, start) in [("a.svg", "<svg"), ("a.html", "<!DOCTYPE html>")] {
        user.said(&["--timeline", file]);
        assert!(fs::read_to_string(user.0.join("src").join(file)).unwrap().starts_with(start));
    }
    assert!(!user.cc(&["--timeline", "a.png"]).status.success());
}

#[test]
fn what_makes_no_sense_together_is_refused() {
    let user = User::new("refused");
    for words in [&[][..], &["--json"], &["--stats", "gcc"], &["--zero"], &["--manager", "gcc"]] {
        assert_eq!(user.cc(words).status.code(), Some(2), "{words:?}");
    }
}

#[test]
fn the_usage_is_what_works() {
    let user = User::new("usage");
    let text = |output: Output| String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    for words in [&["--json"][..], &["--help"]] {
        let text = text(user.cc(words));
        let usage = "cc <COMPILER [ARGUMENTS]...|--stats [--json] [--zero]|--timeline FILE|";
        assert!(text.contains(usage), "{text}");
        assert!(!text.contains("--manager") && !text.contains("--with-parent"), "{text}");
    }
}

#[test]
fn a_managers_lines_have_a_time_and_its_process() {
    let user = User::new("log");
    fs::write(user.0.join("src/a.c"), "int x;").unwrap();
    let mut command = user.command(&["gcc", "-c", "a.c"]);
    let output = command.env("OUTBOARD_HOSTS", "n[").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let log = fs::read_to_string(user.0.join("run/outboard/cc.log")).unwrap();
    let words: Vec<&str> = log.split_whitespace().take(4).collect();
    let [time, manager, pid, level] = words[..] else { panic!("{log}") };
    assert!(time.ends_with('Z') && manager == "manager", "{log}");
    assert!(pid.parse::<u32>().is_ok() && level == "WARN", "{log}");
}

#[test]
fn links_replace_links_and_nothing_else() {
    let user = User::new("links");
    let output = user.cc(&["--install-links", "links"]);
    let wrapper = PathBuf::from(env!("CARGO_BIN_EXE_outboard")).with_file_name("outboard-cc");
    if !wrapper.exists() {
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains("outboard-cc does not exist"), "{errors}");
        println!("skipped: outboard-cc has not been built");
        return;
    }
    let links = user.0.join("src/links");
    assert_eq!(fs::read_link(links.join("gcc")).unwrap(), wrapper);
    assert_eq!(user.said(&["--install-links", "links"]).lines().count(), links_in(&links) + 1);
    fs::remove_file(links.join("gcc")).unwrap();
    symlink("elsewhere", links.join("gcc")).unwrap();
    user.said(&["--install-links", "links"]);
    assert_eq!(fs::read_link(links.join("gcc")).unwrap(), wrapper);
    fs::remove_file(links.join("gcc")).unwrap();
    fs::write(links.join("gcc"), "mine").unwrap();
    assert!(!user.cc(&["--install-links", "links"]).status.success());
    assert_eq!(fs::read(links.join("gcc")).unwrap(), b"mine");
}

fn links_in(directory: &std::path::Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

/// A limit of the length of files is an error like any other, and not a signal that ends it.
#[test]
fn a_file_that_may_not_grow_is_an_error() {
    let user = User::new("limited");
    let file = user.0.join("t.html");
    let line = format!(
        "ulimit -f 0; exec {} cc --timeline {}",
        env!("CARGO_BIN_EXE_outboard"),
        file.display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).env("XDG_STATE_HOME", &user.0).env("XDG_RUNTIME_DIR", &user.0);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{:?}: {said}", output.status);
    assert!(said.contains("File too large"), "{said}");
}
