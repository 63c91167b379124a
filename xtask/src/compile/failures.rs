//! Servers that die, hang, lose their link, their disk or its contents while a build is under way:
//! the build succeeds with the same outputs.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::Check;
use super::project::{Amount, BUILD_MAX, Kind, Place, Project};
use super::site::{SERVERS, Setup, Site};
use super::statistics::{FAILED, ORDINARY, Statistics};
use super::tree::Tree;
use crate::command;
use crate::lab::Cable;
use crate::process::Process;

/// Number of objects that exist when the failure occurs.
const MIDWAY: usize = 8;
/// Builds that are begun at most: on a busy machine one may be over before it is looked at.
const TRIES_MAX: usize = 3;
/// Blocks that are left on a full disk.
const BLOCKS_MAX: u32 = 4;
const PAUSE: Duration = Duration::from_millis(5);

/// The files of a local build, with which all others are compared.
type Reference = Rc<RefCell<Option<Tree>>>;

/// The failure in the middle of a build.
type Fault = fn(&mut Site) -> Result<()>;

/// A check for each way to fail.
pub(super) fn checks(full: bool) -> Vec<Check> {
    let reference = Reference::default();
    let faults: [(&str, Fault); 4] = [
        ("a server killed", |site| site.kill(0)),
        ("a server stopped", |site| site.signal(0, "STOP")),
        ("a link cut", |site| site.cable(0, Cable::Cut)),
        ("all servers gone", |site| (0..SERVERS).try_for_each(|index| site.kill(index))),
    ];
    let build = if full { (Amount::Whole, "-O2 -g") } else { (Amount::Sample, "-O0") };
    let mut checks = Vec::new();
    let mut add = |name: &str, run: fn(&mut Site, &Bench) -> Result<()>, fault: Fault| {
        let bench = Bench { build, reference: Rc::clone(&reference), fault };
        checks.push(Check::new(format!("failure: {name}"), move |site| run(site, &bench)));
    };
    for (name, fault) in faults {
        add(name, struck, fault);
    }
    add("disks full", full_disks, |_| Ok(()));
    add("stores altered", altered_stores, alter_stores);
    checks
}

/// The project whose builds are disturbed, and its local build.
struct Bench {
    build: (Amount, &'static str),
    reference: Reference,
    fault: Fault,
}

impl Bench {
    fn project(&self, site: &Site) -> Result<(Project, Tree)> {
        let project = Project::prepare(site, Kind::Redis, self.build.0, self.build.1)?;
        let mut kept = self.reference.borrow_mut();
        let home = match kept.take() {
            Some(home) => home,
            None => project.make(site, Place::Local)?,
        };
        *kept = Some(home.clone());
        Ok((project, home))
    }

    /// A build in the middle of which the failure occurs.
    fn strike(&self, site: &mut Site) -> Result<Statistics> {
        let (project, home) = self.project(site)?;
        let deadline = Instant::now() + BUILD_MAX;
        let mut tries = (0..TRIES_MAX).map(|_| midway(site, &project, deadline));
        let Some(mut build) = tries.find_map(Result::transpose).transpose()? else {
            bail!("{TRIES_MAX} builds were over before the failure");
        };
        (self.fault)(site)?;
        if build.succeeded(deadline)? {
            bail!("the build was over when the failure occurred");
        }
        build.finish(deadline)?;
        home.expect(&project.made()?)?;
        let statistics = site.statistics()?;
        statistics.locally_only_for(&[ORDINARY, FAILED].concat())?;
        Ok(statistics)
    }
}

/// Begins a build, and waits until it is in its middle. None if it is over.
fn midway(site: &Site, project: &Project, deadline: Instant) -> Result<Option<Process>> {
    let mut build = project.start(site, Place::Elsewhere)?;
    while project.progress() < MIDWAY {
        if build.succeeded(deadline)? {
            return Ok(None);
        }
        sleep(PAUSE);
    }
    Ok(Some(build))
}

fn struck(site: &mut Site, bench: &Bench) -> Result<()> {
    site.warm(SERVERS)?;
    let statistics = bench.strike(site)?;
    println!("  {} on servers, {} locally", statistics.remote, statistics.local);
    Ok(())
}

/// Every server's cache is a file system with next to no space.
fn full_disks(site: &mut Site, bench: &Bench) -> Result<()> {
    for index in 0..SERVERS {
        site.replace(index, &Setup { disk: Some("64k"), ..Setup::default() })?;
    }
    site.warm(SERVERS)?;
    let statistics = bench.strike(site)?;
    statistics.locally_only_for(ORDINARY)?;
    for index in 0..SERVERS {
        let root = PathBuf::from(format!("/proc/{}/root", site.node(index)?));
        let cache = root.join(site.cache(index).strip_prefix("/")?);
        // Not df, which would look for the path on this side.
        let mut stat = Command::new("stat");
        stat.args(["--file-system", "--format=%a"]).arg(cache);
        let left: u32 = command::output(&mut stat)?.trim().parse()?;
        if left > BLOCKS_MAX {
            bail!("the disk of server {index} was not full: {left} blocks left");
        }
    }
    Ok(())
}

/// Stored contents of servers are altered between two builds, and again during the second.
fn altered_stores(site: &mut Site, bench: &Bench) -> Result<()> {
    site.warm(SERVERS)?;
    let (project, home) = bench.project(site)?;
    home.expect(&project.make(site, Place::Elsewhere)?)?;
    for index in 0..SERVERS {
        site.kill(index)?;
    }
    alter_stores(site)?;
    for index in 0..SERVERS {
        site.replace(index, &Setup::default())?;
    }
    site.warm(SERVERS)?;
    bench.strike(site)?.locally_only_for(ORDINARY)
}

/// Alters every file of every server's store, without changing its size.
fn alter_stores(site: &mut Site) -> Result<()> {
    for index in 0..SERVERS {
        let mut altered = 0;
        for first in fs::read_dir(site.cache(index).join("store"))? {
            for file in fs::read_dir(first?.path())? {
                altered += usize::from(alter(&file?.path())?);
            }
        }
        if altered < 20 {
            bail!("server {index} keeps only {altered} files");
        }
    }
    Ok(())
}

/// False if the file is empty, or has been removed.
fn alter(path: &Path) -> Result<bool> {
    let Ok(mut bytes) = fs::read(path) else { return Ok(false) };
    let Some(byte) = bytes.last_mut() else { return Ok(false) };
    *byte = byte.wrapping_add(1);
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    fs::write(path, bytes)?;
    Ok(true)
}
