//! Two network namespaces with a wire between them, and what a test does there.
//!
//! Never touches an interface of the machine.

use std::fs::File;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use outboard_nic::{BodyStart, BpfBody, LoadedBody, NetInterface};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// How long anything may take on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(30);
/// Packets under way at once: fewer than a wire of veth holds.
pub(crate) const BATCH: u64 = 32;

/// The side with the body.
pub(crate) const HERE: Ipv4Addr = Ipv4Addr::new(198, 18, 77, 1);
/// The side that sends.
pub(crate) const THERE: Ipv4Addr = Ipv4Addr::new(198, 18, 77, 2);

const WIRE: &str = "\
link add wire0 address 02:00:00:00:77:01 type veth peer name wire1 address 02:00:00:00:77:02 netns \
                    {b}
link set wire0 addrgenmode none
addr add 198.18.77.1/24 dev wire0
link set wire0 up
neigh replace 198.18.77.2 lladdr 02:00:00:00:77:02 nud permanent dev wire0
";
const OTHER: &str = "\
link set wire1 addrgenmode none
addr add 198.18.77.2/24 dev wire1
link set wire1 up
neigh replace 198.18.77.1 lladdr 02:00:00:00:77:01 nud permanent dev wire1
";

/// Two namespaces, removed when dropped.
#[derive(Debug)]
pub(crate) struct Lab {
    here: String,
    there: String,
}

impl Lab {
    /// Makes them; nothing for a user who may not.
    pub(crate) fn new() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            println!("skipped: network namespaces and programs in the kernel need root");
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |side| format!("outboard-nic-{}-{number}{side}", std::process::id());
        let lab = Self { here: name('a'), there: name('b') };
        ip(&["netns", "add", &lab.here]);
        ip(&["netns", "add", &lab.there]);
        batch(&lab.here, &WIRE.replace("{b}", &lab.there));
        batch(&lab.there, OTHER);
        Some(lab)
    }

    pub(crate) fn here_name(&self) -> &str {
        &self.here
    }

    /// Runs on the side with the body.
    pub(crate) fn here<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        inside(&self.here, run)
    }

    /// Runs on the side that sends.
    pub(crate) fn there<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        inside(&self.there, run)
    }

    /// Commands of `ip` on the side with the body.
    pub(crate) fn ip_here(&self, words: &[&str]) {
        ip(&[&["-n", &self.here], words].concat());
    }

    pub(crate) fn wire(&self) -> NetInterface {
        self.here(|| NetInterface::named("wire0").unwrap())
    }

    /// A socket of the sending side.
    pub(crate) fn socket(&self, port: u16) -> UdpSocket {
        self.there(|| UdpSocket::bind((THERE, port)).unwrap())
    }

    /// A socket beside the body, which gets what passes.
    pub(crate) fn receiver(&self, port: u16) -> UdpSocket {
        let socket = self.here(|| UdpSocket::bind((HERE, port)).unwrap());
        socket.set_nonblocking(true).unwrap();
        socket
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in [&self.here, &self.there] {
            let _gone = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Runs in a thread that is in the namespace.
pub(crate) fn inside<T: Send>(name: &str, run: impl FnOnce() -> T + Send) -> T {
    let run = || {
        let file = File::open(format!("/run/netns/{name}")).unwrap();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        run()
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {said}", words.join(" "));
}

fn batch(name: &str, commands: &str) {
    for line in commands.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        ip(&[&["-n", name][..], &words].concat());
    }
}

/// Waits until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Sends packets by a closure, a few at a time, until the body has seen all of them.
pub(crate) fn send_counted(body: &LoadedBody, counter: &str, packets: u64, mut send: impl FnMut()) {
    let seen = || body.counter(counter).unwrap().unwrap();
    let before = seen();
    for sent in 1..=packets {
        send();
        if sent % BATCH == 0 || sent == packets {
            until("packets arrive", || seen() - before >= sent);
        }
    }
}

/// How many datagrams a socket has.
pub(crate) fn drain(socket: &UdpSocket) -> usize {
    let mut buffer = [0; 2048];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count()
}

/// A shipped body, loaded.
pub(crate) fn loaded(object: &[u8], configuration: &[u8]) -> LoadedBody {
    let body = BpfBody::parse(object).unwrap();
    LoadedBody::load(&body, BodyStart { configuration, state: &[] }).unwrap()
}

/// A body that is compiled here, with the header that is shipped.
pub(crate) fn compiled(source: &str) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("body.c"), directory.path().join("body.o"));
    std::fs::write(&from, source).unwrap();
    let header = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let mut clang = Command::new("clang");
    clang.args(["--target=bpfel", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", "-I"]).arg(header);
    let status = clang.arg("-c").arg(from).arg("-o").arg(&to).status().unwrap();
    assert!(status.success());
    std::fs::read(to).unwrap()
}

/// All records that are there.
pub(crate) fn records(body: &mut LoadedBody) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    body.receive(usize::MAX, |record| records.push(record.to_vec()));
    records
}
