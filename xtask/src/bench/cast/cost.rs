//! Processor time for each node and byte, beside the plain C program with hashing and encryption.

use anyhow::Result;

use super::ours::OurNodes;
use super::parts::Findings;
use super::rows::LARGE;
use super::stage::{CastStage, StageCost};
use super::{crypto, plain};
use crate::bench::measure::Summary;
use crate::bench::report::{Panel, Series};
use crate::lab::Link;

const RECEIVERS: usize = 8;
const ROUNDS: usize = 3;
const NAMES: [&str; 3] =
    ["outboard cast", "plain C, BLAKE3 and AES-GCM", "plain C, not hashed or encrypted"];

/// At 1 Gbit/s. Machine: everything that ran, also the kernel's own threads.
pub(super) fn row() -> Result<Findings> {
    let mut stage = CastStage::new(RECEIVERS, Link::BitsPerSecond(1_000_000_000))?;
    let mut samples = vec![vec![Vec::new(); 2]; NAMES.len()];
    let rounds = super::rounds(ROUNDS);
    for round in 1..=rounds {
        let crypto = crypto::costs()?;
        let file = stage.file(LARGE)?;
        let plain = per_byte(plain::chain(&mut stage, &file)?);
        let nodes = OurNodes::start_warm(&mut stage)?;
        let file = stage.file(LARGE)?;
        let cast = nodes.cast(&stage, &file, &[]);
        stage.end_all()?;
        let ours = per_byte(cast?.cost);
        stage.check(&file)?;
        // The source hashes too, and every byte is encrypted and decrypted once for each receiver.
        let hashes =
            f64::from(u32::try_from(RECEIVERS + 1)?) / f64::from(u32::try_from(RECEIVERS)?);
        let extra = (crypto.hash_s * hashes + crypto.seal_s + crypto.open_s) * 1e9;
        for at in 0..2 {
            samples[0][at].push(ours[at]);
            samples[1][at].push(plain[at] + extra);
            samples[2][at].push(plain[at]);
        }
        eprintln!("round {round}/{rounds}, cost: ours {ours:?}, plain {plain:?}, {crypto:?}");
    }
    let ratios: Vec<f64> =
        samples[0][1].iter().zip(&samples[1][1]).map(|(ours, plain)| ours / plain).collect();
    let figures = vec![Summary::of(&ratios)];
    let series = NAMES.into_iter().zip(samples);
    let panel = Panel {
        title: format!("Processor time of a cast to {RECEIVERS} receivers"),
        unit: "ns for each receiver and byte, less is better".into(),
        axis: "counted".into(),
        points: vec!["the hosts' programs".into(), "the whole machine".into()],
        series: series.map(|(name, samples)| Series { name: name.into(), samples }).collect(),
    };
    Ok(Findings { figures, panels: vec![panel], ..Findings::default() })
}

/// Nanoseconds for each receiver and byte: of the hosts' programs, and of the whole machine.
#[expect(clippy::cast_precision_loss, reason = "a mean")]
fn per_byte(cost: StageCost) -> [f64; 2] {
    [cost.cpu_s, cost.machine_s].map(|s| s * 1e9 / (LARGE as f64 * RECEIVERS as f64))
}
