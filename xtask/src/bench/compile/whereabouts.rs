//! How processors spend their time in a build: the paper's Tables 2 (the client) and 3 (the
//! servers).
//!
//! `perf` samples both processors two thousand times a second and records the running program and
//! its stack. Without `perf` these tables are left out.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::build;
use super::contender::Contender;
use super::rows::{Contenders, FACTOR, trial};
use super::stage::Stage;
use super::work::Job;
use super::{Kit, Trial};
use crate::bench::stack::section::{Section, table};
use crate::command;

/// The jobs of the sampled build.
const JOBS: usize = 280;

/// What a processor is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Business {
    /// The compiler's programs: preprocessing on a client, compiling on a server.
    Compiler,
    /// Handing over, choosing servers, starting processes.
    Management,
    /// Sockets, TCP, and the work of Outboard's engine in its program.
    Transfer,
    Idle,
    /// Programs outside the build.
    Others,
}

/// Names of the compiler's programs.
const COMPILER: &[&str] =
    &["gcc", "g++", "cc", "c++", "cc1", "cc1plus", "as", "collect2", "ld", "x86_64-linux-gnu"];
/// Beginnings of the names of the other programs in the build.
const PARTS: &[&str] = &[
    "make",
    "sh",
    "distcc",
    "icecc",
    "outboard",
    "fuser",
    "nsenter",
    "taskset",
    "ksoftirqd",
    "kworker",
];
/// Beginnings of the names of functions that move data between hosts, anywhere in a stack.
const MOVING: &[&str] = &[
    "tcp_",
    "inet_",
    "sock_",
    "unix_stream_",
    "net_rx_action",
    "__dev_queue_xmit",
    "ip_",
    "__ip_",
    "do_sendfile",
    "__sys_send",
    "__sys_recv",
    "__sys_connect",
    "__sys_accept",
    "outboard_iwarp::",
    "outboard_wire::",
    "outboard_mem::",
    "outboard_verbs::",
    "outboard_secure::",
];

/// Both tables.
pub(super) fn tables(kit: &Kit, jobs: &[Job], contenders: &Contenders<'_>) -> Result<Section> {
    if !command::succeeds("perf", &["--version"]) {
        let note = "Where the processors spend their time is not known without perf (linux-perf).";
        return Ok(Section { notes: vec![note.to_owned()], ..Section::default() });
    }
    let jobs = build::repeated(jobs, JOBS);
    let trial = trial(kit, FACTOR, &jobs, &jobs);
    let mut seen = Vec::new();
    for contender in contenders.iter().filter(|contender| contender.compiles()) {
        eprintln!("looking where {} spends its time", contender.name());
        seen.push((contender.name(), Seen::of(&trial, *contender)?));
    }
    let tables = vec![client_table(&seen), servers_table(&seen)];
    Ok(Section { tables, ..Section::default() })
}

/// Shares of the time, from 0 to 1.
#[derive(Debug)]
struct Seen {
    client: Shares,
    /// The average of the servers.
    server: Shares,
}

impl Seen {
    fn of(trial: &Trial<'_>, contender: &dyn Contender) -> Result<Self> {
        let stage = Stage::new(trial.kit, trial.servers, trial.medium)?;
        let wrapper = contender.start(&stage)?;
        let (servers, at_once) = (trial.count(), trial.count() * stage.slots());
        build::run(&stage, &wrapper, trial.warm_up, at_once)?;
        let make = build::command(&stage, &wrapper, trial.jobs, at_once)?;
        let began = std::time::Instant::now();
        let looks = look(&make, &stage)?;
        let wall = began.elapsed();
        let machine = wall.as_secs_f64() * f64::from(u32::try_from(servers)?);
        let waited: f64 = trial.waits()?.iter().map(std::time::Duration::as_secs_f64).sum();
        let server = Shares::of(&looks, 1)?.emulated(f64::from(u32::try_from(servers)?));
        Ok(Self { client: Shares::of(&looks, 0)?, server: server.computing(waited / machine) })
    }
}

/// One sample of one processor.
#[derive(Debug, PartialEq, Eq)]
struct Look {
    processor: usize,
    business: Business,
}

/// Runs a build while perf samples it.
fn look(make: &Command, stage: &Stage) -> Result<Vec<Look>> {
    let data = stage.temporary(stage.client()).join("perf.data");
    let mut perf = Command::new("perf");
    perf.args(["record", "--quiet", "--event", "cpu-clock", "--freq", "1999", "--cpu", "0-1"]);
    perf.args(["--call-graph", "fp", "--output"]).arg(&data).arg("--");
    perf.arg(make.get_program()).args(make.get_args());
    for (name, value) in make.get_envs() {
        perf.envs(value.map(|value| (name, value)));
    }
    perf.current_dir(stage.project()).stderr(Stdio::null());
    command::run(&mut perf)?;
    let mut script = Command::new("perf");
    script.args(["script", "--fields", "comm,pid,cpu,ip,sym", "--input"]).arg(&data);
    let output = script.stderr(Stdio::null()).output()?;
    Ok(looks(&String::from_utf8_lossy(&output.stdout)))
}

/// The output of `perf script`: a line with program, process and processor, then a line for each
/// function, the innermost first, then an empty one.
fn looks(script: &str) -> Vec<Look> {
    let blocks = script.split("\n\n").filter_map(|block| {
        let (head, stack) = block.trim_start_matches('\n').split_once('\n').unwrap_or((block, ""));
        let (rest, processor) = head.trim().rsplit_once(' ')?;
        let (program, _) = rest.trim_end().rsplit_once(' ')?;
        let processor = processor.trim_matches(['[', ']']).parse().ok()?;
        let functions = stack.lines().filter_map(|line| line.trim().split_once(' '));
        let functions: Vec<&str> = functions.map(|(_, function)| function).collect();
        Some(Look { processor, business: business(program.trim(), &functions) })
    });
    blocks.collect()
}

fn business(program: &str, functions: &[&str]) -> Business {
    let starts = |beginnings: &[&str], text: &str| {
        beginnings.iter().any(|beginning| text.starts_with(beginning))
    };
    if program.starts_with("swapper") {
        Business::Idle
    } else if COMPILER.contains(&program) || program.starts_with("x86_64-linux-gn") {
        Business::Compiler
    } else if !starts(PARTS, program) {
        Business::Others
    } else if functions.iter().any(|function| starts(MOVING, function.trim_start_matches('<'))) {
        Business::Transfer
    } else {
        Business::Management
    }
}

/// The shares of time by business.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Shares {
    compiler: f64,
    management: f64,
    transfer: f64,
    idle: f64,
    others: f64,
}

impl Shares {
    fn of(looks: &[Look], processor: usize) -> Result<Self> {
        let looks: Vec<Business> = looks
            .iter()
            .filter(|look| look.processor == processor)
            .map(|look| look.business)
            .collect();
        if looks.is_empty() {
            bail!("perf saw nothing of processor {processor}");
        }
        let all = f64::from(u32::try_from(looks.len()).context("too many looks")?);
        let share = |business| {
            let count = looks.iter().filter(|look| **look == business).count();
            f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / all
        };
        Ok(Self {
            compiler: share(Business::Compiler),
            management: share(Business::Management),
            transfer: share(Business::Transfer),
            idle: share(Business::Idle),
            others: share(Business::Others),
        })
    }

    /// The shares of one of `servers` that share the processor, if each had its own.
    fn emulated(self, servers: f64) -> Self {
        let of_one = |share: f64| share / servers;
        Self {
            compiler: of_one(self.compiler),
            management: of_one(self.management),
            transfer: of_one(self.transfer),
            idle: 0.0,
            others: 0.0,
        }
    }

    /// The shares with a compiler that computes instead of sleeping; the rest is idle.
    fn computing(self, compiler: f64) -> Self {
        let busy = compiler + self.management + self.transfer;
        Self { compiler, idle: (1.0 - busy).max(0.0), ..self }
    }
}

type Row = (&'static str, &'static str, fn(&Shares) -> f64);

fn client_table(seen: &[(&str, Seen)]) -> crate::bench::report::Table {
    let rows: [Row; 5] = [
        ("preprocessing (cpp; the paper's with ld)", "12.35", |shares| shares.compiler),
        ("management", "28.00", |shares| shares.management),
        ("idle", "0.50", |shares| shares.idle),
        ("data transfer", "59.15", |shares| shares.transfer),
        ("programs of others", "", |shares| shares.others),
    ];
    let of = seen.iter().map(|(name, seen)| (*name, &seen.client));
    shares_table("Table 2: where the client's CPU time goes, %", &rows, of)
}

fn servers_table(seen: &[(&str, Seen)]) -> crate::bench::report::Table {
    let rows: [Row; 4] = [
        ("compiler", "79.75", |shares| shares.compiler),
        ("idle", "18.85", |shares| shares.idle),
        ("data transfer", "2.10", |shares| shares.transfer),
        ("management", "", |shares| shares.management),
    ];
    let of = seen.iter().map(|(name, seen)| (*name, &seen.server));
    shares_table("Table 3: where a server's CPU time goes, %, 14 servers", &rows, of)
}

fn shares_table<'a>(
    title: &str,
    rows: &[Row],
    seen: impl Iterator<Item = (&'a str, &'a Shares)> + Clone,
) -> crate::bench::report::Table {
    let mut head = vec!["operation", "the paper's distcc"];
    head.extend(seen.clone().map(|(name, _)| name));
    let rows = rows.iter().map(|(operation, paper, share)| {
        let shares = seen.clone().map(|(_, shares)| {
            let mut cell = String::new();
            // Writing to a String cannot fail.
            let _ = write!(cell, "{:.1}", share(shares) * 100.0);
            cell
        });
        [(*operation).to_owned(), (*paper).to_owned()].into_iter().chain(shares).collect()
    });
    table(title, &head, rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "\
swapper     0 [000] \n\tffffffff81 pv_native_safe_halt\n\tffffffff82 do_idle\n\n\
distcc 71 [000] \n\tffffffff81 copy_from_user\n\tffffffff82 tcp_sendmsg\n\n\
distcc 71 [000] \n\tffffffff81 do_fork\n\n\
cc1 72 [000] \n\t7208c8 gcc::pass_manager::register_dump_files\n\n\
my rustc 9 [001] \n\t1 [unknown]\n\n\
outboard-engine 80 [001] \n\t1 <outboard_iwarp::rx::Rx>::handle\n\n";

    #[test]
    fn programs_and_stacks_say_what_a_processor_does() {
        let expected = [
            (0, Business::Idle),
            (0, Business::Transfer),
            (0, Business::Management),
            (0, Business::Compiler),
            (1, Business::Others),
            (1, Business::Transfer),
        ];
        let expected = expected.map(|(processor, business)| Look { processor, business });
        assert_eq!(looks(SCRIPT), expected);
    }

    #[test]
    fn a_server_of_two_has_half_of_what_was_seen() {
        let shares = Shares::of(&looks(SCRIPT), 1).unwrap().emulated(2.0).computing(0.5);
        let expected = Shares { compiler: 0.5, transfer: 0.25, idle: 0.25, ..Shares::default() };
        assert_eq!(shares, expected);
        assert!(Shares::of(&looks(SCRIPT), 2).is_err());
    }
}
