//! Memory that the service reads a client's bytes from and writes results to: a bounded number of
//! buffers, which requests borrow.
//!
//! A buffer whose request was given up comes back when that request is over, and not before: the
//! service may reach into it until then.

use outboard_active::ResultMemory;
use outboard_verbs::SharedRegion;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of a buffer: a read or write of the largest size, with what is before it.
pub(super) const BUFFER_LEN: usize = super::TRANSFER_MAX + 4096;

/// A buffer, and its name at the client.
#[derive(Clone, Debug)]
pub(super) struct TransferBuffer {
    pub(super) region: SharedRegion,
    pub(super) memory: ResultMemory,
}

/// Buffers that are free, and how many were made.
#[derive(Debug, Default)]
struct FreeBuffers {
    free: Vec<TransferBuffer>,
    made: usize,
}

/// What a caller that wants a buffer gets.
#[derive(Debug)]
pub(super) enum BufferGrant {
    /// This one.
    Ready(TransferBuffer),
    /// The right to make one.
    Make,
    /// None, within the time that it would wait.
    None,
}

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct BufferPool {
    buffers: Mutex<FreeBuffers>,
    freed: Condvar,
    most: usize,
}

impl BufferPool {
    pub(super) fn new(most: usize) -> Self {
        Self { buffers: Mutex::default(), freed: Condvar::new(), most: most.max(1) }
    }

    pub(super) fn take(&self, wait: Duration) -> BufferGrant {
        let buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let has_none =
            |buffers: &mut FreeBuffers| buffers.free.is_empty() && buffers.made >= self.most;
        let waited = self.freed.wait_timeout_while(buffers, wait, has_none);
        let (mut buffers, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(buffer) = buffers.free.pop() {
            return BufferGrant::Ready(buffer);
        }
        if buffers.made >= self.most {
            return BufferGrant::None;
        }
        buffers.made += 1;
        BufferGrant::Make
    }

    pub(super) fn give(&self, buffer: TransferBuffer) {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.free.push(buffer);
        drop(buffers);
        self.freed.notify_one();
    }

    /// A buffer is no more, or was not made: another one may be.
    pub(super) fn lose(&self) {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.made = buffers.made.saturating_sub(1);
        drop(buffers);
        self.freed.notify_one();
    }
}
