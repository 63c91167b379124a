//! Files that change while a build runs: edited, generated, removed, truncated. Compilers see the
//! state when they were started, or a later one; never an older one, never a half-written one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Check;
use super::site::{SERVERS, Site};
use super::statistics::{FAILED, RERUN};
use crate::process::Process;

const COMPILE_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);
/// Number of compilations that are under way together.
const AT_ONCE: usize = 6;
/// Bytes of a source that is too large for one read.
const LARGE: usize = 6 << 20;

pub(super) fn checks(full: bool) -> Vec<Check> {
    let rounds = if full { 200 } else { 12 };
    vec![
        Check::new("edit: a header, and compiled at once", move |site| edited(site, rounds)),
        Check::new("edit: a header while it is compiled", move |site| during(site, rounds)),
        Check::new("edit: a header that comes and goes", move |site| generated(site, rounds)),
        Check::new("edit: a source truncated", move |site| truncated(site, rounds)),
    ]
}

/// A project of a few sources that include one header.
struct Bench<'a> {
    site: &'a Site,
    at: PathBuf,
}

impl<'a> Bench<'a> {
    fn new(site: &'a Site) -> Result<Self> {
        let at = site.directory("edits")?;
        fs::write(at.join("Makefile"), "")?;
        // Left by another check.
        let _ = fs::remove_file(at.join("value.h"));
        for number in 0..AT_ONCE {
            let text = "#include <stdio.h>\n#if __has_include(\"value.h\")\n#include \"value.h\"\n\
                        #else\n#define VALUE 0\n#endif\nlong value = VALUE;\n";
            fs::write(at.join(format!("{number}.c")), text)?;
        }
        let bench = Self { site, at };
        site.warm(SERVERS)?;
        Ok(bench)
    }

    /// Writes the header in place, always with the same length.
    fn write(&self, value: usize) -> Result<()> {
        Ok(fs::write(self.at.join("value.h"), format!("#define VALUE {value:9}L\n"))?)
    }

    fn compiler(&self, what: &str, source: &str, object: &str) -> Command {
        let mut compile = self.site.here("outboard-cc");
        compile.args(["gcc", what, source, "-o", object]).current_dir(&self.at);
        compile
    }

    /// Starts compilations over existing outputs, as in most builds; these were not made by a
    /// compiler.
    fn start(&self) -> Result<Vec<Process>> {
        for number in 0..AT_ONCE {
            fs::write(self.at.join(format!("{number}.s")), "of no compiler\n")?;
        }
        let start = |number: usize| {
            self.site.start(&mut self.compiler(
                "-S",
                &format!("{number}.c"),
                &format!("{number}.s"),
            ))
        };
        (0..AT_ONCE).map(start).collect()
    }

    /// The values of the header that the objects contain.
    fn values(&self) -> Result<Vec<usize>> {
        let value = |number: usize| {
            let text = fs::read_to_string(self.at.join(format!("{number}.s")))?;
            let line = text.lines().find_map(|line| {
                let line = line.trim();
                if line.starts_with(".zero") { Some("0") } else { line.strip_prefix(".quad\t") }
            });
            Ok(line.with_context(|| format!("no value in {text}"))?.parse()?)
        };
        (0..AT_ONCE).map(value).collect()
    }

    fn compile(&self) -> Result<Vec<usize>> {
        finish(self.start()?)?;
        self.values()
    }
}

fn finish(compilations: Vec<Process>) -> Result<()> {
    let deadline = Instant::now() + COMPILE_MAX;
    compilations.into_iter().try_for_each(|mut one| one.finish(deadline).map(drop))
}

/// Most jobs have to run remotely, or else the check proves nothing.
fn expect_remote(site: &Site, jobs: usize, besides: &[&str]) -> Result<()> {
    let statistics = site.statistics()?;
    statistics.locally_only_for(&[FAILED, besides].concat())?;
    if statistics.remote < (jobs / 2) as u64 {
        bail!("{jobs} jobs: {statistics:?}");
    }
    Ok(())
}

fn edited(site: &mut Site, rounds: usize) -> Result<()> {
    let bench = Bench::new(site)?;
    for round in 1..=rounds {
        bench.write(round)?;
        let values = bench.compile()?;
        if values != [round; AT_ONCE] {
            bail!("the header had {round}; compilers that were started then saw {values:?}");
        }
    }
    expect_remote(site, rounds * AT_ONCE, &[])
}

fn during(site: &mut Site, rounds: usize) -> Result<()> {
    let bench = Bench::new(site)?;
    for round in 1..=rounds {
        bench.write(round)?;
        let compilations = bench.start()?;
        sleep(PAUSE * u32::try_from(round * 7 % 40)?);
        bench.write(round + 1)?;
        finish(compilations)?;
        let values = bench.values()?;
        if values.iter().any(|value| ![round, round + 1].contains(value)) {
            bail!("the header had {round} and then {}; compilers saw {values:?}", round + 1);
        }
    }
    // The header is empty for a moment while it is written.
    expect_remote(site, rounds * AT_ONCE, &[RERUN])
}

fn generated(site: &mut Site, rounds: usize) -> Result<()> {
    let bench = Bench::new(site)?;
    for round in 1..=rounds {
        let absent = bench.compile()?;
        bench.write(round)?;
        let present = bench.compile()?;
        // By rename, as careful generators do it.
        fs::write(bench.at.join("value.new"), format!("#define VALUE {:9}L\n", round + 1))?;
        fs::rename(bench.at.join("value.new"), bench.at.join("value.h"))?;
        let replaced = bench.compile()?;
        fs::remove_file(bench.at.join("value.h"))?;
        let expected = [[0; AT_ONCE], [round; AT_ONCE], [round + 1; AT_ONCE]];
        if [&*absent, &*present, &*replaced] != expected {
            let statistics = site.statistics()?;
            bail!("round {round}: {absent:?}, {present:?}, {replaced:?}; {statistics:?}");
        }
    }
    expect_remote(site, 3 * rounds * AT_ONCE, &[])
}

fn truncated(site: &mut Site, rounds: usize) -> Result<()> {
    let bench = Bench::new(site)?;
    let (first, last) = ("int first;\n", "int last;\n");
    let whole = [first, &"// filler\n".repeat(LARGE / 10), last].concat();
    let locally = |name: &str, text: &str| -> Result<Vec<u8>> {
        fs::write(bench.at.join("large.c"), text)?;
        let mut compile = site.here("gcc");
        compile.args(["-c", "large.c", "-o", name]).current_dir(&bench.at);
        site.finish(&mut compile, COMPILE_MAX)?;
        Ok(fs::read(bench.at.join(name))?)
    };
    let (short, long) = (locally("short.o", first)?, locally("long.o", &whole)?);
    let object = bench.at.join("large.o");
    let (mut seen, mut cut) = ([0; 2], 0);
    for round in 0..rounds {
        fs::write(bench.at.join("large.c"), &whole)?;
        let mut compile = site.start(&mut bench.compiler("-c", "large.c", "large.o"))?;
        sleep(PAUSE * u32::try_from(round * 13 % 60)?);
        truncate(&bench.at.join("large.c"), first.len())?;
        match compile.finish(Instant::now() + COMPILE_MAX) {
            // So the kernel shows a file to a local compiler that reads it at that moment: plain
            // gcc fails as well, in 2 of 400 such rounds.
            Err(error) if error.to_string().contains("null character(s) ignored") => {
                cut += 1;
                continue;
            }
            finished => finished?,
        };
        let made = fs::read(&object)?;
        let which = [&short, &long].iter().position(|whole| **whole == made);
        seen[which.context("an object from contents that never existed")?] += 1;
        fs::remove_file(&object)?;
    }
    println!("  {} compiled as truncated, {} as they had been, {cut} cut", seen[0], seen[1]);
    if cut > 1 + rounds / 20 {
        bail!("{cut} of {rounds} compilers read zeros");
    }
    // A process that reads files through mappings would have been killed by SIGBUS.
    let statistics = site.statistics()?;
    bench.write(1)?;
    if bench.compile()? != [1; AT_ONCE] || site.statistics()?.remote == 0 {
        bail!("nothing runs remotely any more: {statistics:?}");
    }
    Ok(())
}

fn truncate(path: &Path, len: usize) -> Result<()> {
    Ok(fs::File::options().write(true).open(path)?.set_len(len as u64)?)
}
