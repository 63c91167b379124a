//! Offcodes, channels, layouts and devices: HYDRA's offloading framework.
//!
//! A program is written as offcodes; where they run is written apart from it, in a layout, and the
//! runtime puts them there: into the program, onto a core of their own, next to a node's memory,
//! into the kernel's receive path. No native code crosses machines, and no offcode reaches anything
//! but its own memory, its channels and what its description says.
//!
//! Modules in reading order: [`describe`] (what offcodes and applications are, as files say it),
//! [`request`] (what the runtime and devices say to each other),
//! [`device`] (offcodes on one device, as a value), [`frames`] and [`serve`] (a device's loop),
//! [`devices`] (what runs that loop: threads, processes, nodes), [`runtime`] (the application's
//! side: it creates, connects, moves and watches).

#![forbid(unsafe_code)]

pub mod control;
pub mod describe;
pub mod device;
pub mod devices;
pub mod frames;
pub mod launch;
pub mod measure;
pub mod planning;
pub mod request;
pub mod runtime;
pub mod serve;
pub mod service;
pub mod testing;
