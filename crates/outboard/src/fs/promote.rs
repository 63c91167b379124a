//! `outboard fs promote`: a replica becomes the server.

use super::at::{FsHosts, dial};
use crate::Outcome;
use clap::Args;
use outboard_fs::replica::{PromotedReplica, promote as promote_replica};
use serde_json::json;
use std::io::Write;

/// Have a replica be the server from now on.
///
/// Ask for it when the first server is gone for good, or stopped: nothing here finds out. Clients
/// that name both hosts go on with the new server. The first one, once it meets the new one or a
/// client of it, serves nothing any more.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs promote n02")]
pub(crate) struct PromoteArgs {
    /// The replica: HOST or HOST:PORT.
    host: FsHosts,
    /// What came of it, as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn promote(args: &PromoteArgs) -> Outcome {
    let promoted = promote_replica(dial(&args.host)?);
    let promoted = promoted.map_err(|error| format!("{}: {error}", args.host))?;
    let PromotedReplica { epoch, commit, behind_s } = promoted;
    let mut out = std::io::stdout();
    if args.json {
        let value = json!({ "epoch": epoch, "commit": commit, "behind_s": behind_s });
        return Ok(writeln!(out, "{value}")?);
    }
    writeln!(out, "{} serves from now on: epoch {epoch}, commit {commit}", args.host)?;
    match behind_s {
        Some(seconds) => writeln!(
            out,
            "it had all that its server had {seconds} s ago; what was synced since may be missing"
        )?,
        None => writeln!(
            out,
            "it has not seen its server since it was started: what was synced since may be missing"
        )?,
    }
    Ok(())
}
