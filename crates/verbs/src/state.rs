//! The states of a queue pair, as a table (RDMA Protocol Verbs Specification 1.0, §6.2).
//!
//! ```text
//!  Idle ─Connect─▶ Connecting ─Attach─▶ Rts ─Leave─▶ Closing ─Gone─▶ Error
//!    └───────Attach───────────────────▶  │                             ▲
//!                                        ├─Terminate─▶ Terminate ─Gone─┤
//!                                        └─Gone────────────────────────┘
//! ```

/// Where a queue pair is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// Made; receives may be posted.
    Idle,
    /// MPA start-up is under way.
    Connecting,
    /// Ready to send and receive.
    Rts,
    /// Either side is leaving in order; work requests have been flushed.
    Closing,
    /// Either side ended the stream with a Terminate; work requests have been flushed.
    Terminate,
    /// Over. Everything posted is flushed at once.
    Error,
}

/// What moves a queue pair from state to state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// A connection attempt begins.
    Connect,
    /// A connection attempt failed.
    ConnectFailed,
    /// A connection is there.
    Attach,
    /// Either side leaves in order.
    Leave,
    /// Either side sent a Terminate.
    Terminate,
    /// The connection is gone.
    Gone,
}

use QpEvent as E;
use QpState as S;

/// Every legal transition. Besides these, a reset leads to Idle from anywhere.
pub const TRANSITIONS: &[(QpState, QpEvent, QpState)] = &[
    (S::Idle, E::Connect, S::Connecting),
    (S::Idle, E::Attach, S::Rts),
    (S::Idle, E::Gone, S::Error),
    (S::Connecting, E::ConnectFailed, S::Idle),
    (S::Connecting, E::Attach, S::Rts),
    (S::Connecting, E::Gone, S::Error),
    (S::Rts, E::Leave, S::Closing),
    (S::Rts, E::Terminate, S::Terminate),
    (S::Rts, E::Gone, S::Error),
    (S::Closing, E::Terminate, S::Terminate),
    (S::Closing, E::Gone, S::Error),
    (S::Terminate, E::Gone, S::Error),
];

impl QpState {
    /// The state after `event`, if the table has such a row.
    pub fn after(self, event: QpEvent) -> Option<Self> {
        TRANSITIONS.iter().find(|(from, on, _)| *from == self && *on == event).map(|row| row.2)
    }

    /// The state's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Rts => "ready to send",
            Self::Closing => "closing",
            Self::Terminate => "terminated",
            Self::Error => "in error",
        }
    }

    /// True once everything posted is flushed.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Closing | Self::Terminate | Self::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transition() {
        let lines: Vec<String> =
            TRANSITIONS.iter().map(|(from, on, to)| format!("{from:?} {on:?} {to:?}")).collect();
        let expected = "Idle Connect Connecting|Idle Attach Rts|Idle Gone Error|\
            Connecting ConnectFailed Idle|Connecting Attach Rts|Connecting Gone Error|\
            Rts Leave Closing|Rts Terminate Terminate|Rts Gone Error|\
            Closing Terminate Terminate|Closing Gone Error|Terminate Gone Error";
        assert_eq!(lines.join("|"), expected);
    }

    #[test]
    fn every_state_but_the_last_can_end() {
        for state in [S::Idle, S::Connecting, S::Rts, S::Closing, S::Terminate] {
            assert_eq!(state.after(E::Gone), Some(S::Error));
        }
        assert_eq!(S::Error.after(E::Attach), None);
    }
}
