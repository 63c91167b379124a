//! Parsing the output of rivals, judging targets, and building the page.

use serde_json::json;

use super::bytes;
use super::growth::growth;
use super::load::figure;
use super::rivals::{parse_libfabric, parse_ucx};
use super::section::{Limit, Runs, Section, Target, ratio, report, table};
use super::service::weight;
use crate::bench::measure::{Summary, number};
use crate::bench::report::{Panel, Series};

const LIBFABRIC: &str = "\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      20k     =20k     2.4m        0.14s     17.80       3.60       0.28
";
const UCX: &str = "\
iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
100000,1.070,5.475,5.480,11.15,11.20,182655,182600
";

fn spread(median: f64) -> Option<Summary> {
    Some(Summary { median, least: median / 2.0, most: median * 2.0 })
}

#[test]
fn what_rivals_print_is_understood() {
    let mean = number(&parse_libfabric(LIBFABRIC).expect("a table"), "/mean_us");
    assert_eq!(mean.expect("a mean"), 3.6);
    let ucx = parse_ucx(UCX).expect("a table");
    let expected =
        json!({ "p50_us": 1.07, "mean_us": 5.48, "mib_per_s": 11.2, "messages_per_s": 182600.0 });
    assert_eq!(ucx, expected);
}

#[test]
fn what_they_do_not_print_is_an_error() {
    assert!(parse_libfabric("fi_getinfo: no data available\n").is_err());
    assert!(parse_ucx("no transport\n").is_err());
    assert!(parse_ucx("a,b\n1,2\n").is_err());
}

#[test]
fn the_median_decides() {
    let verdict = |limit, figure| Target::new("what", limit, figure).row()[3].clone();
    assert_eq!(verdict(Limit::AtMost(1.2), spread(1.2)), "met");
    assert_eq!(verdict(Limit::AtMost(1.2), spread(1.21)), "**not met**");
    assert_eq!(verdict(Limit::AtLeast(3.0), spread(3.0)), "met");
    assert_eq!(verdict(Limit::AtLeast(3.0), spread(2.9)), "**not met**");
    assert_eq!(verdict(Limit::AtLeast(3.0), None), "not run");
}

#[test]
fn a_figure_that_a_contender_lacks_leaves_it_out() {
    let series = |name: &str, sample| Series { name: name.to_owned(), samples: vec![vec![sample]] };
    let ours = series("ours", json!({ "p50_us": 3.0, "mean_us": 4.0 }));
    let runs =
        Runs { points: &["8 B"], series: vec![ours, series("fabric", json!({ "mean_us": 8.0 }))] };
    let panel = |figure| runs.panel("Latency", "µs", "message", figure).expect("it is there");
    assert_eq!(panel("/p50_us").series.len(), 1);
    let means = panel("/mean_us");
    assert_eq!(ratio(&means, "ours", "fabric", 0).expect("ours").map(|r| r.median), Some(0.5));
    assert_eq!(ratio(&means, "ours", "absent", 0).expect("ours"), None);
    assert!(ratio(&means, "absent", "fabric", 0).is_err());
}

#[test]
fn the_targets_of_all_sections_stand_first() {
    let target = |what| Target::new(what, Limit::AtMost(1.0), spread(1.0));
    let panel = Panel {
        title: "Latency".to_owned(),
        unit: "µs".to_owned(),
        axis: "message".to_owned(),
        points: Vec::new(),
        series: Vec::new(),
    };
    let first =
        Section { targets: vec![target("first")], panels: vec![panel], ..Section::default() };
    let second = Section {
        targets: vec![target("second")],
        tables: vec![table("Table 1", &["a"], Vec::new())],
        notes: vec!["said so".to_owned()],
        ..Section::default()
    };
    let report = report("A page", &["Quiet."], [first, second]);
    let targets: Vec<&str> = report.tables[0].rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(targets, ["first", "second"]);
    assert_eq!((report.tables[1].title.as_str(), report.panels.len()), ("Table 1", 1));
    assert_eq!(report.conditions.last().map(String::as_str), Some("said so"));
}

#[test]
fn load_is_what_the_best_lone_task_loses() {
    // Other work was running before the second round.
    let first = json!({ "alone": [100.0, 200.0], "beside": [80.0, 190.0] });
    let second = json!({ "alone": [50.0, 200.0], "beside": [70.0, 180.0] });
    let series = Series { name: "ours".to_owned(), samples: vec![vec![first, second]] };
    let runs = Runs { points: &["4 KiB"], series: vec![series] };
    let panel = figure(&runs, 0, "Figure 4").expect("both sides");
    let loads: Vec<f64> =
        panel.series[0].samples.concat().iter().map(|load| load.round()).collect();
    assert_eq!(loads, [20.0, 30.0, 5.0, 10.0]);
}

#[test]
fn the_weight_of_a_connection_is_found() {
    let text = "idle, each costs 3.2 KiB at the client and 3.4 KiB at the server\n";
    let median = |side| weight(text, side).map(|summary| summary.median);
    assert_eq!((median("client"), median("server"), median("peer")), (Some(3.2), Some(3.4), None));
}

#[test]
fn growth_is_taken_round_by_round() {
    let samples = vec![vec![1.0, 10.0, 100.0], vec![2.0, 30.0, 100.0]];
    let series = vec![Series { name: "ours".to_owned(), samples }];
    let empty = String::new;
    let panel = Panel { title: empty(), unit: empty(), axis: empty(), points: Vec::new(), series };
    assert_eq!(growth(&panel, 1).map(|summary| (summary.least, summary.median)), Some((1.0, 2.0)));
    assert_eq!(growth(&panel, 2), None);
}

#[test]
fn points_are_sizes() {
    assert_eq!(bytes("8 B").expect("a size"), 8);
    assert_eq!(bytes("64 KiB").expect("a size"), 65536);
    assert_eq!(bytes("1 MiB").expect("a size"), 1 << 20);
    assert!(bytes("8").is_err() && bytes("8 kB").is_err() && bytes("x B").is_err());
}
