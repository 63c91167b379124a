//! `outboard offload channels`: what carries channels on this machine, and what it costs.

use super::{launch_options, print_line};
use crate::Outcome;
use clap::Args;
use outboard_offload::measure;
use outboard_offload::planning::{CarrierCosts, ChannelCosts};
use serde_json::json;
use std::fs;
use std::path::PathBuf;

/// Measure what carries channels on this machine: time and throughput by the size of messages.
///
/// The result is kept, and layouts are made by it from then on.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard offload channels")]
pub(crate) struct ChannelsArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print what was measured before.
    #[arg(long)]
    known: bool,
}

/// Where measured costs are kept.
fn costs_file() -> Option<PathBuf> {
    let cache = outboard_active::service::cache_directory()?;
    Some(cache.parent()?.join("channel-costs.json"))
}

/// What was measured, or guesses.
pub(super) fn known_costs() -> ChannelCosts {
    let read = || serde_json::from_slice(&fs::read(costs_file()?).ok()?).ok();
    read().unwrap_or_default()
}

pub(super) fn channels(args: &ChannelsArgs) -> Outcome {
    let costs = if args.known { known_costs() } else { measured()? };
    if args.json {
        return print_line(json!(costs));
    }
    if costs.is_guess {
        print_line("nobody has measured this machine yet; these are guesses")?;
    }
    print_line("carrier    bytes   half a round trip   messages/s   processor time a message")?;
    show("inside", &costs.inside)?;
    show("ring", &costs.ring)?;
    show("session", &costs.session)
}

fn measured() -> Result<ChannelCosts, Box<dyn std::error::Error>> {
    let costs = measure::channel_costs(&launch_options()?)?;
    if let Some(path) = costs_file() {
        let kept = path.parent().map_or(Ok(()), fs::create_dir_all);
        let kept = kept.and_then(|()| fs::write(&path, serde_json::to_vec(&costs)?));
        if let Err(error) = kept {
            eprintln!("outboard: the result is not kept: {}: {error}", path.display());
        }
    }
    Ok(costs)
}

fn show(name: &str, carrier: &CarrierCosts) -> Outcome {
    carrier.sizes.iter().try_for_each(|size| {
        let (latency, cpu) = (size.latency_ns as f64 / 1e3, size.cpu_ns as f64 / 1e3);
        let (bytes, rate) = (size.bytes, size.messages_per_s);
        print_line(format!("{name:8} {bytes:>8} {latency:>16.1} us {rate:>12} {cpu:>23.2} us"))
    })
}
