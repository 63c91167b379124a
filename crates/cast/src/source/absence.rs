//! Whether the source itself was away: stopped, or its machine asleep; by when it looked last. A
//! value that is given the time.

use crate::pause::excuse;
use crate::protocol::SOURCE_SILENCE_MAX;
use std::time::{Duration, Instant};

/// Connections that end within this time after it was away have ended for that.
const TO_BLAME_FOR: Duration = Duration::from_secs(2);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct SourceAbsence {
    /// When it was back, and after how long.
    latest: Option<(Instant, Duration)>,
}

impl SourceAbsence {
    /// The source looks at its nodes again after `away`, `late` of which is a pause.
    pub(super) fn note(&mut self, now: Instant, away: Duration, late: Duration) {
        self.latest.iter_mut().for_each(|(back, _)| excuse(back, now, late));
        if away >= SOURCE_SILENCE_MAX {
            tracing::warn!(seconds = away.as_secs_f32(), "this source was stopped, or asleep");
            self.latest = Some((now, away));
        }
    }

    /// Why a connection has ended now; the source looked last at another time.
    pub(super) fn why_lost(&self, now: Instant, looked: Instant) -> String {
        let since = now.saturating_duration_since(looked);
        let is_recent = |(back, _): &(Instant, Duration)| now <= *back + TO_BLAME_FOR;
        let known = self.latest.filter(is_recent).map(|(_, away)| away);
        match Some(since).filter(|since| *since >= SOURCE_SILENCE_MAX).or(known) {
            None => "its connection has ended: its node or machine may have died".into(),
            Some(away) => format!(
                "this source itself was stopped, or its machine slept, for {:.1} s, and nodes give \
                 up a source after {} s: cast again, and only what is missing is sent",
                away.as_secs_f32(),
                SOURCE_SILENCE_MAX.as_secs()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_was_away_blames_itself_for_connections_that_have_ended_meanwhile() {
        let (began, s) = (Instant::now(), Duration::from_secs);
        let mut absence = SourceAbsence::default();
        let is_own =
            |absence: &SourceAbsence, now, looked| absence.why_lost(now, looked).contains("itself");
        absence.note(began, s(1), s(1));
        assert!(!is_own(&absence, began + s(1), began), "a busy machine");
        // The end of a connection is seen before the nodes are looked at, or after that.
        assert!(is_own(&absence, began + s(8), began));
        absence.note(began + s(8), s(8), s(8));
        assert!(is_own(&absence, began + s(9), began + s(9)));
        assert!(absence.why_lost(began + s(9), began + s(9)).contains("8.0 s"));
        // A further pause leaves no less time for them to end.
        absence.note(began + s(12), s(4), s(4));
        assert!(is_own(&absence, began + s(13), began + s(13)));
        assert!(!is_own(&absence, began + s(15), began + s(15)), "that is another matter");
    }
}
