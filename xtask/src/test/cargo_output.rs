//! What `cargo test` prints: how many tests passed, which failed, and with which words.

use super::Count;

/// Lines that are kept of one failed test; a panic with its backtrace is shorter.
const LINES_MAX: usize = 60;

/// The output of `cargo test` so far.
#[derive(Debug, Default)]
pub(super) struct TestOutput {
    pub(super) count: Count,
    /// The failed tests' names, and what each of them printed.
    pub(super) failed: Vec<(String, String)>,
    /// What each test program printed of all its failures.
    pub(super) texts: Vec<String>,
    /// Test programs that have begun and not reported a result: one that a signal ends never does.
    unfinished: u32,
    /// The lines after `failures:` of the program that runs.
    section: Option<Vec<String>>,
}

impl TestOutput {
    /// Takes the next line.
    pub(super) fn line(&mut self, line: &str) {
        if line.starts_with("running ") && line.trim_end_matches('s').ends_with(" test") {
            self.unfinished += 1;
        }
        if let Some(count) = Count::parse(line) {
            self.count += count;
            self.unfinished = self.unfinished.saturating_sub(1);
            if let Some(lines) = self.section.take() {
                self.end_section(&lines);
            }
        }
        if let Some(section) = &mut self.section {
            section.push(line.to_owned());
        } else if line == "failures:" {
            self.section = Some(vec![line.to_owned()]);
        }
    }

    /// Whether each failure is that of a test whose name is known.
    pub(super) fn names_all_failures(&self) -> bool {
        self.unfinished == 0 && usize::try_from(self.count.failed) == Ok(self.failed.len())
    }

    /// A section ends with the names, four spaces in front of each. Before them stands what each
    /// test printed, under `---- NAME stdout ----` or, by libtest-mimic, `---- NAME ----`.
    fn end_section(&mut self, lines: &[String]) {
        let names_at = lines.iter().rposition(|line| line == "failures:").unwrap_or(0);
        let names = lines[names_at..].iter().filter_map(|line| line.strip_prefix("    "));
        for name in names.map(str::trim).filter(|name| !name.is_empty()) {
            let begins = |line: &&String| line.starts_with(&format!("---- {name} "));
            let from = lines.iter().position(|line| begins(&line)).unwrap_or(names_at);
            let printed = lines[from..names_at].iter().enumerate();
            let own = printed.take_while(|(at, line)| *at == 0 || !line.starts_with("---- "));
            let own: Vec<&str> = own.take(LINES_MAX).map(|(_, line)| line.as_str()).collect();
            self.failed.push((name.to_owned(), own.join("\n")));
        }
        let kept: Vec<&str> = lines.iter().take(LINES_MAX).map(String::as_str).collect();
        self.texts.push(kept.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str) -> TestOutput {
        let mut read = TestOutput::default();
        output.lines().for_each(|line| read.line(line));
        read
    }

    const FAILED: &str = "running 2 tests\ntest a ... ok\ntest b::c ... FAILED\n\nfailures:\n\n\
                          ---- b::c stdout ----\nwrong\n    indented\n\nfailures:\n    b::c\n\n\
                          test result: FAILED. 1 passed; 1 failed; 0 ignored\n\
                          running 1 test\ntest d ... ok\n\n\
                          test result: ok. 1 passed; 0 failed; 0 ignored";

    #[test]
    fn failed_tests_are_known_by_their_names() {
        let output = read(FAILED);
        assert_eq!(output.count, Count { passed: 2, failed: 1, skipped: 0 });
        assert!(output.names_all_failures());
        let text = "---- b::c stdout ----\nwrong\n    indented\n";
        assert_eq!(output.failed, [("b::c".to_owned(), text.to_owned())]);
        assert_eq!(output.texts.len(), 1);
    }

    #[test]
    fn the_text_of_each_of_several_failures_is_its_own() {
        let output = read(
            "running 2 tests\nfailures:\n\n---- a ----\none\n\n---- b ----\ntwo\n\nfailures:\n    \
             a\n    b\n\ntest result: FAILED. 0 passed; 2 failed; 0 ignored",
        );
        let texts: Vec<_> = output.failed.iter().map(|(_, text)| text.trim_end()).collect();
        assert_eq!(texts, ["---- a ----\none", "---- b ----\ntwo"]);
    }

    #[test]
    fn a_program_that_ends_before_its_result_is_not_known_by_names() {
        let output = read(&format!("{FAILED}\nrunning 3 tests\ntest e ... ok"));
        assert!(!output.names_all_failures());
    }
}
