//! `--plan`: how chunks would travel, and how long that takes by the step model. Asks no node, and
//! needs none.

use super::{CastArgs, Failure, WrongUsage, print, request};
use crate::quantity::shown;
use outboard_cast::schedule::{CastPlan, LinkModel, PlanRequest, ScheduleKind};
use outboard_cast::sign::ChunkLen;
use outboard_cast::source::{NodeTopology, this_machine};
use outboard_cast::tree::scan;
use serde_json::{Value, json};
use std::num::NonZeroU32;

/// How many nodes' receivers are printed as text.
const NODES_SHOWN_MAX: usize = 32;
/// How many receivers of one node are printed as text.
const RECEIVERS_SHOWN_MAX: usize = 12;

/// What is planned.
struct Question {
    request: PlanRequest,
    /// By number; the source is the first.
    names: Vec<String>,
    wish: Option<ScheduleKind>,
}

/// Makes the plans, and prints them.
pub(super) fn run(args: &CastArgs) -> Result<(), Failure> {
    let question = question(args)?;
    let chosen = match question.wish {
        Some(kind) => kind,
        None => ScheduleKind::for_cast(&question.request)?,
    };
    let mut plans = question.request.plans()?;
    if plans.iter().all(|plan| plan.kind != chosen) {
        plans.push(question.request.plan(chosen)?);
    }
    if args.json {
        return print(&format!("{:#}", to_json(&question, chosen, &plans)?));
    }
    let assumed = if args.rate.is_some() { "" } else { " (assumed; --rate says others)" };
    let mut lines = head(&question.request, assumed);
    let bound_s = question.request.bound_of_chunks_s();
    lines.extend(plans.iter().map(|plan| row(plan, chosen, bound_s)));
    lines.extend(receivers(&question, chosen)?);
    print(&lines.join("\n"))
}

fn question(args: &CastArgs) -> Result<Question, Failure> {
    let hosts: Vec<String> = match args.plan_nodes {
        Some(nodes) => (1..=nodes.get()).map(|node| node.to_string()).collect(),
        None => request::nodes(args)?.iter().map(ToString::to_string).collect(),
    };
    let bytes = match (args.plan_size, args.paths.is_empty()) {
        (Some(size), _) => size.0,
        (None, false) => {
            let (sources, _) = request::paths(args)?;
            scan(request::named(sources)?, &request::scan_options(args)?)?.manifest().stream_len()
        }
        (None, true) => {
            return Err(WrongUsage::of("name how much: --plan-size 100M, or SRC... DEST"));
        }
    };
    let topology = args.topology.as_deref().map(request::topology).transpose()?;
    let (order, switches) = match topology {
        Some(topology) => NodeTopology { topology, names: hosts.clone() }.order(&this_machine()),
        None => ((0..hosts.len()).collect(), Vec::new()),
    };
    let names = order.into_iter().map(|at| hosts[at].clone());
    let names: Vec<String> = std::iter::once("source".to_owned()).chain(names).collect();
    let chunk_len = match args.chunk {
        Some(chunk) => request::chunk_len(chunk)?,
        None => ChunkLen::for_cast(bytes),
    };
    let request = PlanRequest {
        nodes: u32::try_from(names.len()).map_err(|_| "too many nodes for a plan")?,
        bytes,
        chunk_bytes: NonZeroU32::new(chunk_len.bytes()).unwrap_or(NonZeroU32::MIN),
        link: LinkModel::of_rate(args.rate.map(|rate| rate.0)),
        switches,
    };
    Ok(Question { request, names, wish: request::kind(args)? })
}

fn head(request: &PlanRequest, assumed: &str) -> Vec<String> {
    vec![
        format!(
            "{} to {} nodes over links of {:.3} Gbit/s{assumed}, in chunks of {} bytes",
            shown(request.bytes),
            request.nodes - 1,
            request.link.bytes_per_second * 8e-9,
            request.chunk_bytes,
        ),
        format!(
            "the bound of these chunks, which no schedule undercuts, is {:.4} s; of chunks of \
             1 MiB {:.4} s",
            request.bound_of_chunks_s(),
            request.bound_s(),
        ),
        String::new(),
        format!(
            "{:<12} {:>11} {:>8} {:>9} {:>6} {:>12} {:>13}",
            "schedule", "seconds", "to bound", "steps", "depth", "connections", "best chunk"
        ),
    ]
}

fn row(plan: &CastPlan, chosen: ScheduleKind, bound_s: f64) -> String {
    let to_bound = if bound_s > 0.0 { plan.predicted_s / bound_s } else { 0.0 };
    format!(
        "{:<12} {:>11.4} {:>8.3} {:>9} {:>6} {:>12} {:>13}{}",
        plan.kind.to_string(),
        plan.predicted_s,
        to_bound,
        plan.steps,
        plan.depth,
        plan.connections,
        plan.best_chunk_bytes,
        if plan.kind == chosen { "  <- chosen" } else { "" },
    )
}

fn receivers(question: &Question, chosen: ScheduleKind) -> Result<Vec<String>, Failure> {
    let all = question.request.receivers(chosen)?;
    let line = |(name, receivers): (&String, &Vec<u32>)| {
        let first = receivers.iter().take(RECEIVERS_SHOWN_MAX);
        let mut words: Vec<&str> =
            first.map(|node| question.names[*node as usize].as_str()).collect();
        if receivers.len() > RECEIVERS_SHOWN_MAX {
            words.push("...");
        }
        format!("  {name} -> {}", if words.is_empty() { "-".into() } else { words.join(" ") })
    };
    let mut lines = vec![
        "seconds are without dials; the choice counts 5 ms for relays and 1 ms for each connection"
            .into(),
        String::new(),
        format!("{chosen}: which node sends to which"),
    ];
    lines.extend(question.names.iter().zip(&all).take(NODES_SHOWN_MAX).map(line));
    if all.len() > NODES_SHOWN_MAX {
        lines.push(format!("  and {} more nodes; --json has all", all.len() - NODES_SHOWN_MAX));
    }
    Ok(lines)
}

fn to_json(
    question: &Question,
    chosen: ScheduleKind,
    plans: &[CastPlan],
) -> Result<Value, Failure> {
    let all = question.request.receivers(chosen)?;
    let name = |node: &u32| question.names[*node as usize].as_str();
    let node = |(own, receivers): (&String, &Vec<u32>)| {
        let names: Vec<_> = receivers.iter().map(name).collect();
        json!({ "node": own, "sends_to": names })
    };
    Ok(json!({
        "nodes": question.request.nodes - 1,
        "bytes": question.request.bytes,
        "bytes_per_second": question.request.link.bytes_per_second,
        "bound_s": question.request.bound_s(),
        "bound_of_chunks_s": question.request.bound_of_chunks_s(),
        "chosen": chosen.to_string(),
        "plans": plans,
        "schedule": question.names.iter().zip(&all).map(node).collect::<Vec<_>>(),
    }))
}
