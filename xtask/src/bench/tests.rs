//! Contenders alternate; tables and charts agree with the samples.

use std::cell::RefCell;
use std::env;
use std::fs;

use serde_json::json;

use super::measure::{Contender, Server, Summary, alternate, json, number, pinned};
use super::report::{Panel, Report, Series, Table};
use super::{chart, run};

fn series(name: &str, samples: &[&[f64]]) -> Series {
    Series { name: name.to_owned(), samples: samples.iter().map(|all| all.to_vec()).collect() }
}

fn report() -> Report {
    let panel = Panel {
        title: "Latency".to_owned(),
        unit: "µs, less is better".to_owned(),
        axis: "message size".to_owned(),
        points: vec!["8 B".to_owned(), "64 KiB".to_owned()],
        series: vec![
            series("outboard", &[&[3.0, 2.0, 4.0], &[200.0]]),
            series("tcp", &[&[6.0, 6.5, 5.0], &[]]),
        ],
    };
    let conditions = vec!["CRC on.".to_owned()];
    let targets = Table {
        title: "Targets".to_owned(),
        head: vec!["what".to_owned(), "verdict".to_owned()],
        rows: vec![vec!["8 B".to_owned(), "met".to_owned()]],
    };
    Report { title: "Sample".to_owned(), conditions, tables: vec![targets], panels: vec![panel] }
}

#[test]
fn contenders_take_turns() {
    let order = RefCell::new(Vec::new());
    let contender = |name: &'static str, value: f64| Contender {
        name,
        measure: Box::new({
            let order = &order;
            move |point: &str| {
                order.borrow_mut().push(format!("{name}{point}"));
                Ok(value)
            }
        }),
    };
    let mut both = [contender("a", 1.0), contender("b", 2.0)];
    let series = alternate(&mut both, &["1", "2"], 2).expect("both succeed");
    assert_eq!(*order.borrow(), ["a1", "b1", "a2", "b2", "a1", "b1", "a2", "b2"]);
    assert_eq!(series[1].samples, [[2.0, 2.0], [2.0, 2.0]]);
}

#[test]
fn a_failing_contender_is_named() {
    let measure = Box::new(|_: &str| anyhow::bail!("no route"));
    let mut contenders: [Contender<'_>; 1] = [Contender { name: "rival", measure }];
    let error = alternate(&mut contenders, &["8 B"], 1).expect_err("it fails");
    assert_eq!(format!("{error:#}"), "rival at 8 B: no route");
}

#[test]
fn a_pinned_command_gives_json() {
    let value = json(&mut pinned("0", "echo", &["{\"latency\": {\"p50\": 2.5}}"]));
    let value = value.expect("echo prints JSON");
    assert_eq!(number(&value, "/latency/p50").expect("it is there"), 2.5);
    assert!(number(&value, "/latency/p99").is_err());
    assert!(json(&mut pinned("0", "echo", &["no JSON"])).is_err());
    assert!(json(&mut pinned("0", "false", &[])).is_err());
}

#[test]
fn a_server_says_that_it_listens() {
    let (_server, line) = Server::start_with_line(&mut pinned("0", "echo", &["here"])).expect("it");
    assert_eq!(line, "here\n");
    assert!(Server::start_with_line(&mut pinned("0", "true", &[])).is_err());
}

#[test]
fn samples_are_summed_up() {
    let summary = |samples| Summary::of(samples);
    let odd = Summary { median: 3.0, least: 2.0, most: 9.0 };
    assert_eq!(summary(&[9.0, 2.0, 3.0]), Some(odd));
    assert_eq!(summary(&[9.0, 2.0, 3.0, 4.0]), Some(Summary { median: 3.5, ..odd }));
    assert_eq!(summary(&[]), None);
}

#[test]
fn ratios_are_taken_round_by_round() {
    // A slow machine in the second round: a ratio of the medians would be 2.5.
    let ours = series("outboard", &[&[1.0, 100.0, 5.0]]);
    let theirs = series("tcp", &[&[1.0, 100.0, 2.0]]);
    let ratio = ours.ratio_to(&theirs, 0).expect("there are rounds");
    assert_eq!(ratio, Summary { median: 1.0, least: 1.0, most: 2.5 });
    assert_eq!(ours.ratio_to(&theirs, 1), None);
}

#[test]
fn one_run_gives_several_figures() {
    let sample = json!({ "p50": 2.0, "p99": 3.0 });
    let runs = Series { name: "outboard".to_owned(), samples: vec![vec![sample]] };
    assert_eq!(runs.numbers("/p99").expect("it is there").samples, [[3.0]]);
    assert!(runs.numbers("/p98").is_err());
}

#[test]
fn the_table_gives_medians_spread_and_ratios() {
    let page = report().markdown("sample");
    let row = "| 8 B | 3.00 (2.00 to 4.00) | 6.00 (5.00 to 6.50) ×0.50 |\n";
    assert!(page.contains(row), "{page}");
    let targets = "## Targets\n\n| what | verdict |\n| --- | --- |\n| 8 B | met |\n";
    assert!(page.contains(targets), "{page}");
    assert!(page.contains("| 64 KiB | 200 (200 to 200) | not run |\n"), "{page}");
    assert!(page.contains("![Sample](sample.svg)"), "{page}");
}

#[test]
fn the_chart_names_points_contenders_and_unit() {
    let svg = chart::draw(&report()).expect("it draws");
    for text in ["8 B", "64 KiB", "outboard", "tcp", "Latency (µs, less is better)"] {
        assert!(svg.contains(text), "{text} in {svg}");
    }
}

#[test]
fn a_report_is_written_whole() {
    let root = env::temp_dir().join(format!("xtask-bench-{}", std::process::id()));
    report().write("sample", &root, &root.join("target")).expect("it writes");
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("it was written");
    let data: serde_json::Value =
        serde_json::from_str(&read("target/bench/sample.json")).expect("it is JSON");
    assert_eq!(data["panels"][0]["series"][1]["samples"], json!([[6.0, 6.5, 5.0], []]));
    assert!(read("docs/benchmarks/sample.md").starts_with("# Sample\n"));
    assert!(read("docs/benchmarks/sample.svg").starts_with("<svg"));
    fs::remove_dir_all(root).expect("it can be removed");
}

#[test]
fn an_unknown_benchmark_is_an_error() {
    let error = run("nope", false).expect_err("there is none");
    assert!(error.to_string().starts_with("no benchmark nope"), "{error}");
}
