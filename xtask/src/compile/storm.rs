//! Thousands of small compilations at once, some of whose wrappers are killed: no process or file
//! is left over, no object is incomplete, and no process grows.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Check;
use super::site::{SERVERS, Site};
use super::statistics::FAILED;
use super::tree::Tree;

/// Number of wrappers at once.
const AT_ONCE: usize = 64;
/// Number of sources, each of which is compiled many times.
const SOURCES: usize = 50;
const STORM_MAX: Duration = Duration::from_secs(900);
/// How long the remains of killed wrappers may take to disappear.
const SETTLE_MAX: Duration = Duration::from_secs(20);
/// Memory by which all processes together may grow, in KiB: caches fill.
const GROWTH_MAX: u64 = 64 << 10;
/// Descriptors by which all processes together may grow: a few for new slot sandboxes.
const DESCRIPTORS_MAX: usize = 16;

/// One compilation. Of every five wrappers one is killed, before it has taken as long as another
/// did: on a busy machine all take longer.
const ONE: &str = r#"
n=$1
set -- gcc -c "$((n % SOURCES)).c" -o "out/$n.o"
case $((n % 5)) in
0)
    delay=$((n * 7 % $(cat took) + 1))
    delay="$((delay / 1000)).$(printf %03d $((delay % 1000)))"
    timeout -s KILL "$delay" outboard-cc "$@" 2>/dev/null || : ;;
1)
    began=$(date +%s%3N)
    outboard-cc "$@" || echo "$n" >> failed
    echo $(($(date +%s%3N) - began + 1)) > "took.$n" && mv "took.$n" took ;;
*) outboard-cc "$@" || echo "$n" >> failed ;;
esac
"#;
/// Milliseconds that a wrapper takes, as long as none has been measured.
const TOOK: &str = "300\n";

pub(super) fn checks(full: bool) -> Vec<Check> {
    let count = if full { 10_000 } else { 1_000 };
    let name = format!("storm: {count} compilations, wrappers killed");
    vec![Check::new(name, move |site| storm(site, count))]
}

fn storm(site: &mut Site, count: usize) -> Result<()> {
    let at = site.directory("storm")?;
    for number in 0..SOURCES {
        let text = format!("#include <stddef.h>\nsize_t f{number}(void) {{ return {number}; }}\n");
        fs::write(at.join(format!("{number}.c")), text)?;
        let (source, object) = (format!("{number}.c"), format!("{number}.o"));
        let mut compile = site.here("gcc");
        let compile = compile.args(["-c", &source, "-o", &object]).current_dir(&at);
        site.finish(compile, STORM_MAX)?;
    }
    site.warm(SERVERS)?;
    // The first round makes everything that is made once.
    compile_many(site, &at, count / 5)?;
    let before = Census::take(site)?;
    site.statistics()?;
    compile_many(site, &at, count)?;
    let statistics = site.statistics()?;
    println!(
        "  {} on servers, {} locally, {} abandoned",
        statistics.remote, statistics.local, statistics.abandoned
    );
    statistics.locally_only_for(FAILED)?;
    // Servers that are busy let others run locally.
    if statistics.abandoned == 0 || statistics.remote < AT_ONCE as u64 {
        bail!("no storm: {statistics:?}");
    }
    before.expect_no_more(site)
}

/// Compiles `count` times and checks the objects.
fn compile_many(site: &Site, at: &Path, count: usize) -> Result<()> {
    let out = at.join("out");
    super::site::remove(&out)?;
    fs::create_dir(&out)?;
    let numbers: String = (0..count).map(|number| format!("{number}\n")).collect();
    fs::write(at.join("numbers"), numbers)?;
    fs::write(at.join("took"), TOOK)?;
    let mut xargs = site.here("xargs");
    xargs.args(["--arg-file=numbers", "-n1", &format!("-P{AT_ONCE}"), "sh", "-c", ONE, "sh"]);
    site.finish(xargs.env("SOURCES", SOURCES.to_string()).current_dir(at), STORM_MAX)?;
    if let Ok(failed) = fs::read_to_string(at.join("failed")) {
        bail!("these failed: {failed}");
    }
    sleep(Duration::from_millis(500));
    let mut killed = 0;
    for number in 0..count {
        let object = out.join(format!("{number}.o"));
        match fs::read(&object) {
            Ok(made) if made == fs::read(at.join(format!("{}.o", number % SOURCES)))? => {}
            Ok(_) => bail!("{} has wrong contents", object.display()),
            Err(_) if number % 5 == 0 => killed += 1,
            Err(error) => return Err(error).context(format!("{}", object.display())),
        }
    }
    let left = Tree::read(&out)?.count("");
    if left + killed != count || killed == 0 {
        bail!("{count} compilations, {killed} without an object, {left} files");
    }
    Ok(())
}

/// All running processes, and the resources that they hold.
#[derive(Clone, Copy, Debug, Default)]
struct Census {
    processes: usize,
    descriptors: usize,
    memory: u64,
}

impl Census {
    fn take(site: &Site) -> Result<Self> {
        let mut all = Self::default();
        for host in [site.client()].into_iter().chain((0..SERVERS).map(|index| site.server(index)))
        {
            for process in host.group.processes()? {
                all.add(process);
            }
        }
        Ok(all)
    }

    /// A process that ends during the count is left out.
    fn add(&mut self, process: u32) {
        let place = Path::new("/proc").join(process.to_string());
        let Ok(status) = fs::read_to_string(place.join("status")) else { return };
        let resident = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let resident =
            resident.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        self.processes += 1;
        self.memory += resident.unwrap_or(0);
        self.descriptors += fs::read_dir(place.join("fd")).map_or(0, Iterator::count);
    }

    /// Waits until no more resources are in use than in this census, with some allowance.
    fn expect_no_more(self, site: &Site) -> Result<()> {
        let deadline = Instant::now() + SETTLE_MAX;
        loop {
            let after = Self::take(site)?;
            let fits = after.processes <= self.processes
                && after.descriptors <= self.descriptors + DESCRIPTORS_MAX
                && after.memory <= self.memory + GROWTH_MAX;
            if fits {
                println!("  before {self:?}, after {after:?}");
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("before {self:?}, after {after:?}");
            }
            sleep(Duration::from_millis(200));
        }
    }
}
