//! Servers in threads, a farm to ask, projects in directories of their own.

use outboard_compile::args::{Call, Plan, classify};
use outboard_compile::client::{Cluster, Dial};
use outboard_compile::front::{Farm, Finished, Ticket, Verdict};
use outboard_compile::sandbox::{Launch, Limits};
use outboard_compile::server::{Options, Programs, Service};
use outboard_compile::toolchain::Toolchains;
use outboard_secure::{ClusterKey, Credentials, Fabric, Handshake, Identity, Revoked, ServiceName};
use outboard_verbs::Secured;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const NOBODY: u32 = 65_534;

/// Both ends' keys.
pub(crate) fn credentials(key: &ClusterKey) -> Arc<Credentials> {
    let compile: ServiceName = "compile".parse().expect("a name");
    Arc::new(Credentials {
        identity: Identity::generate().expect("an identity"),
        keys: [key.service(&compile)].into_iter().collect(),
        fabric: Fabric::Untrusted,
        revoked: Revoked::default(),
    })
}

fn shake_hands(mut socket: TcpStream, mut handshake: Handshake) -> Option<Secured> {
    let mut octets = [0; 4096];
    loop {
        while let Some(message) = handshake.poll_transmit() {
            socket.write_all(&message).ok()?;
        }
        if handshake.is_done() {
            return Some(Secured::new(socket, handshake.into_session()?, Vec::new()));
        }
        // One octet at a time would do, and nothing of the session must be taken.
        let count = socket.read(&mut octets[..1]).ok().filter(|count| *count > 0)?;
        handshake.handle(&octets[..count]).ok()?;
    }
}

/// A server with a thread of its own.
pub(crate) struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(key: &ClusterKey, slots: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, arrivals) = mpsc::channel();
        let responder = credentials(key);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let handshake = Handshake::responder(Arc::clone(&responder));
                let Some(stream) = shake_hands(socket, handshake) else { continue };
                if sender.send(stream).is_err() {
                    return;
                }
            }
        });
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = Some(thread::spawn(move || serve(slots, &arrivals, &stopped)));
        Self { address, stop, thread }
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

fn serve(slots: u32, arrivals: &mpsc::Receiver<Secured>, stop: &AtomicBool) {
    let root = rustix::process::geteuid().is_root();
    let options = Options {
        slots,
        programs: Programs::new(None, BTreeMap::new()),
        store: None,
        launch: Launch {
            program: std::env::current_exe().expect("this program"),
            arguments: vec!["anchor".into()],
            identity: root.then_some((NOBODY, NOBODY)),
        },
        limits: Limits::default(),
    };
    let mut service = Service::new(options).expect("a service");
    while !stop.load(Ordering::SeqCst) {
        while let Ok(stream) = arrivals.try_recv() {
            service.admit(stream).expect("admitted");
        }
        service.turn(Instant::now()).expect("a turn");
        let tick = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        poll(&mut [PollFd::new(&service, PollFlags::IN)], Some(&tick)).expect("poll");
    }
}

/// A farm and its servers.
pub(crate) struct Lab {
    pub(crate) farm: Cluster,
    _servers: Vec<Server>,
    next: u64,
}

impl Lab {
    pub(crate) fn new(servers: usize, slots: u32) -> Self {
        let key = ClusterKey::generate().expect("a key");
        let servers: Vec<_> = (0..servers).map(|_| Server::start(&key, slots)).collect();
        let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
        let client = credentials(&key);
        let dial: Dial = Arc::new(move |line, limit| {
            let socket = TcpStream::connect_timeout(&addresses[line], limit);
            let socket = socket.map_err(|error| error.to_string())?;
            let compile = "compile".parse().expect("a name");
            let handshake = Handshake::initiator(Arc::clone(&client), &compile);
            let handshake = handshake.map_err(|error| error.to_string())?;
            shake_hands(socket, handshake).ok_or_else(|| "no session".to_owned())
        });
        let names = servers.iter().map(|server| server.address.to_string()).collect();
        let toolchains = Toolchains::new(None);
        let farm = Cluster::new(names, dial, "test".into(), toolchains).expect("a farm");
        Self { farm, _servers: servers, next: 0 }
    }

    /// Submits a command.
    pub(crate) fn submit(&mut self, cwd: &Path, words: &[&str]) -> Ticket {
        let call = Call {
            compiler: PathBuf::from("/usr/bin").join(words[0]),
            argv: words.iter().map(Into::into).collect(),
            cwd: cwd.into(),
            env: Vec::new(),
            path: "/usr/bin:/bin".into(),
            umask: 0o022,
            terminal: false,
        };
        let job = match classify(call) {
            Plan::Remote(job) => job,
            Plan::Home(reason) => panic!("{words:?} stays at home: it {reason}"),
        };
        self.next += 1;
        self.farm.submit(Ticket(self.next), *job);
        Ticket(self.next)
    }

    /// Waits for this many verdicts.
    pub(crate) fn verdicts(&mut self, count: usize) -> BTreeMap<Ticket, Verdict> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut verdicts = Vec::new();
        while verdicts.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} verdicts", verdicts.len());
            self.farm.turn(Instant::now(), &mut verdicts);
            let tick = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            let fd = self.farm.fd();
            poll(&mut [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)], Some(&tick))
                .expect("poll");
        }
        verdicts.into_iter().collect()
    }

    /// Runs one command.
    pub(crate) fn run(&mut self, cwd: &Path, words: &[&str]) -> Finished {
        let ticket = self.submit(cwd, words);
        match self.verdicts(1).remove(&ticket) {
            Some(Verdict::Done(finished)) => finished,
            other => panic!("{words:?}: {other:?}"),
        }
    }
}

/// Runs a command here.
pub(crate) fn at_home(cwd: &Path, words: &[&str]) {
    let mut command = Command::new(words[0]);
    let status = command.args(&words[1..]).current_dir(cwd).env("PATH", "/usr/bin:/bin").status();
    assert!(status.expect("it runs").success(), "{words:?}");
}
