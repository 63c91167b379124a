//! What comes from outside of this machine: fetched before the first test, with three tries, so
//! that no test fails for the network's sake.

use std::env;
use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::Suite;
use crate::command::{self, cargo};
use crate::scratch::Scratch;
use crate::{siw, sources};

/// How often something is tried.
const TRIES: u32 = 3;
/// The pause before the second try; it doubles.
pub(super) const PAUSE: Duration = Duration::from_secs(5);
/// What `outboard tour` compiles, as it names it to cargo.
const TOUR: &str = "crates/outboard/src/tour/project/manifest.toml";

/// The fuzz targets, a workspace of their own.
const FUZZ: [&str; 2] = ["--manifest-path", "fuzz/Cargo.toml"];

/// Gets something and keeps it; does nothing when it is there.
type Fetch = fn() -> Result<()>;

/// By the suite that uses it.
const OUTSIDE: &[(&str, Fetch)] = &[
    ("build", || command::run(&mut cargo(["fetch", "--locked", "--target=host-tuple"]))),
    ("siw", || siw::prepare().map(drop).map_err(|error| anyhow!(error))),
    ("compile", || sources::REDIS.path().and_then(|_| sources::ZEROMQ.path()).map(drop)),
    ("tour", tour),
    ("fuzz", || command::run(cargo(["fetch", "--locked", "--target=host-tuple"]).args(FUZZ))),
    ("fs-judged", || sources::LUA.path().and_then(|_| sources::SQLITE.path()).map(drop)),
];

/// Fetches what the suites use.
///
/// # Errors
/// When something cannot be had in three tries.
pub(super) fn outside(suites: &[&Suite]) -> Result<()> {
    let used = OUTSIDE.iter().filter(|(name, _)| suites.iter().any(|suite| suite.name == *name));
    used.into_iter()
        .try_for_each(|(name, fetch)| tried(&format!("what {name} fetches"), PAUSE, fetch))
}

/// Tries something that needs the network.
///
/// # Errors
/// The last try's.
pub(super) fn tried<T>(
    what: &str,
    mut pause: Duration,
    mut fetch: impl FnMut() -> Result<T>,
) -> Result<T> {
    for left in (1..TRIES).rev() {
        match fetch() {
            Ok(got) => return Ok(got),
            Err(error) => println!("{what}: {error:#} ({left} more to try)"),
        }
        thread::sleep(pause);
        pause *= 2;
    }
    fetch().with_context(|| format!("{what}: the last of {TRIES} tries has failed"))
}

fn tour() -> Result<()> {
    let scratch = Scratch::new(&env::temp_dir(), "outboard-fetch-")?;
    let manifest = scratch.path("Cargo.toml");
    fs::copy(command::root().join(TOUR), &manifest)?;
    fs::write(scratch.path("empty.rs"), "")?;
    command::run(cargo(["fetch", "--manifest-path"]).arg(manifest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::{LONG_SUITES, SUITES};
    use anyhow::bail;

    #[test]
    fn what_fails_twice_is_had_and_what_fails_thrice_is_an_error() {
        for (failures, expected) in [(0, 1), (2, 3), (3, 3)] {
            let mut tries = 0;
            let got = tried("a file", Duration::ZERO, || {
                tries += 1;
                if tries > failures { Ok(tries) } else { bail!("no route") }
            });
            assert_eq!((got.is_ok(), tries), (failures < TRIES, expected));
        }
    }

    #[test]
    fn each_row_names_a_suite() {
        for (name, _) in OUTSIDE {
            assert!(SUITES.iter().chain(LONG_SUITES).any(|suite| suite.name == *name), "{name}");
        }
    }
}
