//! Lines before and behind those that are meant: grep's -B, -A and -C.
//!
//! Lines that may still be told for the sake of a later one stay in the buffer, from the cursor's
//! `kept` on; the cursor's `after` counts those that are still told for an earlier one's.

use super::{FileScan, Next, ScanEnd, ScanFault, ScanGoes, ScannedBytes, ScannedLine, Tell, Text};
use super::{READ_LEN, line_end};
use crate::protocol::SCAN_NUMBERS;

impl FileScan {
    /// All lines so far are told, or are not to be.
    pub(super) fn has_told(&mut self) {
        self.at.kept = self.at.line;
    }

    /// Of the lines that were looked at, the last ones are kept.
    pub(super) fn keep_before(&mut self, text: Text<'_>) {
        self.at.kept += self.before(text).0 as u64;
    }

    /// Lines that are kept: how many bytes of them are too many, the others, and how many lines.
    fn before<'a>(&self, text: Text<'a>) -> (usize, &'a [u8], u64) {
        let kept = &text.bytes[text.place(self.at.kept)..text.place(self.at.line)];
        let (mut from, mut lines) = (kept.len(), 0);
        while from > 0 && lines < u64::from(self.wish.around.0) {
            let line = kept[..from - 1].iter().rposition(|byte| *byte == b'\n');
            (from, lines) = (line.map_or(0, |end| end + 1), lines + 1);
        }
        (from, &kept[from..], lines)
    }

    /// Tells the lines before the next one.
    pub(super) fn tell_before(&mut self, text: Text<'_>, tell: Tell<'_>) -> Next {
        let (many, mut lines, count) = self.before(text);
        self.at.kept += many as u64;
        let mut number = match self.says(SCAN_NUMBERS) {
            true => self.at.number.saturating_sub(count),
            false => 0,
        };
        while !lines.is_empty() {
            let (line, rest) = lines.split_at(line_end(lines, 0));
            number += 1;
            let told = ScannedLine { number, offset: self.at.kept, bytes: line, is_context: true };
            if tell(told) == ScanGoes::Later {
                return Next::Later;
            }
            self.at.kept += line.len() as u64;
            lines = rest;
        }
        Next::Lines
    }

    /// Passes over lines that are not meant; tells those that are behind one that is.
    pub(super) fn skip(&mut self, mut lines: &[u8], tell: Tell<'_>) -> Next {
        while self.at.after > 0 && !lines.is_empty() && self.tells_lines() {
            let (line, rest) = lines.split_at(line_end(lines, 0));
            let (number, offset) = (self.at.number + 1, self.at.line);
            if tell(ScannedLine { number, offset, bytes: line, is_context: true })
                == ScanGoes::Later
            {
                return Next::Later;
            }
            self.pass(line);
            self.has_told();
            self.at.after -= 1;
            lines = rest;
        }
        self.pass(lines);
        Next::Lines
    }

    /// No line is meant any more: tells those behind the last one.
    pub(super) fn rest(
        &mut self,
        mut has_more: bool,
        bytes: &mut dyn ScannedBytes,
        tell: Tell<'_>,
        goes_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<ScanEnd, ScanFault> {
        while self.at.after > 0 && self.tells_lines() {
            if !has_more && self.ends_amid_line() {
                self.buffer.push(b'\n');
            }
            if self.lines_behind(tell) == Next::Later {
                return Ok(ScanEnd::Later);
            }
            if !has_more || self.at.after == 0 {
                break;
            }
            if !goes_on(READ_LEN) {
                return Ok(ScanEnd::Later);
            }
            has_more = self.read_more(bytes)?.unwrap_or(false);
        }
        Ok(self.done())
    }

    /// Tells whole lines that the buffer has.
    fn lines_behind(&mut self, tell: Tell<'_>) -> Next {
        self.with_text(self.whole_lines(), |scan, text| {
            let mut lines = text.from(scan.at.line);
            let mut next = Next::Lines;
            while scan.at.after > 0 && !lines.is_empty() && next == Next::Lines {
                let (line, rest) = lines.split_at(line_end(lines, 0));
                next = scan.skip(line, tell);
                lines = rest;
            }
            next
        })
    }
}
