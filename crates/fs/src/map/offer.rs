//! A mapped file offered to programs of any kind: they connect and read it one-sided.
//!
//! A program connects (iWARP, RDMA connection manager) with the offer's token as private data, and
//! is told as private data where the memory is: its address and its length, 8 bytes each, and its
//! key (STag), 4 bytes, in network byte order. Nothing is encrypted.

use super::{FileMap, FileMapError};
use crate::client::FsError;
use outboard_verbs::{
    Access, ConnectParams, ConnectRequest, Context, Listener, Mr, Pd, Qp, QpConfig,
};
use ring::rand::{SecureRandom, SystemRandom};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of the word that a program shows.
pub const TOKEN_LEN: usize = 16;
/// How often it is seen which connections have ended.
const LOOK: Duration = Duration::from_millis(200);
/// Connections at a time.
const CONNECTIONS_MAX: usize = 1024;
/// Connections that wait to be accepted.
const BACKLOG: usize = 64;
/// Requests of our own: there are none.
const QUEUE: usize = 1;

/// See this file's first lines.
#[derive(Debug)]
pub struct MapOffer {
    map: FileMap,
    context: Context,
    listener: Listener,
    pd: Pd,
    mr: Mr,
    token: [u8; TOKEN_LEN],
    open: Vec<Qp>,
}

impl MapOffer {
    /// Offers a file at an address.
    ///
    /// # Errors
    /// [`FileMapError::Verbs`]: the address cannot be listened on, or this machine's;
    /// [`FileMapError::Fs`]: there are no random numbers.
    pub fn new(map: FileMap, listen: SocketAddr) -> Result<Self, FileMapError> {
        // Not the client's: whoever touches a page sleeps until the client has read it.
        let context = Context::open()?;
        let pd = context.alloc_pd();
        let mr = pd.register(map.region().clone(), Access::REMOTE_READ)?;
        let mut token = [0; TOKEN_LEN];
        let no_token = |_| FsError::Machine("there are no random numbers".into());
        SystemRandom::new().fill(&mut token).map_err(no_token)?;
        let listener = context.listen(listen, BACKLOG)?;
        Ok(Self { map, context, listener, pd, mr, token, open: Vec::new() })
    }

    /// The file.
    #[must_use]
    pub fn map(&self) -> &FileMap {
        &self.map
    }

    /// The memory as programs are told of it.
    #[must_use]
    pub fn memory(&self) -> &Mr {
        &self.mr
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// What a program must show.
    #[must_use]
    pub fn token(&self) -> [u8; TOKEN_LEN] {
        self.token
    }

    /// Accepts programs until it is told to stop.
    pub fn serve(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let request = self.listener.next_request(Some(LOOK));
            self.open.retain(|qp| qp.ended().is_none());
            if let Some(request) = request {
                let peer = request.peer_addr();
                if let Err(why) = self.accept(request) {
                    tracing::warn!(%peer, why, "a program is refused");
                }
            }
        }
    }

    fn accept(&mut self, request: ConnectRequest) -> Result<(), String> {
        if let Err(why) = self.check(&request) {
            // The peer may be gone already.
            let _told = request.reject(why.as_bytes());
            return Err(why);
        }
        let cq = self.context.create_cq(QUEUE);
        let config = QpConfig { send_depth: QUEUE, recv_depth: QUEUE, ..QpConfig::new(&cq) };
        let qp = self.pd.create_qp(config).map_err(|error| error.to_string())?;
        let (base, len, key) = (self.mr.base(), self.mr.len() as u64, self.mr.stag().0);
        let private_data =
            [&base.to_be_bytes()[..], &len.to_be_bytes(), &key.to_be_bytes()].concat();
        let params = ConnectParams { private_data, ..ConnectParams::default() };
        request.accept(&qp, &params).map_err(|error| error.to_string())?;
        self.open.push(qp);
        Ok(())
    }

    /// Whether the program may connect; then it sees the file as it is now.
    fn check(&self, request: &ConnectRequest) -> Result<(), String> {
        if !is_equal(request.private_data(), &self.token) {
            return Err("the private data are not the token that outboard fs map has said".into());
        }
        if self.open.len() >= CONNECTIONS_MAX {
            return Err(format!("{CONNECTIONS_MAX} programs are connected"));
        }
        self.map.refresh().map(drop).map_err(|error| format!("the file: {error}"))
    }
}

/// Takes as long wherever they differ.
fn is_equal(said: &[u8], token: &[u8; TOKEN_LEN]) -> bool {
    let differs = |(left, right): (&u8, &u8)| left ^ right;
    said.len() >= TOKEN_LEN
        && said.iter().zip(token).map(differs).fold(0, |all, one| all | one) == 0
}
