//! The front of `outboard cast`: words after `--`, output that cannot be written, and few
//! descriptors.

use serde_json::Value;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Output};

/// A directory with files of odd names.
struct Place {
    home: PathBuf,
}

impl Place {
    fn new(name: &str) -> Self {
        let home = std::env::temp_dir();
        let home = home.join(format!("outboard-front-{name}-{}", std::process::id()));
        let _absent = fs::remove_dir_all(&home);
        fs::create_dir_all(home.join("many")).unwrap();
        for name in ["-n", "--json", "--", "plain", "many/0"] {
            fs::write(home.join(name), name).unwrap();
        }
        Self { home }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outboard"));
        command.arg("cast").args(words).current_dir(&self.home).env("HOME", &self.home);
        for name in ["OUTBOARD_HOSTS", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "PBS_NODEFILE"] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// The names of what a dry run would cast.
    fn would_cast(&self, words: &[&str]) -> Vec<String> {
        let output = self.run(&[&["--dry-run", "--json"], words].concat());
        assert!(output.status.success(), "{words:?}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let sources = report["sources"].as_array().unwrap().iter();
        sources.map(|source| source["path"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.home);
    }
}

#[test]
fn words_after_two_dashes_are_no_options() {
    let place = Place::new("dashes");
    let all = ["/x/--", "/x/--json", "/x/-n", "/x/plain"];
    assert_eq!(place.would_cast(&["--", "--", "--json", "-n", "plain", "/x"]), all);
    assert_eq!(place.would_cast(&["plain", "--", "-n", "/x"]), ["/x/-n", "/x/plain"]);
    let said = String::from_utf8(place.run(&["-n", "/x"]).stderr).unwrap();
    assert!(said.contains("'-- -n'"), "{said}");
}

/// They are arguments of the program, unless nothing stands before the first `--`.
#[test]
fn words_after_two_dashes_belong_to_the_program_that_is_started() {
    let place = Place::new("exec");
    let program = ["--exec", "plain", "/x", "--", "-n", "--", "many"];
    assert_eq!(place.would_cast(&program), ["/x/plain"]);
    let odd = ["--exec", "--", "-n", "/x", "--", "--json", "--"];
    assert_eq!(place.would_cast(&odd), ["/x/-n"]);
    let output = place.run(&["--dry-run", "--exec", "--", "-n"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn an_output_that_is_full_is_called_by_its_name() {
    let place = Place::new("full");
    for words in [&["--dry-run", "plain", "/x"][..], &["--dry-run", "--json", "plain", "/x"]] {
        let mut command = place.command(words);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("standard output cannot be written to"), "{said}");
    }
}

#[test]
fn too_few_descriptors_are_not_taken_for_files_that_cannot_be_read() {
    let place = Place::new("few");
    let mut deep = place.home.join("many");
    for _ in 0..40 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 20; exec \"$0\" cast --dry-run many /x"]);
    command.arg(env!("CARGO_BIN_EXE_outboard")).current_dir(&place.home);
    let output = command.env("HOME", &place.home).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("ulimit -n") && !said.contains("exclude it"), "{said}");
}

/// By one function, of the same link.
#[test]
fn no_schedule_undercuts_the_bound_that_a_plan_shows() {
    let place = Place::new("bound");
    fs::write(place.home.join("data"), vec![1; 6_000_000]).unwrap();
    for size in [&["--plan-size", "10K"][..], &["data", "/x"], &["--plan-size", "100M"]] {
        let words = [&["--plan", "--plan-nodes", "40"], size].concat();
        let text = String::from_utf8(place.run(&words).stdout).unwrap();
        let rows = text.lines().skip_while(|line| !line.starts_with("schedule")).skip(1);
        let ratios = rows.map_while(|row| row.split_whitespace().nth(2)?.parse::<f64>().ok());
        let ratios: Vec<f64> = ratios.collect();
        assert!(ratios.len() >= 4 && ratios.iter().all(|ratio| *ratio >= 1.0), "{text}");
        let report = place.run(&[&words[..], &["--json"]].concat()).stdout;
        let report: Value = serde_json::from_slice(&report).unwrap();
        assert!(report["bound_of_chunks_s"].as_f64() <= report["bound_s"].as_f64(), "{report}");
    }
}
