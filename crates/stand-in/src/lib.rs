//! A stand-in for a compiler: repeats what the real one was recorded doing, without the
//! computation.
//!
//! It opens and reads the files that the compiler opened, repeats its other look-ups, sleeps as
//! long as the compiler computed, and writes what the compiler wrote. Many emulated servers thus
//! fit on few processors, and everything around the compiler can be measured. For development only:
//! it compiles nothing, and a command without a record is an error.
//!
//! In reading order:
//! - [`command`]: the compilation that a command line asks for;
//! - [`record`]: the recording of one compilation, and its file format;
//! - [`place`]: the directory of a stand-in, with its records and settings;
//! - [`play`]: the replay of a record.
#![forbid(unsafe_code)]

pub mod command;
pub mod place;
pub mod play;
pub mod record;
