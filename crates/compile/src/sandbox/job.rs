//! A job that a slot sandbox is asked to run, and its result.

use std::fs::File;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::protocol::OUTPUT_MAX;

/// Resource limits of one job.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct JobLimits {
    /// Bytes of address space of each process.
    pub address_space: u64,
    /// Bytes of memory of all processes together.
    pub memory: u64,
    /// Seconds of CPU of each process.
    pub cpu_seconds: u64,
    /// Bytes of each file.
    pub file: u64,
    /// Bytes of standard output, and of standard error.
    pub output: u64,
    /// Processes at once.
    pub processes: u32,
    /// Open files of each process.
    pub open_files: u32,
    /// Wall-clock time from start to end.
    pub wall: Duration,
}

impl Default for JobLimits {
    fn default() -> Self {
        Self {
            address_space: 16 << 30,
            memory: 4 << 30,
            cpu_seconds: 1800,
            file: 2 << 30,
            output: OUTPUT_MAX,
            processes: 64,
            open_files: 1024,
            wall: Duration::from_secs(1800),
        }
    }
}

/// A program to run in a slot sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SandboxJob {
    /// Path of the program in the view.
    pub program: Vec<u8>,
    /// Its arguments, beginning with its own name.
    pub arguments: Vec<Vec<u8>>,
    /// Its environment, `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// Path of its working directory in the view.
    pub directory: Vec<u8>,
    /// File mode creation mask.
    pub umask: u32,
    /// Its resource limits.
    pub limits: JobLimits,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobEnd {
    /// The program ended with this status.
    Exited(i32),
    /// A signal ended the program.
    Signalled(i32),
    /// Stopped because it took too long.
    OutOfTime,
    /// Stopped because it used too much memory.
    OutOfMemory,
    /// Stopped because it had too many processes.
    OutOfProcesses,
    /// Stopped because it wrote too much.
    OutOfOutput,
    /// Stopped because the service asked for it.
    Stopped,
    /// The program could not be started: the system's error number.
    NotStarted(i32),
}

/// Resources that a job used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUsage {
    /// CPU time in user mode, all processes together.
    pub user: Duration,
    /// CPU time in the kernel, all processes together.
    pub system: Duration,
    /// Wall-clock time from start to end.
    pub wall: Duration,
    /// Peak memory of its largest process, in bytes.
    pub largest: u64,
}

/// The result of a job.
#[derive(Debug)]
pub struct FinishedJob {
    /// How it ended.
    pub end: JobEnd,
    /// What it used.
    pub usage: JobUsage,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// The file that it wrote at [`super::SlotSandboxSpec::object`], if any.
    pub object: Option<Object>,
}

/// A sealed file in memory: no process can change it any more.
#[derive(Debug)]
pub struct Object {
    /// The file.
    pub file: File,
    /// Permission bits.
    pub mode: u32,
    /// Size in bytes.
    pub len: u64,
}
