//! `outboard fs snapshot` and `restore`: a copy of a store as of one commit, and a store of it.

use crate::status_line::StatusLine;
use clap::Args;
use outboard_fs::snapshot::{
    SnapshotError, SnapshotMade, SnapshotProgress, restore_snapshot, take_snapshot,
};
use serde_json::json;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Copy a store that a server of this machine serves, as of one commit, while changes go on.
///
/// The copy is a store itself, which can be checked, restored and served. It has its name only when
/// it is whole and on the disk. Where the disk's file system can, blocks share their place with the
/// store's. Only who may open the store's directory can make one.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs snapshot --store /var/lib/outboard/fs /backup/monday")]
pub(crate) struct SnapshotArgs {
    /// The store's directory.
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// The copy: what is not there yet.
    target: PathBuf,
    /// What was copied, as JSON.
    #[arg(long)]
    json: bool,
}

/// Make a new store of a snapshot, which stays as it is.
///
/// Any store that nobody serves can be copied so. The new one is there only when it is whole and on
/// the disk.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs restore /backup/monday --store /var/lib/outboard/restored")]
pub(crate) struct RestoreArgs {
    /// The snapshot's directory.
    snapshot: PathBuf,
    /// The new store: what is not there yet.
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// What was copied, as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn snapshot(args: &SnapshotArgs) -> Result<(), Box<dyn Error>> {
    watched(args.json, |progress| take_snapshot(&args.store, &args.target, progress))
}

pub(crate) fn restore(args: &RestoreArgs) -> Result<(), Box<dyn Error>> {
    watched(args.json, |progress| restore_snapshot(&args.snapshot, &args.store, progress))
}

fn watched(
    is_json: bool,
    copy: impl FnOnce(&SnapshotProgress) -> Result<SnapshotMade, SnapshotError>,
) -> Result<(), Box<dyn Error>> {
    let (progress, begun) = (Arc::new(SnapshotProgress::default()), Instant::now());
    let line = StatusLine::start({
        let progress = Arc::clone(&progress);
        move || shown(&progress)
    });
    let made = copy(&progress);
    drop(line);
    let SnapshotMade { commit, bytes, is_shared } = made?;
    let seconds = begun.elapsed().as_secs_f64();
    let mut out = io::stdout();
    if is_json {
        let value = json!({
            "commit": commit, "bytes": bytes, "is_shared": is_shared, "seconds": seconds,
        });
        return Ok(writeln!(out, "{value}")?);
    }
    let how = if is_shared { "shared" } else { "copied" };
    Ok(writeln!(out, "commit {commit}: {bytes} bytes {how} in {seconds:.1} s")?)
}

/// What the line on a terminal says.
fn shown(progress: &SnapshotProgress) -> String {
    let mebibytes = |bytes: u64| bytes >> 20;
    let done = mebibytes(progress.bytes.load(Ordering::Relaxed));
    let all = mebibytes(progress.all.load(Ordering::Relaxed));
    format!("{done} of {all} MiB")
}
