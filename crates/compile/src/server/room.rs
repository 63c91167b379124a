//! Where one client's jobs run: its sandbox's anchor, its view, and a cell for each slot in use.

use super::files::Files;
use super::outputs;
use super::toolchains::Program;
use crate::protocol::{JobSpec, Octets};
use crate::sandbox::{Anchor, Bind, Cell, CellSpec, Ended, Job, Launch, Limits, SandboxError};
use crate::view::{self, View};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Where compilers put temporary files. Clients may show files of their own in `/tmp`.
const TMP: &[u8] = b"/dev/shm";
/// Octets of temporary files.
const TMP_SIZE: u64 = 2 << 30;
/// Octets of all files that one job makes.
const QUOTA: u64 = 2 << 30;

/// What does not depend on the client.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How anchors start.
    pub(crate) launch: Launch,
    /// What one job may use.
    pub(crate) limits: Limits,
    /// Slots of this server.
    pub(crate) slots: u32,
}

/// What jobs see besides the client's files.
#[derive(Debug)]
pub(crate) struct Shown {
    /// Files of this machine.
    pub(crate) binds: Vec<Bind>,
    /// Symbolic links: where they are, and what they say.
    pub(crate) links: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where compilers look although nothing need be there.
    pub(crate) absent: Vec<Vec<u8>>,
}

/// Whose compilers a room shows, in which state of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Equipment {
    /// This server's.
    Installed(u64),
    /// The client's own.
    Adopted(u64),
}

impl Equipment {
    /// Whether a room with these shows a program as it is now.
    pub(crate) fn has(self, program: &Program, now: Self) -> bool {
        match (self, now) {
            // What was installed or replaced meanwhile is shown later.
            (Self::Installed(shown), Self::Installed(_)) => program.since() <= shown,
            (shown, now) => shown == now,
        }
    }
}

/// Why a job does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RoomError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("a client's files cannot be shown: {0}")]
    View(#[from] io::Error),
    #[error("the slot has no cell")]
    NoCell,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Room {
    // Cells go before the anchor, which goes before the view that they look at.
    cells: HashMap<u32, Cell>,
    anchor: Anchor,
    view: View,
    spec: CellSpec,
    limits: Limits,
    equipment: Equipment,
}

impl Room {
    pub(crate) fn open(
        plan: &Plan,
        files: Arc<Files>,
        shown: Shown,
        equipment: Equipment,
    ) -> Result<Self, RoomError> {
        let (anchor, fuse) = Anchor::start(&plan.launch)?;
        let (uid, gid) = plan.launch.identity.unwrap_or_else(|| {
            (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
        });
        let slots = plan.slots as usize;
        let limits = view::Limits { slots, quota: QUOTA, uid, gid };
        let (tmp, tmp_size) = (TMP.to_vec(), TMP_SIZE);
        let Shown { binds, links, absent } = shown;
        let spec = CellSpec { slot: 0, binds, links, tmp, tmp_size };
        let view = View::start(fuse, files, spec.pins(), absent, limits)?;
        Ok(Self { cells: HashMap::new(), anchor, view, spec, limits: plan.limits, equipment })
    }

    /// The compilers that it shows.
    pub(crate) fn equipment(&self) -> Equipment {
        self.equipment
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// The slot's cell, and whether it is a new one.
    pub(crate) fn cell(&mut self, slot: u32) -> Result<(BorrowedFd<'_>, bool), RoomError> {
        let is_new = !self.cells.contains_key(&slot);
        if is_new {
            let cell = self.anchor.cell(&CellSpec { slot: slot as usize, ..self.spec.clone() })?;
            self.cells.insert(slot, cell);
        }
        let cell = self.cells.get(&slot).ok_or(RoomError::NoCell)?;
        Ok((cell.as_fd(), is_new))
    }

    /// Starts a job in a slot that has a cell and runs nothing: over the client's files, or over a
    /// source of its own, which has a path and octets.
    pub(crate) fn start(
        &mut self,
        slot: u32,
        spec: &JobSpec,
        program: &Program,
        source: Option<(Octets, Vec<u8>)>,
    ) -> Result<(), RoomError> {
        let at = slot as usize;
        match source {
            Some(source) => self.view.begin_alone(at, spec.places.clone(), source)?,
            None => self.view.begin(at, outputs::places(spec))?,
        }
        let job = Job {
            program: program.path().to_vec(),
            arguments: spec.argv.clone(),
            environment: environment(spec, program),
            directory: spec.cwd.clone(),
            umask: spec.umask,
            limits: self.limits,
        };
        let started = match self.cells.get_mut(&slot) {
            Some(cell) => cell.start(&job).map_err(RoomError::from),
            None => Err(RoomError::NoCell),
        };
        started.inspect_err(|_| {
            self.cells.remove(&slot);
            // What it was brought is nobody else's; why it did not start says more.
            let _finished = self.view.finish(at);
        })
    }

    /// Takes what came of a slot's job, which has ended.
    pub(crate) fn finish(&mut self, slot: u32) -> Result<(Ended, view::Outcome), RoomError> {
        let cell = self.cells.get_mut(&slot).ok_or(RoomError::NoCell)?;
        let ended = cell.wait();
        let made = self.view.finish(slot as usize);
        // A cell that does not answer is made anew.
        let ended = ended.inspect_err(|_| drop(self.cells.remove(&slot)))?;
        Ok((ended, made?))
    }

    /// A cell that has something to say and runs nothing has died.
    pub(crate) fn drop_cell(&mut self, slot: u32) {
        self.cells.remove(&slot);
    }

    /// Stops a slot's job; its end comes as any other's.
    pub(crate) fn stop(&self, slot: u32) {
        self.view.cancel(slot as usize);
        if let Some(cell) = self.cells.get(&slot) {
            // A cell that is gone has ended already.
            let _stopped = cell.stop();
        }
    }
}

/// The client's words, with programs and temporary files where they are here.
fn environment(spec: &JobSpec, program: &Program) -> Vec<Vec<u8>> {
    let own = [(&b"TMPDIR"[..], TMP), (b"PATH", program.search())];
    let is_own = |name: &[u8]| own.iter().any(|(own, _)| *own == name);
    let kept = spec.env.iter().filter(|(name, _)| !is_own(name));
    let kept = kept.map(|(name, value)| (&name[..], &value[..]));
    kept.chain(own).map(|(name, value)| [name, b"=", value].concat()).collect()
}
