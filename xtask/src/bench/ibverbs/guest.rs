//! Outboard beside Linux's siw, both emulated: perftest's programs between two processes of the siw
//! guest ([`crate::siw`]), connected through the guest's own address.
//!
//! One boot runs everything in turn. The figures are printed on the guest's console.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

use crate::bench::measure::rounds;
use crate::bench::report::Series;
use crate::bench::stack::section::{Limit, Runs, Section, Target, ratio};
use crate::siw;

/// Rounds of everything.
const ROUNDS: usize = 3;

/// Time limit of the boot: about three seconds for each of the runs.
const TIME_MAX: Duration = Duration::from_secs(300);

const TESTS: &[&str] = &["ib_write_bw", "ib_read_bw", "ib_send_bw"];

/// Number of messages of 64 KiB; a program takes about half a second.
const WORK: &str = "-R -F -s 65536 -n 1000";

/// A contender: the kernel module, and the words in front of the program.
struct Side {
    name: &'static str,
    label: &'static str,
    module: &'static str,
    before: &'static str,
}

/// Outboard and siw, with CRCs and without. Outboard does not use the module.
const PAIRS: &[[Side; 2]] = &[
    [
        Side {
            name: "Outboard, CRC on",
            label: "outboard-crc",
            module: "siw_crc",
            before: "outboard run --devices eth0 --",
        },
        Side { name: "siw, CRC on", label: "siw-crc", module: "siw_crc", before: "" },
    ],
    [
        Side {
            name: "Outboard, CRC off",
            label: "outboard",
            module: "siw",
            before: "outboard run --devices eth0 --crc off --",
        },
        Side { name: "siw, CRC off", label: "siw", module: "siw", before: "" },
    ],
];

const NOTE: &str = "In the virtual machine: qemu emulates two processors without any \
    instructions for CRCs, and both ends are processes of one guest which is Linux 6.1, connected \
    over its own address. Outboard uses CRCs unless told not to. siw does not, unless a constant \
    in its source is changed: \"CRC on\" is that build.";

/// Measures both; `program` is the release build of `outboard`, with the libraries beside it.
pub(super) fn section(program: &Path, libraries: &Path) -> Result<Section> {
    let console = boot(program, libraries).map_err(|error| anyhow!(error))?;
    let series: Result<Vec<_>> =
        PAIRS.iter().flatten().map(|side| series(side, &console)).collect();
    let runs = Runs { points: TESTS, series: series? };
    let unit = "MiB/s, more is better";
    let panel = runs.panel("64 KiB in the virtual machine", unit, "program", "/mib_per_s")?;
    let mut targets = Vec::new();
    for [ours, siw] in PAIRS {
        for (index, test) in TESTS.iter().enumerate() {
            let figure = ratio(&panel, ours.name, siw.name, index)?;
            let what = format!("emulated 64 KiB {test}, {} / {}", ours.name, siw.name);
            targets.push(Target::new(&what, Limit::AtLeast(1.0), figure));
        }
    }
    Ok(Section { notes: vec![NOTE.to_owned()], targets, panels: vec![panel], ..Section::default() })
}

/// Runs everything and returns the guest's console output.
fn boot(program: &Path, libraries: &Path) -> Result<String, String> {
    let mut vm = siw::prepare()?.with_processors(2);
    vm.carry(program, "/bin/outboard")?;
    for library in ["libibverbs.so.1", "librdmacm.so.1"] {
        vm.carry(&libraries.join(library), &format!("/bin/lib/{library}"))?;
    }
    let mut guest = vm.boot(&script(), &[])?;
    let runs = rounds(ROUNDS) * TESTS.len() * PAIRS.as_flattened().len();
    eprintln!("{runs} runs of perftest in the siw guest, about two seconds each");
    guest.wait_for("ALL DONE", TIME_MAX)?;
    guest.wait(Duration::from_secs(10))
}

fn script() -> String {
    let mut script = include_str!("pair.sh").to_owned();
    for _ in 0..rounds(ROUNDS) {
        for test in TESTS {
            for Side { label, module, before, .. } in PAIRS.as_flattened() {
                script += &format!("pair {module} {label}/{test} {before} {test} {WORK}\n");
            }
        }
    }
    script + "echo ALL DONE\n"
}

/// The lines `FIGURE LABEL/TEST MiB/s` of one side.
fn series(side: &Side, console: &str) -> Result<Series<Value>> {
    let mut samples = Vec::new();
    for test in TESTS {
        let start = format!("FIGURE {}/{test} ", side.label);
        let figures = console.lines().filter_map(|line| line.strip_prefix(&start));
        let sample = |figure: &str| -> Result<Value> {
            let figure: f64 = figure.trim().parse().with_context(|| format!("{start}{figure}"))?;
            Ok(json!({ "mib_per_s": figure }))
        };
        let figures: Vec<Value> = figures.map(sample).collect::<Result<_>>()?;
        let expected = rounds(ROUNDS);
        if figures.len() != expected {
            bail!("the siw guest printed {} times \"{start}\", not {expected}", figures.len());
        }
        samples.push(figures);
    }
    Ok(Series { name: side.name.to_owned(), samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_told_apart_by_side_and_program() {
        let mut console = String::from("RUN READY\n");
        for (index, test) in TESTS.iter().enumerate() {
            for round in 0..ROUNDS {
                console +=
                    &format!("FIGURE siw/{test} {index}{round}.5\nFIGURE siw-crc/{test} 7\n");
            }
        }
        let series = series(&PAIRS[1][1], &console).unwrap();
        assert_eq!(series.samples[1][2]["mib_per_s"], 12.5);
        assert!(super::series(&PAIRS[0][0], &console).is_err());
    }

    #[test]
    fn every_round_has_every_side() {
        assert_eq!(script().matches("outboard run").count(), 2 * ROUNDS * TESTS.len());
        assert!(script().contains("pair siw siw/ib_read_bw  ib_read_bw -R"));
    }
}
