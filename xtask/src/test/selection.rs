//! Which tests an invocation of nextest runs: cargo's targets and nextest's filter set.

use super::Suite;
use super::nextest::TestRun;
use super::suites::{self, EVERY_OTHER, MEASURING};

/// Which of the suites' tests run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Tests whose result does not depend on what runs beside them.
    SideBySide,
    /// Tests that measure: alone.
    Measuring,
}

impl Pass {
    /// In a line.
    pub(super) fn about(self) -> &'static str {
        match self {
            Self::SideBySide => "tests, side by side",
            Self::Measuring => "tests that measure, alone",
        }
    }
}

/// What nextest runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Selection {
    /// Options that choose what cargo builds.
    pub(super) targets: Vec<String>,
    pub(super) filter: String,
    /// One test at a time.
    pub(super) alone: bool,
    /// How many more times a failed test runs.
    pub(super) retries: u32,
}

impl Selection {
    /// The suites' tests of this pass but for some; nothing if there are none.
    pub(super) fn new(suites: &[&Suite], pass: Pass, left_out: &[(&str, &str)]) -> Option<Self> {
        let named: Vec<&str> = suites.iter().flat_map(|suite| suite.tests).copied().collect();
        let has_all = named.contains(&EVERY_OTHER);
        let runs = |binary: &str| suites.iter().any(|suite| suite.runs(binary));
        let measuring = MEASURING.iter().filter(|(binary, _)| runs(binary));
        let measuring = measuring.filter(|test| !left_out.contains(test));
        let measuring: Vec<String> = measuring.map(|test| tests_like(*test)).collect();
        let wanted = if has_all {
            let others = suites::all_named().filter(|binary| !named.contains(binary));
            format!("not ({})", any_of(others.map(binary_is)))
        } else {
            any_of(named.iter().copied().map(binary_is))
        };
        let included = match pass {
            _ if named.is_empty() => return None,
            Pass::Measuring if measuring.is_empty() => return None,
            Pass::Measuring => any_of(measuring),
            Pass::SideBySide => format!("({wanted}) - ({})", any_of(measuring)),
        };
        let filter =
            format!("({included}) - ({})", any_of(left_out.iter().copied().map(tests_like)));
        let alone = pass == Pass::Measuring;
        Some(Self { targets: targets(&named), filter, alone, retries: 0 })
    }

    /// Tests that have run, one at a time.
    pub(super) fn again(runs: &[&TestRun], retries: u32) -> Self {
        let one = |run: &&TestRun| format!("(binary_id(={}) & test(={}))", run.binary, run.name);
        let binaries: Vec<&str> = runs.iter().map(|run| run.binary.as_str()).collect();
        let filter = any_of(runs.iter().map(one));
        Self { targets: targets(&binaries), filter, alone: true, retries }
    }
}

/// The tests of a program whose names have `part` in them; all where that is empty.
fn tests_like((binary, part): (&str, &str)) -> String {
    match part {
        "" => binary_is(binary),
        _ => format!("({} & test({part}))", binary_is(binary)),
    }
}

fn binary_is(binary: &str) -> String {
    format!("binary_id(={binary})")
}

/// A filter set that chooses what any of these choose.
fn any_of(filters: impl IntoIterator<Item = String>) -> String {
    let filters: Vec<String> = filters.into_iter().collect();
    if filters.is_empty() { "none()".to_owned() } else { filters.join(" + ") }
}

/// Integration tests alone are built alone.
fn targets(binaries: &[&str]) -> Vec<String> {
    let test = |binary: &&str| Some(format!("--test={}", binary.split_once("::")?.1));
    let tests: Option<Vec<String>> = binaries.iter().map(test).collect();
    tests.unwrap_or_else(|| ["--lib", "--bins", "--test=*"].map(str::to_owned).into())
}
