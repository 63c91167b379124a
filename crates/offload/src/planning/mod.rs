//! Where the offcodes of an application run: from what files say and this machine has, to a layout
//! with its reasons, to what the runtime carries out.
//!
//! It starts nothing and moves nothing.
//!
//! Modules in reading order: [`machine`] (devices that are there, and why others are not),
//! [`costs`] (what channels cost), `problem` (the question to the solver), [`layout`] (its answer,
//! in words and as the runtime takes it).

pub mod costs;
pub mod layout;
pub mod machine;
mod problem;

#[cfg(test)]
mod tests;

pub use costs::{CarrierCosts, ChannelCosts};
pub use layout::{AppLayout, LayoutFault};
pub use machine::{Machine, MachineDevice};
