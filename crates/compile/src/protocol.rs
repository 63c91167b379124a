//! The messages between client and server. They control only: sources and results are moved by RDMA
//! Reads and Writes, which the server issues (the paper's Figure 9 with the roles reversed).
//!
//! ```text
//! client                                   server
//!   Hello (its export)        ->
//!                             <-   Ready (its slots)
//!   ResultBuffer (where results go) ->
//!                             <-   Want                a slot is free
//!   Job, or Idle              ->                       Idle: a job may come later, unasked
//!                             <-   Ask                 list a directory, offer a file
//!   Answer                    ->
//!                             ..   RDMA Reads          metadata log, sources
//!                             ..   RDMA Write          results into the slot's result buffer
//!                             <-   Part                the buffer is full: more follows
//!   Taken                     ->
//!                             <-   Outcome
//!   Taken                     ->                       the result buffer is free again
//! ```
//!
//! For a job whose source was preprocessed, a server reads that source at once instead, and asks
//! for nothing.
//!
//! A server answers a job with Return if it has no slot left, and sends Alive each second while it
//! works. This module has only values and their encoding.

use outboard_cluster::codec::Protocol;
use outboard_cluster::hub::Exposed;
use outboard_export::{Answer, Ask, Position};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of these messages: a change of one of them changes the number.
pub(crate) const PROTOCOL: Protocol = Protocol::version(1);

/// Bytes of a slot's result buffer. Longer results come in parts.
pub(crate) const RESULT_BUFFER_BYTES: usize = 1 << 20;

/// Bytes of one job's results, at most; also of all unfinished results from one server to a client.
pub(crate) const RESULTS_MAX: usize = 2 << 30;

/// Bytes of a job's standard output and of its standard error, at most.
pub(crate) const OUTPUT_MAX: u64 = 16 << 20;

/// Bytes of a preprocessed source, at most.
pub(crate) const SOURCE_MAX: usize = 256 << 20;

/// Slots of one server, at most.
pub(crate) const SLOTS_MAX: u32 = 1024;

/// Identifies a job between one client and its servers; a number is never used twice.
pub(crate) type TicketNumber = u64;

/// BLAKE3.
pub(crate) type Digest = [u8; 32];

/// A path or a word: any bytes.
pub(crate) type Bytes = Vec<u8>;

/// A message from a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToServer {
    /// The first message: the client's name, and the memory of its metadata log and snapshots.
    Hello {
        /// User and host, to be shown.
        name: String,
        /// The export's memory.
        export: Exposed,
    },
    /// The memory for results: [`RESULT_BUFFER_BYTES`] bytes for each slot.
    ResultBuffer(Exposed),
    /// A job, in answer to Want, at once or later.
    Job {
        /// What is to be done.
        spec: Box<JobSpec>,
        /// Its compiler's input.
        input: Input,
    },
    /// There is no job now; one may be sent later without another Want.
    Idle,
    /// The answer to an Ask.
    Answer {
        /// The number of the Ask.
        ask: u32,
        /// The answer.
        answer: Answer,
    },
    /// The parts of a compiler, in answer to Describe.
    Described {
        /// Its hash.
        toolchain: Digest,
        /// A [`crate::toolchain::Toolchain`]; empty if the client has no such compiler.
        bytes: Bytes,
    },
    /// A part of a compiler, in answer to NeedPart.
    Part {
        /// Where the server can read it; `None` if the client does not hand it out.
        exposed: Option<Exposed>,
    },
    /// The client has taken the contents of a slot's result buffer.
    Taken {
        /// The job.
        ticket: TicketNumber,
    },
    /// The job is cancelled.
    Cancel {
        /// Which.
        ticket: TicketNumber,
    },
}

/// A message from a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToClient {
    /// The server is ready.
    Ready {
        /// Jobs that it runs at one time.
        slots: u32,
    },
    /// A slot is free.
    Want,
    /// It has no slot for this job; another server may have. Or it has dropped a cancelled job with
    /// a preprocessed source.
    Return {
        /// Which.
        ticket: TicketNumber,
    },
    /// A question about the client's files.
    Ask {
        /// A number that the answer repeats.
        ask: u32,
        /// What.
        what: Ask,
    },
    /// It lacks this compiler and would adopt the client's: which parts does it have?
    Describe {
        /// Its hash.
        toolchain: Digest,
    },
    /// It wants to read this part of a compiler, and has finished with any part before.
    NeedPart {
        /// Its hash.
        toolchain: Digest,
        /// Which of its parts.
        part: u32,
    },
    /// It has finished reading a compiler.
    Equipped {
        /// Its hash.
        toolchain: Digest,
    },
    /// The result buffer is full; more of the results follows.
    Part {
        /// The job.
        ticket: TicketNumber,
        /// The slot whose buffer it is.
        slot: u32,
        /// Bytes in the buffer.
        len: u32,
    },
    /// A job has ended.
    Outcome {
        /// Which.
        ticket: TicketNumber,
        /// How it ended.
        outcome: Box<JobOutcome>,
    },
    /// It still works on this client's jobs.
    Alive,
}

/// The input of a job's compiler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Input {
    /// The client's files, by way of the metadata log.
    Pull {
        /// The end of the metadata log when the job was submitted: the server replays it up to here
        /// before the job starts.
        position: Position,
    },
    /// One preprocessed source, and no other file. The client frees its memory on the job's Outcome
    /// or Return, also if the job was cancelled.
    Source {
        /// The source's path.
        path: Bytes,
        /// The source.
        exposed: Exposed,
    },
}

/// A job, without its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobSpec {
    /// Its number.
    pub(crate) ticket: TicketNumber,
    /// The compiler's path on the client.
    pub(crate) compiler: Bytes,
    /// The hash of the compiler's parts.
    pub(crate) toolchain: Digest,
    /// The command line; the first word is the compiler as it was called.
    pub(crate) argv: Vec<Bytes>,
    /// The working directory.
    pub(crate) cwd: Bytes,
    /// The environment: names and values.
    pub(crate) env: Vec<(Bytes, Bytes)>,
    /// The file mode creation mask.
    pub(crate) umask: u32,
    /// Directories of outputs that are not exported, such as `.deps`.
    pub(crate) places: Vec<Bytes>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum JobOutcome {
    /// The compiler ran.
    Ran(Ran),
    /// The compiler did not run, or its results cannot be used.
    NotRun(JobRefusal),
}

/// The result of a compiler that ran. The result buffer holds, one after the other: standard
/// output, standard error, each file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ran {
    /// The slot whose buffer has the results.
    pub(crate) slot: u32,
    /// The exit status as wait(2) encodes it.
    pub(crate) status: i32,
    /// Bytes of standard output.
    pub(crate) stdout: u64,
    /// Bytes of standard error.
    pub(crate) stderr: u64,
    /// The files that it made.
    pub(crate) files: Vec<Made>,
    /// Bytes in the result buffer now; all bytes before them came in parts.
    pub(crate) len: u32,
    /// The hash of all these bytes.
    pub(crate) hash: Digest,
    /// Times, and bytes read.
    pub(crate) took: Took,
}

/// A file that a compiler made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    /// Its absolute path.
    pub(crate) path: Bytes,
    /// Its permission bits.
    pub(crate) mode: u32,
    /// Its length in bytes.
    pub(crate) len: u64,
}

/// Times, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Took {
    /// From the job's arrival to the compiler's start.
    pub(crate) prepare_us: u64,
    /// From its start to its end.
    pub(crate) run_us: u64,
    /// CPU time of the compiler and all its children.
    pub(crate) cpu_us: u64,
    /// Bytes read from the client's memory for it.
    pub(crate) fetched: u64,
}

/// Why a server did not run a job, or why the job's results may be wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum JobRefusal {
    /// The server lacks this compiler.
    Toolchain,
    /// The job used a path that the client does not show.
    Withheld {
        /// What.
        path: Bytes,
    },
    /// A file changed while the job used it.
    Stale {
        /// Which.
        path: Bytes,
    },
    /// The job exceeded a limit of the server's: time, memory, files.
    Limit {
        /// Which limit, as text for users.
        what: String,
    },
    /// An error of the server itself.
    Trouble {
        /// The error, as text for users.
        what: String,
    },
}

impl fmt::Display for JobRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = String::from_utf8_lossy;
        match self {
            Self::Toolchain => write!(f, "its compiler is not here"),
            Self::Withheld { path } => write!(f, "the client does not show {:?}", shown(path)),
            Self::Stale { path } => write!(f, "a file changed meanwhile: {:?}", shown(path)),
            Self::Limit { what } => write!(f, "it exceeded a limit: {what}"),
            Self::Trouble { what } => write!(f, "{what}"),
        }
    }
}
