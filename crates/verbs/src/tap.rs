//! Watching the bytes of connections on the wire, for recorders. Off unless a context is opened
//! with [`crate::Context::open_tapped`]; then every byte takes a copy more. A tap sees bytes in the
//! order of the stream and can neither change nor delay them.

use std::fmt::Debug;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One TCP connection under an RDMA connection, before its first byte.
#[derive(Clone, Copy, Debug)]
pub struct TappedStream {
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// We opened it.
    pub dialed: bool,
}

/// Sees the bytes of a context's connections. Called from the thread that moves them, with locks
/// held: it must not call back into the context.
pub trait Tap: Send + Sync + Debug {
    /// A connection begins; `stream` names it from now on, unique within the process.
    fn opened(&self, stream: u64, ends: TappedStream);
    /// TCP took these bytes of this side.
    fn sent(&self, stream: u64, bytes: &[u8]);
    /// These bytes of the peer's arrived.
    fn received(&self, stream: u64, bytes: &[u8]);
    /// The connection is over.
    fn closed(&self, stream: u64);
}

/// A tap on one stream.
#[derive(Debug)]
pub(crate) struct StreamTap {
    tap: Arc<dyn Tap>,
    stream: u64,
}

impl StreamTap {
    pub(crate) fn open(
        tap: Option<&Arc<dyn Tap>>,
        socket: &TcpStream,
        peer: SocketAddr,
        dialed: bool,
    ) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let tap = Arc::clone(tap?);
        // A socket without an address has failed already, and will carry nothing.
        let local = socket.local_addr().ok()?;
        let stream = NEXT.fetch_add(1, Ordering::Relaxed);
        tap.opened(stream, TappedStream { local, peer, dialed });
        Some(Self { tap, stream })
    }

    pub(crate) fn sent(&self, bytes: &[u8]) {
        self.tap.sent(self.stream, bytes);
    }

    pub(crate) fn received(&self, bytes: &[u8]) {
        self.tap.received(self.stream, bytes);
    }
}

impl Drop for StreamTap {
    fn drop(&mut self) {
        self.tap.closed(self.stream);
    }
}
