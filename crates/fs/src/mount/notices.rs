//! Notices of the service become the kernel's invalidations, on a thread of their own: a thread
//! that serves a request of a directory must not wait for the kernel to let go of that directory.

use super::inodes::InodeMap;
use crate::client::FsClient;
use crate::protocol::{FsInode, FsNote, FsNotice, StalePart};
use fuser::{INodeNo, Notifier};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
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
    name: Option<Vec<u8>>,
}

/// Has the client's notices handled until the client is gone.
pub(super) fn handle_notices(
    client: &Arc<FsClient>,
    inodes: Arc<Mutex<InodeMap>>,
    kernel: Notifier,
    (tell, granted): (TellOpen, TellGranted),
) -> std::io::Result<()> {
    let (sender, notices): (Sender<Invalidation>, Receiver<Invalidation>) = channel();
    let sender = Mutex::new(sender);
    client.on_notice(Box::new(move |notice| match notice {
        FsNotice::Granted { wait } => granted(*wait),
        FsNotice::Invalidate { number, inode, what, name } => {
            let (number, inode, what) = (*number, *inode, *what);
            let name = name.as_ref().map(|name| name.to_vec());
            let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
            // Where nobody receives, nothing is mounted any more.
            let _sent = sender.send(Invalidation { number, inode, what, name });
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
    for Invalidation { number, inode, what, name } in notices {
        let node = {
            let mut inodes = inodes.lock().unwrap_or_else(PoisonError::into_inner);
            if what == StalePart::Data {
                inodes.lose_kept(inode);
            }
            inodes.touch(inode);
            if what == StalePart::Names {
                inodes.moved();
            }
            inodes.node(inode)
        };
        if what == StalePart::Data {
            tell(inode);
        }
        if let Some(node) = node {
            invalidate(kernel, INodeNo(node), what, name.as_deref());
        }
        let Some(client) = client.upgrade() else { return };
        client.note(&FsNote::InvalidatedAck { number });
    }
}

fn invalidate(kernel: &Notifier, node: INodeNo, what: StalePart, name: Option<&[u8]>) {
    let done = match (what, name) {
        (StalePart::Names, Some(name)) => kernel.inval_entry(node, OsStr::from_bytes(name)),
        // Attributes only: a negative offset leaves the bytes alone.
        (StalePart::Attr, _) => kernel.inval_inode(node, -1, 0),
        (StalePart::Data | StalePart::Names, _) => kernel.inval_inode(node, 0, 0),
    };
    if let Err(error) = done {
        // The kernel keeps it until its time is over.
        tracing::debug!(%error, "an invalidation");
    }
}
