//! For processes that another process of this program starts and that must not outlive it.

use rustix::process::{Signal, set_parent_process_death_signal};
use std::io;

/// From now on this process gets SIGTERM when the thread that started it ends.
pub(crate) fn end_with_it() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
}
