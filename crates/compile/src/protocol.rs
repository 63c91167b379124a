//! What clients and servers say to each other: control messages only, sources and objects go
//! one-sided (the paper's Figure 9, turned around so that servers drive).
//!
//! ```text
//! client                                   server
//!   Hello (its export)        ->
//!                             <-   Ready (its slots)
//!   Landing (where results go) ->
//!                             <-   Want                a slot is free
//!   Job, or Idle              ->                       Idle: a job may come later, unasked
//!                             <-   Ask                 list a directory, offer a file
//!   Answer                    ->
//!                             ..   RDMA Reads          catalogue, sources
//!                             ..   RDMA Write          results into the slot's landing place
//!                             <-   Part                ... which was too small: more follows
//!   Taken                     ->
//!                             <-   Outcome
//!   Taken                     ->                       the landing place is free again
//! ```
//!
//! Of a job whose source was preprocessed a server reads the source instead, at once, and asks for
//! nothing.
//!
//! A server that has no slot left says Return to a job, and one that works says Alive each second.
//! Values only.

use outboard_cluster::hub::Exposed;
use outboard_export::{Answer, Ask, Position};
use serde::{Deserialize, Serialize};

/// Octets of a slot's landing place. Results that are longer come in parts.
pub(crate) const LANDING: usize = 1 << 20;

/// Octets of a preprocessed source, at most.
pub(crate) const SOURCE_MAX: usize = 256 << 20;

/// Slots of one server, at most.
pub(crate) const SLOTS_MAX: u32 = 1024;

/// Names a job between one client and its servers; never used twice.
pub(crate) type TicketNumber = u64;

/// BLAKE3.
pub(crate) type Digest = [u8; 32];

/// A path or a word: octets, whatever they are.
pub(crate) type Octets = Vec<u8>;

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToServer {
    /// Who it is, and its catalogue and snapshots.
    Hello {
        /// For people: user and host.
        name: String,
        /// The export's memory.
        export: Exposed,
    },
    /// Where results go: [`LANDING`] octets a slot.
    Landing(Exposed),
    /// A job, in answer to Want or later.
    Job {
        /// What is to be done.
        spec: Box<JobSpec>,
        /// What its compiler reads.
        input: Input,
    },
    /// No job now: one may come later, unasked.
    Idle,
    /// What came of an Ask.
    Answer {
        /// Its number.
        ask: u32,
        /// What came of it.
        answer: Answer,
    },
    /// What a compiler is made of, in answer to Describe.
    Described {
        /// Its hash.
        toolchain: Digest,
        /// A [`crate::toolchain::Toolchain`]; nothing if it is none of this client's.
        octets: Octets,
    },
    /// A part of a compiler, in answer to NeedPart.
    Part {
        /// Where it can be read; nothing if it is not handed out.
        exposed: Option<Exposed>,
    },
    /// What was in a slot's landing place has been taken.
    Taken {
        /// Whose results.
        ticket: TicketNumber,
    },
    /// Nobody wants that job any more.
    Cancel {
        /// Which.
        ticket: TicketNumber,
    },
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToClient {
    /// It serves.
    Ready {
        /// Jobs that it runs at a time.
        slots: u32,
    },
    /// A slot is free.
    Want,
    /// It has no slot for that job: another server may. Or it has forgotten a job with a source
    /// that was cancelled.
    Return {
        /// Which.
        ticket: TicketNumber,
    },
    /// It needs to know.
    Ask {
        /// Comes back with the answer.
        ask: u32,
        /// What.
        what: Ask,
    },
    /// It does not have that compiler and takes the client's, if it is told what it is made of.
    Describe {
        /// Its hash.
        toolchain: Digest,
    },
    /// It wants to read a part of a compiler; of others it has read what it wanted.
    NeedPart {
        /// Its hash.
        toolchain: Digest,
        /// Which of its parts.
        part: u32,
    },
    /// It reads nothing more of a compiler.
    Equipped {
        /// Its hash.
        toolchain: Digest,
    },
    /// Results fill a landing place, and more follow.
    Part {
        /// Whose.
        ticket: TicketNumber,
        /// The slot, which says where.
        slot: u32,
        /// Octets.
        len: u32,
    },
    /// A job is over.
    Outcome {
        /// Which.
        ticket: TicketNumber,
        /// How.
        outcome: Box<Outcome>,
    },
    /// It works on this client's jobs.
    Alive,
}

/// What a job's compiler reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Input {
    /// The client's files, as the catalogue says.
    Pull {
        /// The catalogue when the job was submitted: nothing older may be used.
        position: Position,
    },
    /// One source that is preprocessed, and no other file. Once it is read, the job's outcome or
    /// its Return, also when it was cancelled, tells the client to take its memory back.
    Source {
        /// The source's path.
        path: Octets,
        /// The source.
        exposed: Exposed,
    },
}

/// A job, complete but for its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobSpec {
    /// Its name.
    pub(crate) ticket: TicketNumber,
    /// The compiler's path at home.
    pub(crate) compiler: Octets,
    /// The hash of the compiler's parts.
    pub(crate) toolchain: Digest,
    /// The words, the first being the compiler as it was called.
    pub(crate) argv: Vec<Octets>,
    /// Where it runs.
    pub(crate) cwd: Octets,
    /// The environment: names and values.
    pub(crate) env: Vec<(Octets, Octets)>,
    /// The file mode creation mask.
    pub(crate) umask: u32,
    /// Directories in which it makes files although they are not shown, such as `.deps`.
    pub(crate) places: Vec<Octets>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The compiler ran.
    Ran(Ran),
    /// It did not, or what it made is of no use.
    NotRun(Refusal),
}

/// A compiler that ran. What it made lies in the landing place, one behind the other: standard
/// output, standard error, each file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ran {
    /// The slot, which says where.
    pub(crate) slot: u32,
    /// As wait(2) encodes it.
    pub(crate) status: i32,
    /// Octets of standard output.
    pub(crate) stdout: u64,
    /// Octets of standard error.
    pub(crate) stderr: u64,
    /// The files that it made.
    pub(crate) files: Vec<Made>,
    /// Octets in the landing place now; what is before them came in parts.
    pub(crate) len: u32,
    /// Of all octets.
    pub(crate) hash: Digest,
    /// What it took.
    pub(crate) took: Took,
}

/// A file that a compiler made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    /// Its absolute path.
    pub(crate) path: Octets,
    /// Its permission bits.
    pub(crate) mode: u32,
    /// Its octets.
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
    /// Octets read from the client's memory for it.
    pub(crate) fetched: u64,
}

/// Why a server did not run a job, or does not vouch for what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// It does not have this compiler.
    Toolchain,
    /// The job looked at something that may not be shown.
    Withheld {
        /// What.
        path: Octets,
    },
    /// A file changed while the job used it.
    Stale {
        /// Which.
        path: Octets,
    },
    /// A limit of the server's: time, memory, files.
    Limit {
        /// Which, for people.
        what: String,
    },
    /// The server's own trouble, for people.
    Trouble {
        /// What.
        what: String,
    },
}
