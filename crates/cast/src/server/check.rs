//! Whether a cast that a source begins is one that can be done here.

use super::at_once;
use super::source_fault::SourceFault;
use crate::protocol::{CastBegin, NODES_MAX};
use crate::sign::ChunkHashes;
use outboard_cluster::hosts::HostList;
use std::sync::Arc;

/// Bytes in a chunk, at most: a window has some of them.
pub(super) const CHUNK_LEN_MAX: u32 = 8 << 20;
/// Bytes in a node's name, at most.
const NAME_LEN_MAX: usize = 256;

/// The header's hashes, if all of it can be done here.
pub(super) fn check(begin: &CastBegin) -> Result<Arc<ChunkHashes>, SourceFault> {
    let (you, nodes) = (begin.you, begin.nodes.len());
    // A cast that comes whole in its first message names no nodes: it is not passed on.
    let (named, nodes_max) = match begin.only {
        Some(_) => (NODES_MAX, 0),
        None => (nodes, NODES_MAX),
    };
    if you == 0 || you as usize >= named || nodes > nodes_max {
        return Err(SourceFault::Nodes { you, nodes });
    }
    let is_host = |name: &&String| {
        let one = |hosts: HostList| hosts.hosts().len() == 1;
        name.len() <= NAME_LEN_MAX && name.parse::<HostList>().is_ok_and(one)
    };
    if let Some(name) = begin.nodes.iter().skip(1).find(|name| !is_host(name)) {
        return Err(SourceFault::Name { name: name.chars().take(NAME_LEN_MAX).collect() });
    }
    let hashes = ChunkHashes::new(&begin.header, begin.key)?;
    let len = hashes.header().shape.chunk_len().bytes();
    if len > CHUNK_LEN_MAX {
        return Err(SourceFault::ChunkLen { len });
    }
    if let Some(only) = &begin.only {
        at_once::check(&hashes, only)?;
    }
    Ok(Arc::new(hashes))
}
