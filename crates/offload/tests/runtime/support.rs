//! Plans and devices for these tests.

use outboard_offload::device::{DeviceLimits, WasmCodes};
use outboard_offload::devices::{DeviceLink, DeviceLost, HostDevice};
use outboard_offload::request::{DeviceEvent, InterfaceId, Numbered};
use outboard_offload::runtime::{
    PlannedChannel, PlannedEnd, PlannedOffcode, Running, Runtime, RuntimeError, RuntimeEvent,
    RuntimeOptions, RuntimePlan,
};
use outboard_testkit::PATIENCE;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// The interface of all offcodes here.
pub(crate) const FACE: InterfaceId = [7; 16];

/// A device that shares no memory when it is told so, and that is lost when its fuel is used up.
#[derive(Debug)]
pub(crate) struct TestDevice {
    inner: HostDevice,
    is_apart: bool,
    fuel: Arc<AtomicI64>,
}

impl TestDevice {
    pub(crate) fn start(name: &str) -> Self {
        let codes = WasmCodes::new(None).expect("an engine");
        let inner = HostDevice::start(name, DeviceLimits::default(), codes).expect("a thread");
        Self { inner, is_apart: false, fuel: Arc::new(AtomicI64::new(i64::MAX)) }
    }

    /// It shares no memory.
    pub(crate) fn apart(mut self) -> Self {
        self.is_apart = true;
        self
    }

    /// After so many requests it is lost.
    pub(crate) fn with_fuel(self, fuel: i64) -> Self {
        self.fuel.store(fuel, Ordering::SeqCst);
        self
    }

    /// Set to 0 it is lost.
    pub(crate) fn fuel(&self) -> Arc<AtomicI64> {
        Arc::clone(&self.fuel)
    }
}

impl DeviceLink for TestDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn send(&mut self, request: &Numbered, fds: &[BorrowedFd<'_>]) -> Result<(), DeviceLost> {
        if self.fuel.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(DeviceLost("its fuel is used up".into()));
        }
        self.inner.send(request, fds)
    }

    fn poll(&mut self) -> Result<Option<DeviceEvent>, DeviceLost> {
        if self.fuel.load(Ordering::SeqCst) <= 0 {
            return Err(DeviceLost("its fuel is used up".into()));
        }
        self.inner.poll()
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }

    fn wants_write(&self) -> bool {
        self.inner.wants_write()
    }

    fn flush(&mut self) -> Result<(), DeviceLost> {
        self.inner.flush()
    }

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.inner.bell().filter(|_| !self.is_apart)
    }
}

/// So many devices; whether they share memory.
pub(crate) fn devices(count: usize, share: bool) -> Vec<Box<dyn DeviceLink>> {
    let device = |at: usize| {
        let device = TestDevice::start(&format!("d{at}"));
        let device = if share { device } else { device.apart() };
        Box::new(device) as Box<dyn DeviceLink>
    };
    (0..count).map(device).collect()
}

/// Patient: a busy machine loses no device.
pub(crate) fn patient() -> RuntimeOptions {
    RuntimeOptions {
        heartbeat: Duration::from_millis(20),
        silence: PATIENCE,
        reply_limit: PATIENCE,
    }
}

pub(crate) fn offcode(name: &str, body: &str, device: usize) -> PlannedOffcode {
    PlannedOffcode {
        ports: 2,
        interfaces: vec![FACE],
        ..PlannedOffcode::builtin(name, body, device)
    }
}

pub(crate) fn with(mut offcode: PlannedOffcode, attributes: &[(&str, &str)]) -> PlannedOffcode {
    let owned = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    offcode.attributes.extend(owned);
    offcode
}

pub(crate) fn at(name: &str, port: u16) -> PlannedEnd {
    PlannedEnd::Offcode(name.to_owned(), port)
}

pub(crate) fn own(name: &str) -> PlannedEnd {
    PlannedEnd::Application(name.to_owned())
}

pub(crate) fn channel(from: PlannedEnd, to: PlannedEnd, depth: u32) -> PlannedChannel {
    PlannedChannel { from, to: vec![to], is_reliable: true, depth, message_max: 4096 }
}

pub(crate) fn plan(offcodes: Vec<PlannedOffcode>, channels: Vec<PlannedChannel>) -> RuntimePlan {
    RuntimePlan { name: "test".to_owned(), offcodes, channels }
}

pub(crate) fn start(plan: RuntimePlan, devices: Vec<Box<dyn DeviceLink>>) -> Running {
    try_start(plan, devices).expect("it starts")
}

pub(crate) fn try_start(
    plan: RuntimePlan,
    devices: Vec<Box<dyn DeviceLink>>,
) -> Result<Running, RuntimeError> {
    Runtime::start(plan, devices, patient())
}

/// The results of method 0 of an offcode that gives two numbers.
pub(crate) fn numbers(running: &Running, name: &str) -> (u64, u64) {
    let target = running.offcode(name).expect("it is there");
    let results = running.call(target, FACE, 0, &[], Some(PATIENCE)).expect("it answers");
    postcard::from_bytes(&results).expect("two numbers")
}

/// Asks until the first number is that high.
pub(crate) fn until(running: &Running, name: &str, number: u64) -> (u64, u64) {
    let limit = Instant::now() + PATIENCE;
    loop {
        let found = numbers(running, name);
        if found.0 >= number {
            return found;
        }
        assert!(Instant::now() < limit, "{name} has {found:?} of {number}");
        std::thread::yield_now();
    }
}

/// The next event that is wanted; others are passed over.
pub(crate) fn event(running: &Running, wanted: impl Fn(&RuntimeEvent) -> bool) -> RuntimeEvent {
    let limit = Instant::now() + PATIENCE;
    while Instant::now() < limit {
        match running.next_event(PATIENCE) {
            Some(event) if wanted(&event) => return event,
            Some(_) => {}
            None => break,
        }
    }
    panic!("no such event");
}

pub(crate) fn ended(running: &Running, offcode: &str) -> (String, Vec<String>) {
    let event = event(
        running,
        |event| matches!(event, RuntimeEvent::Ended { name, .. } if name == offcode),
    );
    match event {
        RuntimeEvent::Ended { why, with, .. } => (why, with),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn told(running: &Running) -> Vec<u8> {
    match event(running, |event| matches!(event, RuntimeEvent::Told { .. })) {
        RuntimeEvent::Told { bytes, .. } => bytes,
        other => panic!("{other:?}"),
    }
}

/// Numbers from a seed, the same each time.
#[derive(Debug)]
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).expect("64 bits") % limit
    }
}
