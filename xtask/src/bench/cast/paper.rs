//! Figures 1 to 5 and Table 1 of "Fast Scalable File Distribution Over Infiniband" (IPDPS 2005)
//! with our figures beside the paper's. The paper's nodes had links of 10 Gbit/s and files of
//! 100 MB; here up to 100 receivers have 50 Mbit/s and files of 20 MB, and 100 MB is by the model.
//! Figures of different links are compared in units of one plain stream of the same bytes.

use anyhow::Result;

use super::model::StepModel;
use super::ours::WarmNodes;
use super::parts::Findings;
use super::rivals;
use super::stage::CastStage;
use super::turns::{self, Turn};
use crate::bench::report::{Panel, Series, Table};
use crate::bench::stack::section::table;
use crate::lab::Link;

const BYTES: u64 = 20_000_000;
const PAPERS_BYTES: u64 = 100_000_000;
const LINK: Link = Link::BitsPerSecond(50_000_000);
/// Bytes in a second over `LINK`.
const RATE: f64 = 6.25e6;
/// Receivers of Figures 1 and 2, those of them that also read by NFS, and those of Figure 5.
const RECEIVERS: [usize; 4] = [10, 30, 50, 100];
const NFS: [usize; 2] = [10, 30];
const MANY: usize = 100;
const ARITIES: [&str; 4] = ["paper:2", "paper:3", "paper:4", "paper:8"];
/// Of the paper's Table 1: a send, and the part of it that moves the bytes.
const PAPERS_SEND_S: f64 = 0.3613;
const PAPERS_STREAM_S: f64 = 0.1719;
/// Seconds of 100 MB over the gigabit Ethernet of the paper's NFS server.
const PAPERS_NFS_STREAM_S: f64 = 0.8;
const STREAMS: &str = "times of one plain stream of the same bytes, less is better";
const MS: &str = "ms, less is better";
const OURS: &str = "outboard cast";
const TREE: &str = "the paper's tree, by us";

/// Everything of the paper's.
pub(super) fn findings() -> Result<Findings> {
    let mut drawn = Figures { model: StepModel::kept()?, found: Findings::default() };
    if drawn.model.is_none() {
        let why = "the part model was not run: nothing is computed for 100 MB";
        drawn.found.failures.push(why.into());
    }
    drawn.attempt("Figures 1, 2 and 5", Figures::trees);
    drawn.attempt("Figure 3", Figures::sizes);
    drawn.attempt("Figure 4", Figures::chunks);
    drawn.attempt("Table 1", Figures::breakdown);
    drawn.found.notes.push(NOTE.into());
    Ok(drawn.found)
}

const NOTE: &str = "The paper's figures: Figure 1 as its §5.1 computes it, with every node sending \
                    to two others in turn, 361.3 ms each, over the 171.9 ms of its RDMA (it states \
                    about 3 s for 100 nodes); Figure 2 from 1.5 to 2 s a node and 70 s at 30, over \
                    the 0.8 s of 100 MB at 1 Gbit/s; Figure 3 from its §5.2, where 1 GB is below \
                    2 s; Figure 5's curve has no numbers in its text, which finds 2 best.";

struct Figures {
    model: Option<StepModel>,
    found: Findings,
}

impl Figures {
    /// A figure that fails is lost alone.
    fn attempt(&mut self, what: &str, measure: fn(&mut Self) -> Result<()>) {
        if let Err(error) = measure(self) {
            eprintln!("{what}: {error:#}");
            self.found.failures.push(format!("{what}: {error:#}"));
        }
    }

    fn panel(
        &mut self,
        title: &str,
        (unit, axis): (&str, &str),
        points: &[&str],
        series: Vec<Series>,
    ) {
        let points = points.iter().map(|point| (*point).to_owned()).collect();
        let (title, unit, axis) = (title.to_owned(), unit.to_owned(), axis.to_owned());
        self.found.panels.push(Panel { title, unit, axis, points, series });
    }

    /// Takes turns, of which a failure is noted.
    fn take(&mut self, stage: &mut CastStage, what: &str, turns: &[Turn<'_>]) -> Vec<Vec<f64>> {
        let (series, failures) = turns::take(stage, what, turns);
        self.found.failures.extend(failures);
        series.into_iter().map(|series| series.samples.concat()).collect()
    }

    /// Figures 1, 2 and 5, from the same hosts.
    fn trees(&mut self) -> Result<()> {
        let [mut ours, mut tree, mut nfs, mut arity] = [const { Vec::new() }; 4];
        for receivers in RECEIVERS {
            let mut stage = CastStage::new(receivers, LINK)?;
            let stream = super::plain::stream(&mut stage, BYTES)?;
            let nodes = WarmNodes::default();
            let cast = |options: &'static str| {
                let nodes = &nodes;
                move |stage: &mut CastStage| nodes.cast(stage, BYTES, &["--schedule", options])
            };
            let mut turns = vec![
                Turn::new(OURS, super::rounds(2), cast("auto")),
                Turn::new(TREE, 1, cast(ARITIES[0])),
            ];
            let others = if receivers == MANY { &ARITIES[1..] } else { &[] };
            turns.extend(others.iter().map(|kind| Turn::new(kind, 1, cast(kind))));
            if NFS.contains(&receivers) {
                turns.push(Turn::new("NFS", 1, |stage: &mut CastStage| {
                    let file = stage.file(BYTES)?;
                    rivals::nfs(stage, &file)
                }));
            }
            let what = format!("20 MB to {receivers} at 50 Mbit/s");
            let mut samples = self.take(&mut stage, &what, &turns);
            samples.iter_mut().flatten().for_each(|seconds| *seconds /= stream);
            if receivers == MANY {
                arity = samples[1..].to_vec();
            }
            nfs.extend(NFS.contains(&receivers).then(|| samples[2].clone()));
            tree.push(samples.swap_remove(1));
            ours.push(samples.swap_remove(0));
        }
        self.distribution(ours.clone(), tree);
        self.beside_nfs(ours, nfs);
        self.arity(arity);
        Ok(())
    }

    /// By the model: 100 MB over so fast a link, in streams.
    fn modelled(&self, kind: &str, receivers: usize, rate: f64) -> Vec<f64> {
        let stream = 1e8 / rate;
        let model = self.model.as_ref();
        let seconds =
            model.and_then(|model| model.seconds(kind, receivers, (PAPERS_BYTES, rate)).ok());
        seconds.map(|seconds| seconds / stream).into_iter().collect()
    }

    /// Figure 1: time by number of receivers.
    fn distribution(&mut self, ours: Vec<Vec<f64>>, tree: Vec<Vec<f64>>) {
        let by_model =
            |kind| RECEIVERS.map(|receivers| self.modelled(kind, receivers, RATE)).into();
        let papers = RECEIVERS.map(|receivers| vec![papers_streams(receivers)]).into();
        let series = vec![
            series(OURS, ours),
            series(TREE, tree),
            series("by the model, 100 MB: ours", by_model("auto")),
            series("by the model, 100 MB: the tree", by_model(ARITIES[0])),
            series("the paper's, 100 MB at 8 Gbit/s", papers),
        ];
        let title = "Figure 1: time to distribute, 20 MB at 50 Mbit/s";
        self.panel(title, (STREAMS, "receivers"), &["10", "30", "50", "100"], series);
    }

    /// Figure 2: beside NFS.
    fn beside_nfs(&mut self, mut ours: Vec<Vec<f64>>, nfs: Vec<Vec<f64>>) {
        ours.truncate(NFS.len());
        let papers = [[15.0, 20.0].as_slice(), &[70.0]].map(|seconds| {
            seconds.iter().map(|seconds| seconds / PAPERS_NFS_STREAM_S).collect::<Vec<_>>()
        });
        let papers_own = NFS.map(|receivers| vec![papers_streams(receivers)]).into();
        let series = vec![
            series(OURS, ours),
            series("NFS, all read", nfs),
            series("the paper's NFS, 100 MB at 1 Gbit/s", papers.into()),
            series("the paper's own, 100 MB at 8 Gbit/s", papers_own),
        ];
        let title = "Figure 2: beside NFS, 20 MB at 50 Mbit/s";
        self.panel(title, (STREAMS, "receivers"), &["10", "30"], series);
    }

    /// Figure 5: the paper's tree by arity.
    fn arity(&mut self, samples: Vec<Vec<f64>>) {
        let by_model = ARITIES.map(|kind| self.modelled(kind, MANY, RATE)).into();
        let series =
            vec![series(TREE, samples), series("by the model, 100 MB: the tree", by_model)];
        let title = "Figure 5: 20 MB to 100 at 50 Mbit/s by arity (the paper finds 2 best)";
        self.panel(title, (STREAMS, "arity"), &["2", "3", "4", "8"], series);
    }

    /// Figure 3: time by size.
    fn sizes(&mut self) -> Result<()> {
        let (mut stage, nodes) = (fast_pair()?, WarmNodes::default());
        let mut ours = Vec::new();
        for bytes in [4_000, 1_000_000, PAPERS_BYTES, 10 * PAPERS_BYTES] {
            let cast = |stage: &mut CastStage| Ok(nodes.cast(stage, bytes, &[])? * 1e3);
            let turn = Turn::new(OURS, super::rounds(3), cast);
            ours.extend(self.take(&mut stage, &format!("{bytes} bytes to one, ms"), &[turn]));
        }
        let papers =
            [0.3, f64::NAN, 169.0, 2000.0].map(|ms| Vec::from_iter((!ms.is_nan()).then_some(ms)));
        let series = vec![
            series("outboard cast, 1 Gbit/s, with connecting", ours),
            series("the paper's, 8 Gbit/s, without", papers.into()),
        ];
        let title = "Figure 3: time to send to one receiver";
        self.panel(title, (MS, "size"), &["4 KB", "1 MB", "100 MB", "1 GB"], series);
        Ok(())
    }

    /// Figure 4: time by size of chunks, and by where the source takes them from.
    fn chunks(&mut self) -> Result<()> {
        const WAYS: [&str; 4] =
            ["window", "mmap-all", "multi-send-one-map", "multi-send-multi-map"];
        const KIB: [&str; 5] = ["64", "256", "1024", "4096", "8192"];
        let (mut stage, nodes) = (fast_pair()?, WarmNodes::default());
        let mut all = WAYS.map(|_| Vec::new());
        for kib in KIB {
            let chunk = (kib.parse::<u64>()? << 10).to_string();
            let turns = WAYS.map(|way| {
                let (nodes, chunk) = (&nodes, &chunk);
                Turn::new(way, super::rounds(2), move |stage: &mut CastStage| {
                    let options = ["--chunk", chunk, "--buffers", way];
                    Ok(nodes.cast(stage, PAPERS_BYTES, &options)? * 1e3)
                })
            });
            let samples = self.take(&mut stage, &format!("chunks of {kib} KiB, ms"), &turns);
            all.iter_mut().zip(samples).for_each(|(way, samples)| way.push(samples));
        }
        let mut drawn: Vec<Series> =
            WAYS.into_iter().zip(all).map(|(way, samples)| series(way, samples)).collect();
        drawn.push(series("the paper's mmap-all, 8 Gbit/s", KIB.map(|_| vec![169.0]).into()));
        let title = "Figure 4: 100 MB to one receiver at 1 Gbit/s by size of chunks and scheme";
        self.panel(title, (MS, "chunk, KiB"), &KIB, drawn);
        Ok(())
    }

    /// Table 1: what a send of 100 MB consists of.
    fn breakdown(&mut self) -> Result<()> {
        let (mut stage, nodes) = (fast_pair()?, WarmNodes::default());
        let turns = [("1 B", 1), ("100 MB", PAPERS_BYTES)].map(|(name, bytes)| {
            let nodes = &nodes;
            Turn::new(name, super::rounds(3), move |stage: &mut CastStage| {
                Ok(nodes.cast(stage, bytes, &[])? * 1e3)
            })
        });
        let (found, failures) = turns::take(&mut stage, "Table 1, ms", &turns);
        self.found.failures.extend(failures);
        let data = found[1].samples[0].iter().zip(&found[0].samples[0]);
        let data = series("data", vec![data.map(|(large, small)| large - small).collect()]);
        let row = |what: &str, ours: &Series, papers: &str| {
            let shown =
                ours.summary(0).map_or_else(|| "failed".to_owned(), |found| found.to_string());
            vec![what.to_owned(), shown, papers.to_owned()]
        };
        let rows = vec![
            row("starting, connecting, planning, publishing (a file of 1 B)", &found[0], "189.4"),
            row("data", &data, "171.9"),
            row("all", &found[1], "361.3"),
        ];
        self.found.tables.push(breakdown_table(rows));
        Ok(())
    }
}

fn breakdown_table(rows: Vec<Vec<String>>) -> Table {
    let head = ["100 MB to one receiver", "ours at 1 Gbit/s, ms", "the paper's at 8 Gbit/s, ms"];
    table("Table 1: what a send consists of", &head, rows)
}

/// A source and one receiver at 1 Gbit/s.
fn fast_pair() -> Result<CastStage> {
    CastStage::new(1, Link::BitsPerSecond(1_000_000_000))
}

fn series(name: &str, samples: Vec<Vec<f64>>) -> Series {
    Series { name: name.to_owned(), samples }
}

/// How long the paper's tree takes by its §5.1, in streams: in each time of a send, those send that
/// got the file in one of the two before.
fn papers_streams(receivers: usize) -> f64 {
    let (mut newest, mut before, mut holders, mut sends) = (1, 0, 1, 0.0);
    while holders < receivers + 1 {
        (newest, before) = (newest + before, newest);
        holders += newest;
        sends += 1.0;
    }
    sends * PAPERS_SEND_S / PAPERS_STREAM_S
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_time_grows_as_each_node_sends_twice() {
        let sends = |receivers| papers_streams(receivers) * PAPERS_STREAM_S / PAPERS_SEND_S;
        // 1, 2, 4, 7, 12, 20, 33, 54, 88, 143 nodes hold it.
        let steps = [(1, 1.0), (2, 2.0), (3, 2.0), (4, 3.0), (6, 3.0), (100, 9.0)];
        for (receivers, expected) in steps {
            assert!((sends(receivers) - expected).abs() < 1e-9, "{receivers}");
        }
        // The paper states about 3 s.
        assert!((papers_streams(100) * PAPERS_STREAM_S - 3.0).abs() < 0.3);
    }
}
