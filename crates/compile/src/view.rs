//! A client's files as a FUSE file system, one subtree for each slot.
//!
//! The kernel keeps names (also those that do not exist), attributes and contents without a time
//! limit, so that the second job in a slot asks nothing. What changes at the client is named by
//! [`View::invalidate`] and dropped before the next job of each slot begins; a file in another
//! state is another node, so contents need no dropping. While a job runs nothing is dropped: it
//! sees what it was submitted with or something newer, and the kernel is never notified while a
//! process of the slot could hold a lock that the notification waits for.
//!
//! A look-up of what the client does not show fails and marks the job as refused: it has to run at
//! the client.
//!
//! Modules in reading order: `source` (where everything comes from), `pins` (what exists anyway),
//! `places` (hidden directories in which jobs make files), `probes` (where compilers look for what
//! need not be there), `nodes` (what the kernel holds), `slot` (a job's changes), `state`
//! (answers), `changes` (writing), `serve` (the kernel's requests).

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

mod changes;
mod nodes;
mod pins;
mod places;
mod probes;
mod serve;
mod slot;
mod source;
mod state;

pub use pins::Pin;
pub use places::Places;
pub use probes::KNOWN_ABSENT;
pub use slot::{Refusal, TOUCHED_MAX, Upcalls, Why};
pub use source::{Ask, AskError, Attr, Contents, Done, Found, Kind, Listing, NodeId, Source};

use fuser::{BackgroundSession, Config, INodeNo, Notifier, Session, SessionACL};
use nodes::{SlotId, What};
use pins::{Pinned, Pins, join, split};
use serve::{Front, Server};
use slot::Change;
use state::{Core, State};

/// What a view may use, and as whom its jobs run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Slots, named `0`, `1`, ... in the mount's root.
    pub slots: usize,
    /// Octets of all files that one job makes.
    pub quota: u64,
    /// Owner of every file.
    pub uid: u32,
    /// Group of every file.
    pub gid: u32,
}

/// A client's files, mounted.
pub struct View {
    server: Arc<Server>,
    notifier: Notifier,
    _session: BackgroundSession,
}

/// A file that a job made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// Its absolute path.
    pub path: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// What is in it.
    pub contents: Vec<u8>,
}

/// What a job did to its view.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Files that it made or changed.
    pub created: Vec<Created>,
    /// Directories that it made.
    pub directories: Vec<Vec<u8>>,
    /// Client's files that now (also) stand at this path.
    pub renamed: Vec<(Vec<u8>, NodeId)>,
    /// What [`View::begin_alone`] was given, for the next one.
    pub source: Option<Vec<u8>>,
    /// Paths that it removed, or renamed away.
    pub deleted: Vec<Vec<u8>>,
    /// Why its result counts for nothing and it has to run at the client.
    pub refused: Option<Refusal>,
    /// A file changed at the client before it was read: the job has to run again.
    pub stale: bool,
    /// Files looked up that the kernel did not know yet, with their versions; at most
    /// [`TOUCHED_MAX`].
    pub touched: Vec<(Vec<u8>, u64)>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("limits", &self.server.core.limits).finish_non_exhaustive()
    }
}

impl View {
    /// Serves a mounted FUSE file system from `source`. `pins` exist whatever the source says;
    /// nothing at one of the `absent` paths, or beneath, is no reason to refuse a job: there belong
    /// [`KNOWN_ABSENT`] and those of the compiler's own include directories that the client does
    /// not have. A star in a path stands for any octets of one name.
    ///
    /// Threads of the view end when the file system is unmounted, that is when the sandbox's
    /// anchor and its cells have ended.
    ///
    /// # Errors
    /// When the kernel's first message does not come or is not understood.
    pub fn start(
        fuse: OwnedFd,
        source: Arc<dyn Source>,
        pins: Vec<(Vec<u8>, Pin)>,
        absent: Vec<Vec<u8>>,
        limits: Limits,
    ) -> io::Result<Self> {
        let core = Core::new(source, Pins::new(pins, absent), limits);
        let server = Arc::new(Server::new(core));
        let front = Front(Arc::clone(&server));
        let session = Session::from_fd(front, fuse, SessionACL::All, Config::default())?;
        let notifier = session.notifier();
        Ok(Self { server, notifier, _session: session.spawn()? })
    }

    /// A job begins in this slot. Names that have changed are looked up again. `places` are
    /// directories in which it makes files although the client does not show them: to the job they
    /// are there, and so is nothing that it makes itself. Any other name in them refuses the job.
    ///
    /// # Errors
    /// When the kernel does not take a notification: the file system is gone.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn begin(&self, slot: usize, places: Places) -> io::Result<()> {
        self.clear(slot)?;
        let outdated = {
            let slot = &mut self.state().slots[slot];
            let outdated = slot.outdated.take();
            let all = std::mem::take(&mut slot.alone) || slot.is_told_much();
            if all { None } else { outdated }
        };
        match outdated {
            None => self.drop_all(slot)?,
            Some(names) => {
                for (dir, name) in names {
                    self.drop_name(slot, &dir, &name)?;
                }
            }
        }
        self.state().slots[slot].start(places);
        Ok(())
    }

    /// A job begins in this slot that needs nothing of the client's but its source: these octets
    /// at this path. It sees what is pinned, and the directories `places`, which are empty.
    ///
    /// # Errors
    /// When the kernel does not take a notification: the file system is gone.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn begin_alone(
        &self,
        slot: usize,
        places: Vec<Vec<u8>>,
        (path, octets): (Vec<u8>, Vec<u8>),
    ) -> io::Result<()> {
        self.clear(slot)?;
        let is_as_before = {
            let slot = &mut self.state().slots[slot];
            let is_alone = std::mem::replace(&mut slot.alone, true);
            is_alone && slot.places.directories == places && !slot.is_told_much()
        };
        if !is_as_before {
            self.drop_all(slot)?;
        }
        // Another job may have looked in vain for this one's source.
        if let Some((dir, name)) = split(&path) {
            self.drop_name(slot, dir, name)?;
        }
        let mut state = self.state();
        state.slots[slot].start(Places { directories: places, ..Places::default() });
        let attr = Attr { mode: 0o644, ..changes::fresh() };
        state.bring(slot, &path, octets, attr);
        state.slots[slot].brought = Some(path);
        Ok(())
    }

    /// The job in this slot has ended, with all of its processes: what it did is taken out of
    /// the view.
    ///
    /// # Errors
    /// When the kernel does not take a notification: the file system is gone.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn finish(&self, slot: usize) -> io::Result<Outcome> {
        let (mut outcome, changed) = self.state().collect(slot);
        // What a job makes and removes again, as objcopy does, is nobody's loss.
        let alone = self.state().slots[slot].alone;
        outcome.deleted.retain(|path| !alone && self.server.core.is_at_client(path));
        for (path, child) in changed {
            self.drop_change(slot, &path, child)?;
        }
        Ok(outcome)
    }

    /// Takes out of a slot what a job left there that was never finished.
    fn clear(&self, slot: SlotId) -> io::Result<()> {
        let is_left = {
            let slot = &self.state().slots[slot];
            slot.running || !slot.changed.is_empty() || slot.brought.is_some()
        };
        if is_left { self.finish(slot).map(drop) } else { Ok(()) }
    }

    /// Whatever processes in this slot wait for, now or until the job's end, fails at once, so that
    /// they can be killed.
    pub fn cancel(&self, slot: usize) {
        self.server.cancel(slot);
    }

    /// Whether the job in this slot has been refused already and may as well be stopped.
    pub fn is_refused(&self, slot: usize) -> bool {
        self.state().slots.get(slot).is_some_and(|slot| slot.refused.is_some())
    }

    /// `name` in the directory `dir` is something else now, or its attributes are.
    pub fn invalidate(&self, dir: &[u8], name: &[u8]) {
        let mut state = self.state();
        for slot in 0..state.slots.len() {
            if state.nodes.dir_at(slot, dir).is_some() {
                state.slots[slot].outdated.push(dir, name);
            }
        }
    }

    /// Nothing that the kernel knows of any name holds any more.
    pub fn forget_all(&self) {
        for slot in &mut self.state().slots {
            slot.outdated.push_all();
        }
    }

    /// How often the kernel has asked, all slots together.
    pub fn upcalls(&self) -> Upcalls {
        self.state().upcalls
    }

    /// Nodes that the kernel or a job holds.
    pub fn nodes(&self) -> usize {
        self.state().nodes.len()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.server.core.lock()
    }

    /// Makes the kernel look up a name again.
    fn drop_name(&self, slot: SlotId, dir: &[u8], name: &[u8]) -> io::Result<()> {
        let path = join(dir, name);
        let pins = &self.server.core.pins;
        if pins.leads(&path) {
            return self.drop_below(slot, &path);
        }
        if pins.of(&path) != Pinned::No {
            return Ok(());
        }
        let Some(parent) = self.state().nodes.dir_at(slot, dir) else {
            return Ok(());
        };
        if let Some(dir) = self.state().nodes.dir_mut(parent) {
            dir.told.remove(name);
        }
        self.notifier.inval_entry(INodeNo(parent), os(name))
    }

    /// Makes the kernel look up all names of a slot again.
    fn drop_all(&self, slot: SlotId) -> io::Result<()> {
        self.drop_below(slot, b"/")?;
        self.state().slots[slot].told = 0;
        Ok(())
    }

    /// Makes the kernel look up all names again in a directory that leads to pins. Anything else
    /// is dropped with the name of its directory; these cannot be, because that unmounts what is
    /// mounted below.
    fn drop_below(&self, slot: SlotId, dir: &[u8]) -> io::Result<()> {
        let told: Vec<_> = {
            let state = self.state();
            let dir = state.nodes.dir_at(slot, dir).and_then(|number| state.nodes.dir(number));
            dir.map(|dir| dir.told.iter().cloned().collect()).unwrap_or_default()
        };
        told.iter().try_for_each(|name| self.drop_name(slot, dir, name))
    }

    /// Takes a name that a job changed out of the kernel's caches, with the file itself.
    fn drop_change(&self, slot: SlotId, path: &[u8], child: Option<u64>) -> io::Result<()> {
        let Some((dir, name)) = split(path) else {
            return Ok(());
        };
        let Some(parent) = self.state().nodes.dir_at(slot, dir) else {
            return Ok(());
        };
        if let Some(child) = child {
            // The name may be gone from the kernel's caches already, or be another by now.
            let _ = self.notifier.delete(INodeNo(parent), INodeNo(child), os(name));
        }
        self.notifier.inval_entry(INodeNo(parent), os(name))
    }
}

/// A changed path, with the job's own file at it.
type Changed = (Vec<u8>, Option<u64>);

impl State {
    /// Ends a slot's job and takes what it did out of its slot.
    fn collect(&mut self, slot: SlotId) -> (Outcome, Vec<Changed>) {
        let of = &mut self.slots[slot];
        (of.running, of.cancelled, of.begun) = (false, false, None);
        of.used = 0;
        let mut outcome = Outcome {
            refused: of.refused.take(),
            stale: std::mem::take(&mut of.stale),
            touched: std::mem::take(&mut of.touched),
            ..Outcome::default()
        };
        let changes = std::mem::take(&mut of.changes);
        let brought = of.brought.take();
        let mut changed: std::collections::BTreeMap<_, _> =
            std::mem::take(&mut of.changed).into_iter().map(|path| (path, None)).collect();
        for (path, change) in changes {
            let Change::Is(number) = change else {
                outcome.deleted.push(path);
                continue;
            };
            changed.insert(path.clone(), self.collect_node(number, path, &mut outcome));
            self.nodes.release(number);
        }
        let is_source = |file: &mut Created| brought.as_ref() == Some(&file.path);
        outcome.source = outcome.created.extract_if(.., is_source).next().map(|file| file.contents);
        // What is inside a directory goes before the directory.
        (outcome, changed.into_iter().rev().collect())
    }

    /// Adds what a job put at `path` to its outcome; says the number if it is the job's own file.
    fn collect_node(&mut self, number: u64, path: Vec<u8>, outcome: &mut Outcome) -> Option<u64> {
        if let Some(own) = self.nodes.own_mut(number) {
            let (contents, mode) = (std::mem::take(&mut own.data), own.attr.mode);
            outcome.created.push(Created { path, mode, contents });
            return Some(number);
        }
        match self.nodes.get(number) {
            Some(What::Dir(_)) => outcome.directories.push(path),
            Some(What::Shared { id, .. }) => outcome.renamed.push((path, *id)),
            _ => {}
        }
        None
    }
}

fn os(name: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}
