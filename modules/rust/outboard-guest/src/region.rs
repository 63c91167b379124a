//! The region, by offsets from its start. Reads see the execution's own writes. Bytes outside the
//! region, and words whose offset is no multiple of 8, end the execution with a trap.

use crate::host::{self, CALL};

/// Bytes of a line, the unit of write sets.
const LINE: u64 = 64;

/// Bytes of the region.
#[must_use]
pub fn len() -> u64 {
    // SAFETY: the node has filled in the block.
    unsafe { (*CALL).region_len }
}

/// The lines that may have been written; host calls change the word.
fn written() -> u64 {
    // SAFETY: the node has filled in the block, and keeps the word up.
    unsafe { core::ptr::addr_of!((*CALL).written).read_volatile() }
}

/// The address of bytes that are in the region and, as far as is known, not written.
fn plain(offset: u64, bytes: u64) -> Option<*const u8> {
    let is_inside = bytes <= len() && offset <= len() - bytes;
    let (first, written) = (offset / LINE, written());
    let lines = (offset % LINE + bytes + LINE - 1) / LINE;
    let may_be_written = written != 0
        && (lines >= 64 || (0..lines).any(|line| written >> ((first + line) % 64) & 1 == 1));
    // SAFETY: the node has filled in the block.
    (is_inside && !may_be_written).then(|| unsafe { ((*CALL).region_base + offset) as *const u8 })
}

/// One aligned word, never half of a peer's atomic.
#[must_use]
pub fn get64(offset: u64) -> u64 {
    match plain(offset, 8).filter(|_| offset % 8 == 0) {
        // SAFETY: the word is in the region, which is mapped, and aligned.
        Some(at) => unsafe { at.cast::<u64>().read_volatile() },
        // SAFETY: the host checks the offset.
        None => unsafe { host::load64(offset) },
    }
}

/// Copies bytes out.
pub fn get(offset: u64, into: &mut [u8]) {
    match plain(offset, into.len() as u64) {
        // SAFETY: the bytes are in the region, which is mapped; `into` is elsewhere.
        Some(at) => unsafe { at.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) },
        // SAFETY: the host checks the offset; the bytes of `into` are there.
        None => unsafe { host::read(offset, into.as_mut_ptr(), into.len()) },
    }
}

/// Puts one aligned word. Writes.
pub fn put64(offset: u64, value: u64) {
    // SAFETY: the host checks the offset.
    unsafe { host::store64(offset, value) }
}

/// Puts bytes. Writes.
pub fn put(offset: u64, bytes: &[u8]) {
    // SAFETY: the host checks the offset; the bytes are there.
    unsafe { host::write(offset, bytes.as_ptr(), bytes.len()) }
}

/// Names a word: the region itself must still hold this value there at commit, whatever peers do.
pub fn expect64(offset: u64, value: u64) {
    // SAFETY: the host checks the offset.
    unsafe { host::expect64(offset, value) }
}

/// Returns the word; if it is `compare`, stores `swap`. Names the word. Writes.
pub fn cas64(offset: u64, compare: u64, swap: u64) -> u64 {
    // SAFETY: the host checks the offset.
    unsafe { host::cas64(offset, compare, swap) }
}

/// Returns the word, and adds to it. Names the word. Writes.
pub fn add64(offset: u64, delta: u64) -> u64 {
    // SAFETY: the host checks the offset.
    unsafe { host::add64(offset, delta) }
}
