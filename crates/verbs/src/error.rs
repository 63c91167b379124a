//! Errors of making and connecting objects, and who is at fault in each.

use outboard_iwarp::PostError;
use outboard_iwarp::startup::StartupError;
use outboard_mem::MemError;
use outboard_secure::SessionError;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Errors of creating and using verbs objects.
#[derive(Debug, thiserror::Error)]
pub enum VerbsError {
    /// The operating system refused something.
    #[error("{what}: {source}{hint}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
        /// What to do about it; may be empty.
        hint: &'static str,
    },
    /// Memory could not be allocated or registered.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// An object is not in the state that the call needs.
    #[error("the queue pair is {found}; this call needs it to be {needed} (reset makes it so)")]
    WrongState {
        /// The state it is in.
        found: &'static str,
        /// The state it would have to be in.
        needed: &'static str,
    },
    /// Objects of two contexts do not work together.
    #[error("{what} belongs to another context; make both from the same one")]
    OtherContext {
        /// The object.
        what: &'static str,
    },
    /// A parameter has no sensible meaning.
    #[error("{what} is {found}; it must be {needed}")]
    BadParameter {
        /// The parameter.
        what: &'static str,
        /// Its value.
        found: usize,
        /// Values that are possible.
        needed: &'static str,
    },
}

impl VerbsError {
    pub(crate) fn system(what: &'static str, source: io::Error) -> Self {
        let hint = match source.raw_os_error() {
            Some(libc::EMFILE) => "; raise the limit of open files (ulimit -n)",
            Some(libc::EADDRINUSE) => "; choose another port or stop the program that has it",
            Some(libc::EADDRNOTAVAIL) => {
                "; the address is not this machine's: choose one that `ip address` lists"
            }
            Some(libc::EACCES) => "; ports below 1024 need CAP_NET_BIND_SERVICE",
            _ => "",
        };
        Self::System { what, source, hint }
    }
}

/// Why a connection did not come about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The peer could not be reached.
    #[error("cannot connect to {peer}: {source}{}", unreachable(source))]
    Unreachable {
        /// The peer's address.
        peer: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The peer did not answer in time.
    #[error("{peer} {} within {limit:?}{}", silence(*reached).0, silence(*reached).1)]
    TimedOut {
        /// The peer's address.
        peer: SocketAddr,
        /// How long we waited.
        limit: Duration,
        /// Whether TCP was connected, so that only the start-up was missing.
        reached: bool,
    },
    /// The peer closed during start-up: it may not speak MPA, or not this revision.
    #[error(
        "{peer} closed the connection during MPA start-up; look at what runs there: it may be \
         another kind of server, may have ended, or may have as many sessions as it allows"
    )]
    Closed {
        /// The peer's address.
        peer: SocketAddr,
    },
    /// The queue pair was disconnected, reset or dropped during the attempt.
    #[error("the attempt to connect to {peer} was given up on this side")]
    Cancelled {
        /// The peer's address.
        peer: SocketAddr,
    },
    /// The peer's program refused.
    #[error("{peer} rejected the connection ({} bytes of private data)", private_data.len())]
    Rejected {
        /// The peer's address.
        peer: SocketAddr,
        /// The private data of its program.
        private_data: Vec<u8>,
    },
    /// The start-up broke a rule.
    #[error("MPA start-up with {peer}: {source}")]
    Startup {
        /// The peer's address.
        peer: SocketAddr,
        /// Which rule.
        source: StartupError,
    },
    /// The session under the connection failed.
    #[error("the session with {peer} failed: {source}")]
    SecureSession {
        /// The peer's address.
        peer: SocketAddr,
        /// What is wrong.
        source: SessionError,
    },
    /// The caller's or this machine's fault.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
}

/// What to look at when TCP did not connect, after a semicolon; may be empty.
fn unreachable(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ECONNREFUSED) => "; is a server listening there?",
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
            "; look at this machine's interfaces and routes (`ip address`, `ip route`; 127.0.0.1 \
             needs `ip link set lo up`)"
        }
        Some(libc::ETIMEDOUT) => "; is the machine up, and does a firewall let the port through?",
        _ => "",
    }
}

/// What a silent peer did not do, and what to look at.
fn silence(reached: bool) -> (&'static str, &'static str) {
    if reached {
        let look = "; look at what runs there: it hangs, or is another kind of server";
        ("accepted the TCP connection, but did not answer MPA start-up", look)
    } else {
        let look = "; is the machine up, and does a firewall let the port through?";
        ("did not answer TCP", look)
    }
}

/// A request that a queue refused, unchanged.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused<T> {
    /// Why it was refused.
    pub error: PostError,
    /// The request.
    pub request: T,
}

impl<T> From<(PostError, T)> for Refused<T> {
    fn from((error, request): (PostError, T)) -> Self {
        Self { error, request }
    }
}

/// A completion queue that lost completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the completion queue overflowed at {capacity} entries and its queue pairs were ended; \
     make it as deep as all queues that complete on it together"
)]
pub struct CqOverflow {
    /// Entries it has room for.
    pub capacity: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], 7621))
    }

    fn unreachable(errno: i32) -> String {
        let source = io::Error::from_raw_os_error(errno);
        ConnectError::Unreachable { peer: peer(), source }.to_string()
    }

    #[test]
    fn only_a_refusal_asks_for_a_server() {
        assert!(unreachable(libc::ECONNREFUSED).ends_with("is a server listening there?"));
        let error = unreachable(libc::ENETUNREACH);
        assert!(error.contains("ip link set lo up") && !error.contains("server"), "{error}");
    }

    #[test]
    fn a_silent_peer_is_told_from_one_that_tcp_does_not_reach() {
        let limit = Duration::from_secs(5);
        let told = |reached| ConnectError::TimedOut { peer: peer(), limit, reached }.to_string();
        assert!(told(false).starts_with("192.0.2.1:7621 did not answer TCP within 5s; is "));
        let start = "192.0.2.1:7621 accepted the TCP connection, but did not answer MPA start-up \
                     within 5s; look at what runs there";
        assert!(told(true).starts_with(start), "{}", told(true));
        let closed = ConnectError::Closed { peer: peer() }.to_string();
        assert!(closed.contains("look at what runs there"), "{closed}");
    }

    #[test]
    fn an_address_of_another_machine_is_no_busy_port() {
        let told = |errno| VerbsError::system("x", io::Error::from_raw_os_error(errno)).to_string();
        assert!(told(libc::EADDRNOTAVAIL).contains("is not this machine's"));
        assert!(told(libc::EADDRINUSE).contains("choose another port"));
    }
}
