//! What a node says of its casts to `outboard status` and `outboard top`.

use super::session::CastSession;
use serde::Serialize;

/// Names of peers in a report, at most.
const PEERS_SHOWN_MAX: usize = 8;
/// Characters of a destination in a report, at most.
const DESTINATION_SHOWN_MAX: usize = 80;

/// A cast as it stands at this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CastStatus {
    /// The cast's number, in hexadecimal.
    pub cast: String,
    /// Where its names will appear.
    pub destination: String,
    /// Chunks of the cast.
    pub chunks: u32,
    /// Chunks that this node holds, verified.
    pub held: u64,
    /// Bytes that peers have written here, as far as this cast goes.
    pub bytes_in: u64,
    /// Bytes that this node has written to peers.
    pub bytes_out: u64,
    /// Chunks that it has read from others' memory, because it came late.
    pub read_chunks: u64,
    /// Chunks that it has let nodes read that came late.
    pub lent_chunks: u64,
    /// The nodes that have sent it chunks, as the source names them; the first of them.
    pub from: Vec<String>,
    /// The nodes that it has sent chunks.
    pub to: Vec<String>,
}

impl CastSession {
    pub(super) fn status(&self) -> CastStatus {
        let destination = String::from_utf8_lossy(self.destination());
        let mut status = CastStatus {
            cast: format!("{:?}", self.cast),
            destination: destination.chars().take(DESTINATION_SHOWN_MAX).collect(),
            chunks: self.shape().chunks(),
            ..CastStatus::default()
        };
        if let Some(member) = self.member_now() {
            let chunk_len = u64::from(self.shape().chunk_len().bytes());
            let bytes = |chunks: u64| chunks.saturating_mul(chunk_len);
            let traffic = member.progress();
            status.held = member.relay().held().len();
            status.bytes_in = bytes(traffic.arrived_chunks() + member.read_chunks());
            status.read_chunks = member.read_chunks();
            status.lent_chunks = self.lender.lent_chunks();
            status.bytes_out = bytes(traffic.sent_chunks());
            status.from = self.names(traffic.senders());
            status.to = self.names(traffic.receivers());
        }
        status
    }

    fn names(&self, nodes: impl Iterator<Item = u32>) -> Vec<String> {
        let name = |node: u32| match node {
            0 => "source".to_owned(),
            node => self.host(node).to_owned(),
        };
        nodes.take(PEERS_SHOWN_MAX).map(name).collect()
    }
}
