//! Executions: at once, or submitted and polled; and memory for their results.

use crate::abi::{AUTO, CCall, COutboardActive, COutcome, LOCAL, REMOTE};
use crate::args::{self, CPlace, CRoom};
use crate::client::CClient;
use crate::guard::{CResult, guarded, say};
use crate::status::{CFailure, CStatus, split};
use crate::table;
use outboard_active::protocol::KillTarget;
use outboard_active::{ActiveCall, CallPlace, Executed, Outcome};
use outboard_verbs::SharedRegion;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::Duration;

/// A call's arguments, as the program has given them.
#[derive(Debug)]
struct CallArgs<'a> {
    raw: CCall,
    module: outboard_active::ModuleHash,
    entry: &'a str,
    args: &'a [u8],
    place: CallPlace,
}

impl<'a> CallArgs<'a> {
    /// # Safety
    /// See the header.
    unsafe fn new(call: *const CCall) -> CResult<Self> {
        // SAFETY: the caller's.
        let raw = unsafe { args::sized("call", call)? };
        // SAFETY: the caller's.
        let (module, entry, args) = unsafe {
            (
                args::hash(raw.module)?,
                args::text("call->entry", raw.entry)?,
                args::bytes("call->args", raw.args, raw.args_size)?,
            )
        };
        let place = match raw.place {
            REMOTE => CallPlace::Remote,
            // The node writes there, nobody else.
            LOCAL | AUTO if raw.buffer != 0 => CallPlace::Remote,
            LOCAL => CallPlace::Local,
            AUTO => CallPlace::Auto,
            other => Err(CFailure::argument(format!("call->where is {other}: 0, 1 or 2")))?,
        };
        Ok(Self { raw, module, entry, args, place })
    }

    /// Does something with the client and the call as it knows it.
    fn with<T>(
        &self,
        client: &mut CClient,
        body: impl FnOnce(&mut CClient, &ActiveCall<'_>) -> CResult<T>,
    ) -> CResult<T> {
        let region = client.region(self.raw.region)?;
        let mut call = ActiveCall::new(&region, self.module, self.entry, self.args);
        call.limit = match self.raw.limit_us {
            0 => None,
            limit => Some(Duration::from_micros(limit.into())),
        };
        if self.raw.buffer != 0 {
            let CCall { buffer, buffer_offset, buffer_size, .. } = self.raw;
            let memory = client.buffers.get(&buffer).copied();
            let none = || CFailure::argument(format!("this client has no buffer {buffer}"));
            let end = buffer_offset.saturating_add(buffer_size);
            call.result = Some((memory.ok_or_else(none)?, buffer_offset..end));
        }
        body(client, &call)
    }
}

/// Gives what became of an execution to the program, and keeps the words of one that failed.
fn give(outcome: Outcome, written: Option<u64>, room: &CRoom) -> COutcome {
    let (result, module_code) = split(outcome);
    let (status, result_size) = match result {
        Ok(result) if room.fill(&result) => (CStatus::Ok, written.unwrap_or(result.len() as u64)),
        Ok(result) => {
            let len = result.len();
            let message = format!("it was executed, but its result of {len} bytes has no room");
            (say(&CFailure::new(CStatus::Truncated, message)), len as u64)
        }
        Err(failure) => (say(&failure), 0),
    };
    let (ticket, user, place, reserved) = (0, ptr::null_mut(), REMOTE, 0);
    let status = status.into();
    COutcome { ticket, user, result_size, status, module_code, place, reserved }
}

/// What became of an execution that has a status.
fn status_of(outcome: &COutcome) -> CStatus {
    let known = CStatus::ALL.iter().find(|known| c_int::from(**known) == outcome.status);
    known.copied().unwrap_or(CStatus::Bug)
}

/// Executes with a limit of its own.
fn execute(
    client: &mut CClient,
    call: &ActiveCall<'_>,
    place: CallPlace,
    timeout_ms: u32,
) -> CResult<(Outcome, Option<u64>, CallPlace)> {
    let usual = client.active.options_mut().limit;
    if timeout_ms > 0 {
        client.active.options_mut().limit = Duration::from_millis(timeout_ms.into());
    }
    let executed = match place {
        CallPlace::Remote => client.active.submit(call).and_then(|ticket| {
            let Executed { outcome, written, .. } = client.active.finish(ticket)?;
            Ok((outcome, written, CallPlace::Remote))
        }),
        place => {
            let executed = client.active.execute_at(call, place);
            executed.map(|(outcome, place)| (outcome, None, place))
        }
    };
    client.active.options_mut().limit = usual;
    executed.map_err(|error| CFailure::from(error).may_be_done())
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_execute(
    client: *mut COutboardActive,
    call: *const CCall,
    timeout_ms: u32,
    result: *mut c_void,
    capacity: usize,
    outcome: *mut COutcome,
) -> c_int {
    guarded("outboard_active_execute", || {
        // SAFETY: the program's.
        let (call, room) =
            unsafe { (CallArgs::new(call)?, CRoom::new("result", result, capacity)?) };
        // SAFETY: the program's.
        let place = unsafe { CPlace::if_wanted(outcome) };
        table::with(client, |client| {
            let (outcome, written, at) =
                call.with(client, |client, known| execute(client, known, call.place, timeout_ms))?;
            let mut given = give(outcome, written, &room);
            given.place = if at == CallPlace::Local { LOCAL } else { REMOTE };
            place.set(given);
            Ok(status_of(&given))
        })
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_submit(
    client: *mut COutboardActive,
    call: *const CCall,
    user: *mut c_void,
    ticket: *mut u64,
) -> c_int {
    guarded("outboard_active_submit", || {
        // SAFETY: the program's.
        let (call, place) = unsafe { (CallArgs::new(call)?, CPlace::if_wanted(ticket)) };
        if call.raw.place != REMOTE {
            return Err(CFailure::argument("what is submitted is executed remotely: call->where"));
        }
        table::with(client, |client| {
            let ticket = call.with(client, |client, call| Ok(client.active.submit(call)?))?;
            client.users.insert(ticket, user.expose_provenance());
            place.set(ticket.number());
            Ok(CStatus::Ok)
        })
    })
}

/// The next outcome, within a time.
fn next(client: &mut CClient, timeout_ms: c_int) -> CResult<Option<Executed>> {
    let now = match client.has_descriptor {
        true => client.active.poll_or_arm()?,
        false => client.active.poll()?,
    };
    if now.is_some() || timeout_ms == 0 || client.users.is_empty() {
        return Ok(now);
    }
    let limit = u64::try_from(timeout_ms).map_or(Duration::MAX, Duration::from_millis);
    let later = client.active.next(limit)?;
    // The program may sleep on the descriptor now.
    match later {
        None if client.has_descriptor => Ok(client.active.poll_or_arm()?),
        later => Ok(later),
    }
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_poll(
    client: *mut COutboardActive,
    timeout_ms: c_int,
    result: *mut c_void,
    capacity: usize,
    outcome: *mut COutcome,
) -> c_int {
    guarded("outboard_active_poll", || {
        // SAFETY: the program's.
        let room = unsafe { CRoom::new("result", result, capacity)? };
        // SAFETY: the program's.
        let place = unsafe { CPlace::new("outcome", outcome)? };
        table::with(client, |client| {
            let Some(Executed { ticket, outcome, written, .. }) = next(client, timeout_ms)? else {
                return Ok(CStatus::Again);
            };
            let mut given = give(outcome, written, &room);
            let user = client.users.remove(&ticket).unwrap_or_default();
            given.user = ptr::with_exposed_provenance_mut(user);
            given.ticket = ticket.number();
            place.set(given);
            Ok(CStatus::Ok)
        })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn outboard_active_kill(client: *mut COutboardActive, ticket: u64) -> c_int {
    guarded("outboard_active_kill", || {
        table::with(client, |client| {
            client.active.kill(KillTarget::Request(ticket))?;
            Ok(CStatus::Ok)
        })
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn outboard_active_expose(
    client: *mut COutboardActive,
    memory: *mut c_void,
    size: usize,
    buffer: *mut u32,
) -> c_int {
    guarded("outboard_active_expose", || {
        // SAFETY: the program's.
        let (_room, place) =
            unsafe { (CRoom::new("memory", memory, size)?, CPlace::new("buffer", buffer)?) };
        table::with(client, |client| {
            // SAFETY: the program leaves it there until the memory is withdrawn or the client is
            // closed, as the header says; the client lets go of it then.
            let memory = unsafe { SharedRegion::from_raw(memory.cast(), size) };
            let memory = memory.slice(0..size).map_err(outboard_active::ActiveError::from)?;
            let exposed = client.active.expose(memory)?;
            let number = client.number()?;
            client.buffers.insert(number, exposed);
            place.set(number);
            Ok(CStatus::Ok)
        })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn outboard_active_withdraw(client: *mut COutboardActive, buffer: u32) -> c_int {
    guarded("outboard_active_withdraw", || {
        table::with(client, |client| {
            let memory = client.buffers.remove(&buffer);
            let none = || CFailure::argument(format!("this client has no buffer {buffer}"));
            client.active.withdraw(memory.ok_or_else(none)?);
            Ok(CStatus::Ok)
        })
    })
}
