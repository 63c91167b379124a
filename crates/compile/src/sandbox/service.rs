//! The service's half of a sandbox: it starts the anchor, asks it for cells, and gives the cells
//! their jobs.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use super::channel::{Channel, Failure, Report, SetUp, ToAnchor, ToCell};
use super::check::advice;
use super::job::{Ended, Job};
use crate::view::Pin;

/// Why a sandbox does not work. Always this machine's fault, never a job's.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The anchor could not be started.
    #[error("cannot start the sandbox's anchor {program}: {error}")]
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
    /// The anchor or the cell is gone, or no longer makes sense.
    #[error("the sandbox's {who} is gone: {error}; start it anew")]
    Gone {
        /// `anchor` or `cell`.
        who: &'static str,
        /// What the system says.
        error: io::Error,
    },
    /// A file of the toolchain is not there.
    #[error("cannot show {} in a sandbox: {error}", .path.display())]
    Bind {
        /// The path on this machine.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A description that this machine had no place for.
    #[error("cannot hand a job to its cell: {0}")]
    HandOver(io::Error),
}

/// How to start an anchor.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program that calls [`super::anchor_main`] when it gets `arguments`.
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
    /// are followed: they are [`CellSpec::links`] of their own.
    ///
    /// # Errors
    /// When `path` is not there.
    pub fn at_home(path: &Path) -> Result<Self, SandboxError> {
        let failed = |error| SandboxError::Bind { path: path.to_owned(), error };
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        };
        let view = dir.canonicalize().map_err(failed)?.join(name);
        Self::new(path, &view)
    }

    /// Where it is on this machine, and where in the view.
    pub(super) fn paths(&self) -> (&[u8], &[u8]) {
        (&self.host, &self.view)
    }
}

/// How a cell is made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellSpec {
    /// Whose subtree of the view is its root.
    pub slot: usize,
    /// What jobs see of this machine.
    pub binds: Vec<Bind>,
    /// Symbolic links that exist whatever the client shows, with their targets
    /// ([`machine_links`]).
    pub links: Vec<(Vec<u8>, Vec<u8>)>,
    /// Absolute path of the directory for temporary files: `/tmp`, or `/dev/shm` when the client
    /// shows something in its own `/tmp`.
    pub tmp: Vec<u8>,
    /// Octets that temporary files may have.
    pub tmp_size: u64,
}

impl CellSpec {
    /// What has to be pinned in the view for this cell.
    pub fn pins(&self) -> Vec<(Vec<u8>, Pin)> {
        let binds = self.binds.iter().map(|bind| {
            (bind.view.clone(), if bind.directory { Pin::Directory } else { Pin::File })
        });
        let places = [&b"/proc"[..], b"/dev"].map(|path| (path.to_vec(), Pin::Directory));
        let mut pins: Vec<_> = places.into_iter().chain(binds).collect();
        if !self.tmp.starts_with(b"/dev/") {
            pins.push((self.tmp.clone(), Pin::Directory));
        }
        let links = self.links.iter();
        pins.extend(links.map(|(path, target)| (path.clone(), Pin::Symlink(target.clone()))));
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

/// A client's namespaces, with its view mounted in them. Dropping it ends all of its cells.
#[derive(Debug)]
pub struct Anchor {
    channel: Channel,
    child: Child,
}

impl Anchor {
    /// Starts an anchor; with it comes the FUSE device for [`crate::view::View::start`].
    ///
    /// # Errors
    /// When namespaces or FUSE are not to be had here: the error says what to enable.
    pub fn start(launch: &Launch) -> Result<(Self, OwnedFd), SandboxError> {
        let failed =
            |error| SandboxError::Start { program: launch.program.display().to_string(), error };
        let (here, there) = Channel::pair().map_err(failed)?;
        let mut command = Command::new(&launch.program);
        command.args(&launch.arguments).env_clear().current_dir("/");
        command.stdin(Stdio::from(OwnedFd::from(there))).stdout(Stdio::null());
        if let Some((uid, gid)) = launch.identity {
            command.uid(uid).gid(gid);
        }
        let child = command.spawn().map_err(failed)?;
        // Or the anchor's end would stay open here.
        drop(command);
        let mut anchor = Self { channel: here, child };
        match anchor.receive_set_up()?.pop() {
            Some(fuse) => Ok((anchor, fuse)),
            None => Err(anchor.gone(io::ErrorKind::InvalidData.into())),
        }
    }

    fn receive_set_up(&mut self) -> Result<Vec<OwnedFd>, SandboxError> {
        match set_up(&self.channel) {
            Err(SandboxError::Gone { error, .. }) => Err(self.gone(error)),
            other => other,
        }
    }

    fn gone(&mut self, error: io::Error) -> SandboxError {
        SandboxError::Gone { who: "anchor", error }
    }

    /// Makes a cell. The view must be served by now.
    ///
    /// # Errors
    /// When a step of it fails, or the anchor is gone.
    pub fn cell(&self, spec: &CellSpec) -> Result<Cell, SandboxError> {
        let gone = |error| SandboxError::Gone { who: "anchor", error };
        let (here, there) = Channel::pair().map_err(gone)?;
        self.channel.send(&ToAnchor::Cell(spec.clone()), &[there.as_fd()]).map_err(gone)?;
        drop(there);
        set_up(&here)?;
        Ok(Cell { channel: here, running: None })
    }

    /// The anchor's process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        // Its cells die with it. That it is gone already is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until the other end has set itself up.
fn set_up(channel: &Channel) -> Result<Vec<OwnedFd>, SandboxError> {
    match channel.receive() {
        Ok((SetUp::Ready, fds)) => Ok(fds),
        Ok((SetUp::Failed(Failure { step, errno }), _)) => {
            let (error, advice) = (io::Error::from_raw_os_error(errno), advice(&step, errno));
            Err(SandboxError::SetUp { step, error, advice })
        }
        Err(error) => Err(SandboxError::Gone { who: "cell", error }),
    }
}

/// Where the jobs of one slot run.
#[derive(Debug)]
pub struct Cell {
    channel: Channel,
    running: Option<(File, File, u64)>,
}

impl AsFd for Cell {
    /// Readable when a job has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Cell {
    /// Runs a job and waits for its end.
    ///
    /// # Errors
    /// When the cell is gone. What goes wrong with the job is in its end.
    pub fn run(&mut self, job: &Job) -> Result<Ended, SandboxError> {
        self.start(job)?;
        self.wait()
    }

    /// Starts a job; the cell is readable when it has ended.
    ///
    /// # Errors
    /// When the cell is gone.
    pub fn start(&mut self, job: &Job) -> Result<(), SandboxError> {
        let mut description = memory_file("job").map_err(SandboxError::HandOver)?;
        let octets = postcard::to_stdvec(job).map_err(io::Error::other);
        octets
            .and_then(|octets| description.write_all(&octets))
            .and_then(|()| description.rewind())
            .map_err(SandboxError::HandOver)?;
        let stdout = memory_file("stdout").map_err(SandboxError::HandOver)?;
        let stderr = memory_file("stderr").map_err(SandboxError::HandOver)?;
        let fds = [description.as_fd(), stdout.as_fd(), stderr.as_fd()];
        self.channel.send(&ToCell::Run, &fds).map_err(cell_gone)?;
        self.running = Some((stdout, stderr, job.limits.output));
        Ok(())
    }

    /// Stops the job, if one runs. Its end comes as any other's. Whoever holds answers that it
    /// waits for must give them up as well ([`crate::view::View::cancel`]).
    ///
    /// # Errors
    /// When the cell is gone.
    pub fn stop(&self) -> Result<(), SandboxError> {
        self.channel.send(&ToCell::Stop, &[]).map_err(cell_gone)
    }

    /// Waits for the job's end.
    ///
    /// # Errors
    /// When the cell is gone, or runs none.
    pub fn wait(&mut self) -> Result<Ended, SandboxError> {
        let (stdout, stderr, limit) =
            self.running.take().ok_or_else(|| cell_gone(io::ErrorKind::NotFound.into()))?;
        let (Report { end, usage }, _) = self.channel.receive().map_err(cell_gone)?;
        let stdout = contents(stdout, limit).map_err(cell_gone)?;
        let stderr = contents(stderr, limit).map_err(cell_gone)?;
        Ok(Ended { end, usage, stdout, stderr })
    }
}

fn cell_gone(error: io::Error) -> SandboxError {
    SandboxError::Gone { who: "cell", error }
}

fn memory_file(name: &str) -> io::Result<File> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

fn contents(mut file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(limit).read_to_end(&mut octets)?;
    Ok(octets)
}
