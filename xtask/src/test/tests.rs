//! The runner's rules: which suites count as failed, and the effect of a missing need.

use std::collections::BTreeSet;

use super::disk;
use super::flaky::FLAKY_MAX;
use super::needs::{self, Missing, Need};
use super::{
    Count, LONG_SUITES, Outcome, SUITES, Settings, Suite, choose, run_suite, summary, verdict,
};

fn suite(needs: &'static [Need], run: fn(&Settings) -> anyhow::Result<Count>) -> Suite {
    Suite { name: "sample", about: "a sample", needs, minutes: 1, run }
}

#[test]
fn a_result_line_of_cargo_test_is_read() {
    let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out";
    assert_eq!(Count::parse(line), Some(Count { passed: 12, failed: 3, skipped: 1 }));
    assert_eq!(Count::parse("test a::b ... ok"), None);
}

#[test]
fn the_closing_line_is_plain() {
    let count = Count { passed: 7, failed: 0, skipped: 2 };
    assert_eq!(count.to_string(), "7 passed, 0 failed, 2 skipped");
}

#[test]
fn a_failure_always_fails_and_a_skip_fails_in_ci() {
    let skipped = Count { passed: 9, failed: 0, skipped: 1 };
    assert!(verdict(skipped, 0, false).is_ok());
    assert!(verdict(skipped, 0, true).is_err());
    assert!(verdict(Count { failed: 1, ..skipped }, 0, false).is_err());
    let passed = Count { skipped: 0, ..skipped };
    assert!(verdict(passed, FLAKY_MAX, true).is_ok());
    assert!(verdict(passed, FLAKY_MAX + 1, true).is_err());
}

#[test]
fn a_suite_that_cannot_run_counts_as_failed() {
    let broken = suite(&[], |_| anyhow::bail!("broken"));
    let outcome = run_suite(&broken, &Settings::default());
    assert_eq!(outcome.count(), Count::one(false));
    assert!(summary(&broken, &outcome, 1).contains("FAILED"));
}

#[test]
fn a_suite_without_its_package_is_skipped_and_says_what_to_install() {
    let needy = suite(&[Need::Packages(&["outboard-no-such-package"])], |_| Ok(Count::one(true)));
    let outcome = run_suite(&needy, &Settings::default());
    assert!(matches!(outcome, Outcome::Skipped(_)));
    let line = summary(&needy, &outcome, 0);
    assert!(line.contains("skipped, needs: "), "{line}");
    let remedy = "apt-get install --yes --no-install-recommends outboard-no-such-package";
    assert!(line.ends_with(remedy), "{line}");
}

#[test]
fn a_package_that_is_there_is_not_missing() {
    let needs = [Need::Packages(&["dpkg", "outboard-no-such-package"])];
    assert_eq!(needs::missing(&needs), [Missing::Package("outboard-no-such-package")]);
}

#[test]
fn one_remedy_covers_everything_missing() {
    let missing = [Missing::Package("a"), Missing::Package("b"), Missing::CargoTool("fuzz")];
    let remedy = needs::remedy(&missing);
    assert!(remedy.ends_with("a b && cargo install --locked cargo-fuzz"), "{remedy}");
}

#[test]
fn suites_are_chosen_by_name() {
    assert_eq!(choose(&[], false).expect("all").len(), SUITES.len());
    assert_eq!(choose(&[], true).expect("all").len(), SUITES.len() + LONG_SUITES.len());
    assert_eq!(choose(&["fuzz".to_owned()], false).expect("one")[0].name, "fuzz");
    assert_eq!(choose(&["unit".to_owned()], false).expect("one")[0].name, "unit");
    let error = choose(&["nope".to_owned()], false).expect_err("unknown");
    assert!(
        error.to_string().contains("no suite nope; there are tidy, licences, build, unit"),
        "{error}"
    );
    let all = || SUITES.iter().chain(LONG_SUITES);
    let names: BTreeSet<_> = all().map(|suite| suite.name).collect();
    assert_eq!(names.len(), all().count(), "names are unique");
}

#[test]
fn a_disk_with_too_little_room_is_named_before_the_suites_start() {
    assert_eq!(disk::sentence(20), None);
    let words = disk::sentence(19).expect("too little");
    assert!(words.starts_with("19 GB are free here; all suites write up to 20 GB"), "{words}");
}
