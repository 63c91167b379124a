//! Builds ahead of the suites that need them.
//!
//! While the first suites run, which often wait, the builds of later ones are made at the lowest
//! priority. This replaces nothing: a suite builds as if it ran alone, and finds little to do.
//! Never reports anything: a build that fails here fails in its suite, too.

use std::fs;
use std::iter;
use std::process::{self, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::limit::{niceness, own_descendants};
use super::{Build, Suite, needs};

/// The builds under way.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Those that have not been waited for, in their order.
    expected: Vec<Build>,
    ended: Receiver<Build>,
}

impl Ahead {
    /// Starts the builds of `suites`, one after the other.
    pub(super) fn start(suites: &[&Suite]) -> Self {
        Self::making(builds_of_later(suites), |build| {
            for command in build.commands().unwrap_or_default() {
                let _ = at_leisure(&command).status();
            }
        })
    }

    fn making(builds: Vec<Build>, make: impl Fn(Build) + Send + 'static) -> Self {
        let (end, ended) = mpsc::channel();
        let expected = builds.clone();
        thread::spawn(move || {
            for build in builds {
                make(build);
                if end.send(build).is_err() {
                    return;
                }
            }
        });
        Self { expected, ended }
    }

    /// Waits for the end of what `suite` builds.
    pub(super) fn wait_for(&mut self, suite: &Suite) {
        while self.expected.iter().any(|build| suite.builds == Some(*build)) {
            match self.ended.recv_timeout(Duration::from_secs(1)) {
                Ok(ended) => self.expected.retain(|build| *build != ended),
                Err(RecvTimeoutError::Timeout) => hasten(),
                Err(RecvTimeoutError::Disconnected) => self.expected.clear(),
            }
        }
    }
}

/// What later suites build, once each: nothing runs beside the builds of the first. Suites that
/// will be skipped build nothing.
fn builds_of_later(suites: &[&Suite]) -> Vec<Build> {
    let first = suites.first().and_then(|suite| suite.builds);
    let runs = suites.iter().filter(|suite| needs::missing(suite.needs).is_empty());
    let mut later = Vec::new();
    for build in runs.filter_map(|suite| suite.builds) {
        if Some(build) != first && !later.contains(&build) {
            later.push(build);
        }
    }
    later
}

/// Gives the builds under way the priority of this process, if it may: a suite waits for them.
fn hasten() {
    let Some(own) = niceness(process::id()) else { return };
    let is_build = |process: &u32| niceness(*process).is_some_and(|niceness| niceness > own);
    // Each thread has a priority of its own.
    let threads =
        |process: u32| fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let threads = own_descendants().into_iter().filter(is_build).flat_map(threads);
    let mut renice = Command::new("renice");
    renice.args(["-n", &own.to_string(), "-p"]);
    renice.args(threads.flatten().map(|entry| entry.file_name()));
    // An error for a process that has ended by itself is expected.
    let _ = renice.stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// The same command at the lowest priority, and silent.
fn at_leisure(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.arg("-n19").args(iter::once(command.get_program()).chain(command.get_args()));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        nice.current_dir(directory);
    }
    nice.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    nice
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;
    use crate::process::PAUSE;
    use crate::test::needs::{Need, is_root};
    use crate::test::{Count, LONG_SUITES, SUITES};

    fn suite(needs: &'static [Need], builds: Option<Build>) -> Suite {
        let run = |_: &_| Ok(Count::default());
        Suite { name: "sample", about: "a sample", needs, minutes: 1, builds, run }
    }

    /// Builds that are hastened are all those of this process.
    fn alone() -> MutexGuard<'static, ()> {
        static ONE: Mutex<()> = Mutex::new(());
        ONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn the_builds_of_later_suites_are_made_once_each() {
        let [none, release] = [None, Some(Build::Release)].map(|build| suite(&[], build));
        let loom = suite(&[], Some(Build::Loom));
        let lacking = suite(&[Need::Packages(&["outboard-no-such-package"])], Some(Build::Fuzz));
        assert_eq!(
            builds_of_later(&[&none, &release, &loom, &lacking, &release]),
            [Build::Release, Build::Loom]
        );
        assert_eq!(builds_of_later(&[&release, &loom, &release]), [Build::Loom]);
        assert_eq!(builds_of_later(&[&release]), []);
    }

    #[test]
    fn a_suite_waits_for_its_own_build_alone() {
        let _alone = alone();
        let (go, gone) = mpsc::channel();
        let mut ahead = Ahead::making(vec![Build::Loom, Build::Fuzz], move |build| {
            if build == Build::Loom {
                thread::sleep(Duration::from_millis(100));
            } else {
                gone.recv().expect("told to");
            }
        });
        ahead.wait_for(&suite(&[], None));
        assert_eq!(ahead.expected, [Build::Loom, Build::Fuzz]);
        ahead.wait_for(&suite(&[], Some(Build::Loom)));
        assert_eq!(ahead.expected, [Build::Fuzz]);
        go.send(()).expect("it waits");
        ahead.wait_for(&suite(&[], Some(Build::Fuzz)));
        assert_eq!(ahead.expected, []);
    }

    #[test]
    fn a_builder_that_panics_holds_up_no_suite() {
        let _alone = alone();
        let mut ahead = Ahead::making(vec![Build::Loom], |_| panic!("a defect"));
        ahead.wait_for(&suite(&[], Some(Build::Loom)));
    }

    #[test]
    fn the_same_command_runs_at_the_lowest_priority() {
        let _alone = alone();
        let mut sh = Command::new("sh");
        sh.args(["-c", "nice; echo $SAMPLE; pwd"]).env("SAMPLE", "value").current_dir("/");
        let output = at_leisure(&sh).stdout(Stdio::piped()).output().expect("sh runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "19\nvalue\n/\n");
    }

    #[test]
    fn a_build_that_is_waited_for_has_the_priority_of_what_waits() {
        let _alone = alone();
        let mut build = at_leisure(Command::new("sleep").arg("60")).spawn().expect("sleep runs");
        while niceness(build.id()) != Some(19) {
            thread::sleep(PAUSE);
        }
        hasten();
        let (now, own) = (niceness(build.id()), niceness(process::id()));
        build.kill().expect("it runs");
        build.wait().expect("it ended");
        assert_eq!(now, if is_root() { own } else { Some(19) });
    }

    /// cargo locks the directory that it builds in.
    #[test]
    fn each_build_has_a_directory_of_its_own() {
        let directory = |build: &Build| {
            let commands = build.commands().expect("commands");
            let variables: Vec<_> = commands.iter().flat_map(Command::get_envs).collect();
            let target = variables.iter().find(|(name, _)| *name == OsStr::new("CARGO_TARGET_DIR"));
            target.and_then(|(_, value)| value.map(OsStr::to_owned))
        };
        let suites = SUITES.iter().chain(LONG_SUITES);
        let mut builds: Vec<Build> = suites.filter_map(|suite| suite.builds).collect();
        builds.dedup();
        builds.retain(|build| *build != Build::Release);
        let mut directories: Vec<_> = builds.iter().map(directory).collect();
        assert!(directories.iter().all(Option::is_some), "{directories:?}");
        directories.sort();
        directories.dedup();
        assert_eq!(directories.len(), 3);
    }
}
