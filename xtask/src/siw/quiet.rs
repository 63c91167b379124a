//! Running a tool to its end, with its output in the error when it fails.
//!
//! It never runs a shell and never passes on a tool's output when the tool succeeded.

use std::process::Command;

/// Runs `command` and returns its standard output.
pub(super) fn run(command: &mut Command) -> Result<String, String> {
    let output =
        command.output().map_err(|error| format!("cannot run {}: {error}", name_of(command)))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?} ended with {}:\n{}", output.status, tail(&(stdout + &stderr), 30)))
}

/// The last `count` lines of `text`.
pub(super) fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

fn name_of(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_tool_is_quoted() {
        let error = run(Command::new("ls").arg("/no/such/file")).unwrap_err();
        assert!(error.contains("No such file"), "{error}");
    }

    #[test]
    fn tail_keeps_the_end() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 2), "a");
    }
}
