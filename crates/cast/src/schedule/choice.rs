//! Which kind of schedule a cast gets whose caller leaves that open.

use super::{PlanError, PlanRequest, ScheduleKind};

/// What a relay needs for a connection to another one, in seconds: a process takes twice that for
/// the dial, the handshake and the first message, but makes several at a time.
const RELAY_CONNECT_S: f64 = 1e-3;
/// How long it takes until relays have connections at all, in seconds: what the source itself has
/// sent to all by then needs none.
const RELAYS_READY_S: f64 = 5e-3;

/// Another kind is taken instead of the binomial pipeline if it is predicted to take less than this
/// fraction of its time; nearer than that the model decides nothing.
const CLEARLY_LESS: f64 = 0.98;

impl ScheduleKind {
    /// The kind for a cast whose source is connected with every node already, and whose relays are
    /// not connected with each other yet.
    ///
    /// Where nodes are below several switches, [`Switches`](Self::Switches): the model knows
    /// nothing of slow links, and a caller that names switches has some. Else what the model says
    /// is fastest when connections between relays are counted: the star for files that are sent to
    /// all in less time than relays need to connect, the chain where there are many more chunks
    /// than nodes, because each of its nodes has one sender and they need not keep step
    /// ([`turns_stretch`](super::LinkModel::turns_stretch)), and mostly the binomial pipeline for
    /// others. The request's [`connect_s`](super::LinkModel::connect_s) is not used.
    ///
    /// # Errors
    /// As for [`PlanRequest::plan`].
    pub fn for_cast(request: &PlanRequest) -> Result<Self, PlanError> {
        let mut cold = request.clone();
        cold.link.connect_s = RELAY_CONNECT_S;
        let mut connected = request.clone();
        connected.link.connect_s = 0.0;
        if request.has_switches() {
            return Ok(Self::Switches);
        }
        let seconds = |kind| -> Result<f64, PlanError> {
            match kind {
                Self::Star => Ok(connected.plan(kind)?.predicted_s),
                kind => Ok(RELAYS_READY_S + cold.plan(kind)?.predicted_s),
            }
        };
        let mut best = (Self::BinomialPipeline, seconds(Self::BinomialPipeline)?);
        for kind in [Self::Star, Self::TwoTree, Self::Chain] {
            let predicted_s = seconds(kind)?;
            if predicted_s < best.1 * CLEARLY_LESS {
                best = (kind, predicted_s);
            }
        }
        Ok(best.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::LinkModel;
    use crate::sign::ChunkLen;
    use std::num::NonZeroU32;

    fn choose(nodes: u32, bytes: u64, switches: Vec<u32>) -> ScheduleKind {
        let chunk_bytes = ChunkLen::for_cast(bytes).bytes();
        let chunk_bytes = NonZeroU32::new(chunk_bytes).expect("not 0");
        let link = LinkModel::gigabits(1.0);
        let request = PlanRequest { nodes, bytes, chunk_bytes, link, switches };
        ScheduleKind::for_cast(&request).expect("a choice")
    }

    #[test]
    fn the_number_of_bytes_and_nodes_decides() {
        assert_eq!(choose(65, 10_000, vec![]), ScheduleKind::Star);
        assert_eq!(choose(2, 1 << 40, vec![]), ScheduleKind::BinomialPipeline);
        assert_eq!(choose(65, 1 << 20, vec![]), ScheduleKind::BinomialPipeline);
        assert_eq!(choose(9, 100_000_000, vec![]), ScheduleKind::Chain);
        assert_eq!(choose(65, 100_000_000, vec![]), ScheduleKind::Chain);
        assert_eq!(choose(2_000, 100_000_000, vec![]), ScheduleKind::BinomialPipeline);
    }

    #[test]
    fn named_switches_are_used() {
        assert_eq!(choose(9, 10_000, vec![4, 5]), ScheduleKind::Switches);
        assert_eq!(choose(65, 10_000, vec![65]), ScheduleKind::Star);
    }
}
