//! 100 MB to several numbers of receivers, beside the bound and the rivals; and with one slow link.

use anyhow::{Context, Result};

use super::ours::OurNodes;
use super::stage::{CastStage, SourceFile};
use super::{plain, rivals};
use crate::bench::measure::{Contender, Summary, alternate};
use crate::bench::report::{Panel, Series};
use crate::bench::stack::section::{Limit, Section, Target, ratio};
use crate::lab::Link;

/// Bytes.
pub(super) const LARGE: u64 = 100 << 20;
/// The bound counts chunks of so many bytes.
const BOUND_CHUNK: u64 = 1 << 20;
const GIGABIT: u64 = 1_000_000_000;
const UNIT: &str = "s, less is better";
const AXIS: &str = "receivers";
const OURS: &str = "outboard cast";
const BOUND: &str = "the bound";

/// How much longer than one stream to one receiver any schedule takes.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
pub(super) fn bound_factor(receivers: usize, bytes: u64) -> f64 {
    let chunks = bytes.div_ceil(BOUND_CHUNK).max(1) as f64;
    let doublings = f64::from((receivers + 1).next_power_of_two().ilog2());
    (chunks - 1.0 + doublings) / chunks
}

/// The rivals that a row runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowRivals {
    /// Those whose time does not grow with the number of receivers.
    Scaling,
    All,
}

/// 8 receivers at 1 Gbit/s.
pub(super) fn gigabit() -> Result<Section> {
    row(8, GIGABIT, 1.10, (RowRivals::All, 5))
}

/// More receivers, at 100 Mbit/s.
pub(super) fn many() -> Result<Section> {
    let rows = [(16, 1.10, RowRivals::All), (32, 1.12, RowRivals::Scaling)];
    let mut whole = Section::default();
    for (receivers, limit, rivals) in rows.into_iter().chain([(64, 1.15, RowRivals::Scaling)]) {
        let section = row(receivers, GIGABIT / 10, limit, (rivals, 3))?;
        whole.targets.extend(section.targets);
        whole.panels.extend(section.panels);
    }
    Ok(whole)
}

fn row(
    receivers: usize,
    bits: u64,
    limit: f64,
    (rivals, usual): (RowRivals, usize),
) -> Result<Section> {
    let rounds = super::rounds(usual);
    let mut stage = CastStage::new(receivers, Link::BitsPerSecond(bits))?;
    let point = receivers.to_string();
    let mut series = measured(&mut stage, bits, &[&point], rounds)?;
    if rivals == RowRivals::All {
        series.extend(slow_rivals(&mut stage, &point, if bits < GIGABIT { 1 } else { rounds })?);
    }
    let megabits = bits / 1_000_000;
    let title = format!("100 MB to {receivers} receivers at {megabits} Mbit/s");
    let points = vec![point];
    let panel = Panel { title, unit: UNIT.into(), axis: AXIS.into(), points, series };
    let what = format!("100 MB to {receivers} at {megabits} Mbit/s / the bound");
    let figure = ratio(&panel, OURS, BOUND, 0)?;
    let targets = vec![Target::new(&what, Limit::AtMost(limit), figure)];
    Ok(Section { targets, panels: vec![panel], ..Section::default() })
}

type SendFile = fn(&mut CastStage, &SourceFile) -> Result<f64>;
type DynSendFile = dyn Fn(&mut CastStage, &SourceFile) -> Result<f64>;

/// Ours and what is measured in turn with it, every round.
fn measured(
    stage: &mut CastStage,
    bits: u64,
    points: &[&str],
    rounds: usize,
) -> Result<Vec<Series>> {
    let stage = std::cell::RefCell::new(stage);
    let one = |how: &DynSendFile| {
        let stage = &mut **stage.borrow_mut();
        let file = stage.file(LARGE)?;
        how(stage, &file)
    };
    let bound = || {
        let stage = &mut **stage.borrow_mut();
        Ok(plain::stream(stage, LARGE)? * bound_factor(stage.receivers(), LARGE))
    };
    let uftp = move |stage: &mut CastStage, file: &SourceFile| rivals::uftp(stage, file, bits);
    let chain = |stage: &mut CastStage, file: &SourceFile| Ok(plain::chain(stage, file)?.seconds);
    let contender = |name, how: Box<DynSendFile>| {
        let one = &one;
        Contender { name, measure: Box::new(move |_: &str| one(&*how)) }
    };
    let mut contenders = vec![
        contender(OURS, Box::new(|stage, file| ours(stage, file, &[]))),
        Contender { name: BOUND, measure: Box::new(move |_: &str| bound()) },
        contender("the paper's tree", Box::new(|s, f| ours(s, f, &["--schedule", "paper:2"]))),
        contender("a chain in plain C", Box::new(chain)),
        contender("udpcast", Box::new(rivals::udpcast)),
        contender("uftp", Box::new(uftp)),
    ];
    alternate(&mut contenders, points, rounds)
}

/// Those that send to one receiver after the other, or to all from one link.
fn slow_rivals(stage: &mut CastStage, point: &str, rounds: usize) -> Result<Vec<Series>> {
    let stage = std::cell::RefCell::new(stage);
    let contender = |name, how: SendFile| {
        let stage = &stage;
        let measure = move |_: &str| {
            let stage = &mut **stage.borrow_mut();
            let file = stage.file(LARGE)?;
            how(stage, &file)
        };
        Contender { name, measure: Box::new(measure) }
    };
    let mut contenders = [
        contender("star", |stage, file| ours(stage, file, &["--schedule", "star"])),
        contender("rsync, a loop", rivals::rsync),
        contender("NFS, all read", rivals::nfs),
        contender("sbcast", super::sbcast::cast),
    ];
    alternate(&mut contenders, &[point], rounds)
}

/// Nodes that have cast before, and one cast to them, in seconds.
fn ours(stage: &mut CastStage, file: &SourceFile, options: &[&str]) -> Result<f64> {
    let nodes = OurNodes::start_warm(stage)?;
    let cast = nodes.cast(stage, file, options);
    stage.end_all()?;
    let seconds = cast?.cost.seconds;
    stage.check(file)?;
    Ok(seconds)
}

/// 16 receivers at 100 Mbit/s, one of them with a link of half the rate: when the others have it.
pub(super) fn slow_link() -> Result<Section> {
    const RECEIVERS: usize = 16;
    const ROUNDS: usize = 3;
    let mut stage = CastStage::new(RECEIVERS, Link::BitsPerSecond(GIGABIT / 10))?;
    let (mut others, mut bounds) = (Vec::new(), Vec::new());
    let rounds = super::rounds(ROUNDS);
    for round in 1..=rounds {
        let bound = plain::stream(&mut stage, LARGE)? * bound_factor(RECEIVERS - 1, LARGE);
        // Not the one that is measured alone.
        stage.relink(RECEIVERS / 2, Link::BitsPerSecond(GIGABIT / 20))?;
        let nodes = OurNodes::start_warm(&mut stage)?;
        let file = stage.file(LARGE)?;
        let cast = nodes.cast(&stage, &file, &[]);
        stage.end_all()?;
        stage.relink(RECEIVERS / 2, Link::BitsPerSecond(GIGABIT / 10))?;
        let cast = cast?;
        stage.check(&file)?;
        let took = took(&cast.report["nodes"], RECEIVERS / 2)?;
        eprintln!("round {round}/{rounds}, one slow link: {took} s, bound {bound} s");
        others.push(took);
        bounds.push(bound);
    }
    let ratios: Vec<f64> = others.iter().zip(&bounds).map(|(took, bound)| took / bound).collect();
    let what = "16 at 100 Mbit/s, one at half rate: the others / the bound without it";
    let panel = Panel {
        title: "100 MB to 16 receivers, one with half the rate".into(),
        unit: UNIT.into(),
        axis: AXIS.into(),
        points: vec!["15 others".into()],
        series: vec![
            Series { name: OURS.into(), samples: vec![others] },
            Series { name: "the bound without the slow one".into(), samples: vec![bounds] },
        ],
    };
    let targets = vec![Target::new(what, Limit::AtMost(1.15), Summary::of(&ratios))];
    Ok(Section { targets, panels: vec![panel], ..Section::default() })
}

/// When the last node but one given had published, from the beginning, in seconds.
fn took(nodes: &serde_json::Value, but: usize) -> Result<f64> {
    let nodes = nodes.as_array().context("the report has no nodes")?;
    let others = nodes.iter().enumerate().filter(|(index, _)| *index != but);
    let times = others.map(|(_, node)| node["seconds"].as_f64().context("no time of a node"));
    times.collect::<Result<Vec<_>>>()?.into_iter().reduce(f64::max).context("no other nodes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_bound_is_that_of_chunks_of_a_mebibyte() {
        let at = |receivers, bytes| (bound_factor(receivers, bytes) * 1000.0).round();
        // One to one: nothing is passed on.
        assert_eq!((at(1, LARGE), at(1, 1)), (1000.0, 1000.0));
        // 100 chunks, and three or four more steps for nine nodes: (99 + 4) / 100.
        assert_eq!((at(7, LARGE), at(8, LARGE)), (1020.0, 1030.0));
        assert_eq!(at(63, 10_000), 6000.0);
    }

    #[test]
    fn the_slowest_of_the_others_counts() {
        let nodes = json!([{ "seconds": 1.0 }, { "seconds": 9.0 }, { "seconds": 2.0 }]);
        assert_eq!(took(&nodes, 1).expect("times"), 2.0);
        assert!(took(&json!([{ "seconds": 1.0 }, { "result": "failed" }]), 0).is_err());
    }
}
