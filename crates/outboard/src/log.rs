//! Writes events of daemons to standard error, a line each, at the levels that the operator sets.
//!
//! `--log`, or else OUTBOARD_LOG: a level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or
//! levels for single parts, `info,outboard_cluster=debug`.

use std::error::Error;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The variable, which services get too.
const VARIABLE: &str = "OUTBOARD_LOG";
const DEFAULT: &str = "info";

/// Begins to write events; to be called once, before there are any.
pub(crate) fn start(wanted: Option<&str>) -> Result<(), Box<dyn Error>> {
    let (name, filter) = match wanted {
        Some(filter) => ("--log", filter.to_owned()),
        None => (VARIABLE, std::env::var(VARIABLE).unwrap_or_default()),
    };
    let filter = if filter.is_empty() { DEFAULT } else { &filter };
    let targets = parse(filter).ok_or_else(|| {
        format!(
            "{name} is {filter:?}: write a level, as info, or levels of parts, target=level,..."
        )
    })?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time();
    tracing_subscriber::registry().with(targets).with(lines).try_init()?;
    Ok(())
}

/// A word alone is a level; the library would take any other for a part of the program.
fn parse(filter: &str) -> Option<Targets> {
    let is_right = |part: &str| part.contains('=') || part.parse::<LevelFilter>().is_ok();
    if filter.split(',').all(is_right) { filter.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_levels_of_parts() {
        for right in ["info", "off", "warn,outboard_cluster=debug"] {
            assert!(parse(right).is_some(), "{right}");
        }
        for wrong in ["loud", "info,loud", "outboard_cluster=loud"] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }
}
