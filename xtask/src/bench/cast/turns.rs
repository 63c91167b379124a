//! Contenders in turn on one stage. One that fails twice in a round is not asked again and the
//! others go on; its earlier rounds stay, so that rounds still belong together.

use anyhow::Result;

use super::stage::CastStage;
use crate::bench::report::Series;

/// A way to bring a file to all receivers, or something to compare it with.
pub(super) struct Turn<'a> {
    pub(super) name: &'a str,
    /// In how many of the rounds, from the first, it is measured.
    pub(super) rounds: usize,
    pub(super) measure: Box<MeasureOnStage<'a>>,
}

type MeasureOnStage<'a> = dyn Fn(&mut CastStage) -> Result<f64> + 'a;

impl<'a> Turn<'a> {
    pub(super) fn new(
        name: &'a str,
        rounds: usize,
        measure: impl Fn(&mut CastStage) -> Result<f64> + 'a,
    ) -> Self {
        Self { name, rounds, measure: Box::new(measure) }
    }
}

/// The samples of each, at one point, and what failed.
pub(super) fn take(
    stage: &mut CastStage,
    what: &str,
    turns: &[Turn<'_>],
) -> (Vec<Series>, Vec<String>) {
    let mut samples = vec![Vec::new(); turns.len()];
    let mut failures = Vec::new();
    for round in 0..turns.iter().map(|turn| turn.rounds).max().unwrap_or(0) {
        for (turn, samples) in turns.iter().zip(&mut samples) {
            // Less than `round`: it has failed before.
            if round >= turn.rounds || samples.len() < round {
                continue;
            }
            match twice(stage, turn) {
                Ok(seconds) => {
                    eprintln!("{what}, round {}: {} {seconds:.3} s", round + 1, turn.name);
                    samples.push(seconds);
                }
                Err(error) => {
                    let failure = format!("{what}: {} failed twice: {error:#}", turn.name);
                    eprintln!("{failure}");
                    failures.push(failure);
                }
            }
        }
    }
    let series = turns.iter().zip(samples);
    let series =
        series.map(|(turn, samples)| Series { name: turn.name.into(), samples: vec![samples] });
    (series.collect(), failures)
}

fn twice(stage: &mut CastStage, turn: &Turn<'_>) -> Result<f64> {
    (turn.measure)(stage).or_else(|error| {
        eprintln!("{} failed once: {error:#}", turn.name);
        stage.recover()?;
        (turn.measure)(stage).inspect_err(|_| {
            if let Err(error) = stage.recover() {
                eprintln!("the hosts cannot be cleaned: {error:#}");
            }
        })
    })
}
