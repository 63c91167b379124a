//! Servers in threads, an executor to ask, projects in directories of their own.

use crate::sessions::{self, SessionPort, credentials};
use libtest_mimic::Trial;
use outboard_cluster::hub::HubOptions;
use outboard_cluster::node::Permit;
use outboard_cluster::service::{Service, ServiceLoop};
use outboard_compile::args::{Classification, CompilerCall, Halves, Job, classify, examine};
use outboard_compile::client::{Dial, ServerPool};
use outboard_compile::manager::{Finished, Preprocessed, RemoteExecutor, Ticket, Verdict};
use outboard_compile::sandbox::{JobLimits, Launch};
use outboard_compile::server::{CompileService, Programs, ServiceOptions};
use outboard_compile::toolchain::Toolchains;
use outboard_secure::ClusterKey;
use outboard_store::Store;
use outboard_testkit::eventually;
use outboard_verbs::SharedRegion;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const NOBODY: u32 = 65_534;
/// The cache of identified compilers.
const CACHE: &str = env!("CARGO_TARGET_TMPDIR");

/// What a server offers.
#[derive(Clone, Copy)]
struct Offer {
    slots: u32,
    /// Slots that one identity may have.
    slots_each: u32,
    /// Whether it adopts compilers.
    accepts: bool,
}

/// What a server's loop tells of its turns.
#[derive(Default)]
struct Turns {
    /// CPU time of the longest, in microseconds.
    longest: AtomicU64,
    /// Jobs that its sandboxes could not run.
    refused: AtomicU64,
}

/// A server that runs in a thread of its own.
pub(crate) struct Server {
    address: SocketAddr,
    /// Where its store is, if it has one.
    pub(crate) store: PathBuf,
    stop: Arc<AtomicBool>,
    turns: Arc<Turns>,
    thread: Option<JoinHandle<()>>,
}

/// CPU time of this thread.
pub(crate) fn cpu() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(used).expect("it is positive")
}

impl Server {
    fn start(key: &ClusterKey, offer: Offer) -> Self {
        let port = SessionPort::open(key, "compile");
        let address = port.address;
        let stop = Arc::new(AtomicBool::new(false));
        let turns = Arc::new(Turns::default());
        let (stopped, its) = (Arc::clone(&stop), Arc::clone(&turns));
        let (ready, is_ready) = mpsc::channel();
        let thread = thread::spawn(move || serve(offer, &port, (&stopped, &its), &ready));
        // A server first identifies all of its compilers; a client's time-out is shorter than that.
        let store = is_ready.recv().expect("it starts");
        let thread = Some(thread);
        Self { address, store, stop, turns, thread }
    }

    /// CPU time of the longest turn since this was asked last.
    pub(crate) fn take_longest_turn(&self) -> Duration {
        Duration::from_micros(self.turns.longest.swap(0, Ordering::Relaxed))
    }

    /// How many jobs its sandboxes could not run.
    pub(crate) fn refused(&self) -> u64 {
        self.turns.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server does not panic");
        }
    }
}

fn serve(
    offer: Offer,
    port: &SessionPort,
    (stop, turns): (&AtomicBool, &Turns),
    ready: &mpsc::Sender<PathBuf>,
) {
    let root = rustix::process::geteuid().is_root();
    let contents = tempfile::tempdir().expect("a directory");
    let store = offer.accepts.then(|| Store::open(contents.path(), 1 << 30).expect("a store"));
    let options = ServiceOptions {
        slots: offer.slots,
        programs: Programs::new(Some(Path::new(CACHE)), BTreeMap::new()),
        store,
        accept_toolchains: offer.accepts,
        launch: Launch {
            program: std::env::current_exe().expect("this program"),
            arguments: vec!["supervisor".into(), stops().into()],
            identity: root.then_some((NOBODY, NOBODY)),
        },
        limits: JobLimits::default(),
    };
    let service = CompileService::new(options).expect("a service");
    let mut looping = ServiceLoop::new(HubOptions::default(), service).expect("a loop");
    ready.send(contents.path().into()).expect("the test waits");
    while !stop.load(Ordering::SeqCst) {
        while let Ok(stream) = port.arrivals.try_recv() {
            let permit = Permit::outside_a_node(stream.peer(), offer.slots_each);
            looping.admit(stream, permit).expect("admitted");
        }
        let before = cpu();
        looping.turn(Instant::now()).expect("a turn");
        let took = u64::try_from((cpu() - before).as_micros()).expect("not so long");
        turns.longest.fetch_max(took, Ordering::Relaxed);
        let refused = looping.service().report().counters.refused_trouble;
        turns.refused.store(refused, Ordering::Relaxed);
        let tick = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        poll(&mut [PollFd::new(&looping, PollFlags::IN)], Some(&tick)).expect("poll");
    }
}

/// While this file is there, sandboxes' supervisors stop themselves when they start.
pub(crate) fn stops() -> PathBuf {
    std::env::temp_dir().join(format!("outboard-stops-{}", std::process::id()))
}

/// Stops or continues a process.
pub(crate) fn signal(process: u32, signal: Signal) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(process, signal).expect("it is there");
}

/// An executor and its servers.
pub(crate) struct Lab {
    pub(crate) executor: ServerPool,
    pub(crate) servers: Vec<Server>,
    /// Variables that compilers get besides the usual ones.
    pub(crate) env: Vec<(OsString, OsString)>,
    names: Vec<String>,
    dial: Dial,
    next: u64,
}

impl Lab {
    pub(crate) fn new(servers: usize, slots: u32) -> Self {
        Self::with(servers, Offer { slots, slots_each: slots, accepts: false })
    }

    /// A lab whose servers adopt compilers from their client.
    pub(crate) fn accepting(servers: usize, slots: u32) -> Self {
        Self::with(servers, Offer { slots, slots_each: slots, accepts: true })
    }

    /// A lab with one server, of whose slots an identity may have these.
    pub(crate) fn limited(slots: u32, slots_each: u32) -> Self {
        Self::with(1, Offer { slots, slots_each, accepts: false })
    }

    fn with(servers: usize, offer: Offer) -> Self {
        let key = ClusterKey::generate().expect("a key");
        let servers: Vec<_> = (0..servers).map(|_| Server::start(&key, offer)).collect();
        let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
        let client = credentials(&key, "compile");
        let dial: Dial =
            Arc::new(move |line, limit| sessions::dial(&client, "compile", addresses[line], limit));
        let names = servers.iter().map(|server| server.address.to_string()).collect();
        Self::of(servers, names, dial)
    }

    /// Another client of the same servers.
    pub(crate) fn another(&self) -> Self {
        Self::of(Vec::new(), self.names.clone(), Arc::clone(&self.dial))
    }

    fn of(servers: Vec<Server>, names: Vec<String>, dial: Dial) -> Self {
        let toolchains = Toolchains::new(Some(Path::new(CACHE)));
        let executor = ServerPool::new(names.clone(), Arc::clone(&dial), "test".into(), toolchains)
            .expect("an executor");
        Self { executor, servers, env: Vec::new(), names, dial, next: 0 }
    }

    /// Submits a command.
    pub(crate) fn submit(&mut self, cwd: &Path, words: &[&str]) -> Ticket {
        let job = job(cwd, words, &self.env);
        self.next += 1;
        self.executor.submit(Ticket(self.next), job);
        Ticket(self.next)
    }

    /// Preprocesses a command's source locally, and submits the rest of the command.
    pub(crate) fn submit_preprocessed(&mut self, cwd: &Path, words: &[&str]) -> Ticket {
        let job = job(cwd, words, &self.env);
        let Halves { local, remote } = job.halves().expect("it has halves");
        let file = File::from(memfd_create("source", MemfdFlags::ALLOW_SEALING).expect("memory"));
        let output = file.try_clone().expect("a descriptor");
        let mut command = Command::new(&job.compiler);
        let status = command.args(local).current_dir(cwd).stdout(output).status();
        assert!(status.expect("it runs").success(), "{words:?}");
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        fcntl_add_seals(&file, seals).expect("sealed");
        let source = SharedRegion::of_file(&file).expect("it is sealed");
        let argv = [words[0].into()].into_iter().chain(remote).collect();
        self.next += 1;
        let source = Preprocessed { argv, source };
        self.executor.submit_preprocessed(Ticket(self.next), job, source);
        Ticket(self.next)
    }

    /// Waits for this many verdicts.
    pub(crate) fn verdicts(&mut self, count: usize) -> BTreeMap<Ticket, Verdict> {
        let mut verdicts = Vec::new();
        eventually("all verdicts", || {
            self.executor.turn(Instant::now(), &mut verdicts);
            verdicts.len() >= count
        });
        verdicts.into_iter().collect()
    }

    /// Goes on until servers have been given this many jobs, and returns the verdicts until then.
    pub(crate) fn until_given(&mut self, count: u64) -> Vec<(Ticket, Verdict)> {
        let mut verdicts = Vec::new();
        eventually("servers have the jobs", || {
            self.executor.turn(Instant::now(), &mut verdicts);
            self.counter("jobs_given") >= count
        });
        verdicts
    }

    /// A counter of the executor's.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let report = self.executor.report().expect("it has one");
        report[name].as_u64().expect("a number")
    }

    /// Runs one command.
    pub(crate) fn run(&mut self, cwd: &Path, words: &[&str]) -> Finished {
        let ticket = self.submit(cwd, words);
        self.finished(ticket, words)
    }

    /// Preprocesses a command's source locally, and has a server run the rest.
    pub(crate) fn run_preprocessed(&mut self, cwd: &Path, words: &[&str]) -> Finished {
        let ticket = self.submit_preprocessed(cwd, words);
        self.finished(ticket, words)
    }

    fn finished(&mut self, ticket: Ticket, words: &[&str]) -> Finished {
        match self.verdicts(1).remove(&ticket) {
            Some(Verdict::Done(finished)) => finished,
            other => panic!("{words:?}: {other:?}"),
        }
    }
}

fn job(cwd: &Path, words: &[&str], env: &[(OsString, OsString)]) -> Job {
    let call = CompilerCall {
        compiler: PathBuf::from("/usr/bin").join(words[0]),
        argv: words.iter().map(Into::into).collect(),
        cwd: cwd.into(),
        env: env.to_vec(),
        path: "/usr/bin:/bin".into(),
        umask: 0o022,
        terminal: false,
    };
    match examine(classify(call)) {
        Classification::Remote(job) => *job,
        Classification::Local(reason) => panic!("{words:?} runs locally: it {reason}"),
    }
}

/// Runs a command locally, without colour as on servers, and returns its standard error.
pub(crate) fn locally(cwd: &Path, words: &[&str]) -> String {
    locally_in(cwd, words, &[])
}

/// As [`locally`], with these variables besides.
pub(crate) fn locally_in(cwd: &Path, words: &[&str], env: &[(OsString, OsString)]) -> String {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(cwd).env_clear().env("PATH", "/usr/bin:/bin");
    command.envs(env.iter().map(|(name, value)| (name, value)));
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {said}");
    said
}

/// Runs a test; if this program is root's, in a process of an ordinary user that runs the trial of
/// this name alone.
pub(crate) fn as_ordinary_user(name: &str, test: fn()) {
    if !rustix::process::geteuid().is_root() {
        return test();
    }
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", name]).uid(NOBODY).gid(NOBODY).current_dir("/");
    let tests = command.stderr(Stdio::inherit()).output().expect("this program");
    let said = String::from_utf8_lossy(&tests.stdout);
    assert!(tests.status.success() && said.contains("1 passed"), "{said}");
}

/// A trial that fails by a panic.
pub(crate) fn trial(name: &str, test: fn()) -> Trial {
    Trial::test(name, move || {
        test();
        Ok(())
    })
}
