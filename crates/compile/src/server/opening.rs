//! A client's sandbox that is being opened, by a thread: starting a process takes time, and longer
//! where a disk hangs or the process is stopped. Other clients are served meanwhile.

use super::client_sandbox::{ClientSandbox, ClientSandboxError};
use crate::sandbox::SET_UP_MAX;
use outboard_cluster::waker::Waker;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::Instant;

/// What comes of opening a sandbox.
pub(crate) type Opened = Result<ClientSandbox, ClientSandboxError>;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Opening {
    opened: mpsc::Receiver<Opened>,
    since: Instant,
    /// It has taken too long, and its jobs know.
    is_late: bool,
}

/// How far it is.
pub(crate) enum OpeningProgress {
    UnderWay,
    /// It takes too long: jobs do not wait for it.
    Late,
    Over(Box<Opened>),
}

impl Opening {
    /// Has a thread open a sandbox, and wake the loop then.
    pub(crate) fn begin(
        open: impl FnOnce() -> Opened + Send + 'static,
        waker: Waker,
        now: Instant,
    ) -> Result<Self, ClientSandboxError> {
        let (reply, opened) = mpsc::channel();
        let work = move || {
            // The client may have gone meanwhile: then the sandbox ends here.
            let _sent = reply.send(open());
            waker.wake();
        };
        thread::Builder::new().name("outboard-open".into()).spawn(work)?;
        Ok(Self { opened, since: now, is_late: false })
    }

    pub(crate) fn is_late(&self) -> bool {
        self.is_late
    }

    /// [`OpeningProgress::Late`] is returned once.
    pub(crate) fn poll(&mut self, now: Instant) -> OpeningProgress {
        match self.opened.try_recv() {
            Ok(opened) => OpeningProgress::Over(Box::new(opened)),
            Err(TryRecvError::Disconnected) => {
                OpeningProgress::Over(Box::new(Err(ClientSandboxError::NoSandbox)))
            }
            Err(TryRecvError::Empty) => {
                // The thread has the same limit for what it waits for, and says more.
                let patience = SET_UP_MAX + SET_UP_MAX / 2;
                let is_over = now.saturating_duration_since(self.since) > patience;
                if is_over && !std::mem::replace(&mut self.is_late, true) {
                    OpeningProgress::Late
                } else {
                    OpeningProgress::UnderWay
                }
            }
        }
    }
}
