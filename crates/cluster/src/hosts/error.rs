//! What is wrong with a host list, and where.

use super::{HOSTS_MAX, SLOTS_MAX};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why there is no host list.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// The text is wrong somewhere.
    #[error("{source_name}, line {line}, column {column}, at \"{excerpt}\": {problem}")]
    Text {
        /// Where the text comes from: a file's path, a variable's name.
        source_name: String,
        /// From 1.
        line: usize,
        /// Characters from the line's start, from 1.
        column: usize,
        /// What is wrong, cut short if it is long.
        excerpt: String,
        /// Why.
        problem: Problem,
    },
    /// No host in it.
    #[error("{source_name} names no host: write one or more, like n[01-14]/4,big:7411/32")]
    Empty {
        /// Where the text comes from.
        source_name: String,
    },
    /// It is not UTF-8.
    #[error("{source_name} is not text: write host names in ASCII")]
    NotText {
        /// Where it comes from.
        source_name: String,
    },
    /// The system does not let it be read.
    #[error("the host list {} cannot be read: {source}; see path and rights", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file is longer than any host list.
    #[error("the host list {} has more than {len_max} bytes: name another file", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Bytes that it may have.
        len_max: u64,
    },
}

/// What is wrong at a place in a host list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Nothing between two commas, or behind the last.
    NoHost,
    /// A port or slots without a name before them.
    NoName,
    /// A character that no host name has.
    Character,
    /// A name that begins with `-`, which programs take for an option.
    Dash,
    /// A name with more characters than DNS allows.
    LongName,
    /// A bracket without its partner.
    Bracket,
    /// A group with something else than numbers and ranges.
    Group,
    /// A range from the larger to the smaller number.
    Backwards,
    /// A range whose ends are padded to different lengths.
    Padding,
    /// More hosts than a list may have.
    TooMany,
    /// An address in brackets that is none, or with a zone.
    Address,
    /// An IPv6 address without brackets.
    Bare,
    /// Not a port.
    Port,
    /// Not a number of slots, or too many with those named before.
    Slots,
    /// A host named with slots and without.
    SlotsOnce,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(
                f,
                "the list would have more than {HOSTS_MAX} hosts: correct the range, or split it"
            ),
            Self::Slots => {
                write!(f, "a host has 1 to {SLOTS_MAX} slots: leave hosts with none out")
            }
            plain => f.write_str(plain.text()),
        }
    }
}

impl Problem {
    fn text(self) -> &'static str {
        match self {
            Self::NoHost => "a host is missing: remove the comma",
            Self::NoName => "a name is missing before it: write name:port/slots",
            Self::Character => "a host name has letters, digits, '-', '.' and '_' only",
            Self::Dash => "a host name does not begin with '-'",
            Self::LongName => "a host name has 253 characters at most",
            Self::Bracket => "a bracket is not closed, or not opened: write n[01-14]",
            Self::Group => "brackets hold numbers and ranges, like [1,3,5-7], or an IPv6 address",
            Self::Backwards => "the range runs backwards: write the smaller number first",
            Self::Padding => {
                "the range's ends are padded differently: write both with as many digits"
            }
            Self::Address => "this is no IPv6 address: write it like [2001:db8::1]:7411",
            Self::Bare => "an IPv6 address stands in brackets: write [::1] or [::1]:7411",
            Self::Port => "a port is a number from 1 to 65535",
            Self::SlotsOnce => {
                "the host is named with slots and without: give slots each time, or never"
            }
            Self::TooMany | Self::Slots => "too many",
        }
    }
}
