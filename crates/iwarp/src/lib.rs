//! A sans-I/O iWARP connection: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040,
//! RFC 7306) as one plain value that takes bytes and time and yields bytes, completions and
//! events. The same code runs on TCP, in the simulator and under the fuzzer.
//!
//! It never opens a socket, starts a thread, reads the clock, or touches memory other than
//! through `outboard-mem`.
//!
//! Modules in reading order:
//! * [`work`]: requests and completions;
//! * [`startup`]: the MPA Request and Reply exchange;
//! * [`phase`]: the life of a connection, as a table;
//! * [`connection`]: the façade; `rx` and `place` (bytes in), `tx` and `batch` (bytes out),
//!   `send_queue` and `inbound` (responses that the peer owes us, and that we owe the peer),
//!   `ending` (how it ends) behind it;
//! * [`fault`]: what the peer did wrong and the Terminate that says so.

#![forbid(unsafe_code)]

mod batch;
pub mod connection;
mod ending;
pub mod fault;
mod inbound;
mod nudge;
mod parked;
pub mod phase;
mod place;
mod rx;
mod send_queue;
pub mod startup;
mod tx;
pub mod work;

#[cfg(test)]
mod tests;

pub use connection::{Connection, Env, Event, Params, PostError, RnrPolicy, TransmitLimits};
pub use ending::{CLOSE_LIMIT, RECEIVE_GRACE};
pub use phase::Phase;
pub use rx::Direct;
pub use tx::FPDU_OVERHEAD;
