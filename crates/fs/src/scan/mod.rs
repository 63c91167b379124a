//! Files looked through line by line, as grep(1) does it: which lines are meant, when a file is
//! binary, and where it is done.
//!
//! The same code works at the server and at the client. It reads and finds nothing itself, and
//! holds one line more than it reads at a time. What GNU grep makes of a file depends on how it
//! reads: 96 KiB at a time; so does this. Lines around those that are meant are in `context`.

mod context;
#[cfg(test)]
mod tests;

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
    /// It is told for the sake of another line beside it.
    pub is_context: bool,
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
    /// Lines that are told before each of them, and behind it.
    pub around: (u32, u32),
    /// Bytes that a line, and what is read with it, may have in memory; and lines before it.
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
    /// Bytes from `at.kept` to `at.read`.
    buffer: Vec<u8>,
    found: Vec<usize>,
}

/// What to do after some lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Lines,
    Stop,
    Later,
}

/// Whoever is told.
type Tell<'a> = &'a mut dyn FnMut(ScannedLine<'_>) -> ScanGoes;

/// What is in the buffer: bytes from an offset on.
#[derive(Clone, Copy)]
struct Text<'a> {
    bytes: &'a [u8],
    base: u64,
}

impl<'a> Text<'a> {
    /// Where an offset is in the bytes.
    fn place(&self, offset: u64) -> usize {
        usize::try_from(offset - self.base).unwrap_or(usize::MAX).min(self.bytes.len())
    }

    /// From an offset on.
    fn from(&self, offset: u64) -> &'a [u8] {
        &self.bytes[self.place(offset)..]
    }
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
        // What was read before is looked at first.
        let mut has_more = self.read_again(bytes)?;
        if self.is_done() {
            return self.rest(has_more, bytes, tell, goes_on);
        }
        let mut is_new = self.at.read == self.at.line;
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
            match self.lines(self.whole_lines(), finder, tell)? {
                Next::Lines => {}
                Next::Stop => return self.rest(has_more, bytes, tell, goes_on),
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
        if self.ends_amid_line() {
            self.buffer.push(b'\n');
            if self.lines(self.buffer.len(), finder, tell)? == Next::Later {
                return Ok(ScanEnd::Later);
            }
        }
        Ok(self.done())
    }

    /// Where the whole lines of the buffer end.
    fn whole_lines(&self) -> usize {
        self.buffer.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
    }

    /// Whether there are bytes behind the last whole line.
    fn ends_amid_line(&self) -> bool {
        self.buffer.last().is_some_and(|last| *last != b'\n')
    }

    /// Reads what was read before the cursor was made; whether there may be more.
    fn read_again(&mut self, bytes: &mut dyn ScannedBytes) -> Result<bool, ScanFault> {
        let before = usize::try_from(self.at.read - self.at.kept).unwrap_or(usize::MAX);
        if before == 0 {
            return Ok(true);
        }
        self.check_room(0)?;
        bytes.read(self.at.kept, before, &mut self.buffer)?;
        self.zap(0);
        Ok(self.buffer.len() == before)
    }

    /// Whether there is memory for lines, so many bytes more, and the lines before.
    fn check_room(&self, more: usize) -> Result<(), ScanFault> {
        let len = |from, to| usize::try_from(to - from).unwrap_or(usize::MAX);
        let lines = len(self.at.line, self.at.read).saturating_add(more);
        let most = lines.max(len(self.at.kept, self.at.line));
        if most > self.wish.memory_max { Err(ScanFault::Undecided) } else { Ok(()) }
    }

    /// Reads on; whether there may be more, and `None` if the file is left out.
    fn read_more(&mut self, bytes: &mut dyn ScannedBytes) -> Result<Option<bool>, ScanFault> {
        self.check_room(READ_LEN)?;
        let (len, is_first) = (self.buffer.len(), self.at.read == 0);
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

    /// Looks at the whole lines of the buffer that are not looked at, which end there.
    fn lines(
        &mut self,
        end: usize,
        finder: &mut dyn LineFinder,
        tell: Tell<'_>,
    ) -> Result<Next, ScanFault> {
        self.with_text(end, |scan, text| scan.lines_of(text, finder, tell))
    }

    /// Does something with the buffer up to there, and forgets what is not needed of it any more.
    fn with_text<T>(&mut self, end: usize, work: impl FnOnce(&mut Self, Text<'_>) -> T) -> T {
        let buffer = std::mem::take(&mut self.buffer);
        let text = Text { bytes: &buffer[..end], base: self.at.kept };
        let result = work(self, text);
        self.keep_before(text);
        let done = text.place(self.at.kept);
        self.buffer = buffer;
        self.buffer.drain(..done);
        result
    }

    fn lines_of(
        &mut self,
        text: Text<'_>,
        finder: &mut dyn LineFinder,
        tell: Tell<'_>,
    ) -> Result<Next, ScanFault> {
        while !text.from(self.at.line).is_empty() {
            let lines = text.from(self.at.line);
            let mut found = std::mem::take(&mut self.found);
            found.clear();
            let left = self.wish.most.saturating_sub(self.at.selected);
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(FOUND_MAX);
            let most = if self.says(SCAN_FIRST) && !self.says(SCAN_INVERT) { 1 } else { most };
            let come = finder.find_lines(lines, most, &mut found);
            let next = self.tell_all(text, (&found, come.as_ref().ok().copied()), tell);
            self.found = found;
            if next != Next::Lines {
                return Ok(next);
            }
            come?;
        }
        Ok(Next::Lines)
    }

    /// Tells the lines that are meant, of those up to where the finder has come.
    fn tell_all(
        &mut self,
        text: Text<'_>,
        (found, come): (&[usize], Option<usize>),
        tell: Tell<'_>,
    ) -> Next {
        let (lines, mut at) = (text.from(self.at.line), 0);
        for place in found {
            let before = lines[at..*place].iter().rposition(|byte| *byte == b'\n');
            let begin = before.map_or(at, |before| at + before + 1);
            let end = line_end(lines, *place);
            let (others, line) = (&lines[at..begin], &lines[begin..end]);
            let next = match self.says(SCAN_INVERT) {
                true => self.tell_each(text, others, tell).and(|| self.skip(line, tell)),
                false => self.skip(others, tell).and(|| self.tell_one(text, line, tell)),
            };
            if next != Next::Lines {
                return next;
            }
            at = end;
        }
        match come {
            Some(come) if self.says(SCAN_INVERT) => {
                self.tell_each(text, &lines[at..come.max(at)], tell)
            }
            Some(come) => self.skip(&lines[at..come.max(at)], tell),
            None => Next::Lines,
        }
    }

    fn tell_each(&mut self, text: Text<'_>, lines: &[u8], tell: Tell<'_>) -> Next {
        let mut at = 0;
        while at < lines.len() {
            let end = line_end(lines, at);
            let next = self.tell_one(text, &lines[at..end], tell);
            if next != Next::Lines {
                return next;
            }
            at = end;
        }
        Next::Lines
    }

    /// Whether lines are told, and not only counted.
    fn tells_lines(&self) -> bool {
        self.says(SCAN_LINES) && self.at.first_null == 0
    }

    /// Counts a line that is meant, and tells it where that is wanted.
    fn tell_one(&mut self, text: Text<'_>, line: &[u8], tell: Tell<'_>) -> Next {
        if self.tells_lines() {
            let (number, offset) = (self.at.number + 1, self.at.line);
            let line = ScannedLine { number, offset, bytes: line, is_context: false };
            if self.tell_before(text, tell) == Next::Later || tell(line) == ScanGoes::Later {
                return Next::Later;
            }
        }
        self.pass(line);
        self.has_told();
        self.at.after = self.wish.around.1.into();
        self.at.selected += 1;
        if self.is_done() { Next::Stop } else { Next::Lines }
    }

    /// Lines are looked at.
    fn pass(&mut self, lines: &[u8]) {
        self.at.line += lines.len() as u64;
        if self.says(SCAN_NUMBERS) {
            self.at.number += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        }
    }
}

impl Next {
    /// This, or what comes then.
    fn and(self, then: impl FnOnce() -> Self) -> Self {
        if self == Self::Lines { then() } else { self }
    }
}

/// Where the line of a byte ends.
fn line_end(lines: &[u8], place: usize) -> usize {
    let len = lines[place..].iter().position(|byte| *byte == b'\n');
    len.map_or(lines.len(), |len| place + len + 1)
}
