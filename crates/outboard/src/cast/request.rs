//! From arguments and the environment to what is cast where. Of what is cast it reads no file.

use super::args::ScheduleWish;
use super::{CastArgs, Failure, WrongUsage};
use crate::launch::CastReach;
use crate::quantity::ByteCount;
use outboard_cast::ShowMode;
use outboard_cast::receive::{FlushMode, PublishMode};
use outboard_cast::schedule::{ScheduleKind, Topology};
use outboard_cast::sign::ChunkLen;
use outboard_cast::source::{CastLimits, CastRequest, NodeTopology};
use outboard_cast::tree::{AccountNames, CastSource, ExcludeRules, OwnerChange, ScanOptions};
use outboard_cluster::hosts::HostList;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The longest chunk that nodes take, bytes: a window has four at least.
const CHUNK_LEN_MAX: u64 = 8 << 20;

/// Starts receivers, if the cast does, or finds its nodes.
pub(super) fn reach(args: &CastArgs, destination: &Path) -> Result<CastReach, Failure> {
    match args.launch.settle(args.nodes.as_ref())? {
        Some(launch) => Ok(CastReach::launch(launch, destination)?),
        None => Ok(CastReach::to(nodes(args)?)),
    }
}

/// What `args` ask for, but for the sources and for nodes that are not reached yet: what can be
/// wrong with it is found before a receiver is started.
#[derive(Debug)]
pub(super) struct CheckedWish {
    scan: ScanOptions,
    chunk_len: Option<ChunkLen>,
    kind: Option<ScheduleKind>,
    topology: Option<Topology>,
}

impl CheckedWish {
    pub(super) fn new(args: &CastArgs) -> Result<Self, Failure> {
        Ok(Self {
            scan: scan_options(args)?,
            chunk_len: args.chunk.map(chunk_len).transpose()?,
            kind: kind(args)?,
            topology: args.topology.as_deref().map(topology).transpose()?,
        })
    }

    /// What is cast, to nodes that can be reached; nobody is told how far it has come.
    pub(super) fn request(
        self,
        args: &CastArgs,
        sources: Vec<CastSource>,
        (reach, destination): (&CastReach, &Path),
    ) -> Result<CastRequest, Failure> {
        let names = reach.names();
        if let Some(min) = args.min_nodes {
            if min.get() as usize > reach.named() {
                return Err(WrongUsage::of(format!(
                    "--min-nodes {min}: only {} nodes are named",
                    reach.named()
                )));
            }
            reach.check_min_nodes(min.get() as usize)?;
        }
        let (nodes, dial) = reach.hosts()?;
        Ok(CastRequest {
            scan: self.scan,
            chunk_len: self.chunk_len,
            kind: self.kind,
            topology: self.topology.map(|topology| NodeTopology { topology, names }),
            buffers: args.buffers,
            publish: match (args.replace, args.merge) {
                (true, _) => PublishMode::Replace,
                (_, true) => PublishMode::Merge,
                _ => PublishMode::New,
            },
            show: if args.lazy { ShowMode::AtOnce } else { ShowMode::Complete },
            flush: if args.sync { FlushMode::BeforePublishing } else { FlushMode::Later },
            limits: CastLimits {
                min_nodes: args.min_nodes.map(Into::into),
                rate: args.rate.map(|rate| rate.0),
            },
            ..CastRequest::new(sources, destination.to_owned(), nodes, dial)
        })
    }
}

/// The sources and the destination.
pub(super) fn paths(args: &CastArgs) -> Result<(&[PathBuf], &Path), Failure> {
    match args.paths.split_last() {
        Some((destination, sources)) if !sources.is_empty() => {
            if destination.is_absolute() {
                return Ok((sources, destination));
            }
            let shown = destination.display();
            Err(WrongUsage::of(format!(
                "{shown}: the last word is the directory at the nodes, which have other working \
                 directories: write an absolute path"
            )))
        }
        _ => Err(WrongUsage::of(
            "name what to cast, and last the directory at the nodes: SRC... DEST; see outboard \
             cast --help",
        )),
    }
}

/// The nodes that were named.
pub(super) fn nodes(args: &CastArgs) -> Result<HostList, Failure> {
    match (&args.nodes, env::var("OUTBOARD_HOSTS")) {
        (Some(nodes), _) => Ok(nodes.clone()),
        (None, Ok(hosts)) if !hosts.is_empty() => Ok(hosts.parse()?),
        (None, _) => {
            Err(WrongUsage::of("no nodes: name them by --nodes n[01-16] or in OUTBOARD_HOSTS"))
        }
    }
}

/// Sources with the names that they get.
pub(super) fn named(sources: &[PathBuf]) -> Result<Vec<CastSource>, Failure> {
    for path in sources {
        fs::metadata(path).map_err(|error| {
            format!("{path:?} cannot be read: {error}; see that it is there and readable")
        })?;
    }
    let named: Vec<CastSource> =
        sources.iter().map(|path| CastSource::new(path)).collect::<Result<_, _>>()?;
    let mut names: Vec<&[u8]> = named.iter().map(|source| &*source.name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => {
            let name = String::from_utf8_lossy(pair[0]).into_owned();
            Err(WrongUsage::of(format!(
                "two of the sources are called {name:?} and would be one at the nodes: rename \
                 one, or cast them to different directories"
            )))
        }
        None => Ok(named),
    }
}

/// How to walk the sources.
pub(super) fn scan_options(args: &CastArgs) -> Result<ScanOptions, Failure> {
    let mut exclude = ExcludeRules::default();
    let mut patterns = args.exclude.iter();
    patterns
        .try_for_each(|pattern| exclude.add(pattern.as_bytes()))
        .map_err(|error| WrongUsage::of(error.to_string()))?;
    let chown = match &args.chown {
        Some(text) => Some(
            OwnerChange::parse(text, &AccountNames::of_this_machine())
                .map_err(|error| format!("--chown: {error}"))?,
        ),
        None => None,
    };
    Ok(ScanOptions { exclude, chown, xattrs: args.xattrs, ..ScanOptions::default() })
}

/// A legal length of chunks.
pub(super) fn chunk_len(ByteCount(bytes): ByteCount) -> Result<ChunkLen, Failure> {
    let len = u32::try_from(bytes).ok().filter(|_| bytes <= CHUNK_LEN_MAX);
    let len = len.and_then(|len| ChunkLen::new(len).ok());
    len.ok_or_else(|| {
        WrongUsage::of(format!("--chunk: {bytes} bytes: write a power of two from 4K to 8M"))
    })
}

/// The kind of schedule that was asked for, if any.
pub(super) fn kind(args: &CastArgs) -> Result<Option<ScheduleKind>, Failure> {
    match args.schedule {
        ScheduleWish::Auto => Ok(None),
        ScheduleWish::Kind(ScheduleKind::Switches) if args.topology.is_none() => {
            Err(WrongUsage::of("--schedule switches: name the switches by --topology FILE"))
        }
        ScheduleWish::Kind(kind) => Ok(Some(kind)),
    }
}

/// Reads a file in the format of `topology.conf`.
pub(super) fn topology(path: &Path) -> Result<Topology, Failure> {
    let named = |why: String| Failure::from(format!("{}: {why}", path.display()));
    let text = fs::read_to_string(path)
        .map_err(|error| named(format!("{error}; name Slurm's topology.conf, or one like it")))?;
    let expand = |list: &str| {
        let hosts: HostList = list.parse().ok()?;
        Some(hosts.iter().map(|host| host.name().to_owned()).collect())
    };
    Topology::parse(&text, expand).map_err(|error| named(error.to_string()))
}
