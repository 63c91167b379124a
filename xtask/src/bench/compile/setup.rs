//! Set-up costs: the paper's Table 1 (registering memory) and its figures for making a connection
//! (§3.5).
//!
//! The regions are files that a C program maps and registers through Outboard's libibverbs, as
//! rdistcc did through IT-API.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::rows::Contenders;
use super::stage::Kit;
use super::work::Job;
use crate::bench::report::Table;
use crate::bench::stack::ours::{self, Outboard};
use crate::bench::stack::section::{Section, table};
use crate::bench::stack::service;
use crate::command;
use crate::libs;

/// Size in KiB; the paper's open_mmap, create_mmap and memcpy in µs, on a Pentium 4 of 1.8 GHz.
const PAPER: [(&str, [u32; 3]); 6] = [
    ("16", [33, 72, 31]),
    ("64", [56, 151, 132]),
    ("256", [151, 412, 574]),
    ("512", [292, 752, 1159]),
    ("1024", [537, 1453, 2353]),
    ("2048", [1039, 2782, 4786]),
];
const HEAD: &[&str] =
    &["KiB", "open_mmap", "the paper's", "create_mmap", "the paper's", "memcpy", "the paper's"];
const NOTES: &[&str] = &[
    "Table 1 is of files on tmpfs, mapped and registered through our libibverbs. Registering \
     brings every page in, as pinning does, and leaves it to the kernel to keep.",
    "The paper's connections took 136 µs (TCP) and 1152 µs (RDMA with all objects) on a network \
     with a delay of 41 µs; ours are on loopback.",
];

/// Table 1 and connections.
pub(super) fn figures(kit: &Kit, _: &[Job], _: &Contenders<'_>) -> Result<Section> {
    let outboard = ours::build()?;
    let measured = delays(&kit.base, &outboard)?;
    let server = Outboard::start(&outboard, &["--pin", "1"])?;
    let connect = service::connect(&server)?;
    let notes = NOTES.iter().map(|note| (*note).to_owned()).collect();
    Ok(Section {
        notes,
        tables: vec![registration(&measured)?],
        panels: connect.panels,
        ..Section::default()
    })
}

/// The C program's output.
fn delays(base: &Path, outboard: &str) -> Result<String> {
    libs::build(true)?;
    let source = command::root().join("xtask/src/bench/compile/registration.c");
    let binary = base.join("registration");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2"]).arg(source);
    command::run(compiler.arg("-o").arg(&binary).arg("-libverbs"))?;
    let directory = format!("/dev/shm/outboard-registration-{}", std::process::id());
    fs::create_dir(&directory).with_context(|| format!("cannot make {directory}"))?;
    let mut run = Command::new("taskset");
    run.args(["--cpu-list", "0", outboard, "run", "--devices", "127.0.0.1", "--"]);
    let said = command::output(run.arg(binary).arg(&directory));
    fs::remove_dir_all(directory)?;
    said
}

/// Outboard's figures beside the paper's.
fn registration(measured: &str) -> Result<Table> {
    let rows = PAPER.iter().map(|(size, paper)| {
        let line = measured.lines().find_map(|line| line.strip_prefix(&format!("{size} ")));
        let line = line.with_context(|| format!("no line for {size} KiB in {measured}"))?;
        let ours: Vec<&str> = line.split(' ').collect();
        let [open, create, copy] = ours[..] else {
            bail!("not three figures: {line}");
        };
        let [paper_open, paper_create, paper_copy] = paper.map(|figure| figure.to_string());
        let row = [size, open, &paper_open, create, &paper_create, copy, &paper_copy];
        Ok(row.map(str::to_owned).to_vec())
    });
    let rows = rows.collect::<Result<_>>()?;
    Ok(table("Table 1: registering a file's memory, µs", HEAD, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_beside_the_papers() {
        let lines = PAPER.map(|(size, _)| format!("{size} 1.00 2.00 3.00\n"));
        let table = registration(&lines.concat()).unwrap();
        let row = ["256", "1.00", "151", "2.00", "412", "3.00", "574"];
        assert_eq!(table.rows[2], row);
        assert_eq!(table.head.len(), row.len());
        assert!(registration("16 1.00\n").is_err());
    }
}
