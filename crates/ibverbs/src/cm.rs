//! librdmacm: event channels, identifiers, connections (rdma_cm(7)).
//!
//! Identifiers stand for TCP addresses of devices and for connections of the stack. Ports and
//! states, which the kernel's connection manager handles for hardware, are handled here, per
//! process. Each entry is exported as `outboard_` and its name; librdmacm.so.1 jumps there. Port
//! space
//! `RDMA_PS_TCP` only; multicast and datagrams are refused.
//!
//! Modules in reading order: `address`, `port` (RDMA's among TCP's), [`nic`] (devices, opened
//! once), [`channel`] (events on their way to the program), `event_queue`, [`event`], [`id`],
//! [`resolve`] (bind, resolve, listen), [`connect`] (connect, accept, disconnect), `news` (events
//! of the engine), [`queues`] (queue pairs of identifiers), [`endpoint`] (synchronous identifiers),
//! [`addrinfo`], [`extras`].

mod address;
pub mod addrinfo;
pub mod channel;
pub mod connect;
pub mod endpoint;
pub mod event;
mod event_queue;
pub mod extras;
pub mod id;
pub(crate) mod news;
pub mod nic;
mod port;
pub mod queues;
pub mod resolve;
#[cfg(test)]
mod tests;
