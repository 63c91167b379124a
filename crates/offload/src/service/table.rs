//! The service's table of a node's configuration: `[offload]`.
//!
//! docs/offload.md, "A node's table", has one with every key and what it means.

use crate::describe::quantity::parse_bytes;
use crate::device::OFFCODES_MAX;
use outboard_cluster::node::{Needs, TableError};
use outboard_secure::NodeId;
use serde::Deserialize;

/// Sessions at a time, at most.
const SESSIONS_MAX: usize = 1024;
/// Bytes of an offcode's memory, at most.
const MEMORY_MAX: u64 = 2 << 30;

/// See this file's first lines.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct OffloadTable {
    sessions: Option<usize>,
    offcodes: Option<usize>,
    memory: Option<String>,
    allow: Option<Vec<String>>,
    /// Jobs of this service: the node's own word, which every table may have.
    #[serde(rename = "slots")]
    _slots: Option<u32>,
}

/// What clients may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadLimits {
    /// Sessions at a time, of all clients.
    pub sessions: usize,
    /// Offcodes of a session.
    pub offcodes: usize,
    /// Bytes of memory of an offcode.
    pub memory_bytes: u64,
    /// The identities that may run offcodes; `None`: everybody with the service's key.
    pub allow: Option<Vec<NodeId>>,
}

impl Default for OffloadLimits {
    fn default() -> Self {
        Self { sessions: 64, offcodes: 256, memory_bytes: 256 << 20, allow: None }
    }
}

impl OffloadTable {
    pub(super) fn check(&self) -> Result<Needs, TableError> {
        self.limits().map(|_| Needs::default()).map_err(TableError::new)
    }

    pub(super) fn limits(&self) -> Result<OffloadLimits, String> {
        let default = OffloadLimits::default();
        let sessions = self.sessions.unwrap_or(default.sessions);
        let offcodes = self.offcodes.unwrap_or(default.offcodes);
        if !(1..=SESSIONS_MAX).contains(&sessions) {
            return Err(format!("sessions = {sessions}: write 1 to {SESSIONS_MAX}"));
        }
        if !(1..=OFFCODES_MAX).contains(&offcodes) {
            return Err(format!("offcodes = {offcodes}: write 1 to {OFFCODES_MAX}"));
        }
        let memory_bytes = match &self.memory {
            Some(text) => parse_bytes(text)
                .filter(|bytes| (1 << 16..=MEMORY_MAX).contains(bytes))
                .ok_or_else(|| format!("memory = {text:?}: write 64KiB to 2GiB"))?,
            None => default.memory_bytes,
        };
        let identity =
            |text: &String| text.parse().map_err(|error| format!("allow = [{text:?}]: {error}"));
        let allow = self.allow.as_ref();
        let allow = allow.map(|all| all.iter().map(identity).collect()).transpose()?;
        Ok(OffloadLimits { sessions, offcodes, memory_bytes, allow })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(text: &str) -> Result<OffloadLimits, String> {
        let table: OffloadTable = toml::from_str(text).map_err(|error| error.to_string())?;
        table.limits()
    }

    #[test]
    fn limits_are_read_and_bounded() {
        let found = limits("sessions = 2\noffcodes = 3\nmemory = \"1MiB\"").expect("limits");
        assert_eq!((found.sessions, found.offcodes, found.memory_bytes), (2, 3, 1 << 20));
        assert_eq!(limits(""), Ok(OffloadLimits::default()));
        for wrong in ["sessions = 0", "offcodes = 99999", "memory = \"3GiB\"", "allow = [\"x\"]"] {
            assert!(limits(wrong).is_err(), "{wrong}");
        }
    }
}
