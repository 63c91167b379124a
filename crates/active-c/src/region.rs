//! Regions, and one-sided operations on them.

use crate::abi::COutboardActive;
use crate::args::{self, CPlace, CRoom};
use crate::client::CClient;
use crate::guard::{CResult, guarded};
use crate::status::{CFailure, CStatus};
use crate::table;
use outboard_active::{ActiveClient, ActiveError, RemoteRegion};
use std::ffi::{c_char, c_int, c_void};

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_attach(
    client: *mut COutboardActive,
    name: *const c_char,
    region: *mut u32,
) -> c_int {
    guarded("outboard_active_attach", || {
        // SAFETY: the program's.
        let (name, place) = unsafe { (args::text("name", name)?, CPlace::new("region", region)?) };
        table::with(client, |client| {
            let attached = client.active.attach(name)?;
            let number = client.number()?;
            client.regions.insert(number, attached);
            place.set(number);
            Ok(CStatus::Ok)
        })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn outboard_active_detach(client: *mut COutboardActive, region: u32) -> c_int {
    guarded("outboard_active_detach", || {
        table::with(client, |client| {
            let attached = client.region(region)?;
            client.regions.remove(&region);
            client.active.detach(attached);
            Ok(CStatus::Ok)
        })
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_region(
    client: *mut COutboardActive,
    region: u32,
    size: *mut u64,
    may_write: *mut c_int,
) -> c_int {
    guarded("outboard_active_region", || {
        // SAFETY: the program's.
        let (size, may_write) = unsafe { (CPlace::if_wanted(size), CPlace::if_wanted(may_write)) };
        table::with(client, |client| {
            let region = client.region(region)?;
            size.set(region.len());
            may_write.set(region.may_write().into());
            Ok(CStatus::Ok)
        })
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_read(
    client: *mut COutboardActive,
    region: u32,
    at: u64,
    into: *mut c_void,
    size: usize,
) -> c_int {
    guarded("outboard_active_read", || {
        // SAFETY: the program's.
        let room = unsafe { CRoom::new("into", into, size)? };
        table::with(client, |client| {
            let region = client.region(region)?;
            room.fill(&region.read(&mut client.active, at, size)?);
            Ok(CStatus::Ok)
        })
    })
}

/// An operation that changes a region: when its time is over it may have been carried out.
fn change<T>(
    client: &mut CClient,
    region: u32,
    op: impl FnOnce(&RemoteRegion, &mut ActiveClient) -> Result<T, ActiveError>,
) -> CResult<T> {
    let region = client.region(region)?;
    op(&region, &mut client.active).map_err(|error| CFailure::from(error).may_be_done())
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_write(
    client: *mut COutboardActive,
    region: u32,
    at: u64,
    bytes: *const c_void,
    size: usize,
) -> c_int {
    guarded("outboard_active_write", || {
        // SAFETY: the program's.
        let bytes = unsafe { args::bytes("bytes", bytes, size)? };
        table::with(client, |client| {
            change(client, region, |region, client| region.write(client, at, bytes))?;
            Ok(CStatus::Ok)
        })
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_compare_swap(
    client: *mut COutboardActive,
    region: u32,
    at: u64,
    compare: u64,
    swap: u64,
    found: *mut u64,
) -> c_int {
    guarded("outboard_active_compare_swap", || {
        // SAFETY: the program's.
        let found = unsafe { CPlace::if_wanted(found) };
        table::with(client, |client| {
            found.set(change(client, region, |region, client| {
                region.compare_swap(client, at, compare, swap)
            })?);
            Ok(CStatus::Ok)
        })
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_fetch_add(
    client: *mut COutboardActive,
    region: u32,
    at: u64,
    add: u64,
    found: *mut u64,
) -> c_int {
    guarded("outboard_active_fetch_add", || {
        // SAFETY: the program's.
        let found = unsafe { CPlace::if_wanted(found) };
        table::with(client, |client| {
            found.set(change(client, region, |region, client| region.fetch_add(client, at, add))?);
            Ok(CStatus::Ok)
        })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn outboard_active_flush(client: *mut COutboardActive, region: u32) -> c_int {
    guarded("outboard_active_flush", || {
        table::with(client, |client| {
            let region = client.region(region)?;
            client.active.flush_region(&region)?;
            Ok(CStatus::Ok)
        })
    })
}
