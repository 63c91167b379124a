//! A compiler's stand-in: it asks the manager whether a job runs elsewhere, writes what comes back,
//! or becomes the compiler.
//!
//! It is started once for each file of a build, so it does nothing that the manager could do for
//! all of them: it reads no configuration, opens no file of the job, and knows no network. Whatever
//! goes wrong between it and the manager, the compiler runs at home.
//!
//! Modules in reading order: [`wire`] (what the two say to each other), [`place`] (where they
//! meet), [`real`] (which compiler is meant), `start` (a manager when there is none), `source` (a
//! preprocessed source for it), [`wrapper`] (the program).

pub mod place;
pub mod real;
mod source;
mod start;
pub mod wire;
pub mod wrapper;
