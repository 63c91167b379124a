//! What clients and a node's service `active` say to each other: Sends on a queue pair, beside
//! ordinary one-sided operations on the regions that the service has exposed.
//!
//! A Send is a batch (`outboard_cluster::codec`): requests one behind the other to the service,
//! answers one behind the other to the client. Every request has a number, which its answer
//! repeats; answers may come in another order. Numbers of a client grow, and are used once: the
//! same number again, marked as a retry, is the same request.
//!
//! `Execute` and `Executed` are the hot messages: they come first in their enums, borrow from the
//! batch, and cost some tens of nanoseconds to encode and to decode.

use outboard_cluster::codec::Protocol;
use outboard_cluster::hub::Exposed;
use serde::{Deserialize, Serialize};

/// The service's name.
pub const SERVICE: &str = "active";
/// The version of these messages.
pub const PROTOCOL: Protocol = Protocol::version(3);

/// Bytes of a batch, at most.
pub const BATCH_MAX: usize = 64 * 1024;
/// Bytes of arguments, of a result in an answer, and of a module in a request, at most: longer
/// results and modules go one-sided; longer arguments do not go.
pub const INLINE_MAX: usize = 48 * 1024;
/// Bytes of requests that a client has under way, at most, as [`ExecuteRequest`] counts them: a
/// service that gets many more before it has answered ends the connection.
pub const UNDER_WAY_MAX: usize = 2 << 20;
/// Bytes of a name: of a region, a module, an entry.
pub const NAME_MAX: usize = 255;
/// Bytes of a note to a region's backend, or of its notice, at most.
pub const NOTE_MAX: usize = 4 * 1024;
/// Regions that one connection has attached, at most; a region's handle is below this.
pub const ATTACHED_MAX: u32 = 64;
/// Entries that an answer lists of a module, at most.
pub const ENTRIES_LISTED: usize = 64;

/// The number that a client has chosen for itself, at random: what it has asked before a
/// connection was lost it finds again under this number and its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ActiveClientId(#[serde(with = "serde_bytes")] pub [u8; 16]);

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActiveRequest<'a> {
    /// Execute an entry of a module; answered by [`ActiveAnswer::Executed`].
    #[serde(borrow)]
    Execute(ExecuteRequest<'a>),
    /// The first request of every connection; answered by [`ActiveAnswer::Welcome`].
    Hello {
        /// Who asks.
        client: ActiveClientId,
    },
    /// Expose a region to this connection; answered by [`ActiveAnswer::Attached`].
    Attach {
        /// The request's number.
        number: u64,
        /// The client's name for it in later requests, below [`ATTACHED_MAX`].
        handle: u32,
        /// The region's name.
        #[serde(borrow)]
        region: &'a str,
        /// The latest epoch of it that the client has seen: a service with an earlier one has been
        /// replaced, and ends the connection.
        epoch: u64,
    },
    /// Take a region back from this connection. Not answered.
    Detach {
        /// Which.
        handle: u32,
    },
    /// Load a module; answered by [`ActiveAnswer::Loaded`] or [`ActiveAnswer::NotLoaded`].
    Load {
        /// The request's number.
        number: u64,
        /// What people call it.
        #[serde(borrow)]
        name: &'a str,
        /// Its bytes.
        #[serde(borrow)]
        code: ModuleBytes<'a>,
    },
    /// The modules that the client may execute; answered by [`ActiveAnswer::Modules`].
    List {
        /// The request's number.
        number: u64,
        /// How many to leave out, from the first.
        from: u32,
    },
    /// Drop a module that this identity has loaded; answered by [`ActiveAnswer::Ok`].
    Drop {
        /// The request's number.
        number: u64,
        /// Which.
        #[serde(with = "serde_bytes")]
        module: [u8; 32],
    },
    /// End an execution of this identity's; answered by [`ActiveAnswer::Ok`].
    Kill {
        /// The request's number.
        number: u64,
        /// Which.
        target: KillTarget,
    },
    /// The executions of this identity that are under way; answered by [`ActiveAnswer::Text`].
    Running {
        /// The request's number.
        number: u64,
    },
    /// The latest slow executions of this identity; answered by [`ActiveAnswer::Text`].
    Slowlog {
        /// The request's number.
        number: u64,
    },
    /// Counters; answered by [`ActiveAnswer::Text`].
    Stats {
        /// The request's number.
        number: u64,
    },
    /// Something for the backend of a region that has one. Not answered.
    Note {
        /// Up to [`NOTE_MAX`].
        #[serde(with = "serde_bytes")]
        bytes: &'a [u8],
    },
    /// Write a region to its file; answered by [`ActiveAnswer::Ok`].
    Flush {
        /// The request's number.
        number: u64,
        /// Which.
        handle: u32,
    },
}

/// A request to execute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecuteRequest<'a> {
    /// The request's number.
    pub number: u64,
    /// If it was asked before, on a connection that was lost: the number of the region's last
    /// commit that the client knew of when it asked for the first time. An answer that belongs to a
    /// later commit is kept for a while.
    pub retried_since: Option<u64>,
    /// The region, by its handle.
    pub handle: u32,
    /// The module's hash.
    #[serde(with = "serde_bytes")]
    pub module: [u8; 32],
    /// The entry's name.
    pub entry: &'a str,
    /// The arguments.
    #[serde(with = "serde_bytes")]
    pub args: &'a [u8],
    /// Where the result goes.
    pub result: ResultPlace,
    /// Microseconds that the execution may take; 0: as many as the service allows.
    pub limit_us: u32,
}

impl ExecuteRequest<'_> {
    /// What a request counts among those that are under way, for its entry and arguments of so many
    /// bytes: no less than it has.
    #[must_use]
    pub const fn counted(text_len: usize) -> usize {
        text_len + 128
    }
}

/// Where an execution's result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResultPlace {
    /// Into the answer: at most [`INLINE_MAX`] bytes.
    Inline,
    /// Into memory that the client has exposed, as many bytes as it has, before the answer comes.
    Memory(Exposed),
}

/// A module's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModuleBytes<'a> {
    /// Here: at most [`INLINE_MAX`].
    Inline(#[serde(with = "serde_bytes")] &'a [u8]),
    /// In memory that the client has exposed; the service reads them.
    Memory(Exposed),
}

/// Which execution is to be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KillTarget {
    /// That of the same client's request with this number.
    Request(u64),
    /// The one with this number in the list of executions under way.
    Execution(u64),
}

/// The service's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActiveAnswer<'a> {
    /// An execution is over, or was none.
    Executed {
        /// The request's number.
        number: u64,
        /// The number of the region's last commit, as far as the service knows it: the execution's
        /// own, if it has written.
        seq: u64,
        /// What became of it.
        #[serde(borrow)]
        outcome: AnswerOutcome<'a>,
    },
    /// The connection is ready for requests.
    Welcome {
        /// The client's identity, as modules see it.
        #[serde(with = "serde_bytes")]
        caller: [u8; 32],
    },
    /// A region is exposed.
    Attached {
        /// The request's number.
        number: u64,
        /// Where it is.
        memory: Exposed,
        /// Where its version is: a word that is odd while a commit is applied and grows by two with
        /// each.
        head: Exposed,
        /// The number of its last commit.
        seq: u64,
        /// A number that its journal has for life: of what was asked under another one, nothing
        /// is known.
        incarnation: u64,
        /// Which of the services that had it one after the other this is.
        epoch: u64,
        /// Whether the client may write into it, or only read.
        may_write: bool,
    },
    /// A module is there.
    Loaded {
        /// The request's number.
        number: u64,
        /// Its hash.
        #[serde(with = "serde_bytes")]
        module: [u8; 32],
        /// Its entries, or [`ENTRIES_LISTED`] of them.
        entries: Vec<EntrySummary>,
    },
    /// A module is not there, for want of another one.
    NotLoaded {
        /// The request's number.
        number: u64,
        /// The module that must be loaded before.
        #[serde(with = "serde_bytes")]
        missing: [u8; 32],
    },
    /// Some modules.
    Modules {
        /// The request's number.
        number: u64,
        /// In the order of their hashes.
        modules: Vec<ModuleSummary>,
        /// How many there are.
        total: u32,
    },
    /// It is done.
    Ok {
        /// The request's number.
        number: u64,
    },
    /// JSON for people and programs.
    Text {
        /// The request's number.
        number: u64,
        /// The text.
        json: &'a str,
    },
    /// Something that the backend of a region says, and that was not asked for.
    Notice {
        /// Up to [`NOTE_MAX`].
        #[serde(with = "serde_bytes")]
        bytes: &'a [u8],
    },
    /// It is not done.
    Refused {
        /// The request's number.
        number: u64,
        /// Why.
        why: &'a str,
    },
}

/// What became of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AnswerOutcome<'a> {
    /// It is done: the result.
    Done(#[serde(with = "serde_bytes")] &'a [u8]),
    /// It is done, and so many bytes of result are in the client's memory.
    Written(u64),
    /// The module has ended it; nothing was written.
    Failed {
        /// The module's number for it.
        code: i32,
        /// The module's words.
        text: &'a str,
    },
    /// There is no such module, or none that this identity has loaded.
    NoCode,
    /// The module did something impossible; nothing was written.
    Trap(&'a str),
    /// It took too long, longer than whose limit; nothing was written.
    Timeout(&'a str),
    /// It was killed; nothing was written.
    Killed,
    /// The region changed so often meanwhile that it was given up; nothing was written.
    Conflict,
    /// The module has no such entry.
    NoEntry(&'a str),
    /// This identity has as much under way as it may have: try again later. Nothing was executed.
    Busy(&'a str),
    /// It was not executed: why.
    Refused(&'a str),
    /// It was asked before, and the service does not know any more what became of it: it may have
    /// been executed, once.
    Unknown,
    /// The node's machine failed.
    Machine(&'a str),
}

/// An entry of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntrySummary {
    /// Its name.
    pub name: String,
    /// Whether it cannot write into a region.
    pub is_read_only: bool,
}

/// A module, as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleSummary {
    /// Its hash.
    #[serde(with = "serde_bytes")]
    pub module: [u8; 32],
    /// What the identity that loaded it calls it.
    pub name: String,
    /// Its bytes.
    pub len: u64,
    /// Whether it is the operator's, for every identity.
    pub is_operators: bool,
    /// Its entries, or [`ENTRIES_LISTED`] of them.
    pub entries: Vec<EntrySummary>,
}

#[cfg(test)]
mod tests;
