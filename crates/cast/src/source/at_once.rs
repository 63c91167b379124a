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

/// Bytes of a stream that travels in the first message, at most: with all else in it, that fits
/// into a hub's messages.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign::ChunkLen;
    use crate::source::{CastLimits, DialNode};
    use crate::tree::{CastSource, scan};
    use std::num::NonZeroU64;
    use std::path::Path;
    use std::sync::Arc;

    fn request(file: &Path) -> CastRequest {
        let sources = vec![CastSource::new(file).expect("a name")];
        let nodes = "n1,n2".parse().expect("hosts");
        let dial: DialNode = Arc::new(|_, _| Err("connection refused".to_owned()));
        CastRequest::new(sources, "/var/cast".into(), nodes, dial)
    }

    fn is_sent_at_once(request: &CastRequest, kind: ScheduleKind) -> bool {
        let tree = scan(request.sources.clone(), &request.scan).expect("a tree");
        let (manifest, len) = (tree.manifest().bytes().to_vec(), tree.manifest().stream_len());
        let chunk_len = request.chunk_len.unwrap_or_else(|| ChunkLen::for_cast(len));
        let header = CastHeader::new(&manifest, len, chunk_len).expect("legal");
        let reader = SourceReader::new(tree, chunk_len, 1).expect("a reader");
        let key = CastKey::generate().expect("a key");
        let only = only_chunk(request, kind, &reader, (&header, &key)).expect("read");
        if let Some(only) = &only {
            assert_eq!(only.bytes.len() as u64, len);
        }
        only.is_some()
    }

    #[test]
    fn a_short_stream_goes_at_once_unless_more_is_asked_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        std::fs::write(&file, vec![7; 32_000]).expect("written");
        let plain = || request(&file);
        assert!(is_sent_at_once(&plain(), ScheduleKind::Star));
        assert!(!is_sent_at_once(&plain(), ScheduleKind::Chain));
        let limits = |min_nodes, rate| CastLimits { min_nodes, rate: NonZeroU64::new(rate) };
        let with = |limits| CastRequest { limits, ..plain() };
        assert!(is_sent_at_once(&with(limits(Some(1), 0)), ScheduleKind::Star));
        let short = ChunkLen::new(16 << 10).expect("legal");
        for asked in [
            with(limits(Some(2), 0)),
            with(limits(None, 1)),
            CastRequest { flush: FlushMode::BeforePublishing, ..plain() },
            CastRequest { buffers: SourceBuffers::MmapAll, ..plain() },
            CastRequest { chunk_len: Some(short), ..plain() },
        ] {
            assert!(!is_sent_at_once(&asked, ScheduleKind::Star), "{:?}", asked.limits);
        }
        std::fs::write(&file, vec![7; 32 << 10]).expect("written");
        assert!(!is_sent_at_once(&plain(), ScheduleKind::Star), "with its manifest too long");
    }
}
