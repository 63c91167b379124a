//! The runner's rules: which suites count as failed, and the effect of a missing need.

use std::collections::BTreeSet;

use super::disk;
use super::flaky::FLAKY_MAX;
use super::needs::{self, Missing, Need};
use super::nextest::{Ending, TestRun};
use super::report::Report;
use super::selection::{Pass, Selection};
use super::suites::{self, Lane};
use super::{Count, LONG_SUITES, SUITES, Settings, Suite, choose, is_skipped, run_checks, verdict};

static BROKEN: Suite = Suite {
    name: "broken",
    about: "a sample",
    needs: &[],
    tests: &[],
    checks: Some((Lane::First, |_| anyhow::bail!("broken"))),
    budget: 1,
};

static NEEDY: Suite = Suite {
    name: "needy",
    about: "a sample",
    needs: &[Need::Packages(&["outboard-no-such-package"])],
    tests: &[],
    checks: None,
    budget: 1,
};

fn suite(name: &str) -> &'static Suite {
    choose(&[name.to_owned()], false).expect("a suite")[0]
}

fn test_run(binary: &str, ending: Ending) -> TestRun {
    TestRun { binary: binary.to_owned(), name: "a::b".to_owned(), seconds: 1.0, ending }
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
    let mut report = Report::new(&[&BROKEN], false);
    report.add_checks(run_checks(&[&BROKEN], Lane::Beside, &Settings::default()));
    assert_eq!(report.total(), Count::default());
    report.add_checks(run_checks(&[&BROKEN], Lane::First, &Settings::default()));
    assert_eq!(report.total(), Count::one(false));
    assert!(report.to_string().contains("FAILED"));
}

#[test]
fn a_suite_without_its_package_is_skipped_and_says_what_to_install() {
    let mut report = Report::new(&[&NEEDY], false);
    assert!(is_skipped(&NEEDY, &mut report));
    assert_eq!(report.total().skipped, 1);
    let text = report.to_string();
    assert!(text.contains("skipped needs: "), "{text}");
    let remedy = "--no-install-recommends outboard-no-such-package\n";
    assert!(text.ends_with(remedy), "{text}");
}

#[test]
fn each_test_counts_for_its_suite() {
    let mut report = Report::new(&[suite("unit"), suite("tshark")], false);
    report.expect_tests();
    assert_eq!(report.total().failed, 2, "a suite that runs no test has failed");
    let mut report = Report::new(&[suite("unit"), suite("tshark")], false);
    report.add_tests(Ok(vec![
        test_run("outboard-verbs::tshark", Ending::Passed),
        test_run("outboard-verbs", Ending::Skipped("no such kernel".to_owned())),
        test_run("outboard-verbs", Ending::Failed("wrong".to_owned())),
    ]));
    report.expect_tests();
    assert_eq!(report.total(), Count { passed: 1, failed: 1, skipped: 1 });
    let text = report.to_string();
    assert!(text.contains("tshark         passed  1 passed, 0 failed, 0 skipped"), "{text}");
    assert!(text.contains("skipped a::b: no such kernel"), "{text}");
}

#[test]
fn a_run_of_nextest_without_results_is_a_failure_whatever_else_ran() {
    let mut report = Report::new(&[suite("unit")], false);
    report.add_tests(Ok(vec![test_run("outboard-verbs", Ending::Passed)]));
    report.add_tests(Err(anyhow::anyhow!("nextest failed")));
    report.expect_tests();
    assert_eq!(report.total(), Count { passed: 1, failed: 1, skipped: 0 });
}

#[test]
fn a_suite_far_over_its_budget_is_named() {
    let report = |full| {
        let mut report = Report::new(&[suite("tshark")], full);
        let mut run = test_run("outboard-verbs::tshark", Ending::Passed);
        run.seconds = 3.0 * f64::from(suite("tshark").budget);
        report.add_tests(Ok(vec![run]));
        report.to_string()
    };
    assert!(report(false).contains("OVER BUDGET"));
    assert!(!report(true).contains("OVER BUDGET"));
}

#[test]
fn the_tests_of_some_suites_are_built_and_chosen_by_their_names() {
    let suites = [suite("tshark"), suite("fs")];
    let left_out = [("outboard::fs_cp", "copies")];
    let selection = Selection::new(&suites, Pass::SideBySide, &left_out).expect("some");
    assert!(selection.targets.contains(&"--test=tshark".to_owned()));
    let filter = selection.filter;
    assert!(filter.starts_with("((binary_id(=outboard-verbs::tshark) + "), "{filter}");
    assert!(filter.ends_with(" - ((binary_id(=outboard::fs_cp) & test(copies)))"), "{filter}");
    assert_eq!(Selection::new(&suites, Pass::Measuring, &left_out), None);
}

#[test]
fn all_other_tests_are_those_that_no_suite_names() {
    let selection = Selection::new(&[suite("unit")], Pass::SideBySide, &[]).expect("some");
    assert!(selection.targets.contains(&"--lib".to_owned()));
    assert!(selection.filter.starts_with("((not (binary_id("), "{}", selection.filter);
    assert!(selection.filter.contains("binary_id(=outboard-verbs::tshark)"));
    let measuring = Selection::new(&[suite("unit")], Pass::Measuring, &[]).expect("some");
    assert!(measuring.alone);
    assert!(!measuring.filter.contains("sandbox"), "that of another suite");
    let sandbox = [suite("sandbox")];
    assert!(Selection::new(&sandbox, Pass::Measuring, &[]).is_some());
    let left_out = [("outboard-compile::sandbox", "a_warm_job_costs_little")];
    assert_eq!(Selection::new(&sandbox, Pass::Measuring, &left_out), None);
}

#[test]
fn a_plain_run_leaves_some_long_tests_to_full() {
    let full = Settings { full: true };
    assert!(suites::left_out(&[suite("fs")], &full).is_empty());
    assert!(suites::left_out(&[suite("tidy")], &Settings::default()).is_empty());
}

#[test]
fn a_package_that_is_there_is_not_missing() {
    let needs = [Need::Packages(&["dpkg", "outboard-no-such-package"])];
    assert_eq!(needs::missing(&needs), [Missing::Package("outboard-no-such-package")]);
}

#[test]
fn one_remedy_covers_everything_missing() {
    let missing = [Missing::Package("a"), Missing::Package("b"), Missing::CargoTool("cargo-fuzz")];
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
        error.to_string().contains("no suite nope; there are tidy, licences, build, docs, unit"),
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
