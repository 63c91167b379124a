//! One connection, used step by step: each call posts one request and waits until it is done.

use crate::Failure;
use crate::protocol::MESSAGE_LEN;
use outboard_verbs::{
    Completion, Context, Cq, OwnedBuf, Pd, Qp, QpConfig, RecvRequest, Remote, SendOp, SendRequest,
    SgList, Status,
};
use std::time::Duration;

/// How long the peer may take for its part of one step.
const STEP_LIMIT: Duration = Duration::from_secs(30);
/// Receives that stand ready.
const RECEIVES: u64 = 2;

/// A queue pair with a completion queue for each direction.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) qp: Qp,
    sent: Cq,
    received: Cq,
}

impl Peer {
    /// A queue pair, not yet connected, with receives for the peer's first messages.
    pub(crate) fn new(context: &Context, pd: &Pd) -> Result<Self, Failure> {
        let (sent, received) = (context.create_cq(16), context.create_cq(16));
        let config = QpConfig { recv_cq: received.clone(), ..QpConfig::new(&sent) };
        let peer = Self { qp: pd.create_qp(config)?, sent, received };
        for _ in 0..RECEIVES {
            peer.post_receive()?;
        }
        Ok(peer)
    }

    fn post_receive(&self) -> Result<(), Failure> {
        let local = OwnedBuf::zeroed(MESSAGE_LEN).into();
        self.qp.post_recv(RecvRequest { wr_id: 0, local })?;
        Ok(())
    }

    /// Waits for the peer's next message.
    pub(crate) fn receive(&mut self) -> Result<[u8; MESSAGE_LEN], Failure> {
        let done = finished(&self.received, "a message")?;
        self.post_receive()?;
        let count = done.bytes;
        let message = done.local.into_owned().filter(|_| count as usize == MESSAGE_LEN);
        let message = message.and_then(|buffer| buffer.first_chunk().copied());
        message.ok_or_else(|| format!("a message of {count} bytes; rping's have 16").into())
    }

    pub(crate) fn send(&mut self, message: &[u8; MESSAGE_LEN]) -> Result<(), Failure> {
        self.carry_out(SendOp::Send { invalidate: None }, SgList::copied(message)).map(drop)
    }

    /// Fetches the peer's memory.
    pub(crate) fn read(&mut self, from: Remote, len: usize) -> Result<Vec<u8>, Failure> {
        let done = self.carry_out(SendOp::Read { from }, OwnedBuf::zeroed(len).into())?;
        Ok(done.local.into_owned().map(OwnedBuf::into_vec).unwrap_or_default())
    }

    pub(crate) fn write(&mut self, to: Remote, data: Vec<u8>) -> Result<(), Failure> {
        self.carry_out(SendOp::Write { to }, OwnedBuf::from(data).into()).map(drop)
    }

    fn carry_out(&mut self, op: SendOp, local: SgList) -> Result<Completion, Failure> {
        self.qp.post_send(SendRequest::new(0, op, local))?;
        finished(&self.sent, "a request")
    }

    /// Waits until the peer has closed the connection, so that it gets all that was sent.
    pub(crate) fn wait_for_end(&mut self) -> Result<(), Failure> {
        match next(&self.received, "the end")?.status {
            Status::Flushed => Ok(()),
            _ => Err("the peer went on after the last iteration".into()),
        }
    }
}

fn finished(cq: &Cq, what: &str) -> Result<Completion, Failure> {
    let done = next(cq, what)?;
    match done.status {
        Status::Success => Ok(done),
        Status::Flushed => Err("the connection ended too early".into()),
        status => Err(format!("{:?} failed: {status:?}", done.operation).into()),
    }
}

fn next(cq: &Cq, what: &str) -> Result<Completion, Failure> {
    let mut done = Vec::new();
    cq.wait(&mut done, 1, Some(STEP_LIMIT))?;
    done.pop().ok_or_else(|| format!("waited {STEP_LIMIT:?} for {what}").into())
}
