//! Whole trees: a walk says which files there are, the server looks through them, and what it
//! leaves is read and looked through here. What is told comes in the walk's order.
//!
//! Some requests are under way at a time, each with a bounded answer: who does not take what is
//! told asks for nothing more.

use super::super::expression::FindExpression;
use super::super::resolve::ResolvedPath;
use super::super::trail::PathTrail;
use super::super::{ToldError, ToldFailure, ToolError};
use super::{GrepPattern, LineMatcher};
use crate::client::{FsCaller, FsClient, FsError, PendingScan, TRANSFER_MAX, TreeWalk, words_of};
use crate::protocol::{
    FIND_ATTRIBUTES, FIND_IS_ENTERED, FIND_IS_ERROR, FIND_IS_MATCH, FindArgs, FsInode,
    SCAN_CONTEXT, SCAN_FILES_MAX, SCAN_FIRST, SCAN_INVERT, SCAN_LINES, SCAN_NUMBERS,
    SCAN_SKIP_BINARY, SCAN_TEXT, SEEK_HOLE, ScanArgs, ScanCursor, ScanTold, WalkRecord, parse_scan,
};
use crate::scan::{
    FileScan, READ_LEN, ScanEnd, ScanFault, ScanGoes, ScanWish, ScannedBytes, ScannedLine,
};
use outboard_active::ModuleHash;
use std::collections::VecDeque;
use std::sync::Arc;

/// Requests under way.
const UNDER_WAY: usize = 4;
/// Files, and bytes of files, of one request: it takes some milliseconds.
const FILES: usize = 256;
const BYTES: u64 = 2 << 20;
const _: () = assert!(FILES <= SCAN_FILES_MAX, "the service takes so many");

/// What is told of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrepMode {
    /// Lines.
    #[default]
    Lines,
    /// How many.
    Count,
    /// Whether there is one.
    First,
}

/// What binary files are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrepBinary {
    /// Files of which only is told that they match.
    #[default]
    Binary,
    /// Text.
    Text,
    /// Files without matches.
    Skipped,
}

/// What is wanted of each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrepWish {
    /// What is told.
    pub mode: GrepMode,
    /// Lines that do not match are meant.
    pub inverts: bool,
    /// Lines have their numbers.
    pub numbers: bool,
    /// What binary files are.
    pub binary: GrepBinary,
    /// Lines of one file, at most.
    pub most: u64,
    /// Lines that are told before each of them, and behind it.
    pub around: (u32, u32),
}

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrepTold<'a> {
    /// A line of a file, with its end.
    Line {
        /// The file's path.
        path: &'a [u8],
        /// The line's number, from 1 on.
        number: u64,
        /// Where it begins.
        offset: u64,
        /// Its bytes.
        bytes: &'a [u8],
        /// It is told for the sake of another line beside it.
        is_context: bool,
    },
    /// A file is done.
    Done {
        /// Its path.
        path: &'a [u8],
        /// Lines that are meant.
        selected: u64,
        /// It is binary, and one of them is in what is.
        is_binary: bool,
    },
}

/// Whether it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrepGoes {
    /// Yes.
    On,
    /// Nothing more is wanted.
    Stop,
}

/// What is told is given to.
pub struct GrepTeller<'a> {
    /// Takes lines and files.
    pub told: &'a mut dyn FnMut(&GrepTold<'_>) -> Result<GrepGoes, ToolError>,
    /// Takes what could not be done.
    pub failed: &'a mut dyn FnMut(ToldError<'_>),
}

impl std::fmt::Debug for GrepTeller<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrepTeller").finish_non_exhaustive()
    }
}

/// Where files are.
#[derive(Debug)]
pub struct GrepTree<'a> {
    /// What the path stands for.
    pub root: &'a ResolvedPath,
    /// How its caller writes it.
    pub shown: &'a [u8],
    /// Which files of a directory are looked through.
    pub files: &'a FindExpression,
}

impl GrepWish {
    fn flags(&self) -> u32 {
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        flag(self.inverts, SCAN_INVERT)
            | flag(self.mode == GrepMode::Lines, SCAN_LINES)
            | flag(self.mode == GrepMode::First, SCAN_FIRST)
            | flag(self.numbers, SCAN_NUMBERS)
            | flag(self.binary == GrepBinary::Text, SCAN_TEXT)
            | flag(self.binary == GrepBinary::Skipped, SCAN_SKIP_BINARY)
    }
}

/// A file that is to be looked through.
struct File {
    path: Vec<u8>,
    inode: FsInode,
}

struct Searching<'a, 't> {
    client: &'a Arc<FsClient>,
    caller: &'a FsCaller,
    pattern: &'a GrepPattern,
    wish: GrepWish,
    args: ScanArgs,
    module: Option<ModuleHash>,
    matcher: Option<LineMatcher>,
    batch: Vec<File>,
    batch_bytes: u64,
    under_way: VecDeque<(PendingScan, Vec<File>)>,
    teller: GrepTeller<'t>,
    goes: GrepGoes,
}

/// Looks through files for a pattern.
///
/// # Errors
/// [`ToolError`]: it ends there.
pub fn grep(
    client: &Arc<FsClient>,
    caller: &FsCaller,
    tree: &GrepTree<'_>,
    (pattern, wish): (&GrepPattern, &GrepWish),
    teller: GrepTeller<'_>,
) -> Result<GrepGoes, ToolError> {
    let fault = |error| ToolError::Fs { path: tree.shown.to_vec(), error };
    let module = pattern.module().map(|module| client.load_scanner(module));
    let module = module.transpose().map_err(fault)?;
    let words = module.map(words_of).unwrap_or_default();
    let (flags, (before, after)) = (wish.flags(), wish.around);
    let most = wish.most;
    let args = ScanArgs { module: words, flags, most, before, after, ..ScanArgs::default() };
    let mut searching = Searching {
        client,
        caller,
        pattern,
        wish: *wish,
        args,
        module,
        matcher: None,
        batch: Vec::new(),
        batch_bytes: 0,
        under_way: VecDeque::new(),
        teller,
        goes: GrepGoes::On,
    };
    let done = searching.all(tree);
    let goes = searching.goes;
    done.map(|()| goes)
}

const DIRECTORY: u32 = libc::S_IFDIR;

impl Searching<'_, '_> {
    fn all(&mut self, tree: &GrepTree<'_>) -> Result<(), ToolError> {
        let record = tree.root.found.record;
        if record.mode & libc::S_IFMT != DIRECTORY {
            let (path, inode) = (tree.shown.to_vec(), tree.root.found.inode);
            self.file(File { path, inode }, record.size)?;
        } else {
            self.walk(tree)?;
        }
        self.send()?;
        while !self.under_way.is_empty() {
            self.take()?;
        }
        Ok(())
    }

    fn walk(&mut self, tree: &GrepTree<'_>) -> Result<(), ToolError> {
        let args = FindArgs {
            flags: FIND_ATTRIBUTES,
            min_depth: tree.files.min_depth,
            max_depth: tree.files.max_depth,
            ..FindArgs::default()
        };
        let program = tree.files.program.clone();
        let mut walk = TreeWalk::new(tree.root.found.inode, tree.shown, program, &args);
        let mut trail = PathTrail::new(tree.shown);
        let (client, caller) = (self.client, self.caller);
        let fault = |error| ToolError::Fs { path: tree.shown.to_vec(), error };
        while !walk.is_over() && self.goes == GrepGoes::On {
            let mut over = Ok(());
            let tell = |record: &WalkRecord<'_>| {
                if over.is_ok() {
                    over = self.walked(&mut trail, record);
                }
            };
            client.walk_on(caller, &mut walk, tell).map_err(fault)?;
            over?;
        }
        Ok(())
    }

    fn walked(&mut self, trail: &mut PathTrail, record: &WalkRecord<'_>) -> Result<(), ToolError> {
        if record.what & FIND_IS_ERROR != 0 {
            self.send()?;
            let (path, errno) = (record.name, record.error.into());
            (self.teller.failed)(ToldError { path, errno, what: ToldFailure::NotEntered });
            return Ok(());
        }
        let no_walk =
            || ToolError::Fs { path: Vec::new(), error: FsError::Answer { entry: "walk" } };
        let path = trail.to(record.depth, record.name).ok_or_else(no_walk)?.to_vec();
        if record.what & FIND_IS_ENTERED != 0 {
            trail.enter(record.attributes.inode);
        }
        if record.what & FIND_IS_MATCH == 0 {
            return Ok(());
        }
        self.file(File { path, inode: record.attributes.inode }, record.attributes.size)
    }

    fn file(&mut self, file: File, size: u64) -> Result<(), ToolError> {
        if self.goes == GrepGoes::Stop {
            return Ok(());
        }
        if self.module.is_none() {
            return self.here(&file, ScanCursor::default());
        }
        self.batch.push(file);
        self.batch_bytes += size;
        if self.batch.len() >= FILES || self.batch_bytes >= BYTES { self.send() } else { Ok(()) }
    }

    /// Sends what is collected.
    fn send(&mut self) -> Result<(), ToolError> {
        let files = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        if files.is_empty() || self.goes == GrepGoes::Stop {
            return Ok(());
        }
        while self.under_way.len() >= UNDER_WAY {
            self.take()?;
        }
        let pending = self.ask(&files, ScanCursor::default())?;
        self.under_way.push_back((pending, files));
        Ok(())
    }

    fn ask(&self, files: &[File], cursor: ScanCursor) -> Result<PendingScan, ToolError> {
        let inodes: Vec<FsInode> = files.iter().map(|file| file.inode).collect();
        let args = ScanArgs { cursor, ..self.args };
        let pending = self.client.begin_scan(self.caller, &args, &inodes);
        pending.map_err(|error| ToolError::Fs { path: files[0].path.clone(), error })
    }

    /// Takes what has come of the oldest request, and asks for the rest.
    fn take(&mut self) -> Result<(), ToolError> {
        let Some((mut pending, files)) = self.under_way.pop_front() else { return Ok(()) };
        let mut rest = &files[..];
        while self.goes == GrepGoes::On {
            let fault = |error| ToolError::Fs { path: rest[0].path.clone(), error };
            let answer = pending.end(self.caller).map_err(fault)?;
            let no_scan = || fault(FsError::Answer { entry: "scan" });
            let mut again = None;
            for told in parse_scan(&answer, rest.len()).ok_or_else(no_scan)? {
                match told {
                    ScanTold::More(cursor) => again = Some(cursor),
                    told => self.told(&mut rest, told)?,
                }
                if self.goes == GrepGoes::Stop {
                    return Ok(());
                }
            }
            match again {
                Some(cursor) => pending = self.ask(rest, cursor)?,
                None => break,
            }
        }
        Ok(())
    }

    fn told(&mut self, rest: &mut &[File], told: ScanTold<'_>) -> Result<(), ToolError> {
        let [file, others @ ..] = *rest else { return Ok(()) };
        let path = &file.path[..];
        match told {
            ScanTold::Line(record, bytes) => {
                let (number, offset) = (record.number, record.offset);
                let is_context = record.kind == SCAN_CONTEXT;
                let told = GrepTold::Line { path, number, offset, bytes, is_context };
                self.goes = (self.teller.told)(&told)?;
                return Ok(());
            }
            ScanTold::Done(record) => self.done(path, record.number, record.offset != 0)?,
            ScanTold::Failed(errno) => {
                let what = ToldFailure::NotRead;
                (self.teller.failed)(ToldError { path, errno, what });
            }
            ScanTold::Client(cursor) => self.here(file, cursor)?,
            ScanTold::More(_) => return Ok(()),
            // Nobody has asked for hashes.
            ScanTold::Piece(..) | ScanTold::Hashed(..) => {
                let error = FsError::Answer { entry: "scan" };
                return Err(ToolError::Fs { path: path.to_vec(), error });
            }
        }
        *rest = others;
        Ok(())
    }

    fn done(&mut self, path: &[u8], selected: u64, is_binary: bool) -> Result<(), ToolError> {
        let told = GrepTold::Done { path, selected, is_binary };
        self.goes = (self.teller.told)(&told)?;
        Ok(())
    }

    /// Looks through a file here.
    fn here(&mut self, file: &File, cursor: ScanCursor) -> Result<(), ToolError> {
        if self.matcher.is_none() {
            self.matcher = Some(self.pattern.matcher()?);
        }
        let Some(matcher) = &mut self.matcher else { return Ok(()) };
        let (flags, most, around) = (self.wish.flags(), self.wish.most, self.wish.around);
        let wish = ScanWish { flags, most, around, memory_max: usize::MAX };
        let (client, caller) = (self.client, self.caller);
        let mut bytes = RemoteBytes { client, caller, inode: file.inode, at: 0, kept: Vec::new() };
        let mut scan = FileScan::new(wish, cursor);
        let (told, mut over) = (&mut *self.teller.told, Ok(GrepGoes::On));
        let mut tell = |line: ScannedLine<'_>| {
            let ScannedLine { number, offset, bytes, is_context } = line;
            if matches!(over, Ok(GrepGoes::On)) {
                let path = &file.path[..];
                over = told(&GrepTold::Line { path, number, offset, bytes, is_context });
            }
            if matches!(over, Ok(GrepGoes::On)) { ScanGoes::On } else { ScanGoes::Later }
        };
        let ended = scan.run((&mut bytes, matcher), &mut tell, &mut |_| true);
        self.goes = over?;
        match ended {
            Ok(ScanEnd::Done { selected, is_binary }) => self.done(&file.path, selected, is_binary),
            Ok(ScanEnd::Later) => Ok(()),
            Err(ScanFault::Read(errno)) => {
                let (path, what) = (&file.path[..], ToldFailure::NotRead);
                (self.teller.failed)(ToldError { path, errno, what });
                Ok(())
            }
            Err(ScanFault::Undecided) => {
                let why = "a line is too long for this machine's memory".to_owned();
                Err(ToolError::Path { path: file.path.clone(), why })
            }
            Err(ScanFault::Finder(why)) => Err(ToolError::Path { path: file.path.clone(), why }),
        }
    }
}

/// A file's bytes, read over the connection, more at a time than are asked for.
struct RemoteBytes<'a> {
    client: &'a Arc<FsClient>,
    caller: &'a FsCaller,
    inode: FsInode,
    /// Where what is kept begins.
    at: u64,
    kept: Vec<u8>,
}

fn read_fault(error: &FsError) -> ScanFault {
    match error {
        FsError::Failed { errno, .. } => ScanFault::Read(*errno),
        error => ScanFault::Finder(error.to_string()),
    }
}

impl ScannedBytes for RemoteBytes<'_> {
    fn read(&mut self, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<(), ScanFault> {
        let (mut offset, end) = (offset, offset + len as u64);
        while offset < end {
            let kept = self.at..self.at + self.kept.len() as u64;
            if !kept.contains(&offset) {
                let len = TRANSFER_MAX / READ_LEN * READ_LEN;
                let read = self.client.read(self.caller, self.inode, offset, len);
                self.kept = read.map_err(|error| read_fault(&error))?.bytes;
                self.at = offset;
                if self.kept.is_empty() {
                    break;
                }
                continue;
            }
            let from = usize::try_from(offset - self.at).unwrap_or(usize::MAX);
            let some = &self.kept[from..];
            let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
            let some = &some[..some.len().min(left)];
            into.extend_from_slice(some);
            offset += some.len() as u64;
        }
        Ok(())
    }

    fn has_hole(&mut self, offset: u64) -> Result<bool, ScanFault> {
        let answer = self.client.get(self.caller, self.inode);
        let size = answer.map_err(|error| read_fault(&error))?.record.size;
        match self.client.seek(self.caller, self.inode, offset, SEEK_HOLE) {
            Ok(hole) => Ok(hole < size),
            Err(FsError::Failed { errno: libc::ENXIO, .. }) => Ok(false),
            Err(error) => Err(read_fault(&error)),
        }
    }
}
