//! The service's half of a sandbox: it starts the supervisor, asks it for slot sandboxes, and gives
//! the slot sandboxes their jobs.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    FileType, MemfdFlags, SealFlags, fcntl_add_seals, fstat, fstatfs, ftruncate, memfd_create,
};
use serde::{Deserialize, Serialize};

use super::channel::{JobReport, SandboxChannel, SetUp, SetUpFailure, ToSlot, ToSupervisor};
use super::check::advice;
use super::job::{FinishedJob, Object, SandboxJob};
use super::start_watch::{HANG_MAX, StartWatch};
use crate::view::PinnedNode;

/// Why a sandbox does not work. Always this machine's fault, never a job's.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The supervisor could not be started.
    #[error("cannot start the sandbox's supervisor {program}: {error}")]
    Start {
        /// The program that should have been it.
        program: String,
        /// What the system says.
        error: io::Error,
    },
    /// A step of setting up failed.
    #[error("cannot set up a sandbox: {step}: {error}{advice}")]
    SetUp {
        /// What was tried.
        step: String,
        /// What the system says.
        error: io::Error,
        /// What to do, after a semicolon, or nothing.
        advice: String,
    },
    /// The supervisor or the slot sandbox is gone, or no longer makes sense.
    #[error("the {what} is gone: {error}; start a new one")]
    Gone {
        /// `sandbox's supervisor` or `slot's sandbox`.
        what: &'static str,
        /// What the system says.
        error: io::Error,
    },
    /// Nothing moved for too long: a process was stopped, or waits for what never comes.
    #[error("a sandbox hung when it was started on this server")]
    Hung,
    /// A file of the toolchain is not there.
    #[error("cannot show {} in a sandbox: {error}", .path.display())]
    Bind {
        /// The path on this machine.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A job's description could not be written to a memory file.
    #[error("cannot hand a job to its slot sandbox: {0}")]
    HandOver(io::Error),
}

/// How to start a supervisor.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program that calls [`super::supervisor_main`] when it gets `arguments`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// User and group to be first, for a service that is root. It must not be 0.
    pub identity: Option<(u32, u32)>,
}

/// A file or directory of this machine that jobs see, read-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    host: Vec<u8>,
    view: Vec<u8>,
    directory: bool,
}

impl Bind {
    /// Shows `host` at the absolute path `view`. Symbolic links on the way to `host` are followed
    /// now.
    ///
    /// # Errors
    /// When `host` is not there.
    pub fn new(host: &Path, view: &Path) -> Result<Self, SandboxError> {
        let real = host.canonicalize();
        let found = real.and_then(|real| Ok((real.metadata()?.is_dir(), real)));
        match found {
            Ok((directory, real)) => Ok(Self {
                host: real.into_os_string().into_vec(),
                view: view.as_os_str().as_bytes().to_vec(),
                directory,
            }),
            Err(error) => Err(SandboxError::Bind { path: host.to_owned(), error }),
        }
    }

    /// Shows `path` where it is on this machine too. Symbolic links on the way to its directory
    /// are followed: they are [`SlotSandboxSpec::links`] of their own.
    ///
    /// # Errors
    /// When `path` is not there.
    pub fn locally(path: &Path) -> Result<Self, SandboxError> {
        let failed = |error| SandboxError::Bind { path: path.to_owned(), error };
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        };
        let view = dir.canonicalize().map_err(failed)?.join(name);
        Self::new(path, &view)
    }

    /// Where it is on this machine, and where in the view.
    pub(crate) fn paths(&self) -> (&[u8], &[u8]) {
        (&self.host, &self.view)
    }
}

/// Where a slot sandbox's processes are shown: its `/proc` has links to these only, so that
/// everything else in `/proc` is the client's to answer for.
pub(super) const PROC: &str = "/.outboard/proc";

/// Device files of the machine that jobs have in `/dev`, beside what the client shows there.
pub(super) const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom"];

/// The name of a job's object among its temporary files.
pub(super) const OBJECT: &str = ".object";

/// Links that every slot sandbox has, with their targets.
const OWN_LINKS: &[(&str, &str)] = &[
    ("/proc/self", "/.outboard/proc/self"),
    ("/proc/thread-self", "/.outboard/proc/thread-self"),
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// How a slot sandbox is made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SlotSandboxSpec {
    /// Whose subtree of the view is its root.
    pub slot: usize,
    /// What jobs see of this machine.
    pub binds: Vec<Bind>,
    /// Symbolic links that exist whatever the client shows, with their targets
    /// ([`machine_links`]).
    pub links: Vec<(Vec<u8>, Vec<u8>)>,
    /// Absolute path of the directory for temporary files, which must be none that a client has.
    pub tmp: Vec<u8>,
    /// Bytes that temporary files may have.
    pub tmp_size: u64,
}

impl SlotSandboxSpec {
    /// Where a job may write one file that is not to go through the view ([`View::redirect`]).
    ///
    /// [`View::redirect`]: crate::view::View::redirect
    pub fn object(&self) -> Vec<u8> {
        [&self.tmp, &b"/"[..], OBJECT.as_bytes()].concat()
    }

    /// What has to be pinned in the view for this slot sandbox.
    pub fn pins(&self) -> Vec<(Vec<u8>, PinnedNode)> {
        let binds = self.binds.iter().map(|bind| {
            (
                bind.view.clone(),
                if bind.directory { PinnedNode::Directory } else { PinnedNode::File },
            )
        });
        let places =
            [PROC.as_bytes(), &self.tmp].map(|path| (path.to_vec(), PinnedNode::Directory));
        let devices =
            DEVICES.iter().map(|name| (format!("/dev/{name}").into_bytes(), PinnedNode::File));
        let mut pins: Vec<_> = places.into_iter().chain(devices).chain(binds).collect();
        let own = OWN_LINKS.iter().map(|(path, target)| {
            (path.as_bytes().to_vec(), PinnedNode::Symlink(target.as_bytes().to_vec()))
        });
        pins.extend(own);
        let links = self.links.iter();
        pins.extend(
            links.map(|(path, target)| (path.clone(), PinnedNode::Symlink(target.clone()))),
        );
        pins
    }
}

/// Those of this machine's `/bin`, `/lib`, `/lib32`, `/lib64`, `/libx32` and `/sbin` that are
/// symbolic links, with their targets: programs name their loader and libraries through them.
pub fn machine_links() -> Vec<(Vec<u8>, Vec<u8>)> {
    let places = ["/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"];
    let links = places.into_iter().filter_map(|place| Some((place, fs::read_link(place).ok()?)));
    links
        .map(|(place, target)| (place.as_bytes().to_vec(), target.into_os_string().into_vec()))
        .collect()
}

/// A client's namespaces, with its view mounted in them. Dropping it ends all of its slot
/// sandboxes.
#[derive(Debug)]
pub struct SandboxSupervisor {
    channel: SandboxChannel,
    /// Taken when it ends.
    child: Option<Child>,
}

impl SandboxSupervisor {
    /// Starts a supervisor; with it comes the FUSE device for [`crate::view::View::start`].
    ///
    /// # Errors
    /// When this machine does not allow namespaces or FUSE: the error says what to enable.
    pub fn start(launch: &Launch) -> Result<(Self, OwnedFd), SandboxError> {
        Self::start_within(launch, HANG_MAX)
    }

    fn start_within(launch: &Launch, hang_max: Duration) -> Result<(Self, OwnedFd), SandboxError> {
        let failed =
            |error| SandboxError::Start { program: launch.program.display().to_string(), error };
        let (here, there) = SandboxChannel::pair().map_err(failed)?;
        let mut command = Command::new(&launch.program);
        command.arg0("outboard").args(&launch.arguments).env_clear().current_dir("/");
        command.stdin(Stdio::from(OwnedFd::from(there))).stdout(Stdio::null());
        if let Some((uid, gid)) = launch.identity {
            command.uid(uid).gid(gid);
        }
        let child = command.spawn().map_err(failed)?;
        // Otherwise the supervisor's end would stay open here.
        drop(command);
        let mut supervisor = Self { channel: here, child: Some(child) };
        match supervisor.receive_set_up(hang_max)?.pop() {
            Some(fuse) => Ok((supervisor, fuse)),
            None => Err(supervisor.gone(io::ErrorKind::InvalidData.into())),
        }
    }

    fn receive_set_up(&mut self, hang_max: Duration) -> Result<Vec<OwnedFd>, SandboxError> {
        match set_up(&self.channel, &mut StartWatch::new(self.id(), hang_max)) {
            Err(SandboxError::Gone { error, .. }) => Err(self.gone(error)),
            other => other,
        }
    }

    fn gone(&mut self, error: io::Error) -> SandboxError {
        SandboxError::Gone { what: "sandbox's supervisor", error }
    }

    /// Makes a slot sandbox, and waits for it. The view must be served by now.
    ///
    /// # Errors
    /// When a step of it fails, or the supervisor is gone.
    pub fn slot_sandbox(&self, spec: &SlotSandboxSpec) -> Result<SlotSandbox, SandboxError> {
        let mut begun = self.begin_slot_sandbox(spec)?;
        if let Some(mut start) = begun.start.take() {
            set_up(&begun.channel, &mut start)?;
        }
        Ok(begun)
    }

    /// Begins to make a slot sandbox, which is readable once it has set itself up. Does not wait.
    ///
    /// # Errors
    /// When the supervisor is gone, or no longer reads.
    pub fn begin_slot_sandbox(&self, spec: &SlotSandboxSpec) -> Result<SlotSandbox, SandboxError> {
        let gone = |error| SandboxError::Gone { what: "sandbox's supervisor", error };
        let (here, there) = SandboxChannel::pair().map_err(gone)?;
        // Slot sandboxes that are there already may be at work.
        let start = StartWatch::of_next_child(self.id(), HANG_MAX);
        self.channel
            .send_now(&ToSupervisor::SlotSandbox(spec.clone()), &[there.as_fd()])
            .map_err(gone)?;
        Ok(SlotSandbox { channel: here, start: Some(start), running: None, file_max: 0 })
    }

    /// The supervisor's process.
    pub fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }
}

impl Drop for SandboxSupervisor {
    fn drop(&mut self) {
        // Its slot sandboxes die with it. It may be gone already.
        let Some(mut child) = self.child.take() else { return };
        let _ = child.kill();
        // Its end takes as long as that of its last process, which may hang in the kernel.
        // Without a thread it stays a zombie until the service ends.
        let _reaper =
            thread::Builder::new().name("outboard-reap".into()).spawn(move || child.wait());
    }
}

/// Time between two looks at a start.
const TICK: Duration = Duration::from_millis(200);

/// Waits until the other end has set itself up. Its death ends its channel, and the wait at once.
fn set_up(channel: &SandboxChannel, start: &mut StartWatch) -> Result<Vec<OwnedFd>, SandboxError> {
    channel.set_patience(Some(TICK)).map_err(slot_sandbox_gone)?;
    let said = loop {
        match channel.receive() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if start.hangs(Instant::now()) {
                    return Err(SandboxError::Hung);
                }
            }
            said => break said,
        }
    };
    channel.set_patience(None).map_err(slot_sandbox_gone)?;
    let (outcome, fds) = said.map_err(slot_sandbox_gone)?;
    succeeded(outcome).map(|()| fds)
}

fn succeeded(outcome: SetUp) -> Result<(), SandboxError> {
    match outcome {
        SetUp::Ready => Ok(()),
        SetUp::Failed(SetUpFailure { step, errno }) => {
            let (error, advice) = (io::Error::from_raw_os_error(errno), advice(&step, errno));
            Err(SandboxError::SetUp { step, error, advice })
        }
    }
}

/// Where the jobs of one slot run.
#[derive(Debug)]
pub struct SlotSandbox {
    channel: SandboxChannel,
    /// Until it has set itself up.
    start: Option<StartWatch>,
    running: Option<(File, File, u64)>,
    /// Bytes that the job's object may have.
    file_max: u64,
}

impl AsFd for SlotSandbox {
    /// Readable when it has set itself up, and when a job has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl SlotSandbox {
    /// Whether it has set itself up, so that it takes jobs. Does not wait.
    ///
    /// # Errors
    /// When it could not, or is gone.
    pub fn is_set_up(&mut self) -> Result<bool, SandboxError> {
        if self.start.is_some() {
            match self.channel.receive_now() {
                Ok((outcome, _)) => succeeded(outcome)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(slot_sandbox_gone(error)),
            }
            self.start = None;
        }
        Ok(true)
    }

    /// Whether it hangs while it sets itself up. To be asked once a second. Does not wait.
    pub(crate) fn hangs(&mut self, now: Instant) -> bool {
        self.start.as_mut().is_some_and(|start| start.hangs(now))
    }

    /// Runs a job and waits for its end.
    ///
    /// # Errors
    /// When the slot sandbox is gone. What goes wrong with the job is in its end.
    pub fn run(&mut self, job: &SandboxJob) -> Result<FinishedJob, SandboxError> {
        self.start(job)?;
        self.wait()
    }

    /// Starts a job; the slot sandbox is readable when it has ended.
    ///
    /// # Errors
    /// When the slot sandbox is gone.
    pub fn start(&mut self, job: &SandboxJob) -> Result<(), SandboxError> {
        let mut description = memory_file("job").map_err(SandboxError::HandOver)?;
        let bytes = postcard::to_stdvec(job).map_err(io::Error::other);
        bytes
            .and_then(|bytes| description.write_all(&bytes))
            .and_then(|()| description.rewind())
            .map_err(SandboxError::HandOver)?;
        let output = || output_file(job.limits.output).map_err(SandboxError::HandOver);
        let (stdout, stderr) = (output()?, output()?);
        let fds = [description.as_fd(), stdout.as_fd(), stderr.as_fd()];
        self.channel.send_now(&ToSlot::Run, &fds).map_err(slot_sandbox_gone)?;
        self.file_max = job.limits.file;
        self.running = Some((stdout, stderr, job.limits.output));
        Ok(())
    }

    /// Stops the job, if one runs. Its end is reported like any other. A caller that serves the
    /// job's view must also fail the requests that the job waits for
    /// ([`crate::view::View::cancel`]).
    ///
    /// # Errors
    /// When the slot sandbox is gone.
    pub fn stop(&self) -> Result<(), SandboxError> {
        self.channel.send_now(&ToSlot::Stop, &[]).map_err(slot_sandbox_gone)
    }

    /// Waits for the job's end.
    ///
    /// # Errors
    /// When the slot sandbox is gone, or runs none.
    pub fn wait(&mut self) -> Result<FinishedJob, SandboxError> {
        let (stdout, stderr, limit) =
            self.running.take().ok_or_else(|| slot_sandbox_gone(io::ErrorKind::NotFound.into()))?;
        let (JobReport { end, usage }, left) = self.channel.receive().map_err(slot_sandbox_gone)?;
        let stdout = contents(stdout, limit).map_err(slot_sandbox_gone)?;
        let stderr = contents(stderr, limit).map_err(slot_sandbox_gone)?;
        let object = left.into_iter().next().and_then(|left| object(left, self.file_max));
        Ok(FinishedJob { end, usage, stdout, stderr, object })
    }
}

fn slot_sandbox_gone(error: io::Error) -> SandboxError {
    SandboxError::Gone { what: "slot's sandbox", error }
}

/// Checks the object that a slot sandbox reports. The slot sandbox runs next to hostile code:
/// anything but a memory file could make a reader wait.
fn object(left: OwnedFd, len_max: u64) -> Option<Object> {
    let stat = fstat(&left).ok()?;
    let len = u64::try_from(stat.st_size).ok().filter(|len| *len <= len_max)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let is_in_memory = fstatfs(&left).is_ok_and(|at| at.f_type == libc::TMPFS_MAGIC);
    let object = Object { file: left.into(), mode: stat.st_mode & 0o7777, len };
    (is_file && is_in_memory).then_some(object)
}

fn memory_file(name: &str) -> io::Result<File> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

/// How much more than its limit a job may write: the kernel refuses only whole writes.
const OUTPUT_SLACK: u64 = 4 << 20;

/// A file for a job's output, which cannot grow: everything that writes shares its offset, which
/// says how much was written.
fn output_file(limit: u64) -> io::Result<File> {
    let file = memfd_create("output", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, limit.saturating_add(OUTPUT_SLACK))?;
    fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}

fn contents(mut file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let written = file.stream_position()?;
    file.rewind()?;
    file.take(written.min(limit)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(500);
    /// Less than the limit of a start, and far more than anything here takes.
    const AT_ONCE: Duration = Duration::from_secs(8);

    /// A supervisor that is a shell with a script.
    fn launch(script: &str) -> Launch {
        let arguments = vec!["-c".into(), script.into()];
        Launch { program: "/bin/sh".into(), arguments, identity: None }
    }

    #[test]
    fn a_supervisor_that_dies_when_it_starts_is_noticed_at_once() {
        let begin = Instant::now();
        let error = SandboxSupervisor::start(&launch("exit 1")).expect_err("it dies");
        assert!(
            matches!(error, SandboxError::Gone { what: "sandbox's supervisor", .. }),
            "{error}"
        );
        assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
    }

    #[test]
    fn a_supervisor_that_is_stopped_when_it_starts_is_given_up() {
        for script in ["kill -STOP $$", "exec sleep 600"] {
            let error = SandboxSupervisor::start_within(&launch(script), LIMIT);
            let error = error.expect_err("it says nothing");
            assert!(matches!(error, SandboxError::Hung), "{script}: {error}");
        }
    }

    /// One that never reads.
    fn deaf_supervisor() -> SandboxSupervisor {
        let (here, there) = SandboxChannel::pair().expect("a channel");
        let mut command = Command::new("/bin/sleep");
        let child = command.arg("600").stdin(Stdio::from(OwnedFd::from(there))).spawn();
        SandboxSupervisor { channel: here, child: Some(child.expect("it starts")) }
    }

    fn slot() -> SlotSandboxSpec {
        let (binds, links, tmp) = (Vec::new(), Vec::new(), b"/tmp".to_vec());
        SlotSandboxSpec { slot: 0, binds, links, tmp, tmp_size: 0 }
    }

    #[test]
    fn a_slot_sandbox_that_nobody_makes_is_given_up() {
        let supervisor = deaf_supervisor();
        let mut begun = supervisor.begin_slot_sandbox(&slot()).expect("it is asked for");
        assert!(!begun.is_set_up().expect("nothing is wrong") && !begun.hangs(Instant::now()));
        let mut start = StartWatch::of_next_child(supervisor.id(), LIMIT);
        let error = set_up(&begun.channel, &mut start).expect_err("nobody answers");
        assert!(matches!(error, SandboxError::Hung), "{error}");
    }

    #[test]
    fn a_slot_sandbox_whose_supervisor_dies_is_noticed_at_once() {
        let supervisor = deaf_supervisor();
        let mut begun = supervisor.begin_slot_sandbox(&slot()).expect("it is asked for");
        let (begin, mut start) = (Instant::now(), begun.start.take().expect("it starts"));
        drop(supervisor);
        let error = set_up(&begun.channel, &mut start).expect_err("nobody is there");
        assert!(matches!(error, SandboxError::Gone { .. }), "{error}");
        assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
    }
}
