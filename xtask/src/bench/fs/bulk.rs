//! One large file, copied in and out, beside what plain TCP carries on the same link.

use std::fs::File;
use std::io::{self, Read};

use anyhow::{Context, Result, ensure};

use super::contender::FsContender;
use super::samples::FsSamples;
use super::stage::{FsLink, FsStage};
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::rounds;
use crate::command;

const ROUNDS: usize = 5;
const BYTES: u64 = 100 << 20;
const RELAY_PORT: u16 = 9000;
const TCP: &str = "plain TCP";
const IN: &str = "copied in";
const OUT: &str = "copied out";

/// One link.
pub(super) fn measure(link: FsLink) -> Result<AimedFindings> {
    let mut stage = FsStage::new(link)?;
    let title = match link {
        FsLink::Gigabit => "100 MB, 1 Gbit/s",
        FsLink::Delayed => "100 MB, 1 Gbit/s, 100 µs one way",
    };
    let mut random = File::open("/dev/urandom")?.take(BYTES);
    io::copy(&mut random, &mut File::create(stage.path("large"))?)?;
    let mut relay = stage.server().command(&stage.relay);
    relay.args([&RELAY_PORT.to_string(), "/dev/null"]);
    stage.start(&mut relay, RELAY_PORT)?;
    let [ours, sshfs, ganesha] =
        [FsContender::Ours, FsContender::Sshfs, FsContender::Ganesha].map(FsContender::name);
    let names = [ours, sshfs, ganesha, TCP];
    let mut samples = FsSamples::new(title, "s, less is better", &[IN, OUT], &names);
    for _ in 0..rounds(ROUNDS) {
        for contender in FsContender::all(&stage) {
            copies(&stage, contender, &mut samples)?;
        }
        let seconds = tcp(&stage)?;
        for point in [IN, OUT] {
            samples.push(TCP, point, seconds);
        }
    }
    let figures = [IN, OUT].map(|point| samples.ratio((TCP, ours), point)).to_vec();
    Ok(AimedFindings { figures, panels: vec![samples.panel()], ..AimedFindings::default() })
}

/// In, out on a new mount, and compared.
fn copies(stage: &FsStage, contender: FsContender, samples: &mut FsSamples) -> Result<()> {
    let (large, copy) = (stage.path("large"), stage.path("copy"));
    let mount = contender.mount(stage, 0)?;
    let mut copy_in = stage.client().command("cp");
    let seconds = stage.timed(copy_in.arg(&large).arg(mount.0.join("large")))?;
    samples.push(contender.name(), IN, seconds);
    drop(mount);
    let mount = contender.mount(stage, 0)?;
    let mut copy_out = stage.client().command("cp");
    let seconds = stage.timed(copy_out.arg(mount.0.join("large")).arg(&copy))?;
    samples.push(contender.name(), OUT, seconds);
    std::fs::remove_file(mount.0.join("large"))?;
    let (large, copy) = (large.display().to_string(), copy.display().to_string());
    ensure!(command::succeeds("cmp", &[&large, &copy]), "the copy has other bytes");
    Ok(std::fs::remove_file(copy)?)
}

/// Until the receiver has said that it has all.
fn tcp(stage: &FsStage) -> Result<f64> {
    let out = stage.path("relay-said");
    let mut send = stage.client().command(&stage.relay);
    send.args(["send", &stage.address().to_string(), &RELAY_PORT.to_string(), "-"]);
    stage.timed_into(send.arg(BYTES.to_string()), &out)?;
    let said = std::fs::read_to_string(out)?;
    said.trim().parse().with_context(|| format!("relay.c printed {said:?}"))
}
