//! A resident's state between two entries, as bytes: with them, and the module of the same hash, it
//! goes on elsewhere. Calls no guest.
//!
//! Numbers are little-endian: `OBRS`, version (u16), number of globals (u16), the module's hash (32
//! bytes), pages of memory of 64 KiB (u32), the input buffer's place and length (u32, u32); each
//! global's kind (u8) and value (4, 8 or 16 bytes); then, to the end, runs of blocks of 4 KiB that
//! are not all zero: the first block's number (u32), how many (u32), their bytes.

use super::ended::ResidentEnd;
use crate::hash::ModuleHash;
use std::ops::Range;
use wasmtime::{V128, Val};

/// Bytes of memory that are kept or left out together.
pub(super) const BLOCK: usize = 4096;
/// Blocks in a page.
const PAGE_BLOCKS: u64 = 16;
/// Pages that 32 bits can address.
const PAGES_MAX: u32 = 1 << 16;
static ZEROES: [u8; BLOCK] = [0; BLOCK];
const MAGIC: &[u8; 4] = b"OBRS";
const VERSION: u16 = 1;

/// Why a state cannot be had, or why a resident cannot go on from one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Whoever sent the bytes is at fault.
    #[error("no state of an offcode: {0}")]
    Malformed(&'static str),
    /// It was written by another release.
    #[error("an offcode's state of version {found}, this release reads {VERSION}")]
    Version {
        /// The state's.
        found: u16,
    },
    /// The state of another module.
    #[error("the state is one of module {found}, not of {expected}: load that one")]
    OtherModule {
        /// The module that should go on.
        expected: ModuleHash,
        /// The state's.
        found: ModuleHash,
    },
    /// It needs more memory than the module may have here.
    #[error("the state has {found} bytes of memory, and the offcode may have {limit} here")]
    Memory {
        /// The state's.
        found: u64,
        /// What is allowed.
        limit: u64,
    },
    /// The module's fault: part of its state is neither memory nor global.
    #[error(
        "the offcode cannot be moved: it has instructions that change tables or drop segments \
         (table.init, table.copy, elem.drop, data.drop)"
    )]
    Immovable,
    /// The resident is dead.
    #[error("there is no state: {0}")]
    Dead(ResidentEnd),
}

/// Where the input buffer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Buffer {
    pub(super) place: u32,
    pub(super) len: u32,
}

/// See this file's first lines. It is always well-formed.
#[derive(Clone, Debug)]
pub struct ResidentState {
    bytes: Vec<u8>,
    hash: ModuleHash,
    pages: u32,
    buffer: Buffer,
    globals: Vec<Val>,
    runs: Vec<Run>,
}

/// Blocks that follow one another: where they are in memory and in the state's bytes.
#[derive(Clone, Debug)]
struct Run {
    to: usize,
    from: Range<usize>,
}

impl PartialEq for ResidentState {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for ResidentState {}

impl ResidentState {
    /// The module whose state it is.
    #[must_use]
    pub fn module(&self) -> ModuleHash {
        self.hash
    }

    /// Bytes of the resident's memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        u64::from(self.pages) * PAGE_BLOCKS * BLOCK as u64
    }

    /// The state as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Reads a state. Of what comes from outside, nothing is believed: it takes no more memory than
    /// the bytes themselves, about.
    ///
    /// # Errors
    /// [`StateError::Malformed`], [`StateError::Version`].
    pub fn parse(bytes: Vec<u8>) -> Result<Self, StateError> {
        let mut reader = Reader { bytes: &bytes, at: 0 };
        if reader.array()? != *MAGIC {
            return Err(StateError::Malformed("it begins with other bytes"));
        }
        let found = u16::from_le_bytes(reader.array()?);
        if found != VERSION {
            return Err(StateError::Version { found });
        }
        let count = u16::from_le_bytes(reader.array()?);
        let hash = ModuleHash(reader.array()?);
        let pages = reader.word()?;
        let buffer = Buffer { place: reader.word()?, len: reader.word()? };
        let memory = u64::from(pages) * PAGE_BLOCKS * BLOCK as u64;
        if pages > PAGES_MAX || u64::from(buffer.place) + u64::from(buffer.len) > memory {
            return Err(StateError::Malformed("its memory or its buffer is too large"));
        }
        let globals = (0..count).map(|_| reader.global()).collect::<Result<Vec<_>, _>>()?;
        let runs = reader.runs(u64::from(pages) * PAGE_BLOCKS)?;
        Ok(Self { hash, pages, buffer, globals, runs, bytes })
    }

    /// The state of what is there.
    pub(super) fn take(
        hash: ModuleHash,
        buffer: Buffer,
        globals: Vec<Val>,
        memory: &[u8],
    ) -> Result<Self, StateError> {
        let pages = u32::try_from(memory.len() as u64 / (PAGE_BLOCKS * BLOCK as u64));
        let pages = pages.map_err(|_| StateError::Malformed("more memory than 32 bits address"))?;
        let count = u16::try_from(globals.len());
        let count = count.map_err(|_| StateError::Malformed("more than 65,535 globals"))?;
        // Pages of it that are not written to are never there.
        let mut bytes = Vec::with_capacity(memory.len() + memory.len() / BLOCK * 4 + 4096);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&hash.0);
        for word in [pages, buffer.place, buffer.len] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for global in &globals {
            put_global(&mut bytes, global)?;
        }
        let runs = put_runs(&mut bytes, memory);
        Ok(Self { bytes, hash, pages, buffer, globals, runs })
    }

    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    pub(super) fn buffer(&self) -> Buffer {
        self.buffer
    }

    pub(super) fn globals(&self) -> &[Val] {
        &self.globals
    }

    /// Fills a memory of the right length, which is zero from `data_end` on.
    pub(super) fn fill(&self, memory: &mut [u8], data_end: usize) {
        let mut done = 0;
        for Run { to, from } in &self.runs {
            if done < data_end {
                memory[done..(*to).min(data_end).max(done)].fill(0);
            }
            done = to + from.len();
            memory[*to..done].copy_from_slice(&self.bytes[from.clone()]);
        }
        if done < data_end {
            memory[done..data_end].fill(0);
        }
    }
}

fn put_global(bytes: &mut Vec<u8>, global: &Val) -> Result<(), StateError> {
    match global {
        Val::I32(value) => put(bytes, 0, &value.to_le_bytes()),
        Val::I64(value) => put(bytes, 1, &value.to_le_bytes()),
        Val::F32(bits) => put(bytes, 2, &bits.to_le_bytes()),
        Val::F64(bits) => put(bytes, 3, &bits.to_le_bytes()),
        Val::V128(value) => put(bytes, 4, &value.as_u128().to_le_bytes()),
        _ => return Err(StateError::Malformed("a global that is a reference")),
    }
    Ok(())
}

fn put(bytes: &mut Vec<u8>, kind: u8, value: &[u8]) {
    bytes.push(kind);
    bytes.extend_from_slice(value);
}

/// Appends the blocks that are not zero.
fn put_runs(bytes: &mut Vec<u8>, memory: &[u8]) -> Vec<Run> {
    let mut runs = Vec::new();
    let (blocks, _) = memory.as_chunks::<BLOCK>();
    let mut at = 0;
    while at < blocks.len() {
        let zeroes = blocks[at..].iter().take_while(|block| **block == ZEROES).count();
        at += zeroes;
        let count = blocks[at..].iter().take_while(|block| **block != ZEROES).count();
        if count == 0 {
            break;
        }
        for word in [at, count] {
            // Below 2^20: a memory has 4 GiB at most.
            bytes.extend_from_slice(&u32::try_from(word).unwrap_or(u32::MAX).to_le_bytes());
        }
        let from = bytes.len()..bytes.len() + count * BLOCK;
        bytes.extend_from_slice(blocks[at..at + count].as_flattened());
        runs.push(Run { to: at * BLOCK, from });
        at += count;
    }
    runs
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], StateError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let found = rest.first_chunk::<N>().ok_or(StateError::Malformed("it ends too early"))?;
        self.at += N;
        Ok(*found)
    }

    fn word(&mut self) -> Result<u32, StateError> {
        self.array().map(u32::from_le_bytes)
    }

    fn global(&mut self) -> Result<Val, StateError> {
        let [kind] = self.array()?;
        Ok(match kind {
            0 => Val::I32(i32::from_le_bytes(self.array()?)),
            1 => Val::I64(i64::from_le_bytes(self.array()?)),
            2 => Val::F32(self.word()?),
            3 => Val::F64(u64::from_le_bytes(self.array()?)),
            4 => Val::V128(V128::from(u128::from_le_bytes(self.array()?))),
            _ => return Err(StateError::Malformed("a global of no known type")),
        })
    }

    /// The runs, which are in order and within so many blocks.
    fn runs(&mut self, blocks: u64) -> Result<Vec<Run>, StateError> {
        let mut runs = Vec::new();
        let mut end = 0;
        while self.at < self.bytes.len() {
            let (first, count) = (u64::from(self.word()?), u64::from(self.word()?));
            if first < end || count == 0 || first + count > blocks {
                return Err(StateError::Malformed("its blocks are not in order or not in memory"));
            }
            end = first + count;
            let len = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(BLOCK);
            let from = self.at..self.at.saturating_add(len);
            if from.end > self.bytes.len() {
                return Err(StateError::Malformed("it ends within a block"));
            }
            self.at = from.end;
            let to = usize::try_from(first).unwrap_or(usize::MAX).saturating_mul(BLOCK);
            runs.push(Run { to, from });
        }
        Ok(runs)
    }
}
