//! A node's service `offload`: each client has a device of its own there, for as long as its
//! session lasts.
//!
//! The service's loop only passes frames between a session and the device's thread; offcodes run on
//! that thread, and one client's offcodes hold up no other's. Nothing of a client is left when its
//! session ends. What a client may have is in the node's table.
//!
//! Files in reading order: [`pieces`] (frames in messages of a session), `table`, `entry`,
//! `sessions`.

mod entry;
pub mod pieces;
mod sessions;
mod table;

pub use entry::{check_table, hub_options, serve};
pub use sessions::OffloadService;
pub use table::OffloadLimits;
