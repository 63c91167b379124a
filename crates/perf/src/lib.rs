//! Measures verbs over the software RDMA NIC, and raw TCP beside them in the same harness.
//!
//! Each client tells the [`Server`] which test to run, in the private data of the test's
//! connections; a client [`run`]s one test and gets a [`Report`]. It never trusts a peer's numbers,
//! never serves memory outside the buffers of a test, and draws nothing: that is the program's job.
//!
//! Modules in reading order: [`plan`] (what a test is), [`proto`] (messages of the two sides),
//! [`measure`] (goals and clocks), `side` (queue pairs and waiting), `latency` and `stream` (the
//! timed loops), `tcp` (the same without RDMA), `connect` (connections themselves), [`client`],
//! [`server`], [`report`], [`error`].

#![forbid(unsafe_code)]

pub mod client;
mod connect;
pub mod error;
mod latency;
pub mod measure;
pub mod plan;
pub mod proto;
pub mod report;
pub mod server;
mod side;
mod stream;
mod tcp;

pub use client::run;
pub use connect::compute;
pub use error::PerfError;
pub use measure::{Goal, Progress, pin};
pub use plan::{Test, TestKind, TestOperation, TestPlan, Wait};
pub use report::Report;
pub use server::Server;

/// The port that servers listen on unless told otherwise.
pub const DEFAULT_PORT: u16 = 7471;
