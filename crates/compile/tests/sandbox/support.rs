//! A server's slots over a directory of this machine, which stands for the client's.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use libtest_mimic::Trial;
use outboard_compile::sandbox::{
    Bind, FinishedJob, JobLimits, Launch, SandboxJob, SandboxSupervisor, SlotSandbox,
    SlotSandboxSpec, machine_links,
};
use outboard_compile::view::{self, Created, FetchDone, FileSource, JobChanges, View};
use outboard_export::{
    Ask, Attr, FetchError, FetchRequest, FileNode, FileVersion, Listing, LookUp,
};

/// The user that sandboxes run as when tests run as root.
pub(crate) const NOBODY: u32 = 65534;

/// Files of this machine beneath some roots, served with the interface of a remote client.
#[derive(Default)]
pub(crate) struct Local {
    roots: Vec<PathBuf>,
    state: Arc<Mutex<LocalState>>,
    /// Answers come late, and from another thread.
    pub(crate) slow: AtomicBool,
    /// Answers never come.
    pub(crate) silent: AtomicBool,
    unanswered: Mutex<Vec<FetchDone>>,
}

#[derive(Debug, Default)]
struct LocalState {
    /// Directories that were listed.
    listed: HashMap<Vec<u8>, HashMap<Vec<u8>, LookUp>>,
    contents: HashMap<FileVersion, Arc<[u8]>>,
    /// Answers about names outside the roots.
    outside: HashMap<Vec<u8>, LookUp>,
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn attr(meta: &fs::Metadata) -> Attr {
    Attr {
        dev: meta.dev(),
        ino: meta.ino(),
        mode: meta.mode(),
        size: meta.size(),
        mtime_ns: meta.mtime() * 1_000_000_000 + meta.mtime_nsec(),
        version: version(meta),
    }
}

/// Stands for the client's count of a file's states: the time of the last change.
fn version(meta: &fs::Metadata) -> u64 {
    u64::try_from(meta.ctime() * 1_000_000_000 + meta.ctime_nsec()).unwrap()
}

fn found(path: &Path) -> LookUp {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return LookUp::Absent;
    };
    if path.file_name().is_some_and(|name| name.as_bytes().starts_with(b".")) {
        return LookUp::Withheld;
    }
    let attr = attr(&meta);
    if meta.is_dir() {
        LookUp::Directory(attr)
    } else if meta.is_file() {
        LookUp::File(attr)
    } else if meta.is_symlink() {
        let target = fs::read_link(path).unwrap().into_os_string().into_vec();
        LookUp::Symlink { target: target.into(), attr }
    } else {
        LookUp::Withheld
    }
}

impl Local {
    pub(crate) fn new(roots: &[&Path]) -> Self {
        let roots = roots.iter().map(|root| root.to_path_buf()).collect();
        Self { roots, ..Self::default() }
    }

    /// Makes the names of a directory unknown again.
    pub(crate) fn forget(&self, dir: &Path) {
        self.state.lock().unwrap().listed.remove(dir.as_os_str().as_bytes());
    }

    /// Makes the names of directories known in advance.
    pub(crate) fn list_all(&self, dirs: &[&Path]) {
        for dir in dirs {
            self.state.lock().unwrap().list_now(dir.as_os_str().as_bytes()).unwrap();
        }
    }
}

impl LocalState {
    fn answer(&mut self, request: &FetchRequest) -> Result<(), FetchError> {
        match request {
            FetchRequest::List { dir } => self.list_now(dir),
            FetchRequest::Contents { path, file } => self.read_now(path, *file),
            FetchRequest::Name { path } => self.name_now(path),
        }
    }

    /// Says only whether the name exists, and nothing about home directories.
    fn name_now(&mut self, name: &[u8]) -> Result<(), FetchError> {
        let refused = || Err(FetchError::Refused("it is withheld".into()));
        if ["root", "home", "proc"]
            .iter()
            .any(|top| name.starts_with(format!("/{top}/").as_bytes()))
        {
            return refused();
        }
        match fs::symlink_metadata(path(name)) {
            Err(_) => self.outside.insert(name.to_vec(), LookUp::Absent),
            Ok(meta) if meta.is_dir() => {
                self.outside.insert(name.to_vec(), LookUp::Directory(attr(&meta)))
            }
            Ok(_) => return refused(),
        };
        Ok(())
    }

    fn list_now(&mut self, dir: &[u8]) -> Result<(), FetchError> {
        let entries = fs::read_dir(path(dir)).map_err(|_| FetchError::Changed)?;
        let names = entries.map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_vec(), found(&entry.path()))
        });
        self.listed.insert(dir.to_vec(), names.collect());
        Ok(())
    }

    fn read_now(&mut self, file: &[u8], state: FileVersion) -> Result<(), FetchError> {
        let meta = fs::metadata(path(file)).map_err(|_| FetchError::Changed)?;
        if version(&meta) != state.version {
            return Err(FetchError::Changed);
        }
        let bytes = fs::read(path(file))
            .map_err(|error| FetchError::Failed(error.raw_os_error().unwrap_or(libc::EIO)))?;
        self.contents.insert(state, bytes.into());
        Ok(())
    }
}

impl FileSource for Local {
    fn look_up(&self, dir: &[u8], name: &[u8]) -> LookUp {
        let dir_path = path(dir);
        if self.roots.iter().any(|root| dir_path.starts_with(root)) {
            if name.starts_with(b".") {
                return LookUp::Withheld;
            }
            let state = self.state.lock().unwrap();
            let Some(names) = state.listed.get(dir) else {
                return LookUp::Unknown(Ask::List { dir: dir.to_vec() });
            };
            return names.get(name).cloned().unwrap_or(LookUp::Absent);
        }
        let whole = dir_path.join(OsStr::from_bytes(name));
        match self.roots.iter().any(|root| root.starts_with(&whole)) {
            true => found(&whole),
            false => {
                let state = self.state.lock().unwrap();
                let said = state.outside.get(whole.as_os_str().as_bytes());
                said.cloned().unwrap_or(LookUp::Outside)
            }
        }
    }

    fn list(&self, dir: &[u8]) -> Listing {
        if !self.roots.iter().any(|root| path(dir).starts_with(root)) {
            return Listing::Outside;
        }
        let state = self.state.lock().unwrap();
        let Some(names) = state.listed.get(dir) else {
            return Listing::Unknown(Ask::List { dir: dir.to_vec() });
        };
        let node = |found: LookUp| match found {
            LookUp::File(attr) => Some(FileNode::File(attr)),
            LookUp::Directory(attr) => Some(FileNode::Directory(attr)),
            LookUp::Symlink { target, attr } => Some(FileNode::Symlink { target, attr }),
            _ => None,
        };
        let names = names.iter();
        let nodes = |(name, found): (&Vec<u8>, &LookUp)| {
            Some((name.as_slice().into(), node(found.clone())?))
        };
        Listing::Names(names.filter_map(nodes).collect())
    }

    fn fetch(&self, request: FetchRequest, done: FetchDone) {
        if self.silent.load(Ordering::Relaxed) {
            self.unanswered.lock().unwrap().push(done);
        } else if self.slow.load(Ordering::Relaxed) {
            let state = Arc::clone(&self.state);
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(2));
                let answer = state.lock().unwrap().answer(&request);
                done(answer);
            });
        } else {
            let answer = self.state.lock().unwrap().answer(&request);
            done(answer);
        }
    }

    fn contents(&self, file: &FileVersion) -> Option<Arc<[u8]>> {
        self.state.lock().unwrap().contents.get(file).cloned()
    }
}

/// A test by name.
pub(crate) fn trial(name: &str, test: fn()) -> Trial {
    Trial::test(name, move || {
        test();
        Ok(())
    })
}

/// How this program is started as a supervisor.
pub(crate) fn launch() -> Launch {
    let root = rustix::process::geteuid().is_root();
    Launch {
        program: "/proc/self/exe".into(),
        arguments: vec!["supervisor".into()],
        identity: root.then_some((NOBODY, NOBODY)),
    }
}

fn identity() -> (u32, u32) {
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    launch().identity.unwrap_or(own)
}

/// Slots of a server for one client.
pub(crate) struct Server {
    pub(crate) source: Arc<Local>,
    pub(crate) view: Arc<View>,
    pub(crate) slot_sandboxes: Vec<Mutex<SlotSandbox>>,
    pub(crate) supervisor: SandboxSupervisor,
    pub(crate) spec: SlotSandboxSpec,
}

impl Server {
    pub(crate) fn start(slots: usize, roots: &[&Path], binds: Vec<Bind>) -> Self {
        let spec = SlotSandboxSpec {
            slot: 0,
            binds,
            links: machine_links(),
            tmp: b"/.outboard/tmp".to_vec(),
            tmp_size: 64 << 20,
        };
        let source = Arc::new(Local::new(roots));
        let (supervisor, fuse) = SandboxSupervisor::start(&launch()).unwrap();
        let (uid, gid) = identity();
        let limits = view::ViewLimits { slots, quota: 64 << 20, uid, gid };
        let shared: Arc<dyn FileSource> = Arc::<Local>::clone(&source);
        let view = Arc::new(View::start(fuse, shared, spec.pins(), limits).unwrap());
        let slot_sandbox = |slot| {
            Mutex::new(supervisor.slot_sandbox(&SlotSandboxSpec { slot, ..spec.clone() }).unwrap())
        };
        let slot_sandboxes = (0..slots).map(slot_sandbox).collect();
        Self { source, view, slot_sandboxes, supervisor, spec }
    }

    /// Reports that the client's file has changed.
    pub(crate) fn changed(&self, file: &Path) {
        let (dir, name) = (file.parent().unwrap(), file.file_name().unwrap());
        self.source.forget(dir);
        self.view.invalidate(dir.as_os_str().as_bytes(), name.as_bytes());
    }

    /// Runs a job, and adds its object to the files that it created.
    pub(crate) fn run(&self, slot: usize, job: &SandboxJob) -> (FinishedJob, JobChanges) {
        let (ended, mut outcome) = self.run_only(slot, job);
        if let (Some(path), Some(object)) = (outcome.redirected.clone(), &ended.object) {
            let mut contents = vec![0; usize::try_from(object.len).unwrap()];
            object.file.read_exact_at(&mut contents, 0).unwrap();
            outcome.created.push(Created { path, mode: object.mode, contents });
        }
        (ended, outcome)
    }

    /// Runs a job, and reads and hashes its object in parts of 128 KiB, as the service does.
    pub(crate) fn run_and_hash(&self, slot: usize, job: &SandboxJob) -> (FinishedJob, JobChanges) {
        let (ended, outcome) = self.run_only(slot, job);
        if let Some(object) = &ended.object {
            let (mut part, mut at, mut hasher) = (vec![0; 128 << 10], 0, blake3::Hasher::new());
            while at < object.len {
                let len = object.file.read_at(&mut part, at).unwrap();
                hasher.update(&part[..len]);
                at += len as u64;
            }
            std::hint::black_box(hasher.finalize());
        }
        (ended, outcome)
    }

    fn run_only(&self, slot: usize, job: &SandboxJob) -> (FinishedJob, JobChanges) {
        self.view.begin(slot, outboard_compile::view::Places::default()).unwrap();
        if let Some(object) = object_of(job) {
            self.view.redirect(slot, object, &self.spec.object());
        }
        let ended = self.slot_sandboxes[slot].lock().unwrap().run(job).unwrap();
        let outcome = self.view.finish(slot).unwrap();
        (ended, outcome)
    }
}

/// The object that a job names with `-o`.
fn object_of(job: &SandboxJob) -> Option<Vec<u8>> {
    let at = job.arguments.iter().position(|argument| argument == b"-o")?;
    let named = Path::new(OsStr::from_bytes(job.arguments.get(at + 1)?));
    let object = Path::new(OsStr::from_bytes(&job.directory)).join(named);
    Some(object.into_os_string().into_vec())
}

/// A job with the usual limits.
pub(crate) fn job(directory: &Path, arguments: &[&OsStr]) -> SandboxJob {
    let program = arguments[0].as_bytes().to_vec();
    let environment = [&b"PATH=/usr/bin:/bin"[..], b"TMPDIR=/.outboard/tmp", b"LC_ALL=C"];
    SandboxJob {
        program,
        arguments: arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect(),
        environment: environment.iter().map(|variable| variable.to_vec()).collect(),
        directory: directory.as_os_str().as_bytes().to_vec(),
        umask: 0o022,
        limits: JobLimits::default(),
    }
}

/// The files of this machine's gcc and g++.
pub(crate) fn toolchain(programs: &[&str]) -> Vec<Bind> {
    let mut paths: Vec<PathBuf> = programs.iter().map(PathBuf::from).collect();
    for program in ["cc1", "cc1plus", "as", "objcopy", "collect2"] {
        let asked =
            Command::new("gcc").arg(format!("-print-prog-name={program}")).output().unwrap();
        let name = String::from_utf8(asked.stdout).unwrap();
        let name = PathBuf::from(name.trim());
        paths.push(if name.is_absolute() { name } else { Path::new("/usr/bin").join(name) });
    }
    let libraries: Vec<_> = paths.iter().flat_map(|program| libraries(program)).collect();
    paths.extend(libraries);
    let gcc = Command::new("gcc").arg("-print-libgcc-file-name").output().unwrap();
    let gcc = PathBuf::from(String::from_utf8(gcc.stdout).unwrap().trim());
    let lib = gcc.parent().unwrap().to_path_buf();
    paths.retain(|path| path.exists() && !path.starts_with(&lib));
    paths.push(lib);
    paths.sort();
    paths.dedup();
    paths.iter().map(|path| Bind::locally(path).unwrap()).collect()
}

/// The shared libraries of a program, its loader included.
pub(crate) fn libraries(program: &Path) -> Vec<PathBuf> {
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let words = listed.split_whitespace().filter(|word| word.starts_with('/'));
    words.map(PathBuf::from).collect()
}
