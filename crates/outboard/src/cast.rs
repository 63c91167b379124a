//! `outboard cast`: files from this machine to many nodes.

use clap::Args;
use outboard_cast::protocol::SERVICE;
use outboard_cast::receive::{FlushMode, PublishMode};
use outboard_cast::schedule::ScheduleKind;
use outboard_cast::sign::ChunkLen;
use outboard_cast::source::{CastLimits, CastOutcome, CastRequest, cast};
use outboard_cast::tree::{CastSource, ExcludeRules, ScanOptions};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::{Host, HostList};
use outboard_secure::ServiceName;
use serde_json::json;
use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Put files on many nodes, which pass them on to each other.
///
/// The nodes serve cast: `outboard node --serve cast`, with roots in the table [cast] of node.toml,
/// and [reach.cast] so that they reach each other. Each SRC appears at DEST complete and verified,
/// or not at all. Exits with 1 unless all nodes have it.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard cast model.bin data/ /var/cast/job7 --nodes n[01-16]")]
pub(crate) struct CastArgs {
    /// Files and directories, and last the directory at the nodes in which they appear.
    #[arg(required = true, num_args = 2.., value_name = "SRC... DEST")]
    paths: Vec<PathBuf>,
    /// The nodes [default: OUTBOARD_HOSTS].
    #[arg(long, value_name = "LIST")]
    nodes: Option<HostList>,
    /// Leave out what matches; can be given again.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// How chunks travel: binomial, two-tree, chain, tree:ARITY, paper:ARITY or star.
    #[arg(long, value_name = "NAME", default_value = "binomial")]
    schedule: ScheduleKind,
    /// Bytes in a chunk, a power of two.
    #[arg(long, value_name = "BYTES", default_value = "1048576")]
    chunk: u32,
    /// Replace what is there, at once.
    #[arg(long, conflicts_with = "merge")]
    replace: bool,
    /// Put files among those that are there, each at once.
    #[arg(long)]
    merge: bool,
    /// Flush to disks before names appear.
    #[arg(long)]
    sync: bool,
    /// Print the outcome as JSON.
    #[arg(long)]
    json: bool,
}

/// The exit code says whether all nodes have the files.
pub(crate) fn run(args: CastArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let is_json = args.json;
    let outcome = cast(request(args)?)?;
    let failed = outcome.nodes.iter().filter(|node| node.result.is_err()).count();
    if is_json {
        print_json(&outcome)?
    } else {
        print(&outcome, failed)
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn request(args: CastArgs) -> Result<CastRequest, Box<dyn std::error::Error>> {
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
        kind: args.schedule,
        publish,
        flush: if args.sync { FlushMode::BeforePublishing } else { FlushMode::Later },
        limits: CastLimits::default(),
        dial: Arc::new(dial),
    })
}

fn print(outcome: &CastOutcome, failed: usize) {
    for node in &outcome.nodes {
        match &node.result {
            Ok(names) => println!("{}  {names} published", node.host),
            Err(why) => println!("{}  failed: {why}", node.host),
        }
    }
    println!(
        "{} bytes to {} of {} nodes in {:.2} s",
        outcome.stream_len,
        outcome.nodes.len() - failed,
        outcome.nodes.len(),
        outcome.took.as_secs_f64()
    );
}

fn print_json(outcome: &CastOutcome) -> Result<(), serde_json::Error> {
    let node = |node: &outboard_cast::source::NodeOutcome| match &node.result {
        Ok(names) => json!({ "host": node.host, "published": names }),
        Err(why) => json!({ "host": node.host, "failed": why }),
    };
    let report = json!({
        "bytes": outcome.stream_len,
        "sent_chunks": outcome.sent_chunks,
        "seconds": outcome.took.as_secs_f64(),
        "nodes": outcome.nodes.iter().map(node).collect::<Vec<_>>(),
    });
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
