//! Both halves on real files: a client exports a directory, a server reads its region.

mod doubt;
mod files;
mod limits;
mod model;
mod mounts;
mod rig;
