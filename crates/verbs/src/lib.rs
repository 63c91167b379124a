//! Verbs over user-space iWARP: a software RDMA NIC inside the process.
//!
//! It owns every socket, thread and clock of the stack; protocol lives in `outboard-iwarp`,
//! memory in `outboard-mem`. It never runs an application's code on the engine's thread, and
//! never lets a peer reach memory without the checks of the STag table.
//!
//! ```
//! use outboard_verbs::{Access, ConnectParams, Context, QpConfig, SendOp, SendRequest};
//! use outboard_verbs::{SgList, SharedRegion};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = Context::open()?;
//! let pd = context.alloc_pd();
//! let target = pd.register(SharedRegion::zeroed(4096)?, Access::REMOTE_WRITE)?;
//! let listener = context.listen("127.0.0.1:0".parse()?, 16)?;
//!
//! let cq = context.create_cq(64);
//! let (client, server) = (pd.create_qp(QpConfig::new(&cq))?, pd.create_qp(QpConfig::new(&cq))?);
//! let params = ConnectParams::default();
//! let events = context.create_cm_channel()?;
//! client.start_connect(listener.local_addr(), &params, &events)?;
//! let request = listener.next_request(None).ok_or("no peer")?;
//! request.accept(&server, &params)?;
//! events.next(None);
//!
//! let write = SendOp::Write { to: target.remote(100) };
//! let write = SendRequest::new(1, write, SgList::copied(b"hello"));
//! client.post_send(write)?;
//! cq.wait(&mut Vec::new(), 1, None)?;
//! let arrived = || target.memory().snapshot(100..105).is_ok_and(|bytes| bytes == b"hello");
//! assert!(context.wait_until(None, arrived));
//! # Ok(()) }
//! ```
//!
//! Modules in reading order: [`context`], [`pd`], [`mr`], [`qp`] with [`state`] and [`ended`],
//! [`cq`] with `poll_interval`, `yielding` and `away`, [`srq`], [`channel`], [`event`], [`cm`],
//! [`tap`], `engine`, `signal`, [`error`].

// `--cfg loom` builds the models of `engine/role`.
#![allow(unexpected_cfgs)]

mod away;
pub mod channel;
pub mod cm;
pub mod context;
pub mod cq;
pub mod ended;
mod engine;
pub mod error;
pub mod event;
pub mod mr;
pub mod pd;
mod poll_interval;
pub mod qp;
mod signal;
pub mod srq;
pub mod state;
pub mod tap;
mod yielding;

pub use channel::CompChannel;
pub use cm::{
    Bound, CmChannel, CmEvent, CmEventKind, ConnectParams, ConnectRequest, Connected, FpduPolicy,
    Listener, NotAccepted, Role, Secured, StreamError,
};
pub use context::Context;
pub use cq::{Cq, Flushed, NotifyOn};
pub use ended::{EndReason, Ended};
pub use engine::adaptive_spin::AdaptiveSpin;
pub use engine::counters::EngineCounters;
pub use error::{ConnectError, CqOverflow, Refused, VerbsError};
pub use event::AsyncEvent;
pub use mr::Mr;
pub use outboard_iwarp::work::{
    Completion, Operation, RecvRequest, Remote, SendOp, SendRequest, Status,
};
pub use outboard_iwarp::{PostError, RnrPolicy};
pub use outboard_mem::{
    Access, LazyFill, MemError, OwnedBuf, Segment, SgList, SharedRegion, SharedSlice, Space,
};
pub use outboard_wire::ddp::Stag;
pub use outboard_wire::terminate::TerminateCode;
pub use pd::Pd;
pub use qp::{Qp, QpConfig};
pub use srq::Srq;
pub use state::QpState;
