//! Asynchronous events: what happened to objects, apart from the program's requests.

use outboard_secure::SessionError;
use outboard_wire::terminate::TerminateCode;

/// One asynchronous event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A completion queue had no room; the queue pair that wanted to complete was ended.
    CqOverflow {
        /// Number of the completion queue.
        cq: u32,
        /// Number of the queue pair.
        qp: u32,
    },
    /// The peer broke a rule, and we sent a Terminate.
    PeerFault {
        /// Number of the queue pair.
        qp: u32,
        /// What the Terminate says.
        code: TerminateCode,
    },
    /// The peer ended the stream with a Terminate.
    PeerTerminated {
        /// Number of the queue pair.
        qp: u32,
        /// What the Terminate says.
        code: TerminateCode,
    },
    /// The session under a connection failed, and the connection is lost: bytes were altered or
    /// cut off on the way, or the peer's process ended without leaving.
    SessionFailed {
        /// Number of the queue pair.
        qp: u32,
        /// What is wrong.
        error: SessionError,
    },
    /// A queue pair that takes its receives from a shared queue is over, and takes none any more.
    LastReceive {
        /// Number of the queue pair.
        qp: u32,
    },
    /// The engine failed while it served this context: a defect of Outboard's, which has been
    /// printed. The queue pair was ended.
    EngineFailed {
        /// Number of the queue pair.
        qp: u32,
    },
    /// A shared receive queue fell below its limit.
    SrqLimit {
        /// Number of the shared receive queue.
        srq: u32,
    },
}
