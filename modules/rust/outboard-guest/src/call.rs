//! What an execution is called with, and how it ends.

use crate::host::{self, CALL};
use crate::{Failure, ARGS};
use core::slice;

/// Set in [`flags`]: the entry is executed at the client, and cannot write.
pub const AT_CLIENT: u64 = 1;

/// The arguments, taken from the front.
#[derive(Clone, Copy, Debug)]
pub struct Args(&'static [u8]);

impl Args {
    pub(crate) fn of_call() -> Self {
        // SAFETY: the node has put so many bytes there, and changes nothing while this runs.
        Self(unsafe { slice::from_raw_parts((*CALL).args as *const u8, (*CALL).args_len as usize) })
    }

    /// The next so many bytes.
    ///
    /// # Errors
    /// [`ARGS`]: there are fewer.
    pub fn bytes(&mut self, len: usize) -> Result<&'static [u8], Failure> {
        let bytes = self.0.get(..len).ok_or(ARGS)?;
        self.0 = &self.0[len..];
        Ok(bytes)
    }

    /// The next 8 bytes, little-endian.
    ///
    /// # Errors
    /// [`ARGS`]: there are fewer.
    pub fn u64(&mut self) -> Result<u64, Failure> {
        let bytes = self.bytes(8)?;
        Ok(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }

    /// The next 4 bytes, little-endian.
    ///
    /// # Errors
    /// [`ARGS`]: there are fewer.
    pub fn u32(&mut self) -> Result<u32, Failure> {
        let bytes = self.bytes(4)?;
        Ok(bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)))
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'static [u8] {
        core::mem::take(&mut self.0)
    }
}

/// Where the result goes.
pub(crate) fn out() -> &'static mut [u8] {
    // SAFETY: the node keeps so many bytes there for the result and nothing else; `run` alone asks
    // for them, once.
    unsafe { slice::from_raw_parts_mut((*CALL).out as *mut u8, (*CALL).out_cap as usize) }
}

macro_rules! fields {
    ($($(#[$about:meta])* $name:ident: $of:ty),*) => {
        $($(#[$about])*
        #[must_use]
        pub fn $name() -> $of {
            // SAFETY: the node has filled in the block.
            unsafe { (*CALL).$name }
        })*
    };
}

fields!(
    /// Nanoseconds of the machine's monotonic clock, the same in the whole execution.
    monotonic_ns: u64,
    /// Nanoseconds since 1970, the same in the whole execution.
    wall_ns: u64,
    /// Random bits, the same when the execution is run again.
    seed: u64,
    /// Bits of [`AT_CLIENT`].
    flags: u64,
    /// The identity of the client.
    caller: [u8; 32]
);

/// Adds a line to the execution's log, 4096 bytes in all.
pub fn log(text: &str) {
    // SAFETY: the bytes are there.
    unsafe { host::log(text.as_ptr(), text.len()) }
}

/// Ends the execution as the application's error.
pub fn fail(code: i32, text: &[u8]) -> ! {
    // SAFETY: the bytes are there.
    unsafe { host::fail(code, text.as_ptr(), text.len()) }
}
