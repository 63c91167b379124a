//! The executor that hands the manager's jobs to servers over the network.

mod counters;
mod error_log;
mod files;
mod places;
mod refusals;
mod result_buffer;
mod roots;
mod scheduler;
mod server_pool;

pub use counters::ManagerCounters;
pub use outboard_cluster::pool::Dial;
pub use server_pool::{ServerPool, ServerPoolError};
