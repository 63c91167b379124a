//! Work requests and completions as plain values: what a caller asks of a queue pair and what it
//! gets back. Nothing here does anything; [`crate::Connection`] gives the values their meaning.
//!
//! Buffers travel with the request and come back with the completion, so exclusive memory
//! ([`outboard_mem::OwnedBuf`]) is never shared between a caller and the protocol.

use outboard_mem::SgList;
use outboard_wire::ddp::Stag;

/// A place in the peer's memory: an STag and a tagged offset in bytes (RFC 5041 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The peer's steering tag.
    pub stag: Stag,
    /// Bytes from the start of what the STag names, in the peer's own numbering.
    pub offset: u64,
}

/// What a send work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// A message into the peer's next posted receive (RFC 5040 §5.3).
    Send {
        /// An STag of the peer's that it shall invalidate on delivery.
        invalidate: Option<Stag>,
    },
    /// A Send whose receive completes with immediate data, on connections whose both ends have
    /// agreed to that ([`crate::Connection::allow_send_with_imm`]).
    SendWithImm {
        /// The immediate data.
        immediate: u32,
    },
    /// Places the local bytes in the peer's memory (RFC 5040 §5.1).
    Write {
        /// The address in the peer's memory.
        to: Remote,
    },
    /// A Write followed by Immediate Data, which completes one of the peer's receives.
    WriteWithImm {
        /// The address in the peer's memory.
        to: Remote,
        /// The eight bytes of immediate data, most significant first on the wire.
        immediate: u64,
    },
    /// Immediate Data alone (RFC 7306 §6).
    Immediate {
        /// The eight bytes of immediate data, most significant first on the wire.
        immediate: u64,
    },
    /// Fetches the peer's memory into the local list (RFC 5040 §5.2).
    Read {
        /// The address in the peer's memory.
        from: Remote,
    },
    /// Atomic add on eight aligned bytes; the original lands in the local list (RFC 7306 §5.1.1).
    FetchAdd {
        /// The address in the peer's memory.
        at: Remote,
        /// What to add.
        add: u64,
        /// Field boundaries: a set bit ends a field; 0 is a plain 64-bit add.
        mask: u64,
    },
    /// Masked compare and swap; the original lands in the local list (RFC 7306 §5.1.2).
    CompareSwap {
        /// The address in the peer's memory.
        at: Remote,
        /// New value, under `swap_mask`.
        swap: u64,
        /// Bits to replace.
        swap_mask: u64,
        /// Expected value, under `compare_mask`.
        compare: u64,
        /// Bits to compare.
        compare_mask: u64,
    },
}

impl SendOp {
    /// A plain 64-bit atomic add.
    pub fn fetch_add(at: Remote, add: u64) -> Self {
        Self::FetchAdd { at, add, mask: 0 }
    }

    /// A plain 64-bit compare and swap: all bits are compared and replaced.
    pub fn compare_swap(at: Remote, compare: u64, swap: u64) -> Self {
        Self::CompareSwap { at, swap, swap_mask: u64::MAX, compare, compare_mask: u64::MAX }
    }

    /// True for operations that the peer answers: Read and the atomics. They count against ORD.
    pub fn awaits_response(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::FetchAdd { .. } | Self::CompareSwap { .. })
    }

    /// The operation as completions name it.
    pub fn operation(&self) -> Operation {
        match self {
            Self::Send { .. } | Self::SendWithImm { .. } => Operation::Send,
            Self::Write { .. } | Self::WriteWithImm { .. } => Operation::Write,
            Self::Immediate { .. } => Operation::Immediate,
            Self::Read { .. } => Operation::Read,
            Self::FetchAdd { .. } => Operation::FetchAdd,
            Self::CompareSwap { .. } => Operation::CompareSwap,
        }
    }
}

/// One entry for a send queue.
#[derive(Debug)]
pub struct SendRequest {
    /// The caller's name for it; comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// The local memory: source of Sends and Writes, sink of Reads and atomics.
    pub local: SgList,
    /// Whether success makes a completion; errors always do.
    pub signaled: bool,
    /// Whether the receiver's solicited event shall be raised (Sends and Immediate
    /// Data, alone or behind a Write).
    pub solicited: bool,
    /// Wait until all earlier Reads and atomics are complete (RFC 5040 §5.5 rule 12).
    pub fence: bool,
}

impl SendRequest {
    /// A signaled request without other flags.
    pub fn new(wr_id: u64, op: SendOp, local: SgList) -> Self {
        Self { wr_id, op, local, signaled: true, solicited: false, fence: false }
    }
}

/// One entry for a receive queue.
#[derive(Debug)]
pub struct RecvRequest {
    /// The caller's name for it; comes back in the completion.
    pub wr_id: u64,
    /// Where the message goes.
    pub local: SgList,
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Success,
    /// The incoming message was longer than the receive it found.
    LocalLength,
    /// Local memory could not be used as the request wanted.
    LocalProtection,
    /// The peer refused access to its memory (its Terminate says so).
    RemoteAccess,
    /// The peer could not carry the operation out (its Terminate says so).
    RemoteOperation,
    /// The connection ended before the request was carried out.
    Flushed,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Success => "done",
            Self::LocalLength => "the message was longer than the receive it found",
            Self::LocalProtection => "local memory could not be used as the request wanted",
            Self::RemoteAccess => "the peer refused access to its memory",
            Self::RemoteOperation => "the peer could not carry the operation out",
            Self::Flushed => "the connection ended before the request was carried out",
        })
    }
}

/// What a completion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A Send of this side.
    Send,
    /// A Write of this side, with or without immediate data.
    Write,
    /// A Read of this side.
    Read,
    /// A FetchAdd of this side.
    FetchAdd,
    /// A CompareSwap of this side.
    CompareSwap,
    /// Immediate data of this side.
    Immediate,
    /// A receive that took a Send.
    Receive,
    /// A receive that took Immediate Data.
    ReceiveImmediate,
}

impl Operation {
    /// True for completions that belong to a receive queue.
    pub fn is_receive(self) -> bool {
        matches!(self, Self::Receive | Self::ReceiveImmediate)
    }
}

/// The end of a work request.
#[derive(Debug)]
pub struct Completion {
    /// The caller's name for the request.
    pub wr_id: u64,
    /// Number of the queue pair.
    pub qp: u32,
    /// How it ended.
    pub status: Status,
    /// What it was.
    pub operation: Operation,
    /// Bytes moved.
    pub bytes: u32,
    /// Immediate data that came with it.
    pub immediate: Option<u64>,
    /// The STag that the peer's Send invalidated.
    pub invalidated: Option<Stag>,
    /// Whether the sender asked for a solicited event.
    pub solicited: bool,
    /// The buffers, back in the caller's hands.
    pub local: SgList,
}

impl Completion {
    /// A completion without receive-side extras.
    pub fn new(wr_id: u64, qp: u32, operation: Operation, status: Status, local: SgList) -> Self {
        Self {
            wr_id,
            qp,
            status,
            operation,
            bytes: 0,
            immediate: None,
            invalidated: None,
            solicited: false,
            local,
        }
    }
}

/// Where a connection finds receives: a queue pair's own queue or a shared one.
pub trait Receives {
    /// Takes the oldest posted receive.
    fn pop(&mut self) -> Option<RecvRequest>;
}
