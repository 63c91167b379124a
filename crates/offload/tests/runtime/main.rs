//! The runtime with builtin offcodes on devices that are threads: applications begin and end,
//! messages stay in order while offcodes move, and whatever dies is said to be gone.
//!
//! No test waits for a time to pass but for limits of the runtime itself.

mod calls;
mod lost;
mod moves;
mod starts;
mod support;
