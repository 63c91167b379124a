//! `outboard fs import` and `export`: whole trees from this machine into a file system, and back.

use super::at::{FsServers, caller};
use crate::status_line::{StatusLine, say_above};
use clap::Args;
use outboard_fs::client::{FsCaller, FsClient};
use outboard_fs::copy::{CopyError, CopyProgress, ImportTarget, export_tree, import_tree};
use outboard_fs::tools::{FsPlace, LastLink, ResolvedPath, quoted, resolve};
use serde_json::json;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Copy a directory of this machine into a file system, many files with each request.
///
/// Copied are files, directories, symbolic and hard links, fifos, sockets and devices, with their
/// rights, times, holes and user.* attributes; owners, if user 0 asks and the server does not have
/// it be nobody. The copy has its place only when it is whole. What cannot be read is told, and the
/// rest is copied; then the exit code is 1.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs import ~/photos n01:/photos")]
pub(crate) struct ImportArgs {
    /// The directory.
    source: OsString,
    /// HOST:/path, or a path in a mount: what is not there yet, or an empty directory.
    target: OsString,
    /// What was copied, as JSON.
    #[arg(long)]
    json: bool,
}

/// Copy a directory of a file system to this machine, many files at a time.
///
/// Copied is what `outboard fs import` copies; owners, if user 0 asks.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs export n01:/photos ~/photos")]
pub(crate) struct ExportArgs {
    /// HOST:/path, or a path in a mount.
    source: OsString,
    /// What is not there yet, or an empty directory.
    target: OsString,
    /// What was copied, as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn import(args: &ImportArgs) -> Result<ExitCode, Box<dyn Error>> {
    let (source, target) = (&args.source, &args.target);
    let (place, shown) = (place_of(target)?, target.to_string_lossy());
    let client = FsServers::default().client(&place.host)?;
    let caller = caller();
    let target = import_target(&client, &caller, &place)?;
    watched(args.json, |progress, tell| {
        let source = Path::new(source);
        import_tree((&client, &caller), source, (&target, &shown), (progress, tell))
    })
}

pub(crate) fn export(args: &ExportArgs) -> Result<ExitCode, Box<dyn Error>> {
    let found = FsServers::default().find(&args.source)?;
    let shown = args.source.to_string_lossy();
    watched(args.json, |progress, tell| {
        let (client, source) = ((&found.client, &found.caller), (&found.root.found, &*shown));
        export_tree(client, source, Path::new(&args.target), (progress, tell))
    })
}

/// Where a copy goes: in a mount the last name need not be there.
pub(super) fn place_of(word: &OsStr) -> Result<FsPlace, Box<dyn Error>> {
    let error = match FsPlace::of(word) {
        Ok(place) => return Ok(place),
        Err(error) => error,
    };
    let path = Path::new(word);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(error.into());
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    match (FsPlace::of(parent.join(".").as_os_str()), path.symlink_metadata()) {
        (Ok(mut place), Err(_)) => {
            use std::os::unix::ffi::OsStrExt;
            place.path.push(b'/');
            place.path.extend_from_slice(name.as_bytes());
            place.shown = word.as_bytes().to_vec();
            Ok(place)
        }
        _ => Err(error.into()),
    }
}

fn import_target(
    client: &FsClient,
    caller: &FsCaller,
    place: &FsPlace,
) -> Result<ImportTarget, Box<dyn Error>> {
    let trimmed =
        &place.path[..place.path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1)];
    let cut = trimmed.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let (above, name) = trimmed.split_at(cut);
    let whole = resolve(client, caller, (&place.path, &place.shown), LastLink::Stays);
    match whole {
        Ok(found) => existing(client, caller, found, place),
        Err(error) if !FsClient::can_be_name(name) => Err(error.into()),
        Err(_) => {
            let parent = resolve(client, caller, (above, &place.shown), LastLink::Stays)?;
            // A link that leads nowhere is something.
            match client.find(caller, parent.found.inode, name) {
                Ok(_) => Err(CopyError::Exists(quoted(&place.shown)).into()),
                Err(_) => Ok(ImportTarget::New(parent.found.inode, name.to_vec())),
            }
        }
    }
}

fn existing(
    client: &FsClient,
    caller: &FsCaller,
    found: ResolvedPath,
    place: &FsPlace,
) -> Result<ImportTarget, Box<dyn Error>> {
    let is_directory = found.found.record.mode >> 12 & 15 == 4;
    if !is_directory || !client.list(caller, found.found.inode, 0)?.is_empty() {
        return Err(CopyError::Exists(quoted(&place.shown)).into());
    }
    Ok(ImportTarget::Empty(Box::new(found)))
}

/// Copies, shows how far it is, and says what came of it.
fn watched(
    is_json: bool,
    copy: impl FnOnce(&CopyProgress, &(dyn Fn(&[u8], &str) + Sync)) -> Result<(), CopyError>,
) -> Result<ExitCode, Box<dyn Error>> {
    let (progress, begun) = (Arc::new(CopyProgress::default()), Instant::now());
    let line = StatusLine::start({
        let progress = Arc::clone(&progress);
        move || shown(&progress)
    });
    let tell = |path: &[u8], why: &str| say_above(&format!("outboard: {}: {why}", quoted(path)));
    let copied = copy(&progress, &tell);
    drop(line);
    copied?;
    let (names, bytes) = (&progress.names, &progress.bytes);
    let (names, bytes) = (names.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
    let failures = progress.failures.load(Ordering::Relaxed);
    let seconds = begun.elapsed().as_secs_f64();
    let is_without_owners = progress.is_without_owners.load(Ordering::Relaxed);
    if is_without_owners {
        eprintln!("outboard: owners are not kept: the server has user 0 be nobody");
    }
    let mut out = std::io::stdout();
    match is_json {
        true => writeln!(
            out,
            "{}",
            json!({
                "names": names,
                "bytes": bytes,
                "failures": failures,
                "owners_kept": !is_without_owners,
                "seconds": seconds,
            })
        )?,
        false => writeln!(out, "{names} names, {bytes} bytes in {seconds:.1} s")?,
    }
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the line on a terminal says.
fn shown(progress: &CopyProgress) -> String {
    let names = progress.names.load(Ordering::Relaxed);
    let mebibytes = progress.bytes.load(Ordering::Relaxed) >> 20;
    format!("{names} names, {mebibytes} MiB")
}
