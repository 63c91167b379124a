//! The compiler wrapper: it asks the manager whether a job runs remotely, and then either writes
//! the remote compiler's output and status, or becomes the local compiler.
//!
//! It starts once for each file of a build, so it does nothing that the manager could do for all of
//! them: it reads no configuration, opens no file of the job, and does not use the network. If
//! anything goes wrong between wrapper and manager, the compiler runs locally.
//!
//! Modules in reading order: [`wire`] (the messages between wrapper and manager), [`place`] (the
//! directory of the manager's socket), [`real`] (finds the real compiler), `start` (starts a
//! manager), [`leftovers`] (of managers that were killed), `source` (preprocesses a source for the
//! manager), [`wrapper`] (the program).

pub mod leftovers;
pub mod place;
pub mod real;
mod source;
mod start;
pub mod wire;
pub mod wrapper;

pub use start::settle;
