//! A client whose service says whatever it likes: nothing panics, nothing grows, and what is asked
//! after that is asked as ever.

use super::*;
use crate::client::region::RemoteRegion;
use crate::protocol::{EntrySummary, ModuleSummary};
use outboard_verbs::{Access, Context, SharedRegion};

/// Random numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

fn exposed() -> Exposed {
    let context = Context::open().expect("a context");
    let memory = SharedRegion::zeroed(4096).expect("memory");
    let mr = context.alloc_pd().register(memory, Access::REMOTE_READ).expect("registered");
    Exposed::of(&mr)
}

const LIMIT: Duration = Duration::from_secs(10);

/// An answer that a service may, or may not, have a reason for.
fn answer(dice: &mut Dice, memory: Exposed) -> ActiveAnswer<'static> {
    let number = dice.roll(24);
    let (seq, incarnation) = (dice.roll(9), dice.roll(2));
    let module = [u8::try_from(dice.roll(3)).unwrap_or(0); 32];
    let entries = vec![EntrySummary { name: "get".into(), is_read_only: true }];
    match dice.roll(16) {
        0 => ActiveAnswer::Welcome { caller: [7; 32] },
        1 | 2 => {
            let may_write = dice.roll(2) == 0;
            let epoch = dice.roll(3);
            ActiveAnswer::Attached {
                number,
                memory,
                head: memory,
                seq,
                incarnation,
                epoch,
                may_write,
            }
        }
        3 => ActiveAnswer::Loaded { number, module, entries },
        4 => ActiveAnswer::NotLoaded { number, missing: module },
        5 => {
            let (name, len, is_operators) = ("m".into(), 1, false);
            let modules = vec![ModuleSummary { module, name, len, is_operators, entries }];
            ActiveAnswer::Modules { number, modules, total: u32::MAX }
        }
        6 => ActiveAnswer::Ok { number },
        7 => ActiveAnswer::Text { number, json: "[]" },
        8 => ActiveAnswer::Refused { number, why: "no" },
        kind => {
            let outcome = match kind {
                9 | 10 => AnswerOutcome::NoCode,
                11 => AnswerOutcome::Written(u64::MAX),
                12 => AnswerOutcome::Unknown,
                13 => AnswerOutcome::Busy("busy"),
                _ => AnswerOutcome::Done(b"result"),
            };
            ActiveAnswer::Executed { number, seq, outcome }
        }
    }
}

/// All modules that answers name are known, or none.
fn state(knows: bool) -> ClientState {
    let mut state = ClientState::new(ActiveClientId([1; 16]));
    for byte in 0..3 {
        if knows {
            let known = KnownModule { name: "m".into(), bytes: [byte].into() };
            state.modules.insert(ModuleHash([byte; 32]), known);
        }
    }
    state
}

/// What a client does by itself between two answers.
fn act(state: &mut ClientState, dice: &mut Dice, now: Instant) {
    let deadline = now + LIMIT;
    match dice.roll(8) {
        0 => state.connected(deadline),
        1 => state.disconnected(),
        2 if state.regions.len() < 8 => drop(state.attach("kv".into(), deadline)),
        3 => state.detach(u32::try_from(dice.roll(3)).unwrap_or(0)),
        4 => drop(state.window.take_call()),
        5 => drop(state.window.take(dice.roll(24))),
        _ => {
            let region = RemoteRegion::named("kv", u32::try_from(dice.roll(3)).unwrap_or(0));
            let module = ModuleHash([u8::try_from(dice.roll(3)).unwrap_or(0); 32]);
            let call = ActiveCall::new(&region, module, "get", b"arguments");
            if state.has_room(12) && state.window.len() < 64 {
                // There may be no such region.
                let _submitted = state.submit(&call, deadline);
            }
        }
    }
    state.loads.clear();
    while state.next_batch().is_some() {}
}

#[test]
fn whatever_a_service_answers_a_client_goes_on() {
    let (memory, now) = (exposed(), Instant::now());
    for seed in 1..200 {
        let mut dice = Dice(seed * 0x9e37_79b9);
        let mut state = state(seed % 2 == 0);
        state.connected(now + LIMIT);
        for _ in 0..300 {
            let mut batch = Vec::new();
            for _ in 0..=dice.roll(4) {
                PROTOCOL.append(&answer(&mut dice, memory), &mut batch);
            }
            state.handle(&batch, now + LIMIT).expect("messages");
            act(&mut state, &mut dice, now);
            let waiting: usize = state.waiting_for.values().map(Vec::len).sum();
            assert!(waiting <= 4096, "seed {seed}: {waiting} wait for modules");
        }
        // The time of all that waits is over: everything has an outcome.
        state.expire(now + 2 * LIMIT);
        assert_eq!(state.window.numbers(), Vec::<u64>::new(), "seed {seed}");
        while state.window.take_call().is_some() {}
        assert_eq!(state.under_way, 0, "seed {seed}: what is under way is counted");
    }
}

#[test]
fn bytes_that_are_no_answers_are_an_error() {
    let memory = exposed();
    let mut dice = Dice(7);
    for _ in 0..3000 {
        let mut state = state(true);
        state.connected(Instant::now() + LIMIT);
        let mut batch = Vec::new();
        PROTOCOL.append(&answer(&mut dice, memory), &mut batch);
        let at = usize::try_from(dice.roll(batch.len() as u64)).unwrap_or(0);
        batch[at] ^= u8::try_from(dice.roll(255)).unwrap_or(0) + 1;
        // Refused, or another answer.
        let _handled = state.handle(&batch, Instant::now() + LIMIT);
        batch.truncate(at);
        let _handled = state.handle(&batch, Instant::now() + LIMIT);
    }
}

#[test]
fn a_module_that_is_dropped_again_and_again_is_given_up() {
    let (memory, now) = (exposed(), Instant::now());
    let mut state = state(true);
    state.connected(now + LIMIT);
    let (handle, number) = state.attach("kv".into(), now + LIMIT);
    let attached = ActiveAnswer::Attached {
        number,
        memory,
        head: memory,
        seq: 5,
        incarnation: 1,
        epoch: 0,
        may_write: true,
    };
    state.answer(attached, now + LIMIT);
    let region = RemoteRegion::named("kv", handle);
    let call = ActiveCall::new(&region, ModuleHash([1; 32]), "get", b"");
    let ticket = state.submit(&call, now + LIMIT).expect("its own").number();
    let mut loads = 0;
    while state.window.waiting(ticket).is_some() {
        let outcome = AnswerOutcome::NoCode;
        state.answer(ActiveAnswer::Executed { number: ticket, seq: 5, outcome }, now + LIMIT);
        for (number, _) in std::mem::take(&mut state.loads) {
            loads += 1;
            let answer = ActiveAnswer::Loaded { number, module: [1; 32], entries: Vec::new() };
            state.answer(answer, now + LIMIT);
        }
    }
    assert_eq!(loads, LOADS_MAX);
    let over = state.window.take_call().expect("over");
    assert_eq!(over.outcome, Outcome::NoCode(ModuleHash([1; 32])));
}

/// Attaches a region, as a service with this epoch and last commit would.
fn attach_as(state: &mut ClientState, number: u64, (epoch, seq): (u64, u64)) {
    let memory = exposed();
    let (head, incarnation) = (memory, 1);
    let attached =
        ActiveAnswer::Attached { number, memory, head, seq, incarnation, epoch, may_write: true };
    state.answer(attached, Instant::now() + LIMIT);
}

#[test]
fn a_service_that_was_replaced_is_not_believed() {
    let now = Instant::now();
    let mut state = state(true);
    state.connected(now + LIMIT);
    let (handle, number) = state.attach("fs".into(), now + LIMIT);
    attach_as(&mut state, number, (1, 9));
    let region = RemoteRegion::named("fs", handle);
    let call = ActiveCall::new(&region, ModuleHash([1; 32]), "set", b"");
    let ticket = state.submit(&call, now + LIMIT).expect("its own").number();
    // The next one has less than this client was told of.
    state.connected(now + LIMIT);
    let again = *state.window.numbers().last().expect("it attaches again");
    attach_as(&mut state, again, (2, 7));
    let seen = |state: &mut ClientState| match &state.window.waiting(ticket).expect("asked").asked {
        Asked::Execute(call) => call.seen,
        _ => u64::MAX,
    };
    assert_eq!((state.outdated, seen(&mut state), state.regions[0].epoch), (None, 7, 2));
    state.connected(now + LIMIT);
    let again = *state.window.numbers().last().expect("it attaches again");
    attach_as(&mut state, again, (1, 12));
    assert_eq!(state.outdated, Some(1), "its connection is to be ended");
    assert!(state.regions[0].attached.is_none());
    state.disconnected();
    state.connected(now + LIMIT);
    attach_as(&mut state, again, (2, 8));
    assert_eq!((state.outdated, state.regions[0].attached.is_some()), (None, true));
}
