//! The protocol: what a hostile side can write, and under loom every interleaving of honest ones
//! (`RUSTFLAGS="--cfg loom" cargo test -p outboard-mem --lib ring`).

use super::*;

/// Where loom's or the test's words keep a word of a ring of `depth` slots.
fn index_of(at: WordAt, depth: u64) -> usize {
    match at {
        WordAt::Released => 0,
        WordAt::ReceiverSleeps => 1,
        WordAt::SenderSleeps => 2,
        WordAt::SenderWants => 3,
        WordAt::Descriptor(index) => 4 + usize::try_from(index % depth).expect("small"),
    }
}

/// The words of a ring through which `start` messages have gone.
fn words_from(start: u64, depth: u32) -> Vec<u64> {
    let slots = u64::from(depth);
    let mut words = vec![start, 0, 0, 0];
    words.resize(4 + depth as usize, 0);
    for index in (0..slots).map(|slot| start.wrapping_add(slot)) {
        let before = round(index, slots).wrapping_sub(1);
        words[index_of(WordAt::Descriptor(index), slots)] = u64::from(before) << 32;
    }
    words
}

fn published<M: RingWords>(by: &mut Producer<M>, len: u32) -> Result<PeerState, RingFault> {
    by.publish(len)?;
    by.peer()
}

fn released<M: RingWords>(by: &mut Consumer<M>) -> Result<PeerState, RingFault> {
    by.release()?;
    by.peer()
}

/// Starts from which a round, or the index itself, wraps within a few messages.
const STARTS: [u64; 3] = [0, (1 << 33) - 2, u64::MAX - 3];

#[cfg(not(loom))]
mod alone {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[derive(Clone, Debug)]
    struct Plain(Rc<RefCell<Vec<u64>>>, u64);

    impl RingWords for Plain {
        fn load(&self, at: WordAt) -> Result<u64, Missing> {
            Ok(self.0.borrow()[index_of(at, self.1)])
        }

        fn store(&self, at: WordAt, value: u64) -> Result<(), Missing> {
            self.0.borrow_mut()[index_of(at, self.1)] = value;
            Ok(())
        }

        fn fence(&self) {}
    }

    fn ring(depth: u32, start: u64) -> (Producer<Plain>, Consumer<Plain>, Plain) {
        let words = Plain(Rc::new(RefCell::new(words_from(start, depth))), u64::from(depth));
        let producer = Producer::new(words.clone(), depth, start);
        (producer, Consumer::new(words.clone(), depth, 100, start), words)
    }

    #[test]
    fn rounds_and_indices_wrap() {
        for start in STARTS {
            let (mut producer, mut consumer, _) = ring(2, start);
            for count in 0..9_u32 {
                assert_eq!(consumer.peek(), Ok(None));
                for len in [count, count + 50] {
                    assert!(matches!(producer.reserve(), Ok(Some(_))));
                    assert_eq!(published(&mut producer, len), Ok(PeerState::Awake));
                }
                assert_eq!(producer.reserve(), Ok(None), "full from {start}");
                for len in [count, count + 50] {
                    assert_eq!(consumer.peek().map(|next| next.map(|n| n.1)), Ok(Some(len)));
                    assert_eq!(released(&mut consumer), Ok(PeerState::Awake));
                }
            }
        }
    }

    #[test]
    fn each_announcement_is_answered_once() {
        let (mut producer, mut consumer, _) = ring(4, 0);
        assert_eq!(consumer.before_sleep(), Ok(BeforeSleep::Sleep));
        assert_eq!(published(&mut producer, 1), Ok(PeerState::Sleeping));
        assert_eq!(published(&mut producer, 1), Ok(PeerState::Awake));
        assert_eq!(consumer.before_sleep(), Ok(BeforeSleep::Ready));
        assert_eq!(producer.before_sleep(2), Ok(BeforeSleep::Ready));
        producer.publish(1).expect("room");
        producer.publish(1).expect("room");
        assert_eq!(producer.before_sleep(2), Ok(BeforeSleep::Sleep));
        let states: Vec<_> = (0..4)
            .map(|_| {
                consumer.peek().expect("honest").expect("sent");
                released(&mut consumer).expect("honest")
            })
            .collect();
        let [one, two, three, four] = states[..] else { panic!("four") };
        assert_eq!((one, two), (PeerState::Awake, PeerState::Sleeping), "two slots were wanted");
        assert_eq!((three, four), (PeerState::Awake, PeerState::Awake));
        assert_eq!(released(&mut consumer), Ok(PeerState::Awake), "nothing is there");
        assert_eq!(consumer.peek(), Ok(None));
    }

    #[test]
    fn what_a_receiver_claims_to_have_released_is_checked() {
        let (mut producer, _, words) = ring(2, 10);
        producer.publish(1).expect("room");
        producer.publish(1).expect("room");
        for found in [9, 13, 0, u64::MAX, 10 + (1 << 63)] {
            words.store(WordAt::Released, found).expect("there");
            let fault = RingFault::Released { found, sent: 12, before: 10 };
            assert_eq!(producer.reserve(), Err(fault));
        }
        words.store(WordAt::Released, 12).expect("there");
        assert_eq!(producer.reserve(), Ok(Some(12)));
        producer.publish(1).expect("room");
        producer.publish(1).expect("room");
        words.store(WordAt::Released, 11).expect("there");
        let fault = RingFault::Released { found: 11, sent: 14, before: 12 };
        assert_eq!(producer.reserve(), Err(fault), "it takes a release back");
    }

    #[test]
    fn what_a_sender_publishes_is_checked() {
        let (_, mut consumer, words) = ring(2, 10);
        let publish = |round: u64, len: u64| {
            words.store(WordAt::Descriptor(10), round << 32 | len).expect("there");
        };
        for round in [0, 4, 7, 0xFFFF_FFFF] {
            publish(round, 1);
            let found = u32::try_from(round).expect("32 bits");
            let fault = RingFault::Round { index: 10, expected: 6, found };
            assert_eq!(consumer.peek(), Err(fault));
        }
        publish(6, 101);
        assert_eq!(consumer.peek(), Err(RingFault::Length { found: 101, max: 100 }));
        publish(6, 100);
        assert_eq!(consumer.peek(), Ok(Some((10, 100))));
        publish(6, 7);
        assert_eq!(consumer.peek(), Ok(Some((10, 100))), "a length is taken once");
    }
}

#[cfg(loom)]
mod interleaved {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{AtomicU64, Ordering, fence};
    use loom::sync::{Arc, Notify};
    use loom::thread;

    /// A ring with a number in each slot; loom tells of accesses to it that nothing orders.
    struct Model {
        words: Vec<AtomicU64>,
        slots: Vec<UnsafeCell<u64>>,
        depth: u64,
        receiver_wakes: Notify,
        sender_wakes: Notify,
    }

    // SAFETY: what the models prove: a slot is accessed by the side whose turn it is.
    unsafe impl Sync for Model {}
    // SAFETY: as above.
    unsafe impl Send for Model {}

    #[derive(Clone)]
    struct Shared(Arc<Model>);

    impl RingWords for Shared {
        fn load(&self, at: WordAt) -> Result<u64, Missing> {
            Ok(self.0.words[index_of(at, self.0.depth)].load(Ordering::Acquire))
        }

        fn store(&self, at: WordAt, value: u64) -> Result<(), Missing> {
            self.0.words[index_of(at, self.0.depth)].store(value, Ordering::Release);
            Ok(())
        }

        fn fence(&self) {
            fence(Ordering::SeqCst);
        }
    }

    impl Shared {
        fn new(depth: u32, start: u64) -> Self {
            Self(Arc::new(Model {
                words: words_from(start, depth).into_iter().map(AtomicU64::new).collect(),
                slots: (0..depth).map(|_| UnsafeCell::new(0)).collect(),
                depth: u64::from(depth),
                receiver_wakes: Notify::new(),
                sender_wakes: Notify::new(),
            }))
        }

        fn slot(&self, index: u64) -> &UnsafeCell<u64> {
            &self.0.slots[usize::try_from(index % self.0.depth).expect("small")]
        }
    }

    /// What a side does that finds nothing to do.
    #[derive(Clone, Copy)]
    enum Idle {
        Polls,
        Sleeps,
    }

    fn send(shared: &Shared, start: u64, count: u64, idle: Idle) {
        let depth = u32::try_from(shared.0.depth).expect("small");
        let mut producer = Producer::new(shared.clone(), depth, start);
        for number in 0..count {
            let index = loop {
                match (producer.reserve().expect("honest"), idle) {
                    (Some(index), _) => break index,
                    (None, Idle::Polls) => thread::yield_now(),
                    (None, Idle::Sleeps) => {
                        if producer.before_sleep(1) == Ok(BeforeSleep::Sleep) {
                            shared.0.sender_wakes.wait();
                        }
                    }
                }
            };
            // SAFETY: the slot is free; loom tells if not.
            shared.slot(index).with_mut(|slot| unsafe { *slot = number });
            if published(&mut producer, 8) == Ok(PeerState::Sleeping) {
                shared.0.receiver_wakes.notify();
            }
        }
    }

    fn receive(shared: &Shared, start: u64, count: u64, idle: Idle) {
        let depth = u32::try_from(shared.0.depth).expect("small");
        let mut consumer = Consumer::new(shared.clone(), depth, 8, start);
        for number in 0..count {
            let index = loop {
                match (consumer.peek().expect("honest"), idle) {
                    (Some((index, _)), _) => break index,
                    (None, Idle::Polls) => thread::yield_now(),
                    (None, Idle::Sleeps) => {
                        if consumer.before_sleep() == Ok(BeforeSleep::Sleep) {
                            shared.0.receiver_wakes.wait();
                        }
                    }
                }
            };
            // SAFETY: the message is published; loom tells if not.
            assert_eq!(shared.slot(index).with(|slot| unsafe { *slot }), number);
            if released(&mut consumer) == Ok(PeerState::Sleeping) {
                shared.0.sender_wakes.notify();
            }
        }
    }

    /// Sends so many messages and receives so many; loom finds a deadlock when a wake-up is lost.
    #[derive(Clone, Copy)]
    struct Run {
        depth: u32,
        start: u64,
        sent: u64,
        received: u64,
        /// Up to how many times a thread is interrupted where it does not wait; all if absent.
        preemptions: Option<usize>,
    }

    fn model(run: Run, sender: Idle, receiver: Idle) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = run.preemptions;
        builder.check(move || {
            let shared = Shared::new(run.depth, run.start);
            let other = shared.clone();
            let sending = thread::spawn(move || send(&other, run.start, run.sent, sender));
            receive(&shared, run.start, run.received, receiver);
            sending.join().expect("sent");
        });
    }

    const ONE: Run = Run { depth: 1, start: 0, sent: 1, received: 1, preemptions: None };
    const TWO: Run = Run { sent: 2, received: 2, preemptions: Some(3), ..ONE };

    #[test]
    fn what_is_published_is_there() {
        model(Run { depth: 2, preemptions: None, ..TWO }, Idle::Polls, Idle::Polls);
    }

    #[test]
    fn slots_are_used_again_and_indices_wrap() {
        for start in STARTS {
            model(Run { start, ..TWO }, Idle::Polls, Idle::Polls);
        }
        let start = u64::MAX;
        model(Run { depth: 2, start, sent: 3, received: 3, ..TWO }, Idle::Polls, Idle::Polls);
    }

    #[test]
    fn no_message_is_slept_through() {
        model(ONE, Idle::Polls, Idle::Sleeps);
        model(Run { depth: 2, ..TWO }, Idle::Polls, Idle::Sleeps);
    }

    #[test]
    fn no_free_slot_is_slept_through() {
        model(Run { sent: 2, ..ONE }, Idle::Sleeps, Idle::Polls);
        model(Run { start: u64::MAX, ..TWO }, Idle::Sleeps, Idle::Polls);
    }

    #[test]
    fn both_sleep() {
        model(Run { preemptions: Some(2), ..TWO }, Idle::Sleeps, Idle::Sleeps);
    }
}
