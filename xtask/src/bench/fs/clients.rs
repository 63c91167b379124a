//! Mixed work by one client and by eight, and what an operation costs the server's processor.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::contender::{FsContender, MountedFs};
use super::samples::FsSamples;
use super::stage::{FsLink, FsStage};
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::rounds;
use crate::command;

const ROUNDS: usize = 5;
/// Clients of the full house, each a mount of its own.
const MANY: usize = 8;
/// How long each works.
const SECONDS: u64 = 3;
const ONE: &str = "one client";
const ALL: &str = "eight clients";
const COST: &str = "server's processor, one client";
/// Both hosts' processors, where the link does not delay and where it does.
const PROCESSORS: [f64; 2] = [2.0, 1.0];
/// More than so many times one client's work nobody asks of eight.
const GAIN_MAX: f64 = 4.0;

/// What some clients have done.
struct Done {
    /// Operations a second, all together.
    rate: f64,
    /// Processor time of an operation: the server's, and both sides'.
    server: f64,
    both: f64,
}

/// One link.
pub(super) fn measure(link: FsLink) -> Result<AimedFindings> {
    let stage = FsStage::new(link)?;
    let program = command::compile_c("xtask/src/bench/fs/mixed.c", &[])?;
    let (title, processors) = match link {
        FsLink::Gigabit => ("Mixed work, 1 Gbit/s", PROCESSORS[0]),
        FsLink::Delayed => ("Mixed work, 1 Gbit/s, 100 µs one way", PROCESSORS[1]),
    };
    let [ours, sshfs, ganesha] =
        [FsContender::Ours, FsContender::Sshfs, FsContender::Ganesha].map(FsContender::name);
    let names = [ours, sshfs, ganesha];
    let mut rates = FsSamples::new(title, "operations/s, more is better", &[ONE, ALL], &names);
    let costs = format!("{title}: processor time");
    let mut costs = FsSamples::new(&costs, "µs an operation, less is better", &[COST], &names);
    let bound = "what is asked of eight";
    let mut gains = FsSamples::new("gains", "", &[ALL], &[ours, bound]);
    for _ in 0..rounds(ROUNDS) {
        for contender in FsContender::all(&stage) {
            let one = work(&stage, contender, &program, 1)?;
            let all = work(&stage, contender, &program, MANY)?;
            rates.push(contender.name(), ONE, one.rate);
            rates.push(contender.name(), ALL, all.rate);
            costs.push(contender.name(), COST, one.server * 1e6);
            if contender == FsContender::Ours {
                let most = 0.8 * processors / one.both;
                gains.push(ours, ALL, all.rate);
                gains.push(bound, ALL, most.min(GAIN_MAX * one.rate));
            }
        }
    }
    let figures = vec![gains.ratio((ours, bound), ALL), costs.ratio((ours, ganesha), COST)];
    let panels = vec![rates.panel(), costs.panel()];
    Ok(AimedFindings { figures, panels, ..AimedFindings::default() })
}

/// So many clients work at the same time, each in a directory of its own.
fn work(
    stage: &FsStage,
    contender: FsContender,
    program: &std::path::Path,
    clients: usize,
) -> Result<Done> {
    let mounts: Vec<MountedFs> =
        (0..clients).map(|number| contender.mount(stage, number)).collect::<Result<_>>()?;
    let directory = |(number, mount): (usize, &MountedFs)| mount.0.join(format!("own{number}"));
    let own: Vec<_> = mounts.iter().enumerate().map(directory).collect();
    own.iter().try_for_each(std::fs::create_dir)?;
    let before = cpu(stage)?;
    let started: Vec<Child> = own
        .iter()
        .map(|own| {
            let mut command = stage.client().command(program);
            command.arg(own).arg(SECONDS.to_string()).stdout(Stdio::piped());
            command.spawn().context("mixed.c is not started")
        })
        .collect::<Result<_>>()?;
    let (mut operations, mut rate) = (0.0, 0.0);
    for child in started {
        let [count, seconds] = said(child)?;
        operations += count;
        rate += count / seconds;
    }
    let after = cpu(stage)?;
    let used = |at: usize| (after[at] - before[at]).as_secs_f64() / operations;
    for own in &own {
        command::run(Command::new("rm").arg("-r").arg(own))?;
    }
    Ok(Done { rate, server: used(1), both: used(0) + used(1) })
}

/// Processor time of the client's host and of the server's.
fn cpu(stage: &FsStage) -> Result<[Duration; 2]> {
    Ok([stage.client().cpu()?, stage.server().cpu()?])
}

/// How much a program has done, and in how many seconds.
pub(super) fn said(child: Child) -> Result<[f64; 2]> {
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "a program failed: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let mut words = text.split_whitespace().map(str::parse);
    match (words.next(), words.next()) {
        (Some(Ok(count)), Some(Ok(seconds))) => Ok([count, seconds]),
        _ => anyhow::bail!("a program printed {text:?}"),
    }
}
