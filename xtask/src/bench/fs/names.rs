//! Work on the whole tree: unpacked, listed, searched, removed; through mounts and at the server.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::contender::FsContender;
use super::samples::FsSamples;
use super::servers::OURS_PORT;
use super::stage::{FsLink, FsStage};
use super::tree::{EXPRESSION, FILES, LITERAL};
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::rounds;

const ROUNDS: usize = 5;
const AT_SERVER: &str = "outboard fs, at the server";
const LOCAL: &str = "GNU's tools on the server's tmpfs";
const UNTAR: &str = "untar";
const FIND: &str = "find";
const EXPR: &str = "grep, expression";
const FIXED: &str = "grep, literal";
const REMOVE: &str = "rm -r";

/// One link.
pub(super) fn measure(link: FsLink) -> Result<AimedFindings> {
    let stage = FsStage::new(link)?;
    let title = match link {
        FsLink::Gigabit => "2,000 files, 30 MB, 1 Gbit/s",
        FsLink::Delayed => "2,000 files, 30 MB, 1 Gbit/s, 100 µs one way",
    };
    let [ours, sshfs, ganesha] =
        [FsContender::Ours, FsContender::Sshfs, FsContender::Ganesha].map(FsContender::name);
    let names = [ours, AT_SERVER, sshfs, ganesha, LOCAL];
    let points = [UNTAR, FIND, EXPR, FIXED, REMOVE];
    let mut samples = FsSamples::new(title, "s, less is better", &points, &names);
    for _ in 0..rounds(ROUNDS) {
        for contender in FsContender::all(&stage) {
            mounted(&stage, contender, &mut samples)?;
        }
        at_server(&stage, &mut samples)?;
        local(&stage, &mut samples)?;
    }
    let figures = vec![
        samples.ratio((sshfs, AT_SERVER), EXPR),
        samples.ratio((sshfs, AT_SERVER), FIXED),
        samples.ratio((AT_SERVER, LOCAL), FIND),
        samples.ratio((sshfs, ours), FIND),
        samples.ratio((sshfs, ours), UNTAR),
        samples.ratio((ganesha, ours), UNTAR),
        samples.ratio((sshfs, AT_SERVER), REMOVE),
    ];
    Ok(AimedFindings { figures, panels: vec![samples.panel()], ..AimedFindings::default() })
}

/// Each step on a new mount.
fn mounted(stage: &FsStage, contender: FsContender, samples: &mut FsSamples) -> Result<()> {
    let name = contender.name();
    samples.push(name, UNTAR, untar(stage, contender)?);
    let out = stage.path("out");
    let mut step = |point: &str, words: &[&str], lines: Option<usize>| -> Result<()> {
        let mount = contender.mount(stage, 0)?;
        let mut command = stage.client().command(words[0]);
        command.args(&words[1..]).arg(mount.0.join("tree")).env("LC_ALL", "C");
        samples.push(name, point, stage.timed_into(&mut command, &out)?);
        check_lines(&out, lines)
    };
    step(FIND, &["find"], Some(names_in_all()))?;
    step(EXPR, &["grep", "-rE", EXPRESSION], Some(expected(stage, EXPRESSION)?))?;
    step(FIXED, &["grep", "-r", LITERAL], Some(expected(stage, LITERAL)?))?;
    step(REMOVE, &["rm", "-r"], None)
}

/// Unpacks the tree into a new mount: how long it took.
pub(super) fn untar(stage: &FsStage, contender: FsContender) -> Result<f64> {
    let mount = contender.mount(stage, 0)?;
    let mut tar = stage.client().command("tar");
    stage.timed(tar.arg("xf").arg(stage.path("tree.tar")).arg("-C").arg(&mount.0))
}

/// `outboard fs find` and its like, each a command of its own that connects first.
fn at_server(stage: &FsStage, samples: &mut FsSamples) -> Result<()> {
    untar(stage, FsContender::Ours)?;
    let out = stage.path("out");
    let place = format!("{}:{OURS_PORT}:/tree", stage.address());
    let mut step = |point: &str, words: &[&str], lines: Option<usize>| -> Result<()> {
        let mut command = stage.outboard(stage.client());
        command.arg("fs").args(words).arg(&place).env("LC_ALL", "C");
        samples.push(AT_SERVER, point, stage.timed_into(&mut command, &out)?);
        check_lines(&out, lines)
    };
    step(FIND, &["find"], Some(names_in_all()))?;
    step(EXPR, &["grep", "-rE", EXPRESSION], Some(expected(stage, EXPRESSION)?))?;
    step(FIXED, &["grep", "-r", LITERAL], Some(expected(stage, LITERAL)?))?;
    step(REMOVE, &["rm", "-r"], None)
}

/// What no network file system is quicker than.
fn local(stage: &FsStage, samples: &mut FsSamples) -> Result<()> {
    let tree = stage.path("source/tree");
    let mut step = |point: &str, words: &[&str]| -> Result<()> {
        let mut command = stage.server().command(words[0]);
        command.args(&words[1..]).arg(&tree).env("LC_ALL", "C");
        samples.push(LOCAL, point, stage.timed_into(&mut command, &stage.path("out"))?);
        Ok(())
    };
    step(FIND, &["find"])?;
    step(EXPR, &["grep", "-rE", EXPRESSION])?;
    step(FIXED, &["grep", "-r", LITERAL])
}

/// The files, 40 directories and the root.
fn names_in_all() -> usize {
    FILES + 41
}

/// Lines that GNU grep finds on the server.
fn expected(stage: &FsStage, pattern: &str) -> Result<usize> {
    let mut grep = Command::new("grep");
    grep.args(["-rhE", pattern]).arg(stage.path("source/tree")).env("LC_ALL", "C");
    Ok(crate::command::output(&mut grep)?.lines().count())
}

fn check_lines(out: &Path, expected: Option<usize>) -> Result<()> {
    let lines = fs::read(out)?.iter().filter(|byte| **byte == b'\n').count();
    ensure!(expected.is_none_or(|expected| expected == lines), "{lines} lines, not {expected:?}");
    Ok(())
}
