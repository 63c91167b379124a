//! Small writes that are on the disk before the next: eight clients, beside a plain C program that
//! commits the same bytes in groups. Everything else of this benchmark lies in memory; this lies on
//! a disk.

use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context, Result};

use super::clients::said;
use super::contender::{FsContender, MountedFs};
use super::samples::FsSamples;
use super::stage::{FsLink, FsStage};
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::rounds;
use crate::command;

const ROUNDS: usize = 5;
const CLIENTS: usize = 8;
const SECONDS: &str = "3";
const PORT: u16 = 9001;
const PLAIN: &str = "plain C, in groups";
const POINT: &str = "4 KiB, written and synced";

/// A link without delay.
pub(super) fn measure() -> Result<AimedFindings> {
    let mut stage = FsStage::on_disk(FsLink::Gigabit)?;
    let program = command::compile_c("xtask/src/bench/fs/commits.c", &[])?;
    let mut serve = stage.server().command(&program);
    serve.args(["serve", &PORT.to_string()]).arg(stage.on_disk_path("group"));
    stage.start(&mut serve, PORT)?;
    let [ours, sshfs, ganesha] =
        [FsContender::Ours, FsContender::Sshfs, FsContender::Ganesha].map(FsContender::name);
    let names = [ours, sshfs, ganesha, PLAIN];
    let title = "Eight clients that fsync, on a disk, 1 Gbit/s";
    let mut samples = FsSamples::new(title, "commits/s, more is better", &[POINT], &names);
    for _ in 0..rounds(ROUNDS) {
        for contender in FsContender::all(&stage) {
            samples.push(contender.name(), POINT, mounted(&stage, contender, &program)?);
        }
        samples.push(PLAIN, POINT, plain(&stage, &program)?);
    }
    let figures = vec![samples.ratio((ours, PLAIN), POINT)];
    Ok(AimedFindings { figures, panels: vec![samples.panel()], ..AimedFindings::default() })
}

fn mounted(stage: &FsStage, contender: FsContender, program: &Path) -> Result<f64> {
    let mounts: Vec<MountedFs> =
        (0..CLIENTS).map(|number| contender.mount(stage, number)).collect::<Result<_>>()?;
    let files = mounts.iter().enumerate().map(|(number, at)| at.0.join(format!("own{number}")));
    let files: Vec<_> = files.collect();
    let rate = together(files.iter().map(|file| {
        let mut command = stage.client().command(program);
        command.arg(file).arg(SECONDS);
        command
    }))?;
    files.iter().try_for_each(std::fs::remove_file)?;
    Ok(rate)
}

fn plain(stage: &FsStage, program: &Path) -> Result<f64> {
    together((0..CLIENTS).map(|_| {
        let mut command = stage.client().command(program);
        command.args(["send", &stage.address().to_string(), &PORT.to_string(), SECONDS]);
        command
    }))
}

/// Runs programs at the same time: how much they do a second, all together.
fn together(programs: impl Iterator<Item = std::process::Command>) -> Result<f64> {
    let start = |mut command: std::process::Command| {
        command.stdout(Stdio::piped()).spawn().context("commits.c is not started")
    };
    let started: Vec<Child> = programs.map(start).collect::<Result<_>>()?;
    let done = started.into_iter().map(said).collect::<Result<Vec<_>>>()?;
    Ok(done.into_iter().map(|[count, seconds]| count / seconds).sum())
}
