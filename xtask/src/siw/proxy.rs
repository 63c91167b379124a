//! A proxy between the two programs, where an emulated machine is too slow for them: a port of the
//! host that forwards to another. It changes no byte, only the timing.
//!
//! It opens late. qemu accepts connections for the guest at once and resets them if the guest does
//! not listen. perftest's servers listen a second time, a moment after they have told their client
//! to connect; its client should retry, but release 4.5-0.17 does so with an identifier that it has
//! destroyed. So the proxy keeps the client's MPA Request Frame (RFC 5044 section 7.1) and sends it
//! until it is answered.
//!
//! It closes late. siw reports a Send as failed (a local operation error) when the peer closes
//! before the sending call returns, even though all of it is sent and acknowledged:
//! `siw_qp_sq_proc_tx` checks whether the socket's other half is closed before it checks whether
//! the message is complete.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const ANSWER_LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
/// How long a system call of the guest takes at most.
const CLOSE_AFTER: Duration = Duration::from_millis(200);

/// Key, flags, revision, and the length of the private data that follows.
const FRAME_HEADER: usize = 20;

/// A proxy; it accepts no more connections after it is dropped.
#[derive(Debug)]
pub(super) struct Proxy {
    port: u16,
    closed: Arc<AtomicBool>,
}

impl Proxy {
    /// Opens a proxy on 127.0.0.1 to another port there.
    pub(super) fn open(onwards: u16) -> Result<Self, String> {
        let fault = |error: io::Error| format!("cannot listen on 127.0.0.1: {error}");
        let listener = TcpListener::bind("127.0.0.1:0").map_err(fault)?;
        let port = listener.local_addr().map_err(fault)?.port();
        let closed = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&closed);
        thread::spawn(move || serve(&listener, onwards, &told));
        Ok(Self { port, closed })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        // Wakes the accepting thread; an error says that the thread has ended already.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn serve(listener: &TcpListener, onwards: u16, closed: &AtomicBool) {
    for client in listener.incoming() {
        if closed.load(Ordering::Relaxed) {
            return;
        }
        let Ok(client) = client else { return };
        // If no answer comes, the client's connection is closed.
        thread::spawn(move || carry(client, onwards));
    }
}

fn carry(mut client: TcpStream, onwards: u16) -> io::Result<()> {
    let request = frame(&mut client)?;
    let (server, answer) = connect_until_answered(onwards, &request)?;
    client.set_nodelay(true)?;
    client.write_all(&answer)?;
    let (from_client, to_server) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || pass(from_client, to_server));
    pass(server, client);
    Ok(())
}

/// A complete MPA Request Frame.
fn frame(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; FRAME_HEADER];
    client.read_exact(&mut frame)?;
    let private = usize::from(u16::from_be_bytes([frame[18], frame[19]]));
    frame.resize(FRAME_HEADER + private, 0);
    client.read_exact(&mut frame[FRAME_HEADER..])?;
    Ok(frame)
}

/// Connects and sends `request` until the first bytes of an answer come.
fn connect_until_answered(onwards: u16, request: &[u8]) -> io::Result<(TcpStream, Vec<u8>)> {
    let deadline = Instant::now() + ANSWER_LIMIT;
    loop {
        let answer = ask(onwards, request);
        if answer.is_ok() || Instant::now() > deadline {
            return answer;
        }
        thread::sleep(PAUSE);
    }
}

fn ask(onwards: u16, request: &[u8]) -> io::Result<(TcpStream, Vec<u8>)> {
    let mut server = TcpStream::connect(("127.0.0.1", onwards))?;
    server.set_nodelay(true)?;
    server.write_all(request)?;
    let mut answer = vec![0; 4096];
    let length = server.read(&mut answer)?;
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    answer.truncate(length);
    Ok((server, answer))
}

/// Forwards one direction until its end, and the end a little later; an error ends both directions.
fn pass(mut from: TcpStream, mut to: TcpStream) {
    let copied = io::copy(&mut from, &mut to);
    thread::sleep(CLOSE_AFTER);
    let how = if copied.is_ok() { Shutdown::Write } else { Shutdown::Both };
    // A socket that its peer has closed is shut down already.
    let _ = to.shutdown(how);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request with three bytes of private data.
    fn request() -> Vec<u8> {
        [b"MPA ID Req Frame\x00\x02\x00\x03".as_slice(), b"abc"].concat()
    }

    /// A proxy, and the server behind it.
    fn proxy() -> (Proxy, TcpListener) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        (Proxy::open(server.local_addr().unwrap().port()).unwrap(), server)
    }

    fn connect_to(proxy: &Proxy) -> TcpStream {
        let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        client.write_all(&request()).unwrap();
        client
    }

    fn answer_at(server: &TcpListener) -> TcpStream {
        let (mut stream, _) = server.accept().unwrap();
        let mut said = vec![0; request().len()];
        stream.read_exact(&mut said).unwrap();
        assert_eq!(said, request());
        stream.write_all(b"reply").unwrap();
        stream
    }

    #[test]
    fn a_server_that_listens_late_gets_the_request_and_what_follows() {
        let (proxy, server) = proxy();
        let mut client = connect_to(&proxy);
        // As qemu does for a guest that does not listen yet.
        drop(server.accept().unwrap());
        let mut stream = answer_at(&server);
        let mut reply = [0; 5];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"reply");
        client.write_all(b"rest").unwrap();
        drop(client);
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "rest");
    }

    #[test]
    fn the_end_comes_later_than_what_was_said_before_it() {
        let (proxy, server) = proxy();
        let mut client = connect_to(&proxy);
        drop(answer_at(&server));
        let mut reply = [0; 5];
        client.read_exact(&mut reply).unwrap();
        let began = Instant::now();
        assert_eq!(client.read(&mut reply).unwrap(), 0);
        assert!(began.elapsed() > CLOSE_AFTER / 2);
    }
}
