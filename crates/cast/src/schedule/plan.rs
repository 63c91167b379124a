//! What a cast will take, before it begins: steps, connections and seconds by the step model of
//! [`LinkModel`], the bound, and from both the choice of a kind and of the chunks' size.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Serialize, Serializer};

use super::{LinkModel, ScheduleKind, overlay};

/// The bound counts chunks of this many bytes, whatever ours are.
const BOUND_CHUNK_BYTES: u64 = 1 << 20;

/// The range and the grain of proposed chunks, in bytes: smaller ones cost more per byte (hashes,
/// completions) than the model says, larger ones fill a relay's window with too few.
const CHUNK_BYTES_MIN: u64 = 64 << 10;
const CHUNK_BYTES_MAX: u64 = 16 << 20;
const CHUNK_BYTES_GRAIN: u64 = 4 << 10;

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Chunk numbers have 32 bits.
    #[error(
        "{bytes} bytes are more than 2^32 − 1 chunks of {chunk_bytes} bytes: use chunks of at \
         least {least} bytes"
    )]
    TooManyChunks {
        /// Bytes to be cast.
        bytes: u64,
        /// Bytes in a chunk.
        chunk_bytes: u32,
        /// The smallest chunk that would do.
        least: u64,
    },
    /// There is no source.
    #[error("a plan needs 1 node at least, the source")]
    NoNode,
}

/// What is to be cast, and over what.
#[derive(Debug, Clone)]
pub struct PlanRequest {
    /// Nodes, the source among them.
    pub nodes: u32,
    /// Bytes that each receiver gets.
    pub bytes: u64,
    /// c: bytes in a chunk.
    pub chunk_bytes: NonZeroU32,
    /// Every node's link.
    pub link: LinkModel,
    /// As in [`Situation`](super::Situation::switches); empty if all nodes are alike.
    pub switches: Vec<u32>,
}

/// What one kind of schedule makes of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CastPlan {
    /// The kind.
    #[serde(serialize_with = "as_name")]
    pub kind: ScheduleKind,
    /// Nodes, the source among them.
    pub nodes: u32,
    /// Bytes that each receiver gets.
    pub bytes: u64,
    /// Bytes in a chunk.
    pub chunk_bytes: u32,
    /// m: the number of chunks.
    pub chunks: u32,
    /// How many transfers a chunk needs to the farthest node.
    pub depth: u32,
    /// To how many nodes one node sends at most.
    pub degree: u32,
    /// With how many nodes one node is connected at most.
    pub connections: u32,
    /// Steps of lock-step execution.
    pub steps: u64,
    /// The chunk size that the model finds best for this kind, in bytes.
    pub best_chunk_bytes: u64,
    /// How long it will take, in seconds.
    pub predicted_s: f64,
    /// The least that any schedule could take with chunks of 1 MiB and no overhead, in seconds:
    /// S/B·(m − 1 + ⌈log₂ n⌉)/m.
    pub bound_s: f64,
    /// `predicted_s` to `bound_s`; 0 if nothing is sent.
    pub ratio: f64,
}

fn as_name<S: Serializer>(kind: &ScheduleKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(kind)
}

impl PlanRequest {
    /// What `kind` makes of it.
    ///
    /// # Errors
    /// If there is no node, or the chunks are too many to be numbered.
    pub fn plan(&self, kind: ScheduleKind) -> Result<CastPlan, PlanError> {
        let chunks = self.chunks()?;
        let overlay = overlay(kind, self.nodes, chunks, &self.switch_sizes());
        let peers = (0..self.nodes).map(|rank| (overlay.receivers(rank), overlay.senders(rank)));
        let counts = peers.map(|(to, from)| {
            let both = to.iter().filter(|peer| from.binary_search(peer).is_ok()).count();
            (to.len(), to.len() + from.len() - both)
        });
        let (degree, connections) =
            counts.fold((0_usize, 0_usize), |(d, c), (to, all)| (d.max(to), c.max(all)));
        let [degree, connections] = [degree, connections].map(saturating);
        let (depth, steps) = (overlay.hops(), overlay.steps());
        let stretch =
            if kind.has_turns() && self.nodes > 2 { self.link.turns_stretch } else { 1.0 };
        let predicted_s = f64::from(connections) * self.link.connect_s
            + approximate(steps) * stretch * self.link.step_s(self.mean_chunk_bytes(chunks))
            + f64::from(depth) * self.link.hop_latency_s;
        let bound_s = self.bound_s();
        Ok(CastPlan {
            kind,
            nodes: self.nodes,
            bytes: self.bytes,
            chunk_bytes: self.chunk_bytes.get(),
            chunks,
            depth,
            degree,
            connections,
            steps,
            best_chunk_bytes: self.best_chunk_bytes(kind),
            predicted_s,
            bound_s,
            ratio: if bound_s > 0.0 { predicted_s / bound_s } else { 0.0 },
        })
    }

    /// For each node, the nodes to which it sends, ascending; node 0 is the source.
    ///
    /// # Errors
    /// As for [`plan`](Self::plan).
    pub fn receivers(&self, kind: ScheduleKind) -> Result<Vec<Vec<u32>>, PlanError> {
        let overlay = overlay(kind, self.nodes, self.chunks()?, &self.switch_sizes());
        Ok((0..self.nodes).map(|rank| overlay.receivers(rank)).collect())
    }

    /// The plans of all kinds that are worth comparing, the binomial pipeline first.
    ///
    /// # Errors
    /// As for [`plan`](Self::plan).
    pub fn plans(&self) -> Result<Vec<CastPlan>, PlanError> {
        let mut kinds = vec![
            ScheduleKind::BinomialPipeline,
            ScheduleKind::TwoTree,
            ScheduleKind::Chain,
            ScheduleKind::Star,
        ];
        if self.has_switches() {
            kinds.push(ScheduleKind::Switches);
        }
        kinds.into_iter().map(|kind| self.plan(kind)).collect()
    }

    /// The chunk size, in bytes, at which the model finds `kind` fastest: where T = (a·m + b) ·
    /// (S/(m·B) + o) is least, at m* = √(b·S/(a·B·o)). A multiple of 4 KiB between 64 KiB and
    /// 16 MiB.
    #[must_use]
    pub fn best_chunk_bytes(&self, kind: ScheduleKind) -> u64 {
        let [few, many] = [64, 128].map(|chunks| {
            approximate(overlay(kind, self.nodes, chunks, &self.switch_sizes()).steps())
        });
        let per_chunk = (many - few) / 64.0;
        let fill = (few - 64.0 * per_chunk).max(0.0);
        let costs = per_chunk * self.link.bytes_per_second * self.link.chunk_overhead_s;
        let chunk = (approximate(self.bytes) * costs / fill).sqrt();
        if !chunk.is_finite() {
            return CHUNK_BYTES_MAX;
        }
        let grains = (chunk.min(1e12) / approximate(CHUNK_BYTES_GRAIN)).ceil();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1e12")]
        let bytes = grains as u64 * CHUNK_BYTES_GRAIN;
        bytes.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)
    }

    /// The least time for chunks of 1 MiB, in seconds.
    #[must_use]
    pub fn bound_s(&self) -> f64 {
        self.bound_of(BOUND_CHUNK_BYTES)
    }

    /// The least time for chunks of the request's length, in seconds: no schedule takes less.
    #[must_use]
    pub fn bound_of_chunks_s(&self) -> f64 {
        self.bound_of(u64::from(self.chunk_bytes.get()))
    }

    fn bound_of(&self, chunk_bytes: u64) -> f64 {
        let chunks = self.bytes.div_ceil(chunk_bytes);
        if chunks == 0 || self.nodes < 2 {
            return 0.0;
        }
        let doublings = u64::from(self.nodes.next_power_of_two().ilog2());
        let steps = approximate(chunks - 1 + doublings) / approximate(chunks);
        approximate(self.bytes) / self.link.bytes_per_second * steps
    }

    fn chunks(&self) -> Result<u32, PlanError> {
        if self.nodes == 0 {
            return Err(PlanError::NoNode);
        }
        let (bytes, chunk_bytes) = (self.bytes, self.chunk_bytes.get());
        let chunks = bytes.div_ceil(u64::from(chunk_bytes));
        let least = bytes.div_ceil(u64::from(u32::MAX));
        u32::try_from(chunks).map_err(|_| PlanError::TooManyChunks { bytes, chunk_bytes, least })
    }

    fn mean_chunk_bytes(&self, chunks: u32) -> f64 {
        if chunks == 0 { 0.0 } else { approximate(self.bytes) / f64::from(chunks) }
    }

    pub(super) fn has_switches(&self) -> bool {
        self.switch_sizes().len() > 1
    }

    /// The switches' sizes, so that they sum up to the nodes.
    fn switch_sizes(&self) -> Vec<u32> {
        let mut left = self.nodes;
        let sizes = self.switches.iter().chain([&u32::MAX]).map(|size| {
            let here = left.min(*size);
            left -= here;
            here
        });
        sizes.filter(|size| *size > 0).collect()
    }
}

impl fmt::Display for CastPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} bytes to {} receivers in {} chunks of {} bytes (the model's best: {})",
            self.kind,
            self.bytes,
            self.nodes - 1,
            self.chunks,
            self.chunk_bytes,
            self.best_chunk_bytes,
        )?;
        writeln!(
            f,
            "  depth {}, a node sends to {} and is connected with {} at most",
            self.depth, self.degree, self.connections
        )?;
        write!(
            f,
            "  {} steps, {:.4} s predicted; the bound is {:.4} s (ratio {:.3})",
            self.steps, self.predicted_s, self.bound_s, self.ratio
        )
    }
}

fn saturating(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "seconds of a model need no 53 bits")]
fn approximate(count: u64) -> f64 {
    count as f64
}
