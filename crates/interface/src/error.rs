//! What can be wrong with interfaces and with values of their types.
//!
//! Each error says who is at fault: the author of WIT text, the caller, or whoever wrote bytes.

use crate::types::{FLAGS_MAX, MEMBERS_MAX, TUPLE_LEN_MAX, TYPE_DEPTH_MAX, TYPE_NODES_MAX};
use crate::wire::WireError;

/// An interface that is not to be had: the fault of the text's author, or of whoever chose it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum InterfaceError {
    /// The text is longer than any interface needs.
    #[error("the WIT text has {found} bytes, at most {max} are read: split it")]
    TextLen { found: usize, max: usize },
    /// wit-parser refuses the text.
    #[error("the WIT text is not valid: {reason}")]
    Syntax { reason: String },
    /// What offcodes cannot exchange.
    #[error(
        "{place} is {found}, which cannot be sent to another machine: use records, lists and \
         plain values"
    )]
    Unsupported { place: String, found: &'static str },
    /// A package without a version.
    #[error("package {package} has no version: write `package {package}@1.0.0;`")]
    NoVersion { package: String },
    /// More than the bounds allow.
    #[error("{place} has {found} {what}, at most {max} are allowed")]
    TooMany { place: String, found: usize, what: &'static str, max: usize },
    /// A type without any value.
    #[error("{place} has no cases: remove it or give it one")]
    Empty { place: String },
    /// Types within types.
    #[error(
        "{place} is nested deeper than {TYPE_DEPTH_MAX} levels, or made of more than \
         {TYPE_NODES_MAX} types: simplify it"
    )]
    TypeExtent { place: String },
    /// A list whose length nothing bounds.
    #[error("{place} is a list of items that take no bytes: send their number instead")]
    EmptyItems { place: String },
    /// Names that generated code could not tell apart.
    #[error("{place} has two members called `{name}`, but for capitals: rename one")]
    SameName { place: String, name: String },
    /// A name that is not of the form `namespace:package/interface@version`.
    #[error("`{found}` is no name of an interface: write `namespace:package/interface@1.0.0`")]
    Name { found: String },
    /// One interface does not serve those who import another.
    #[error("{found} does not serve who imports {wanted}: {reason}")]
    Incompatible { found: String, wanted: String, reason: String },
}

impl InterfaceError {
    pub(crate) fn check_members(place: &str, found: usize) -> Result<(), Self> {
        Self::check(place, found, "members", MEMBERS_MAX)
    }

    pub(crate) fn check_flags(place: &str, found: usize) -> Result<(), Self> {
        Self::check(place, found, "flags", FLAGS_MAX)
    }

    pub(crate) fn check_tuple(place: &str, found: usize) -> Result<(), Self> {
        Self::check(place, found, "items", TUPLE_LEN_MAX)
    }

    pub(crate) fn check(
        place: &str,
        found: usize,
        what: &'static str,
        max: usize,
    ) -> Result<(), Self> {
        if found <= max {
            return Ok(());
        }
        Err(Self::TooMany { place: place.to_owned(), found, what, max })
    }
}

/// A value, its bytes or its JSON do not fit the type. `path` leads to the place from the
/// parameters or result on, such as `frame.points[3].x`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum ValueError {
    /// The writer of the bytes is at fault.
    #[error("the bytes of {path} are wrong: {source}")]
    Wire { path: String, source: WireError },
    /// The caller is at fault.
    #[error("{path} must be {expected}, not {found}")]
    Mismatch { path: String, expected: String, found: String },
    /// The caller is at fault.
    #[error("{path} takes {expected} values, {found} are given")]
    Count { path: String, expected: usize, found: usize },
    /// More than is exchanged at once.
    #[error("{path} is too large: at most {max} {what} are sent at once")]
    TooLarge { path: String, what: &'static str, max: usize },
}

impl ValueError {
    /// The same error, seen from the value that holds the one it is about.
    #[must_use]
    pub(crate) fn within(mut self, segment: impl FnOnce() -> String) -> Self {
        let (Self::Wire { path, .. }
        | Self::Mismatch { path, .. }
        | Self::Count { path, .. }
        | Self::TooLarge { path, .. }) = &mut self;
        let is_joined = path.is_empty() || path.starts_with(['[', '.']);
        let dot = if is_joined { "" } else { "." };
        *path = format!("{}{dot}{path}", segment());
        self
    }

    pub(crate) fn wire(source: WireError) -> Self {
        Self::Wire { path: String::new(), source }
    }

    pub(crate) fn mismatch(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Mismatch { path: String::new(), expected: expected.into(), found: found.into() }
    }

    pub(crate) fn count(expected: usize, found: usize) -> Self {
        Self::Count { path: String::new(), expected, found }
    }

    pub(crate) fn too_large(what: &'static str, max: usize) -> Self {
        Self::TooLarge { path: String::new(), what, max }
    }
}
