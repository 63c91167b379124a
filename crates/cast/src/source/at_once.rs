//! A cast of one short chunk that goes from the source to each node: the chunk and its signed run
//! travel in the first message, and the node's only answer is that it has published.
//!
//! Whatever needs more than that goes by chunks, as longer casts do: nodes that relay, a limit of
//! the rate, nodes that are counted before anything begins, mapped files, and flushing, for which a
//! node may take long after it was ready.

use super::buffers::SourceBuffers;
use super::{CastError, CastRequest};
use crate::protocol::OnlyChunk;
use crate::receive::FlushMode;
use crate::schedule::ScheduleKind;
use crate::sign::{CastHeader, CastKey, ChunkHash, RunSigner};
use crate::tree::SourceReader;

/// Bytes of a stream that travels in the first message, at most: with all else in it, that fits into
/// a hub's messages.
const STREAM_LEN_MAX: u64 = 32 << 10;

/// All there is to send, if it is sent at once.
pub(super) fn only_chunk(
    request: &CastRequest,
    kind: ScheduleKind,
    reader: &SourceReader,
    (header, key): (&CastHeader, &CastKey),
) -> Result<Option<OnlyChunk>, CastError> {
    let is_short = header.shape.chunks() == 1 && header.shape.stream_len() <= STREAM_LEN_MAX;
    let is_plain = kind == ScheduleKind::Star
        && request.limits.rate.is_none()
        && request.limits.min_nodes.is_none_or(|min| min <= 1)
        && request.buffers == SourceBuffers::Window
        && request.flush == FlushMode::Later;
    if !(is_short && is_plain) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    reader.read_chunk(0, &mut bytes)?;
    reader.check_unchanged()?;
    let run = RunSigner::new(key, header).push(ChunkHash::of(&bytes))?;
    Ok(run.map(|run| OnlyChunk { run, bytes }))
}
