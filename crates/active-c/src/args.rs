//! Pointers from C, checked as far as they can be: NULL, text that is no UTF-8, sizes.

use crate::abi::CHash;
use crate::guard::CResult;
use crate::status::CFailure;
use outboard_active::ModuleHash;
use std::ffi::{CStr, c_char, c_void};
use std::slice;

fn null(what: &str) -> CFailure {
    CFailure::argument(format!("{what} is NULL"))
}

/// Text that ends with a zero byte.
///
/// # Safety
/// `text` is NULL, or such text that nobody changes before the call from C returns.
pub(crate) unsafe fn text<'a>(what: &str, text: *const c_char) -> CResult<&'a str> {
    if text.is_null() {
        return Err(null(what));
    }
    // SAFETY: the caller's.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| CFailure::argument(format!("{what} is not UTF-8")))
}

fn check(what: &str, is_null: bool, size: usize) -> CResult<()> {
    if is_null && size > 0 {
        return Err(null(what));
    }
    match isize::try_from(size) {
        Ok(_) => Ok(()),
        Err(_) => Err(CFailure::argument(format!("{what} cannot have {size} bytes"))),
    }
}

/// Bytes of the program's.
///
/// # Safety
/// `size` is 0 or `bytes` is NULL, or there are as many bytes, which nobody changes before the call
/// from C returns.
pub(crate) unsafe fn bytes<'a>(what: &str, bytes: *const c_void, size: usize) -> CResult<&'a [u8]> {
    check(what, bytes.is_null(), size)?;
    match size {
        0 => Ok(&[]),
        // SAFETY: the caller's.
        _ => Ok(unsafe { slice::from_raw_parts(bytes.cast(), size) }),
    }
}

/// Memory of the program's that bytes are copied to. It may be uninitialized.
#[derive(Debug)]
pub(crate) struct CRoom {
    start: *mut u8,
    size: usize,
}

impl CRoom {
    /// # Safety
    /// `size` is 0 or `start` is NULL, or as many bytes may be written until the call from C
    /// returns.
    pub(crate) unsafe fn new(what: &str, start: *mut c_void, size: usize) -> CResult<Self> {
        check(what, start.is_null(), size)?;
        Ok(Self { start: start.cast(), size })
    }

    /// Copies as many bytes as there is room for; whether that were all.
    pub(crate) fn fill(&self, bytes: &[u8]) -> bool {
        let len = bytes.len().min(self.size);
        if len > 0 {
            // SAFETY: as `new` was told; memory that Rust knows of is never the program's.
            unsafe { self.start.copy_from_nonoverlapping(bytes.as_ptr(), len) };
        }
        len == bytes.len()
    }
}

/// Where a value for the program goes.
#[derive(Debug)]
pub(crate) struct CPlace<T>(*mut T);

impl<T> CPlace<T> {
    /// A place that there must be.
    ///
    /// # Safety
    /// `place` is NULL, or a `T` may be written there until the call from C returns.
    pub(crate) unsafe fn new(what: &str, place: *mut T) -> CResult<Self> {
        match place.is_null() {
            true => Err(null(what)),
            false => Ok(Self(place)),
        }
    }

    /// A place that may be missing.
    ///
    /// # Safety
    /// As for [`Self::new`].
    pub(crate) unsafe fn if_wanted(place: *mut T) -> Self {
        Self(place)
    }

    /// Writes a value, if it is wanted.
    pub(crate) fn set(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: as `new` was told.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

/// A structure that begins with its size.
///
/// # Safety
/// `from` is NULL, or points to a `T`, or to something else that begins with a size which is
/// another one than that of `T`.
pub(crate) unsafe fn sized<T: Copy>(what: &str, from: *const T) -> CResult<T> {
    if from.is_null() {
        return Err(null(what));
    }
    // SAFETY: the caller's.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    if size != size_of::<T>() {
        return Err(CFailure::argument(format!(
            "{what}->size is {size}, this library needs {}: begin with the header's INIT",
            size_of::<T>()
        )));
    }
    // SAFETY: its size says that it is one.
    Ok(unsafe { from.read_unaligned() })
}

/// A module's hash.
///
/// # Safety
/// `hash` is NULL, or points to one.
pub(crate) unsafe fn hash(hash: *const CHash) -> CResult<ModuleHash> {
    if hash.is_null() {
        return Err(null("module"));
    }
    // SAFETY: the caller's.
    Ok(ModuleHash(unsafe { hash.read_unaligned() }.bytes))
}
