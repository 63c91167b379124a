//! Events as programs see them (rdma_get_cm_event(3)).

use super::id::CmId;
use crate::abi::{RDMA_CM_EVENT_CONNECT_REQUEST, rdma_cm_event, rdma_cm_event_type, rdma_cm_id};
use crate::guard::minus_one;
use crate::object::{Kind, Object, Shown, give, take};
use libc::{c_char, c_int};
use outboard_verbs::ConnectRequest;
use std::mem::offset_of;
use std::sync::Arc;

/// An event for the program.
#[derive(Debug)]
pub(crate) enum News {
    /// About an identifier that the program knows.
    Plain(Plain),
    /// A peer wants to connect to a listener.
    Request(Box<ConnectRequest>),
}

/// An event's contents.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    pub(crate) event: rdma_cm_event_type,
    /// 0, or what went wrong as a negative errno number.
    pub(crate) status: c_int,
    /// Reads and atomics that the peer may have under way.
    pub(crate) responder_resources: u8,
    /// Reads and atomics that the program may have under way.
    pub(crate) initiator_depth: u8,
    pub(crate) private_data: Vec<u8>,
}

impl Plain {
    /// An event without further contents.
    pub(crate) fn new(event: rdma_cm_event_type) -> Self {
        Self { event, ..Self::default() }
    }

    /// An event with a status.
    pub(crate) fn with_status(event: rdma_cm_event_type, status: c_int) -> Self {
        Self { event, status, ..Self::default() }
    }
}

/// An event that the program has.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CmEvent {
    shown: Shown<rdma_cm_event>,
    tag: Kind,
    /// The identifier that cannot be destroyed before this event is acknowledged: for requests, the
    /// listener.
    about: Arc<CmId>,
    /// The private data that the structure points to.
    private_data: Vec<u8>,
}

// SAFETY: the structure is the first field.
unsafe impl Object for CmEvent {
    type C = rdma_cm_event;
    const KIND: Kind = Kind::CmEvent;
    const OFFSET: usize = offset_of!(Self, shown);
    fn tag(&self) -> Kind {
        self.tag
    }
}

/// Makes an event for the program; `about` counts it.
pub(crate) fn publish(about: Arc<CmId>, id: *mut rdma_cm_id, news: Plain) -> *mut rdma_cm_event {
    let shown = Shown::<rdma_cm_event>::zeroed();
    about.unacknowledged.deliver();
    // SAFETY: no other code has the structure yet.
    let c = unsafe { &mut *shown.get() };
    (c.id, c.event, c.status) = (id, news.event, news.status);
    if news.event == RDMA_CM_EVENT_CONNECT_REQUEST {
        c.listen_id = about.pointer();
    }
    c.param.conn.responder_resources = news.responder_resources;
    c.param.conn.initiator_depth = news.initiator_depth;
    if !news.private_data.is_empty() {
        c.param.conn.private_data = news.private_data.as_ptr().cast();
        // The API has one byte for a length that may be larger.
        c.param.conn.private_data_len = u8::try_from(news.private_data.len()).unwrap_or(u8::MAX);
    }
    give(Box::new(CmEvent { shown, tag: Kind::CmEvent, about, private_data: news.private_data }))
}

/// rdma_ack_cm_event(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_ack_cm_event")]
pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    minus_one("rdma_ack_cm_event", || {
        take::<CmEvent>(event)?.about.unacknowledged.acknowledge(1);
        Ok(0)
    })
}

/// rdma_event_str(3).
#[unsafe(export_name = "outboard_rdma_event_str")]
pub extern "C" fn rdma_event_str(event: rdma_cm_event_type) -> *const c_char {
    let names = [
        c"RDMA_CM_EVENT_ADDR_RESOLVED",
        c"RDMA_CM_EVENT_ADDR_ERROR",
        c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        c"RDMA_CM_EVENT_ROUTE_ERROR",
        c"RDMA_CM_EVENT_CONNECT_REQUEST",
        c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        c"RDMA_CM_EVENT_CONNECT_ERROR",
        c"RDMA_CM_EVENT_UNREACHABLE",
        c"RDMA_CM_EVENT_REJECTED",
        c"RDMA_CM_EVENT_ESTABLISHED",
        c"RDMA_CM_EVENT_DISCONNECTED",
        c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        c"RDMA_CM_EVENT_MULTICAST_JOIN",
        c"RDMA_CM_EVENT_MULTICAST_ERROR",
        c"RDMA_CM_EVENT_ADDR_CHANGE",
        c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    ];
    let name = usize::try_from(event).ok().and_then(|event| names.get(event));
    name.unwrap_or(&c"UNKNOWN EVENT").as_ptr()
}
