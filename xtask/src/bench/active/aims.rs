//! The parts of the benchmark by name, and what each must reach. A part that fails loses nobody
//! else's figures.

use std::time::Instant;

use anyhow::Result;

use super::kept::KeptActive;
use super::{empty, placement, redis, structures, tail, topk};
use crate::bench::measure::Summary;
use crate::bench::report::{Panel, Table};
use crate::bench::stack::section::Limit;

/// What a part found.
#[derive(Debug, Default)]
pub(super) struct ActiveFindings {
    /// One for each of [`ActivePart::aims`], in their order; `None` if it could not be measured.
    pub(super) figures: Vec<Option<Summary>>,
    pub(super) notes: Vec<String>,
    pub(super) tables: Vec<Table>,
    pub(super) panels: Vec<Panel>,
}

/// A ratio that the specification limits.
#[derive(Debug)]
pub(super) struct Aim {
    /// Names the quantities that are divided.
    pub(super) what: &'static str,
    pub(super) limit: Limit,
    /// The paper's figure; may be empty.
    pub(super) paper: &'static str,
}

/// See the [module](self).
pub(super) struct ActivePart {
    pub(super) name: &'static str,
    pub(super) aims: &'static [Aim],
    pub(super) measure: fn() -> Result<ActiveFindings>,
}

const fn least(what: &'static str, ratio: f64) -> Aim {
    Aim { what, limit: Limit::AtLeast(ratio), paper: "" }
}

const fn most(what: &'static str, ratio: f64) -> Aim {
    Aim { what, limit: Limit::AtMost(ratio), paper: "" }
}

/// Every part, in the order of the page.
pub(super) const PARTS: &[ActivePart] = &[STRUCTURES, EMPTY, REDIS, TOPK, TAIL, PLACEMENT];

const PLACEMENT: ActivePart = ActivePart {
    name: "placement",
    aims: &[most("`auto` / the better side, worst of four entries", 1.1)],
    measure: placement::choices,
};

const STRUCTURES: ActivePart = ActivePart {
    name: "structures",
    aims: &[
        Aim { paper: "79", ..least("list get, 100 hops in, loopback: plain / active", 40.0) },
        Aim { paper: "120", ..least("list put, 100 hops in, loopback: plain / active", 40.0) },
        least("list get, 100 hops in, 100 µs one way: plain / active", 40.0),
        least("list put, 100 hops in, 100 µs one way: plain / active", 40.0),
        most("hash get where plain needs one Read, loopback: active / plain", 1.5),
        Aim { paper: "7", ..least("hash get, two Reads, loopback: plain / active", 1.2) },
        Aim { paper: "8", ..least("hash put, loopback: plain / active", 3.0) },
        most("hash get where plain needs one Read, 100 µs one way: active / plain", 1.5),
        least("hash get, two Reads, 100 µs one way: plain / active", 1.2),
        least("hash put, 100 µs one way: plain / active", 3.0),
    ],
    measure: structures::both_paths,
};

const TOPK: ActivePart = ActivePart {
    name: "topk",
    aims: &[
        least("top-k scan of 100 MB: time of native C at -O2 / Execute", 0.7),
        least("top-k scan of 100 MB: reading it all at 1 Gbit/s / Execute", 5.0),
    ],
    measure: topk::scans,
};

const EMPTY: ActivePart = ActivePart {
    name: "empty",
    aims: &[
        most("trusted, empty Execute / 8-byte Send ping-pong, spinning", 1.5),
        most("encrypted, empty Execute / 8-byte Send ping-pong, spinning", 1.5),
        most("an empty execution in the executor alone, µs", 1.0),
    ],
    measure: empty::beside_send,
};

const TAIL: ActivePart = ActivePart {
    name: "tail",
    aims: &[most("99th percentile of 64 B Reads, 8 clients run 1 ms modules / idle", 2.0)],
    measure: tail::of_reads,
};

const REDIS: ActivePart = ActivePart {
    name: "redis",
    aims: &[
        least("gets, trusted, 1 connection, blocking: ours / EVALSHA", 1.0),
        least("gets, trusted, 1 connection, short spin: ours / EVALSHA", 3.0),
        least("gets, trusted, 50 connections: ours / EVALSHA", 1.3),
        least("gets, trusted, 50 connections, 16 in flight: ours / EVALSHA", 3.0),
        least("puts, trusted, 1 connection, blocking: ours / EVALSHA", 1.0),
        least("puts, trusted, 1 connection, short spin: ours / EVALSHA", 3.0),
        least("puts, trusted, 50 connections: ours / EVALSHA", 1.3),
        least("puts, trusted, 50 connections, 16 in flight: ours / EVALSHA", 3.0),
        least("gets, encrypted, 1 connection, blocking: ours / EVALSHA", 1.0),
        least("gets, encrypted, 1 connection, short spin: ours / EVALSHA", 3.0),
        least("gets, encrypted, 50 connections: ours / EVALSHA", 1.3),
        least("gets, encrypted, 50 connections, 16 in flight: ours / EVALSHA", 3.0),
        least("puts, encrypted, 1 connection, blocking: ours / EVALSHA", 1.0),
        least("puts, encrypted, 1 connection, short spin: ours / EVALSHA", 3.0),
        least("puts, encrypted, 50 connections: ours / EVALSHA", 1.3),
        least("puts, encrypted, 50 connections, 16 in flight: ours / EVALSHA", 3.0),
    ],
    measure: redis::beside,
};

impl ActivePart {
    /// Measures it; a failure is among what it returns.
    pub(super) fn run(&self) -> KeptActive {
        eprintln!("part {} begins", self.name);
        let began = Instant::now();
        let found = (self.measure)();
        let seconds = began.elapsed().as_secs_f64();
        eprintln!("part {} took {seconds:.0} s", self.name);
        KeptActive::new(self, found, seconds)
    }
}
