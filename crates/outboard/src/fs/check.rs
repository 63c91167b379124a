//! `outboard fs check`: whether a store that nobody serves is as it should be.

use clap::Args;
use outboard_fs::check::{FsCheckReport, FsDamage, check_store};
use outboard_fs::protocol::BLOCK_LEN;
use outboard_fs::tools::quoted;
use serde_json::json;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// It could not be looked.
const NOT_LOOKED: u8 = 2;

/// Check a store that nobody serves: its log and checkpoints, and all structures of its metadata
/// against each other.
///
/// Nothing is changed, and files' bytes are not looked at. Exits with 0 if all is as it should be,
/// with 1 if something is damaged, and with 2 if it could not look.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs check --store /var/lib/outboard/fs")]
pub(crate) struct CheckArgs {
    /// The store's directory.
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn check(args: &CheckArgs) -> Result<ExitCode, Box<dyn Error>> {
    let report = match check_store(&args.store) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("outboard: {error}");
            return Ok(ExitCode::from(NOT_LOOKED));
        }
    };
    let mut out = io::stdout().lock();
    let written = match args.json {
        true => writeln!(out, "{}", described(&report)),
        false => print(&mut out, &report),
    };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ if report.damage_count == 0 => Ok(ExitCode::SUCCESS),
        _ => Ok(ExitCode::FAILURE),
    }
}

fn print(out: &mut impl Write, report: &FsCheckReport) -> io::Result<()> {
    let FsCheckReport { commit, inodes, names, blocks, damage, damage_count, .. } = report;
    for FsDamage { path, what } in damage {
        match path {
            Some(path) => writeln!(out, "{}: {what}", quoted(path))?,
            None => writeln!(out, "{what}")?,
        }
    }
    if let Some(why) = &report.passed_over {
        writeln!(out, "a checkpoint is not whole, and nothing is lost: {why}")?;
    }
    let bytes = blocks.saturating_mul(BLOCK_LEN);
    writeln!(out, "commit {commit}: {inodes} inodes, {names} names, {bytes} bytes of files")?;
    match damage_count {
        0 => writeln!(out, "no damage"),
        1 => writeln!(out, "1 damage: restore a snapshot, or copy what can be read"),
        count => writeln!(out, "{count} damages: restore a snapshot, or copy what can be read"),
    }
}

fn described(report: &FsCheckReport) -> serde_json::Value {
    let damage = report.damage.iter().map(|FsDamage { path, what }| {
        let path = path.as_ref().map(|path| String::from_utf8_lossy(path));
        json!({ "path": path, "what": what })
    });
    json!({
        "commit": report.commit,
        "was_closed": report.is_orderly,
        "checkpoint_passed_over": report.passed_over,
        "inodes": report.inodes,
        "names": report.names,
        "open_without_name": report.nameless,
        "being_given_back": report.dying,
        "bytes_used": report.blocks.saturating_mul(BLOCK_LEN),
        "bytes_reserved": report.reserved.saturating_mul(BLOCK_LEN),
        "damage_count": report.damage_count,
        "damage": damage.collect::<Vec<_>>(),
    })
}
