//! `scan`: files looked through line by line, at the server, by a module of the client's that
//! finds lines in memory.
//!
//! Arguments [`ScanArgs`], then inodes. The result is records, each with its bytes: lines of the
//! first file, how it ended, lines of the next one, and so on. What is not done when the answer is
//! full, or when one request has taken long enough, a cursor says: the client asks for the rest.
//!
//! With [`SCAN_HASH`] no module looks at the files: of each one the BLAKE3 hash of its bytes is
//! told, of a symbolic link that of its target. Files of many pieces are hashed piece by piece,
//! each a subtree of BLAKE3's tree, so that a request can end behind any of them; whoever asks
//! joins them.
//!
//! The module's entry [`SCAN_ENTRY`] finds four numbers at [`SCAN_PARAMS`]: where whole lines begin
//! and end in its memory, where to write what it finds, and where the room for that ends. It writes
//! the address of a byte of each line that matches, as four bytes, and returns where what it has
//! written ends; at [`SCAN_PARAMS`] it says how far it has come, and behind that 1 if it cannot
//! decide about the line there.

use super::layout::{FsLayout, layouts};
use super::structures::{FsInode, FsWho};

/// The entry of modules that find lines.
pub const SCAN_ENTRY: &str = "scan";
/// Where such a module finds its parameters: where data begin.
pub const SCAN_PARAMS: u32 = outboard_offcode::abi::DATA_START;
/// Bytes of them.
pub const SCAN_PARAMS_LEN: u32 = 16;
/// Files of one request, at most.
pub const SCAN_FILES_MAX: usize = 512;

/// Of [`ScanArgs::flags`]: lines that do not match are meant.
pub const SCAN_INVERT: u32 = 1;
/// Lines are told; else only how many there are.
pub const SCAN_LINES: u32 = 2;
/// A file is done with its first line.
pub const SCAN_FIRST: u32 = 4;
/// Lines are told with their numbers.
pub const SCAN_NUMBERS: u32 = 8;
/// All files are text.
pub const SCAN_TEXT: u32 = 16;
/// Files with bytes of 0 are left out.
pub const SCAN_SKIP_BINARY: u32 = 32;
/// Files are hashed, not looked through: there is no module.
pub const SCAN_HASH: u32 = 64;

/// Of [`ScanRecord::kind`]: a line.
pub const SCAN_LINE: u32 = 1;
/// A file is done: `number` lines are meant; `offset` is 1 if it is binary and one of them is
/// behind what shows that.
pub const SCAN_DONE: u32 = 2;
/// A file cannot be read: the error is `number`.
pub const SCAN_FAILED: u32 = 3;
/// The rest of a file, from the cursor on, is left to the client.
pub const SCAN_CLIENT: u32 = 4;
/// The answer ends within a file, at the cursor.
pub const SCAN_MORE: u32 = 5;
/// A piece of a file that has more: the chaining value of its subtree; `number` is the version of
/// the file's record, `offset` where the piece begins.
pub const SCAN_PIECE: u32 = 6;
/// A file's last piece, which ends it: as [`SCAN_PIECE`], but of a file that has one piece only,
/// and of a symbolic link's target, it is the hash itself.
pub const SCAN_HASHED: u32 = 7;
/// A line that is told for the sake of another one, before or behind it.
pub const SCAN_CONTEXT: u32 = 8;

/// Bytes of a piece that is hashed by itself.
pub const SCAN_PIECE_LEN: u64 = 16 << 20;
/// Bytes of a hash, and of a chaining value.
pub const SCAN_HASH_LEN: usize = 32;

layouts! {
    /// How far a file is looked through.
    ScanCursor {
        /// Where the first line begins that is not.
        line: u64,
        /// Where the first line before begins that may still be told for its sake.
        kept: u64,
        /// How many lines are still told for the sake of one before.
        after: u64,
        /// Where what was read ends.
        read: u64,
        /// Lines before.
        number: u64,
        /// Of these, those that are meant.
        selected: u64,
        /// How many were before it was seen to be binary, and one more; 0: it is not.
        first_null: u64,
    }

    /// Arguments of `scan`; inodes follow.
    ScanArgs {
        /// Who asks.
        who: FsWho,
        /// The hash of the module.
        module: [u64; 4],
        /// [`SCAN_INVERT`] and its like.
        flags: u32,
        /// How many inodes.
        count: u32,
        /// Lines of one file, at most.
        most: u64,
        /// Lines that are told before each of them.
        before: u32,
        /// Lines that are told behind each of them.
        after: u32,
        /// How far the first file is.
        cursor: ScanCursor,
    }

    /// What is told; a line's bytes, or a [`ScanCursor`], follow.
    ScanRecord {
        /// [`SCAN_LINE`] and its like.
        kind: u32,
        /// How many bytes follow.
        len: u32,
        /// A line's number.
        number: u64,
        /// Where in the file it begins.
        offset: u64,
    }
}

/// What is told of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanTold<'a> {
    /// A line of the file, with its end; a [`SCAN_LINE`] or a [`SCAN_CONTEXT`].
    Line(ScanRecord, &'a [u8]),
    /// The file is done.
    Done(ScanRecord),
    /// It cannot be read.
    Failed(i32),
    /// The rest is left to the client.
    Client(ScanCursor),
    /// The rest is to be asked for.
    More(ScanCursor),
    /// A piece of the file is hashed, and there is more.
    Piece(ScanRecord, [u8; SCAN_HASH_LEN]),
    /// The file is hashed to its end.
    Hashed(ScanRecord, [u8; SCAN_HASH_LEN]),
}

impl ScanTold<'_> {
    /// Whether the file goes on behind it.
    fn is_within(&self) -> bool {
        matches!(self, Self::Line(..) | Self::Piece(..))
    }
}

/// Arguments with their inodes.
#[must_use]
pub fn scan_args(args: &ScanArgs, files: &[FsInode]) -> Vec<u8> {
    let mut out = args.bytes();
    files.iter().for_each(|file| file.put(&mut out));
    out
}

/// Takes arguments apart; `None` if these are none.
#[must_use]
pub fn parse_scan_args(bytes: &[u8]) -> Option<(ScanArgs, Vec<FsInode>)> {
    let (args, mut rest) = ScanArgs::split(bytes)?;
    let count = usize::try_from(args.count).ok().filter(|count| *count <= SCAN_FILES_MAX)?;
    let files: Option<Vec<FsInode>> = (0..count).map(|_| FsInode::take(&mut rest)).collect();
    files.filter(|_| rest.is_empty() && args.cursor.is_sound()).map(|files| (args, files))
}

impl ScanCursor {
    /// Whether a file can be looked through so far: numbers that are added to and subtracted are
    /// not larger than a file, which has no more lines than bytes.
    fn is_sound(&self) -> bool {
        let counts = [self.number, self.selected, self.first_null];
        self.kept <= self.line
            && self.line <= self.read
            && self.read <= super::SIZE_MAX
            && counts.into_iter().all(|count| count <= super::SIZE_MAX + 1)
    }
}

/// Takes an answer for so many files apart; `None` if it is none. It tells of all of them, or of
/// some and the cursor of the next one.
#[must_use]
pub fn parse_scan(mut answer: &[u8], files: usize) -> Option<Vec<ScanTold<'_>>> {
    let (mut told, mut done) = (Vec::new(), 0);
    while !answer.is_empty() {
        let record = ScanRecord::take(&mut answer)?;
        let (mut bytes, rest) = answer.split_at_checked(usize::try_from(record.len).ok()?)?;
        answer = rest;
        let one = match record.kind {
            SCAN_LINE | SCAN_CONTEXT if bytes.ends_with(b"\n") => ScanTold::Line(record, bytes),
            SCAN_DONE if bytes.is_empty() => ScanTold::Done(record),
            SCAN_FAILED if bytes.is_empty() => ScanTold::Failed(i32::try_from(record.number).ok()?),
            SCAN_CLIENT | SCAN_MORE if bytes.len() == ScanCursor::LEN => {
                let cursor = ScanCursor::take(&mut bytes).filter(ScanCursor::is_sound)?;
                match record.kind {
                    SCAN_CLIENT => ScanTold::Client(cursor),
                    _ => ScanTold::More(cursor),
                }
            }
            SCAN_PIECE => ScanTold::Piece(record, bytes.try_into().ok()?),
            SCAN_HASHED => ScanTold::Hashed(record, bytes.try_into().ok()?),
            _ => return None,
        };
        if let ScanTold::More(_) = one {
            told.push(one);
            return (answer.is_empty() && done < files).then_some(told);
        }
        done += usize::from(!one.is_within());
        told.push(one);
    }
    (done == files && !told.last().is_some_and(ScanTold::is_within)).then_some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_tell_of_every_file_or_where_they_end() {
        let record = |kind, bytes: &[u8]| {
            let len = u32::try_from(bytes.len()).expect("few");
            [&ScanRecord { kind, len, ..ScanRecord::default() }.bytes(), bytes].concat()
        };
        let cursor = ScanCursor { line: 3, read: 9, ..ScanCursor::default() };
        let line = record(SCAN_LINE, b"a\n");
        let whole = [&line[..], &record(SCAN_DONE, b""), &record(SCAN_FAILED, b"")].concat();
        assert_eq!(parse_scan(&whole, 2).map(|told| told.len()), Some(3));
        assert_eq!(parse_scan(&whole, 3), None, "one is missing");
        assert_eq!(parse_scan(&[&whole[..], &line].concat(), 2), None, "whose line?");
        let more = [&whole[..], &record(SCAN_MORE, &cursor.bytes())].concat();
        let told = parse_scan(&more, 3).expect("sound");
        assert_eq!(told.last(), Some(&ScanTold::More(cursor)));
        assert_eq!(parse_scan(&more, 2), None, "of which file?");
        assert_eq!(parse_scan(&record(SCAN_LINE, b"a"), 1), None, "no line");
        assert_eq!(parse_scan(&more[..more.len() - 1], 3), None, "cut");
    }

    #[test]
    fn hashes_are_of_whole_files_or_of_pieces() {
        let record = |kind, bytes: &[u8]| {
            let len = u32::try_from(bytes.len()).expect("few");
            [&ScanRecord { kind, len, ..ScanRecord::default() }.bytes(), bytes].concat()
        };
        let hash = [7; SCAN_HASH_LEN];
        let whole = [record(SCAN_PIECE, &hash), record(SCAN_HASHED, &hash)].concat();
        assert_eq!(parse_scan(&whole, 1).map(|told| told.len()), Some(2));
        assert_eq!(parse_scan(&record(SCAN_PIECE, &hash), 1), None, "and then?");
        assert_eq!(parse_scan(&record(SCAN_HASHED, &hash[1..]), 1), None, "no hash");
    }

    #[test]
    fn arguments_name_as_many_files_as_they_say() {
        let args = ScanArgs { count: 1, ..ScanArgs::default() };
        let bytes = scan_args(&args, &[FsInode { number: 4, generation: 5 }]);
        assert_eq!(parse_scan_args(&bytes).map(|(_, files)| files.len()), Some(1));
        assert_eq!(parse_scan_args(&bytes[..bytes.len() - 1]), None);
        let turned = ScanCursor { line: 9, read: 3, ..ScanCursor::default() };
        let none = ScanArgs { count: 0, ..args };
        let refused =
            |cursor| parse_scan_args(&scan_args(&ScanArgs { cursor, ..none }, &[])).is_none();
        assert!(!refused(ScanCursor { number: 7, ..ScanCursor::default() }));
        assert!(refused(turned));
        assert!(refused(ScanCursor { kept: 4, line: 3, read: 9, ..ScanCursor::default() }));
        assert!(refused(ScanCursor { number: u64::MAX, ..ScanCursor::default() }));
        assert!(refused(ScanCursor { selected: u64::MAX, ..ScanCursor::default() }));
        assert!(refused(ScanCursor { first_null: u64::MAX, ..ScanCursor::default() }));
    }
}
