//! A client's files as a FUSE file system, one subtree for each slot.
//!
//! The kernel keeps names (also those that do not exist), attributes and contents without a time
//! limit, so that the second job in a slot causes no requests. What changes at the client is named
//! by [`View::invalidate`] and dropped from the kernel's caches before the next job of each slot
//! begins. A file whose contents change becomes another inode, so cached contents need no dropping.
//! Nothing is dropped while a job runs: the job sees the state that it was submitted with or a
//! newer one, and the kernel is never notified while a process of the slot could hold a lock that
//! the notification waits for.
//!
//! For a name outside the directories that the client exports, the view asks the client whether the
//! name exists at all. A look-up of a name that exists but is not exported fails and marks the job
//! as refused: it has to run at the client.
//!
//! Modules in reading order: `source` (supplies names, attributes and contents), `pins` (names that
//! exist in every view), `places` (directories that the client does not export, in which jobs make
//! files), `probes` (paths that compilers look up by themselves), `inodes` (the inodes that the
//! kernel holds), `slot` (a job's changes), `state` (look-ups and reads), `changes` (writes),
//! `requesters` (which slot a process works for), `serve` (the kernel's requests).

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

mod changes;
mod inodes;
mod pins;
mod places;
mod probes;
mod requesters;
mod serve;
mod slot;
mod source;
mod state;

pub use pins::PinnedNode;
pub use places::Places;
pub use slot::{RefusedPath, TOUCHED_MAX, UpcallCounts, Why};
pub use source::{FetchDone, FileSource};

use fuser::{BackgroundSession, Config, INodeNo, Notifier, Session, SessionACL};
use inodes::{InodeBody, SlotId};
use outboard_export::path::{join, split};
use outboard_export::{Attr, FileVersion};
use pins::{Pinned, Pins};
use serve::{FuseHandlers, ViewServer};
use slot::{NameChange, Redirect};
pub(crate) use state::SYNTHETIC;
use state::{ViewCore, ViewState};

/// Limits of a view, and the owner of its files.
#[derive(Debug, Clone, Copy)]
pub struct ViewLimits {
    /// Slots, named `0`, `1`, ... in the mount's root.
    pub slots: usize,
    /// Bytes of all files that one job makes.
    pub quota: u64,
    /// Owner of every file.
    pub uid: u32,
    /// Group of every file.
    pub gid: u32,
}

/// A client's files, mounted.
pub struct View {
    server: Arc<ViewServer>,
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
    /// Its contents.
    pub contents: Vec<u8>,
}

/// What a job did to its view.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobChanges {
    /// Files that it made or changed.
    pub created: Vec<Created>,
    /// Directories that it made.
    pub directories: Vec<Vec<u8>>,
    /// The client's files that the job linked or renamed to this path.
    pub renamed: Vec<(Vec<u8>, FileVersion)>,
    /// The path given to [`View::redirect`], if the job has opened it and its link is still in
    /// place.
    pub redirected: Option<Vec<u8>>,
    /// The [`Places`] given to [`View::begin_alone`], returned for the next job.
    pub source: Option<Vec<u8>>,
    /// Paths that it removed, or renamed away.
    pub deleted: Vec<Vec<u8>>,
    /// Why the job's result must be discarded and the job run at the client.
    pub refused: Option<RefusedPath>,
    /// A file changed at the client before the job read it: the job has to run again.
    pub stale: bool,
    /// Files that the job looked up and that the kernel had not cached, with their versions; at
    /// most [`TOUCHED_MAX`].
    pub touched: Vec<(Vec<u8>, u64)>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("limits", &self.server.core.limits).finish_non_exhaustive()
    }
}

impl View {
    /// Serves a mounted FUSE file system from `source`. `pins` exist whatever `source` contains.
    ///
    /// The view's threads end when the file system is unmounted, that is when the sandbox's
    /// supervisor and all of its slot sandboxes have ended.
    ///
    /// # Errors
    /// When the kernel's first message does not arrive or is malformed.
    pub fn start(
        fuse: OwnedFd,
        source: Arc<dyn FileSource>,
        pins: Vec<(Vec<u8>, PinnedNode)>,
        limits: ViewLimits,
    ) -> io::Result<Self> {
        let core = ViewCore::new(source, Pins::new(pins), limits);
        let server = Arc::new(ViewServer::new(core));
        let front = FuseHandlers(Arc::clone(&server));
        let session = Session::from_fd(front, fuse, SessionACL::All, Config::default())?;
        let notifier = session.notifier();
        Ok(Self { server, notifier, _session: session.spawn()? })
    }

    /// Begins a job in this slot. Names that have changed are looked up again. `places` are
    /// directories in which the job makes files although the client does not export them: the job
    /// finds these directories, and finds the files that it will make itself absent. Any other name
    /// in them refuses the job.
    ///
    /// # Errors
    /// When the kernel rejects a notification: the file system is gone.
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
        self.server.requesters.forget(slot);
        self.state().slots[slot].start(places);
        Ok(())
    }

    /// Begins a job in this slot that needs nothing of the client but its source file: `data` at
    /// `path`. The job sees the pins and the directories `places`, which are empty.
    ///
    /// # Errors
    /// When the kernel rejects a notification: the file system is gone.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn begin_alone(
        &self,
        slot: usize,
        places: Vec<Vec<u8>>,
        (path, bytes): (Vec<u8>, Vec<u8>),
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
        // An earlier job may have looked up this job's source and cached its absence.
        if let Some((dir, name)) = split(&path) {
            self.drop_name(slot, dir, name)?;
        }
        let mut state = self.state();
        state.slots[slot].start(Places { directories: places, ..Places::default() });
        let attr = Attr { mode: 0o644, ..changes::fresh() };
        state.bring(slot, &path, bytes, attr);
        state.slots[slot].brought = Some(path);
        Ok(())
    }

    /// Directs the file `path`, which the job in this slot writes, to `to` outside the view: `path`
    /// becomes a symbolic link to it.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn redirect(&self, slot: usize, path: Vec<u8>, to: &[u8]) {
        self.state().slots[slot].redirect = Some(Redirect { path, to: to.into(), told: false });
    }

    /// Ends the job in this slot, all of whose processes have ended, and removes its changes from
    /// the view.
    ///
    /// # Errors
    /// When the kernel rejects a notification: the file system is gone.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn finish(&self, slot: usize) -> io::Result<JobChanges> {
        let (mut outcome, changed) = self.state().collect(slot);
        // A client's file that the job linked and removed again, as objcopy does, is no loss.
        let alone = self.state().slots[slot].alone;
        outcome.deleted.retain(|path| !alone && self.server.core.is_at_client(path));
        for (path, child) in changed {
            self.drop_change(slot, &path, child)?;
        }
        Ok(outcome)
    }

    /// Removes the changes of a job that was never finished.
    fn clear(&self, slot: SlotId) -> io::Result<()> {
        let is_left = {
            let slot = &self.state().slots[slot];
            slot.running || !slot.changed.is_empty() || slot.brought.is_some()
        };
        if is_left { self.finish(slot).map(drop) } else { Ok(()) }
    }

    /// Fails all requests that processes in this slot wait for, now or until the job's end, so that
    /// the processes can be killed.
    pub fn cancel(&self, slot: usize) {
        self.server.cancel(slot);
    }

    /// Whether the job in this slot has been refused already, so that it may be stopped.
    pub fn is_refused(&self, slot: usize) -> bool {
        self.state().slots.get(slot).is_some_and(|slot| slot.refused.is_some())
    }

    /// Says that `name` in the directory `dir`, or its attributes, have changed at the client.
    pub fn invalidate(&self, dir: &[u8], name: &[u8]) {
        let mut state = self.state();
        for slot in 0..state.slots.len() {
            if state.inodes.dir_at(slot, dir).is_some() {
                state.slots[slot].outdated.push(dir, name);
            }
        }
    }

    /// Says that every name may have changed at the client.
    pub fn forget_all(&self) {
        for slot in &mut self.state().slots {
            slot.outdated.push_all();
        }
    }

    /// How often the kernel has sent requests, all slots together.
    pub fn upcalls(&self) -> UpcallCounts {
        self.state().upcalls
    }

    fn state(&self) -> std::sync::MutexGuard<'_, ViewState> {
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
        let Some(parent) = self.state().inodes.dir_at(slot, dir) else {
            return Ok(());
        };
        if let Some(dir) = self.state().inodes.dir_mut(parent) {
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

    /// Makes the kernel look up again all names in a directory that leads to pins. In other
    /// directories, names are dropped together with the directory; here that would unmount the file
    /// systems mounted below it.
    fn drop_below(&self, slot: SlotId, dir: &[u8]) -> io::Result<()> {
        let told: Vec<_> = {
            let state = self.state();
            let dir = state.inodes.dir_at(slot, dir).and_then(|number| state.inodes.dir(number));
            dir.map(|dir| dir.told.iter().cloned().collect()).unwrap_or_default()
        };
        told.iter().try_for_each(|name| self.drop_name(slot, dir, name))
    }

    /// Drops a name that a job changed from the kernel's caches, with the file itself.
    fn drop_change(&self, slot: SlotId, path: &[u8], child: Option<u64>) -> io::Result<()> {
        let Some((dir, name)) = split(path) else {
            return Ok(());
        };
        let Some(parent) = self.state().inodes.dir_at(slot, dir) else {
            return Ok(());
        };
        if let Some(child) = child {
            // The name may have left the kernel's caches already, or stand for another file by now.
            let _ = self.notifier.delete(INodeNo(parent), INodeNo(child), os(name));
        }
        self.notifier.inval_entry(INodeNo(parent), os(name))
    }
}

/// A changed path, with the job's own file at it.
type Changed = (Vec<u8>, Option<u64>);

impl ViewState {
    /// Ends a slot's job and removes its changes from its slot.
    fn collect(&mut self, slot: SlotId) -> (JobChanges, Vec<Changed>) {
        let of = &mut self.slots[slot];
        (of.running, of.cancelled, of.begun) = (false, false, None);
        of.used = 0;
        let mut outcome = JobChanges {
            refused: of.refused.take(),
            stale: std::mem::take(&mut of.stale),
            touched: std::mem::take(&mut of.touched),
            ..JobChanges::default()
        };
        let changes = std::mem::take(&mut of.changes);
        let brought = of.brought.take();
        let redirect = of.redirect.take().filter(|at| at.told && !changes.contains_key(&at.path));
        outcome.redirected = redirect.map(|at| at.path);
        let mut changed: std::collections::BTreeMap<_, _> =
            std::mem::take(&mut of.changed).into_iter().map(|path| (path, None)).collect();
        for (path, change) in changes {
            let NameChange::Is(number) = change else {
                outcome.deleted.push(path);
                continue;
            };
            changed.insert(path.clone(), self.collect_inode(number, path, &mut outcome));
            self.inodes.release(number);
        }
        let is_source = |file: &mut Created| brought.as_ref() == Some(&file.path);
        outcome.source = outcome.created.extract_if(.., is_source).next().map(|file| file.contents);
        // The contents of a directory go before the directory.
        (outcome, changed.into_iter().rev().collect())
    }

    /// Adds the inode at `path` to the job's outcome; returns its number if it is the job's own
    /// file.
    fn collect_inode(
        &mut self,
        number: u64,
        path: Vec<u8>,
        outcome: &mut JobChanges,
    ) -> Option<u64> {
        if let Some(own) = self.inodes.own_mut(number) {
            let (contents, mode) = (std::mem::take(&mut own.data), own.attr.mode & 0o7777);
            outcome.created.push(Created { path, mode, contents });
            return Some(number);
        }
        match self.inodes.get(number) {
            Some(InodeBody::Dir(_)) => outcome.directories.push(path),
            Some(InodeBody::Shared { id, .. }) => outcome.renamed.push((path, *id)),
            _ => {}
        }
        None
    }
}

fn os(name: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}
