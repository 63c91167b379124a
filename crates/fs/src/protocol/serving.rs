//! What a server says of itself, behind how full its file system is: its epoch, and its replica.

use super::FsLayout;
use super::layout::layouts;

/// What a replica has of what its server has, by number, as people read it.
const PHASES: [&str; 4] = ["away", "copying", "catching up", "in step"];

layouts! {
    /// A run of the service that has ended. The answer of `runs` has those that the store
    /// remembers, the latest first.
    FsEndedRun {
        /// The epoch that it served.
        epoch: u64,
        /// Its journal's number.
        incarnation: u64,
        /// The last of its commits that the store still has, as its journal numbers them.
        last: u64,
    }
}

/// See this file's first lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsServing {
    /// Which of the servers that have had the file system one after the other it is.
    pub epoch: u64,
    /// Its replica, if it has one.
    pub replica: Option<ServedReplica>,
}

/// How the replica of a server is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedReplica {
    phase: u64,
    /// For how many seconds.
    pub for_s: u64,
    /// How many commits it lacks.
    pub lacks: u64,
}

impl ServedReplica {
    pub(crate) fn new(phase: u64, for_s: u64, lacks: u64) -> Self {
        Self { phase, for_s, lacks }
    }

    /// `away`, `copying`, `catching up` or `in step`.
    #[must_use]
    pub fn phase(&self) -> &'static str {
        let index = usize::try_from(self.phase).unwrap_or(usize::MAX);
        PHASES.get(index).copied().unwrap_or("unknown")
    }
}

impl FsServing {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let ServedReplica { phase, for_s, lacks } = self.replica.unwrap_or_default();
        [self.epoch, u64::from(self.replica.is_some()), phase, for_s, lacks].bytes()
    }

    /// Of these bytes; `None`: they are another release's. A region that only active code works on
    /// has nobody who says anything.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self::default());
        }
        let ([epoch, has_replica, phase, for_s, lacks], []) = <[u64; 5]>::split(bytes)? else {
            return None;
        };
        let replica = (has_replica == 1).then_some(ServedReplica { phase, for_s, lacks });
        Some(Self { epoch, replica })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_read() {
        let replica = Some(ServedReplica::new(3, 7, 0));
        for serving in [FsServing { epoch: 2, replica }, FsServing { epoch: 1, replica: None }] {
            assert_eq!(FsServing::parse(&serving.bytes()), Some(serving));
        }
        assert_eq!(replica.map(|one| one.phase()), Some("in step"));
        assert_eq!(ServedReplica::new(u64::MAX, 0, 0).phase(), "unknown");
        assert_eq!(FsServing::parse(&[]), Some(FsServing::default()));
        assert_eq!(FsServing::parse(&[0; 39]), None);
        assert_eq!(FsServing::parse(&[0; 41]), None);
    }
}
