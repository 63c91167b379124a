//! Scans: threads read files and have a client's module find lines in them.
//!
//! The module sees nothing but bytes that were copied into its own memory; it is bounded in time,
//! and so is a request as a whole. What a file's bytes are is asked of the module `fs`, with the
//! rights of whoever asks, by an instance of the thread's own: the service's loop has no part in
//! it. What was read counts only if the file's record is the same afterwards.

use super::hashes::HashedPiece;
use super::modules::fs_module;
use crate::plan::{Found, room_for};
use crate::protocol::{
    BLOCK_LEN, FsInode, FsInodeArgs, FsLayout, FsReadArgs, FsSeekArgs, FsWho, SCAN_CLIENT,
    SCAN_CONTEXT, SCAN_DONE, SCAN_ENTRY, SCAN_FAILED, SCAN_HASH, SCAN_HASH_LEN, SCAN_HASHED,
    SCAN_LINE, SCAN_MORE, SCAN_PARAMS, SCAN_PARAMS_LEN, SCAN_PIECE, SEEK_HOLE, ScanArgs,
    ScanCursor, ScanRecord, errno_of_failure, failure_of_errno,
};
use crate::scan::{
    FileScan, LineFinder, READ_LEN, ScanEnd, ScanFault, ScanGoes, ScanWish, ScannedBytes,
    ScannedLine,
};
use crate::store::DataFile;
use outboard_active::service::BACKEND_TENANT;
use outboard_active::{ModuleHash, Outcome};
use outboard_cluster::waker::Waker;
use outboard_cluster::workers::Workers;
use outboard_mem::SharedRegion;
use outboard_offcode::abi::{CallBlock, SCRATCH_LEN};
use outboard_offcode::engine::wasmtime::WasmtimeInstance;
use outboard_offcode::engine::{Bounding, Budget, Instance, KillSwitch, WasmEngine};
use outboard_offcode::instance::{CallInput, WarmInstance};
use outboard_offcode::low_priority::LowPriority;
use outboard_offcode::store::TenantId;
use outboard_offcode::{ActiveRegion, ModuleStore, Stop, Wasmtime};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Scans that run at the same time.
const THREADS: usize = 2;
/// Their priority, as nice(1) has it.
const NICE: i32 = 5;
/// After so long a request is answered with what it has found.
const TIME_MAX: Duration = Duration::from_millis(250);
/// How long the module may take for what is in its memory.
const CALL_MAX: Duration = Duration::from_secs(2);
/// How often metadata are asked for that change meanwhile.
const TRIES_MAX: u32 = 64;
/// Bytes of an answer that are kept free for how a file ends.
const END_LEN: usize = ScanRecord::LEN + ScanCursor::LEN;
/// Places that the module tells at a time.
const PLACES_MAX: u32 = 1024;
/// Bytes behind the lines that the module may read.
const SLACK: u32 = 128;

/// A scan that is over.
#[derive(Debug)]
pub(super) struct ScanOver {
    pub(super) token: u64,
    pub(super) outcome: Outcome,
    pub(super) bytes: u64,
}

/// What a scan asks for.
#[derive(Debug)]
pub(super) struct ScanTask {
    pub(super) token: u64,
    pub(super) tenant: TenantId,
    pub(super) args: ScanArgs,
    pub(super) files: Vec<FsInode>,
    pub(super) out_cap: usize,
    pub(super) kill: Arc<KillSwitch>,
}

type Warm = WarmInstance<WasmtimeInstance>;

/// What all scans share.
struct Shared {
    region: Arc<ActiveRegion>,
    modules: Arc<ModuleStore<Wasmtime>>,
    data: Arc<DataFile>,
    low: Option<LowPriority>,
    /// Instances of the module `fs` that nobody uses.
    idle: Mutex<Vec<Warm>>,
    /// What finders have for a region.
    nothing: SharedRegion,
}

/// See this file's first lines.
pub(super) struct ScanThreads {
    shared: Arc<Shared>,
    workers: Workers,
    sender: mpsc::Sender<ScanOver>,
    over: mpsc::Receiver<ScanOver>,
    waker: Waker,
}

impl ScanThreads {
    /// # Errors
    /// This machine's: no memory.
    pub(super) fn new(
        region: Arc<ActiveRegion>,
        modules: Arc<ModuleStore<Wasmtime>>,
        data: Arc<DataFile>,
        waker: Waker,
    ) -> io::Result<Self> {
        let (sender, over) = mpsc::channel();
        // Without such threads the work competes with everything else.
        let low = LowPriority::new("outboard-fs-low", THREADS, NICE).ok();
        let nothing = SharedRegion::zeroed(0).map_err(io::Error::other)?;
        let idle = Mutex::default();
        let shared = Arc::new(Shared { region, modules, data, low, idle, nothing });
        let workers = Workers::new("outboard-fs-scan", THREADS);
        Ok(Self { shared, workers, sender, over, waker })
    }

    /// The next scan that is over.
    pub(super) fn next(&self) -> Option<ScanOver> {
        self.over.try_recv().ok()
    }

    /// Has a thread scan; false if too many wait.
    pub(super) fn run(&self, task: ScanTask) -> bool {
        let (shared, sender, waker) =
            (Arc::clone(&self.shared), self.sender.clone(), self.waker.clone());
        self.workers.run(move || {
            let token = task.token;
            let work = || shared.scan(&task);
            let (outcome, bytes) = match &shared.low {
                Some(low) => low.run(work),
                None => work(),
            };
            // Without a loop nobody asks.
            let _sent = sender.send(ScanOver { token, outcome, bytes });
            waker.wake();
        })
    }
}

fn stopped(stop: Stop) -> ScanFault {
    ScanFault::Finder(stop.to_string())
}

fn trap(stop: Stop) -> Outcome {
    Outcome::Trap(stop.to_string())
}

impl Shared {
    fn scan(&self, task: &ScanTask) -> (Outcome, u64) {
        let mut scanning = match Scanning::new(self, task) {
            Ok(scanning) => scanning,
            Err(outcome) => return (outcome, 0),
        };
        let done = scanning.all();
        let (result, seq) = (std::mem::take(&mut scanning.out), self.region.seq());
        let bytes = scanning.bytes;
        if let Some(fs) = scanning.fs {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(fs);
        }
        match done {
            _ if task.kill.is_killed() => (Outcome::Killed, bytes),
            Ok(()) => (Outcome::Done { result, seq }, bytes),
            Err(why) => (Outcome::Trap(why), bytes),
        }
    }

    /// An instance of the module `fs`.
    fn instance(&self) -> Result<Warm, Stop> {
        if let Some(idle) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(idle);
        }
        let program = self.modules.program(BACKEND_TENANT, &fs_module(), Bounding::Time);
        let program = program.map_err(|error| Stop::Machine(error.to_string()))?;
        let budget = Budget::Time(CALL_MAX, Arc::default());
        let bound = (Bounding::Time, &budget);
        WarmInstance::new(&**self.modules.engine(), &program, (self.region.memory(), 0), bound)
    }
}

/// A scan while it runs.
struct Scanning<'a> {
    shared: &'a Shared,
    task: &'a ScanTask,
    fs: Option<Warm>,
    /// `None`: files are hashed.
    finder: Option<ModuleFinder<WasmtimeInstance>>,
    out: Vec<u8>,
    begun: Instant,
    bytes: u64,
}

fn module_of(args: &ScanArgs) -> ModuleHash {
    let mut hash = [0; 32];
    for (bytes, word) in hash.chunks_exact_mut(8).zip(args.module) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    ModuleHash(hash)
}

impl<'a> Scanning<'a> {
    fn new(shared: &'a Shared, task: &'a ScanTask) -> Result<Self, Outcome> {
        let is_hashing = task.args.flags & SCAN_HASH != 0;
        let finder = (!is_hashing).then(|| Self::finder(shared, task)).transpose()?;
        let fs = Some(shared.instance().map_err(trap)?);
        let (out, begun) = (Vec::new(), Instant::now());
        Ok(Self { shared, task, fs, finder, out, begun, bytes: 0 })
    }

    fn finder(shared: &Shared, task: &ScanTask) -> Result<ModuleFinder<WasmtimeInstance>, Outcome> {
        let module = module_of(&task.args);
        let missing = || {
            let code = failure_of_errno(libc::ENOEXEC);
            Outcome::Failed { code, text: "the module that finds lines is not loaded".into() }
        };
        let program = shared.modules.program(task.tenant, &module, Bounding::Time);
        let program = program.map_err(|_| missing())?;
        let budget = Budget::Time(CALL_MAX, Arc::clone(&task.kill));
        let engine = shared.modules.engine();
        let bound = (Bounding::Time, &budget);
        let instance = engine.instantiate(&program, (&shared.nothing, 0), bound);
        Ok(ModuleFinder::new(instance.map_err(trap)?, program.data_end, budget))
    }

    /// All files, as far as there is room and time; why there is no answer.
    fn all(&mut self) -> Result<(), String> {
        let mut cursor = self.task.args.cursor;
        for file in &self.task.files {
            if self.begun.elapsed() > TIME_MAX || self.task.kill.is_killed() || !self.has_room(0) {
                self.record(SCAN_MORE, (0, 0), &cursor.bytes());
                break;
            }
            let is_done = match self.finder {
                Some(_) => self.file(*file, cursor)?,
                None => self.hash(*file, cursor.read)?,
            };
            if !is_done {
                break;
            }
            cursor = ScanCursor::default();
        }
        Ok(())
    }

    /// Whether a line of so many bytes fits into the answer.
    fn has_room(&self, len: usize) -> bool {
        let end = self.out.len() + ScanRecord::LEN + len + 2 * END_LEN;
        end <= self.task.out_cap
    }

    fn record(&mut self, kind: u32, (number, offset): (u64, u64), bytes: &[u8]) {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        ScanRecord { kind, len, number, offset }.put(&mut self.out);
        self.out.extend_from_slice(bytes);
    }

    /// One file; false if it is to be gone on with.
    fn file(&mut self, file: FsInode, cursor: ScanCursor) -> Result<bool, String> {
        let Some(finder) = &mut self.finder else { return Err("no finder".into()) };
        let wish = ScanWish {
            flags: self.task.args.flags,
            most: self.task.args.most,
            around: (self.task.args.before, self.task.args.after),
            memory_max: finder.room(),
        };
        let mut scan = FileScan::new(wish, cursor);
        let Some(mut fs) = self.fs.take() else { return Err("no instance".into()) };
        let (shared, who) = (self.shared, self.task.args.who);
        let mut bytes = StoredBytes { shared, fs: &mut fs, who, file, known: None, read: 0 };
        let (cap, kill) = (self.task.out_cap, &self.task.kill);
        let (out, begun) = (&mut self.out, self.begun);
        let before = out.len();
        let mut tell = |line: ScannedLine<'_>| {
            let len = ScanRecord::LEN + line.bytes.len();
            if out.len() + len + 2 * END_LEN > cap {
                return ScanGoes::Later;
            }
            let len = u32::try_from(line.bytes.len()).unwrap_or(u32::MAX);
            let (number, offset) = (line.number, line.offset);
            let kind = if line.is_context { SCAN_CONTEXT } else { SCAN_LINE };
            ScanRecord { kind, len, number, offset }.put(out);
            out.extend_from_slice(line.bytes);
            ScanGoes::On
        };
        let mut goes_on = |_| begun.elapsed() <= TIME_MAX && !kill.is_killed();
        let ended = scan.run((&mut bytes, finder), &mut tell, &mut goes_on);
        self.bytes += bytes.read;
        self.fs = Some(fs);
        let cursor = scan.cursor();
        let is_empty = before == 0 && self.out.is_empty() && self.begun.elapsed() <= TIME_MAX;
        match ended {
            Ok(ScanEnd::Done { selected, is_binary }) => {
                self.record(SCAN_DONE, (selected, is_binary.into()), b"");
            }
            // A line that fills more than a whole answer.
            Ok(ScanEnd::Later) if is_empty && !self.task.kill.is_killed() => {
                self.record(SCAN_CLIENT, (0, 0), &cursor.bytes());
            }
            Ok(ScanEnd::Later) => {
                self.record(SCAN_MORE, (0, 0), &cursor.bytes());
                return Ok(false);
            }
            Err(ScanFault::Undecided) => self.record(SCAN_CLIENT, (0, 0), &cursor.bytes()),
            Err(ScanFault::Read(errno)) => self.failed(errno),
            Err(ScanFault::Finder(why)) => return Err(why),
        }
        Ok(true)
    }

    /// A file cannot be read.
    fn failed(&mut self, errno: i32) {
        let errno = u64::try_from(errno).unwrap_or_default();
        self.record(SCAN_FAILED, (errno, 0), b"");
    }

    /// Hashes one file from a piece on; false if it is to be gone on with.
    fn hash(&mut self, file: FsInode, mut at: u64) -> Result<bool, String> {
        let Some(mut fs) = self.fs.take() else { return Err("no instance".into()) };
        let (shared, who) = (self.shared, self.task.args.who);
        let mut bytes = StoredBytes { shared, fs: &mut fs, who, file, known: None, read: 0 };
        let is_done = loop {
            let HashedPiece { hash, version, end } = match bytes.hash_piece(at) {
                Ok(piece) => piece,
                Err(ScanFault::Read(errno)) => {
                    self.failed(errno);
                    break true;
                }
                Err(_) => return Err("the module fs has failed".into()),
            };
            let kind = if end.is_some() { SCAN_PIECE } else { SCAN_HASHED };
            self.record(kind, (version, at), &hash);
            let Some(next) = end else { break true };
            at = next;
            let has_time = self.begun.elapsed() <= TIME_MAX && !self.task.kill.is_killed();
            if !has_time || !self.has_room(SCAN_HASH_LEN) {
                let cursor = ScanCursor { line: at, kept: at, read: at, ..ScanCursor::default() };
                self.record(SCAN_MORE, (0, 0), &cursor.bytes());
                break false;
            }
        };
        self.bytes += bytes.read;
        self.fs = Some(fs);
        Ok(is_done)
    }
}

/// Has a module find lines.
pub(crate) struct ModuleFinder<I> {
    instance: I,
    /// Where places are told, and where lines are put.
    places: u32,
    window: u32,
    budget: Budget,
}

impl<I: Instance> ModuleFinder<I> {
    pub(crate) fn new(instance: I, data_end: u32, budget: Budget) -> Self {
        let places = data_end.next_multiple_of(64);
        Self { instance, places, window: places + PLACES_MAX * 4, budget }
    }

    /// Bytes of lines that it takes.
    pub(crate) fn room(&self) -> usize {
        (SCRATCH_LEN - SLACK).saturating_sub(self.window) as usize
    }

    /// Has the module look at the lines from an address on: where what it has told ends, how far
    /// it has come, and whether it cannot go on there.
    fn call(&mut self, lines: Range<u32>, most: u32) -> Result<(u32, u32, bool), ScanFault> {
        let limit = self.places + most.min(PLACES_MAX) * 4;
        let params = [lines.start, lines.end, self.places, limit].map(u32::to_le_bytes);
        self.instance.scratch().write(SCAN_PARAMS, &params.concat());
        let called = self.instance.call(SCAN_ENTRY, &self.budget);
        let no_entry = || ScanFault::Finder("the module has no entry that finds lines".into());
        let ended = called.ok_or_else(no_entry)?.map_err(stopped)?;
        let mut said = [0; SCAN_PARAMS_LEN as usize];
        self.instance.scratch().read(SCAN_PARAMS, &mut said);
        let word =
            |at: usize| u32::from_le_bytes([said[at], said[at + 1], said[at + 2], said[at + 3]]);
        let ended = u32::try_from(ended).ok().filter(|end| (self.places..=limit).contains(end));
        let wrong = || ScanFault::Finder("the module says what cannot be".into());
        let ended = ended.ok_or_else(wrong)?;
        let come = Some(word(0)).filter(|come| (lines.start..=lines.end).contains(come));
        Ok((ended, come.ok_or_else(wrong)?, word(4) != 0))
    }

    /// The places that it has told, as places of the lines.
    fn take(&mut self, ended: u32, len: usize, found: &mut Vec<usize>) -> Result<(), ScanFault> {
        let mut told = vec![0; (ended - self.places) as usize];
        self.instance.scratch().read(self.places, &mut told);
        for place in told.chunks_exact(4) {
            let place = u32::from_le_bytes([place[0], place[1], place[2], place[3]]);
            let place = place.checked_sub(self.window).map(|place| place as usize);
            let is_next =
                |place: &usize| *place < len && found.last().is_none_or(|last| last < place);
            let wrong = || ScanFault::Finder("the module tells of lines that are not there".into());
            found.push(place.filter(is_next).ok_or_else(wrong)?);
        }
        Ok(())
    }
}

impl<I: Instance> LineFinder for ModuleFinder<I> {
    fn find_lines(
        &mut self,
        lines: &[u8],
        most: usize,
        found: &mut Vec<usize>,
    ) -> Result<usize, ScanFault> {
        if lines.len() > self.room() {
            return Err(ScanFault::Undecided);
        }
        if !self.instance.scratch().write(self.window, lines) {
            return Err(ScanFault::Undecided);
        }
        let len = u32::try_from(lines.len()).unwrap_or(u32::MAX);
        let range = self.window..self.window + len;
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let (ended, come, leaves) = self.call(range, most)?;
        self.take(ended, lines.len(), found)?;
        if leaves {
            return Err(ScanFault::Undecided);
        }
        // Where a line begins, also if the module says something else.
        let come = (come - self.window) as usize;
        let begin = lines[..come].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        match begin {
            0 => Err(ScanFault::Finder("the module comes to no line's end".into())),
            begin => Ok(begin),
        }
    }
}

/// A file's bytes in the store.
pub(super) struct StoredBytes<'a> {
    shared: &'a Shared,
    fs: &'a mut Warm,
    who: FsWho,
    pub(super) file: FsInode,
    /// Where its bytes are, of those that were asked for last, and as of which version.
    pub(super) known: Option<(Found, u64)>,
    read: u64,
}

impl StoredBytes<'_> {
    /// Asks the module `fs`.
    pub(super) fn ask(
        &mut self,
        entry: &str,
        args: &[u8],
        out_cap: u32,
    ) -> Result<(Vec<u8>, u64), ScanFault> {
        let region = &self.shared.region;
        for _ in 0..TRIES_MAX {
            let since = region.begin();
            let mut result = Vec::new();
            let block = CallBlock::default();
            let input = CallInput { entry, args, out_cap, block, may_write: false };
            let budget = Budget::Time(CALL_MAX, Arc::default());
            let called = self.fs.call(&input, &budget, &mut result);
            if !region.is_unchanged(since) {
                continue;
            }
            return match called {
                Some(Ok(())) => Ok((result, since)),
                Some(Err(Stop::Failed { code, .. })) => {
                    Err(ScanFault::Read(errno_of_failure(code)))
                }
                _ => Err(ScanFault::Read(libc::EIO)),
            };
        }
        Err(ScanFault::Read(libc::EAGAIN))
    }

    /// Whether the file is still the one whose place is known.
    fn is_same(&mut self, version: u64, since: u64) -> Result<bool, ScanFault> {
        if self.shared.region.is_unchanged(since) {
            return Ok(true);
        }
        let room = u32::try_from(crate::protocol::FsAnswer::LEN).unwrap_or(u32::MAX);
        let args = FsInodeArgs { inode: self.file }.bytes();
        let (result, _) = self.ask("get", &args, room)?;
        Ok(crate::protocol::FsAnswer::split(&result)
            .is_some_and(|(answer, _)| answer.record.version == version))
    }
}

impl ScannedBytes for StoredBytes<'_> {
    fn read(&mut self, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<(), ScanFault> {
        let begin = into.len();
        for _ in 0..TRIES_MAX {
            into.truncate(begin);
            let args =
                FsReadArgs { who: self.who, inode: self.file, offset, len: len as u64 }.bytes();
            let (result, since) = self.ask("read", &args, room_for(len))?;
            let found = Found::parse(&result).ok_or(ScanFault::Read(libc::EIO))?;
            let size = found.len_of(offset, len);
            into.resize(begin + size, 0);
            let read = super::io::read_parts(
                &self.shared.data,
                (offset, &found.extents),
                &mut into[begin..],
            );
            let version = found.answer.record.version;
            if self.is_same(version, since)? {
                self.known = Some((found, since));
                self.read += size as u64;
                return read.map_err(|_| ScanFault::Read(libc::EIO));
            }
        }
        Err(ScanFault::Read(libc::EAGAIN))
    }

    fn has_hole(&mut self, offset: u64) -> Result<bool, ScanFault> {
        let Some((found, _)) = &self.known else { return Ok(false) };
        let record = found.answer.record;
        if offset >= record.size || record.blocks >= record.size.div_ceil(BLOCK_LEN) {
            return Ok(false);
        }
        let args = FsSeekArgs { who: self.who, inode: self.file, offset, which: SEEK_HOLE }.bytes();
        let (result, _) = self.ask("seek", &args, 8)?;
        Ok(u64::split(&result).is_some_and(|(hole, _)| hole < record.size))
    }
}

const _: () = assert!(READ_LEN < SCRATCH_LEN as usize / 4, "lines fit beside a table");

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_offcode::store::StoreLimits;

    /// A module whose entry does this, with the lines `a\n` before it.
    fn said(body: &str) -> Result<Vec<usize>, ScanFault> {
        let text = format!(
            r#"(module (import "env" "memory" (memory 16))
                (func (export "scan") (result i64) {body}))"#
        );
        let tenant = TenantId([1; 32]);
        let engine = Arc::new(Wasmtime::new(None).expect("an engine"));
        let store = ModuleStore::new(engine, StoreLimits::default());
        let module = wat::parse_str(text).expect("legal text");
        let hash = store.load(Some(tenant), "hostile", &module).expect("a module").hash;
        let program = store.program(tenant, &hash, Bounding::Time).expect("linked");
        let budget = Budget::Time(Duration::from_millis(50), Arc::default());
        let nothing = SharedRegion::zeroed(0).expect("no memory");
        let bound = (Bounding::Time, &budget);
        let instance = store.engine().instantiate(&program, (&nothing, 0), bound);
        let instance = instance.expect("an instance");
        let mut finder = ModuleFinder::new(instance, program.data_end, budget);
        let mut found = Vec::new();
        finder.find_lines(b"a\na\n", 9, &mut found).map(|_| found)
    }

    /// Parameters are at 0x11000: from, to, where to tell, the end of that.
    #[test]
    fn a_hostile_module_harms_nobody_but_its_own_request() {
        const ALL: &str = "(i32.store (i32.const 0x11000) (i32.load (i32.const 0x11004)))
            (i32.store (i32.const 0x11004) (i32.const 0))";
        let out = "(i32.load (i32.const 0x11008))";
        assert_eq!(
            said(&format!("{ALL} (i64.extend_i32_u {out})")),
            Ok(Vec::new()),
            "an honest one"
        );
        for (body, what) in [
            ("(loop (br 0)) (i64.const 0)".to_owned(), "for ever"),
            ("(i64.const 0)".to_owned(), "ends before it begins"),
            ("(i64.const -1)".to_owned(), "a failure"),
            (
                format!("(i32.store (i32.const 0x11004) (i32.const 0)) (i64.extend_i32_u {out})"),
                "comes nowhere",
            ),
            (format!("{ALL} (i64.const 0xffffffff)"), "tells without end"),
            (format!("{ALL} (i64.extend_i32_u (i32.add {out} (i32.const 4)))"), "a line at 0"),
            (
                format!("(i32.store (i32.const 0x11000) (i32.const -1)) (i64.extend_i32_u {out})"),
                "comes too far",
            ),
            ("(i64.load (i32.const 0x200000))".to_owned(), "others' memory"),
            ("unreachable".to_owned(), "a trap"),
        ] {
            assert!(matches!(said(&body), Err(ScanFault::Finder(_))), "{what}");
        }
    }
}
