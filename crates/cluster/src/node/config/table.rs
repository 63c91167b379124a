//! A program's services as a node knows them, and their tables: each service checks its own before
//! anything starts.

use super::super::link::ServiceMain;
use serde::de::DeserializeOwned;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

/// A service that a program has.
#[derive(Clone, Copy, Debug)]
pub struct ServiceSpec {
    /// Its name.
    pub name: &'static str,
    /// Whether a node serves it by default.
    pub by_default: bool,
    /// Reads its table of the configuration, which may be empty: what is wrong with it, or else
    /// what the service needs.
    pub check: fn(ServiceTable<'_>) -> Result<Needs, TableError>,
    /// What its process does.
    pub run: ServiceMain,
}

/// What a service needs before it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Directories that the service writes to: made by the node, and given to the service's user.
    pub directories: Vec<PathBuf>,
    /// Devices that the service opens: a node that is root lets the service's user do so.
    pub devices: Vec<PathBuf>,
    /// The user that it must be.
    pub user: NeededUser,
    /// How long it may take to end with its node, if that is more than [`Needs::ENDING`].
    pub ending: Duration,
}

impl Needs {
    /// How long any service may take to end.
    pub const ENDING: Duration = Duration::from_secs(5);
}

/// The user that a service must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NeededUser {
    /// Any: never root where the node is root.
    #[default]
    Any,
    /// Root, because the operator's table of the service says so.
    Root,
}

/// A service's table.
#[derive(Debug)]
pub struct ServiceTable<'a>(TableSource<'a>);

#[derive(Debug)]
enum TableSource<'a> {
    /// Of a file: faults have positions in it.
    File(Spanned<DeValue<'a>>),
    /// Of a file and of flags.
    Merged(toml::Value),
}

/// What is wrong with a service's table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TableError {
    message: String,
    span: Option<Range<usize>>,
    /// Flags may add what is missing.
    is_incomplete: bool,
}

impl TableError {
    /// A fault of the table as a whole.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), span: None, is_incomplete: false }
    }

    /// The table lacks something without which the service does not start. Flags may name it.
    #[must_use]
    pub fn incomplete(message: impl Into<String>) -> Self {
        Self { is_incomplete: true, ..Self::new(message) }
    }

    pub(super) fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// Where in the file.
    pub(super) fn at(&self) -> Option<usize> {
        self.span.as_ref().map(|span| span.start)
    }
}

impl<'a> ServiceTable<'a> {
    pub(super) fn of_file(value: Spanned<DeValue<'a>>) -> Self {
        Self(TableSource::File(value))
    }

    pub(super) fn merged(value: toml::Value) -> Self {
        Self(TableSource::Merged(value))
    }

    /// What it says. A type with `deny_unknown_fields` finds misspelt words.
    ///
    /// # Errors
    /// The operator's fault: a word or a value that the type does not have.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, TableError> {
        let read = match self.0 {
            TableSource::File(value) => T::deserialize(ValueDeserializer::from(value)),
            TableSource::Merged(value) => value.try_into(),
        };
        read.map_err(|error| TableError {
            message: error.message().trim().replace('\n', "; "),
            span: error.span(),
            is_incomplete: false,
        })
    }
}
