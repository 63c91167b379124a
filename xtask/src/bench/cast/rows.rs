//! 100 MB to several numbers of receivers, beside the bound and the rivals; and with one slow link.

use anyhow::{Context, Result};

use super::ours::{OurNodes, WarmNodes};
use super::parts::Findings;
use super::stage::{CastStage, SourceFile};
use super::turns::{self, Turn};
use super::{plain, rivals, sbcast};
use crate::bench::measure::Summary;
use crate::bench::report::{Panel, Series};
use crate::lab::Link;

/// Bytes.
pub(super) const LARGE: u64 = 100 << 20;
/// The bound counts chunks of so many bytes.
const BOUND_CHUNK: u64 = 1 << 20;
const GIGABIT: u64 = 1_000_000_000;
const UNIT: &str = "s, less is better";
const AXIS: &str = "receivers";
pub(super) const OURS: &str = "outboard cast";
pub(super) const BOUND: &str = "the bound";

/// How much longer than one stream to one receiver any schedule takes.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
pub(super) fn bound_factor(receivers: usize, bytes: u64) -> f64 {
    let chunks = bytes.div_ceil(BOUND_CHUNK).max(1) as f64;
    let doublings = f64::from((receivers + 1).next_power_of_two().ilog2());
    (chunks - 1.0 + doublings) / chunks
}

/// 8 receivers at 1 Gbit/s.
pub(super) fn gigabit() -> Result<Findings> {
    row(8, GIGABIT, (super::rounds(3), LARGE))
}

/// So many at 100 Mbit/s. What is sent to one receiver after the other is less there.
pub(super) fn slow_links(receivers: usize) -> Result<Findings> {
    row(receivers, GIGABIT / 10, (super::rounds(2), LARGE / 10))
}

/// The rounds of the others, and the bytes that those are given whose time grows with every
/// receiver.
fn row(receivers: usize, bits: u64, (rounds, single): (usize, u64)) -> Result<Findings> {
    let mut stage = CastStage::new(receivers, Link::BitsPerSecond(bits))?;
    let megabits = bits / 1_000_000;
    let title =
        |bytes: u64| format!("{} MB to {receivers} receivers at {megabits} Mbit/s", bytes >> 20);
    let panel = |bytes, series| Panel {
        title: title(bytes),
        unit: UNIT.into(),
        axis: AXIS.into(),
        points: vec![receivers.to_string()],
        series,
    };
    let (series, mut failures) =
        turns::take(&mut stage, &title(LARGE), &scaling(bits, rounds, single == LARGE));
    let figures = vec![series[0].ratio_to(&series[1], 0)];
    let mut panels = vec![panel(LARGE, series)];
    if single != LARGE {
        let nodes = WarmNodes::default();
        let mut contenders = vec![Turn::new(OURS, 1, move |stage| nodes.cast(stage, single, &[]))];
        contenders.extend(one_by_one(single));
        let (series, failed) = turns::take(&mut stage, &title(single), &contenders);
        panels.push(panel(single, series));
        failures.extend(failed);
    }
    Ok(Findings { figures, panels, failures, ..Findings::default() })
}

/// Something that sends a file.
fn sends<'a>(
    name: &'a str,
    (rounds, bytes): (usize, u64),
    how: impl Fn(&mut CastStage, &SourceFile) -> Result<f64> + 'a,
) -> Turn<'a> {
    Turn::new(name, rounds, move |stage: &mut CastStage| {
        let file = stage.file(bytes)?;
        how(stage, &file)
    })
}

/// Ours, the bound, and what is measured in turn with it; the paper's tree takes long, so once.
fn scaling(bits: u64, rounds: usize, with_others: bool) -> Vec<Turn<'static>> {
    let [nodes, tree] = [WarmNodes::default(), WarmNodes::default()];
    let of = (rounds, LARGE);
    let mut turns = vec![
        Turn::new(OURS, rounds, move |stage| nodes.cast(stage, LARGE, &[])),
        Turn::new(BOUND, rounds, |stage| {
            Ok(plain::stream(stage, LARGE)? * bound_factor(stage.receivers(), LARGE))
        }),
        sends("a chain in plain C", of, |s, f| Ok(plain::chain(s, f)?.seconds)),
        sends("udpcast", of, rivals::udpcast),
        sends("uftp", of, move |stage, file| rivals::uftp(stage, file, bits)),
        Turn::new("the paper's tree", 1, move |stage| {
            tree.cast(stage, LARGE, &["--schedule", "paper:2"])
        }),
    ];
    if with_others {
        turns.extend(one_by_one(LARGE));
    }
    turns
}

/// Those that send to one receiver after the other, or to all from one link.
fn one_by_one(bytes: u64) -> Vec<Turn<'static>> {
    let (nodes, of) = (WarmNodes::default(), (1, bytes));
    let star = move |stage: &mut CastStage| nodes.cast(stage, bytes, &["--schedule", "star"]);
    vec![
        Turn::new("star", 1, star),
        sends("rsync, a loop", of, rivals::rsync),
        sends("NFS, all read", of, rivals::nfs),
        sends("sbcast", of, sbcast::cast),
    ]
}

/// 16 receivers at 100 Mbit/s, one of them with a link of half the rate: when the others have it.
pub(super) fn slow_link() -> Result<Findings> {
    const RECEIVERS: usize = 16;
    let mut stage = CastStage::new(RECEIVERS, Link::BitsPerSecond(GIGABIT / 10))?;
    let (mut others, mut bounds) = (Vec::new(), Vec::new());
    let rounds = super::rounds(2);
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
    let figures = vec![Summary::of(&ratios)];
    Ok(Findings { figures, panels: vec![panel], ..Findings::default() })
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
