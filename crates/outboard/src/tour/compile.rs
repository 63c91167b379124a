//! The stop `compile`: a C project, built here and then by servers, and the outputs compared.

use super::build::{Built, OPTIONS, build};
use super::cluster::{Cluster, SERVERS};
use super::project::Project;
use super::{Guide, Trouble};
use outboard_cc::real::search_path;
use outboard_compile::stats::JobCounters;
use serde_json::{Value, json};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;

/// Compilers' names, the likeliest first.
const COMPILERS: [&str; 3] = ["gcc", "clang", "cc"];

/// How many words at fault are shown for local jobs.
const WORDS_MAX: usize = 3;

pub(super) fn show(guide: &Guide) -> Result<Value, Trouble> {
    let compiler = compiler()?;
    guide.say(&format!("   compiler  {}: {}", compiler.display(), version(&compiler)?));
    let project = Project::fetch(guide)?;
    guide.say(&format!(
        "   sources   Lua 5.3, 5.4 and 5.5, from cargo's registry: {} C files, {:.1} MB",
        project.sources.len(),
        mega(project.bytes),
    ));
    let cluster = Cluster::start(guide)?;
    guide.say(&format!(
        "   servers   {SERVERS} on loopback, {} slots each: own processes, sandboxes, encryption",
        cluster.slots / SERVERS,
    ));
    let processors = available_parallelism().map_or(1, usize::from);
    let local = build(guide, &project, processors, "here", || Ok(Command::new(&compiler)))?;
    guide.say(&format!(
        "   here      {} {}, {processors} at a time: {:.1} s",
        compiler.display(),
        OPTIONS.join(" "),
        local.time.as_secs_f64(),
    ));
    let remote = build(guide, &project, cluster.slots, "on servers", || {
        let mut command = cluster.command()?;
        command.arg("cc").arg(&compiler);
        Ok(command)
    })?;
    let counters = cluster.statistics(guide)?.counters;
    print_counters(guide, &cluster, &remote, &counters);
    let compared = Compared::new(&local.directory, &remote.directory)?;
    guide.say(&format!("   compared  {compared}"));
    let said = link(&cluster, &project, &compiler, &remote)?;
    guide.say(&format!("   linked    here, and it runs: {said}"));
    if !compared.different.is_empty() {
        let different = compared.different.join(", ");
        return Err(Trouble::Failed(format!("different from the local build: {different}")));
    }
    guide.say(CLOSE);
    Ok(figures(&[&local, &remote], &cluster, &counters, &compared))
}

const CLOSE: &str =
    "   All servers share this machine's processors, so nothing is gained here: with \
servers on
   other machines it is. More: outboard cc --help, outboard node --help, docs/cc.md";

fn compiler() -> Result<PathBuf, Trouble> {
    let path = search_path();
    let found = COMPILERS
        .iter()
        .find(|name| env::split_paths(&path).any(|directory| directory.join(name).is_file()));
    found.map(PathBuf::from).ok_or_else(|| {
        Trouble::LeftOut("there is no C compiler in PATH: apt-get install gcc libc6-dev".into())
    })
}

fn version(compiler: &Path) -> Result<String, Trouble> {
    let output = Command::new(compiler).arg("--version").output();
    let output = output.map_err(|error| Trouble::left_out("the C compiler", error))?;
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.lines().next().unwrap_or_default().to_owned())
}

fn print_counters(guide: &Guide, cluster: &Cluster, built: &Built, counters: &JobCounters) {
    guide.say(&format!(
        "   by them   the same, {} at a time: {:.1} s; {} jobs on servers, {} locally",
        cluster.slots,
        built.time.as_secs_f64(),
        counters.remote,
        counters.local,
    ));
    for address in cluster.addresses() {
        guide.say(&format!("             {address:<18} {:>4} jobs", jobs_of(counters, address)));
    }
    for (cause, count) in &counters.causes {
        guide.say(&format!("             {:<18} {count:>4} jobs: {cause}", "local"));
    }
    for word in counters.words.keys().take(WORDS_MAX) {
        guide.say(&format!("               {word}"));
    }
    guide.say(&format!(
        "             they read {:.1} MB out of the client's memory, one-sided, and wrote {:.1} MB",
        mega(counters.bytes_out),
        mega(counters.bytes_in),
    ));
}

/// Jobs whose results came from that server.
fn jobs_of(counters: &JobCounters, address: &str) -> u64 {
    counters.servers.get(address).map_or(0, |server| server.jobs)
}

/// Two builds' outputs.
#[derive(Debug, Default)]
struct Compared {
    identical: usize,
    different: Vec<String>,
}

impl Compared {
    /// Both directories have the same subdirectories.
    fn new(here: &Path, there: &Path) -> Result<Self, Trouble> {
        let mut compared = Self::default();
        for directory in fs::read_dir(here)? {
            let directory = PathBuf::from(directory?.file_name());
            for file in fs::read_dir(here.join(&directory))? {
                let name = directory.join(file?.file_name());
                let (one, other) = (fs::read(here.join(&name))?, fs::read(there.join(&name)).ok());
                if other.is_some_and(|other| one == other) {
                    compared.identical += 1;
                } else {
                    compared.different.push(name.display().to_string());
                }
            }
        }
        Ok(compared)
    }
}

impl std::fmt::Display for Compared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.identical + self.different.len();
        write!(f, "{} of {all} objects and dependency files are identical", self.identical)
    }
}

/// Links what the servers made, and runs that.
fn link(
    cluster: &Cluster,
    project: &Project,
    compiler: &Path,
    built: &Built,
) -> Result<String, Trouble> {
    let mut command = cluster.command()?;
    command.arg("cc").arg(compiler).args(project.link(&built.directory));
    let linked = command.current_dir(&project.directory).output()?;
    if !linked.status.success() {
        return Err(Trouble::failed("linking", String::from_utf8_lossy(&linked.stderr)));
    }
    let ran = Command::new(project.directory.join("lua-tour")).output()?;
    if !ran.status.success() {
        return Err(Trouble::failed("the program", String::from_utf8_lossy(&ran.stderr)));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}

fn figures(
    builds: &[&Built; 2],
    cluster: &Cluster,
    counters: &JobCounters,
    compared: &Compared,
) -> Value {
    let jobs = |address| json!({ "server": address, "jobs": jobs_of(counters, address) });
    json!({
        "seconds_here": builds[0].time.as_secs_f64(),
        "seconds_on_servers": builds[1].time.as_secs_f64(),
        "servers": cluster.addresses().map(jobs).collect::<Vec<_>>(),
        "jobs_on_servers": counters.remote,
        "jobs_locally": counters.local,
        "causes_locally": counters.causes,
        "words_locally": counters.words,
        "bytes_to_servers": counters.bytes_out,
        "bytes_back": counters.bytes_in,
        "identical": compared.identical,
        "different": compared.different,
    })
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
