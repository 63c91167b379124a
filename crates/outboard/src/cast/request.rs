//! From arguments and the environment to what is cast where. Reads no file of what is cast.

use super::CastArgs;
use crate::launch::CastReach;
use outboard_cast::receive::{FlushMode, PublishMode};
use outboard_cast::sign::ChunkLen;
use outboard_cast::source::{CastLimits, CastRequest};
use outboard_cast::tree::{CastSource, ExcludeRules, ScanOptions};
use outboard_cluster::hosts::HostList;
use std::env;
use std::error::Error;
use std::path::Path;

/// Starts receivers, if the cast does, or finds its nodes.
pub(super) fn reach(args: &CastArgs, destination: &Path) -> Result<CastReach, Box<dyn Error>> {
    if let Some(launch) = args.launch.settle(args.nodes.as_ref())? {
        return Ok(CastReach::launch(launch, destination)?);
    }
    let nodes: HostList = match (&args.nodes, env::var("OUTBOARD_HOSTS")) {
        (Some(nodes), _) => nodes.clone(),
        (None, Ok(hosts)) if !hosts.is_empty() => hosts.parse()?,
        (None, _) => return Err("name nodes by --nodes or OUTBOARD_HOSTS".into()),
    };
    Ok(CastReach::to(nodes))
}

/// What is cast, to nodes that can be reached.
pub(super) fn request(
    args: &CastArgs,
    sources: Vec<CastSource>,
    (reach, destination): (&CastReach, &Path),
) -> Result<CastRequest, Box<dyn Error>> {
    let (nodes, dial) = reach.hosts()?;
    let mut exclude = ExcludeRules::default();
    args.exclude.iter().try_for_each(|pattern| exclude.add(pattern.as_bytes()))?;
    let publish = match (args.replace, args.merge) {
        (true, _) => PublishMode::Replace,
        (_, true) => PublishMode::Merge,
        _ => PublishMode::New,
    };
    Ok(CastRequest {
        sources,
        destination: destination.into(),
        nodes,
        scan: ScanOptions { exclude, ..ScanOptions::default() },
        chunk_len: ChunkLen::new(args.chunk)?,
        kind: Some(args.schedule),
        topology: None,
        publish,
        flush: if args.sync { FlushMode::BeforePublishing } else { FlushMode::Later },
        limits: CastLimits::default(),
        dial,
        progress: None,
    })
}
