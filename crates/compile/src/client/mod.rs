//! The client's side of the network: a farm of servers for the manager's loop.

mod board;
mod complaints;
mod farm;
mod lines;
mod places;
mod results;
mod roots;

pub use farm::{Cluster, FarmError};
pub use lines::Dial;
