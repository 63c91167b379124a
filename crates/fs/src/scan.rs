//! Files looked through line by line, as grep(1) does it: which lines are meant, when a file is
//! binary, and where it is done.
//!
//! The same code works at the server and at the client. It reads and finds nothing itself, and
//! holds one line more than it reads at a time. What GNU grep makes of a file depends on how it
//! reads: 96 KiB at a time; so does this.

use crate::protocol::{
    SCAN_FIRST, SCAN_INVERT, SCAN_LINES, SCAN_NUMBERS, SCAN_SKIP_BINARY, SCAN_TEXT, ScanCursor,
};

/// Bytes that are read at a time.
pub const READ_LEN: usize = 96 << 10;
/// Lines that are looked for at a time.
const FOUND_MAX: usize = 1024;

/// Why lines are not looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanFault {
    /// Somebody else must: they are too long, or have characters that an automaton does not know.
    Undecided,
    /// The file cannot be read: an error number.
    Read(i32),
    /// What looks at them has failed.
    Finder(String),
}

/// Finds lines.
pub trait LineFinder {
    /// Of each of these whole lines that matches the place of one of its bytes, in order, up to so
    /// many; how far it has come, which is where a line begins.
    ///
    /// # Errors
    /// [`ScanFault`]: of the first line that `found` says nothing about.
    fn find_lines(
        &mut self,
        lines: &[u8],
        most: usize,
        found: &mut Vec<usize>,
    ) -> Result<usize, ScanFault>;
}

/// A file's bytes.
pub trait ScannedBytes {
    /// Appends up to so many bytes from an offset on; fewer only at the end.
    ///
    /// # Errors
    /// [`ScanFault`].
    fn read(&mut self, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<(), ScanFault>;

    /// Whether there is a hole behind an offset.
    ///
    /// # Errors
    /// [`ScanFault`].
    fn has_hole(&mut self, offset: u64) -> Result<bool, ScanFault>;
}

/// A line that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedLine<'a> {
    /// Its number, where numbers are asked for.
    pub number: u64,
    /// Where it begins.
    pub offset: u64,
    /// The line with its end.
    pub bytes: &'a [u8],
}

/// Whether whoever is told goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanGoes {
    /// It has taken the line.
    On,
    /// It has not taken it: the file goes on with it another time.
    Later,
}

/// What of a file is meant.
#[derive(Clone, Copy, Debug)]
pub struct ScanWish {
    /// [`SCAN_INVERT`] and its like.
    pub flags: u32,
    /// Lines, at most.
    pub most: u64,
    /// Bytes that a line, and what is read with it, may have in memory.
    pub memory_max: usize,
}

/// How a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEnd {
    /// It is done: lines that are meant, and whether it is binary and one of them is behind what
    /// shows that.
    Done {
        /// Lines.
        selected: u64,
        /// A binary file matches.
        is_binary: bool,
    },
    /// Somebody must go on from the cursor.
    Later,
}

/// See this file's first lines.
#[derive(Debug)]
pub struct FileScan {
    wish: ScanWish,
    at: ScanCursor,
    /// Bytes from `at.line` to `at.read`.
    buffer: Vec<u8>,
    found: Vec<usize>,
}

/// What to do after some lines.
enum Next {
    Lines,
    Stop,
    Later,
}

impl FileScan {
    /// A file that goes on from a cursor.
    #[must_use]
    pub fn new(wish: ScanWish, at: ScanCursor) -> Self {
        Self { wish, at, buffer: Vec::new(), found: Vec::new() }
    }

    /// How far it is.
    #[must_use]
    pub fn cursor(&self) -> ScanCursor {
        self.at
    }

    fn says(&self, flag: u32) -> bool {
        self.wish.flags & flag != 0
    }

    /// Whether the file is done with the lines that are meant so far.
    fn is_done(&self) -> bool {
        let is_seen_binary = self.at.first_null > 0 && self.at.selected >= self.at.first_null;
        let stops = self.says(SCAN_FIRST) || (self.says(SCAN_LINES) && is_seen_binary);
        self.at.selected >= self.wish.most
            || (stops && self.at.selected > self.at.first_null.saturating_sub(1))
    }

    fn done(&self) -> ScanEnd {
        let is_binary = self.at.first_null > 0 && self.at.selected >= self.at.first_null;
        ScanEnd::Done { selected: self.at.selected, is_binary }
    }

    /// Looks through the file until it is done, or `goes_on` says no.
    ///
    /// # Errors
    /// [`ScanFault`]: the cursor says where.
    pub fn run(
        &mut self,
        (bytes, finder): (&mut dyn ScannedBytes, &mut dyn LineFinder),
        tell: &mut dyn FnMut(ScannedLine<'_>) -> ScanGoes,
        goes_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<ScanEnd, ScanFault> {
        if self.is_done() {
            return Ok(self.done());
        }
        // What was read before is looked at first.
        let mut has_more = self.read_again(bytes)?;
        let mut is_new = self.buffer.is_empty();
        loop {
            if is_new {
                let len = self.buffer.len();
                match self.read_more(bytes)? {
                    Some(more) => has_more = more,
                    None => return Ok(ScanEnd::Done { selected: 0, is_binary: false }),
                }
                if self.buffer.len() == len {
                    break;
                }
            }
            let has_read = std::mem::replace(&mut is_new, true);
            let end = self.buffer.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            match self.lines(end, finder, tell)? {
                Next::Lines => {}
                Next::Stop => return Ok(self.done()),
                Next::Later => return Ok(ScanEnd::Later),
            }
            if !has_more {
                break;
            }
            // Each time it comes further.
            if has_read && !goes_on(READ_LEN) {
                return Ok(ScanEnd::Later);
            }
        }
        if !self.buffer.is_empty() {
            self.buffer.push(b'\n');
            if let Next::Later = self.lines(self.buffer.len(), finder, tell)? {
                return Ok(ScanEnd::Later);
            }
        }
        Ok(self.done())
    }

    /// Reads what was read before the cursor was made; whether there may be more.
    fn read_again(&mut self, bytes: &mut dyn ScannedBytes) -> Result<bool, ScanFault> {
        let before = usize::try_from(self.at.read - self.at.line).unwrap_or(usize::MAX);
        if before == 0 {
            return Ok(true);
        }
        if before > self.wish.memory_max {
            return Err(ScanFault::Undecided);
        }
        bytes.read(self.at.line, before, &mut self.buffer)?;
        self.zap(0);
        Ok(self.buffer.len() == before)
    }

    /// Reads on; whether there may be more, and `None` if the file is left out.
    fn read_more(&mut self, bytes: &mut dyn ScannedBytes) -> Result<Option<bool>, ScanFault> {
        let len = self.buffer.len();
        if len + READ_LEN > self.wish.memory_max {
            return Err(ScanFault::Undecided);
        }
        let is_first = self.at.read == 0;
        bytes.read(self.at.read, READ_LEN, &mut self.buffer)?;
        let read = self.buffer.len() - len;
        self.at.read += read as u64;
        let has_more = read == READ_LEN;
        let is_seen = self.look_for_nulls(len, (is_first, has_more), bytes)?;
        Ok(is_seen.then_some(has_more))
    }

    /// Sees whether the file is binary; false if it is left out for that.
    fn look_for_nulls(
        &mut self,
        from: usize,
        (is_first, has_more): (bool, bool),
        bytes: &mut dyn ScannedBytes,
    ) -> Result<bool, ScanFault> {
        if self.at.first_null == 0 && !self.says(SCAN_TEXT) {
            let has_null = self.buffer[from..].contains(&0)
                || (is_first && has_more && bytes.has_hole(self.at.read)?);
            if has_null && self.says(SCAN_SKIP_BINARY) {
                return Ok(false);
            }
            if has_null {
                self.at.first_null = self.at.selected + 1;
            }
        }
        self.zap(from);
        Ok(true)
    }

    /// In a binary file bytes of 0 end lines as well.
    fn zap(&mut self, from: usize) {
        if self.at.first_null > 0 {
            let zeroes = self.buffer[from..].iter_mut().filter(|byte| **byte == 0);
            zeroes.for_each(|byte| *byte = b'\n');
        }
    }

    /// Looks at the whole lines that the buffer begins with, which end there.
    fn lines(
        &mut self,
        end: usize,
        finder: &mut dyn LineFinder,
        tell: &mut dyn FnMut(ScannedLine<'_>) -> ScanGoes,
    ) -> Result<Next, ScanFault> {
        let buffer = std::mem::take(&mut self.buffer);
        let begin = self.at.line;
        let result = self.lines_of(&buffer[..end], finder, tell);
        let done = usize::try_from(self.at.line - begin).unwrap_or(usize::MAX).min(buffer.len());
        self.buffer = buffer;
        self.buffer.drain(..done);
        result
    }

    fn lines_of(
        &mut self,
        lines: &[u8],
        finder: &mut dyn LineFinder,
        tell: &mut dyn FnMut(ScannedLine<'_>) -> ScanGoes,
    ) -> Result<Next, ScanFault> {
        let mut at = 0;
        while at < lines.len() {
            let mut found = std::mem::take(&mut self.found);
            found.clear();
            let left = self.wish.most.saturating_sub(self.at.selected);
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(FOUND_MAX);
            let most = if self.says(SCAN_FIRST) && !self.says(SCAN_INVERT) { 1 } else { most };
            let come = finder.find_lines(&lines[at..], most, &mut found);
            let next = self.tell_all(&lines[at..], (&found, come.as_ref().ok().copied()), tell);
            self.found = found;
            if !matches!(next, Next::Lines) {
                return Ok(next);
            }
            at += come?;
        }
        Ok(Next::Lines)
    }

    /// Tells the lines that are meant, of those up to where the finder has come.
    fn tell_all(
        &mut self,
        lines: &[u8],
        (found, come): (&[usize], Option<usize>),
        tell: &mut dyn FnMut(ScannedLine<'_>) -> ScanGoes,
    ) -> Next {
        let mut at = 0;
        for place in found {
            let before = lines[at..*place].iter().rposition(|byte| *byte == b'\n');
            let begin = before.map_or(at, |before| at + before + 1);
            let end = line_end(lines, *place);
            let next = match self.says(SCAN_INVERT) {
                true => self.tell_each(&lines[at..begin], tell),
                false => {
                    self.skip(&lines[at..begin]);
                    self.tell_one(&lines[begin..end], tell)
                }
            };
            if !matches!(next, Next::Lines) {
                return next;
            }
            if self.says(SCAN_INVERT) {
                self.skip(&lines[begin..end]);
            }
            at = end;
        }
        match come {
            Some(come) if self.says(SCAN_INVERT) => self.tell_each(&lines[at..come.max(at)], tell),
            Some(come) => {
                self.skip(&lines[at..come.max(at)]);
                Next::Lines
            }
            None => Next::Lines,
        }
    }

    fn tell_each(
        &mut self,
        lines: &[u8],
        tell: &mut dyn FnMut(ScannedLine<'_>) -> ScanGoes,
    ) -> Next {
        let mut at = 0;
        while at < lines.len() {
            let end = line_end(lines, at);
            let next = self.tell_one(&lines[at..end], tell);
            if !matches!(next, Next::Lines) {
                return next;
            }
            at = end;
        }
        Next::Lines
    }

    /// Counts a line that is meant, and tells it where that is wanted.
    fn tell_one(&mut self, line: &[u8], tell: &mut dyn FnMut(ScannedLine<'_>) -> ScanGoes) -> Next {
        if self.says(SCAN_LINES) && self.at.first_null == 0 {
            let (number, offset) = (self.at.number + 1, self.at.line);
            if tell(ScannedLine { number, offset, bytes: line }) == ScanGoes::Later {
                return Next::Later;
            }
        }
        self.skip(line);
        self.at.selected += 1;
        if self.is_done() { Next::Stop } else { Next::Lines }
    }

    fn skip(&mut self, lines: &[u8]) {
        self.at.line += lines.len() as u64;
        if self.says(SCAN_NUMBERS) {
            self.at.number += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        }
    }
}

/// Where the line of a byte ends.
fn line_end(lines: &[u8], place: usize) -> usize {
    let len = lines[place..].iter().position(|byte| *byte == b'\n');
    len.map_or(lines.len(), |len| place + len + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines with an x.
    struct Letters;

    impl LineFinder for Letters {
        fn find_lines(
            &mut self,
            lines: &[u8],
            most: usize,
            found: &mut Vec<usize>,
        ) -> Result<usize, ScanFault> {
            let mut at = 0;
            while at < lines.len() && found.len() < most {
                let end = line_end(lines, at);
                found.extend(lines[at..end].iter().position(|byte| *byte == b'x').map(|x| at + x));
                at = end;
            }
            Ok(at)
        }
    }

    struct Whole<'a>(&'a [u8]);

    impl ScannedBytes for Whole<'_> {
        fn read(&mut self, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<(), ScanFault> {
            let from = usize::try_from(offset).expect("small").min(self.0.len());
            into.extend_from_slice(&self.0[from..(from + len).min(self.0.len())]);
            Ok(())
        }

        fn has_hole(&mut self, _offset: u64) -> Result<bool, ScanFault> {
            Ok(false)
        }
    }

    /// What is told, where only so many lines are taken at a time, and how it ends.
    fn scanned(bytes: &[u8], wish: ScanWish, at_a_time: usize) -> (Vec<(u64, u64)>, ScanEnd) {
        let (mut all, mut cursor) = (Vec::new(), ScanCursor::default());
        loop {
            let (mut scan, mut taken) = (FileScan::new(wish, cursor), 0);
            let mut tell = |line: ScannedLine<'_>| {
                taken += 1;
                if taken > at_a_time {
                    return ScanGoes::Later;
                }
                all.push((line.number, line.offset));
                ScanGoes::On
            };
            let on = (&mut Whole(bytes) as &mut dyn ScannedBytes, &mut Letters as _);
            let end = scan.run(on, &mut tell, &mut |_| at_a_time > 1).expect("read");
            match end {
                ScanEnd::Later => cursor = scan.cursor(),
                end => return (all, end),
            }
        }
    }

    fn wish(flags: u32, most: u64) -> ScanWish {
        ScanWish { flags: flags | SCAN_LINES | SCAN_NUMBERS, most, memory_max: usize::MAX }
    }

    #[test]
    fn a_file_that_is_gone_on_with_is_the_same_file() {
        let mut text = Vec::new();
        for line in 0..20_000_u32 {
            let word: &[u8] = if line % 700 == 3 { b"an x here" } else { b"nothing" };
            text.extend_from_slice(word);
            text.push(b'\n');
        }
        text.extend_from_slice(b"x at the end");
        let mut late = text.clone();
        late.extend_from_slice(b"\0x\nx");
        for bytes in [&text, &late] {
            for (flags, most) in [(0, u64::MAX), (0, 9), (SCAN_INVERT, 60), (SCAN_TEXT, 90)] {
                let whole = scanned(bytes, wish(flags, most), usize::MAX);
                for at_a_time in [1, 40] {
                    let found = scanned(bytes, wish(flags, most), at_a_time);
                    assert_eq!(found, whole, "{flags} {most} {at_a_time}");
                }
            }
        }
        let (lines, end) = scanned(&text, wish(0, u64::MAX), 5);
        assert_eq!((lines.len(), lines[1].0), (30, 704));
        assert_eq!(end, ScanEnd::Done { selected: 30, is_binary: false });
    }

    #[test]
    fn a_byte_of_0_ends_a_line_and_the_lines_that_are_told() {
        let bytes = b"x\nno\n\0x\nx\n";
        let (lines, end) = scanned(bytes, wish(0, u64::MAX), 9);
        assert_eq!((lines.len(), end), (0, ScanEnd::Done { selected: 1, is_binary: true }));
        let (lines, end) = scanned(bytes, wish(SCAN_TEXT, u64::MAX), 9);
        assert_eq!((lines.len(), end), (3, ScanEnd::Done { selected: 3, is_binary: false }));
        let (_, end) = scanned(bytes, wish(SCAN_SKIP_BINARY, u64::MAX), 9);
        assert_eq!(end, ScanEnd::Done { selected: 0, is_binary: false });
    }
}
