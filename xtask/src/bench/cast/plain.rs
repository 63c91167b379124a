//! `relay.c`: what a link carries, and what plain C needs for the same work.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::stage::{CastStage, SourceFile, StageCost};
use crate::command;

const PORT: u16 = 9000;

fn program() -> PathBuf {
    command::target_dir().join("bench/relay")
}

/// Compiles it.
pub(super) fn build() -> Result<()> {
    fs::create_dir_all(command::target_dir().join("bench"))?;
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2"]);
    compiler.arg(command::root().join("xtask/src/bench/cast/relay.c")).arg("-o").arg(program());
    command::run(&mut compiler)
}

/// Seconds for so many bytes to one receiver, which throws them away: S/B.
pub(super) fn stream(stage: &mut CastStage, bytes: u64) -> Result<f64> {
    relay(stage, 0, "/dev/null", None)?;
    let seconds = send(stage, "-", bytes).map(|(_, seconds)| seconds);
    stage.end_all()?;
    seconds
}

/// A file to all receivers, each of which passes it on to the next: what it took.
pub(super) fn chain(stage: &mut CastStage, file: &SourceFile) -> Result<StageCost> {
    let name = copy_name(stage, file);
    for index in (0..stage.receivers()).rev() {
        let next = (index + 1 < stage.receivers()).then_some(index + 1);
        relay(stage, index, &name, next)?;
    }
    let sent = send(stage, &file.path.display().to_string(), file.bytes);
    stage.end_all()?;
    let (cost, seconds) = sent?;
    stage.check(file)?;
    Ok(StageCost { seconds, ..cost })
}

/// A file to all receivers, one after the other, in seconds.
pub(super) fn put(stage: &mut CastStage, file: &SourceFile) -> Result<f64> {
    let name = copy_name(stage, file);
    (0..stage.receivers()).try_for_each(|index| relay(stage, index, &name, None))?;
    let mut put = stage.here(program());
    put.arg("put").arg(&file.path).arg(PORT.to_string()).args(stage.addresses());
    let said = stage.run(&mut put);
    stage.end_all()?;
    let seconds = printed(&said?.1)?;
    stage.check(file)?;
    Ok(seconds)
}

fn copy_name(stage: &CastStage, file: &SourceFile) -> String {
    stage.destination().join(file.path.file_name().unwrap_or_default()).display().to_string()
}

fn relay(stage: &mut CastStage, index: usize, into: &str, next: Option<usize>) -> Result<()> {
    let mut relay = stage.at(index, program());
    relay.args([&PORT.to_string(), into]);
    if let Some(next) = next {
        relay.args([stage.receiver(next).address.to_string(), PORT.to_string()]);
    }
    let process = stage.start(&mut relay)?;
    stage.wait_listening(process, PORT)
}

fn send(stage: &CastStage, path: &str, bytes: u64) -> Result<(StageCost, f64)> {
    let mut send = stage.here(program());
    send.arg("send").arg(&stage.addresses()[0]).arg(PORT.to_string());
    send.arg(path).arg(bytes.to_string());
    let (cost, said) = stage.run(&mut send)?;
    Ok((cost, printed(&said)?))
}

fn printed(said: &str) -> Result<f64> {
    said.trim().parse().with_context(|| format!("relay.c printed {said:?}"))
}
