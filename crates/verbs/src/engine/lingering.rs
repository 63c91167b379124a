//! Streams whose queue pairs have given them up: the remaining bytes are sent, then FIN; then bytes
//! from the peer are received and dropped until its FIN, or until nothing moves any more. A link
//! here holds copies only, no memory of the program's.
//!
//! Everything is bounded: streams by [`STREAMS_MAX`], where the oldest goes first, bytes by
//! [`Link`], time by its [`Ending`](super::ending::Ending) and the connection's own limit.

use super::ending::{EndEvent, Stepped};
use super::link::Link;
use super::{Engine, EventSource};
use crate::cm::{CmEventKind, CmShared};
use crate::context::Core;
use crate::signal::lock;
use outboard_iwarp::Env;
use outboard_iwarp::work::{Receives, RecvRequest};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Streams that linger at a time: each holds a descriptor.
const STREAMS_MAX: usize = 256;
/// How long the end of a context waits for them, all together.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);
/// How often it asks whether the peers' TCP has everything: the kernel has no event for that.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// See the [module](self). The oldest is in front.
#[derive(Debug, Default)]
pub(crate) struct Lingering {
    streams: Mutex<VecDeque<Arc<Stream>>>,
}

/// The channel of a program that is still to be told that a connection is over.
#[derive(Debug)]
pub(crate) struct EndNotifier {
    pub(crate) cm: Arc<CmShared>,
    pub(crate) qp: u32,
}

#[derive(Debug)]
struct Stream {
    token: u64,
    /// `None` once it is closed.
    link: Mutex<Option<Link>>,
    notifier: Mutex<Option<EndNotifier>>,
}

impl EndNotifier {
    pub(crate) fn report_end(self, engine: &Engine) {
        self.cm.push(self.qp, CmEventKind::Disconnected);
        engine.notify();
    }
}

impl Lingering {
    /// True when the peers' TCP has all that they will ever get.
    fn is_settled(&self) -> bool {
        let settled = |stream: &Arc<Stream>| lock(&stream.link).as_ref().is_none_or(Link::has_sent);
        let streams = lock(&self.streams).clone();
        streams.iter().all(settled)
    }

    /// Closes every socket, whatever is left to do.
    pub(crate) fn clear(&self) {
        let streams = std::mem::take(&mut *lock(&self.streams));
        drop(streams);
    }
}

impl Core {
    /// Takes over a stream whose connection has flushed its requests.
    pub(crate) fn linger(&self, mut link: Link, notifier: Option<EndNotifier>) {
        if notifier.is_none() {
            link.desert();
        }
        link.expect_hangup();
        let token = link.token;
        let (link, notifier) = (Mutex::new(Some(link)), Mutex::new(notifier));
        let stream = Arc::new(Stream { token, link, notifier });
        let mut streams = lock(&self.engine.lingering.streams);
        streams.push_back(Arc::clone(&stream));
        let crowded = streams.len() > STREAMS_MAX;
        let oldest = if crowded { streams.pop_front() } else { None };
        drop(streams);
        self.engine.replace(token, stream);
        // An event may have come for the queue pair since it gave the link away.
        self.engine.run_again(token);
        if let Some(oldest) = oldest {
            oldest.close(self);
        }
    }

    /// Before a context ends: waits until the peers' TCP has the remaining bytes.
    pub(crate) fn drain(self: &Arc<Self>) {
        let deadline = Instant::now() + DRAIN_LIMIT;
        // On the engine's own thread there is no other thread that could continue.
        while !self.engine.is_engine_thread() && !self.engine.lingering.is_settled() {
            let now = Instant::now();
            if now >= deadline {
                return;
            }
            self.wait_until(Some(deadline.min(now + LOOK_AGAIN)), || None::<()>);
        }
    }
}

impl Stream {
    /// Goes as far as the socket lets it.
    fn advance(&self, core: &Arc<Core>, work: impl FnOnce(&mut Link, &mut Env<'_>)) {
        let mut slot = lock(&self.link);
        let Some(link) = slot.as_mut() else { return };
        let (mut receives, mut completions) = (NoReceives, Vec::new());
        let mut env =
            Env { stags: &core.stags, receives: &mut receives, completions: &mut completions };
        work(link, &mut env);
        link.transmit(core, &mut env);
        link.forget_news();
        link.send_fin();
        match link.step_end() {
            None => link.arm_timer(core),
            Some(Stepped { to, tells }) => {
                if tells {
                    self.report_end(core);
                }
                if to == super::ending::StreamEnd::Closed {
                    drop(slot);
                    self.forget(core);
                } else {
                    link.arm_timer(core);
                }
            }
        }
    }

    /// Takes it off the list and closes it.
    fn forget(&self, core: &Core) {
        lock(&core.engine.lingering.streams).retain(|one| one.token != self.token);
        self.close(core);
    }

    /// Closes its socket: what TCP has goes on its way.
    fn close(&self, core: &Core) {
        if let Some(mut link) = lock(&self.link).take() {
            link.end(EndEvent::Expired);
            core.engine.remove(self.token, &link.socket);
        }
        self.report_end(core);
    }

    fn report_end(&self, core: &Core) {
        if let Some(notifier) = lock(&self.notifier).take() {
            notifier.report_end(&core.engine);
        }
    }
}

impl EventSource for Stream {
    fn on_ready(self: Arc<Self>, core: &Arc<Core>, _token: u64, hangup: bool) -> bool {
        self.advance(core, |link, env| {
            link.unblock();
            link.receive(core, hangup, env);
        });
        // No thread waits for these completions.
        false
    }

    fn on_timer(self: Arc<Self>, core: &Arc<Core>, _token: u64, now: Instant) {
        self.advance(core, |link, _| link.handle_timer(now));
    }
}

/// All receives have been flushed.
struct NoReceives;

impl Receives for NoReceives {
    fn pop(&mut self) -> Option<RecvRequest> {
        None
    }
}
