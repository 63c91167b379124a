//! What can go wrong between an object's bytes and a program in an interface's path.
//!
//! Never hides whose fault it is: the object's author, whoever chose the interface, or the machine.

use std::io;

use crate::verifier::VerifierRefusal;

/// Why a body was not loaded, not attached, or not read.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// The author: the object is longer than any body may be.
    #[error("the object has {bytes} bytes, at most {limit} are allowed: build it with -O2")]
    ObjectTooLong {
        /// Bytes of the object.
        bytes: usize,
        /// Most bytes of an object.
        limit: usize,
    },
    /// The author: these bytes are no object for BPF.
    #[error("this is no object for BPF ({found}): build it with clang --target=bpfel -O2 -g -c")]
    NotBpf {
        /// What they are instead.
        found: String,
    },
    /// The author: an object whose parts contradict each other.
    #[error("the object for BPF is damaged ({reason}): build it again")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
    /// The author: no program for an interface.
    #[error("the object has no program in section \"xdp\", \"xdp.frags\" or \"classifier\"")]
    NoProgram,
    /// The author: which program is meant cannot be said.
    #[error("the object has several programs of one kind ({names}): a body has one")]
    SeveralPrograms {
        /// Their names.
        names: String,
    },
    /// The author: a map that a body may not have.
    #[error("map {map}: {reason}")]
    Map {
        /// The map's name.
        map: String,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// The caller: something was given for a map that the body does not have.
    #[error("the body has no map {map}, so {what} cannot be set")]
    NoSuchMap {
        /// The map's name.
        map: &'static str,
        /// What was given.
        what: &'static str,
    },
    /// The caller: more or less was given than the map holds.
    #[error("{what} has {found} {unit}, the body takes {expected}")]
    Length {
        /// What was given.
        what: &'static str,
        /// How much of it.
        found: usize,
        /// Of what.
        unit: &'static str,
        /// How much it takes: exactly for state, at most for a configuration.
        expected: usize,
    },
    /// The author: the kernel's verifier does not let the program run.
    #[error("{0}")]
    Refused(Box<VerifierRefusal>),
    /// The caller: there is no such interface in this network namespace.
    #[error("there is no network interface {name} here: `ip link` lists those that are")]
    NoSuchInterface {
        /// Its name, or its index.
        name: String,
    },
    /// The caller: a loopback interface.
    #[error(
        "{name} is a loopback interface: a program there could cut off this machine's own \
         services, so it is always refused"
    )]
    Loopback {
        /// Its name.
        name: String,
    },
    /// Whoever attached it: another program is in the interface's path.
    #[error("{name} has another XDP program already{}: take that one off first", by(*.program))]
    Occupied {
        /// The interface.
        name: String,
        /// The kernel's number of that program, if it says so.
        program: Option<u32>,
    },
    /// This machine: the process may not do that.
    #[error("{what} needs {capability}: run it as root, or with that capability")]
    Capability {
        /// What was tried.
        what: &'static str,
        /// The capabilities that are missing.
        capability: String,
    },
    /// This machine: the kernel or the interface's driver cannot do that.
    #[error("the kernel cannot {what}: {source}; Linux {since} can")]
    Unsupported {
        /// What was tried.
        what: String,
        /// What it said.
        source: io::Error,
        /// The first version of Linux that is known to.
        since: &'static str,
    },
    /// This machine: attaching failed for another reason.
    #[error("the kernel does not attach the program to {name}: {source}")]
    Attach {
        /// The interface.
        name: String,
        /// What it said.
        source: io::Error,
    },
    /// This machine: a system call failed.
    #[error("{call}: {source}")]
    System {
        /// What was tried.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl NicError {
    /// A failure of the call `call`.
    pub(crate) fn system(call: &'static str, source: impl Into<io::Error>) -> Self {
        Self::System { call, source: source.into() }
    }

    pub(crate) fn map(map: &str, reason: impl Into<String>) -> Self {
        Self::Map { map: map.to_owned(), reason: reason.into() }
    }

    pub(crate) fn malformed(reason: impl ToString) -> Self {
        Self::Malformed { reason: reason.to_string() }
    }
}

fn by(program: Option<u32>) -> String {
    program.map(|id| format!(" (number {id})")).unwrap_or_default()
}
