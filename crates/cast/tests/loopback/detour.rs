//! A detour to a node: passes bytes on both ways, and calls back for each piece.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// Where bytes go: to the node, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Towards {
    Node,
    Dialler,
}

/// An address that leads to a node once. `pass` is called before bytes are passed on, and
/// says whether they are: else the connection ends.
pub(super) fn detour(
    node: SocketAddr,
    pass: impl Fn(Towards, usize) -> bool + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let (near, _) = listener.accept().expect("it is dialled");
        let far = TcpStream::connect(node).expect("the node listens");
        for socket in [&near, &far] {
            socket.set_nodelay(true).expect("an option of TCP's");
        }
        let pass = Arc::new(pass);
        let back = (far.try_clone().expect("a copy"), near.try_clone().expect("a copy"));
        let also = Arc::clone(&pass);
        thread::spawn(move || pump(back, |count| also(Towards::Dialler, count)));
        pump((near, far), |count| pass(Towards::Node, count));
    });
    address
}

fn pump((mut from, mut to): (TcpStream, TcpStream), pass: impl Fn(usize) -> bool) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !pass(count) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // The other end sees that nothing more comes.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
