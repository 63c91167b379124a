//! The header's structures and constants. A test compares each with the header.

use std::ffi::{c_char, c_void};
use std::ptr;

/// A client, as C names it: a number that looks like a pointer.
#[repr(C)]
#[derive(Debug)]
pub struct COutboardActive {
    _opaque: [u8; 0],
}

/// `outboard_active_hash`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CHash {
    /// BLAKE3.
    pub bytes: [u8; 32],
}

/// `outboard_active_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header says it")]
pub struct COptions {
    pub size: usize,
    pub key: *const c_char,
    pub timeout_ms: u32,
    pub in_flight: u32,
    pub wait: u32,
    pub reserved: u32,
}

impl Default for COptions {
    fn default() -> Self {
        let (size, key) = (size_of::<Self>(), ptr::null());
        Self { size, key, timeout_ms: 0, in_flight: 0, wait: 0, reserved: 0 }
    }
}

/// `outboard_active_call`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header says it")]
pub struct CCall {
    pub size: usize,
    pub module: *const CHash,
    pub entry: *const c_char,
    pub args: *const c_void,
    pub args_size: usize,
    pub region: u32,
    pub place: u32,
    pub limit_us: u32,
    pub buffer: u32,
    pub buffer_offset: usize,
    pub buffer_size: usize,
}

/// `outboard_active_outcome`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header says it")]
pub struct COutcome {
    pub ticket: u64,
    pub user: *mut c_void,
    pub result_size: u64,
    pub status: i32,
    pub module_code: i32,
    pub place: u32,
    pub reserved: u32,
}

/// `OUTBOARD_ACTIVE_REMOTE`.
pub const REMOTE: u32 = 0;
/// `OUTBOARD_ACTIVE_LOCAL`.
pub const LOCAL: u32 = 1;
/// `OUTBOARD_ACTIVE_AUTO`.
pub const AUTO: u32 = 2;

/// `OUTBOARD_ACTIVE_ADAPTIVE`.
pub const ADAPTIVE: u32 = 0;
/// `OUTBOARD_ACTIVE_BLOCK`.
pub const BLOCK: u32 = 1;
/// `OUTBOARD_ACTIVE_SPIN`.
pub const SPIN: u32 = 2;

/// Bytes of a hash as text, with the zero byte.
pub const HASH_TEXT: usize = 65;
