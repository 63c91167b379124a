//! The parts of the benchmark by name, what each must reach, and what it is asked to measure.
//!
//! A part that fails loses nobody else's figures: its rows say why. See `kept` for what stays.

use std::time::Instant;

use anyhow::Result;

use super::kept::{Finished, KeptPart};
use super::{cost, model, paper, rows, small};
use crate::bench::measure::Summary;
use crate::bench::report::{Panel, Table};

/// What a part found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// One for each of [`CastPart::bounds`], in their order; `None` if it could not be measured.
    pub(super) figures: Vec<Option<Summary>>,
    pub(super) notes: Vec<String>,
    pub(super) tables: Vec<Table>,
    pub(super) panels: Vec<Panel>,
    /// Costs of the step model, see `model`.
    pub(super) costs: Option<Vec<f64>>,
    /// What failed and why, if something did.
    pub(super) failures: Vec<String>,
}

/// A ratio that the specification limits.
#[derive(Debug)]
pub(super) struct Bound {
    /// Names the quantities that are divided.
    pub(super) what: &'static str,
    /// The most that it may be.
    pub(super) most: f64,
    /// How it is measured, in a sentence.
    pub(super) how: &'static str,
}

/// See the [module](self).
pub(super) struct CastPart {
    pub(super) name: &'static str,
    pub(super) bounds: &'static [Bound],
    measure: fn() -> Result<Findings>,
}

const BESIDE: &str = "The whole command, to nodes that have cast before, against one plain TCP \
                      stream over such a link in the same round.";
const SHORT: &str =
    "The same cast with `--schedule star` in the same round; files of 10,000 bytes.";
const MODEL: &str = "1 + the largest error of the model where it was not fitted; 1.15 is our own \
                     limit, as the specification sets none.";

/// Every part, in the order of the page.
pub(super) const PARTS: [CastPart; 9] = [
    CastPart {
        name: "gigabit",
        bounds: &[Bound { what: "100 MB to 8 at 1 Gbit/s / the bound", most: 1.10, how: BESIDE }],
        measure: rows::gigabit,
    },
    CastPart {
        name: "16",
        bounds: &[Bound {
            what: "100 MB to 16 at 100 Mbit/s / the bound",
            most: 1.10,
            how: BESIDE,
        }],
        measure: || rows::slow_links(16),
    },
    CastPart {
        name: "32",
        bounds: &[Bound {
            what: "100 MB to 32 at 100 Mbit/s / the bound",
            most: 1.12,
            how: BESIDE,
        }],
        measure: || rows::slow_links(32),
    },
    CastPart {
        name: "64",
        bounds: &[Bound {
            what: "100 MB to 64 at 100 Mbit/s / the bound",
            most: 1.15,
            how: BESIDE,
        }],
        measure: || rows::slow_links(64),
    },
    CastPart {
        name: "small",
        bounds: &[
            Bound { what: "10 KB to 64, cold / directly to all", most: 1.20, how: SHORT },
            Bound { what: "10 KB to 64, warm / directly to all", most: 1.20, how: SHORT },
        ],
        measure: small::rows,
    },
    CastPart {
        name: "slow",
        bounds: &[Bound {
            what: "16 at 100 Mbit/s, one at half rate: the others / the bound without it",
            most: 1.15,
            how: "The last of the other 15 by the cast's own report, against the bound of 15.",
        }],
        measure: rows::slow_link,
    },
    CastPart {
        name: "cost",
        bounds: &[Bound {
            what: "CPU per node and byte / plain C with BLAKE3 and AES-GCM",
            most: 1.30,
            how: "The whole machine's busy time during a cast to 8, against a chain in plain C in \
                  the same round to which hashing and encryption as measured here are added.",
        }],
        measure: cost::row,
    },
    CastPart {
        name: "model",
        bounds: &[Bound {
            what: "the step model / the runs that check it",
            most: 1.15,
            how: MODEL,
        }],
        measure: model::findings,
    },
    CastPart { name: "paper", bounds: &[], measure: paper::findings },
];

impl CastPart {
    /// Measures it; a failure is among what it returns.
    pub(super) fn run(&self) -> KeptPart {
        eprintln!("part {} begins", self.name);
        let began = Instant::now();
        let found = (self.measure)().unwrap_or_else(|error| Findings {
            failures: vec![format!("{error:#}")],
            ..Findings::default()
        });
        let seconds = began.elapsed().as_secs_f64();
        eprintln!("part {} took {seconds:.0} s", self.name);
        KeptPart::new(self, found, Finished::now(seconds))
    }
}
