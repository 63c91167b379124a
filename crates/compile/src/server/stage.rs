//! The stages of a job on a server, as a table. This file starts, stops and sends nothing:
//! `session` says what happens, and removes a job that is over.
//!
//! ```text
//! Waiting:     Supplied → Ready, Cancelled → Over
//! Reading:     Supplied → Ready, Cancelled → Abandoned
//! Abandoned:   Supplied → Over
//! Ready:       Unidentified → Identifying, Lacking → Equipping, Crowded → Held,
//!              Unprepared → SettingUp, Started → InSandbox, Cancelled → Over, Refused → Over
//! Identifying: Unidentified → Identifying, Lacking → Equipping, Crowded → Held,
//!              Unprepared → SettingUp, Started → InSandbox, Cancelled → Over, Refused → Over
//! Equipping:   Unidentified → Identifying, Lacking → Equipping, Crowded → Held,
//!              Unprepared → SettingUp, Started → InSandbox, Cancelled → Over, Refused → Over
//! Held:        Unidentified → Identifying, Lacking → Equipping, Crowded → Held,
//!              Unprepared → SettingUp, Started → InSandbox, Cancelled → Over, Refused → Over
//! SettingUp:   Unidentified → Identifying, Lacking → Equipping, Crowded → Held,
//!              Unprepared → SettingUp, Started → InSandbox, Cancelled → Over, Refused → Over
//! InSandbox:   Ended → Sending, Cancelled → Stopping, Refused → Over
//! Stopping:    Ended → Over
//! Sending:     AllSent → Sent, Cancelled → Over, Refused → Over
//! Sent:        Taken → Over, Cancelled → Over
//! ```

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// For the metadata log.
    Waiting,
    /// For its source.
    Reading,
    /// Cancelled, and its source is still being read: the client must not free it yet.
    Abandoned,
    /// It has what it needs of the client.
    Ready,
    /// For compilers that are being identified, of which its may be one.
    Identifying,
    /// For its compiler, which is being fetched.
    Equipping,
    /// Waits for a sandbox: that it is opened, or for the end of jobs whose sandbox shows other
    /// compilers.
    Held,
    /// For its slot's sandbox, which sets itself up.
    SettingUp,
    /// Runs in its slot sandbox.
    InSandbox,
    /// Cancelled, and its end is awaited.
    Stopping,
    /// Its results are being sent, part by part.
    Sending,
    /// The client has all results, and has not acknowledged them yet.
    Sent,
    /// Its slot is free.
    Over,
}

/// What moves a job from stage to stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StageEvent {
    /// The metadata log has been read far enough, or the source.
    Supplied,
    /// Its compiler may be one of those that are being identified.
    Unidentified,
    /// Its compiler has to be fetched.
    Lacking,
    /// The client has no sandbox yet, or the present one is in use and shows other compilers.
    Crowded,
    /// Its slot's sandbox has to set itself up.
    Unprepared,
    /// It is handed to its sandbox.
    Started,
    /// Its sandbox says that it has ended.
    Ended,
    /// The last part of its results is on its way.
    AllSent,
    /// The client has taken all results.
    Taken,
    /// The client does not want it any more.
    Cancelled,
    /// It cannot run, or its results are of no use.
    Refused,
}

use Stage as S;
use StageEvent as E;

/// Stages from which a job may start.
const STARTABLE: &[Stage] = &[S::Ready, S::Identifying, S::Equipping, S::Held, S::SettingUp];

/// Every legal transition.
const TRANSITIONS: &[(&[Stage], StageEvent, Stage)] = &[
    (&[S::Waiting, S::Reading], E::Supplied, S::Ready),
    (&[S::Abandoned], E::Supplied, S::Over),
    (STARTABLE, E::Unidentified, S::Identifying),
    (STARTABLE, E::Lacking, S::Equipping),
    (STARTABLE, E::Crowded, S::Held),
    (STARTABLE, E::Unprepared, S::SettingUp),
    (STARTABLE, E::Started, S::InSandbox),
    (&[S::InSandbox], E::Ended, S::Sending),
    (&[S::Stopping], E::Ended, S::Over),
    (&[S::Sending], E::AllSent, S::Sent),
    (&[S::Sent], E::Taken, S::Over),
    (&[S::Waiting, S::Sending, S::Sent], E::Cancelled, S::Over),
    (STARTABLE, E::Cancelled, S::Over),
    (&[S::Reading], E::Cancelled, S::Abandoned),
    (&[S::InSandbox], E::Cancelled, S::Stopping),
    (STARTABLE, E::Refused, S::Over),
    (&[S::InSandbox, S::Sending], E::Refused, S::Over),
];

impl Stage {
    /// The stage after `event`; `None` where the table has no such row.
    pub(super) fn after(self, event: StageEvent) -> Option<Self> {
        let row = TRANSITIONS.iter().find(|(from, on, _)| from.contains(&self) && *on == event);
        row.map(|(.., to)| *to)
    }

    /// Whether the job may start.
    pub(super) fn may_start(self) -> bool {
        STARTABLE.contains(&self)
    }

    /// Whether a process of the job may be running.
    pub(super) fn is_in_sandbox(self) -> bool {
        matches!(self, Self::InSandbox | Self::Stopping)
    }

    /// Whether the job uses its client's sandbox, which must not be replaced meanwhile.
    pub(super) fn uses_sandbox(self) -> bool {
        self == Self::SettingUp || self.is_in_sandbox()
    }

    /// Whether the job waits for the client.
    pub(super) fn waits_for_client(self) -> bool {
        use Stage::{Abandoned, Reading, Sending, Sent, Waiting};
        matches!(self, Waiting | Reading | Abandoned | Sending | Sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: [Stage; 13] = [
        S::Waiting,
        S::Reading,
        S::Abandoned,
        S::Ready,
        S::Identifying,
        S::Equipping,
        S::Held,
        S::SettingUp,
        S::InSandbox,
        S::Stopping,
        S::Sending,
        S::Sent,
        S::Over,
    ];
    const EVENTS: [StageEvent; 11] = [
        E::Supplied,
        E::Unidentified,
        E::Lacking,
        E::Crowded,
        E::Unprepared,
        E::Started,
        E::Ended,
        E::AllSent,
        E::Taken,
        E::Cancelled,
        E::Refused,
    ];

    /// The documentation above, without its line breaks.
    fn documented() -> String {
        let text = include_str!("stage.rs");
        let table = text.split("//! ```").nth(1).expect("a table").trim_start_matches("text");
        let words =
            table.lines().flat_map(|line| line.trim_start_matches("//!").split_whitespace());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_table_is_what_its_documentation_says() {
        let rows = |stage: Stage| {
            let row = |event: StageEvent| Some(format!("{event:?} → {:?}", stage.after(event)?));
            let rows: Vec<_> = EVENTS.into_iter().filter_map(row).collect();
            (!rows.is_empty()).then(|| format!("{stage:?}: {}", rows.join(", ")))
        };
        let all: Vec<_> = STAGES.into_iter().filter_map(rows).collect();
        assert_eq!(all.join(" "), documented());
    }

    #[test]
    fn each_row_is_there_once() {
        for (stage, event) in STAGES.into_iter().flat_map(|at| EVENTS.map(|on| (at, on))) {
            let rows =
                TRANSITIONS.iter().filter(|(from, on, _)| from.contains(&stage) && *on == event);
            assert!(rows.count() <= 1, "{stage:?} {event:?}");
        }
    }

    /// A job that is cancelled holds its slot only until what it uses is free.
    #[test]
    fn a_cancelled_job_ends_at_once_or_with_what_it_waits_for() {
        for stage in STAGES.into_iter().filter(|stage| *stage != S::Over) {
            let Some(after) = stage.after(E::Cancelled) else {
                assert!(matches!(stage, S::Abandoned | S::Stopping), "{stage:?}");
                continue;
            };
            let ends = [Some(after), after.after(E::Supplied), after.after(E::Ended)];
            assert!(ends.contains(&Some(S::Over)), "{stage:?}");
        }
    }
}
