//! A slot sandbox: the first process of its pid namespace. It runs one job at a time, watches it,
//! and reports when all of the job's processes are gone.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use outboard_unix::names::for_each_name;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{
    AtFlags, Mode, OFlags, SeekFrom, fstatvfs, open, openat, renameat, seek, tell, unlinkat,
};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, pidfd_open, set_dumpable_behavior,
    set_parent_process_death_signal,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

use super::super::channel::{JobReport, SandboxChannel, SetUp, ToSlot};
use super::super::job::{JobEnd, JobLimits, JobUsage, SandboxJob};
use super::super::service::{OBJECT, PROC, SlotSandboxSpec};
use super::raw::{self, PreparedExec, Reaped};
use super::watch::{ProcessWatch, Sample};
use super::{At, SetUpResult, filter, root};

/// A job's use of resources is sampled at least this often: its output cannot grow beyond its file.
const TICK: Duration = SAMPLE_MAX;
/// Memory is sampled again when the job could have allocated what its limit leaves: bytes that a
/// machine can allocate in a millisecond, within the limits below.
const MEMORY_SPEED: u64 = 8 << 20;
const SAMPLE_MIN: Duration = Duration::from_millis(5);
const SAMPLE_MAX: Duration = Duration::from_millis(400);

/// The system counts the processes of all of a client's slot sandboxes together, so its limit is
/// this multiple of a job's limit; the slot sandbox itself counts its own.
const CELLS: u64 = 16;

/// The main function of a slot sandbox's process. Never returns.
pub(super) fn run(spec: &SlotSandboxSpec, channel: &SandboxChannel) -> ! {
    raw::default_signals();
    // Otherwise the supervisor's channel would stay open when the supervisor is gone.
    raw::close_others(channel.as_fd());
    match set_up(spec) {
        Ok(mut slot_sandbox) => {
            if channel.send(&SetUp::Ready, &[]).is_ok() {
                slot_sandbox.serve(channel);
            }
        }
        Err(failure) => drop(channel.send(&SetUp::Failed(failure), &[])),
    }
    std::process::exit(0)
}

fn set_up(spec: &SlotSandboxSpec) -> SetUpResult<JobRunner> {
    set_parent_process_death_signal(Some(Signal::KILL)).at("die with the supervisor")?;
    root::enter(spec)?;
    let dir = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let tmp =
        open(&spec.tmp[..], dir, Mode::empty()).at("open the slot sandbox's temporary files")?;
    let proc = open(PROC, dir, Mode::empty()).at("open the slot sandbox's /proc")?;
    let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .at("open the slot sandbox's /dev/null")?;
    give_up_rights()?;
    Ok(JobRunner { tmp, null, watch: ProcessWatch::new(proc) })
}

/// Drops the rights of every process that starts from here on; this process itself keeps what it
/// needs to clean up after jobs.
fn give_up_rights() -> SetUpResult<()> {
    for number in 0..64 {
        // Beyond the last capability there is an error, which is expected.
        let capability = CapabilitySet::from_bits_retain(1 << number);
        let _ = remove_capability_from_bounding_set(capability);
    }
    let kept = CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER | CapabilitySet::KILL;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: none };
    set_capabilities(None, sets).at("give up capabilities")?;
    set_no_new_privs(true).at("give up new privileges")?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).at("become untraceable")?;
    raw::fix_addresses().at("disable address randomization")?;
    filter::apply().at("filter system calls")
}

struct JobRunner {
    tmp: OwnedFd,
    null: OwnedFd,
    watch: ProcessWatch,
}

/// A job that runs.
struct RunningJob {
    main: i32,
    limits: JobLimits,
    started: Instant,
    /// How the main process ended, as the system reports it.
    status: Option<i32>,
    largest: u64,
    /// When to sample its memory again.
    sample_at: Instant,
    /// Why it was stopped.
    stopped: Option<JobEnd>,
}

impl JobRunner {
    /// Runs jobs until the service is gone.
    fn serve(&mut self, channel: &SandboxChannel) {
        while let Ok((message, fds)) = channel.receive::<ToSlot>() {
            // A stop for a job that has ended already has no effect.
            let (ToSlot::Run, Ok([job, stdout, stderr])) = (message, <[_; 3]>::try_from(fds))
            else {
                continue;
            };
            let ran = self.run(job, &stdout, &stderr, channel);
            let (report, object) = ran.unwrap_or_else(|error| {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                (JobReport { end: JobEnd::NotStarted(errno), usage: JobUsage::default() }, None)
            });
            let object: Vec<_> = object.iter().map(AsFd::as_fd).collect();
            if channel.send(&report, &object).is_err() {
                return;
            }
        }
    }

    fn run(
        &self,
        job: OwnedFd,
        stdout: &OwnedFd,
        stderr: &OwnedFd,
        channel: &SandboxChannel,
    ) -> io::Result<(JobReport, Option<OwnedFd>)> {
        let started = Instant::now();
        let (user, system) = raw::children_cpu();
        let mut bytes = Vec::new();
        File::from(job).read_to_end(&mut bytes)?;
        let job: SandboxJob = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
        let (failed, failed_there) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let standard = [self.null.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()];
        let main = raw::start(&program(&job, standard, failed_there.as_raw_fd())?)?;
        drop(failed_there);
        let limits = job.limits;
        let sample_at = started + sample_after(&limits, &Sample::default());
        let mut running = RunningJob {
            main,
            limits,
            started,
            status: None,
            largest: 0,
            sample_at,
            stopped: None,
        };
        self.supervise(&mut running, [stdout.as_fd(), stderr.as_fd()], channel);
        running.kill_rest();
        if has_written_too_much([stdout.as_fd(), stderr.as_fd()], &running.limits) {
            running.stopped.get_or_insert(JobEnd::OutOfOutput);
        }
        let object = self.object();
        self.empty_tmp()?;
        let (user_after, system_after) = raw::children_cpu();
        let usage = JobUsage {
            user: user_after.saturating_sub(user),
            system: system_after.saturating_sub(system),
            wall: started.elapsed(),
            largest: running.largest,
        };
        Ok((JobReport { end: running.end(failed), usage }, object))
    }

    /// Waits until the main process has ended or must be stopped.
    fn supervise(
        &self,
        job: &mut RunningJob,
        output: [BorrowedFd<'_>; 2],
        channel: &SandboxChannel,
    ) {
        let pidfd =
            Pid::from_raw(job.main).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        while job.status.is_none() && job.stopped.is_none() {
            let ready = wait_for(pidfd.as_ref(), channel, job.tick());
            job.reap(false);
            if job.status.is_some() {
                return;
            }
            if ready.message {
                // Any message stops the job, and so does the channel's end.
                let _ = channel.receive::<ToSlot>();
                job.stopped = Some(JobEnd::Stopped);
            } else if !ready.process {
                job.stopped = self.look(job, output);
            }
        }
    }

    /// Samples what a job uses; returns why it must be stopped, if it must.
    fn look(&self, job: &mut RunningJob, output: [BorrowedFd<'_>; 2]) -> Option<JobEnd> {
        if job.started.elapsed() >= job.limits.wall {
            return Some(JobEnd::OutOfTime);
        }
        if has_written_too_much(output, &job.limits) {
            return Some(JobEnd::OutOfOutput);
        }
        if Instant::now() < job.sample_at {
            return None;
        }
        let mut sample = self.watch.sample().unwrap_or_default();
        // Files in memory count as memory, whether or not a process has them mapped.
        sample.resident += self.tmp_used();
        job.sample_at = Instant::now() + sample_after(&job.limits, &sample);
        if sample.resident > job.limits.memory {
            Some(JobEnd::OutOfMemory)
        } else if sample.processes > job.limits.processes {
            Some(JobEnd::OutOfProcesses)
        } else {
            None
        }
    }

    /// The object that a job left. It cannot change any more: all of the job's processes are gone.
    fn object(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat(self.tmp.as_fd(), OBJECT, flags, Mode::empty()).ok()
    }

    /// Bytes of temporary files.
    fn tmp_used(&self) -> u64 {
        fstatvfs(&self.tmp).map_or(0, |at| at.f_blocks.saturating_sub(at.f_bfree) * at.f_frsize)
    }

    fn empty_tmp(&self) -> io::Result<()> {
        empty(self.tmp.as_fd())
    }
}

fn has_written_too_much(output: [BorrowedFd<'_>; 2], limits: &JobLimits) -> bool {
    output.into_iter().any(|fd| tell(fd).is_ok_and(|written| written > limits.output))
}

/// How long a job cannot exceed its limits.
fn sample_after(limits: &JobLimits, sample: &Sample) -> Duration {
    let left = limits.memory.saturating_sub(sample.resident);
    Duration::from_millis(left / MEMORY_SPEED).clamp(SAMPLE_MIN, SAMPLE_MAX)
}

impl RunningJob {
    /// How long until the next sample is due.
    fn tick(&self) -> Duration {
        let now = Instant::now();
        let end = (self.started + self.limits.wall).saturating_duration_since(now);
        let sample = self.sample_at.saturating_duration_since(now);
        TICK.min(end).min(sample.max(Duration::from_millis(1)))
    }

    /// Reaps processes that have ended; returns whether any are left.
    fn reap(&mut self, block: bool) -> bool {
        loop {
            match raw::reap(block) {
                Ok(Reaped::Dead(dead)) => {
                    self.largest = self.largest.max(dead.largest);
                    if dead.pid == self.main {
                        self.status = Some(dead.status);
                    }
                }
                Ok(Reaped::Alive) if block => {}
                Ok(Reaped::Alive) => return true,
                Ok(Reaped::Nobody) | Err(_) => return false,
            }
        }
    }

    /// Kills every process that the job has left behind.
    fn kill_rest(&mut self) {
        while self.reap(false) {
            raw::kill_all();
            self.reap(true);
        }
    }

    fn end(&self, failed: OwnedFd) -> JobEnd {
        let mut errno = [0; 4];
        if let Ok(4) = File::from(failed).read(&mut errno) {
            return JobEnd::NotStarted(i32::from_ne_bytes(errno));
        }
        match (self.stopped, self.status) {
            (Some(end), _) => end,
            (None, Some(status)) if libc::WIFSIGNALED(status) => {
                JobEnd::Signalled(libc::WTERMSIG(status))
            }
            (None, Some(status)) => JobEnd::Exited(libc::WEXITSTATUS(status)),
            (None, None) => JobEnd::Stopped,
        }
    }
}

struct Ready {
    process: bool,
    message: bool,
}

fn wait_for(process: Option<&OwnedFd>, channel: &SandboxChannel, at_most: Duration) -> Ready {
    let mut fds = vec![PollFd::new(channel, PollFlags::IN)];
    fds.extend(process.map(|process| PollFd::new(process, PollFlags::IN)));
    let at_most = Timespec::try_from(at_most).ok();
    // Interrupted or not: the descriptors' state says which are ready.
    let _ = poll(&mut fds, at_most.as_ref());
    let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
    Ready { message: ready(0), process: ready(1) }
}

fn program(job: &SandboxJob, standard: [i32; 3], failed: i32) -> io::Result<PreparedExec> {
    let strings = |strings: &[Vec<u8>]| {
        strings.iter().map(|bytes| CString::new(&bytes[..])).collect::<Result<Vec<_>, _>>()
    };
    let limits = &job.limits;
    Ok(PreparedExec {
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

/// Removes everything in a directory, however deep it is: the entries of a subdirectory are moved
/// up before it is removed, so that neither path lengths nor descriptors run out.
fn empty(top: BorrowedFd<'_>) -> io::Result<()> {
    let mut moved = 0_u64;
    loop {
        let entries = names(top)?;
        if entries.is_empty() {
            return Ok(());
        }
        for name in entries {
            if unlinkat(top, &name, AtFlags::empty()).is_ok() {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let dir = openat(top, &name, flags, Mode::empty())?;
            for inner in names(dir.as_fd())? {
                if unlinkat(&dir, &inner, AtFlags::empty()).is_err() {
                    move_up(dir.as_fd(), &inner, top, &mut moved)?;
                }
            }
            unlinkat(top, &name, AtFlags::REMOVEDIR)?;
        }
    }
}

/// Moves the entries of a directory up to `to`; names that are taken there are skipped.
fn move_up(
    from: BorrowedFd<'_>,
    name: &CString,
    top: BorrowedFd<'_>,
    moved: &mut u64,
) -> io::Result<()> {
    loop {
        *moved += 1;
        match renameat(from, name, top, format!("{moved}.moved")) {
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
            done => return Ok(done?),
        }
    }
}

fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    seek(dir, SeekFrom::Start(0))?;
    for_each_name(dir, |name| names.push(name.to_owned()))?;
    Ok(names)
}
