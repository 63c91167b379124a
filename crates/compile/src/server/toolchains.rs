//! The compilers of a server: those that its administrator installed, and programs that its options
//! put in place of them.
//!
//! Once the service runs, compilers are identified, and looked at again, by threads (`identifying`,
//! `checking`): nothing here waits for one, or looks at a file.

mod checking;
mod identifying;

use super::client_sandbox::ShownFiles;
use crate::args::is_compiler;
use crate::running_time::RunningTime;
use crate::toolchain::{self, Hash, PartRole, PartSymlink, Toolchain, Toolchains};
use checking::{Checked, Checking, LookResult};
use identifying::{CompilerAnswer, Identifications, Identified};
use outboard_cluster::waker::Waker;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where administrators install compilers.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The C library's locales: without them, diagnostics have other quotation marks than locally.
const LOCALES: &str = "/usr/lib/locale";
/// A compiler that was not found is looked for again after this time.
const FORGET: Duration = Duration::from_secs(60);
/// How long ago compilers may have been looked at when a job arrives: to show them to the job takes
/// as long.
const FRESH: Duration = Duration::from_millis(50);
/// Compilers remembered as absent, at most.
const MISSING_MAX: usize = 4096;

/// A server's compilers: those that were installed, and those put in their places.
#[derive(Debug)]
pub struct Programs {
    toolchains: Toolchains,
    /// By the name that jobs call them.
    instead: BTreeMap<OsString, PathBuf>,
    installed: Vec<Installed>,
    missing: HashMap<[u8; 32], AbsentCompiler>,
    identifications: Identifications,
    checking: Checking,
    time: RunningTime,
    /// Counts changes of what has to be shown in sandboxes.
    generation: u64,
}

/// A compiler that is here.
#[derive(Debug)]
struct Installed {
    toolchain: Arc<Toolchain>,
    /// The generation in which it appeared in its present state.
    since: u64,
    /// When the last look at its files began that found no change.
    checked: Instant,
}

/// A program in the system's directories that has a compiler's name.
#[derive(Debug)]
struct Candidate {
    path: PathBuf,
    /// The file behind all links, and the links.
    driver: PathBuf,
    links: Vec<PartSymlink>,
}

/// A compiler that was not found.
#[derive(Debug)]
struct AbsentCompiler {
    since: Instant,
    /// The last of the questions whose answer may be this compiler.
    asked: u64,
}

/// The result of looking for a job's compiler.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CompilerSearch {
    Found(CompilerProgram),
    Absent,
    /// Compilers are being identified or looked at, of which it may be one.
    UnderWay,
}

/// A compiler's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompilerProgram {
    path: Vec<u8>,
    search: Vec<u8>,
    since: u64,
}

impl CompilerProgram {
    /// Where it is in a sandbox.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Its `PATH`: the directories of its parts. The caller's own names directories that are not
    /// shown.
    pub(crate) fn search(&self) -> &[u8] {
        &self.search
    }

    /// The first generation of the shown files that includes it.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// The program of a compiler that is unchanged since generation `since`.
    pub(crate) fn of(toolchain: &Toolchain, since: u64) -> Self {
        let called = |role: &PartRole| {
            matches!(role, PartRole::Driver | PartRole::Assembler | PartRole::Objcopy)
        };
        let parts = toolchain.parts.iter().filter(|part| called(&part.role));
        let names = parts.map(|part| &part.path).chain([&toolchain.name]);
        let mut directories: Vec<_> = names.filter_map(|path| path.parent()).collect();
        directories.sort_unstable();
        directories.dedup();
        let directories = directories.into_iter().map(|at| at.as_os_str().as_bytes());
        let search = directories.collect::<Vec<_>>().join(&b':');
        Self { path: toolchain.driver.clone().into_os_string().into_vec(), search, since }
    }
}

impl Programs {
    /// The compilers in the system's directories. What is learned of them is kept in `cache`.
    /// `instead` names programs that jobs get in place of a compiler of that name:
    /// `DIR/bin/PROGRAM`, with `DIR` shown to them.
    #[must_use]
    pub fn new(cache: Option<&Path>, instead: BTreeMap<OsString, PathBuf>) -> Self {
        let mut programs = Self::empty(cache, instead);
        // No client is served yet, so this may wait until the compilers are identified.
        programs.each(candidates(), |programs, compiler| programs.add(compiler, Instant::now()));
        programs
    }

    fn empty(cache: Option<&Path>, instead: BTreeMap<OsString, PathBuf>) -> Self {
        Self {
            toolchains: Toolchains::new(cache),
            instead,
            installed: Vec::new(),
            missing: HashMap::new(),
            identifications: Identifications::new(),
            checking: Checking::new(),
            time: RunningTime::default(),
            generation: 0,
        }
    }

    /// Has a loop woken when [`Self::learn`] has something to do.
    pub(super) fn set_waker(&mut self, waker: Waker) {
        self.checking.set_waker(waker.clone());
        self.identifications.set_waker(waker);
    }

    /// Every program is identified under one of its names only: that takes seconds.
    fn each(&mut self, candidates: Vec<Candidate>, mut identify: impl FnMut(&mut Self, &Path)) {
        for Candidate { path, driver, links } in candidates {
            match self.installed.iter().position(|at| at.toolchain.driver == driver) {
                Some(known) => self.add_links(known, &links),
                None => identify(self, &path),
            }
        }
    }

    /// Some compilers look in PATH for the name that they were called by.
    fn add_links(&mut self, installed: usize, links: &[PartSymlink]) {
        let known = &mut self.installed[installed];
        let new = links.iter().filter(|link| !known.toolchain.links.contains(link));
        let new: Vec<_> = new.cloned().collect();
        if !new.is_empty() {
            Arc::make_mut(&mut known.toolchain).links.extend(new);
            self.generation += 1;
            known.since = self.generation;
        }
    }

    /// No compilers, and no look at this machine's.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self::empty(None, BTreeMap::new())
    }

    /// The compilers' paths, for messages.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let instead = self.instead.values().map(PathBuf::as_path);
        self.toolchains().map(|toolchain| &*toolchain.driver).chain(instead)
    }

    fn toolchains(&self) -> impl Iterator<Item = &Toolchain> {
        self.installed.iter().map(|at| &*at.toolchain)
    }

    /// Identifies a compiler, and waits for that.
    pub(super) fn add(&mut self, compiler: &Path, now: Instant) {
        // A program that cannot be identified is not offered as a compiler.
        if let Ok(toolchain) = self.toolchains.identify(compiler, OsStr::new(PATH), now) {
            self.install(toolchain, now);
        }
    }

    /// Has a compiler identified that is not installed, if it `may_run` here.
    fn ask(&mut self, compiler: &Path, may_run: fn(&Path) -> bool, now: Instant) {
        let path = OsStr::new(PATH);
        let known = self.toolchains.remembered(compiler, path, now);
        let passed = self.time.pass(now);
        self.identifications.ask((compiler, path), known, may_run, now, passed);
    }

    /// Takes the results of threads. To be called once a second, or more often.
    pub(super) fn learn(&mut self, now: Instant) {
        self.time.pass(now);
        while let Some(checked) = self.checking.poll() {
            self.renew(checked, now);
        }
        while let Some(identified) = self.identifications.poll() {
            self.take(identified, now);
        }
    }

    fn take(&mut self, Identified { unknown, answer, asked }: Identified, now: Instant) {
        let known = match answer {
            CompilerAnswer::Remembered(known) => Some(known),
            CompilerAnswer::Learned(learned) => {
                // Of an error nothing is installed below.
                let _learned = self.toolchains.learn(&unknown, learned, now);
                self.toolchains.remembered(unknown.compiler(), OsStr::new(PATH), now)
            }
            CompilerAnswer::Refused => None,
        };
        let toolchain = known.and_then(|known| known.toolchain());
        toolchain.into_iter().for_each(|toolchain| self.install(toolchain, asked));
    }

    fn install(&mut self, toolchain: Arc<Toolchain>, checked: Instant) {
        self.missing.remove(&toolchain.hash.0);
        match self.installed.iter().position(|at| at.toolchain.hash == toolchain.hash) {
            Some(known) => {
                let at = &mut self.installed[known].checked;
                *at = checked.max(*at);
                self.add_links(known, &toolchain.links);
            }
            None => {
                self.generation += 1;
                self.installed.push(Installed { toolchain, since: self.generation, checked });
            }
        }
    }

    /// Takes what was found of a compiler: if it has changed on disk, it is dropped, and what is
    /// there now is identified.
    fn renew(&mut self, checked: Checked, now: Instant) {
        let Checked { compiler, began, found } = checked;
        let Some(position) = self.position(&compiler.0) else { return };
        let candidates = match found {
            LookResult::Same => {
                let at = &mut self.installed[position].checked;
                return *at = began.max(*at);
            }
            // What was identified since is not what was looked at.
            LookResult::Changed(_) if self.installed[position].checked > began => return,
            LookResult::Changed(candidates) => candidates,
        };
        let Installed { toolchain, .. } = self.installed.remove(position);
        self.generation += 1;
        self.toolchains.forget(&toolchain);
        self.each(candidates, |programs, compiler| programs.ask(compiler, |_| true, now));
    }

    /// The program for a job's compiler, if it is here with exactly these parts, and was looked at
    /// since the job asked for it.
    pub(crate) fn find(
        &mut self,
        compiler: &[u8],
        hash: &[u8; 32],
        asked: Instant,
        now: Instant,
    ) -> CompilerSearch {
        let compiler = Path::new(OsStr::from_bytes(compiler));
        if let Some(instead) = compiler.file_name().and_then(|name| self.instead.get(name)) {
            let path = instead.clone().into_os_string().into_vec();
            return CompilerSearch::Found(CompilerProgram { path, search: PATH.into(), since: 0 });
        }
        if let Some(search) = self.installed(hash, asked, now) {
            return search;
        }
        if self.missing.get(hash).is_none_or(|missing| now - missing.since >= FORGET) {
            // It may have been installed or replaced since. Identifying runs it, so its type and
            // owner are checked first.
            if is_compiler(compiler) {
                self.ask(compiler, is_administrators, now);
            }
            if self.missing.len() >= MISSING_MAX {
                self.missing.clear();
            }
            let asked = self.identifications.asked();
            self.missing.insert(*hash, AbsentCompiler { since: now, asked });
        }
        self.time.pass(now);
        if self.is_under_way(hash) { CompilerSearch::UnderWay } else { CompilerSearch::Absent }
    }

    /// Whether a compiler that was looked for may still be found.
    pub(crate) fn is_under_way(&self, hash: &[u8; 32]) -> bool {
        let passed = self.time.passed();
        let missing = self.missing.get(hash);
        missing.is_some_and(|missing| self.identifications.is_waiting(missing.asked, passed))
            || self.checking.is_in_time(&Hash(*hash), passed)
    }

    fn position(&self, hash: &[u8; 32]) -> Option<usize> {
        self.installed.iter().position(|at| at.toolchain.hash.0 == *hash)
    }

    /// The program of an installed compiler, once it is known to be the same on disk; absent if
    /// that takes too long.
    fn installed(
        &mut self,
        hash: &[u8; 32],
        asked: Instant,
        now: Instant,
    ) -> Option<CompilerSearch> {
        let Installed { toolchain, since, checked } = &self.installed[self.position(hash)?];
        if *checked >= asked || now.saturating_duration_since(*checked) <= FRESH {
            return Some(CompilerSearch::Found(CompilerProgram::of(toolchain, *since)));
        }
        let known = self.toolchains.remembered(&toolchain.name, OsStr::new(PATH), now);
        let known = known.filter(|known| known.is(toolchain));
        let passed = self.time.pass(now);
        self.checking.begin(toolchain.hash, known, now, passed);
        let is_in_time = self.checking.is_in_time(&toolchain.hash, passed);
        Some(if is_in_time { CompilerSearch::UnderWay } else { CompilerSearch::Absent })
    }

    /// A number that changes whenever [`Self::shown`] does.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// A file of these contents that is part of an installed compiler.
    pub(crate) fn part(&self, hash: &[u8; 32]) -> Option<&Path> {
        let mut parts = self.toolchains().flat_map(|toolchain| &toolchain.parts);
        parts.find(|part| part.hash.0 == *hash).map(|part| &*part.path)
    }

    /// The files and links that jobs are shown.
    pub(crate) fn shown(&self) -> ShownFiles {
        ShownFiles { files: self.files(), links: self.links() }
    }

    /// What of this machine has to be shown to jobs.
    fn files(&self) -> Vec<(PathBuf, PathBuf)> {
        let parts = self.toolchains().flat_map(|toolchain| &toolchain.parts);
        let parts = parts.map(|part| part.path.as_path());
        let directories = self.instead.values().filter_map(|program| program.parent()?.parent());
        let mut paths: Vec<_> = parts.chain(directories).chain([Path::new(LOCALES)]).collect();
        paths.sort_unstable();
        paths.dedup();
        paths.into_iter().map(|path| (path.to_owned(), path.to_owned())).collect()
    }

    /// Symbolic links in the paths of its files, with their targets.
    fn links(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let links = self.toolchains().flat_map(|toolchain| &toolchain.links);
        let mut links: Vec<_> =
            links.map(|link| (bytes(&link.path), bytes(&link.target))).collect();
        links.sort_unstable();
        links.dedup();
        links
    }
}

/// Whether only the administrator or this service's own user can have put a program there.
fn is_administrators(program: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let safe = |at: &Path| {
        std::fs::metadata(at).is_ok_and(|found| {
            (found.uid() == 0 || found.uid() == own) && found.mode() & 0o022 == 0
        })
    };
    let real = program.canonicalize();
    program.is_absolute()
        && real.is_ok_and(|real| program.ancestors().chain(real.ancestors()).all(safe))
}

/// The programs in the system's directories that have compilers' names.
fn candidates() -> Vec<Candidate> {
    let directories = PATH.split(':').filter_map(|directory| std::fs::read_dir(directory).ok());
    let entries = directories.flatten().filter_map(Result::ok);
    let called = entries.filter(|entry| is_compiler(Path::new(&entry.file_name())));
    let mut paths: Vec<_> = called.map(|entry| entry.path()).collect();
    paths.sort_unstable();
    let behind = |path: PathBuf| {
        let (driver, links) = toolchain::behind(&path).ok()?;
        Some(Candidate { path, driver, links })
    };
    paths.into_iter().filter_map(behind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_testkit::hung::{Hung, may_hang};
    use rustix::event::{PollFd, PollFlags, poll};
    use std::os::unix::fs::PermissionsExt;

    /// The compilers that are found once all identifying threads have answered.
    fn find(
        programs: &mut Programs,
        compiler: &[u8],
        hash: &[u8; 32],
        now: Instant,
    ) -> Option<CompilerProgram> {
        let waker = Waker::new().expect("a descriptor");
        programs.set_waker(waker.clone());
        loop {
            match programs.find(compiler, hash, now, now) {
                CompilerSearch::Found(program) => return Some(program),
                CompilerSearch::Absent => return None,
                CompilerSearch::UnderWay => {}
            }
            let mut fds = [PollFd::new(&waker, PollFlags::IN)];
            poll(&mut fds, None).expect("poll");
            waker.clear();
            programs.learn(now);
        }
    }

    /// Takes results once a second, and returns when it did so last.
    fn run(programs: &mut Programs, from: Instant, seconds: u64) -> Instant {
        let looks = (0..=seconds).map(|second| from + Duration::from_secs(second));
        looks.inspect(|at| programs.learn(*at)).last().expect("one")
    }

    #[test]
    fn a_compiler_that_sleeps_delays_only_its_own_jobs_and_not_for_ever() {
        let own = tempfile::Builder::new().tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a place");
        let gcc = own.path().join("gcc");
        // Opening it waits for a writer that never comes.
        rustix::fs::mkfifoat(rustix::fs::CWD, &gcc, 0o755.into()).expect("a fifo");
        let sleeper = gcc.as_os_str().as_bytes();
        let (mut programs, now) = (Programs::none(), Instant::now());
        programs.add("/usr/bin/gcc".as_ref(), now);
        let other = programs.toolchains().next().expect("it is a compiler").hash.0;
        assert_eq!(find(&mut programs, b"/absent/gcc", &[2; 32], now), None);
        assert_eq!(programs.find(sleeper, &[1; 32], now, now), CompilerSearch::UnderWay);
        assert!(matches!(programs.find(sleeper, &other, now, now), CompilerSearch::Found(_)));
        assert_eq!(programs.find(b"/absent/gcc", &[2; 32], now, now), CompilerSearch::Absent);
        programs.learn(now + Duration::from_secs(60));
        assert!(programs.is_under_way(&[1; 32]), "a pause is not waiting");
        let later = run(&mut programs, now + Duration::from_secs(60), 10);
        assert_eq!(programs.find(sleeper, &[1; 32], later, later), CompilerSearch::Absent);
    }

    #[test]
    fn a_compiler_on_a_disk_that_hangs_delays_only_its_own_jobs_and_not_for_ever() {
        if !may_hang() {
            return;
        }
        let own = tempfile::tempdir().expect("a directory");
        let (at, begin) = (own.path().join("bin"), Instant::now());
        std::fs::create_dir(&at).expect("a directory");
        let mut bytes = std::fs::read("/usr/bin/gcc").expect("bytes");
        bytes.push(0);
        std::fs::write(at.join("gcc"), bytes).expect("a compiler");
        std::fs::set_permissions(at.join("gcc"), PermissionsExt::from_mode(0o755)).expect("one");
        let mut programs = Programs::none();
        programs.add(&at.join("gcc"), begin);
        programs.add("/usr/bin/gcc".as_ref(), begin);
        let hashes: Vec<_> = programs.toolchains().map(|toolchain| toolchain.hash.0).collect();
        let [hash, other] = hashes[..] else { panic!("{hashes:?}") };
        let after = |seconds| begin + Duration::from_secs(seconds);
        let hung = Hung::over(at).expect("mounted");
        assert_eq!(programs.find(b"/absent", &hash, after(1), after(1)), CompilerSearch::UnderWay);
        assert!(find(&mut programs, b"/absent", &other, after(1)).is_some());
        run(&mut programs, after(1), 1);
        assert!(programs.is_under_way(&hash), "its jobs go on waiting");
        run(&mut programs, after(2), 10);
        assert!(!programs.is_under_way(&hash));
        assert_eq!(programs.find(b"/absent", &hash, after(1), after(12)), CompilerSearch::Absent);
        drop(hung);
        let found = |programs: &mut Programs| find(programs, b"/absent", &hash, after(13));
        // To the look that was under way it had changed.
        assert!(found(&mut programs).is_none());
        programs.add(&own.path().join("bin/gcc"), after(13));
        assert!(found(&mut programs).is_some());
    }

    #[test]
    fn this_machines_compiler_is_found_by_its_hash_only() {
        let mut programs = Programs::new(None, BTreeMap::new());
        let is_gcc = |at: &&Toolchain| at.driver.to_string_lossy().contains("gcc");
        let Some(gcc) = programs.toolchains().find(is_gcc) else { return };
        let (driver, hash) = (gcc.driver.as_os_str().as_bytes().to_vec(), gcc.hash.0);
        let found = find(&mut programs, b"/anything", &hash, Instant::now());
        let found = found.expect("it is installed");
        assert_eq!(found.path(), driver);
        assert!(found.search().starts_with(b"/"));
        assert_eq!(find(&mut programs, &driver, &[0; 32], Instant::now()), None);
        assert!(!programs.files().is_empty());
    }

    #[test]
    fn a_compiler_that_is_replaced_is_not_found_by_its_old_hash() {
        let own = std::env::temp_dir().join(format!("outboard-replaced-{}", std::process::id()));
        std::fs::create_dir_all(&own).expect("a directory");
        let (compiler, now) = (own.join("gcc"), Instant::now());
        std::fs::copy("/usr/bin/gcc", &compiler).expect("a compiler");
        let mut programs = Programs::none();
        programs.add(&compiler, now);
        programs.add("/usr/bin/gcc".as_ref(), now);
        let hashes: Vec<_> = programs.toolchains().map(|toolchain| toolchain.hash.0).collect();
        let [hash, other] = hashes[..] else { panic!("{hashes:?}") };
        let mut find = |hash: &[u8; 32], after: u64| {
            let now = now + Duration::from_secs(after);
            let program = find(&mut programs, b"/absent", hash, now);
            program.map(|program| (program.since(), programs.generation()))
        };
        assert_eq!(find(&hash, 1), Some((1, 2)));
        let mut bytes = std::fs::read(&compiler).expect("bytes");
        bytes.push(0);
        std::fs::write(own.join("new"), bytes).expect("a compiler");
        std::fs::rename(own.join("new"), &compiler).expect("replaced");
        assert_eq!(find(&hash, 2), None);
        let changed = find(&other, 2).is_some_and(|(_, generation)| generation > 2);
        assert!(changed, "what is shown has changed");
        std::fs::remove_dir_all(own).expect("removed");
    }

    #[test]
    fn only_the_administrators_compilers_are_looked_at() {
        let own = std::env::temp_dir().join(format!("outboard-programs-{}", std::process::id()));
        std::fs::write(&own, "").expect("a file");
        assert!(is_administrators("/usr/bin/env".as_ref()));
        // Any user may have made it.
        assert!(!is_administrators(&own));
        assert!(!is_administrators("usr/bin/env".as_ref()));
        assert!(!is_administrators("/usr/bin/absent".as_ref()));
        std::fs::remove_file(own).expect("removed");
    }

    #[test]
    fn programs_that_are_no_compilers_are_not_run() {
        let mut programs = Programs::none();
        let mut identified = |program: &[u8]| {
            programs.missing.clear();
            let found = find(&mut programs, program, &[0; 32], Instant::now());
            assert_eq!(found, None);
            programs.toolchains.knows(Path::new(OsStr::from_bytes(program)))
        };
        assert!(identified(b"/usr/bin/gcc"));
        assert!(!identified(b"/usr/bin/env"));
    }

    #[test]
    fn a_program_in_a_compilers_place_needs_no_hash() {
        let instead = [("gcc".into(), "/opt/wait/bin/gcc".into())].into_iter().collect();
        let mut programs = Programs::new(None, instead);
        let found = find(&mut programs, b"/usr/bin/gcc", &[0; 32], Instant::now());
        assert_eq!(found.expect("it is named").path(), b"/opt/wait/bin/gcc");
    }
}
