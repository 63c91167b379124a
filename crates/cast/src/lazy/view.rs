//! One cast's view, from its mount to its end.

use super::links::{hide_names, show_names};
use super::mount::{ShowError, mount_view, unmount_view};
use super::serve::ViewHandlers;
use super::server::{DemandChunks, LazyServer, ViewTree};
use super::{VIEWS_MAX, view_prefix};
use crate::receive::{Destination, ReceiveError, Receiver, StagedView};
use fuser::SessionUnmounter;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Views of this process whose requests are served.
static VIEWS: AtomicUsize = AtomicUsize::new(0);

/// A place among the views of this process.
struct ViewPlace;

impl ViewPlace {
    fn take() -> Result<Self, ShowError> {
        match VIEWS.fetch_add(1, Ordering::SeqCst) {
            taken if taken < VIEWS_MAX => Ok(Self),
            _ => {
                VIEWS.fetch_sub(1, Ordering::SeqCst);
                Err(ShowError::TooMany)
            }
        }
    }
}

impl Drop for ViewPlace {
    fn drop(&mut self) {
        VIEWS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// See the [module](self). If dropped before it is [published](Self::published), the names
/// disappear and what waits for bytes fails.
pub(crate) struct LazyView {
    shown: Arc<ShownView>,
}

/// What the view and its threads share.
struct ShownView {
    server: Arc<LazyServer>,
    destination: Arc<Destination>,
    name: Vec<u8>,
    /// Locked while names appear or disappear.
    stage: Mutex<ViewStage>,
}

/// What there is to take down.
enum ViewStage {
    /// The view is mounted; no name shows it.
    Mounted(Option<SessionUnmounter>),
    /// Names show it.
    Shown(Option<SessionUnmounter>),
    /// Nothing is left at the destination.
    Over,
}

impl LazyView {
    /// Mounts an empty view beside what is received. Asks the disk, and the kernel.
    pub(crate) fn mount(receiver: &Receiver, demand: DemandChunks) -> Result<Self, ShowError> {
        let place = ViewPlace::take()?;
        let destination = Arc::clone(receiver.destination());
        let name = [view_prefix(), receiver.hidden_suffix().as_bytes().to_vec()].concat();
        let server = Arc::new(LazyServer::new(demand));
        let handlers = || ViewHandlers(Arc::clone(&server));
        let mounted = mount_view(&destination, &name, handlers)?;
        destination.show_through(name.clone());
        let stage = Mutex::new(ViewStage::Mounted(mounted.unmounter));
        let view = Self { shown: Arc::new(ShownView { server, destination, name, stage }) };
        let (watched, ended) = (Arc::clone(&view.shown.server), Arc::downgrade(&view.shown));
        let session = mounted.session;
        start("outboard-view", move || {
            let _place = place;
            if let Err(error) = session.run() {
                tracing::warn!(%error, "a view has ended");
            }
            // By a user's hand, if the view is still there.
            ended.upgrade().into_iter().for_each(|view| view.unmounted());
        })?;
        start("outboard-waits", move || watched.watch())?;
        Ok(view)
    }

    /// Shows the names as soon as the manifest is here.
    pub(crate) fn show(&self, staged: impl FnOnce() -> Option<StagedView>) -> ShowResult {
        if self.shown.server.tree().is_some() {
            return Ok(());
        }
        let mut stage = self.shown.stage();
        if let ViewStage::Mounted(unmounter) = &mut *stage
            && let Some(staged) = staged()
        {
            let unmounter = unmounter.take();
            self.shown.server.show(ViewTree::new(staged));
            *stage = ViewStage::Shown(unmounter);
            return self.shown.with_tree(show_names).unwrap_or(Ok(()));
        }
        Ok(())
    }

    /// A chunk is held.
    pub(crate) fn came(&self, chunk: u32) {
        self.shown.server.came(chunk);
    }

    /// All is published: the view goes when no process uses it any more. Asks the kernel.
    pub(crate) fn published(&self) {
        self.shown.server.complete();
        self.shown.take_down();
    }
}

/// What came of showing names.
type ShowResult = Result<(), ReceiveError>;

impl Drop for LazyView {
    fn drop(&mut self) {
        self.shown.server.give_up();
        let shown = Arc::clone(&self.shown);
        // The loop that drops it must not wait for a disk. What a thread cannot do now is done when
        // the service starts again.
        if start("outboard-unmount", move || shown.take_down()).is_err() {
            tracing::warn!("no thread: a view stays mounted");
        }
    }
}

impl ShownView {
    fn stage(&self) -> std::sync::MutexGuard<'_, ViewStage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_tree<T>(
        &self,
        act: impl FnOnce(&Destination, &crate::tree::TreeManifest) -> T,
    ) -> Option<T> {
        let tree = self.server.tree()?;
        Some(act(&self.destination, tree.staged.manifest()))
    }

    /// Removes what is left at the destination: links, mount, directory.
    fn take_down(&self) {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, ViewStage::Over) {
            ViewStage::Over => {}
            ViewStage::Mounted(unmounter) => {
                unmount_view(&self.destination, &self.name, unmounter);
            }
            ViewStage::Shown(unmounter) => {
                self.with_tree(hide_names);
                unmount_view(&self.destination, &self.name, unmounter);
            }
        }
    }

    /// The kernel has no use for the view any more.
    fn unmounted(&self) {
        if !matches!(*self.stage(), ViewStage::Over) {
            let path = self.destination.path().join(crate::tree::shown(&self.name));
            tracing::warn!(path = %path.display(), "the view was unmounted: its names are seen \
                again when all is here");
        }
        self.take_down();
    }
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), ShowError> {
    let started = thread::Builder::new().name(name.into()).spawn(run);
    started.map(drop).map_err(ShowError::Thread)
}
