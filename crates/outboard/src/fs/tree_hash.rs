//! `outboard fs tree-hash`: hashes of whole trees, at their server or of this machine.

use super::at::{FoundPlace, FsServers};
use super::trees::{Printer, code, say};
use clap::Args;
use outboard_fs::tools::{FsPlace, ToldError, TreeHash, hash_local, hash_tree};
use serde_json::json;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

/// Hash whole trees at their server: equal if and only if names, kinds, rights, targets of links
/// and bytes of files are.
///
/// Paths are HOST:/path, paths in a mount, or other paths of this machine, which are hashed here in
/// the same way. Times, owners, hard links, holes and extended attributes do not count. Of a tree
/// that cannot be read as a whole there is no hash, and the exit code is 1.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs tree-hash ~/photos n01:/photos")]
pub(crate) struct TreeHashArgs {
    /// A line of JSON for each.
    #[arg(long)]
    json: bool,
    /// What is hashed.
    #[arg(required = true)]
    paths: Vec<OsString>,
}

pub(crate) fn tree_hash(args: &TreeHashArgs) -> Result<ExitCode, Box<dyn Error>> {
    let (mut servers, mut printer, mut has_failed) = (FsServers::default(), Printer::new(), false);
    for path in &args.paths {
        let mut failed = |error: ToldError<'_>| say(error);
        let hash = hash_of(&mut servers, path, &mut failed);
        has_failed |= matches!(hash, Ok(None));
        let ended = hash.and_then(|hash| Ok(args.print(&mut printer, path, hash)?));
        has_failed |= printer.ended(ended);
    }
    Ok(code(has_failed))
}

fn hash_of(
    servers: &mut FsServers,
    path: &OsStr,
    failed: &mut dyn FnMut(ToldError<'_>),
) -> Result<Option<TreeHash>, Box<dyn Error>> {
    if FsPlace::find(path)?.is_none() {
        return Ok(hash_local(Path::new(path), failed));
    }
    let FoundPlace { place, client, caller, root } = servers.find(path)?;
    Ok(hash_tree(&client, &caller, (&root, &place.shown), failed)?)
}

impl TreeHashArgs {
    fn print(
        &self,
        printer: &mut Printer,
        path: &OsStr,
        hash: Option<TreeHash>,
    ) -> Result<(), outboard_fs::tools::ToolError> {
        let Some(hash) = hash.map(|hash| hash.to_string()) else { return Ok(()) };
        match self.json {
            true => printer.line(&json!({ "path": path.to_string_lossy(), "hash": hash })),
            false => printer.put(&[hash.as_bytes(), b"  ", path.as_bytes(), b"\n"]),
        }
    }
}
