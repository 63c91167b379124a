//! The step model behind `outboard cast --plan` with measured costs: fitted to some runs, checked
//! against others, and drawn for clusters that no machine here can be.

use anyhow::{Context, Result, anyhow, ensure};

use super::kept::KeptPart;
use super::ours::{WarmNodes, plan};
use super::parts::{Findings, PARTS};
use super::plain;
use super::rows::{BOUND, LARGE, OURS, bound_factor};
use super::stage::CastStage;
use super::turns::Recovers as _;
use crate::bench::measure::Summary;
use crate::bench::report::{Panel, Series, Table};
use crate::bench::stack::section::table;
use crate::lab::Link;

/// Numbers of receivers to which the costs are fitted, and for which they are checked.
const FITTED: [usize; 3] = [4, 8, 16];
const CHECKED: [usize; 1] = [32];
const BYTES: u64 = 20 << 20;
const BITS: u64 = 100_000_000;
/// The star is run with large chunks alone, because it takes long.
const KINDS: [&str; 4] = ["binomial", "two-tree", "chain", "star"];
const CHUNKS: [u64; 2] = [256 << 10, 1 << 20];
/// Costs besides the bytes: of a step, of a hop, of a cast, of a receiver, in seconds; and by what
/// part of their time the steps of a schedule are longer in which a node takes from several others,
/// because nodes do not keep step.
const COSTS: usize = 5;

/// Measured costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepModel {
    costs: [f64; COSTS],
}

/// A cast and what it took.
#[derive(Clone, Debug)]
struct ModelRun {
    kind: &'static str,
    receivers: usize,
    chunk: u64,
    steps: f64,
    depth: f64,
    /// Bytes in a second.
    rate: f64,
    seconds: f64,
}

impl ModelRun {
    /// By what each cost is multiplied.
    fn counts(&self) -> [f64; COSTS] {
        let apart = if takes_from_several(self.kind) { self.bytes_s() } else { 0.0 };
        [self.steps, self.depth, 1.0, count(self.receivers), apart]
    }

    /// Seconds of the bytes alone, in chunks that are all full.
    fn bytes_s(&self) -> f64 {
        self.steps * approximate(BYTES) / approximate(BYTES.div_ceil(self.chunk)) / self.rate
    }
}

impl StepModel {
    /// What the last run of the part `model` found.
    pub(super) fn kept() -> Result<Option<Self>> {
        let part = PARTS.iter().find(|part| part.name == "model").context("the model is a part")?;
        let Some(costs) = KeptPart::load(part)?.costs else { return Ok(None) };
        let costs = costs.try_into().map_err(|costs| anyhow!("not {COSTS} costs: {costs:?}"))?;
        Ok(Some(Self { costs }))
    }

    /// The costs, none below nothing, with which squares of relative errors are least.
    ///
    /// # Errors
    /// When the runs are too much alike to tell the costs apart.
    fn fit(runs: &[ModelRun]) -> Result<Self> {
        let mut used = [true; COSTS];
        loop {
            let costs = solve(runs, used);
            ensure!(costs.iter().all(|cost| cost.is_finite()), "runs too much alike: {costs:?}");
            match (0..COSTS).find(|at| costs[*at] < 0.0) {
                Some(negative) => used[negative] = false,
                None => return Ok(Self { costs }),
            }
        }
    }

    /// Seconds that a cast takes.
    fn predict(&self, run: &ModelRun) -> f64 {
        let counted = run.counts().into_iter().zip(self.costs).map(|(count, cost)| count * cost);
        run.bytes_s() + counted.sum::<f64>()
    }

    /// Seconds of `bytes` over links of so many bytes a second, connections made before.
    pub(super) fn seconds(
        &self,
        kind: &str,
        receivers: usize,
        (bytes, rate): (u64, f64),
    ) -> Result<f64> {
        let plan = plan(receivers, bytes, None, kind)?;
        let Shape { steps, depth, chunks } = Shape::of(&plan)?;
        let chosen = plan["kind"].as_str().context("the plan has no kind")?;
        let apart = if takes_from_several(chosen) { self.costs[4] } else { 0.0 };
        let full = approximate(bytes) / chunks / rate * (1.0 + apart);
        Ok(steps * (full + self.costs[0]) + depth * self.costs[1])
    }
}

/// Whether a node has more than one sender in a schedule of this kind.
fn takes_from_several(kind: &str) -> bool {
    matches!(kind, "binomial" | "two-tree")
}

/// Least squares by the normal equations; costs that are not used are 0.
fn solve(runs: &[ModelRun], used: [bool; COSTS]) -> [f64; COSTS] {
    let mut rows = [[0.0; COSTS + 1]; COSTS];
    for run in runs {
        let counts = run.counts().map(|count| count / run.seconds);
        let rest = 1.0 - run.bytes_s() / run.seconds;
        for row in 0..COSTS {
            (0..COSTS).for_each(|column| rows[row][column] += counts[row] * counts[column]);
            rows[row][COSTS] += counts[row] * rest;
        }
    }
    for at in (0..COSTS).filter(|at| !used[*at]) {
        rows.iter_mut().for_each(|row| row[at] = 0.0);
        rows[at] = [0.0; COSTS + 1];
        rows[at][at] = 1.0;
    }
    for pivot in 0..COSTS {
        let scale = rows[pivot][pivot];
        rows[pivot].iter_mut().for_each(|cell| *cell /= scale);
        let from = rows[pivot];
        for (_, row) in rows.iter_mut().enumerate().filter(|(at, _)| *at != pivot) {
            let factor = row[pivot];
            row.iter_mut().zip(from).for_each(|(cell, own)| *cell -= factor * own);
        }
    }
    rows.map(|row| row[COSTS])
}

/// Runs casts, fits, checks and draws.
pub(super) fn findings() -> Result<Findings> {
    let fitted = runs(&FITTED, &KINDS)?;
    let model = StepModel::fit(&fitted)?;
    // The star of so many tells nothing that fewer do not, and takes half a minute.
    let checked = runs(&CHECKED, &KINDS[..3])?;
    let large = large_runs(&model)?;
    let error = |found: f64, predicted: f64| (predicted / found - 1.0).abs();
    let largest = |errors: &mut dyn Iterator<Item = f64>| errors.fold(0.0, f64::max);
    let worst = largest(&mut checked.iter().map(|run| error(run.seconds, model.predict(run))));
    let worst_large = largest(&mut large.iter().map(|run| error(run.measured_s, run.predicted_s)));
    let [step, hop, cast, receiver, apart] = model.costs.map(|cost| cost * 1000.0);
    let note = format!(
        "The step model: T = steps · (chunk / B · (1 + {:.3} where nodes take from several others) \
         + {step:.2} ms) + hops · {hop:.2} ms + {cast:.0} ms + receivers · {receiver:.2} ms, \
         fitted to {} runs; its largest error in {} runs to {CHECKED:?} receivers is {:.1} %, and \
         {:.1} % in {} rows of this page, where all hosts share this machine's processors: the \
         model knows links alone, and costs of receivers are sums here.",
        apart / 1000.0,
        fitted.len(),
        checked.len(),
        worst * 100.0,
        worst_large * 100.0,
        large.len(),
    );
    Ok(Findings {
        figures: vec![Summary::of(&[1.0 + worst.max(worst_large)])],
        notes: vec![note],
        tables: vec![errors_table(&model, &fitted, &checked, &large)],
        panels: drawn(&model)?,
        costs: Some(model.costs.into()),
        failures: Vec::new(),
    })
}

/// 100 MB to a number of receivers as the rows of the page measured it, and as the model says.
#[derive(Debug)]
struct LargeRun {
    part: &'static str,
    measured_s: f64,
    predicted_s: f64,
}

/// The runs of other parts that were measured before.
fn large_runs(model: &StepModel) -> Result<Vec<LargeRun>> {
    let mut found = Vec::new();
    for part in &PARTS {
        let receivers = match part.name {
            "gigabit" => 8,
            name => name.parse().unwrap_or(0),
        };
        let kept = KeptPart::load(part)?;
        let measured = kept.median(OURS).zip(kept.median(BOUND)).filter(|_| receivers > 0);
        if let Some((measured_s, bound_s)) = measured {
            let rate = approximate(LARGE) * bound_factor(receivers, LARGE) / bound_s;
            let moved = model.seconds("auto", receivers, (LARGE, rate))?;
            let predicted_s = moved + model.costs[2] + count(receivers) * model.costs[3];
            found.push(LargeRun { part: part.name, measured_s, predicted_s });
        }
    }
    Ok(found)
}

fn errors_table(
    model: &StepModel,
    fitted: &[ModelRun],
    checked: &[ModelRun],
    large: &[LargeRun],
) -> Table {
    let row = |what: String, (found, predicted): (f64, f64), use_of: &str| {
        let error = format!("{:+.1} %", (predicted / found - 1.0) * 100.0);
        let figures = [format!("{found:.3}"), format!("{predicted:.3}"), error, use_of.to_owned()];
        [what].into_iter().chain(figures).collect::<Vec<_>>()
    };
    let short = |run: &ModelRun, use_of| {
        let kib = run.chunk >> 10;
        let what = format!("20 MiB, {} to {}, chunks of {kib} KiB", run.kind, run.receivers);
        row(what, (run.seconds, model.predict(run)), use_of)
    };
    let rows = fitted.iter().map(|run| short(run, "fitted"));
    let rows = rows.chain(checked.iter().map(|run| short(run, "checked")));
    let rows = rows.chain(large.iter().map(|run| {
        row(format!("100 MB, row {}", run.part), (run.measured_s, run.predicted_s), "checked")
    }));
    let head = ["run", "measured, s", "model, s", "error", ""];
    table("The step model beside runs", &head, rows.collect())
}

fn runs(receivers: &[usize], kinds: &[&'static str]) -> Result<Vec<ModelRun>> {
    let mut found = Vec::new();
    for &receivers in receivers {
        let mut stage = CastStage::new(receivers, Link::BitsPerSecond(BITS))?;
        let rate = approximate(BYTES) / plain::stream(&mut stage, BYTES)?;
        let nodes = WarmNodes::default();
        for &kind in kinds {
            for &chunk in if kind == "star" { &CHUNKS[1..] } else { &CHUNKS[..] } {
                let Shape { steps, depth, .. } =
                    Shape::of(&plan(receivers, BYTES, Some(chunk), kind)?)?;
                let options = ["--schedule", kind, "--chunk", &chunk.to_string()];
                let seconds = nodes.cast(&mut stage, BYTES, &options).or_else(|error| {
                    eprintln!("model: {kind} to {receivers} failed once: {error:#}");
                    stage.recover()?;
                    nodes.cast(&mut stage, BYTES, &options)
                })?;
                eprintln!("model: {kind} to {receivers}, chunks of {chunk}: {seconds:.3} s");
                found.push(ModelRun { kind, receivers, chunk, steps, depth, rate, seconds });
            }
        }
    }
    Ok(found)
}

/// What the model needs of a plan.
#[derive(Debug)]
struct Shape {
    steps: f64,
    depth: f64,
    chunks: f64,
}

impl Shape {
    fn of(plan: &serde_json::Value) -> Result<Self> {
        let number =
            |name: &str| plan[name].as_f64().with_context(|| format!("no {name} in {plan}"));
        Ok(Self { steps: number("steps")?, depth: number("depth")?, chunks: number("chunks")? })
    }
}

/// 1,000 and 10,000 receivers at 10 and 100 Gbit/s.
fn drawn(model: &StepModel) -> Result<Vec<Panel>> {
    let kinds = ["binomial", "two-tree", "chain", "paper:2"];
    let points = [
        ("1,000 at 10 Gbit/s", 1_000, 10e9),
        ("1,000 at 100 Gbit/s", 1_000, 100e9),
        ("10,000 at 10 Gbit/s", 10_000, 10e9),
        ("10,000 at 100 Gbit/s", 10_000, 100e9),
    ];
    let panel = |(title, bytes): (&str, u64)| -> Result<Panel> {
        let of_kind = |kind: &&str| -> Result<Series> {
            let sample = |(_, receivers, bits): &(&str, usize, f64)| {
                Ok(vec![model.seconds(kind, *receivers, (bytes, bits / 8.0))?])
            };
            let samples = points.iter().map(sample).collect::<Result<_>>()?;
            Ok(Series { name: (*kind).to_owned(), samples })
        };
        Ok(Panel {
            title: format!("By the model: {title}"),
            unit: "s, less is better".into(),
            axis: "receivers".into(),
            points: points.iter().map(|(point, ..)| (*point).to_owned()).collect(),
            series: kinds.iter().map(of_kind).collect::<Result<_>>()?,
        })
    };
    [("100 MiB", 100 << 20), ("10 GiB", 10 << 30)].into_iter().map(panel).collect()
}

fn count(receivers: usize) -> f64 {
    f64::from(u32::try_from(receivers).unwrap_or(u32::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "seconds of a model need no 53 bits")]
fn approximate(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        kind: &'static str,
        (receivers, steps, depth): (usize, f64, f64),
        costs: [f64; COSTS],
    ) -> ModelRun {
        let mut run =
            ModelRun { kind, receivers, chunk: 1 << 20, steps, depth, rate: 1e7, seconds: 0.0 };
        run.seconds = StepModel { costs }.predict(&run);
        run
    }

    fn runs(costs: [f64; COSTS]) -> Vec<ModelRun> {
        let shapes = [
            ("chain", (4, 24.0, 4.0)),
            ("chain", (8, 28.0, 8.0)),
            ("binomial", (8, 23.0, 3.0)),
            ("binomial", (16, 24.0, 4.0)),
            ("star", (16, 320.0, 1.0)),
            ("star", (8, 160.0, 1.0)),
        ];
        shapes.map(|(kind, shape)| run(kind, shape, costs)).into()
    }

    #[test]
    fn costs_that_runs_have_are_found() {
        let costs = [0.002, 0.01, 0.3, 0.004, 0.2];
        let model = StepModel::fit(&runs(costs)).expect("they differ");
        for (found, known) in model.costs.into_iter().zip(costs) {
            assert!((found - known).abs() < 1e-6, "{:?}", model.costs);
        }
    }

    #[test]
    fn no_cost_is_below_nothing() {
        let model = StepModel::fit(&runs([0.002, -0.01, 0.3, 0.004, 0.2])).expect("they differ");
        assert!(model.costs.iter().all(|cost| *cost >= 0.0), "{:?}", model.costs);
    }

    #[test]
    fn runs_that_are_alike_tell_nothing() {
        let one = run("chain", (4, 24.0, 4.0), [0.0; COSTS]);
        assert!(StepModel::fit(&[one.clone(), one]).is_err());
    }
}
