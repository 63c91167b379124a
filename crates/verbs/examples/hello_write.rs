//! The smallest useful program: a client writes into a server's memory. Without arguments this is
//! both; `server 127.0.0.1:7471` and then `client 127.0.0.1:7471` are a process each.

use outboard_verbs::{Access, ConnectParams, Context, QpConfig, Remote, SendOp, SendRequest};
use outboard_verbs::{SgList, SharedRegion, Stag, Status};
use std::{error::Error, net::SocketAddr, process::ExitCode, sync::mpsc, thread, time::Duration};

const HELLO: &[u8] = b"hello, memory";
type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let Err(error) = run() else { return ExitCode::SUCCESS };
    eprintln!("hello_write: {error}");
    ExitCode::FAILURE
}

fn run() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (ready, address) = mpsc::channel();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let server = thread::spawn(move || server("127.0.0.1:0".parse()?, &ready));
            address.recv().map_or(Ok(()), client)?;
            server.join().map_err(|_| "the server panicked")?
        }
        ["server", address] => server(address.parse()?, &ready),
        ["client", address] => client(address.parse()?),
        _ => Err("usage: hello_write [server|client ADDRESS:PORT]".into()),
    }
}

/// Offers a page, says where, and waits until something stands in it.
fn server(address: SocketAddr, ready: &mpsc::Sender<SocketAddr>) -> Outcome {
    // A context is a NIC; a protection domain holds what one kind of peer may reach.
    let context = Context::open()?;
    let pd = context.alloc_pd();
    // Registering memory gives it an STag. A peer that knows it may write there, but not read.
    let mr = pd.register(SharedRegion::zeroed(4096)?, Access::REMOTE_WRITE)?;
    let listener = context.listen(address, 1)?;
    println!("listening on {}", listener.local_addr());
    ready.send(listener.local_addr())?;
    let request = listener.next_request(None).ok_or("no client came")?;

    // A queue pair is our end of a connection. The STag travels with the reply.
    let cq = context.create_cq(16);
    let qp = pd.create_qp(QpConfig::new(&cq))?;
    let private_data = mr.stag().0.to_be_bytes().to_vec();
    request.accept(&qp, &ConnectParams { private_data, ..ConnectParams::default() })?;

    // No event tells the server that a peer has written to its memory: it reads the memory.
    let arrived = || mr.memory().snapshot(0..HELLO.len()).is_ok_and(|bytes| bytes == HELLO);
    if !context.wait_until(Some(Duration::from_secs(60)), arrived) {
        return Err("no peer wrote anything within a minute".into());
    }
    println!("{}", String::from_utf8_lossy(&mr.memory().snapshot(0..HELLO.len())?));
    Ok(())
}

/// Writes into the server's page.
fn client(address: SocketAddr) -> Outcome {
    let context = Context::open()?;
    let cq = context.create_cq(16);
    let qp = context.alloc_pd().create_qp(QpConfig::new(&cq))?;
    let connected = qp.connect(address, &ConnectParams::default())?;
    let stag = connected.private_data.first_chunk().ok_or("the server sent no STag")?;

    // The request owns what it sends; the completion would hand it back.
    let to = Remote { stag: Stag(u32::from_be_bytes(*stag)), offset: 0 };
    let write = SendRequest::new(1, SendOp::Write { to }, SgList::copied(HELLO));
    qp.post_send(write)?;

    // Done means: TCP has it. Dropping the queue pair then ends the connection in order.
    let mut done = Vec::new();
    cq.wait(&mut done, 1, None)?;
    match done[0].status {
        Status::Success => Ok(()),
        status => Err(format!("the write ended as {status:?}").into()),
    }
}
