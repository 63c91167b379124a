//! What the kernel's verifier says when it refuses a program: read for the reason and the place.
//!
//! Never keeps a whole log, which may have megabytes.

use std::fmt;

/// Most bytes of the log's tail.
pub const LOG_TAIL_BYTES_MAX: usize = 4096;
/// Most bytes of a line that is quoted.
const LINE_BYTES_MAX: usize = 400;

/// A program that the verifier refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierRefusal {
    /// The program's name.
    pub program: String,
    /// What the kernel says is wrong.
    pub reason: String,
    /// The instruction where it gave up, as the log shows it: its number and its text.
    pub instruction: Option<String>,
    /// The line of the source that this instruction comes from, where debug information has it.
    pub source_line: Option<String>,
    /// The last lines of the log, at most [`LOG_TAIL_BYTES_MAX`] bytes.
    pub log_tail: String,
}

impl VerifierRefusal {
    /// Reads a log. Without one, the reason is what the system call said.
    #[must_use]
    pub fn read(program: &str, error: &str, log: &str) -> Self {
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        let end = lines.iter().rposition(|line| !is_statistics(line)).map_or(0, |last| last + 1);
        let lines = &lines[..end];
        let reason = lines.last().map_or(error, |line| line.trim());
        let quoted = |line: &&str| clipped(line.trim()).to_owned();
        Self {
            program: program.to_owned(),
            reason: clipped(reason).to_owned(),
            instruction: lines.iter().rfind(|line| is_instruction(line)).map(quoted),
            source_line: lines.iter().rfind(|line| line.starts_with("; ")).map(quoted),
            log_tail: tail(log.trim_end()).to_owned(),
        }
    }
}

impl fmt::Display for VerifierRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the kernel's verifier refuses program {}: {}", self.program, self.reason)?;
        if let Some(instruction) = &self.instruction {
            write!(out, "\nat instruction {instruction}")?;
        }
        if let Some(line) = &self.source_line {
            write!(out, "\nfrom source {line}")?;
        }
        write!(out, "\nthe end of its log:\n{}", self.log_tail)
    }
}

/// "12: (71) r1 = *(u8 *)(r0 +0)"
fn is_instruction(line: &str) -> bool {
    let Some((number, rest)) = line.trim_start().split_once(": (") else { return false };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(number) && rest.as_bytes().get(2) == Some(&b')')
}

/// What follows the reason: how much the verifier has looked at.
fn is_statistics(line: &str) -> bool {
    let first = line.split(' ').next().unwrap_or_default();
    matches!(first, "processed" | "verification" | "stack") || line.starts_with("max_states")
}

fn clipped(line: &str) -> &str {
    &line[..line.floor_char_boundary(LINE_BYTES_MAX)]
}

/// The last whole lines that fit.
fn tail(log: &str) -> &str {
    if log.len() <= LOG_TAIL_BYTES_MAX {
        return log;
    }
    let start = log.ceil_char_boundary(log.len() - LOG_TAIL_BYTES_MAX);
    let kept = &log[start..];
    kept.split_once('\n').map_or(kept, |(_, whole)| whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
func#0 @0
0: R1=ctx() R10=fp0
; return *(int *)(long)context->data; @ bad.c:9
0: (61) r1 = *(u32 *)(r1 +0)          ; R1_w=pkt(r=0)
1: (61) r0 = *(u32 *)(r1 +0)
invalid access to packet, off=0 size=4, R1(id=0,off=0,r=0)
R1 offset is outside of the packet
verification time 38 usec
stack depth 0
processed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0
";

    #[test]
    fn a_log_gives_reason_instruction_and_line() {
        let refusal = VerifierRefusal::read("bad", "Permission denied", LOG);
        assert_eq!(refusal.reason, "R1 offset is outside of the packet");
        assert_eq!(refusal.instruction.as_deref(), Some("1: (61) r0 = *(u32 *)(r1 +0)"));
        let line = refusal.source_line.as_deref();
        assert_eq!(line, Some("; return *(int *)(long)context->data; @ bad.c:9"));
        assert!(refusal.to_string().contains("at instruction 1: (61)"), "{refusal}");
    }

    #[test]
    fn without_a_log_the_call_says_why() {
        let refusal = VerifierRefusal::read("bad", "Argument list too long (os error 7)", "");
        assert_eq!(refusal.reason, "Argument list too long (os error 7)");
        assert_eq!(refusal.instruction, None);
    }

    #[test]
    fn a_long_log_is_cut_at_its_beginning_between_characters() {
        let line = "ä".repeat(1000) + "\n";
        let log = line.repeat(1000) + "the reason";
        let refusal = VerifierRefusal::read("bad", "", &log);
        assert!(refusal.log_tail.len() <= LOG_TAIL_BYTES_MAX);
        assert!(refusal.log_tail.ends_with("the reason"));
        let odd = "x".to_owned() + &"ä".repeat(100_000);
        let refusal = VerifierRefusal::read("bad", "", &odd);
        assert!(refusal.reason.len() <= LINE_BYTES_MAX);
    }
}
