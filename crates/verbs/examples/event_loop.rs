//! One thread, one `poll`, many clients: everything that waits has a descriptor. This is the
//! server of `send_recv` for a program with an event loop of its own.
//!
//! ```text
//! cargo run --example event_loop -- 127.0.0.1:7472
//! cargo run --example send_recv -- client 127.0.0.1:7472 some words
//! ```

use outboard_verbs::{
    CmEventKind, Completion, ConnectParams, Context, Cq, NotifyOn, OwnedBuf, Pd, Qp,
};
use outboard_verbs::{Operation, QpConfig, RecvRequest, SendOp, SendRequest, SgList, Status};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Err(error) = run();
    eprintln!("event_loop: {error}");
    ExitCode::FAILURE
}

fn run() -> Result<Infallible, Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("usage: event_loop ADDRESS:PORT")?;
    let context = Context::open()?;
    let pd = context.alloc_pd();
    let (peers, completions) = (context.create_cm_channel()?, context.create_comp_channel()?);
    let cq = context.create_cq_on(1024, &completions)?;
    let listener = context.listen_on(address.parse()?, 16, &peers)?;
    println!("listening on {}", listener.local_addr());

    let mut clients = HashMap::new();
    loop {
        // Request the event first, then poll: a completion in between raises the event.
        cq.request_notify(NotifyOn::Any);
        serve(&cq, &mut clients)?;
        let mut fds =
            [PollFd::new(&peers, PollFlags::IN), PollFd::new(&completions, PollFlags::IN)];
        poll(&mut fds, None)?;
        while completions.try_next().is_some() {}
        while let Some(event) = peers.try_next() {
            if let CmEventKind::ConnectRequest(request) = event.kind {
                let qp = new_client(&pd, &cq)?;
                // A client that has disconnected is no reason to end.
                if request.accept(&qp, &ConnectParams::default()).is_ok() {
                    clients.insert(qp.number(), qp);
                }
            }
        }
    }
}

fn new_client(pd: &Pd, cq: &Cq) -> Result<Qp, Box<dyn Error>> {
    let qp = pd.create_qp(QpConfig::new(cq))?;
    receive(&qp, OwnedBuf::zeroed(256))?;
    Ok(qp)
}

/// Answers every message that has arrived. A flushed receive shows that its client has left.
fn serve(cq: &Cq, clients: &mut HashMap<u32, Qp>) -> Result<(), Box<dyn Error>> {
    let mut done: Vec<Completion> = Vec::new();
    while cq.poll(&mut done, 16)? > 0 {
        for completion in done.drain(..) {
            if completion.status != Status::Success {
                clients.remove(&completion.qp);
            } else if completion.operation == Operation::Receive
                && let Some(qp) = clients.get(&completion.qp)
                && let Some(buffer) = completion.local.into_owned()
            {
                let answer = buffer[..completion.bytes as usize].to_ascii_uppercase();
                let op = SendOp::Send { invalidate: None };
                // The buffer is back: it takes the next message. If the client has gone, posting
                // the answer fails.
                receive(qp, buffer)?;
                let _gone = qp.post_send(SendRequest::new(0, op, SgList::copied(&answer)));
            }
        }
    }
    Ok(())
}

fn receive(qp: &Qp, buffer: OwnedBuf) -> Result<(), Box<dyn Error>> {
    let request = RecvRequest { wr_id: 0, local: buffer.into() };
    Ok(qp.post_recv(request)?)
}
