//! The thread that dials and answers for one context. It sleeps until the connection manager or a
//! program's thread has something for it, and ends with the context. It starts with the context's
//! first queue pair, because programs like to fork before they make any.

use super::Peer;
use super::hello::{Hello, QpName, Refusal, other_version};
use super::table::{Call, Table, Task};
use crate::config::config;
use crate::guard::{Outcome, fail};
use outboard_verbs::{
    Bound, CmChannel, CmEvent, CmEventKind, ConnectError, ConnectParams, ConnectRequest, Context,
    VerbsError,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long one attempt may take: longer than the other side keeps a Request.
const ATTEMPT: Duration = Duration::from_secs(15);

/// See the [module](self). Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    channel: CmChannel,
    wake: OwnedFd,
    table: Mutex<Table>,
    /// Notified whenever a queue pair is no longer busy.
    idle: Condvar,
}

impl Worker {
    pub(super) fn start(native: &Context, address: Ipv4Addr) -> Result<Self, VerbsError> {
        let system = |what| move |source| VerbsError::System { what, source, hint: "" };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(io::Error::from)
            .map_err(system("cannot make an event descriptor"))?;
        let channel = native.create_cm_channel()?;
        let (table, idle) = (Mutex::new(Table::new(address)), Condvar::new());
        let shared = Arc::new(Shared { channel, wake, table, idle });
        let run = {
            let shared = Arc::clone(&shared);
            move || shared.run()
        };
        let thread = std::thread::Builder::new()
            .name("outboard-roce".into())
            .spawn(run)
            .map_err(system("cannot start the thread that connects queue pairs"))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(super) fn reserve(&self, native: &Context) -> Result<u32, VerbsError> {
        self.shared.table().reserve(native, &self.shared.channel)
    }

    pub(super) fn release(&self, number: u32) {
        let held = self.shared.free_table(number).release(number);
        if let Some(request) = held {
            refuse(request, Refusal::Unknown);
        }
    }

    pub(super) fn connect(&self, ours: u32, theirs: QpName, peer: Arc<dyn Peer>) -> Outcome<()> {
        let mut table = self.shared.free_table(ours);
        if table.is_ours(theirs, ours) {
            // One native queue pair has one end of a connection.
            say!("a queue pair cannot be connected to itself; make two");
            return fail(libc::EOPNOTSUPP);
        }
        if !table.aim(ours, theirs, peer) {
            return fail(libc::EINVAL);
        }
        drop(table);
        self.shared.wake();
        Ok(())
    }

    pub(super) fn disconnect(&self, ours: u32) {
        self.shared.free_table(ours).forget(ours);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.table().stopped = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; no thread is left to be told.
            let _ended = thread.join();
        }
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table, once the thread does not work on this queue pair.
    fn free_table(&self, number: u32) -> MutexGuard<'_, Table> {
        let table = self.table();
        let free = self.idle.wait_while(table, |table| table.busy == Some(number));
        free.unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // The counter cannot overflow in any life time; a full one is readable, too.
        let _wrote = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn run(&self) {
        block_signals();
        loop {
            let limit = self.table().quiet_for(Instant::now());
            self.sleep(limit);
            while let Some(event) = self.channel.try_next() {
                self.handle(event);
            }
            loop {
                let mut table = self.table();
                if table.stopped {
                    return;
                }
                let Some(task) = table.next_task(Instant::now()) else { break };
                drop(table);
                self.perform(task);
            }
        }
    }

    fn sleep(&self, limit: Option<Duration>) {
        let readable = PollFlags::IN;
        let mut fds = [PollFd::new(&self.channel, readable), PollFd::new(&self.wake, readable)];
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // An interrupted sleep is a short one.
        let _ready = poll(&mut fds, limit.as_ref());
        let _count = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    fn handle(&self, event: CmEvent) {
        let (native, now) = (event.qp, Instant::now());
        match event.kind {
            CmEventKind::ConnectRequest(request) => self.ask(request, now),
            CmEventKind::Connected(_) => {
                let call = self.table().connected(native);
                self.tell(call, |peer| peer.connected());
            }
            CmEventKind::Failed(error) => {
                if let ConnectError::Rejected { peer, private_data } = &error {
                    note_version(*peer, private_data);
                }
                let call = self.table().failed(native, &error, now);
                self.tell(call, |peer| peer.failed());
            }
            CmEventKind::Disconnected => {
                let call = self.table().lost(native);
                self.tell(call, |peer| peer.lost());
            }
            CmEventKind::Established => {}
        }
    }

    fn ask(&self, request: ConnectRequest, now: Instant) {
        let peer = request.peer_addr();
        let refused = match Hello::parse(request.private_data()) {
            Some(hello) if is_from(peer, hello) => self.table().ask(hello, request, now),
            _ => {
                note_version(peer, request.private_data());
                Some((request, Refusal::Unknown))
            }
        };
        if let Some((request, refusal)) = refused {
            refuse(request, refusal);
        }
    }

    fn perform(&self, task: Task) {
        match task {
            Task::Accept(call, request) => self.accept(call, request),
            Task::Dial(call, to, hello) => self.dial(call, to, hello),
            Task::Fail(call) => self.tell(Some(call), |peer| {
                // Gives up an attempt that may be under way.
                peer.native().disconnect();
                peer.failed();
            }),
            Task::Refuse(request, refusal) => refuse(request, refusal),
        }
    }

    /// Calls a function for a queue pair, and then releases it to waiting threads.
    fn tell(&self, call: Option<Call>, what: impl FnOnce(&dyn Peer)) {
        // In this order: the queue pair is released before a waiting thread may destroy it.
        let _busy = Busy(self);
        if let Some(Call { peer, .. }) = call {
            what(&*peer);
        }
    }

    fn accept(&self, call: Call, request: ConnectRequest) {
        let number = call.number;
        self.tell(Some(call), |peer| {
            let accepted = request.accept_on(peer.native(), &params(&[]), &self.channel);
            let result = accepted.as_ref().map(|_| ()).map_err(|refused| &refused.error);
            self.table().done(number, result, Instant::now());
            if accepted.is_ok() {
                peer.connected();
            }
        });
    }

    fn dial(&self, call: Call, to: SocketAddr, hello: Hello) {
        let number = call.number;
        self.tell(Some(call), |peer| {
            let params = params(&hello.emit());
            // The other side checks this side's address.
            let from = Bound::new((hello.from.address, 0).into()).map_err(ConnectError::Verbs);
            let begun = from.and_then(|from| {
                peer.native().start_connect_from(from, to, &params, &self.channel)
            });
            self.table().done(number, begun.as_ref().map(|_| ()), Instant::now());
        });
    }
}

/// The thread works on a queue pair until this is dropped (also by a panic).
struct Busy<'a>(&'a Shared);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.table().busy = None;
        self.0.idle.notify_all();
    }
}

/// Whether a dialer's address is the one in its message: a number is easily forged, an address is
/// not.
fn is_from(peer: SocketAddr, hello: Hello) -> bool {
    static SAID: AtomicBool = AtomicBool::new(false);
    let said = hello.from.address;
    let is_true = peer.ip() == said;
    if !is_true && !SAID.swap(true, Ordering::Relaxed) {
        say!("a queue pair that says it is at {said} comes from {peer}, and is refused");
    }
    is_true
}

/// Prints a message, once, if the peer's private data are of another version.
fn note_version(peer: SocketAddr, private_data: &[u8]) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if other_version(private_data).is_some() && !SAID.swap(true, Ordering::Relaxed) {
        say!("the peer {peer} is another version of Outboard; both ends must be the same");
    }
}

/// Either side may send first, and both may have as many Reads under way as the stack allows.
fn params(private_data: &[u8]) -> ConnectParams {
    ConnectParams {
        private_data: private_data.to_vec(),
        peer_to_peer: true,
        timeout: ATTEMPT,
        crc: config().crc,
        ..ConnectParams::default()
    }
}

fn refuse(request: ConnectRequest, refusal: Refusal) {
    // A dialer that has gone needs no answer.
    let _sent = request.reject(&refusal.emit());
}

/// The program's signals are for its own threads.
fn block_signals() {
    // SAFETY: `all` is written before it is read, and the call changes this thread only.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}
