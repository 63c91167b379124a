//! From arguments and the environment to what is cast where. Reads no file of what is cast.

use super::CastArgs;
use outboard_cast::ShowMode;
use outboard_cast::protocol::SERVICE;
use outboard_cast::receive::{FlushMode, PublishMode};
use outboard_cast::sign::ChunkLen;
use outboard_cast::source::{CastLimits, CastRequest};
use outboard_cast::tree::{CastSource, ExcludeRules, ScanOptions};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::Host;
use outboard_secure::ServiceName;
use std::env;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) fn request(args: CastArgs) -> Result<CastRequest, Box<dyn std::error::Error>> {
    let mut sources = args.paths;
    let destination = sources.pop().ok_or("name a destination")?;
    let nodes = match (args.nodes, env::var("OUTBOARD_HOSTS")) {
        (Some(nodes), _) => nodes,
        (None, Ok(hosts)) if !hosts.is_empty() => hosts.parse()?,
        (None, _) => return Err("name nodes by --nodes or OUTBOARD_HOSTS".into()),
    };
    let mut exclude = ExcludeRules::default();
    args.exclude.iter().try_for_each(|pattern| exclude.add(pattern.as_bytes()))?;
    let service: ServiceName = SERVICE.parse()?;
    let dialer =
        Dialer::from_environment(|name| env::var_os(name), std::slice::from_ref(&service))?;
    let dial = move |host: &Host, limit: Duration| {
        let dialled = dialer.dial(host, &service, Instant::now() + limit);
        dialled.map_err(|error| error.to_string())
    };
    let publish = match (args.replace, args.merge) {
        (true, _) => PublishMode::Replace,
        (_, true) => PublishMode::Merge,
        _ => PublishMode::New,
    };
    let sources = sources.iter().map(|path| CastSource::new(path)).collect::<Result<_, _>>()?;
    Ok(CastRequest {
        sources,
        destination,
        nodes,
        scan: ScanOptions { exclude, ..ScanOptions::default() },
        chunk_len: ChunkLen::new(args.chunk)?,
        kind: Some(args.schedule),
        topology: None,
        publish,
        show: ShowMode::Complete,
        flush: if args.sync { FlushMode::BeforePublishing } else { FlushMode::Later },
        limits: CastLimits::default(),
        dial: Arc::new(dial),
        progress: None,
    })
}
