//! Notices of the service become the kernel's invalidations, on a thread of their own: a thread
//! that serves a request of a directory must not wait for the kernel to let go of that directory.

use super::inodes::InodeMap;
use super::known::KnownTree;
use crate::client::FsClient;
use crate::protocol::{FsInode, FsNote, FsNotice, StalePart};
use fuser::{INodeNo, Notifier};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

/// What is told of an inode whose bytes others have changed.
pub(super) type TellOpen = Box<dyn Fn(FsInode) + Send>;

/// What is told of a lock that was granted. It does not wait.
pub(super) type TellGranted = Box<dyn Fn(u64) + Send + Sync>;

/// What changed names, attributes or bytes.
#[derive(Debug)]
struct Invalidation {
    number: u64,
    inode: FsInode,
    what: StalePart,
    /// Inodes that had names there.
    named: Vec<FsInode>,
}

/// Has the client's notices handled until the client is gone.
pub(super) fn handle_notices(
    client: &Arc<FsClient>,
    (inodes, known): (Arc<Mutex<InodeMap>>, Arc<Mutex<KnownTree>>),
    kernel: Notifier,
    (tell, granted): (TellOpen, TellGranted),
) -> std::io::Result<()> {
    let (sender, notices): (Sender<Invalidation>, Receiver<Invalidation>) = channel();
    let sender = Mutex::new(sender);
    client.on_notice(Box::new(move |notice| match notice {
        FsNotice::Granted { wait } => granted(*wait),
        FsNotice::Invalidate { number, inode, what } => {
            let (number, inode, what) = (*number, *inode, *what);
            let named = forget(&known, inode, what);
            let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
            // Where nobody receives, nothing is mounted any more.
            let _sent = sender.send(Invalidation { number, inode, what, named });
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
    for Invalidation { number, inode, what, named } in notices {
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
        let Some(client) = client.upgrade() else { return };
        client.note(&FsNote::InvalidatedAck { number });
    }
}

/// What is told is known no longer, before anybody asks again; inodes that had names there.
fn forget(known: &Mutex<KnownTree>, inode: FsInode, what: StalePart) -> Vec<FsInode> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    match what {
        StalePart::Names => known.names_changed(inode),
        StalePart::Attr | StalePart::Data => {
            known.attributes_changed(inode);
            Vec::new()
        }
    }
}

fn invalidate(kernel: &Notifier, node: u64, what: StalePart) {
    let done = match what {
        // Attributes only: a negative offset leaves the bytes alone. It keeps no names.
        StalePart::Attr | StalePart::Names => kernel.inval_inode(INodeNo(node), -1, 0),
        StalePart::Data => kernel.inval_inode(INodeNo(node), 0, 0),
    };
    if let Err(error) = done {
        // The kernel does not know it.
        tracing::debug!(%error, "an invalidation");
    }
}
