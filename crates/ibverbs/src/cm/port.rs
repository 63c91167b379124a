//! RDMA ports among TCP's. The two are separate spaces: a program may listen for RDMA and for TCP
//! at one number, and some do (Valkey, UCX). iWARP's ports are TCP's. On `roce` each has a TCP port
//! of its own with another number, which either end can compute.

use crate::config::Personality;

/// Ports from here on need no rights.
const UNPRIVILEGED: u16 = 1024;
/// Linux hands out ports from here on, unless configured otherwise.
const EPHEMERAL: u16 = 32_768;

/// The TCP port behind an RDMA port, and the other way round: half of the range away, so that
/// neither rights nor the system's own choice come into play.
pub(crate) fn other_side(personality: Personality, port: u16) -> u16 {
    match (personality, port) {
        (Personality::Iwarp, _) | (_, ..UNPRIVILEGED) => port,
        (Personality::Roce, UNPRIVILEGED..EPHEMERAL) => {
            const COUNT: u16 = EPHEMERAL - UNPRIVILEGED;
            UNPRIVILEGED + (port - UNPRIVILEGED + COUNT / 2) % COUNT
        }
        (Personality::Roce, EPHEMERAL..) => port ^ (EPHEMERAL / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_roce_every_port_has_another_of_its_kind() {
        for port in UNPRIVILEGED..=u16::MAX {
            let other = other_side(Personality::Roce, port);
            assert_ne!(other, port);
            assert_eq!(other_side(Personality::Roce, other), port);
            assert!(other >= UNPRIVILEGED);
            assert_eq!(other >= EPHEMERAL, port >= EPHEMERAL);
        }
        // As the documentation has it.
        assert_eq!(other_side(Personality::Roce, 6379), 22_251);
    }

    #[test]
    fn rights_are_asked_for_as_ever_and_iwarp_is_left_alone() {
        for port in 0..UNPRIVILEGED {
            assert_eq!(other_side(Personality::Roce, port), port);
        }
        assert!((0..=u16::MAX).all(|port| other_side(Personality::Iwarp, port) == port));
    }
}
