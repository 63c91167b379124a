//! Two hubs over loopback and the connection between them; also part of `tests/wake_ups.rs`.

use super::{Admitted, Hub, HubOptions, PeerId};
pub(crate) use outboard_testkit::PATIENCE;
use std::thread;

/// A hub that has dialled another.
pub(crate) struct Dialled {
    pub(crate) server: Hub,
    /// The server's end, which it has not enrolled yet.
    pub(crate) accepted: Admitted,
    pub(crate) client: Hub,
    pub(crate) peer: PeerId,
}

/// Makes two hubs; the client has enrolled the server.
pub(crate) fn dialled(options: HubOptions) -> Dialled {
    let hub = || Hub::with(options).expect("a hub");
    let (server, mut client) = (hub(), hub());
    let loopback = "127.0.0.1:0".parse().expect("an address");
    let listener = server.context().listen(loopback, 4).expect("a listener");
    let address = listener.local_addr();
    let admission = client.prepare().expect("an admission");
    let dialling =
        thread::spawn(move || admission.connect(|qp, params, _| qp.connect(address, params)));
    let request = listener.next_request(Some(PATIENCE)).expect("a request");
    let accepted = server.prepare().expect("an admission").connect(|qp, params, channel| {
        request.accept_on(qp, params, channel).map_err(|refused| refused.error)
    });
    let dialled = dialling.join().expect("the client").expect("a connection");
    let peer = client.enroll(dialled).expect("a peer");
    Dialled { server, accepted: accepted.expect("a connection"), client, peer }
}
