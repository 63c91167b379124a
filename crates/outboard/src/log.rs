//! Writes events of daemons and casts to standard error, a line each, at the levels that the
//! operator sets. The standard error of a manager of `outboard cc` is a log file that it shares
//! with others, so its lines have the time and its process.
//!
//! `--log`, or else OUTBOARD_LOG: a level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or
//! levels for single parts, `info,outboard_cluster=debug`.

use std::error::Error;
use std::fmt;
use std::io::{Stderr, stderr};
use std::process;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::Layer;
use tracing_subscriber::fmt::format::{DefaultFields, Format, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The variable, which services get too.
const VARIABLE: &str = "OUTBOARD_LOG";
const DEFAULT: &str = "info";
/// The default of a cast, at its source and at receivers that it starts.
const CASTS: &str = "error";
/// The default of managers: their log is read when something is wrong.
const MANAGERS: &str = "warn";

/// Begins to write events; to be called once, before there are any.
pub(crate) fn start(wanted: Option<&str>) -> Result<(), Box<dyn Error>> {
    let (name, filter) = match wanted {
        Some(filter) => ("--log", filter.to_owned()),
        None => (VARIABLE, std::env::var(VARIABLE).unwrap_or_default()),
    };
    let filter = if filter.is_empty() { DEFAULT } else { &filter };
    let targets = parse(filter).ok_or_else(|| refused(name, filter))?;
    tracing_subscriber::registry().with(targets).with(lines().without_time()).try_init()?;
    Ok(())
}

/// As [`start`], for a cast, whose end is reported with all that matters: only the variable makes
/// the source, or a receiver that it starts, say more.
pub(crate) fn start_cast(wanted: Option<&str>) -> Result<(), Box<dyn Error>> {
    match (wanted, levels()) {
        (Some(wanted), _) => start(Some(wanted)),
        (None, Some(_)) => start(None),
        (None, None) => start(Some(CASTS)),
    }
}

/// What the variable says.
pub(crate) fn levels() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|levels| !levels.is_empty())
}

/// As [`start`], for a manager: builds do not depend on what it logs, so that a level that is none
/// is only reported.
pub(crate) fn start_manager() -> Result<(), Box<dyn Error>> {
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    let found = parse(if wanted.is_empty() { MANAGERS } else { &wanted });
    let is_wrong = found.is_none();
    let targets = found.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    tracing_subscriber::registry().with(targets).with(lines().with_timer(Stamp)).try_init()?;
    if is_wrong {
        tracing::warn!("{}", refused(VARIABLE, &wanted));
    }
    Ok(())
}

fn refused(name: &str, filter: &str) -> String {
    format!("{name} is {filter:?}: write a level, as info, or levels of parts, target=level,...")
}

fn lines<S>() -> Layer<S, DefaultFields, Format, fn() -> Stderr> {
    Layer::new().with_writer(stderr as fn() -> Stderr).with_ansi(false)
}

/// The time and the manager's process.
#[derive(Debug)]
struct Stamp;

impl FormatTime for Stamp {
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        SystemTime.format_time(line)?;
        write!(line, " manager {}", process::id())
    }
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
