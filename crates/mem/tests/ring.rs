//! Rings between two processes: an honest peer that sleeps, and one that writes anything anywhere.
//!
//! The peer is this program again, which runs `as_peer` alone. It reaches the memfds by its
//! parent's entries in /proc and the sockets as its standard input and output.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use outboard_mem::SharedRegion;
use outboard_mem::ring::{
    BeforeSleep, ReceiveOutcome, RingReceiver, RingSender, RingSpec, RingWake, SendOutcome,
    WakeBySocket,
};

const ROLE: &str = "OUTBOARD_RING_ROLE";
const COUNT: u32 = 2_000;

fn spec() -> RingSpec {
    RingSpec::new(16, 200).expect("legal")
}

fn message(number: u32) -> Vec<u8> {
    vec![number.to_le_bytes()[0]; (number as usize * 13) % 201]
}

/// Runs this program's `as_peer` in a role, with memfds and sockets.
fn peer(role: &str, memfds: [&OwnedFd; 2], sockets: [UnixStream; 2]) -> Child {
    let [input, output] = sockets.map(|socket| Stdio::from(OwnedFd::from(socket)));
    let path = |memfd: &OwnedFd| format!("/proc/{}/fd/{}", std::process::id(), memfd.as_raw_fd());
    Command::new(std::env::current_exe().expect("this program"))
        .args(["as_peer", "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env("OUTBOARD_RING_THERE", path(memfds[0]))
        .env("OUTBOARD_RING_BACK", path(memfds[1]))
        .stdin(input)
        .stdout(output)
        .spawn()
        .expect("a process")
}

fn opened(name: &str) -> OwnedFd {
    let path = std::env::var_os(name).expect("the parent sets it");
    File::options().read(true).write(true).open(path).expect("the parent's memfd").into()
}

fn wake(socket: &UnixStream) -> Option<Box<dyn RingWake>> {
    let socket = socket.try_clone().expect("a descriptor");
    Some(Box::new(WakeBySocket::new(socket).expect("a socket")))
}

fn sleep(mut on: impl Read) {
    assert_ne!(on.read(&mut [0; 64]).expect("the other side is there"), 0, "it has ended");
}

fn receive(from: &mut RingReceiver, into: &mut Vec<u8>, mut on: impl Read) {
    while from.try_receive(into).expect("honest") == ReceiveOutcome::Empty {
        if from.before_sleep().expect("honest") == BeforeSleep::Sleep {
            sleep(&mut on);
        }
    }
}

/// Not a test but the peer of the other ones, when it is told so.
#[test]
fn as_peer() {
    match std::env::var(ROLE).as_deref() {
        Ok("echo") => echo(),
        Ok("scribble") => scribble(),
        _ => return,
    }
    // Before the test's result is written to the socket, which may be full of wake-ups.
    std::process::exit(0);
}

/// Sends back all that comes, and sleeps until something does.
fn echo() {
    let stdout = std::io::stdout().as_fd().try_clone_to_owned().expect("a descriptor");
    let wakes = UnixStream::from(stdout);
    let mut from = RingReceiver::attach(&opened("OUTBOARD_RING_THERE"), spec(), wake(&wakes))
        .expect("the parent's ring");
    let mut to = RingSender::attach(&opened("OUTBOARD_RING_BACK"), spec(), wake(&wakes))
        .expect("the parent's ring");
    let mut found = Vec::new();
    for _ in 0..COUNT {
        receive(&mut from, &mut found, std::io::stdin());
        // The parent never has more than 16 under way.
        assert_eq!(to.try_send(&found), Ok(SendOutcome::Sent));
    }
}

/// Writes over all of a ring, until it is killed or a bound is reached.
fn scribble() {
    let memory = SharedRegion::from_memfd(opened("OUTBOARD_RING_THERE")).expect("sealed");
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..20_000_000_u32 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = usize::try_from(state >> 20).expect("64 bits") % (memory.len() / 8) * 8;
        memory.store_u64(at, state).expect("inside");
    }
}

/// Up to 16 messages under way; all come back in order, and neither process sleeps through one.
#[test]
fn an_echo_in_another_process() {
    let (sleeps, child_wakes) = UnixStream::pair().expect("sockets");
    let (wakes, child_sleeps) = UnixStream::pair().expect("sockets");
    let (mut to, there) = RingSender::create(spec(), wake(&wakes)).expect("memory");
    let (mut from, back) = RingReceiver::create(spec(), wake(&wakes)).expect("memory");
    let mut child = peer("echo", [&there, &back], [child_sleeps, child_wakes]);
    let mut found = Vec::new();
    let mut sent = 0;
    for number in 0..COUNT {
        while sent < COUNT.min(number + 16) && to.try_send(&message(sent)) == Ok(SendOutcome::Sent)
        {
            sent += 1;
        }
        receive(&mut from, &mut found, &sleeps);
        assert!(found == message(number), "message {number}");
    }
    assert!(child.wait().expect("a child").success());
}

/// Whatever another process writes, both ends in this one go on or report a fault.
#[test]
fn a_scribbling_process() {
    let (_sleeps, output) = UnixStream::pair().expect("sockets");
    let (_wakes, input) = UnixStream::pair().expect("sockets");
    let (mut to, there) = RingSender::create(spec(), None).expect("memory");
    let mut from = RingReceiver::attach(&there, spec(), None).expect("fits");
    let mut child = peer("scribble", [&there, &there], [input, output]);
    let mut found = Vec::new();
    let fault = loop {
        // Asked first: what it wrote before it ended is noticed.
        let has_ended = child.try_wait().expect("a child").is_some();
        let sent = to.try_send(&message(100)).map(drop);
        let received = from.try_receive(&mut found).map(drop);
        assert!(found.len() <= 200);
        if let Err(fault) = sent.and(received) {
            break fault;
        }
        assert!(!has_ended, "nothing was noticed");
        std::thread::yield_now();
    };
    let _has_ended = child.kill();
    child.wait().expect("a child");
    let again = [to.try_send(b"").err(), from.try_receive(&mut found).err()];
    assert!(again.contains(&Some(fault)), "{fault} is forgotten");
}
