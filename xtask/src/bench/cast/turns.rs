//! Contenders in turn on one stage. One that fails twice in a round is not asked again and the
//! others go on; its earlier rounds stay, so that rounds still belong together.

use anyhow::Result;

use super::stage::CastStage;
use crate::bench::report::Series;

/// What contenders are measured on.
pub(super) trait Recovers {
    /// After a failure: makes it as it was before.
    fn recover(&mut self) -> Result<()>;
}

/// A way to bring a file to all receivers, or something to compare it with.
pub(super) struct Turn<'a, S = CastStage> {
    pub(super) name: &'a str,
    /// In how many of the rounds, from the first, it is measured.
    pub(super) rounds: usize,
    pub(super) measure: Box<MeasureOnStage<'a, S>>,
}

type MeasureOnStage<'a, S> = dyn Fn(&mut S) -> Result<f64> + 'a;

impl<'a, S> Turn<'a, S> {
    pub(super) fn new(
        name: &'a str,
        rounds: usize,
        measure: impl Fn(&mut S) -> Result<f64> + 'a,
    ) -> Self {
        Self { name, rounds, measure: Box::new(measure) }
    }
}

/// The samples of each, at one point, and what failed.
pub(super) fn take<S: Recovers>(
    stage: &mut S,
    what: &str,
    turns: &[Turn<'_, S>],
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

fn twice<S: Recovers>(stage: &mut S, turn: &Turn<'_, S>) -> Result<f64> {
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::ensure;

    use super::*;

    impl Recovers for u32 {
        fn recover(&mut self) -> Result<()> {
            *self += 1;
            Ok(())
        }
    }

    #[test]
    fn a_contender_that_fails_twice_is_left_out_and_loses_no_other() {
        let asked = [const { Cell::new(0) }; 2];
        let failing = |which: usize, from: u32, to: u32| {
            let asked = &asked[which];
            move |_: &mut u32| {
                asked.set(asked.get() + 1);
                ensure!(asked.get() < from || asked.get() > to, "no route");
                Ok(f64::from(asked.get()))
            }
        };
        let turns = [
            Turn::new("once", 3, failing(0, 2, 2)),
            Turn::new("from the second round", 3, failing(1, 2, 9)),
            Turn::new("never", 2, |_: &mut u32| Ok(7.0)),
        ];
        let mut recovered = 0;
        let (series, failures) = take(&mut recovered, "a test", &turns);
        let samples: Vec<_> = series.into_iter().map(|series| series.samples.concat()).collect();
        assert_eq!(samples, [vec![1.0, 3.0, 4.0], vec![1.0], vec![7.0, 7.0]]);
        assert_eq!((failures.len(), asked[1].get(), recovered), (1, 3, 3));
        assert!(failures[0].contains("from the second round failed twice: no route"));
    }
}
