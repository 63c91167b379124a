//! Notices of the service become the kernel's invalidations, on a thread of their own: a thread
//! that serves a request of a directory must not wait for the kernel to let go of that directory.

use super::inodes::InodeMap;
use super::known::KnownTree;
use crate::client::FsClient;
use crate::protocol::{FsInode, FsNote, FsNotice, StalePart};
use fuser::{INodeNo, Notifier};
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// The thread looks this often whether the client is still there.
const IDLE: Duration = Duration::from_secs(5);

/// What is told of an inode whose bytes others have changed.
pub(super) type TellOpen = Box<dyn Fn(FsInode) + Send>;

/// What is told of locks. It does not wait.
pub(super) type TellLocks = Box<dyn Fn(LockNotice) + Send + Sync>;

/// What the service says of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockNotice {
    /// One that waited under a number is granted.
    Granted(u64),
    /// All are lost.
    Lost,
}

/// What changed names, attributes or bytes.
#[derive(Debug)]
struct Invalidation {
    number: u64,
    inode: FsInode,
    what: StalePart,
    /// Inodes that had names there.
    named: Vec<FsInode>,
    /// When the kernel has none of these names any more.
    forgotten: Instant,
}

/// Has the client's notices handled until the client is gone.
pub(super) fn handle_notices(
    client: &Arc<FsClient>,
    (inodes, known): (Arc<Mutex<InodeMap>>, Arc<Mutex<KnownTree>>),
    kernel: Notifier,
    (tell, locks): (TellOpen, TellLocks),
) -> std::io::Result<()> {
    let (sender, notices): (Sender<Invalidation>, Receiver<Invalidation>) = channel();
    let sender = Mutex::new(sender);
    client.on_notice(Box::new(move |notice| match notice {
        FsNotice::Granted { wait } => locks(LockNotice::Granted(*wait)),
        FsNotice::LocksLost => locks(LockNotice::Lost),
        FsNotice::Invalidate { number, inode, what } => {
            let (number, inode, what) = (*number, *inode, *what);
            let (named, forgotten) = forget(&known, inode, what);
            let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
            // Where nobody receives, nothing is mounted any more.
            let _sent = sender.send(Invalidation { number, inode, what, named, forgotten });
        }
    }));
    let client = Arc::downgrade(client);
    let run = move || serve(&client, &inodes, &kernel, &tell, &notices);
    thread::Builder::new().name("fs-notices".into()).spawn(run).map(drop)
}

fn serve(
    client: &Weak<FsClient>,
    inodes: &Mutex<InodeMap>,
    kernel: &Notifier,
    tell: &TellOpen,
    notices: &Receiver<Invalidation>,
) {
    let mut answers = DueAnswers::default();
    loop {
        let Some(client) = client.upgrade() else { return };
        for number in answers.take(Instant::now()) {
            client.note(&FsNote::InvalidatedAck { number });
        }
        drop(client);
        let next = match notices.recv_timeout(answers.wait(Instant::now())) {
            Ok(next) => next,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let Invalidation { number, inode, what, named, forgotten } = next;
        let nodes = {
            let mut inodes = inodes.lock().unwrap_or_else(PoisonError::into_inner);
            if what == StalePart::Data {
                inodes.lose_kept(inode);
            }
            inodes.touch(inode);
            if what == StalePart::Names {
                inodes.moved();
            }
            let attributes = named.into_iter().filter_map(|one| inodes.node(one));
            (inodes.node(inode), attributes.collect::<Vec<_>>())
        };
        if what == StalePart::Data {
            tell(inode);
        }
        if let Some(node) = nodes.0 {
            invalidate(kernel, node, what);
        }
        nodes.1.into_iter().for_each(|node| invalidate(kernel, node, StalePart::Attr));
        answers.0.insert((forgotten, number));
    }
}

/// What the service is told that is forgotten, by when it is.
#[derive(Debug, Default)]
struct DueAnswers(BTreeSet<(Instant, u64)>);

impl DueAnswers {
    /// Those that are due.
    fn take(&mut self, now: Instant) -> Vec<u64> {
        let mut due = Vec::new();
        while let Some((_, number)) = self.0.first().filter(|(at, _)| *at <= now) {
            due.push(*number);
            self.0.pop_first();
        }
        due
    }

    /// How long until the next one is.
    fn wait(&self, now: Instant) -> Duration {
        self.0.first().map_or(IDLE, |(at, _)| at.saturating_duration_since(now))
    }
}

/// What is told is known no longer, before anybody asks again; inodes that had names there.
fn forget(known: &Mutex<KnownTree>, inode: FsInode, what: StalePart) -> (Vec<FsInode>, Instant) {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    match what {
        StalePart::Names => (known.names_changed(inode), known.recall(inode, now)),
        StalePart::Attr | StalePart::Data => {
            known.attributes_changed(inode);
            (Vec::new(), now)
        }
    }
}

fn invalidate(kernel: &Notifier, node: u64, what: StalePart) {
    let done = match what {
        // Attributes only: a negative offset leaves the bytes alone. Names it has for a moment.
        StalePart::Attr | StalePart::Names => kernel.inval_inode(INodeNo(node), -1, 0),
        StalePart::Data => kernel.inval_inode(INodeNo(node), 0, 0),
    };
    if let Err(error) = done {
        // The kernel does not know it.
        tracing::debug!(%error, "an invalidation");
    }
}
