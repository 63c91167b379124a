//! Two switches with a slow link between them: each byte crosses it once.

use std::fs;

use anyhow::{Result, bail};

use super::CastCheck;
use super::image::{Contents, TreeImage};
use super::run::{CAST_MAX, CastOrder};
use super::sample::noise;
use super::site::{CastSite, NODES};
use super::traces::expect_names;
use crate::lab::{Crossing, Link};

/// The link between the switches: a third of a host's.
const BETWEEN: Link = Link::BitsPerSecond(66_000_000);
/// Bytes that are cast: five seconds of that link.
const LEN: usize = 40 << 20;
/// How often its bytes may cross: headers of packets and records are six per cent at most.
const KNOWN_MAX: f64 = 1.1;
/// And how often more for each plan that is made anew, as where a machine stalls and a node is
/// lost: with what was under way.
const NEW_PLAN_MAX: f64 = 0.25;
/// Bytes that are cast by nodes that know of no switches.
const UNKNOWING_LEN: usize = 4 << 20;

pub(super) fn checks() -> Vec<CastCheck> {
    vec![CastCheck::new("topology: a slow link between two switches", once_across)]
}

fn once_across(site: &mut CastSite) -> Result<()> {
    // Every second one, so that neighbours in the list are on different switches.
    let far: Vec<usize> = (0..NODES).filter(|index| index % 2 == 1).collect();
    let crossing = site.part(&far, BETWEEN)?;
    let file = topology(site, &far)?;
    let known = across(site, (LEN, &crossing), &["--topology", &file]);
    let unknown = across(site, (UNKNOWING_LEN, &crossing), &["--schedule", "chain"]);
    crossing.join()?;
    let ((known, plans), (unknown, _)) = (known?, unknown?);
    println!("  {known:.3} times the bytes, {plans} new plans; {unknown:.1} without a topology");
    if known > KNOWN_MAX + NEW_PLAN_MAX * plans as f64 {
        bail!("the bytes have crossed the link {known:.3} times");
    }
    if unknown < 3.0 {
        bail!("nodes that know of no switches crossed the link {unknown:.2} times only");
    }
    Ok(())
}

/// A file as Slurm has it.
fn topology(site: &CastSite, far: &[usize]) -> Result<String> {
    let address = |index: usize| site.host(index).address.to_string();
    let here = fs::read_to_string("/proc/sys/kernel/hostname")?;
    let near = (0..NODES).filter(|index| !far.contains(index)).map(address);
    let near = [here.trim().to_owned()].into_iter().chain(near).collect::<Vec<_>>().join(",");
    let far = far.iter().map(|index| address(*index)).collect::<Vec<_>>().join(",");
    let path = site.directory("topology")?.join("topology.conf");
    let text = format!(
        "SwitchName=near Nodes={near}\nSwitchName=far Nodes={far}\n\
         SwitchName=top Switches=near,far\n"
    );
    fs::write(&path, text)?;
    Ok(path.display().to_string())
}

/// How often the bytes of a cast to all nodes cross the link, and how many new plans it has.
fn across(
    site: &mut CastSite,
    (len, crossing): (usize, &Crossing),
    options: &[&str],
) -> Result<(f64, usize)> {
    let path = site.source().join("across");
    fs::write(&path, noise(61, len))?;
    let (image, before) = (TreeImage::read(&path)?, crossing.crossed()?);
    let report = CastOrder::new([path.clone()], 0..NODES)
        .with(options)
        .start_with_log(site)?
        .finish(CAST_MAX)?;
    report.expect_success()?;
    let crossed = crossing.crossed()? - before;
    for index in 0..NODES {
        expect_names(&site.disk(index), &["across"])?;
        image.expect(&site.disk(index).join("across"), Contents::Whole)?;
    }
    fs::remove_file(path)?;
    site.clear()?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let times = crossed as f64 / len as f64;
    Ok((times, report.new_plans()))
}
