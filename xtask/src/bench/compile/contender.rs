//! Whoever hands compilations to servers: how its servers are started and its wrapper is called.

use std::env;
use std::fmt::Debug;
use std::path::Path;

use anyhow::{Context, Result};

use super::build::Wrapper;
use super::stage::Stage;

/// A way to hand over compilations.
pub(super) trait Contender: Debug {
    /// As the page calls it.
    fn name(&self) -> &'static str;

    /// Whether objects come out.
    fn compiles(&self) -> bool {
        true
    }

    /// Starts its servers, and whatever the client needs beside the wrapper. Returns when jobs can
    /// be handed over.
    fn start(&self, stage: &Stage) -> Result<Wrapper>;
}

/// A wrapper that does nothing: what `make` itself costs.
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

/// The stand-in itself on the client: what a job costs its compiler, with nothing around it.
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
