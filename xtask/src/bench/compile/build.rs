//! One build: `make` with a rule for each job, and its cost for each host.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::stage::Stage;
use super::work::Job;
use crate::process::Process;

/// Paths below the project's root: makefile and objects.
const MAKEFILE: &str = "bench.mk";
const OUTPUTS: &str = "out";
/// How long a build may take.
const BUILD_MAX: Duration = Duration::from_secs(300);

/// How compilations are handed over: the words in front of the compiler's name, and the
/// environment.
#[derive(Clone, Debug, Default)]
pub(super) struct Wrapper {
    /// A program, or none.
    pub(super) program: Option<String>,
    pub(super) environment: Vec<(&'static str, String)>,
}

/// The cost of a build.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    pub(super) jobs: usize,
    /// From start to end.
    pub(super) wall: Duration,
    /// Processor time of everything on the client, `make` included.
    pub(super) client: Duration,
    /// Processor time of everything on all servers together.
    pub(super) servers: Duration,
    /// Bytes that the client sent, with the headers of its packets.
    pub(super) sent: u64,
}

impl Cost {
    /// Milliseconds of the client's processor for a job.
    pub(super) fn client_ms(&self) -> f64 {
        self.each(self.client)
    }

    /// Milliseconds of the servers' processor for a job.
    pub(super) fn servers_ms(&self) -> f64 {
        self.each(self.servers)
    }

    fn each(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e3 / f64::from(u32::try_from(self.jobs).unwrap_or(u32::MAX))
    }
}

/// The values of the hosts' counters.
struct Counters {
    at: Instant,
    client: Duration,
    servers: Duration,
    sent: u64,
}

impl Counters {
    fn read(stage: &Stage) -> Result<Self> {
        let servers = stage.servers().map(|(host, _)| host.cpu());
        Ok(Self {
            servers: servers.sum::<Result<_>>()?,
            sent: stage.client().sent()?,
            client: stage.client().cpu()?,
            at: Instant::now(),
        })
    }
}

/// Builds all of `jobs` with up to `at_once` of them under way.
pub(super) fn run(stage: &Stage, wrapper: &Wrapper, jobs: &[Job], at_once: usize) -> Result<Cost> {
    let mut make = command(stage, wrapper, jobs, at_once)?;
    let before = Counters::read(stage)?;
    let log = stage.temporary(stage.client()).join("make.log");
    Process::start(&mut make, &log)?.finish(before.at + BUILD_MAX)?;
    let after = Counters::read(stage)?;
    Ok(Cost {
        jobs: jobs.len(),
        wall: after.at - before.at,
        client: after.client - before.client,
        servers: after.servers - before.servers,
        sent: after.sent - before.sent,
    })
}

/// The command for a build, with everything prepared for it.
pub(super) fn command(
    stage: &Stage,
    wrapper: &Wrapper,
    jobs: &[Job],
    at_once: usize,
) -> Result<Command> {
    let project = stage.project();
    let outputs = project.join(OUTPUTS);
    if outputs.is_dir() {
        fs::remove_dir_all(&outputs)?;
    }
    fs::create_dir(&outputs)?;
    fs::write(project.join(MAKEFILE), makefile(wrapper, jobs))?;
    let mut make = stage.client_command("make");
    make.args(["--silent", "--no-builtin-rules", "--file", MAKEFILE, "--jobs"]);
    make.arg(at_once.to_string()).current_dir(&project);
    make.envs(wrapper.environment.iter().map(|(name, value)| (name, value)));
    Ok(make)
}

/// A rule for each job. No word in them needs a shell, so `make` starts the wrapper itself.
fn makefile(wrapper: &Wrapper, jobs: &[Job]) -> String {
    let objects: Vec<String> = (0..jobs.len()).map(object).collect();
    let mut text = format!("all: {}\n", objects.join(" "));
    for (job, object) in jobs.iter().zip(&objects) {
        let before = wrapper.program.iter().map(|program| format!("{program} "));
        let before: String = before.collect();
        // Writing to a String cannot fail.
        let _ =
            writeln!(text, "{object}:\n\t{before}{} {}", job.compiler, job.words(object).join(" "));
    }
    text
}

fn object(index: usize) -> String {
    format!("{OUTPUTS}/{index}.o")
}

/// Checks that every object equals the recorded one.
pub(super) fn check(stage: &Stage, jobs: &[Job], records: &Path) -> Result<()> {
    for (index, job) in jobs.iter().enumerate() {
        let record = fs::read(records.join(job.key()?))?;
        let record = outboard_stand_in::record::Record::parse(&record);
        let record = record.with_context(|| format!("no record of {}", job.source))?;
        let path = stage.project().join(object(index));
        let found = fs::read(&path).with_context(|| format!("no {}", path.display()))?;
        if !record.outputs.iter().any(|output| output.content == found) {
            bail!("{} of {} is not what was recorded", path.display(), job.source);
        }
    }
    Ok(())
}

/// `count` jobs, taken from `jobs` repeatedly.
pub(super) fn repeated(jobs: &[Job], count: usize) -> Vec<Job> {
    jobs.iter().cycle().take(count).cloned().collect()
}
