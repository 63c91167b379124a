//! Linux's own software iWARP (`siw`) in a virtual machine, as a peer for Outboard over TCP.
//!
//! Debian 12's kernel package lacks `siw.ko`, its source package has it: [`prepare`] builds this
//! one module against the headers of the same version and packs it with busybox and rdma-core into
//! an initramfs; [`Vm::boot`] runs that under qemu, whose user network needs no root. Nothing is
//! installed, and no disk image, kernel build or network set-up is involved.
//!
//! Reading order: `packages` (the Debian packages), `quiet` (running tools), `kernel` (fetch and
//! build, cached), `modules` (which modules to load, in which order), `cpio` and `image` (the
//! initramfs), `guest` (the running machine), `process` (Outboard's program on the host), `meeting`
//! (one connection), `proxy` (a proxy for programs that the guest is too slow for), `interop` and
//! `perftest` (the tests).

mod cpio;
mod guest;
mod image;
pub mod interop;
mod kernel;
mod meeting;
mod modules;
mod packages;
pub mod perftest;
mod process;
mod proxy;
mod quiet;

use crate::command::target_dir;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub use guest::Guest;
pub use packages::PACKAGES;

/// The guest's address on qemu's user network; also where siw listens.
pub const GUEST_ADDRESS: &str = "10.0.2.15";

/// The host's loopback address as seen by the guest.
pub const HOST_ADDRESS: &str = "10.0.2.2";

/// Everything needed to boot a guest with siw, as often as wanted.
#[derive(Debug)]
pub struct Vm {
    kernel: PathBuf,
    initramfs: Vec<u8>,
    processors: u32,
    scratch: PathBuf,
}

/// Fetches and builds what is missing (about half a minute once, then a tenth of a second).
///
/// # Errors
/// One message that names the missing packages with the `apt-get` line to install them, or the step
/// that failed with the tool's output.
pub fn prepare() -> Result<Vm, String> {
    packages::require()?;
    let cache = target_dir().join("siw");
    std::fs::create_dir_all(&cache)
        .map_err(|error| format!("cannot create {}: {error}", cache.display()))?;
    let kernel = kernel::cached(&cache)?;
    let initramfs = image::build(&kernel)?;
    Ok(Vm { kernel: kernel.image(), initramfs, processors: 1, scratch: cache })
}

impl Vm {
    /// Emulates this number of processors instead of one.
    #[must_use]
    pub fn with_processors(self, processors: u32) -> Self {
        Self { processors, ..self }
    }

    /// Puts a program or library of the host at `to`, with the libraries that it links to.
    ///
    /// # Errors
    /// When one of these files cannot be read.
    pub fn carry(&mut self, from: &Path, to: &str) -> Result<(), String> {
        self.initramfs.extend(image::file_archive(from, to)?);
        Ok(())
    }

    /// Boots a guest that runs `script` with `/bin/sh` once siw0 is up, then powers off.
    ///
    /// `host_forwards` are pairs of a TCP port on the host's 127.0.0.1 and the guest's port it
    /// leads to. qemu accepts on the host's port at once: a client must wait until the guest
    /// listens, or it sees its connection reset.
    ///
    /// # Errors
    /// When the initramfs cannot be written or qemu cannot be started (a host port in use shows
    /// later, as a guest that ends without output).
    pub fn boot(&self, script: &str, host_forwards: &[(u16, u16)]) -> Result<Guest, String> {
        let mut initrd = self.initramfs.clone();
        initrd.extend(image::script_archive(script));
        Guest::start(self, &initrd, host_forwards)
    }
}

/// Runs `step`, and reports on standard error its name and how long it took.
fn announced<T>(what: &str, step: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let began = Instant::now();
    let result = step().map_err(|error| format!("{what}: {error}"))?;
    eprintln!("siw: {what} ({:.1} s)", began.elapsed().as_secs_f64());
    Ok(result)
}
