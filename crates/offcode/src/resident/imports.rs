//! What modules import, as wasmtime's functions: each finds the guest's bytes and asks the host.

use super::abi;
use super::ended::ResidentEnd;
use super::host::{ResidentHost, ResidentLog, TEXT_MAX};
use crate::engine::KillSwitch;
use rustix::time::{ClockId, clock_gettime};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wasmtime::{Caller, Error, Linker, Memory, Result, UpdateDeadline};

/// How much longer than its processor time an entry may take by the clock.
const WALL_FACTOR: u32 = 10;

/// What a store carries.
pub(super) struct ResidentBody<H> {
    pub(super) host: H,
    /// Known before any of the module's code runs.
    pub(super) memory: Option<Memory>,
    pub(super) limits: wasmtime::StoreLimits,
    pub(super) time: EntryTime,
}

/// The time of the entry that runs.
pub(super) struct EntryTime {
    pub(super) kill: Arc<KillSwitch>,
    pub(super) limit: Duration,
    /// Processor time of its thread and the clock's time, at the first tick that it saw.
    pub(super) since: Option<(Duration, Instant)>,
}

impl EntryTime {
    /// At each tick that an entry sees. Its time begins with the first.
    pub(super) fn tick(&mut self) -> Result<UpdateDeadline> {
        if self.kill.is_killed() {
            return Err(Error::new(ResidentEnd::Killed));
        }
        // The kernel's clock of a thread is never negative.
        let now = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
        let (cpu, wall) = *self.since.get_or_insert_with(|| (now, Instant::now()));
        let is_over = now.saturating_sub(cpu) >= self.limit
            || wall.elapsed() >= self.limit.saturating_mul(WALL_FACTOR);
        if is_over && now > cpu {
            return Err(Error::new(ResidentEnd::OutOfTime { limit: self.limit }));
        }
        Ok(UpdateDeadline::Continue(1))
    }
}

type Of<'a, H> = Caller<'a, ResidentBody<H>>;

/// The guest's memory, and the host.
fn parts<'a, H: ResidentHost>(of: &'a mut Of<'_, H>) -> Result<(&'a mut [u8], &'a mut H)> {
    let memory = of.data().memory;
    let memory = memory.ok_or_else(|| trap("an import before the instance is there"))?;
    let (bytes, body) = memory.data_and_store_mut(of);
    Ok((bytes, &mut body.host))
}

fn trap(text: impl Into<String>) -> Error {
    Error::new(ResidentEnd::Trapped(text.into()))
}

fn outside(at: u32, len: u32) -> Error {
    trap(format!("an import is given {len} bytes at address {at:#x}, outside the memory"))
}

/// A part of the guest's memory.
fn bytes(memory: &[u8], at: u32, len: u32) -> Result<&[u8]> {
    let start = at as usize;
    let end = start.checked_add(len as usize);
    end.and_then(|end| memory.get(start..end)).ok_or_else(|| outside(at, len))
}

/// The same as text, cut off if it is too long.
fn text(memory: &[u8], at: u32, len: u32) -> Result<Cow<'_, str>> {
    let bytes = bytes(memory, at, len)?;
    Ok(String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_MAX)]))
}

/// All imports.
pub(super) fn linker<H: ResidentHost>(
    engine: &wasmtime::Engine,
) -> Result<Linker<ResidentBody<H>>> {
    let mut linker = Linker::new(engine);
    calls(&mut linker)?;
    channels(&mut linker)?;
    words(&mut linker)?;
    times(&mut linker)?;
    Ok(linker)
}

fn calls<H: ResidentHost>(linker: &mut Linker<ResidentBody<H>>) -> Result<()> {
    let call = |mut of: Of<'_, H>, import: u32, method: u32, at: u32, len: u32, ms: i32| {
        let (memory, host) = parts(&mut of)?;
        let deadline = u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis);
        let made = host.call((import, method), bytes(memory, at, len)?, deadline);
        Ok(made.map_or_else(|why| why.code(), |call| i64::try_from(call).unwrap_or(i64::MAX)))
    };
    linker.func_wrap(abi::MODULE, "call", call)?;
    linker.func_wrap(
        abi::MODULE,
        "answer",
        |mut of: Of<'_, H>, call: u64, at: u32, len: u32| {
            let (memory, host) = parts(&mut of)?;
            Ok(found(host.answer(call, bytes(memory, at, len)?)))
        },
    )?;
    linker.func_wrap(
        abi::MODULE,
        "refuse",
        |mut of: Of<'_, H>, call: u64, at: u32, len: u32| {
            let (memory, host) = parts(&mut of)?;
            Ok(found(host.refuse(call, &text(memory, at, len)?)))
        },
    )?;
    Ok(())
}

/// The guest's number for whether something was there.
fn found(is_there: bool) -> i32 {
    if is_there { 0 } else { -1 }
}

fn channels<H: ResidentHost>(linker: &mut Linker<ResidentBody<H>>) -> Result<()> {
    linker.func_wrap(abi::MODULE, "send", |mut of: Of<'_, H>, port: u32, at: u32, len: u32| {
        let (memory, host) = parts(&mut of)?;
        Ok(host.send(port, bytes(memory, at, len)?).code())
    })?;
    let hold = |mut of: Of<'_, H>, port: u32| of.data_mut().host.hold(port);
    linker.func_wrap(abi::MODULE, "hold", hold)?;
    let release = |mut of: Of<'_, H>, port: u32| of.data_mut().host.release(port);
    linker.func_wrap(abi::MODULE, "release", release)?;
    linker.func_wrap(abi::MODULE, "tell", |mut of: Of<'_, H>, at: u32, len: u32| {
        let (memory, host) = parts(&mut of)?;
        Ok(found(host.tell(bytes(memory, at, len)?)))
    })?;
    Ok(())
}

fn words<H: ResidentHost>(linker: &mut Linker<ResidentBody<H>>) -> Result<()> {
    linker.func_wrap(abi::MODULE, "log", |mut of: Of<'_, H>, level: i32, at: u32, len: u32| {
        let (memory, host) = parts(&mut of)?;
        host.log(ResidentLog::of(level), &text(memory, at, len)?);
        Ok(())
    })?;
    let fail = |mut of: Of<'_, H>, at: u32, len: u32| -> Result<()> {
        let (memory, _) = parts(&mut of)?;
        Err(Error::new(ResidentEnd::Failed(text(memory, at, len)?.into_owned())))
    };
    linker.func_wrap(abi::MODULE, "fail", fail)?;
    let attribute = |mut of: Of<'_, H>, name: u32, name_len: u32, out: u32, cap: u32| {
        let (memory, host) = parts(&mut of)?;
        bytes(memory, out, cap)?;
        let Some(value) = host.attribute(&text(memory, name, name_len)?) else { return Ok(-1) };
        let copied = value.len().min(cap as usize);
        let out = out as usize;
        memory[out..out + copied].copy_from_slice(&value[..copied]);
        Ok(i32::try_from(value.len()).unwrap_or(i32::MAX))
    };
    linker.func_wrap(abi::MODULE, "attribute", attribute)?;
    Ok(())
}

fn times<H: ResidentHost>(linker: &mut Linker<ResidentBody<H>>) -> Result<()> {
    linker.func_wrap(abi::MODULE, "clock", |mut of: Of<'_, H>| of.data_mut().host.clock())?;
    linker.func_wrap(abi::MODULE, "wall", |mut of: Of<'_, H>| of.data_mut().host.wall())?;
    let timer = |mut of: Of<'_, H>, timer: u32, after_ns: i64| {
        let after = Duration::from_nanos(u64::try_from(after_ns).unwrap_or(0));
        let is_set = of.data_mut().host.timer(timer, after);
        if is_set { Ok(()) } else { Err(trap("the offcode sets more timers than it may have")) }
    };
    linker.func_wrap(abi::MODULE, "timer", timer)?;
    Ok(())
}
