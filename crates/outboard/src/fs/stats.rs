//! `outboard fs stats`: how full a file system is.

use super::at::{FsServers, caller};
use crate::Outcome;
use clap::Args;
use outboard_fs::protocol::{BLOCK_LEN, FsServing, FsStats, NO_LIMIT};
use outboard_fs::tools::FsPlace;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;

/// Show how full a file system is.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs stats n01")]
pub(crate) struct FsStatsArgs {
    /// HOST, HOST:PORT, or a path in a mount.
    place: OsString,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn stats(args: &FsStatsArgs) -> Outcome {
    let host = match FsPlace::of(&args.place) {
        Ok(place) => place.host,
        // A word without a path is a host.
        Err(error) => match args.place.to_str().filter(|word| !word.contains('/')) {
            Some(word) => word.to_owned(),
            None => return Err(error.into()),
        },
    };
    let client = FsServers::default().client(&host)?;
    let (stats, serving) = client.stats_of_server(&caller())?;
    if args.json {
        return Ok(writeln!(std::io::stdout(), "{}", described(&stats, &serving))?);
    }
    show(&stats, &serving)
}

fn bytes(blocks: u64) -> u64 {
    blocks.saturating_mul(BLOCK_LEN)
}

fn limit(most: u64) -> Option<u64> {
    (most != NO_LIMIT).then_some(most)
}

fn used(stats: &FsStats) -> u64 {
    stats.blocks.saturating_sub(stats.blocks_free)
}

fn described(stats: &FsStats, serving: &FsServing) -> Value {
    json!({
        "bytes": bytes(stats.blocks),
        "bytes_used": bytes(used(stats)),
        "bytes_free": bytes(stats.blocks_free),
        "inodes": stats.inodes,
        "inodes_free": stats.inodes_free,
        "metadata_bytes": stats.heap_bytes,
        "metadata_bytes_free": stats.heap_free_bytes,
        "open_without_name": stats.orphans,
        "is_being_given_back": stats.dying != 0,
        "epoch": serving.epoch,
        "replica": serving.replica.map(|replica| json!({
            "state": replica.phase(),
            "for_s": replica.for_s,
            "lacks_commits": replica.lacks,
        })),
        "quota": {
            "bytes_used": bytes(stats.quota_blocks),
            "bytes": limit(stats.quota_blocks_max).map(bytes),
            "inodes_used": stats.quota_inodes,
            "inodes": limit(stats.quota_inodes_max),
        },
    })
}

fn show(stats: &FsStats, serving: &FsServing) -> Outcome {
    let (used, mut out) = (used(stats), std::io::stdout());
    let quotas = [
        ("bytes", bytes(stats.quota_blocks), limit(stats.quota_blocks_max).map(bytes)),
        ("inodes", stats.quota_inodes, limit(stats.quota_inodes_max)),
    ];
    let share = (used * 100).div_ceil(stats.blocks.max(1));
    writeln!(out, "bytes     {} of {} used ({share} %)", bytes(used), bytes(stats.blocks))?;
    writeln!(out, "inodes    {} used, about {} free", stats.inodes, stats.inodes_free)?;
    let (heap, free) = (stats.heap_bytes, stats.heap_free_bytes);
    writeln!(out, "metadata  {heap} bytes used, {free} free")?;
    for (what, used, most) in quotas {
        if let Some(most) = most {
            writeln!(out, "quota     {used} of {most} {what} used by this identity")?;
        }
    }
    if let Some(replica) = serving.replica {
        let (phase, seconds, lacks) = (replica.phase(), replica.for_s, replica.lacks);
        writeln!(out, "replica   {phase} for {seconds} s, lacks {lacks} commits")?;
    }
    if serving.epoch > 1 {
        writeln!(out, "epoch     {}: this server has replaced another one", serving.epoch)?;
    }
    if stats.orphans != 0 {
        writeln!(out, "open      {} inodes without a name", stats.orphans)?;
    }
    Ok(())
}
