//! Messages: the client sends words, the server sends them back in capitals.
//!
//! ```text
//! cargo run --example send_recv -- server 127.0.0.1:7472
//! cargo run --example send_recv -- client 127.0.0.1:7472 some words
//! ```

use outboard_verbs::{Completion, ConnectParams, Context, Cq, OwnedBuf, Qp, QpConfig};
use outboard_verbs::{Operation, RecvRequest, SendOp, SendRequest, SgList, Status};
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;

/// Bytes of a message at most.
const MESSAGE_MAX: usize = 256;

fn main() -> ExitCode {
    let Err(error) = run() else { return ExitCode::SUCCESS };
    eprintln!("send_recv: {error}");
    ExitCode::FAILURE
}

fn run() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", address] => server(address.parse()?),
        ["client", address, ref words @ ..] => client(address.parse()?, words),
        _ => Err("usage: send_recv server ADDRESS:PORT | client ADDRESS:PORT WORD...".into()),
    }
}

fn server(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let context = Context::open()?;
    let cq = context.create_cq(16);
    let qp = context.alloc_pd().create_qp(QpConfig::new(&cq))?;
    // A message needs a receive to land in: post it before the peer can send.
    receive(&qp)?;
    let listener = context.listen(address, 1)?;
    println!("listening on {}", listener.local_addr());
    let request = listener.next_request(None).ok_or("no client came")?;
    request.accept(&qp, &ConnectParams::default())?;

    // When the client leaves, the receive that waits for its next message is flushed.
    while let Some(text) = next_message(&cq)? {
        receive(&qp)?;
        send(&qp, text.to_uppercase().as_bytes())?;
    }
    Ok(())
}

fn client(address: SocketAddr, words: &[&str]) -> Result<(), Box<dyn Error>> {
    let context = Context::open()?;
    let cq = context.create_cq(16);
    let qp = context.alloc_pd().create_qp(QpConfig::new(&cq))?;
    qp.connect(address, &ConnectParams::default())?;
    for word in words {
        receive(&qp)?;
        send(&qp, word.as_bytes())?;
        println!("{}", next_message(&cq)?.ok_or("the server left")?);
    }
    Ok(())
}

fn receive(qp: &Qp) -> Result<(), Box<dyn Error>> {
    let local = OwnedBuf::zeroed(MESSAGE_MAX).into();
    Ok(qp.post_recv(RecvRequest { wr_id: 0, local })?)
}

/// The request is unsignaled: only a failure makes a completion.
fn send(qp: &Qp, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let op = SendOp::Send { invalidate: None };
    let request = SendRequest { signaled: false, ..SendRequest::new(0, op, SgList::copied(bytes)) };
    Ok(qp.post_send(request)?)
}

/// Waits for the next message; `None` when the connection is over.
fn next_message(cq: &Cq) -> Result<Option<String>, Box<dyn Error>> {
    let mut done = Vec::new();
    cq.wait(&mut done, 1, None)?;
    let Completion { operation, status, bytes, local, .. } = done.remove(0);
    let message = local.into_owned().filter(|_| status == Status::Success);
    let text = |buffer: OwnedBuf| String::from_utf8_lossy(&buffer[..bytes as usize]).into_owned();
    Ok(message.filter(|_| operation == Operation::Receive).map(text))
}
