//! The sandbox of one client's jobs: its supervisor, its view, and a slot sandbox for each slot in
//! use.

use super::files::ClientFiles;
use super::outputs;
use super::toolchains::CompilerProgram;
use crate::protocol::{Bytes, JobSpec, RESULTS_MAX};
use crate::sandbox::{
    Bind, FinishedJob, JobLimits, Launch, SandboxError, SandboxJob, SandboxSupervisor, SlotSandbox,
    SlotSandboxSpec,
};
use crate::view::{self, View};
use outboard_export::path::join;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// The directory for compilers' temporary files, a path that no client has.
const TMP: &[u8] = b"/.outboard/tmp";
/// Bytes of temporary files, including the object.
const TMP_SIZE: u64 = RESULTS_MAX as u64;
/// Bytes of all other files that one job makes.
const QUOTA: u64 = RESULTS_MAX as u64;

/// Settings that do not depend on the client.
#[derive(Clone, Debug)]
pub(crate) struct ClientSandboxSettings {
    /// How supervisors start.
    pub(crate) launch: Launch,
    /// Resource limits of one job.
    pub(crate) limits: JobLimits,
    /// Slots of this server.
    pub(crate) slots: u32,
}

/// Files that jobs see besides the client's.
#[derive(Debug)]
pub(crate) struct ShownFiles {
    /// Files of this machine: where they are, and where jobs see them.
    pub(crate) files: Vec<(PathBuf, PathBuf)>,
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
    pub(crate) fn has(self, program: &CompilerProgram, now: Self) -> bool {
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
    limits: JobLimits,
    equipment: Equipment,
    /// The slot whose sandbox sets itself up now: one after the other, so that their descriptions
    /// have room in the supervisor's socket.
    setting_up: Option<u32>,
    /// Its supervisor has failed: it serves the jobs that it has, and no others.
    is_broken: bool,
}

/// A slot's sandbox, as a job finds it.
pub(crate) enum SlotReadiness<'a> {
    /// The job can start.
    Ready,
    /// It sets itself up, or waits for another that does. A new one is to be watched.
    Waits(Option<BorrowedFd<'a>>),
}

impl ClientSandbox {
    pub(crate) fn open(
        settings: &ClientSandboxSettings,
        files: Arc<ClientFiles>,
        shown: ShownFiles,
        equipment: Equipment,
    ) -> Result<Self, ClientSandboxError> {
        let (supervisor, fuse) = SandboxSupervisor::start(&settings.launch)?;
        let (uid, gid) = settings.launch.identity.unwrap_or_else(|| {
            (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
        });
        let slots = settings.slots as usize;
        let limits = view::ViewLimits { slots, quota: QUOTA, uid, gid };
        let (tmp, tmp_size) = (TMP.to_vec(), TMP_SIZE);
        let ShownFiles { files: paths, links } = shown;
        // A part that is gone meanwhile is missed by the job that runs it.
        let binds = paths.iter().filter_map(|(at, view)| Bind::new(at, view).ok()).collect();
        let spec = SlotSandboxSpec { slot: 0, binds, links, tmp, tmp_size };
        let view = View::start(fuse, files, spec.pins(), limits)?;
        Ok(Self {
            slot_sandboxes: HashMap::new(),
            supervisor,
            view,
            spec,
            limits: settings.limits,
            equipment,
            setting_up: None,
            is_broken: false,
        })
    }

    /// The compilers that it shows.
    pub(crate) fn equipment(&self) -> Equipment {
        self.equipment
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Whether another sandbox has to take its place.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Whether something is new for a job that waits for the sandbox of this slot.
    pub(crate) fn may_go_on(&self, slot: u32) -> bool {
        match self.setting_up {
            Some(one) => one != slot && self.slot_sandboxes.contains_key(&slot),
            None => true,
        }
    }

    /// Sees to it that the slot has a sandbox. Does not wait.
    pub(crate) fn prepare(&mut self, slot: u32) -> Result<SlotReadiness<'_>, ClientSandboxError> {
        let is_there = self.slot_sandboxes.contains_key(&slot);
        match self.setting_up {
            None if is_there => return Ok(SlotReadiness::Ready),
            Some(one) if one != slot && is_there => return Ok(SlotReadiness::Ready),
            Some(_) => return Ok(SlotReadiness::Waits(None)),
            None => {}
        }
        let spec = SlotSandboxSpec { slot: slot as usize, ..self.spec.clone() };
        let begun = self.supervisor.begin_slot_sandbox(&spec);
        let begun = begun.inspect_err(|_| self.is_broken = true)?;
        self.setting_up = Some(slot);
        self.slot_sandboxes.insert(slot, begun);
        Ok(SlotReadiness::Waits(self.slot_sandboxes.get(&slot).map(AsFd::as_fd)))
    }

    /// Handles the end of a slot sandbox's own start, if that is why it is readable; false if it is
    /// not.
    pub(crate) fn handle_set_up(&mut self, slot: u32) -> Result<bool, ClientSandboxError> {
        if self.setting_up.is_none_or(|one| one != slot) {
            return Ok(false);
        }
        let Some(begun) = self.slot_sandboxes.get_mut(&slot) else { return Ok(false) };
        match begun.is_set_up() {
            Ok(false) => {}
            Ok(true) => self.setting_up = None,
            Err(error) => {
                self.give_up(slot);
                return Err(error.into());
            }
        }
        Ok(true)
    }

    /// The slot whose sandbox hangs while it sets itself up: it is given up, with the supervisor.
    pub(crate) fn take_hung(&mut self, now: Instant) -> Option<u32> {
        let slot = self.setting_up?;
        let hangs = self.slot_sandboxes.get_mut(&slot).is_none_or(|begun| begun.hangs(now));
        hangs.then(|| {
            self.give_up(slot);
            slot
        })
    }

    fn give_up(&mut self, slot: u32) {
        self.setting_up = None;
        self.slot_sandboxes.remove(&slot);
        self.is_broken = true;
    }

    /// Starts a job in an idle slot that has a slot sandbox: over the client's files, or over a
    /// preprocessed source, given as path and bytes.
    pub(crate) fn start(
        &mut self,
        slot: u32,
        spec: &JobSpec,
        program: &CompilerProgram,
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
        let job = SandboxJob {
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
    fn words(&self, spec: &JobSpec, program: &CompilerProgram) -> Vec<Vec<u8>> {
        let mut words = spec.argv.clone();
        let Some(name) = words.first_mut().filter(|name| !name.contains(&b'/')) else {
            return words;
        };
        let first = program.search().split(|byte| *byte == b':').next().unwrap_or_default();
        let found = join(first, name);
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
    ) -> Result<(FinishedJob, view::JobChanges), ClientSandboxError> {
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
fn environment(spec: &JobSpec, program: &CompilerProgram) -> Vec<Vec<u8>> {
    let own = [(&b"TMPDIR"[..], TMP), (b"PATH", program.search())];
    let is_own = |name: &[u8]| own.iter().any(|(own, _)| *own == name);
    let kept = spec.env.iter().filter(|(name, _)| !is_own(name));
    let kept = kept.map(|(name, value)| (&name[..], &value[..]));
    kept.chain(own).map(|(name, value)| [name, b"=", value].concat()).collect()
}
