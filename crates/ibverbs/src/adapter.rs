//! An open device: its engine and what the program has made on it. Every object keeps its adapter,
//! so that none of them has to look up a context, which may have been closed or replaced by another
//! one.

use crate::cq::lock;
use crate::device::Device;
use crate::guard::{Outcome, fail};
use crate::mr::Registration;
use crate::qp::QpRequests;
use crate::roce::Roce;
use outboard_verbs::Context as Native;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Adapter {
    /// The engine and everything on it.
    pub(crate) native: Native,
    pub(crate) device: &'static Device,
    /// C pointers (as addresses) of queue pairs by number, for events and completions.
    pub(crate) qps: Mutex<HashMap<u32, usize>>,
    /// The same of completion queues.
    pub(crate) cqs: Mutex<HashMap<u32, usize>>,
    /// The same of shared receive queues.
    pub(crate) srqs: Mutex<HashMap<u32, usize>>,
    /// Numbers and connections of queue pairs in the personality roce.
    pub(crate) roce: Roce,
    /// Objects that use the program's memory; `None` once the device is closed.
    live: Mutex<Option<Live>>,
}

/// By number, and memory by key.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) qps: HashMap<u32, Arc<QpRequests>>,
    pub(crate) mrs: HashMap<u32, Arc<Registration>>,
}

impl Adapter {
    pub(crate) fn new(native: Native, device: &'static Device) -> Self {
        Self {
            native,
            device,
            qps: Mutex::default(),
            cqs: Mutex::default(),
            srqs: Mutex::default(),
            roce: Roce::default(),
            live: Mutex::new(Some(Live::default())),
        }
    }

    /// Registers something that ends with the device.
    ///
    /// # Errors
    /// EINVAL when the device is closed.
    pub(crate) fn keep<T>(&self, note: impl FnOnce(&mut Live) -> T) -> Outcome<T> {
        lock(&self.live).as_mut().map_or_else(|| fail(libc::EINVAL), |live| Ok(note(live)))
    }

    /// Ends every connection and every registration: nothing of the program's memory is touched
    /// after this, whatever the program has left open.
    pub(crate) fn close(&self) {
        let Some(live) = lock(&self.live).take() else { return };
        // First, because it connects queue pairs.
        self.roce.stop();
        live.qps.values().for_each(|qp| qp.close());
        live.mrs.values().for_each(|mr| mr.end());
    }
}
