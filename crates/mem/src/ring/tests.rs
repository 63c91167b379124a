//! Whole rings: against a model, between threads, and with a peer that writes anything anywhere.

use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use proptest::prelude::*;

use super::*;
use crate::error::MemError;
use crate::shared::{SharedRegion, Space};

fn pair(depth: u32, message_max: u32) -> (RingSender, RingReceiver, OwnedFd) {
    let spec = RingSpec::new(depth, message_max).expect("legal");
    let (sender, memfd) = RingSender::create(spec, None).expect("memory");
    let receiver = RingReceiver::attach(&memfd, spec, None).expect("fits");
    (sender, receiver, memfd)
}

fn message(number: u32, len: usize) -> Vec<u8> {
    let first = u64::from(number) * 31;
    (0..len as u64).map(|at| (first + at).to_le_bytes()[0]).collect()
}

#[derive(Clone, Debug)]
enum Operation {
    Send(usize),
    SendInPlace(usize),
    Receive,
    ReceiveInPlace,
    Look,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let one = prop_oneof![
        3 => (0..=101_usize).prop_map(Operation::Send),
        2 => (0..=101_usize).prop_map(Operation::SendInPlace),
        2 => Just(Operation::Receive),
        2 => Just(Operation::ReceiveInPlace),
        1 => Just(Operation::Look),
    ];
    prop::collection::vec(one, 1..200)
}

/// A ring of messages of up to 100 bytes beside a queue.
struct Beside {
    sender: RingSender,
    receiver: RingReceiver,
    queue: VecDeque<Vec<u8>>,
    number: u32,
}

impl Beside {
    fn expected(&self, len: usize) -> SendOutcome {
        if len > 100 {
            SendOutcome::TooLong
        } else if self.queue.len() == self.sender.spec().depth() as usize {
            SendOutcome::Full
        } else {
            SendOutcome::Sent
        }
    }

    fn send(&mut self, len: usize) {
        self.number += 1;
        let message = message(self.number, len);
        let expected = self.expected(len);
        assert_eq!(self.sender.try_send(&message), Ok(expected));
        if expected == SendOutcome::Sent {
            self.queue.push_back(message);
        }
    }

    fn send_in_place(&mut self, len: usize) {
        self.number += 1;
        let message = message(self.number, len);
        let is_full = self.expected(0) == SendOutcome::Full;
        let expected = self.expected(len);
        let Some(mut slot) = self.sender.reserve().expect("honest") else {
            return assert!(is_full);
        };
        assert_eq!(slot.copy_in(0, &message).is_ok(), len <= 100);
        assert!(slot.copy_in(100, &[0]).is_err(), "behind the slot");
        assert_eq!(slot.commit(len), Ok(expected));
        if expected == SendOutcome::Sent {
            self.queue.push_back(message);
        }
    }

    fn receive(&mut self) {
        let mut found = vec![0xEE; 3];
        let outcome = self.receiver.try_receive(&mut found).expect("honest");
        match self.queue.pop_front() {
            Some(expected) => assert_eq!((outcome, found), (ReceiveOutcome::Received, expected)),
            None => assert_eq!((outcome, found), (ReceiveOutcome::Empty, vec![0xEE; 3])),
        }
    }

    fn look(&mut self) {
        let slot = self.receiver.peek().expect("honest");
        let Some(slot) = slot else { return assert!(self.queue.is_empty()) };
        let mut found = Vec::new();
        slot.append_to(&mut found).expect("there");
        assert_eq!(Some(&found), self.queue.front());
        let mut byte = [0];
        assert!(slot.copy_out(slot.len(), &mut byte).is_err(), "behind the message");
    }

    fn receive_in_place(&mut self) {
        self.look();
        if let Some(slot) = self.receiver.peek().expect("honest") {
            slot.release().expect("honest");
            self.queue.pop_front();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..Default::default()
    })]
    #[test]
    fn as_a_queue(depth in 0..5_u32, operations in operations()) {
        let (sender, receiver, _memfd) = pair(1 << depth, 100);
        let mut beside = Beside { sender, receiver, queue: VecDeque::new(), number: 0 };
        for operation in operations {
            match operation {
                Operation::Send(len) => beside.send(len),
                Operation::SendInPlace(len) => beside.send_in_place(len),
                Operation::Receive => beside.receive(),
                Operation::ReceiveInPlace => beside.receive_in_place(),
                Operation::Look => beside.look(),
            }
        }
    }
}

#[test]
fn measures_are_bounded() {
    for (depth, message_max) in [(0, 1), (3, 1), (1 << 17, 1), (1, 0), (1, (64 << 20) + 1)] {
        let refused = RingError::Spec { depth, message_max };
        assert_eq!(RingSpec::new(depth, message_max), Err(refused));
    }
    assert!(RingSpec::new(16, 64 << 20).is_ok() && RingSpec::new(65_536, 16 << 10).is_ok());
    assert!(RingSpec::new(32, 64 << 20).is_err(), "2 GiB");
    let text = RingSpec::new(32, 64 << 20).unwrap_err().to_string();
    assert!(text.contains("at most 1073741824 bytes"), "{text}");
}

#[test]
fn slots_begin_on_cache_lines_and_do_not_overlap() {
    let (mut sender, mut receiver, _memfd) = pair(4, 65);
    for number in 0..8 {
        let slot = sender.reserve().expect("honest").expect("room");
        let start = slot.start();
        assert_eq!(start, (number % 4) * 128);
        slot.commit(65).expect("honest");
        let slot = receiver.peek().expect("honest").expect("sent");
        assert_eq!((slot.start(), slot.len()), (start, 65));
        slot.release().expect("honest");
    }
    assert!(sender.pool().len() >= 4 * 128 && sender.pool().len() % 4096 == 0);
}

/// A receiver may make the ring as well, and what was sent before it attaches is there.
#[test]
fn either_side_makes_it() {
    let spec = RingSpec::new(8, 10).expect("legal");
    let (mut receiver, memfd) = RingReceiver::create(spec, None).expect("memory");
    let mut sender = RingSender::attach(&memfd, spec, None).expect("fits");
    let mut found = Vec::new();
    assert_eq!(sender.try_send(b"one"), Ok(SendOutcome::Sent));
    assert_eq!(receiver.try_receive(&mut found), Ok(ReceiveOutcome::Received));
    assert_eq!((found.as_slice(), receiver.spec(), sender.spec()), (&b"one"[..], spec, spec));
    let (mut sender, memfd) = RingSender::create(spec, None).expect("memory");
    sender.try_send(b"early").expect("honest");
    let mut receiver = RingReceiver::attach(&memfd, spec, None).expect("fits");
    assert_eq!(receiver.try_receive(&mut found), Ok(ReceiveOutcome::Received));
    assert_eq!(found, b"early");
}

#[test]
fn other_memory_is_refused() {
    let spec = RingSpec::new(8, 100).expect("legal");
    let attach = |memfd: &OwnedFd| RingReceiver::attach(memfd, spec, None).map(drop);
    let len = spec.file_len();
    let region = |len| SharedRegion::memfd(c"test", len, Space::OnDemand).expect("memory");
    for found in [len - 4096, len + 4096, 1, 0] {
        let wrong = region(found).descriptor().expect("a memfd");
        assert_eq!(attach(&wrong), Err(RingError::Size { expected: len, found }));
    }
    let unmarked = region(len).descriptor().expect("a memfd");
    let found = attach(&unmarked);
    assert!(matches!(found, Err(RingError::Header { word: 0, found: 0, .. })), "{found:?}");
    let other = RingSpec::new(8, 128).expect("legal");
    let (_sender, memfd) = RingSender::create(other, None).expect("memory");
    let found = attach(&memfd);
    let expected = RingError::Header { word: 2, expected: 100, found: 128 };
    assert_eq!(found, Err(expected), "same length, other measures");
    let file = tempfile(len);
    let found = attach(&file);
    assert!(matches!(found, Err(RingError::Memory(MemError::Seals { .. }))), "{found:?}");
}

/// A file of this length whose length can change.
fn tempfile(len: usize) -> OwnedFd {
    let path = std::env::temp_dir().join(format!("outboard-ring-{}", std::process::id()));
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path);
    let file = file.expect("a temporary file");
    std::fs::remove_file(&path).expect("just made");
    file.set_len(len as u64).expect("space");
    file.into()
}

/// Both sides sleep: neither message nor slot is slept through, or this would not end.
#[test]
fn threads_that_sleep_lose_nothing() {
    for (depth, count) in [(1, 300), (2, 2_000), (64, 20_000)] {
        let spec = RingSpec::new(depth, 300).expect("legal");
        let (receiver_sleeps, wakes_receiver) = UnixStream::pair().expect("sockets");
        let (sender_sleeps, wakes_sender) = UnixStream::pair().expect("sockets");
        let wake = |socket| -> Option<Box<dyn RingWake>> {
            Some(Box::new(WakeBySocket::new(socket).expect("a socket")))
        };
        let (sender, memfd) = RingSender::create(spec, wake(wakes_receiver)).expect("memory");
        let receiver = RingReceiver::attach(&memfd, spec, wake(wakes_sender)).expect("fits");
        std::thread::scope(|threads| {
            threads.spawn(move || send_all(sender, sender_sleeps, count));
            threads.spawn(move || receive_all(receiver, receiver_sleeps, count));
        });
    }
}

fn sleep(mut on: &UnixStream) {
    let count = on.read(&mut [0; 64]).expect("the other side is there");
    assert_ne!(count, 0, "the other side is there");
}

fn send_all(mut sender: RingSender, sleeps: UnixStream, count: u32) {
    for number in 0..count {
        let message = message(number, (number as usize * 7) % 301);
        while sender.try_send(&message).expect("honest") == SendOutcome::Full {
            let wanted = 1 + number % sender.spec().depth();
            if sender.before_sleep(wanted).expect("honest") == BeforeSleep::Sleep {
                sleep(&sleeps);
            }
        }
    }
    // Until the receiver has all, so that the sockets stay open.
    while sender.before_sleep(u32::MAX).expect("honest") == BeforeSleep::Sleep {
        sleep(&sleeps);
    }
}

fn receive_all(mut receiver: RingReceiver, sleeps: UnixStream, count: u32) {
    let mut found = Vec::new();
    for number in 0..count {
        while receiver.try_receive(&mut found).expect("honest") == ReceiveOutcome::Empty {
            if receiver.before_sleep().expect("honest") == BeforeSleep::Sleep {
                sleep(&sleeps);
            }
        }
        assert!(found == message(number, (number as usize * 7) % 301), "message {number}");
        if number % 512 == 0 {
            std::thread::yield_now();
        }
    }
}

#[derive(Debug, Default)]
struct Counted(AtomicU32);

impl RingWake for Arc<Counted> {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn who_is_awake_is_not_woken() {
    let spec = RingSpec::new(4, 8).expect("legal");
    let (wakes, back) = (Arc::new(Counted::default()), Arc::new(Counted::default()));
    let (mut sender, memfd) =
        RingSender::create(spec, Some(Box::new(Arc::clone(&wakes)))).expect("memory");
    let mut receiver =
        RingReceiver::attach(&memfd, spec, Some(Box::new(Arc::clone(&back)))).expect("fits");
    let mut found = Vec::new();
    for _ in 0..10 {
        sender.try_send(b"a").expect("honest");
        receiver.try_receive(&mut found).expect("honest");
    }
    let counts = || (wakes.0.load(Ordering::Relaxed), back.0.load(Ordering::Relaxed));
    assert_eq!(counts(), (0, 0));
    assert_eq!(receiver.before_sleep(), Ok(BeforeSleep::Sleep));
    (0..4).for_each(|_| assert_eq!(sender.try_send(b"a"), Ok(SendOutcome::Sent)));
    assert_eq!(counts(), (1, 0));
    assert_eq!(sender.before_sleep(3), Ok(BeforeSleep::Sleep));
    receive_two(&mut receiver);
    assert_eq!(counts(), (1, 0));
    receive_two(&mut receiver);
    assert_eq!(counts(), (1, 1));
}

fn receive_two(receiver: &mut RingReceiver) {
    let mut found = Vec::new();
    for _ in 0..2 {
        assert_eq!(receiver.try_receive(&mut found), Ok(ReceiveOutcome::Received));
    }
}

#[test]
fn wake_ups_never_wait() {
    let (reads, writes) = UnixStream::pair().expect("sockets");
    let socket = WakeBySocket::new(writes).expect("a socket");
    (0..5_000).for_each(|_| socket.wake());
    drop(reads);
    socket.wake();
}

/// Numbers without a pattern (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("below a usize")
    }
}

#[derive(Default)]
struct Told {
    rounds: AtomicU32,
    is_over: AtomicBool,
}

/// Writes anything over the whole memfd, mostly where it hurts, until it is told to stop.
fn scribble(memory: &SharedRegion, words_len: usize, told: &Told, seed: u64) {
    let mut random = Random(seed);
    while !told.is_over.load(Ordering::Relaxed) {
        told.rounds.fetch_add(1, Ordering::Relaxed);
        let word = 8 * random.below(words_len / 8);
        let value = match random.below(4) {
            0 => random.next(),
            1 => random.next() & 0x0000_0003_0000_00FF,
            2 => memory.load_u64(word).expect("inside").wrapping_add(1),
            _ => 0,
        };
        memory.store_u64(word, value).expect("inside");
        let at = random.below(memory.len() - 8);
        memory.copy_in(at, &value.to_ne_bytes()[..random.below(8)]).expect("inside");
    }
}

/// Whatever the memory says: neither side panics, waits or accesses anything outside; it goes on or
/// reports a fault, and then always the same one.
#[test]
fn a_peer_that_scribbles_harms_its_own_ring_only() {
    let faults = AtomicU32::new(0);
    for seed in 1..60_u64 {
        let (mut sender, mut receiver, memfd) = pair(1 << (seed % 6), 200);
        let whole = SharedRegion::from_memfd(memfd).expect("sealed");
        let words_len = whole.len() - sender.pool().len();
        let told = Told::default();
        std::thread::scope(|threads| {
            threads.spawn(|| scribble(&whole, words_len, &told, seed));
            while told.rounds.load(Ordering::Relaxed) < 100 {
                std::thread::yield_now();
            }
            let mut random = Random(seed * 77);
            let mut step = |_| step(&mut sender, &mut receiver, &mut random).err();
            if let Some(fault) = (0..2_000).find_map(&mut step) {
                faults.fetch_add(1, Ordering::Relaxed);
                assert!((0..50).filter_map(step).last().is_some(), "{fault} is forgotten");
            }
            told.is_over.store(true, Ordering::Relaxed);
        });
    }
    assert_ne!(faults.into_inner(), 0, "nothing was noticed");
}

fn step(
    sender: &mut RingSender,
    receiver: &mut RingReceiver,
    random: &mut Random,
) -> Result<(), RingFault> {
    let mut found = Vec::new();
    match random.below(6) {
        0 | 1 => drop(sender.try_send(&message(1, random.below(201)))?),
        2 => {
            if let Some(slot) = sender.reserve()? {
                slot.commit(random.below(201))?;
            }
        }
        3 => drop(receiver.try_receive(&mut found)?),
        4 => {
            if let Some(slot) = receiver.peek()? {
                assert!(slot.len() <= 200 && slot.start() <= 31 * 256);
                slot.append_to(&mut found).expect("inside the slot");
                slot.release()?;
            }
        }
        _ => drop((sender.before_sleep(3)?, receiver.before_sleep()?)),
    }
    assert!(found.len() <= 200);
    Ok(())
}
