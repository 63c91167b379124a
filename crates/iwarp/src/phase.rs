//! The life of a connection after MPA start-up, as a table (RFC 5044 §7.1.2 and §7.2,
//! RFC 5040 §6.2). It knows no bytes and no timers; [`crate::Connection`] feeds it events.
//!
//! ```text
//!            FirstFpdu, GraceOver             Drained              PeerFin, Expired
//!   Held ───────────────────────▶ Open ─▶ Closing ──────▶ HalfClosed ──────────▶ Closed
//!    │  Disconnect, PeerTerminate  │ Fault    │ PeerFin       ▲                    ▲
//!    └─────────────────────────────┤ PeerFin  ▼               │ Drained            │ Drained
//!                                  ├───────▶ Last ────────────┼────────────────────┘
//!                                  │          ▲ PeerFin       │
//!                                  └─▶ Terminating ───────────┘
//!   from every phase that is over: Expired ─▶ Closed; from anywhere: Lost ─▶ Closed
//! ```

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Responder that may not transmit yet (RFC 5044 §7.1.2 rule 4).
    Held,
    /// Full operation both ways.
    Open,
    /// We leave: what TCP has half of is sent, then our FIN.
    Closing,
    /// The peer's FIN is here: what TCP has half of is sent, then our FIN.
    Last,
    /// This side's Terminate is on its way.
    Terminating,
    /// Our FIN is sent, the peer's is awaited.
    HalfClosed,
    /// Nothing more happens.
    Closed,
}

/// What moves a connection from phase to phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The first valid FPDU arrived.
    FirstFpdu,
    /// The peer promised no first message and stayed silent long enough.
    GraceOver,
    /// The local user leaves.
    Disconnect,
    /// The peer's FIN arrived.
    PeerFin,
    /// The peer broke a rule; a Terminate is due.
    Fault,
    /// The peer's Terminate arrived.
    PeerTerminate,
    /// Everything that we had to say is in TCP's hands.
    Drained,
    /// The peer's FIN did not come in time.
    Expired,
    /// TCP lost the connection.
    Lost,
}

use Move as M;
use Phase as P;

/// Every legal transition. What is not listed leaves the phase as it is.
pub const TRANSITIONS: &[(Phase, Move, Phase)] = &[
    (P::Held, M::FirstFpdu, P::Open),
    (P::Held, M::GraceOver, P::Open),
    (P::Held, M::Disconnect, P::Closing),
    (P::Held, M::PeerFin, P::Last),
    (P::Held, M::Fault, P::Terminating),
    (P::Held, M::PeerTerminate, P::Closing),
    (P::Held, M::Lost, P::Closed),
    (P::Open, M::Disconnect, P::Closing),
    (P::Open, M::PeerFin, P::Last),
    (P::Open, M::Fault, P::Terminating),
    (P::Open, M::PeerTerminate, P::Closing),
    (P::Open, M::Lost, P::Closed),
    (P::Closing, M::PeerFin, P::Last),
    (P::Closing, M::Drained, P::HalfClosed),
    (P::Closing, M::Expired, P::Closed),
    (P::Closing, M::Lost, P::Closed),
    (P::Last, M::Drained, P::Closed),
    (P::Last, M::Expired, P::Closed),
    (P::Last, M::Lost, P::Closed),
    (P::Terminating, M::PeerFin, P::Last),
    (P::Terminating, M::Drained, P::HalfClosed),
    (P::Terminating, M::Expired, P::Closed),
    (P::Terminating, M::Lost, P::Closed),
    (P::HalfClosed, M::PeerFin, P::Closed),
    (P::HalfClosed, M::Expired, P::Closed),
    (P::HalfClosed, M::Lost, P::Closed),
];

impl Phase {
    /// The phase after `event`; the same phase where the event means nothing.
    pub fn after(self, event: Move) -> Self {
        TRANSITIONS
            .iter()
            .find(|(from, on, _)| *from == self && *on == event)
            .map_or(self, |(_, _, to)| *to)
    }

    /// True while incoming FPDUs are processed; later ones are dropped (RFC 5041 §7.1).
    pub fn receives(self) -> bool {
        matches!(self, Self::Held | Self::Open)
    }

    /// True once the connection's work requests are flushed.
    pub fn is_over(self) -> bool {
        !self.receives()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 7] =
        [P::Held, P::Open, P::Closing, P::Last, P::Terminating, P::HalfClosed, P::Closed];
    const MOVES: [Move; 9] = [
        M::FirstFpdu,
        M::GraceOver,
        M::Disconnect,
        M::PeerFin,
        M::Fault,
        M::PeerTerminate,
        M::Drained,
        M::Expired,
        M::Lost,
    ];

    /// Prints every pair; the text is the specification, so a change of the table shows up here.
    #[test]
    fn every_transition() {
        let mut text = String::new();
        for phase in PHASES {
            for event in MOVES {
                let next = phase.after(event);
                if next != phase {
                    text += &format!("{phase:?} --{event:?}--> {next:?}\n");
                }
            }
        }
        let expected = include_str!("phase.transitions.txt");
        assert_eq!(text, expected, "phase table changed; now:\n{text}");
    }

    #[test]
    fn the_table_names_no_pair_twice_and_leaves_no_phase_for_ever() {
        for (i, (from, on, _)) in TRANSITIONS.iter().enumerate() {
            let twice = TRANSITIONS[i + 1..].iter().any(|(f, o, _)| f == from && o == on);
            assert!(!twice, "{from:?} {on:?} stands twice");
        }
        for phase in PHASES {
            assert_eq!(phase.after(M::Lost), P::Closed);
        }
    }
}
