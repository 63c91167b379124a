//! What a compiler's identity depends on, and how it is looked at again at little cost.
//!
//! A directory that has not changed holds the names that it held: what was absent in it is absent
//! still, and its links lead where they led. So of most paths one look at their directory is
//! enough. Files are always looked at: what is written into one changes no directory.

use super::PartSymlink;
use super::part::{Premise, Stamp};
use rustix::fs::{CWD, statfs};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// A directory that changed more recently may change again without another time: file systems'
/// clocks tick as rarely as every two seconds.
const TICK_MAX: Duration = Duration::from_secs(2);
/// `FUSE_SUPER_MAGIC` (linux/magic.h): a directory's times are what its server makes up.
const FUSE: i64 = 0x6573_5546;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Premises {
    states: Vec<Premise>,
    /// See [`TICK_MAX`].
    tick: Duration,
    /// The result of the last look at all, if that was that nothing had changed.
    shortcut: Mutex<Option<Shortcut>>,
}

/// Looks that together stand for the look at all.
#[derive(Debug)]
struct Shortcut {
    directories: Vec<(PathBuf, Stamp)>,
    /// Indices of the links and states that no directory stands for.
    links: Vec<usize>,
    states: Vec<usize>,
}

impl Premises {
    pub(super) fn new(states: Vec<Premise>) -> Self {
        Self { states, tick: TICK_MAX, shortcut: Mutex::default() }
    }

    pub(super) fn states(&self) -> &[Premise] {
        &self.states
    }

    /// Whether all states are the same, and all links lead where they led. Looks at files.
    pub(super) fn hold(&self, links: &[PartSymlink]) -> bool {
        let short = self.shortcut().as_ref().is_some_and(|short| short.holds(links, &self.states));
        if short {
            return true;
        }
        // Before the look: what changes meanwhile makes the shortcut fail.
        let shortcut = Shortcut::of(links, &self.states, SystemTime::now() - self.tick);
        let is_same = links.iter().all(leads_there) && self.states.iter().all(Premise::holds);
        *self.shortcut() = is_same.then_some(shortcut);
        is_same
    }

    fn shortcut(&self) -> MutexGuard<'_, Option<Shortcut>> {
        self.shortcut.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shortcut {
    /// Only directories that have not changed since `before` stand for their names.
    fn of(links: &[PartSymlink], states: &[Premise], before: SystemTime) -> Self {
        let mut seen = Directories { before, known: HashMap::new() };
        let links = (0..links.len()).filter(|at| !seen.stand_for(&links[*at].path)).collect();
        let is_covered = |state: &Premise, seen: &mut Directories| {
            state.is_of_an_absent_name() && seen.stand_for(state.path())
        };
        let states = (0..states.len()).filter(|at| !is_covered(&states[*at], &mut seen)).collect();
        Self { directories: seen.known(), links, states }
    }

    fn holds(&self, links: &[PartSymlink], states: &[Premise]) -> bool {
        self.directories.iter().all(|(path, stamp)| Stamp::of(path).ok() == Some(*stamp))
            && self.links.iter().all(|at| leads_there(&links[*at]))
            && self.states.iter().all(|at| states[*at].holds())
    }
}

/// The directories of paths; `None` for those that cannot stand for their names.
struct Directories {
    before: SystemTime,
    known: HashMap<PathBuf, Option<Stamp>>,
}

impl Directories {
    /// Whether the directory of `path` can stand for it.
    fn stand_for(&mut self, path: &Path) -> bool {
        let Some(directory) = path.parent() else { return false };
        if let Some(known) = self.known.get(directory) {
            return known.is_some();
        }
        let is_fit = |stamp: &Stamp| stamp.changed_before(self.before) && !is_fuse(directory);
        let stamp = Stamp::of(directory).ok().filter(is_fit);
        self.known.insert(directory.to_owned(), stamp);
        stamp.is_some()
    }

    fn known(self) -> Vec<(PathBuf, Stamp)> {
        self.known.into_iter().filter_map(|(path, stamp)| Some((path, stamp?))).collect()
    }
}

fn is_fuse(directory: &Path) -> bool {
    statfs(directory).is_ok_and(|found| found.f_type == FUSE)
}

/// Whether a link still has the same target: another target's state was never recorded.
fn leads_there(link: &PartSymlink) -> bool {
    fs::read_link(&link.path).is_ok_and(|target| target == link.target)
}

/// Whether nothing has this name: no link either that leads nowhere, and no rights hide it.
pub(super) fn is_no_name(path: &Path) -> bool {
    let found = rustix::fs::statat(CWD, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
    found.err() == Some(Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    type Act<'a> = &'a dyn Fn();

    /// The test's own file system has clocks of the kernel.
    const TICK: Duration = Duration::from_millis(50);

    /// Waits until a directory's last change is older than a tick.
    fn age() {
        std::thread::sleep(2 * TICK);
    }

    fn directories(premises: &Premises) -> usize {
        premises.shortcut().as_ref().map_or(0, |short| short.directories.len())
    }

    #[test]
    fn every_change_is_noticed_through_the_directory_or_the_file() {
        let top = tempfile::tempdir().expect("a directory");
        let at = |name: &str| top.path().join(name);
        fs::create_dir(at("bin")).expect("made");
        fs::create_dir(at("later")).expect("made");
        fs::write(at("bin/cc1"), "old").expect("written");
        symlink("cc1", at("bin/cc")).expect("linked");
        symlink("../nowhere", at("bin/dangling")).expect("linked");
        let links = [PartSymlink { path: at("bin/cc"), target: "cc1".into() }];
        let states = || {
            let paths = ["bin/cc", "bin/as", "bin/dangling", "bin/../bin/specs", "later/as"];
            let states = paths.map(|path| Premise::of(at(path))).to_vec();
            Premises { tick: TICK, ..Premises::new(states) }
        };
        let relink = |target: &str| {
            fs::remove_file(at("bin/cc")).expect("removed");
            symlink(target, at("bin/cc")).expect("linked");
        };
        let changes: [(&str, Act, Act); 6] = [
            ("contents", &|| fs::write(at("bin/cc1"), "new").expect("written"), &|| ()),
            ("a name", &|| fs::write(at("bin/as"), "").expect("written"), &|| {
                fs::remove_file(at("bin/as")).expect("removed");
            }),
            (
                "a name by another way",
                &|| fs::write(at("bin/specs"), "").expect("written"),
                &|| {
                    fs::remove_file(at("bin/specs")).expect("removed");
                },
            ),
            ("a link's end", &|| fs::write(at("nowhere"), "").expect("written"), &|| {
                fs::remove_file(at("nowhere")).expect("removed");
            }),
            ("a link", &|| relink("./cc1"), &|| relink("cc1")),
            ("a directory", &|| fs::rename(at("bin"), at("old")).expect("renamed"), &|| {
                fs::rename(at("old"), at("bin")).expect("renamed");
            }),
        ];
        for (what, change, undo) in changes {
            let premises = states();
            age();
            assert!(premises.hold(&links) && premises.hold(&links), "{what}: nothing has changed");
            assert_eq!(directories(&premises), 3, "{what}");
            change();
            assert!(!premises.hold(&links), "{what}");
            undo();
        }
    }

    #[test]
    fn a_directory_that_has_just_changed_stands_for_nothing() {
        let top = tempfile::tempdir().expect("a directory");
        let premises = Premises::new(vec![Premise::of(top.path().join("as"))]);
        for _ in 0..3 {
            assert!(premises.hold(&[]));
            assert_eq!(directories(&premises), 0);
        }
        fs::write(top.path().join("as"), "").expect("written");
        assert!(!premises.hold(&[]));
    }
}
