//! A stand-in for a compiler: does what the real one did when it was watched, without the work.
//!
//! It opens and reads the files that the compiler opened, repeats its other look-ups, waits as
//! long as it computed without using a processor, and writes what it wrote. So many emulated
//! servers fit on few processors, and everything around the compiler can be measured. For
//! development only: it compiles nothing, and what it was not shown is an error.
//!
//! In reading order:
//! - [`command`]: what a command line asks for;
//! - [`record`]: what was seen of one compilation, and the file it is kept in;
//! - [`place`]: the directory that a stand-in lives in, with its records and settings;
//! - [`play`]: doing it again.
#![forbid(unsafe_code)]

pub mod command;
pub mod place;
pub mod play;
pub mod record;
