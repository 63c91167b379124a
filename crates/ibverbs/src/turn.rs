//! The right of one thread to use an object over several calls in a row: a queue pair between
//! ibv_wr_start and ibv_wr_complete, a completion queue between ibv_start_poll and ibv_end_poll.
//! Other threads wait, as hardware's libraries let them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Turn {
    holder: Mutex<Option<ThreadId>>,
    free: Condvar,
}

impl Turn {
    fn holder(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn. A thread that has it already begins again.
    pub(crate) fn begin(&self) {
        let me = std::thread::current().id();
        let mut holder = self.holder();
        while holder.is_some_and(|other| other != me) {
            holder = self.free.wait(holder).unwrap_or_else(PoisonError::into_inner);
        }
        *holder = Some(me);
    }

    /// True when this thread has the turn.
    pub(crate) fn is_mine(&self) -> bool {
        *self.holder() == Some(std::thread::current().id())
    }

    /// Gives the turn back; false when this thread does not have it.
    pub(crate) fn end(&self) -> bool {
        let mut holder = self.holder();
        let mine = *holder == Some(std::thread::current().id());
        if mine {
            *holder = None;
            self.free.notify_one();
        }
        mine
    }
}
