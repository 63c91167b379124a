//! A source and receivers as hosts of a lab, each receiver with a destination in memory of its own
//! at a path that all share; what is cast; and how long a program takes, and what it costs.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, Result, bail};

use super::turns::Recovers;
use crate::command;
use crate::lab::{Host, Lab, Link};
use crate::process::reap;
use crate::scratch::Scratch;

/// How long servers may take to listen, all on one machine.
const LISTEN_MAX: Duration = Duration::from_secs(60);
/// How long any cast may take.
const CAST_MAX: Duration = Duration::from_secs(240);
const PAUSE: Duration = Duration::from_millis(1);
/// Ticks of `/proc/stat` in a second.
const TICKS: f64 = 100.0;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct CastStage {
    running: Vec<Child>,
    lab: Lab,
    files: u32,
    ends: u32,
    // The last: what is below it is unmounted when no process uses it any more.
    scratch: Scratch,
}

/// What is cast.
#[derive(Clone, Debug)]
pub(super) struct SourceFile {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// What a program took.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageCost {
    pub(super) seconds: f64,
    /// Processor time of the programs of all hosts.
    pub(super) cpu_s: f64,
    /// Processor time of the whole machine, the kernel's own threads and interrupts included.
    pub(super) machine_s: f64,
}

impl CastStage {
    pub(super) fn new(receivers: usize, link: Link) -> Result<Self> {
        let options = "mode=755,size=80%";
        let scratch = Scratch::in_memory(&env::temp_dir(), "outboard-bench-cast-", options)?;
        let all = format!("0-{}", thread::available_parallelism()?.get() - 1);
        let lab = Lab::new(&vec![&*all; 1 + receivers], link)?;
        let stage = Self { running: Vec::new(), lab, files: 0, ends: 0, scratch };
        stage.directory("at")?;
        stage.directory("source")?;
        for index in 0..receivers {
            let disk = stage.directory(&format!("disk{index}"))?;
            fs::set_permissions(disk, Permissions::from_mode(0o1777))?;
        }
        Ok(stage)
    }

    /// How many there are.
    pub(super) fn receivers(&self) -> usize {
        self.lab.hosts().len() - 1
    }

    pub(super) fn source_host(&self) -> &Host {
        &self.lab.hosts()[0]
    }

    pub(super) fn receiver(&self, index: usize) -> &Host {
        &self.lab.hosts()[1 + index]
    }

    /// The address of every receiver, in order.
    pub(super) fn addresses(&self) -> Vec<String> {
        (0..self.receivers()).map(|index| self.receiver(index).address.to_string()).collect()
    }

    /// Gives a receiver's link another rate.
    pub(super) fn relink(&self, index: usize, link: Link) -> Result<()> {
        self.lab.relink(1 + index, link)
    }

    /// The destination, as receivers see it.
    pub(super) fn destination(&self) -> PathBuf {
        self.scratch.path("at")
    }

    /// A receiver's destination, as it is seen from outside.
    pub(super) fn disk(&self, index: usize) -> PathBuf {
        self.scratch.path(format!("disk{index}"))
    }

    pub(super) fn directory(&self, name: &str) -> Result<PathBuf> {
        self.scratch.directory(name)
    }

    /// A new file of random bytes, under a name that was not cast before.
    pub(super) fn file(&mut self, bytes: u64) -> Result<SourceFile> {
        self.files += 1;
        let path = self.directory("source")?.join(format!("file{}", self.files));
        let mut random = File::open("/dev/urandom")?.take(bytes);
        io::copy(&mut random, &mut File::create(&path)?)?;
        Ok(SourceFile { path, bytes })
    }

    /// A program on the source's host.
    pub(super) fn here(&self, program: impl AsRef<OsStr>) -> Command {
        quiet(self.source_host().command(program))
    }

    /// A program on a receiver's host, which sees its own destination.
    pub(super) fn at(&self, index: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = quiet(self.receiver(index).command("unshare"));
        command::showing(&mut command, &self.disk(index), &self.destination()).arg(program);
        command
    }

    /// Starts a program that runs until [`Self::end_all`].
    pub(super) fn start(&mut self, command: &mut Command) -> Result<u32> {
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot start {}", command::line(command)))?;
        let process = child.id();
        self.running.push(child);
        Ok(process)
    }

    /// Waits until something listens on `port` beside a process.
    pub(super) fn wait_listening(&self, process: u32, port: u16) -> Result<()> {
        let deadline = Instant::now() + LISTEN_MAX;
        while !command::listens_beside(&process.to_string(), port).unwrap_or(false) {
            if Instant::now() > deadline {
                bail!("nothing listens on port {port}");
            }
            sleep(PAUSE);
        }
        Ok(())
    }

    /// Ends everything that runs on the hosts.
    pub(super) fn end_all(&mut self) -> Result<()> {
        self.ends += 1;
        self.lab.hosts().iter().try_for_each(|host| host.group.kill())?;
        for mut child in self.running.drain(..) {
            child.wait()?;
        }
        Ok(())
    }

    /// How often everything was ended.
    pub(super) fn ends(&self) -> u32 {
        self.ends
    }

    /// Runs a program to its successful end; says what it took, and what it printed.
    pub(super) fn run(&self, command: &mut Command) -> Result<(StageCost, String)> {
        self.measured(|| {
            let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let mut child =
                output.with_context(|| format!("cannot start {}", command::line(command)))?;
            wait_end(&mut child).with_context(|| command::line(command))?;
            let output = child.wait_with_output()?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let said = said + &String::from_utf8_lossy(&output.stdout);
                bail!("{} failed: {}: {said}", command::line(command), output.status);
            }
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        })
    }

    /// Does something, and says what it took.
    pub(super) fn measured<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(StageCost, T)> {
        let (cpu, machine, began) = (self.lab.group().cpu()?, machine_busy()?, Instant::now());
        let done = work()?;
        let cost = StageCost {
            seconds: began.elapsed().as_secs_f64(),
            cpu_s: (self.lab.group().cpu()? - cpu).as_secs_f64(),
            machine_s: machine_busy()? - machine,
        };
        Ok((cost, done))
    }

    /// Requires that all receivers have the file, and removes it everywhere.
    pub(super) fn check(&self, file: &SourceFile) -> Result<()> {
        let name = file.path.file_name().unwrap_or_default();
        for index in 0..self.receivers() {
            let copy = self.disk(index).join(name);
            if !are_equal(&file.path, &copy)? {
                bail!("receiver {index} has other bytes than were cast");
            }
            fs::remove_file(copy)?;
        }
        Ok(fs::remove_file(&file.path)?)
    }
}

impl Recovers for CastStage {
    /// Ends everything, and removes what was cast and what has come of it.
    fn recover(&mut self) -> Result<()> {
        self.end_all()?;
        let disks = (0..self.receivers()).map(|index| self.disk(index));
        for directory in disks.chain([self.scratch.path("source")]) {
            for entry in fs::read_dir(directory)? {
                let path = entry?.path();
                if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
            }
        }
        Ok(())
    }
}

impl Drop for CastStage {
    fn drop(&mut self) {
        // What still runs then is ended by the lab.
        let _ = self.end_all();
    }
}

/// Waits for a program's end, for as long as any cast may take.
pub(super) fn wait_end(child: &mut Child) -> Result<ExitStatus> {
    let deadline = Instant::now() + CAST_MAX;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            reap(child)?;
            bail!("it does not end within {} s", CAST_MAX.as_secs());
        }
        sleep(PAUSE);
    }
}

/// Without input, and with the errors of programs that run in the background thrown away.
fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Seconds that all processors have been busy since the machine started.
fn machine_busy() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let idle: f64 = ticks.iter().skip(3).take(2).sum();
    Ok((ticks.iter().take(7).sum::<f64>() - idle) / TICKS)
}

fn are_equal(one: &Path, other: &Path) -> Result<bool> {
    let open =
        |path: &Path| File::open(path).with_context(|| format!("{} has not come", path.display()));
    let (mut one, mut other) = (open(one)?, open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let len = one.read(&mut left)?;
        if len == 0 {
            return Ok(true);
        }
        other.read_exact(&mut right[..len])?;
        if left[..len] != right[..len] {
            return Ok(false);
        }
    }
}
