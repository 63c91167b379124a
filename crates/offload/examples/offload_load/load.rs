//! How many round trips a device is asked until an offcode is created there, by counting.

use crate::Failure;
use crate::parts::{host, module, start, wasm};
use outboard_offload::devices::{DeviceLink, DeviceLost};
use outboard_offload::request::{DeviceEvent, DeviceRequest, Numbered};
use outboard_offload::runtime::RuntimePlan;
use serde_json::{Value, json};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A device whose round trips are counted, of requests that create offcodes: what is sent before
/// a reply has come belongs to one.
#[derive(Debug)]
struct Counted {
    inner: Box<dyn DeviceLink>,
    is_waiting: bool,
    trips: Arc<AtomicU32>,
}

impl DeviceLink for Counted {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn send(&mut self, request: &Numbered, fds: &[BorrowedFd<'_>]) -> Result<(), DeviceLost> {
        let creates = matches!(request.request, DeviceRequest::Create(_) | DeviceRequest::Code(_));
        if creates && !self.is_waiting {
            self.is_waiting = true;
            self.trips.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.send(request, fds)
    }

    fn poll(&mut self) -> Result<Option<DeviceEvent>, DeviceLost> {
        let event = self.inner.poll()?;
        if matches!(event, Some(DeviceEvent::Reply(..))) {
            self.is_waiting = false;
        }
        Ok(event)
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
        self.inner.bell()
    }
}

/// Of one offcode whose code the device has not, then of one whose code it has.
pub(crate) fn run() -> Result<Value, Failure> {
    let trips = Arc::new(AtomicU32::new(0));
    let counted = Counted { inner: host(None)?, is_waiting: false, trips: Arc::clone(&trips) };
    let code = module()?;
    let running = start(vec![wasm("first", &code, 0)], Vec::new(), vec![Box::new(counted)])?;
    let unknown = trips.swap(0, Ordering::Relaxed);
    let offcodes = vec![wasm("second", &code, 0)];
    running.handle().create(RuntimePlan { offcodes, ..RuntimePlan::default() })?;
    Ok(json!({ "unknown": unknown, "known": trips.load(Ordering::Relaxed) }))
}
