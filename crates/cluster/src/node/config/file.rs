//! The configuration's file: read and checked as a whole, and faults with their lines.

use super::{ConfigError, NodeConfig, ServiceSpec, ServiceTable, TABLE_SLOTS};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// Bytes of a configuration file, at most.
const LEN_MAX: u64 = 1 << 20;

/// Settings of the node itself: these names are no services.
const SETTINGS: &[&str] = &[
    "listen",
    "serve",
    "slots",
    "sessions",
    "key",
    "identity",
    "revoked",
    "allowed",
    "trusted_fabric",
    "user",
    "log",
    "tenant",
    "reach",
];

impl NodeConfig {
    /// Reads a file and checks it against the services that there are.
    ///
    /// # Errors
    /// [`ConfigError`], with the line, when it cannot be read or is invalid.
    pub fn read(path: &Path, known: &[ServiceSpec]) -> Result<Self, ConfigError> {
        let failed = |source| ConfigError::File { path: path.into(), source };
        let mut text = String::new();
        // A pipe or a device has no length to look at.
        let file = File::open(path).map_err(failed)?;
        file.take(LEN_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        if u64::try_from(text.len()).is_ok_and(|len| len > LEN_MAX) {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        parse(&text, known).map_err(|FileFault { at, message }| {
            let line = 1 + text.get(..at).unwrap_or(&text).matches('\n').count();
            ConfigError::Line { path: path.into(), line, message }
        })
    }
}

/// What is wrong, and at which byte.
#[derive(Debug)]
pub(super) struct FileFault {
    at: usize,
    pub(super) message: String,
}

impl From<toml::de::Error> for FileFault {
    fn from(error: toml::de::Error) -> Self {
        let message = error.message().trim().replace('\n', "; ");
        Self { at: error.span().map_or(0, |span| span.start), message }
    }
}

/// A valid configuration, or the first fault.
pub(super) fn parse(text: &str, known: &[ServiceSpec]) -> Result<NodeConfig, FileFault> {
    let document = DeTable::parse(text)?;
    let places: Vec<(String, Range<usize>)> =
        document.get_ref().keys().map(|key| (key.get_ref().to_string(), key.span())).collect();
    let (span, words) = (document.span(), document.into_inner());
    let (settings, tables): (DeTable<'_>, DeTable<'_>) =
        words.into_iter().partition(|(word, _)| SETTINGS.contains(&word.get_ref().as_ref()));
    let settings = Spanned::new(span, DeValue::Table(settings));
    let mut config = NodeConfig::deserialize(ValueDeserializer::from(settings))?;
    for (word, value) in tables {
        let (name, at) = (word.get_ref().to_string(), word.span().start);
        check_table(&name, value.clone(), known)
            .map_err(|(own, message)| FileFault { at: own.unwrap_or(at), message })?;
        config.tables.insert(name, toml::Value::deserialize(ValueDeserializer::from(value))?);
    }
    config.check_file(known).map_err(|error| {
        let place = places.iter().find(|(word, _)| Some(word.as_str()) == error.key());
        FileFault { at: place.map_or(0, |(_, span)| span.start), message: error.to_string() }
    })?;
    Ok(config)
}

/// Asks a service about its table; the place of a fault, if it has one.
fn check_table(
    name: &str,
    mut value: Spanned<DeValue<'_>>,
    known: &[ServiceSpec],
) -> Result<(), (Option<usize>, String)> {
    let spec = known.iter().find(|spec| spec.name == name);
    let (Some(spec), DeValue::Table(words)) = (spec, value.get_mut()) else {
        // The check of the whole says so.
        return Ok(());
    };
    words.remove(TABLE_SLOTS);
    match (spec.check)(ServiceTable::of_file(value)) {
        Err(fault) if !fault.is_incomplete() => {
            Err((fault.at(), format!("the table [{name}]: {fault}")))
        }
        _ => Ok(()),
    }
}
