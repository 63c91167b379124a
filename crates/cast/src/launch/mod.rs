//! Receivers that a cast starts itself: inside a Slurm job by `srun`, elsewhere by `ssh`.
//!
//! The source makes a key for this cast and starts `outboard cast-receiver` on every node, with the
//! key on standard input: it stands in no argument, no environment and no file. A receiver listens,
//! writes one line that says where, serves one cast below one directory as the user that it runs
//! as, and ends when the cast is over or its standard input is closed. It lets only the
//! source that started it begin a cast, so that reading the key on its way gives no rights here.
//!
//! Modules in reading order: `node_file` (hosts of PBS and mpiexec), `slurm` (a job), `way` (the
//! commands that start receivers), `invitation` (what a receiver reads), `announcement` (what it
//! writes), `address` (where it listens), `receiver` (its process), `child` (a command under way),
//! `launched` (the source's side of all), `exec` (programs that start once their files are there).

mod address;
mod announcement;
mod child;
mod error;
mod exec;
mod invitation;
mod launched;
mod node_file;
mod receiver;
mod slurm;
mod way;

pub use error::LaunchError;
pub use exec::{ExecProgram, ExecResult};
pub use invitation::MissingDestination;
pub use launched::{LaunchRequest, LaunchedReceivers};
pub use node_file::NodeFile;
pub use receiver::receive;
pub use slurm::SlurmJob;
pub use way::LaunchWay;

/// The hidden command that makes the program a receiver.
pub const RECEIVER_COMMAND: &str = "cast-receiver";
