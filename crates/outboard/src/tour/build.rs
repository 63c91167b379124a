//! A build: a compiler's call for each source, a bounded number at a time.

use super::project::Project;
use super::{Guide, Trouble};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Where a build's outputs go, in the project's directory: the same for every build, since debug
/// information names it.
pub(super) const OBJECTS: &str = "objects";
/// How each source is compiled, between the compiler's name and the files.
pub(super) const OPTIONS: &[&str] = &["-O2", "-g", "-MD", "-DLUA_USE_POSIX", "-DLUA_COMPAT_5_3"];
/// How long a compiler may take to end in order.
const END_MAX: Duration = Duration::from_secs(2);
/// How often jobs are looked at.
const LOOK: Duration = Duration::from_millis(2);

/// The result of a build.
#[derive(Debug)]
pub(super) struct Built {
    /// How long it took.
    pub(super) time: Duration,
    /// Its outputs.
    pub(super) directory: PathBuf,
}

/// Builds `project` with `at_once` compilers, each a `compiler()`; keeps the outputs as `name`.
pub(super) fn build(
    guide: &Guide,
    project: &Project,
    at_once: usize,
    name: &str,
    compiler: impl Fn() -> io::Result<Command>,
) -> Result<Built, Trouble> {
    let log = guide.place.path().join(format!("{name}.log"));
    let mut jobs = Jobs { running: Vec::new(), log: log.clone() };
    let objects = project.directory.join(OBJECTS);
    prepare(project, &objects)?;
    let all = project.sources.len();
    let (began, mut done, mut waiting) = (Instant::now(), 0, project.sources.iter());
    while done < all {
        guide.goes_on()?;
        while jobs.running.len() < at_once
            && let Some(source) = waiting.next()
        {
            let mut command = compiler()?;
            command.args(OPTIONS).arg("-c").arg(source).arg("-o");
            command.arg(Path::new(OBJECTS).join(source).with_extension("o"));
            // Set as a shell sets it: compilers read it.
            command.current_dir(&project.directory).env("PWD", &project.directory);
            command.env("TMPDIR", guide.place.directory("tmp")?);
            jobs.start(&mut command)?;
        }
        let ended = jobs.reap()?;
        done += ended;
        if ended == 0 {
            thread::sleep(LOOK);
        } else {
            guide.whisper(&format!("   {name}: {done} of {all}"));
        }
    }
    let time = began.elapsed();
    guide.whisper("");
    let directory = guide.place.path().join(name);
    fs::rename(objects, &directory)?;
    Ok(Built { time, directory })
}

/// Makes directories for the outputs.
fn prepare(project: &Project, objects: &Path) -> io::Result<()> {
    let mut directories: Vec<_> = project.sources.iter().filter_map(|file| file.parent()).collect();
    directories.dedup();
    directories.into_iter().try_for_each(|name| fs::create_dir_all(objects.join(name)))
}

/// Compilers that run; on drop they are ended.
struct Jobs {
    running: Vec<Child>,
    log: PathBuf,
}

impl Jobs {
    fn start(&mut self, command: &mut Command) -> io::Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // A group of its own: a compiler has children, too.
        self.running.push(command.process_group(0).spawn()?);
        Ok(())
    }

    /// How many have ended since it was last asked.
    fn reap(&mut self) -> Result<usize, Trouble> {
        let before = self.running.len();
        let mut outcome = Ok(());
        self.running.retain_mut(|child| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) if status.success() => false,
            Ok(Some(status)) => {
                outcome = Err(format!("a compiler ended with {status}"));
                false
            }
            Err(error) => {
                outcome = Err(error.to_string());
                false
            }
        });
        match outcome {
            Ok(()) => Ok(before - self.running.len()),
            Err(why) => {
                let said = fs::read_to_string(&self.log)?;
                let lines: Vec<&str> = said.lines().take(20).collect();
                Err(Trouble::Failed(format!("{why}; it said:\n{}", lines.join("\n"))))
            }
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        for signal in [Signal::TERM, Signal::KILL] {
            // The first signal lets compilers remove their temporary files.
            for child in &self.running {
                let _asked = kill_process_group(Pid::from_child(child), signal);
            }
            let limit = Instant::now() + END_MAX;
            while !self.running.is_empty() && Instant::now() < limit {
                self.running.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
                thread::sleep(LOOK);
            }
        }
    }
}
