//! Eight bytes there and back by Sends over a session, with nothing but verbs: what `empty` is
//! compared with.

use crate::Failure;
use crate::session::{dialer, wait_mode};
use crate::timing::{Timing, milliseconds};
use outboard_active::WaitMode;
use outboard_active::protocol::SERVICE;
use outboard_cluster::hosts::HostList;
use outboard_cluster::keys::{KeyPaths, fabric};
use outboard_cluster::node::SessionListener;
use outboard_verbs::{
    CmChannel, Completion, ConnectParams, Context, Cq, OwnedBuf, Pd, Qp, QpConfig, RecvRequest,
    Role, Secured, SendOp, SendRequest, SgList, Status,
};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BYTES: usize = 8;
const RECEIVES: usize = 4;
/// Sends that pass without a completion.
const QUIET: u64 = 32;
const DEPTH: usize = 128;
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// One end.
struct PingEnd {
    qp: Qp,
    cq: Cq,
    wait: WaitMode,
    sent: u64,
    fresh: Vec<Completion>,
    _pd: Pd,
    _events: CmChannel,
    _context: Context,
}

impl PingEnd {
    fn new(stream: Secured, role: Role, wait: WaitMode) -> Result<Self, Failure> {
        let context = Context::open()?;
        let (cq, pd) = (context.create_cq(2 * DEPTH), context.alloc_pd());
        let events = context.create_cm_channel_without_established()?;
        let config = QpConfig { send_depth: DEPTH, recv_depth: RECEIVES, ..QpConfig::new(&cq) };
        let qp = pd.create_qp(config)?;
        let params = ConnectParams { timeout: SILENCE_MAX, ..ConnectParams::default() };
        for _ in 0..RECEIVES {
            let local = OwnedBuf::zeroed(BYTES).into();
            qp.post_recv(RecvRequest { wr_id: 0, local }).map_err(|refused| refused.error)?;
        }
        qp.adopt(stream, role, &params, &events)?;
        let fresh = Vec::with_capacity(DEPTH);
        Ok(Self { qp, cq, wait, sent: 0, fresh, _pd: pd, _events: events, _context: context })
    }

    fn send(&mut self) -> Result<(), Failure> {
        self.sent += 1;
        let op = SendOp::Send { invalidate: None };
        let mut request = SendRequest::new(self.sent, op, SgList::copied(&[7; BYTES]));
        request.signaled = self.sent.is_multiple_of(QUIET);
        Ok(self.qp.post_send(request).map_err(|refused| refused.error)?)
    }

    /// Waits for the peer's message.
    fn receive(&mut self) -> Result<(), Failure> {
        loop {
            self.wait()?;
            let mut came = 0;
            for completion in self.fresh.drain(..) {
                if completion.status != Status::Success {
                    return Err(completion.status.to_string().into());
                }
                if completion.wr_id == 0 {
                    let again = RecvRequest { wr_id: 0, local: completion.local };
                    self.qp.post_recv(again).map_err(|refused| refused.error)?;
                    came += 1;
                }
            }
            if came > 0 {
                return Ok(());
            }
        }
    }

    fn wait(&mut self) -> Result<(), Failure> {
        if self.wait != WaitMode::Spin {
            let found = self.cq.wait(&mut self.fresh, DEPTH, Some(SILENCE_MAX))?;
            return (found > 0).then_some(()).ok_or_else(|| "the peer is silent".into());
        }
        let start = Instant::now();
        while self.cq.poll(&mut self.fresh, DEPTH)? == 0 {
            if start.elapsed() > SILENCE_MAX {
                return Err("the peer is silent".into());
            }
        }
        Ok(())
    }
}

/// Answers one peer after the other, in the way in which the peer waits, until it is killed.
pub(crate) fn answer() -> Result<(), Failure> {
    let variable = |name: &str| std::env::var_os(name);
    let keys = KeyPaths::from_environment(variable)?;
    let credentials = Arc::new(keys.client(&[SERVICE.parse()?], fabric(variable)?)?);
    let mut listener = SessionListener::bind("127.0.0.1:0".parse()?, credentials)?;
    println!("{}", listener.address()?);
    loop {
        for mut stream in listener.turn(Instant::now())? {
            let mut how = Vec::new();
            stream.receive(&mut how, Instant::now() + SILENCE_MAX)?;
            stream.send(b"!", Instant::now() + SILENCE_MAX)?;
            let wait = if how == b"spin" { WaitMode::Spin } else { WaitMode::Block };
            let mut end = PingEnd::new(stream, Role::Responder, wait)?;
            // A peer that has measured enough leaves.
            while end.receive().and_then(|()| end.send()).is_ok() {}
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Measures round trips with a program that answers.
pub(crate) fn ask(address: &str, wait: &str, ms: &str) -> Result<Value, Failure> {
    let (time, wait_mode) = (milliseconds(ms)?, wait_mode(wait)?);
    let hosts: HostList = address.parse()?;
    let host = hosts.hosts().first().ok_or("no address")?;
    let deadline = Instant::now() + SILENCE_MAX;
    let mut stream = dialer()?.dial(host, &SERVICE.parse()?, deadline)?;
    stream.send(wait.as_bytes(), deadline)?;
    stream.receive(&mut Vec::new(), deadline)?;
    let mut end = PingEnd::new(stream, Role::Initiator, wait_mode)?;
    let timing = Timing::of(time, || end.send().and_then(|()| end.receive()))?;
    Ok(timing.json())
}
