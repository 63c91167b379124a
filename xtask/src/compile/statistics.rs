//! The output of `outboard cc --stats --json` after a build, and the checks on it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Why jobs of an ordinary build run locally.
pub(super) const ORDINARY: &[&str] = &[
    "links",
    "asks the compiler something",
    "preprocesses only",
    "has no source",
    "has several sources",
    "reads standard input",
    "writes to no ordinary file",
];

/// Further causes, when build files try options out.
pub(super) const PROBES: &[&str] = &[
    "brings its own compiler parts",
    RERUN,
    "found no server with this compiler",
    "has an unknown option",
    // Build files try options out one after another, and then the first sources.
    ALONE,
    // On a machine that is busy with other work.
    SLOW,
];

/// Why they may when servers fail, or files change under them.
pub(super) const FAILED: &[&str] =
    &[SLOW, "was lost by servers", "found no free slot in time", "found no server"];
pub(super) const RERUN: &str = "failed remotely and was run again";
pub(super) const ALONE: &str = "came one at a time";
const SLOW: &str = "took too long on a server";

/// Where jobs ran, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Statistics {
    /// On servers.
    pub(super) remote: u64,
    /// Locally.
    pub(super) local: u64,
    /// Number of local jobs that had failed on a server first.
    pub(super) failed: u64,
    /// Wrappers that ended before their jobs.
    pub(super) abandoned: u64,
    /// Local jobs by cause.
    pub(super) causes: BTreeMap<String, u64>,
    /// Local jobs by cause and offending argument.
    words: BTreeMap<String, u64>,
    /// Jobs by server.
    pub(super) servers: BTreeMap<String, u64>,
}

impl Statistics {
    /// Parses the program's output.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let value: Value =
            serde_json::from_str(text).with_context(|| format!("no statistics: {text}"))?;
        let number = |name: &str| {
            let number = value.get(name).and_then(Value::as_u64);
            number.with_context(|| format!("no {name} in {value}"))
        };
        let servers = value.get("servers").and_then(Value::as_object);
        let servers = servers.with_context(|| format!("no servers in {value}"))?.iter();
        let jobs = |server: &Value| server.get("jobs").and_then(Value::as_u64).unwrap_or_default();
        Ok(Self {
            remote: number("remote")?,
            local: number("local")?,
            failed: number("failed_remotely")?,
            abandoned: number("abandoned")?,
            causes: table(&value, "causes"),
            words: table(&value, "words"),
            servers: servers.map(|(name, server)| (name.clone(), jobs(server))).collect(),
        })
    }

    /// Requires that jobs ran locally for these causes only.
    ///
    /// # Errors
    /// Names the other causes.
    pub(super) fn locally_only_for(&self, causes: &[&str]) -> Result<()> {
        let others = self.causes.iter().filter(|(cause, _)| !causes.contains(&cause.as_str()));
        let others: Vec<_> = others.map(|(cause, count)| format!("{count} {cause}")).collect();
        if others.is_empty() {
            return Ok(());
        }
        bail!("ran locally: {} (words: {:?})", others.join(", "), self.words)
    }

    /// Requires that this number of jobs ran on servers.
    ///
    /// # Errors
    /// Says how many there were.
    pub(super) fn expect_remote(&self, jobs: usize) -> Result<()> {
        if self.remote != jobs as u64 {
            bail!("{} jobs ran on servers and not {jobs}: {self:?}", self.remote);
        }
        Ok(())
    }

    /// Requires that this number of servers have had jobs.
    ///
    /// # Errors
    /// Names the servers that had jobs.
    pub(super) fn expect_servers(&self, servers: usize) -> Result<()> {
        if self.servers.len() != servers {
            bail!("{servers} servers should have had jobs: {:?}", self.servers);
        }
        Ok(())
    }
}

fn table(value: &Value, name: &str) -> BTreeMap<String, u64> {
    let rows = value.get(name).and_then(Value::as_object).into_iter().flatten();
    rows.filter_map(|(row, count)| Some((row.clone(), count.as_u64()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"remote": 3, "local": 2, "failed_remotely": 0, "abandoned": 1,
        "causes": {"links": 1, "found no server": 1}, "words": {"has an unknown option: -x": 1},
        "servers": {"n1": {"jobs": 2, "us": 5}, "n2": {"jobs": 1}}}"#;

    #[test]
    fn a_silent_fallback_is_named() {
        let statistics = Statistics::parse(TEXT).unwrap();
        statistics.locally_only_for(&["links", "found no server"]).unwrap();
        let error = statistics.locally_only_for(ORDINARY).unwrap_err().to_string();
        assert!(error.contains("1 found no server") && !error.contains("1 links"), "{error}");
    }

    #[test]
    fn jobs_and_servers_are_exact() {
        let statistics = Statistics::parse(TEXT).unwrap();
        assert_eq!((statistics.local, statistics.abandoned), (2, 1));
        statistics.expect_remote(3).unwrap();
        statistics.expect_remote(4).unwrap_err();
        statistics.expect_servers(2).unwrap();
        statistics.expect_servers(3).unwrap_err();
    }

    #[test]
    fn other_text_is_an_error() {
        assert!(Statistics::parse("").is_err());
        assert!(Statistics::parse("{}").is_err());
    }
}
