//! Ours three times: by executions next to the metadata, with one-sided reads, and by one-sided
//! verbs alone on a volatile file system. Files of one block are made, looked at, read and removed,
//! one after the other: what counts are round trips.

use std::process::Command;

use anyhow::Result;

use super::contender::FsContender;
use super::samples::FsSamples;
use super::stage::{FsLink, FsStage};
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::rounds;

const ROUNDS: usize = 5;
/// Files of each step.
const FILES: usize = 300;
const CREATE: &str = "create and write";
const STAT: &str = "stat";
const READ: &str = "read";
const REMOVE: &str = "remove";
/// What a shell does for each file.
const STEPS: [(&str, &str); 4] = [
    (CREATE, "i=0; while [ $i -lt $1 ]; do printf %4096d $i > f$i; i=$((i+1)); done"),
    (STAT, "i=0; while [ $i -lt $1 ]; do [ -s f$i ] || exit 1; i=$((i+1)); done"),
    (READ, "i=0; while [ $i -lt $1 ]; do read -r line < f$i; i=$((i+1)); done"),
    (REMOVE, "rm f*"),
];

/// One link.
pub(super) fn measure(link: FsLink) -> Result<AimedFindings> {
    let mut stage = FsStage::new(link)?;
    super::servers::volatile(&mut stage)?;
    let title = match link {
        FsLink::Gigabit => "variants: 300 files of 4 KiB, 1 Gbit/s",
        FsLink::Delayed => "variants: 300 files of 4 KiB, 1 Gbit/s, 100 µs one way",
    };
    let all = [FsContender::Ours, FsContender::OneSided, FsContender::Rdma];
    let names = all.map(FsContender::name);
    let points = STEPS.map(|(point, _)| point);
    let mut samples = FsSamples::new(title, "ms for each file, less is better", &points, &names);
    for _ in 0..rounds(ROUNDS) {
        for contender in all {
            steps(&stage, contender, &mut samples)?;
        }
    }
    let [ours, _, rdma] = names;
    let figures = points.map(|point| samples.ratio((rdma, ours), point)).to_vec();
    Ok(AimedFindings { figures, panels: vec![samples.panel()], ..AimedFindings::default() })
}

/// Each step on a new mount.
fn steps(stage: &FsStage, contender: FsContender, samples: &mut FsSamples) -> Result<()> {
    for (point, script) in STEPS {
        let mount = contender.mount(stage, 0)?;
        let mut shell: Command = stage.client().command("sh");
        let script = format!("cd \"$0\" && {script}");
        shell.args(["-c", &script]).arg(&mount.0).arg(FILES.to_string());
        let seconds = stage.timed(&mut shell)?;
        samples.push(contender.name(), point, seconds * 1e3 / FILES as f64);
    }
    Ok(())
}
