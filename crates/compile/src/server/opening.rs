//! A client's sandbox that is being opened, by a thread: starting a process takes time, and longer
//! where a disk hangs or the process is stopped. Other clients are served meanwhile.
//!
//! The thread notices itself when the process hangs; here it is noticed when the thread does.

use super::client_sandbox::{ClientSandbox, ClientSandboxError};
use crate::sandbox::{HANG_MAX, StartWatch};
use outboard_cluster::waker::Waker;
use rustix::thread::gettid;
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

/// What comes of opening a sandbox.
pub(crate) type Opened = Result<ClientSandbox, ClientSandboxError>;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Opening {
    opened: mpsc::Receiver<Opened>,
    /// Which thread it is, once that runs.
    thread: Arc<OnceLock<u32>>,
    watch: Option<StartWatch>,
    /// It hangs, and its jobs know.
    is_hung: bool,
}

/// How far it is.
pub(crate) enum OpeningProgress {
    UnderWay,
    /// Jobs do not wait for it.
    Hung,
    Over(Box<Opened>),
}

impl Opening {
    /// Has a thread open a sandbox, and wake the loop then.
    pub(crate) fn begin(
        open: impl FnOnce() -> Opened + Send + 'static,
        waker: Waker,
    ) -> Result<Self, ClientSandboxError> {
        let (reply, opened) = mpsc::channel();
        let thread = Arc::new(OnceLock::new());
        let this = Arc::clone(&thread);
        let work = move || {
            let _new = this.set(gettid().as_raw_nonzero().get().unsigned_abs());
            // The client may have gone meanwhile: then the sandbox ends here.
            let _sent = reply.send(open());
            waker.wake();
        };
        thread::Builder::new().name("outboard-open".into()).spawn(work)?;
        Ok(Self { opened, thread, watch: None, is_hung: false })
    }

    pub(crate) fn is_hung(&self) -> bool {
        self.is_hung
    }

    /// [`OpeningProgress::Hung`] is returned once.
    pub(crate) fn poll(&mut self, now: Instant) -> OpeningProgress {
        match self.opened.try_recv() {
            Ok(opened) => OpeningProgress::Over(Box::new(opened)),
            Err(TryRecvError::Disconnected) => {
                OpeningProgress::Over(Box::new(Err(ClientSandboxError::NoSandbox)))
            }
            Err(TryRecvError::Empty) => {
                if self.hangs(now) && !std::mem::replace(&mut self.is_hung, true) {
                    OpeningProgress::Hung
                } else {
                    OpeningProgress::UnderWay
                }
            }
        }
    }

    fn hangs(&mut self, now: Instant) -> bool {
        // A thread that has not begun waits for a processor.
        let Some(thread) = self.thread.get() else { return false };
        self.watch.get_or_insert_with(|| StartWatch::new(*thread, HANG_MAX)).hangs(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Polls until it hangs or is over.
    fn outcome(opening: &mut Opening) -> OpeningProgress {
        let begin = Instant::now();
        loop {
            match opening.poll(Instant::now()) {
                OpeningProgress::UnderWay => {
                    assert!(begin.elapsed() < Duration::from_secs(60), "nothing is noticed");
                    thread::sleep(Duration::from_millis(10));
                }
                other => return other,
            }
        }
    }

    #[test]
    fn a_thread_that_hangs_is_noticed_once_and_may_still_end() {
        let (go_on, hang) = mpsc::channel::<()>();
        let open = move || {
            let _gone = hang.recv();
            Err(ClientSandboxError::NoSandbox)
        };
        let mut opening = Opening::begin(open, Waker::new().expect("a waker")).expect("a thread");
        while opening.thread.get().is_none() {
            thread::yield_now();
        }
        assert!(matches!(opening.poll(Instant::now()), OpeningProgress::UnderWay));
        let thread = *opening.thread.get().expect("it has begun");
        opening.watch = Some(StartWatch::new(thread, Duration::from_millis(300)));
        assert!(matches!(outcome(&mut opening), OpeningProgress::Hung) && opening.is_hung());
        assert!(matches!(opening.poll(Instant::now()), OpeningProgress::UnderWay));
        drop(go_on);
        assert!(matches!(outcome(&mut opening), OpeningProgress::Over(_)));
    }
}
