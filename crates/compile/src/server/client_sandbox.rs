//! The sandbox of one client's jobs: its supervisor, its view, and a slot sandbox for each slot in
//! use.

use super::files::Files;
use super::outputs;
use super::toolchains::Program;
use crate::protocol::{Bytes, JobSpec, RESULTS_MAX};
use crate::sandbox::{
    Bind, Ended, Job, Launch, Limits, SandboxError, SandboxSupervisor, SlotSandbox, SlotSandboxSpec,
};
use crate::view::{self, View};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// The directory for compilers' temporary files, a path that no client has.
const TMP: &[u8] = b"/.outboard/tmp";
/// Bytes of temporary files, including the object.
const TMP_SIZE: u64 = RESULTS_MAX as u64;
/// Bytes of all other files that one job makes.
const QUOTA: u64 = RESULTS_MAX as u64;

/// Settings that do not depend on the client.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How supervisors start.
    pub(crate) launch: Launch,
    /// Resource limits of one job.
    pub(crate) limits: Limits,
    /// Slots of this server.
    pub(crate) slots: u32,
}

/// Files that jobs see besides the client's.
#[derive(Debug)]
pub(crate) struct Shown {
    /// Files of this machine.
    pub(crate) binds: Vec<Bind>,
    /// Symbolic links: path and target.
    pub(crate) links: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Which compilers a sandbox shows, and in which generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Equipment {
    /// This server's.
    Installed(u64),
    /// The client's own.
    Adopted(u64),
}

impl Equipment {
    /// Whether a sandbox with this equipment shows a program in its present state.
    pub(crate) fn has(self, program: &Program, now: Self) -> bool {
        match (self, now) {
            // Programs installed or replaced since then need a new sandbox.
            (Self::Installed(shown), Self::Installed(_)) => program.since() <= shown,
            (shown, now) => shown == now,
        }
    }
}

/// Why a job cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientSandboxError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("a client's files cannot be shown: {0}")]
    View(#[from] io::Error),
    #[error("the slot has no sandbox")]
    NoSandbox,
}

/// A client's sandbox; see the [module](self).
#[derive(Debug)]
pub(crate) struct ClientSandbox {
    // Fields are dropped in order: slot sandboxes before the supervisor, the supervisor before the
    // view that both use.
    slot_sandboxes: HashMap<u32, SlotSandbox>,
    supervisor: SandboxSupervisor,
    view: View,
    spec: SlotSandboxSpec,
    limits: Limits,
    equipment: Equipment,
}

impl ClientSandbox {
    pub(crate) fn open(
        plan: &Plan,
        files: Arc<Files>,
        shown: Shown,
        equipment: Equipment,
    ) -> Result<Self, ClientSandboxError> {
        let (supervisor, fuse) = SandboxSupervisor::start(&plan.launch)?;
        let (uid, gid) = plan.launch.identity.unwrap_or_else(|| {
            (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
        });
        let slots = plan.slots as usize;
        let limits = view::ViewLimits { slots, quota: QUOTA, uid, gid };
        let (tmp, tmp_size) = (TMP.to_vec(), TMP_SIZE);
        let Shown { binds, links } = shown;
        let spec = SlotSandboxSpec { slot: 0, binds, links, tmp, tmp_size };
        let view = View::start(fuse, files, spec.pins(), limits)?;
        Ok(Self {
            slot_sandboxes: HashMap::new(),
            supervisor,
            view,
            spec,
            limits: plan.limits,
            equipment,
        })
    }

    /// The compilers that it shows.
    pub(crate) fn equipment(&self) -> Equipment {
        self.equipment
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// The slot's sandbox, and whether it is a new one.
    pub(crate) fn slot_sandbox(
        &mut self,
        slot: u32,
    ) -> Result<(BorrowedFd<'_>, bool), ClientSandboxError> {
        let is_new = !self.slot_sandboxes.contains_key(&slot);
        if is_new {
            let slot_sandbox = self
                .supervisor
                .slot_sandbox(&SlotSandboxSpec { slot: slot as usize, ..self.spec.clone() })?;
            self.slot_sandboxes.insert(slot, slot_sandbox);
        }
        let slot_sandbox = self.slot_sandboxes.get(&slot).ok_or(ClientSandboxError::NoSandbox)?;
        Ok((slot_sandbox.as_fd(), is_new))
    }

    /// Starts a job in an idle slot that has a slot sandbox: over the client's files, or over a
    /// preprocessed source, given as path and bytes.
    pub(crate) fn start(
        &mut self,
        slot: u32,
        spec: &JobSpec,
        program: &Program,
        source: Option<(Bytes, Vec<u8>)>,
    ) -> Result<(), ClientSandboxError> {
        let (at, words) = (slot as usize, outputs::job_of(spec));
        match source {
            Some(source) => self.view.begin_alone(at, spec.places.clone(), source)?,
            None => self.view.begin(at, outputs::places(spec, words.as_ref()))?,
        }
        if let Some(object) = words.as_ref().and_then(outputs::object) {
            self.view.redirect(at, object, &self.spec.object());
        }
        let job = Job {
            program: program.path().to_vec(),
            arguments: self.words(spec, program),
            environment: environment(spec, program),
            directory: spec.cwd.clone(),
            umask: spec.umask,
            limits: self.limits,
        };
        let started = match self.slot_sandboxes.get_mut(&slot) {
            Some(slot_sandbox) => slot_sandbox.start(&job).map_err(ClientSandboxError::from),
            None => Err(ClientSandboxError::NoSandbox),
        };
        started.inspect_err(|_| {
            self.slot_sandboxes.remove(&slot);
            // The outcome of a job that did not start is discarded; the error says more.
            let _finished = self.view.finish(at);
        })
    }

    /// The command line. A compiler called by a bare name looks for itself in `PATH`: it keeps the
    /// name only if that finds it here at once, since other names there may be the client's own.
    fn words(&self, spec: &JobSpec, program: &Program) -> Vec<Vec<u8>> {
        let mut words = spec.argv.clone();
        let Some(name) = words.first_mut().filter(|name| !name.contains(&b'/')) else {
            return words;
        };
        let first = program.search().split(|byte| *byte == b':').next().unwrap_or_default();
        let found = view::join(first, name);
        let is_link = self.spec.links.iter().any(|(path, _)| *path == found);
        let is_shown = is_link || self.spec.binds.iter().any(|bind| bind.paths().1 == found);
        if found != spec.compiler || !is_shown {
            name.clone_from(&spec.compiler);
        }
        words
    }

    /// Takes the result of a slot's job, which has ended.
    pub(crate) fn finish(
        &mut self,
        slot: u32,
    ) -> Result<(Ended, view::JobChanges), ClientSandboxError> {
        let slot_sandbox =
            self.slot_sandboxes.get_mut(&slot).ok_or(ClientSandboxError::NoSandbox)?;
        let ended = slot_sandbox.wait();
        let made = self.view.finish(slot as usize);
        // A slot sandbox that does not answer is replaced.
        let ended = ended.inspect_err(|_| drop(self.slot_sandboxes.remove(&slot)))?;
        Ok((ended, made?))
    }

    /// Drops a slot sandbox that became readable without running a job: it has died.
    pub(crate) fn drop_slot_sandbox(&mut self, slot: u32) {
        self.slot_sandboxes.remove(&slot);
    }

    /// Stops a slot's job; its end is reported like any other.
    pub(crate) fn stop(&self, slot: u32) {
        self.view.cancel(slot as usize);
        if let Some(slot_sandbox) = self.slot_sandboxes.get(&slot) {
            // If the slot sandbox is gone, so is its job.
            let _stopped = slot_sandbox.stop();
        }
    }
}

/// The client's environment, with the paths of programs and temporary files on this machine.
fn environment(spec: &JobSpec, program: &Program) -> Vec<Vec<u8>> {
    let own = [(&b"TMPDIR"[..], TMP), (b"PATH", program.search())];
    let is_own = |name: &[u8]| own.iter().any(|(own, _)| *own == name);
    let kept = spec.env.iter().filter(|(name, _)| !is_own(name));
    let kept = kept.map(|(name, value)| (&name[..], &value[..]));
    kept.chain(own).map(|(name, value)| [name, b"=", value].concat()).collect()
}
