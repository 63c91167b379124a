//! Two iWARP connections on a virtual network and clock, for tests and fuzzing; and active code on
//! networks and network cards that no machine here has.
//!
//! The code under test is the very [`outboard_iwarp::Connection`] that runs on TCP. What crosses
//! is decoded independently with `outboard-wire` and kept as text, so that a test reads as a
//! packet trace. This crate is for development only: it never opens a socket or waits, starts no
//! thread (but [`active`]'s executor has its own), and panics when the code under test breaks a
//! promise to its driver.
//!
//! Modules in reading order:
//! * [`side`]: one connection with its memory, receives and completions;
//! * [`trace`]: bytes of a stream to FPDUs to lines of text;
//! * [`chunk`]: how much TCP moves at a time;
//! * [`pair`]: two sides and the network between them;
//! * [`lone`]: one side against bytes written by hand;
//! * [`hostile`]: one side against arbitrary bytes;
//! * [`intruder`]: handshakes and sessions with an attacker in between;
//! * [`metadata_log`]: a server's knowledge of files against any log;
//! * [`script`]: random operations against a model of memory;
//! * [`pcap`]: captured TCP streams, for replaying bytes of other implementations;
//! * [`active`]: the simulation of the paper "Active RDMA".

#![forbid(unsafe_code)]

pub mod active;
pub mod chunk;
pub mod hostile;
pub mod intruder;
pub mod lone;
pub mod metadata_log;
pub mod pair;
pub mod pcap;
pub mod script;
pub mod side;
pub mod trace;

pub use chunk::Chunks;
pub use lone::Lone;
pub use pair::{End, Pair, Setup, SideSetup};
pub use side::{Mr, Side};
