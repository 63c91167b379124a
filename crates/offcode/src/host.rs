//! The host calls of modules: what they mean, whatever the engine. An engine brings the scratch
//! memory's accessors and the fuel.

use crate::abi::{LINE, line_bit};
use crate::inspect::Signature;
use crate::stop::Stop;
use crate::write_set::{WriteSet, WrittenLine};
use outboard_mem::SharedRegion;
use std::fmt;
use wasmparser::ValType::{self, I32, I64};

/// Bytes of an execution's log, at most; more is dropped.
pub const LOG_MAX: usize = 4096;
/// Bytes of a failure's text, at most.
const TEXT_MAX: usize = 1024;
/// Words that an execution may name by `expect64`, at most.
const EXPECTED_MAX: usize = 4096;

/// Every host call: its name, its parameters and results, and whether it writes.
const CALLS: &[(&str, &[ValType], &[ValType], bool)] = &[
    ("read", &[I64, I32, I32], &[], false),
    ("load64", &[I64], &[I64], false),
    ("write", &[I64, I32, I32], &[], true),
    ("store64", &[I64, I64], &[], true),
    ("expect64", &[I64, I64], &[], false),
    ("cas64", &[I64, I64, I64], &[I64], true),
    ("add64", &[I64, I64], &[I64], true),
    ("fail", &[I32, I32, I32], &[], false),
    ("log", &[I32, I32], &[], false),
];

/// The names of all host calls.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    CALLS.iter().map(|call| call.0)
}

/// A host call's type.
pub(crate) fn signature(name: &str) -> Option<Signature> {
    let call = CALLS.iter().find(|call| call.0 == name)?;
    Some(Signature::new(call.1, call.2))
}

pub(crate) fn writes(name: &str) -> bool {
    CALLS.iter().any(|call| call.0 == name && call.3)
}

/// The memory that an execution has for itself, as host calls reach it.
pub trait Scratch {
    /// Copies out; false if some of it is not there.
    fn read(&self, at: u32, into: &mut [u8]) -> bool;
    /// Copies in; false if some of it is not there.
    fn write(&mut self, at: u32, bytes: &[u8]) -> bool;
}

/// What an execution has of the world, and what it has done: the state that host calls work on.
pub struct Execution {
    region: SharedRegion,
    writes: WriteSet,
    expected: Vec<(u64, u64)>,
    may_write: bool,
    log: Vec<u8>,
    /// For copies from the region to scratch memory.
    buffer: Vec<u8>,
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution").field("may_write", &self.may_write).finish_non_exhaustive()
    }
}

impl Execution {
    /// Executions on a region; `write_max` bytes of lines may be written.
    #[must_use]
    pub fn new(region: SharedRegion, write_max: usize) -> Self {
        Self {
            region,
            writes: WriteSet::new(write_max),
            expected: Vec::new(),
            may_write: false,
            log: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Begins anew.
    pub fn reset(&mut self, may_write: bool) {
        self.writes.clear();
        self.expected.clear();
        self.log.clear();
        self.may_write = may_write;
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &SharedRegion {
        &self.region
    }

    /// What it has said by the host call `log`.
    #[must_use]
    pub fn log(&self) -> &[u8] {
        &self.log
    }

    /// Whether it has neither written nor named a word.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.writes.is_empty() && self.expected.is_empty()
    }

    pub(crate) fn lines(&self) -> &[WrittenLine] {
        self.writes.lines()
    }

    pub(crate) fn writes(&self) -> &WriteSet {
        &self.writes
    }

    pub(crate) fn expected(&self) -> &[(u64, u64)] {
        &self.expected
    }

    /// The call block's word of written lines.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.writes.written()
    }

    /// Host call `read`.
    ///
    /// # Errors
    /// [`Stop::Trap`].
    pub fn read(
        &mut self,
        scratch: &mut dyn Scratch,
        offset: u64,
        to: u32,
        len: u32,
    ) -> Result<(), Stop> {
        self.buffer.clear();
        let (start, len) = self.range(offset, len.into())?;
        let read = self.region.append_to(start..start + len, &mut self.buffer);
        read.map_err(|error| Stop::Machine(error.to_string()))?;
        self.writes.overlay(offset, &mut self.buffer);
        in_scratch(scratch.write(to, &self.buffer), to, len)
    }

    /// Host call `load64`.
    ///
    /// # Errors
    /// [`Stop::Trap`].
    pub fn load64(&self, offset: u64) -> Result<u64, Stop> {
        let start = self.word(offset)?;
        let word = self.region.load_u64(start);
        let word = word.map_err(|error| Stop::Machine(error.to_string()))?;
        if self.writes.written() & line_bit(offset) == 0 {
            return Ok(word);
        }
        let mut bytes = word.to_le_bytes();
        self.writes.overlay(offset, &mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    /// Host call `write`.
    ///
    /// # Errors
    /// [`Stop::Trap`], [`Stop::ReadOnly`].
    pub fn write(
        &mut self,
        scratch: &dyn Scratch,
        offset: u64,
        from: u32,
        len: u32,
    ) -> Result<(), Stop> {
        let (_, len) = self.range(offset, len.into())?;
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.clear();
        bytes.resize(len, 0);
        let copied = in_scratch(scratch.read(from, &mut bytes), from, len);
        let written = copied.and_then(|()| self.put(offset, &bytes));
        self.buffer = bytes;
        written
    }

    /// Host call `store64`.
    ///
    /// # Errors
    /// [`Stop::Trap`], [`Stop::ReadOnly`].
    pub fn store64(&mut self, offset: u64, value: u64) -> Result<(), Stop> {
        self.word(offset)?;
        self.put(offset, &value.to_le_bytes())
    }

    /// Host call `expect64`.
    ///
    /// # Errors
    /// [`Stop::Trap`].
    pub fn expect64(&mut self, offset: u64, value: u64) -> Result<(), Stop> {
        self.word(offset)?;
        if self.expected.len() >= EXPECTED_MAX {
            let text = format!("the module expects more than {EXPECTED_MAX} words");
            return Err(Stop::Trap(text));
        }
        self.expected.push((offset, value));
        Ok(())
    }

    /// Host call `cas64`: the value before, which is expected still to be there at commit.
    ///
    /// # Errors
    /// [`Stop::Trap`], [`Stop::ReadOnly`].
    pub fn cas64(&mut self, offset: u64, compare: u64, swap: u64) -> Result<u64, Stop> {
        let old = self.named(offset)?;
        if old == compare {
            self.store64(offset, swap)?;
        }
        Ok(old)
    }

    /// Host call `add64`: the value before.
    ///
    /// # Errors
    /// [`Stop::Trap`], [`Stop::ReadOnly`].
    pub fn add64(&mut self, offset: u64, delta: u64) -> Result<u64, Stop> {
        let old = self.named(offset)?;
        self.store64(offset, old.wrapping_add(delta))?;
        Ok(old)
    }

    /// The value of a word as the execution sees it; the region's own value is expected at commit.
    fn named(&mut self, offset: u64) -> Result<u64, Stop> {
        let start = self.word(offset)?;
        let own = self.region.load_u64(start);
        let own = own.map_err(|error| Stop::Machine(error.to_string()))?;
        let mut bytes = own.to_le_bytes();
        let may_be_written = self.writes.written() & line_bit(offset) != 0;
        if may_be_written {
            self.writes.overlay(offset, &mut bytes);
        }
        // What this execution has written was decided when it wrote.
        if !may_be_written || !self.expected.iter().any(|(at, _)| *at == offset) {
            self.expect64(offset, own)?;
        }
        Ok(u64::from_le_bytes(bytes))
    }

    /// Host call `fail`.
    #[must_use]
    pub fn fail(&self, scratch: &dyn Scratch, code: i32, at: u32, len: u32) -> Stop {
        match text(scratch, at, len, TEXT_MAX) {
            Ok(text) => Stop::Failed { code, text },
            Err(stop) => stop,
        }
    }

    /// Host call `log`.
    ///
    /// # Errors
    /// [`Stop::Trap`].
    pub fn say(&mut self, scratch: &dyn Scratch, at: u32, len: u32) -> Result<(), Stop> {
        let text = text(scratch, at, len, LOG_MAX)?;
        let room = LOG_MAX.saturating_sub(self.log.len());
        let bytes = text.as_bytes();
        self.log.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if self.log.len() < LOG_MAX {
            self.log.push(b'\n');
        }
        Ok(())
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Stop> {
        if !self.may_write {
            return Err(Stop::ReadOnly);
        }
        self.writes.write(offset, bytes).map_err(|_| {
            Stop::Trap(format!(
                "the module writes more lines of {LINE} bytes than an execution may"
            ))
        })
    }

    fn range(&self, offset: u64, len: u64) -> Result<(usize, usize), Stop> {
        let region_len = self.region.len();
        let outside = || {
            Stop::Trap(format!(
                "a host call reaches {len} bytes at offset {offset} of a region of {region_len}"
            ))
        };
        let start = usize::try_from(offset).map_err(|_| outside())?;
        let len = usize::try_from(len).map_err(|_| outside())?;
        let end = start.checked_add(len).ok_or_else(outside)?;
        if end > region_len { Err(outside()) } else { Ok((start, len)) }
    }

    fn word(&self, offset: u64) -> Result<usize, Stop> {
        if !offset.is_multiple_of(8) {
            let text = format!("a host call for a word at offset {offset}, no multiple of 8");
            return Err(Stop::Trap(text));
        }
        self.range(offset, 8).map(|(start, _)| start)
    }
}

fn in_scratch(is_there: bool, at: u32, len: usize) -> Result<(), Stop> {
    if is_there {
        return Ok(());
    }
    Err(Stop::Trap(format!(
        "a host call reaches {len} bytes at address {at:#x}, outside the execution's own memory"
    )))
}

fn text(scratch: &dyn Scratch, at: u32, len: u32, max: usize) -> Result<String, Stop> {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(max);
    let mut bytes = vec![0; len];
    in_scratch(scratch.read(at, &mut bytes), at, len)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
