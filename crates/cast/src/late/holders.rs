//! The nodes that a late node may read from: which it has tried, which are connected, and what
//! these have.

use crate::pause::excuse;
use crate::protocol::LentChunk;
use outboard_cluster::hub::Exposed;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// After a failure, a holder is tried again after so long; then after twice that, and so on.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// Chunks of a holder that were not what the source signed: then it is not asked any more.
pub(super) const BAD_MAX: u32 = 3;

/// How it stands with a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HolderStage {
    /// It is not connected; it may be dialled from then on.
    Away { again: Instant },
    /// It is dialled, and must have answered until then.
    Dialled { until: Instant },
    /// It is connected.
    Open,
    /// It breaks the rules, or has bad chunks.
    Bad,
}

/// A holder that the source has named.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedHolder {
    pub(super) stage: HolderStage,
    pub(super) pause: Duration,
    /// Whether it has failed before.
    pub(super) has_failed: bool,
    /// Bad chunks that came from it.
    pub(super) bad: u32,
}

impl NamedHolder {
    pub(super) fn new(now: Instant) -> Self {
        let stage = HolderStage::Away { again: now };
        Self { stage, pause: PAUSE_FIRST, has_failed: false, bad: 0 }
    }

    /// It is tried again later.
    pub(super) fn fail(&mut self, now: Instant) {
        if self.stage != HolderStage::Bad {
            self.stage = HolderStage::Away { again: now + self.pause };
        }
        self.has_failed = true;
        self.pause = PAUSE_MAX.min(self.pause * 2);
    }

    pub(super) fn held_up(&mut self, late: Duration) {
        if let HolderStage::Dialled { until } = &mut self.stage {
            *until += late;
        }
    }

    /// Whether it is dialled, or connected.
    pub(super) fn is_connected(&self) -> bool {
        matches!(self.stage, HolderStage::Dialled { .. } | HolderStage::Open)
    }

    /// Whether it may be dialled now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        matches!(self.stage, HolderStage::Away { again } if now >= again)
    }

    /// Whether nothing is to be expected of it soon.
    pub(super) fn is_out(&self) -> bool {
        match self.stage {
            HolderStage::Away { .. } => self.has_failed,
            HolderStage::Dialled { .. } | HolderStage::Open => false,
            HolderStage::Bad => true,
        }
    }
}

/// When the holder's bitmap is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum BitmapRead {
    Due(Instant),
    UnderWay { until: Instant },
}

/// What the reader wants of a holder.
#[derive(Debug)]
pub(super) enum Borrowing {
    /// Nothing before then.
    Idle { from: Instant },
    /// These chunks: the holder must have answered until then.
    Asked { chunks: BTreeSet<u32>, until: Instant },
}

/// A holder that is connected.
#[derive(Debug)]
pub(super) struct OpenHolder {
    pub(super) bitmap: Exposed,
    /// Its chunks as it said last, a bit each.
    pub(super) holds: Vec<u64>,
    pub(super) look: BitmapRead,
    pub(super) borrowing: Borrowing,
    /// What can be read.
    pub(super) ready: VecDeque<LentChunk>,
    /// What is being read, and until when it must have come.
    pub(super) reading: BTreeMap<u32, Instant>,
    /// When something came from it last.
    pub(super) useful: Instant,
}

impl OpenHolder {
    pub(super) fn new(bitmap: Exposed, now: Instant) -> Self {
        Self {
            bitmap,
            holds: Vec::new(),
            look: BitmapRead::Due(now),
            borrowing: Borrowing::Idle { from: now },
            ready: VecDeque::new(),
            reading: BTreeMap::new(),
            useful: now,
        }
    }

    pub(super) fn held_up(&mut self, now: Instant, late: Duration) {
        excuse(&mut self.useful, now, late);
        self.reading.values_mut().for_each(|until| *until += late);
        if let BitmapRead::UnderWay { until } = &mut self.look {
            *until += late;
        }
        if let Borrowing::Asked { until, .. } = &mut self.borrowing {
            *until += late;
        }
    }

    pub(super) fn has(&self, chunk: u32) -> bool {
        let word = self.holds.get((chunk / 64) as usize);
        word.is_some_and(|word| word >> (chunk % 64) & 1 == 1)
    }

    /// Why it has taken too long, if it has.
    pub(super) fn is_overdue(&self, now: Instant) -> Option<&'static str> {
        let look = match self.look {
            BitmapRead::UnderWay { until } => Some(until),
            BitmapRead::Due(_) => None,
        };
        let asked = match &self.borrowing {
            Borrowing::Asked { until, .. } => Some(*until),
            Borrowing::Idle { .. } => None,
        };
        if look.is_some_and(|until| now > until) || self.reading.values().any(|at| now > *at) {
            return Some("what is read from its memory does not come");
        }
        asked.filter(|until| now > *until).map(|_| "it does not say what can be read")
    }

    /// Whether another batch of chunks may be asked of it.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        let may = matches!(self.borrowing, Borrowing::Idle { from } if now >= from);
        may && self.ready.is_empty() && self.reading.is_empty()
    }

    /// The chunks that are to come from it.
    pub(super) fn pending(&self) -> Vec<u32> {
        let asked = match &self.borrowing {
            Borrowing::Asked { chunks, .. } => Some(chunks),
            Borrowing::Idle { .. } => None,
        };
        let ready = self.ready.iter().map(|lent| lent.chunk);
        let asked = asked.into_iter().flatten().copied();
        asked.chain(ready).chain(self.reading.keys().copied()).collect()
    }
}
