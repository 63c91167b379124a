//! What becomes of a request, as its client is told.

use super::active::{ActiveHub, ActiveService};
use super::execute::Asker;
use crate::protocol::{ActiveAnswer, AnswerOutcome, ResultPlace};
use outboard_cluster::service::ServiceError;
use outboard_offcode::Outcome;

/// Bytes of a text that a module or an engine says, at most.
const TEXT_MAX: usize = 2048;

impl ActiveService {
    /// Answers a request; a result goes into the client's memory before.
    pub(super) fn answer_outcome(
        &mut self,
        hub: &mut ActiveHub,
        asker: Asker,
        outcome: Outcome,
    ) -> Result<(), ServiceError> {
        let Asker { peer, number, place, region } = asker;
        match outcome {
            Outcome::NoCode(_) => self.counters.no_code += 1,
            Outcome::Busy(_) => self.counters.busy += 1,
            Outcome::Unknown => self.counters.unknown += 1,
            _ => {}
        }
        let seq = match outcome {
            Outcome::Done { seq, .. } => seq,
            _ => self.regions[region].region.seq(),
        };
        if let (Outcome::Done { result, .. }, ResultPlace::Memory(exposed)) = (&outcome, place) {
            let len = result.len() as u64;
            let Some(to) = exposed.range(0, len) else {
                let outcome = AnswerOutcome::Refused("the result does not fit into its memory");
                return self.answer(hub, peer, &ActiveAnswer::Executed { number, seq, outcome });
            };
            let Outcome::Done { result, .. } = outcome else { return Ok(()) };
            if len > 0 && self.sessions.contains_key(&peer) {
                hub.write(peer, to, result)?;
            }
            let outcome = AnswerOutcome::Written(len);
            return self.answer(hub, peer, &ActiveAnswer::Executed { number, seq, outcome });
        }
        let answer = ActiveAnswer::Executed { number, seq, outcome: borrowed(&outcome) };
        let answered = self.answer(hub, peer, &answer);
        self.executor.recycle(outcome);
        answered
    }
}

fn borrowed(outcome: &Outcome) -> AnswerOutcome<'_> {
    match outcome {
        Outcome::Done { result, .. } => AnswerOutcome::Done(result),
        Outcome::Failed { code, text } => AnswerOutcome::Failed { code: *code, text: cut(text) },
        Outcome::NoCode(_) => AnswerOutcome::NoCode,
        Outcome::NoEntry(entry) => AnswerOutcome::NoEntry(cut(entry)),
        Outcome::Trap(why) => AnswerOutcome::Trap(cut(why)),
        Outcome::Timeout(why) => AnswerOutcome::Timeout(cut(why)),
        Outcome::Killed => AnswerOutcome::Killed,
        Outcome::Conflict => AnswerOutcome::Conflict,
        Outcome::Busy(why) => AnswerOutcome::Busy(cut(why)),
        Outcome::Refused(why) => AnswerOutcome::Refused(cut(why)),
        Outcome::Unknown => AnswerOutcome::Unknown,
        Outcome::Machine(why) => AnswerOutcome::Machine(cut(why)),
    }
}

/// A text, or its beginning.
pub(super) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_MAX)]
}
