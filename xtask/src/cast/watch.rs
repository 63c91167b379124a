//! A watcher of destinations: a name that appears must be complete at once, and nothing else may
//! ever be seen.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::image::{Contents, TreeImage, listing};
use super::sample::Sample;

/// The shortest time between two looks at a destination.
const PAUSE: Duration = Duration::from_millis(4);

/// Watches until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<WatchedNode>>>,
}

/// What was seen of one destination.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchedNode {
    /// When each name was first seen.
    pub(super) seen: Vec<(PathBuf, Instant)>,
    /// What should not have been seen.
    pub(super) faults: Vec<String>,
}

impl Watch {
    /// Watches destinations in which only the names of these images may appear.
    pub(super) fn start(disks: Vec<PathBuf>, images: Vec<(PathBuf, TreeImage)>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut nodes = vec![WatchedNode::default(); disks.len()];
            loop {
                // Once more after the end: a name may have appeared just before it.
                let is_last = stopped.load(Ordering::Relaxed);
                for (disk, node) in disks.iter().zip(&mut nodes) {
                    node.look(disk, &images);
                }
                if is_last {
                    return nodes;
                }
                thread::sleep(PAUSE);
            }
        });
        Self { stop, thread: Some(thread) }
    }

    /// What was seen, in the order of the destinations.
    ///
    /// # Errors
    /// When something partial or foreign was seen.
    pub(super) fn end(mut self) -> Result<Vec<WatchedNode>> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().and_then(|thread| thread.join().ok());
        let nodes = thread.ok_or_else(|| anyhow!("the watcher has failed"))?;
        let faults: Vec<&str> = nodes.iter().flat_map(|node| &node.faults).map(|f| &**f).collect();
        match faults[..] {
            [] => Ok(nodes),
            [first, ..] => {
                bail!("{} names were seen that were not complete: {first}", faults.len())
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl WatchedNode {
    fn look(&mut self, disk: &Path, images: &[(PathBuf, TreeImage)]) {
        // A disk may be replaced meanwhile.
        let Ok((names, _)) = listing(disk) else { return };
        for name in names {
            if self.seen.iter().any(|(known, _)| *known == name) {
                continue;
            }
            let at = Instant::now();
            let image = images.iter().find(|(known, _)| *known == name);
            let complete = match image {
                Some((_, image)) => image.expect(&disk.join(&name), Contents::Sampled),
                None => Err(anyhow!("{:?} appeared", disk.join(&name))),
            };
            self.faults.extend(complete.err().map(|error| format!("{error:#}")));
            self.seen.push((name, at));
        }
    }

    /// How long after `began` the last of `names` names was seen; `None` if not all were.
    pub(super) fn complete_after(&self, names: usize, began: Instant) -> Option<Duration> {
        let last = self.seen.iter().map(|(_, at)| *at).max()?;
        (self.seen.len() == names).then(|| last.saturating_duration_since(began))
    }
}

/// The images of all sources of a sample, by the names that they get.
pub(super) fn images(sample: &Sample) -> Result<Vec<(PathBuf, TreeImage)>> {
    let image = |path: &PathBuf| {
        let name = path.file_name().ok_or_else(|| anyhow!("{path:?} has no name"))?;
        Ok((PathBuf::from(name), TreeImage::read(path)?))
    };
    sample.sources.iter().map(image).collect()
}
