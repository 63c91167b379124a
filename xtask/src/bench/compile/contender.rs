//! A distributor of compilations: how its servers are started and its wrapper is called.

use std::env;
use std::fmt::Debug;
use std::path::Path;

use anyhow::{Context, Result};

use super::build::Wrapper;
use super::stage::Stage;

/// A distributor of compilations.
pub(super) trait Contender: Debug {
    /// Its name on the page.
    fn name(&self) -> &'static str;

    /// Whether it produces objects.
    fn compiles(&self) -> bool {
        true
    }

    /// Starts its servers, and everything that the client needs besides the wrapper. Returns when
    /// jobs can be handed over.
    fn start(&self, stage: &Stage) -> Result<Wrapper>;
}

/// A wrapper that does nothing, to measure `make` itself.
#[derive(Debug)]
pub(super) struct Nothing(pub(super) String);

impl Contender for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn compiles(&self) -> bool {
        false
    }

    fn start(&self, _: &Stage) -> Result<Wrapper> {
        Ok(Wrapper { program: Some(self.0.clone()), ..Wrapper::default() })
    }
}

/// The stand-in itself on the client, to measure the cost of a job's compiler alone.
#[derive(Debug)]
pub(super) struct Bare;

impl Contender for Bare {
    fn name(&self) -> &'static str {
        "the stand-in itself"
    }

    fn start(&self, stage: &Stage) -> Result<Wrapper> {
        let place = stage.servers().find_map(|(_, place)| place).context("no stand-in")?;
        Ok(Wrapper { program: None, environment: vec![("PATH", path_with(place))] })
    }
}

/// The real compiler on the client, by `make` alone.
#[derive(Debug)]
pub(super) struct Plain;

impl Contender for Plain {
    fn name(&self) -> &'static str {
        "make alone"
    }

    fn start(&self, _: &Stage) -> Result<Wrapper> {
        Ok(Wrapper::default())
    }
}

/// The search path with a stand-in before everything else.
pub(super) fn path_with(place: &Path) -> String {
    let path = env::var("PATH").unwrap_or_default();
    format!("{}:{path}", place.join("bin").display())
}
