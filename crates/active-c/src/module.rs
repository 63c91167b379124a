//! Modules, and their hashes as text.

use crate::abi::{CHash, COutboardActive, HASH_TEXT};
use crate::args::{self, CPlace, CRoom};
use crate::guard::guarded;
use crate::status::{CFailure, CStatus};
use crate::table;
use outboard_active::ModuleHash;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_know(
    client: *mut COutboardActive,
    name: *const c_char,
    bytes: *const c_void,
    size: usize,
    module: *mut CHash,
) -> c_int {
    guarded("outboard_active_know", || {
        // SAFETY: the program's.
        let (name, bytes) =
            unsafe { (args::text("name", name)?, args::bytes("bytes", bytes, size)?) };
        // SAFETY: the program's.
        let place = unsafe { CPlace::new("module", module)? };
        table::with(client, |client| {
            let known = client.active.know(name, bytes)?;
            place.set(CHash { bytes: known.0 });
            Ok(CStatus::Ok)
        })
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_know_file(
    client: *mut COutboardActive,
    path: *const c_char,
    module: *mut CHash,
) -> c_int {
    guarded("outboard_active_know_file", || {
        // SAFETY: the program's.
        let (path, place) = unsafe { (args::text("path", path)?, CPlace::new("module", module)?) };
        table::with(client, |client| {
            let known = client.active.know_file(Path::new(path))?;
            place.set(CHash { bytes: known.0 });
            Ok(CStatus::Ok)
        })
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_load(
    client: *mut COutboardActive,
    module: *const CHash,
) -> c_int {
    guarded("outboard_active_load", || {
        // SAFETY: the program's.
        let module = unsafe { args::hash(module)? };
        table::with(client, |client| {
            client.active.load_known(module)?;
            Ok(CStatus::Ok)
        })
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_drop(
    client: *mut COutboardActive,
    module: *const CHash,
) -> c_int {
    guarded("outboard_active_drop", || {
        // SAFETY: the program's.
        let module = unsafe { args::hash(module)? };
        table::with(client, |client| {
            client.active.drop_module(module)?;
            Ok(CStatus::Ok)
        })
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_hash_parse(
    text: *const c_char,
    module: *mut CHash,
) -> c_int {
    guarded("outboard_active_hash_parse", || {
        // SAFETY: the program's.
        let (text, place) = unsafe { (args::text("text", text)?, CPlace::new("module", module)?) };
        let parsed = text.parse::<ModuleHash>();
        let parsed = parsed.map_err(|error| CFailure::argument(error.to_string()))?;
        place.set(CHash { bytes: parsed.0 });
        Ok(CStatus::Ok)
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_hash_format(
    module: *const CHash,
    text: *mut c_char,
) -> c_int {
    guarded("outboard_active_hash_format", || {
        // SAFETY: the program's.
        let module = unsafe { args::hash(module)? };
        // SAFETY: the program's.
        let room = unsafe { CRoom::new("text", text.cast::<c_void>(), HASH_TEXT)? };
        room.fill(format!("{module}\0").as_bytes());
        Ok(CStatus::Ok)
    })
}
