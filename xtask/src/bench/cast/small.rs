//! 10 KB to 64 receivers beside our own direct copy to all: where every receiver is one step from
//! the source, and passing on can only cost time.

use anyhow::{Result, bail};

use super::ours::OurNodes;
use super::parts::Findings;
use super::plain;
use super::stage::CastStage;
use crate::bench::report::{Panel, Series};
use crate::lab::Link;

const RECEIVERS: usize = 64;
const BYTES: u64 = 10_000;
const LINK: Link = Link::ShortMessages(100_000_000);
const ROUNDS: usize = 3;
const NAMES: [&str; 3] = ["outboard cast", "directly to all", "plain TCP, no processes started"];

/// Cold: the nodes have just started. Warm: they have cast before.
pub(super) fn rows() -> Result<Findings> {
    let mut stage = CastStage::new(RECEIVERS, LINK)?;
    let mut samples = vec![vec![Vec::new(); 2]; NAMES.len()];
    let rounds = super::rounds(ROUNDS);
    for round in 1..=rounds {
        for (at, options) in [&[][..], &["--schedule", "star"]].into_iter().enumerate() {
            let nodes = OurNodes::start(&mut stage)?;
            for state in &mut samples[at] {
                let file = stage.file(BYTES)?;
                let cast = nodes.cast(&stage, &file, options)?;
                stage.check(&file)?;
                state.push(cast.cost.seconds * 1000.0);
            }
            stage.end_all()?;
        }
        let file = stage.file(BYTES)?;
        let put = plain::put(&mut stage, &file)? * 1000.0;
        samples[2].iter_mut().for_each(|state| state.push(put));
        eprintln!("round {round}/{rounds}, 10 KB to {RECEIVERS}: {samples:?}");
    }
    let series = NAMES.into_iter().zip(samples);
    let panel = Panel {
        title: format!("10 KB to {RECEIVERS} receivers at 100 Mbit/s"),
        unit: "ms, less is better".into(),
        axis: "nodes".into(),
        points: vec!["just started".into(), "have cast before".into()],
        series: series.map(|(name, samples)| Series { name: name.into(), samples }).collect(),
    };
    let [ours, direct, _] = &panel.series[..] else { bail!("not three contenders") };
    let figures = [0, 1].map(|state| ours.ratio_to(direct, state)).into();
    Ok(Findings { figures, panels: vec![panel], ..Findings::default() })
}
