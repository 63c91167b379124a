//! A cell: the first process of its pid namespace. It starts one job after the other, watches
//! over it, and reports when nothing of it is left.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, fstat, open, openat, unlinkat};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, pidfd_open, set_dumpable_behavior,
    set_parent_process_death_signal,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

use super::super::channel::{Channel, Report, SetUp, ToCell};
use super::super::job::{End, Job, Limits, Usage};
use super::super::service::CellSpec;
use super::raw::{self, Program, Wait};
use super::watch::{Sample, Watch};
use super::{At, Step, filter, root};

/// How often a job's time and output are looked at.
const TICK: Duration = Duration::from_millis(40);
/// Its memory is looked at again when it could have taken what is left: octets in a millisecond
/// that a machine can hand out, in the limits below.
const MEMORY_SPEED: u64 = 8 << 20;
const SAMPLE_MIN: Duration = Duration::from_millis(5);
const SAMPLE_MAX: Duration = Duration::from_millis(400);

/// The system counts processes of all of a client's cells together, so its limit is so many times
/// a job's; the cell itself counts its own.
const CELLS: u64 = 16;

/// What the process of a cell does: everything, to its end.
pub(super) fn run(spec: &CellSpec, channel: &Channel) -> ! {
    raw::default_signals();
    // Or the anchor's channel would stay open when the anchor is gone.
    raw::close_others(channel.as_fd());
    match set_up(spec) {
        Ok(mut cell) => {
            if channel.send(&SetUp::Ready, &[]).is_ok() {
                cell.serve(channel);
            }
        }
        Err(failure) => drop(channel.send(&SetUp::Failed(failure), &[])),
    }
    std::process::exit(0)
}

fn set_up(spec: &CellSpec) -> Step<Cell> {
    set_parent_process_death_signal(Some(Signal::KILL)).at("die with the anchor")?;
    root::enter(spec)?;
    let dir = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let tmp = open(&spec.tmp[..], dir, Mode::empty()).at("open the cell's temporary files")?;
    let proc = open("/proc", dir, Mode::empty()).at("open the cell's /proc")?;
    let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .at("open the cell's /dev/null")?;
    give_up_rights()?;
    Ok(Cell { tmp, null, watch: Watch::new(proc) })
}

/// Nothing that starts from here on can have a right; this process itself keeps what it needs to
/// clean up after jobs.
fn give_up_rights() -> Step<()> {
    for number in 0..64 {
        // Beyond the last one there is an error, which is fine.
        let capability = CapabilitySet::from_bits_retain(1 << number);
        let _ = remove_capability_from_bounding_set(capability);
    }
    let kept = CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER | CapabilitySet::KILL;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: none };
    set_capabilities(None, sets).at("give up capabilities")?;
    set_no_new_privs(true).at("give up new privileges")?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).at("become untraceable")?;
    raw::settle_addresses().at("settle the addresses of programs")?;
    filter::apply().at("filter system calls")
}

struct Cell {
    tmp: OwnedFd,
    null: OwnedFd,
    watch: Watch,
}

/// A job on its way.
struct Running {
    main: i32,
    limits: Limits,
    started: Instant,
    /// The main process's end, as the system puts it.
    status: Option<i32>,
    largest: u64,
    /// When to look at its memory again.
    sample_at: Instant,
    /// Why it was stopped.
    stopped: Option<End>,
}

impl Cell {
    /// Runs jobs until the service is gone.
    fn serve(&mut self, channel: &Channel) {
        while let Ok((message, fds)) = channel.receive::<ToCell>() {
            // To stop what has ended already is nothing.
            let (ToCell::Run, Ok([job, stdout, stderr])) = (message, <[_; 3]>::try_from(fds))
            else {
                continue;
            };
            let report = self.run(job, &stdout, &stderr, channel).unwrap_or_else(|error| {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                Report { end: End::NotStarted(errno), usage: Usage::default() }
            });
            if channel.send(&report, &[]).is_err() {
                return;
            }
        }
    }

    fn run(
        &self,
        job: OwnedFd,
        stdout: &OwnedFd,
        stderr: &OwnedFd,
        channel: &Channel,
    ) -> io::Result<Report> {
        let started = Instant::now();
        let (user, system) = raw::children_cpu();
        let mut octets = Vec::new();
        File::from(job).read_to_end(&mut octets)?;
        let job: Job = postcard::from_bytes(&octets).map_err(io::Error::other)?;
        let (failed, failed_there) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let standard = [self.null.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()];
        let main = raw::start(&program(&job, standard, failed_there.as_raw_fd())?)?;
        drop(failed_there);
        let limits = job.limits;
        let sample_at = started + sample_after(&limits, &Sample::default());
        let mut running =
            Running { main, limits, started, status: None, largest: 0, sample_at, stopped: None };
        self.supervise(&mut running, [stdout.as_fd(), stderr.as_fd()], channel);
        running.kill_rest();
        self.empty_tmp()?;
        let (user_after, system_after) = raw::children_cpu();
        let usage = Usage {
            user: user_after.saturating_sub(user),
            system: system_after.saturating_sub(system),
            wall: started.elapsed(),
            largest: running.largest,
        };
        Ok(Report { end: running.end(failed), usage })
    }

    /// Waits until the main process has ended or must be stopped.
    fn supervise(&self, job: &mut Running, output: [BorrowedFd<'_>; 2], channel: &Channel) {
        let pidfd =
            Pid::from_raw(job.main).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        while job.status.is_none() && job.stopped.is_none() {
            let ready = wait_for(pidfd.as_ref(), channel, job.tick());
            job.reap(false);
            if job.status.is_some() {
                return;
            }
            if ready.message {
                // Whatever it says, or that nobody is there any more.
                let _ = channel.receive::<ToCell>();
                job.stopped = Some(End::Stopped);
            } else if !ready.process {
                job.stopped = self.look(job, output);
            }
        }
    }

    /// Looks at what a job uses; says why it must be stopped, if it must.
    fn look(&self, job: &mut Running, output: [BorrowedFd<'_>; 2]) -> Option<End> {
        let written = |fd: BorrowedFd<'_>| fstat(fd).map_or(0, |stat| stat.st_size);
        let written = output.map(written).into_iter().max().unwrap_or_default();
        if job.started.elapsed() >= job.limits.wall {
            return Some(End::OutOfTime);
        }
        if u64::try_from(written).unwrap_or_default() > job.limits.output {
            return Some(End::OutOfOutput);
        }
        if Instant::now() < job.sample_at {
            return None;
        }
        let sample = self.watch.sample().unwrap_or_default();
        job.sample_at = Instant::now() + sample_after(&job.limits, &sample);
        if sample.resident > job.limits.memory {
            Some(End::OutOfMemory)
        } else if sample.processes > job.limits.processes {
            Some(End::OutOfProcesses)
        } else {
            None
        }
    }

    fn empty_tmp(&self) -> io::Result<()> {
        empty(self.tmp.as_fd())
    }
}

/// How long a job cannot use more than it may.
fn sample_after(limits: &Limits, sample: &Sample) -> Duration {
    let left = limits.memory.saturating_sub(sample.resident);
    Duration::from_millis(left / MEMORY_SPEED).clamp(SAMPLE_MIN, SAMPLE_MAX)
}

impl Running {
    /// How long nothing needs to be looked at.
    fn tick(&self) -> Duration {
        let now = Instant::now();
        let end = (self.started + self.limits.wall).saturating_duration_since(now);
        let sample = self.sample_at.saturating_duration_since(now);
        TICK.min(end).min(sample.max(Duration::from_millis(1)))
    }

    /// Reaps who has ended; whether anybody is left.
    fn reap(&mut self, block: bool) -> bool {
        loop {
            match raw::reap(block) {
                Ok(Wait::Dead(dead)) => {
                    self.largest = self.largest.max(dead.largest);
                    if dead.pid == self.main {
                        self.status = Some(dead.status);
                    }
                }
                Ok(Wait::Alive) if block => {}
                Ok(Wait::Alive) => return true,
                Ok(Wait::Nobody) | Err(_) => return false,
            }
        }
    }

    /// Ends whatever the job has left behind.
    fn kill_rest(&mut self) {
        while self.reap(false) {
            raw::kill_all();
            self.reap(true);
        }
    }

    fn end(&self, failed: OwnedFd) -> End {
        let mut errno = [0; 4];
        if let Ok(4) = File::from(failed).read(&mut errno) {
            return End::NotStarted(i32::from_ne_bytes(errno));
        }
        match (self.stopped, self.status) {
            (Some(end), _) => end,
            (None, Some(status)) if libc::WIFSIGNALED(status) => {
                End::Signalled(libc::WTERMSIG(status))
            }
            (None, Some(status)) => End::Exited(libc::WEXITSTATUS(status)),
            (None, None) => End::Stopped,
        }
    }
}

struct Ready {
    process: bool,
    message: bool,
}

fn wait_for(process: Option<&OwnedFd>, channel: &Channel, at_most: Duration) -> Ready {
    let mut fds = vec![PollFd::new(channel, PollFlags::IN)];
    fds.extend(process.map(|process| PollFd::new(process, PollFlags::IN)));
    let at_most = Timespec::try_from(at_most).ok();
    // Interrupted or not: who is ready says so.
    let _ = poll(&mut fds, at_most.as_ref());
    let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
    Ready { message: ready(0), process: ready(1) }
}

fn program(job: &Job, standard: [i32; 3], failed: i32) -> io::Result<Program> {
    let strings = |strings: &[Vec<u8>]| {
        strings.iter().map(|octets| CString::new(&octets[..])).collect::<Result<Vec<_>, _>>()
    };
    let limits = &job.limits;
    Ok(Program {
        path: CString::new(&job.program[..])?,
        arguments: strings(&job.arguments)?,
        environment: strings(&job.environment)?,
        directory: CString::new(&job.directory[..])?,
        umask: job.umask,
        limits: vec![
            (libc::RLIMIT_AS, limits.address_space),
            (libc::RLIMIT_CPU, limits.cpu_seconds),
            (libc::RLIMIT_FSIZE, limits.file),
            (libc::RLIMIT_NOFILE, limits.open_files.into()),
            (libc::RLIMIT_NPROC, u64::from(limits.processes) * CELLS),
            (libc::RLIMIT_CORE, 0),
        ],
        standard,
        failed,
    })
}

/// Removes everything in a directory.
fn empty(dir: BorrowedFd<'_>) -> io::Result<()> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if unlinkat(dir, name, AtFlags::empty()).is_err() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            empty(openat(dir, name, flags, Mode::empty())?.as_fd())?;
            unlinkat(dir, name, AtFlags::REMOVEDIR)?;
        }
    }
    Ok(())
}
