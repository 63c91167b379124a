//! Figures 1 to 5 and Table 1 of "Fast Scalable File Distribution Over Infiniband" (IPDPS 2005)
//! with our figures beside the paper's. The paper's nodes had links of 10 Gbit/s and files of
//! 100 MB; here 100 receivers have 50 Mbit/s and files of 20 MB, and 100 MB is by the model.

use anyhow::Result;

use super::model::StepModel;
use super::ours::OurNodes;
use super::stage::CastStage;
use super::{plain, rivals};
use crate::bench::report::Table;
use crate::bench::stack::section::{Section, table};
use crate::lab::Link;

const RECEIVERS: usize = 100;
const BYTES: u64 = 20_000_000;
const PAPERS_BYTES: u64 = 100_000_000;
const LINK: Link = Link::BitsPerSecond(50_000_000);
/// The paper's payload rate: 8 Gbit/s.
const PAPERS_RATE: f64 = 1e9;

/// Everything of the paper's.
pub(super) fn section(model: &StepModel) -> Result<Section> {
    let mut stage = CastStage::new(RECEIVERS, LINK)?;
    let stream = plain::stream(&mut stage, BYTES)?;
    let nodes = OurNodes::start_warm(&mut stage)?;
    let arity = arities(&mut stage, &nodes, stream)?;
    stage.end_all()?;
    drop(stage);
    let tables =
        vec![distribution(model, stream)?, nfs()?, sizes()?, chunks()?, arity, breakdown()?];
    Ok(Section { tables, ..Section::default() })
}

fn cast(stage: &mut CastStage, nodes: &OurNodes, bytes: u64, options: &[&str]) -> Result<f64> {
    let file = stage.file(bytes)?;
    let seconds = nodes.cast(stage, &file, options)?.cost.seconds;
    stage.check(&file)?;
    Ok(seconds)
}

/// Figure 1: time by number of receivers.
fn distribution(model: &StepModel, stream: f64) -> Result<Table> {
    let mut rows = Vec::new();
    for receivers in [10, 25, 50, 100] {
        let mut stage = CastStage::new(receivers, LINK)?;
        let nodes = OurNodes::start_warm(&mut stage)?;
        let ours = cast(&mut stage, &nodes, BYTES, &[])?;
        let theirs = cast(&mut stage, &nodes, BYTES, &["--schedule", "paper:2"])?;
        let at_theirs = |kind| model.seconds(kind, receivers, (PAPERS_BYTES, PAPERS_RATE));
        let papers = if receivers == 100 { "about 3" } else { "" };
        rows.push(vec![
            receivers.to_string(),
            format!("{ours:.2} ({:.2})", ours / stream),
            format!("{theirs:.2} ({:.2})", theirs / stream),
            format!("{:.3}", at_theirs("auto")?),
            format!("{:.3}", at_theirs("paper:2")?),
            papers.to_owned(),
        ]);
    }
    let head = [
        "receivers",
        "ours: 20 MB at 50 Mbit/s, s (/ one stream)",
        "the paper's tree, by us",
        "model, ours: 100 MB at 8 Gbit/s, s",
        "model, the paper's tree",
        "the paper's, s",
    ];
    Ok(table("Figure 1: time to distribute", &head, rows))
}

/// Figure 2: beside NFS.
fn nfs() -> Result<Table> {
    let mut rows = Vec::new();
    for receivers in [10, 30] {
        let mut stage = CastStage::new(receivers, LINK)?;
        let stream = plain::stream(&mut stage, BYTES)?;
        let file = stage.file(BYTES)?;
        let read = rivals::nfs(&mut stage, &file)?;
        let nodes = OurNodes::start_warm(&mut stage)?;
        let ours = cast(&mut stage, &nodes, BYTES, &[])?;
        let papers = if receivers == 30 { "about 70 s by NFS" } else { "1.5 to 2 s a node by NFS" };
        rows.push(vec![
            receivers.to_string(),
            format!("{ours:.2} ({:.2})", ours / stream),
            format!("{read:.2} ({:.2})", read / stream),
            papers.to_owned(),
        ]);
    }
    let head =
        ["receivers", "ours, s (/ one stream)", "NFS, s (/ one stream)", "the paper's, 100 MB"];
    Ok(table("Figure 2: beside NFS", &head, rows))
}

/// One receiver at 1 Gbit/s, and its node, which has received before.
fn fast_pair() -> Result<(CastStage, OurNodes)> {
    let mut stage = CastStage::new(1, Link::BitsPerSecond(1_000_000_000))?;
    let nodes = OurNodes::start_warm(&mut stage)?;
    Ok((stage, nodes))
}

/// Figure 3: time by size.
fn sizes() -> Result<Table> {
    let (mut stage, nodes) = fast_pair()?;
    let mut rows = Vec::new();
    let papers =
        [(4_000, "0.3 ms"), (1_000_000, ""), (100_000_000, "169 ms"), (1_000_000_000, "below 2 s")];
    for (bytes, papers) in papers {
        let ours = cast(&mut stage, &nodes, bytes, &[])?;
        rows.push(vec![bytes.to_string(), format!("{:.1} ms", ours * 1e3), papers.to_owned()]);
    }
    let head = ["bytes", "ours, 1 Gbit/s, with connecting", "the paper's, 8 Gbit/s, without"];
    Ok(table("Figure 3: time to send to one receiver", &head, rows))
}

/// Figure 4: time by size of chunks, and by where the source takes them from.
fn chunks() -> Result<Table> {
    const WAYS: [&str; 4] = ["mmap-all", "multi-send-one-map", "multi-send-multi-map", "window"];
    let (mut stage, nodes) = fast_pair()?;
    let mut rows = Vec::new();
    for kib in [64, 256, 1024, 4096, 8192] {
        let (chunk, mut row) = ((kib << 10_u32).to_string(), vec![format!("{kib} KiB")]);
        for way in WAYS {
            let options = ["--chunk", &chunk, "--buffers", way];
            row.push(format!("{:.0}", cast(&mut stage, &nodes, PAPERS_BYTES, &options)? * 1e3));
        }
        rows.push(row);
    }
    let head = ["chunk", "mmap-all, ms", "one map, ms", "multi map, ms", "our window, ms"];
    let title = "Figure 4: 100 MB to one receiver at 1 Gbit/s by size of chunks and scheme (the \
                 paper's mmap-all is flat and best; the others near it with larger chunks)";
    Ok(table(title, &head, rows))
}

/// Figure 5: the paper's tree by arity.
fn arities(stage: &mut CastStage, nodes: &OurNodes, stream: f64) -> Result<Table> {
    let mut rows = Vec::new();
    for kind in ["binomial", "paper:2", "paper:3", "paper:4", "paper:8"] {
        let ours = cast(stage, nodes, BYTES, &["--schedule", kind])?;
        rows.push(vec![kind.to_owned(), format!("{ours:.2}"), format!("{:.2}", ours / stream)]);
    }
    let head = ["schedule", "20 MB to 100 at 50 Mbit/s, s", "/ one stream"];
    Ok(table("Figure 5: arity (the paper finds 2 best)", &head, rows))
}

/// Table 1: what a send of 100 MB consists of.
fn breakdown() -> Result<Table> {
    let (mut stage, nodes) = fast_pair()?;
    let (small, large) =
        (cast(&mut stage, &nodes, 1, &[])?, cast(&mut stage, &nodes, PAPERS_BYTES, &[])?);
    let ms = |seconds: f64| format!("{:.1}", seconds * 1e3);
    let row = |what: &str, ours: String, papers: &str| vec![what.into(), ours, papers.into()];
    let rows = vec![
        row("starting, connecting, planning, publishing (a file of 1 B)", ms(small), "189.4"),
        row("data", ms(large - small), "171.9"),
        row("all", ms(large), "361.3"),
    ];
    let head = ["100 MB to one receiver", "ours at 1 Gbit/s, ms", "the paper's at 8 Gbit/s, ms"];
    Ok(table("Table 1: what a send consists of", &head, rows))
}
