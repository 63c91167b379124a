//! The table against a map, and deregistration against threads that place.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::shared::SharedRegion;

const PD: PdId = PdId(1);

fn region(len: usize) -> SharedRegion {
    SharedRegion::zeroed(len).expect("memory")
}

fn one(table: &StagTable, len: usize, base: u64, access: Access) -> u32 {
    table.register(PD, region(len).into(), base, access).expect("room")
}

fn refusal(
    table: &StagTable,
    stag: u32,
    (pd, need): (PdId, Access),
    (offset, len): (u64, u64),
) -> Option<AccessError> {
    table.resolve(stag, pd, need, offset, len).err()
}

/// What the model remembers of a registration.
#[derive(Clone, Debug)]
struct Known {
    pd: PdId,
    access: Access,
    base: u64,
    len: u64,
    valid: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Register { pd: u32, len: usize, base: u64, access: u8 },
    Deregister { pick: usize },
    Invalidate { pick: usize, pd: u32 },
    Resolve { pick: usize, pd: u32, need: u8, offset: u64, len: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let base = || prop_oneof![Just(0), Just(1000), (u64::MAX - 90..=u64::MAX)];
    let offset = || prop_oneof![0u64..90, 990u64..1090, (u64::MAX - 90..=u64::MAX)];
    let len = || prop_oneof![8 => 0u64..90, 1 => u64::MAX - 90..=u64::MAX];
    prop_oneof![
        (1u32..3, 0usize..80, base(), 0u8..16).prop_map(|(pd, len, base, access)| Step::Register {
            pd,
            len,
            base,
            access
        }),
        (0usize..50).prop_map(|pick| Step::Deregister { pick }),
        (0usize..50, 1u32..3).prop_map(|(pick, pd)| Step::Invalidate { pick, pd }),
        (0usize..50, 1u32..3, 0u8..16, offset(), len()).prop_map(
            |(pick, pd, need, offset, len)| Step::Resolve { pick, pd, need, offset, len }
        ),
    ]
}

/// A map, and all STags ever given out (with two that never were).
#[derive(Debug)]
struct Model {
    known: HashMap<u32, Known>,
    given: Vec<u32>,
    capacity: usize,
}

impl Model {
    fn pick(&self, pick: usize) -> u32 {
        self.given[pick % self.given.len()]
    }

    fn registered(&mut self, known: Known, result: Result<u32, MemError>) {
        if known.base.checked_add(known.len).is_none() {
            assert!(matches!(result, Err(MemError::BaseWraps { .. })));
        } else if self.known.len() == self.capacity {
            let capacity = u32::try_from(self.capacity).expect("small");
            assert_eq!(result, Err(MemError::TableFull { capacity }));
        } else {
            let stag = result.expect("room");
            assert!(stag >> KEY_BITS >= 1 && (stag >> KEY_BITS) as usize <= self.capacity);
            assert!(self.known.insert(stag, known).is_none(), "{stag:#x} given out twice");
            self.given.push(stag);
        }
    }

    fn invalidated(&mut self, stag: u32, pd: PdId) -> Result<(), AccessError> {
        let known = self.known.get_mut(&stag).filter(|known| known.valid);
        let known = known.ok_or(AccessError::InvalidStag)?;
        if known.pd != pd {
            return Err(AccessError::OtherDomain);
        }
        if !known.access.contains(Access::REMOTE_INVALIDATE) {
            return Err(AccessError::NoRight);
        }
        known.valid = false;
        Ok(())
    }

    /// The verdict in wide arithmetic, which cannot wrap.
    fn resolved(
        &self,
        stag: u32,
        (pd, need): (PdId, Access),
        (offset, len): (u64, u64),
    ) -> Option<AccessError> {
        let Some(known) = self.known.get(&stag).filter(|known| known.valid) else {
            return Some(AccessError::InvalidStag);
        };
        let (start, end) = (u128::from(offset), u128::from(offset) + u128::from(len));
        let (first, last) =
            (u128::from(known.base), u128::from(known.base) + u128::from(known.len));
        if known.pd != pd {
            Some(AccessError::OtherDomain)
        } else if need.bits() & !known.access.bits() != 0 {
            Some(AccessError::NoRight)
        } else if end >= 1 << 64 {
            Some(AccessError::Wraps)
        } else {
            (start < first || end > last).then_some(AccessError::OutOfBounds)
        }
    }
}

fn apply(table: &StagTable, model: &mut Model, step: Step) {
    match step {
        Step::Register { pd, len, base, access } => {
            let (pd, access) = (PdId(pd), Access::from_bits_truncate(access));
            let result = table.register(pd, region(len).into(), base, access);
            let known = Known { pd, access, base, len: len as u64, valid: true };
            model.registered(known, result);
        }
        Step::Deregister { pick } => {
            let stag = model.pick(pick);
            let expected = match model.known.remove(&stag) {
                Some(_) => Ok(()),
                None => Err(MemError::UnknownStag { stag }),
            };
            assert_eq!(table.deregister(stag), expected);
        }
        Step::Invalidate { pick, pd } => {
            let stag = model.pick(pick);
            assert_eq!(table.invalidate(stag, PdId(pd)), model.invalidated(stag, PdId(pd)));
        }
        Step::Resolve { pick, pd, need, offset, len } => {
            let who = (PdId(pd), Access::from_bits_truncate(need));
            let stag = model.pick(pick);
            let expected = model.resolved(stag, who, (offset, len));
            assert_eq!(refusal(table, stag, who, (offset, len)), expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Stale STags stay in `given`, so that old STags of reused slots are tried.
    #[test]
    fn behaves_like_a_map(capacity in 1usize..6, steps in prop::collection::vec(step(), 1..80)) {
        let table = StagTable::new(u32::try_from(capacity).expect("small"));
        let mut model = Model { known: HashMap::new(), given: vec![0, u32::MAX], capacity };
        for step in steps {
            apply(&table, &mut model, step);
            prop_assert_eq!(table.len(), model.known.len());
        }
    }
}

#[test]
fn errors_in_order() {
    let table = StagTable::new(4);
    let stag = one(&table, 100, 50, Access::REMOTE_READ);
    let read = Access::REMOTE_READ;
    let both = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let wrap = (u64::MAX, 1);
    assert_eq!(refusal(&table, stag ^ 1, (PdId(2), both), wrap), Some(AccessError::InvalidStag));
    assert_eq!(refusal(&table, stag, (PdId(2), both), wrap), Some(AccessError::OtherDomain));
    assert_eq!(refusal(&table, stag, (PD, both), wrap), Some(AccessError::NoRight));
    assert_eq!(refusal(&table, stag, (PD, read), wrap), Some(AccessError::Wraps));
    for range in [(49, 1), (49, 0), (150, 1), (151, 0), (50, 101), (u64::MAX, 0)] {
        assert_eq!(refusal(&table, stag, (PD, read), range), Some(AccessError::OutOfBounds));
    }
    for range in [(50, 100), (50, 0), (150, 0), (149, 1)] {
        assert_eq!(refusal(&table, stag, (PD, read), range), None);
    }
}

#[test]
fn placement_reaches_its_own_bytes_only() {
    let table = StagTable::new(4);
    let memory = region(64);
    let slice = memory.slice(16..48).expect("in range");
    let stag = table.register(PD, slice, 1000, Access::REMOTE).expect("room");
    let placement = table.resolve(stag, PD, Access::REMOTE_WRITE, 1008, 8).expect("allowed");
    assert_eq!((placement.len(), placement.is_empty()), (8, false));
    placement.copy_in(6, &[1, 2]).expect("in range");
    assert!(placement.copy_in(7, &[1, 2]).is_err() && placement.span(0..9).is_err());
    assert!(placement.append_to(1..9, &mut Vec::new()).is_err());
    assert_eq!(memory.snapshot(30..32), Ok(vec![1, 2]));
    let mut two = [0; 2];
    placement.copy_out(6, &mut two).expect("in range");
    assert_eq!(two, [1, 2]);
    let mut out = Vec::new();
    placement.append_to(5..8, &mut out).expect("in range");
    assert_eq!(out, [0, 1, 2]);
    assert_eq!(placement.span(2..4).expect("in range").ptr.addr(), memory.addr() + 26);
    let before = memory.load_u64(24);
    assert_eq!(placement.fetch_update_u64(0, |_| 5), before);
    assert!(placement.fetch_update_u64(1, |v| v).is_err());
    assert_eq!(memory.load_u64(24), Ok(5));
}

#[test]
fn small_numbers_never_resolve() {
    let table = StagTable::new(1000);
    for _ in 0..1000 {
        assert!(one(&table, 1, 0, Access::REMOTE) >= 4096);
    }
    for stag in 0..4096 {
        let found = refusal(&table, stag, (PD, Access::empty()), (0, 0));
        assert_eq!(found, Some(AccessError::InvalidStag));
        assert!(table.deregister(stag).is_err());
    }
}

#[test]
fn keys_are_random_and_change_at_reuse() {
    let table = StagTable::new(1);
    let (mut last, mut keys) = (0, HashSet::new());
    for _ in 0..200 {
        let stag = one(&table, 1, 0, Access::REMOTE);
        assert_ne!(stag, last);
        assert_eq!(
            refusal(&table, last, (PD, Access::REMOTE), (0, 1)),
            Some(AccessError::InvalidStag)
        );
        table.deregister(stag).expect("registered");
        keys.insert(stag);
        last = stag;
    }
    assert!(keys.len() > 100, "only {} keys in 200 registrations", keys.len());
}

#[test]
fn first_keys_differ_between_tables() {
    let firsts: HashSet<u32> =
        (0..20).map(|_| one(&StagTable::new(1), 1, 0, Access::REMOTE)).collect();
    assert!(firsts.len() > 10);
}

#[test]
fn freed_slots_rest_while_there_are_new_ones() {
    let table = StagTable::new(1000);
    let mut slots = HashSet::new();
    for _ in 0..REST {
        let stag = one(&table, 1, 0, Access::REMOTE);
        table.deregister(stag).expect("registered");
        assert!(slots.insert(stag >> KEY_BITS), "reused too early");
    }
    for _ in 0..10 * REST {
        let stag = one(&table, 1, 0, Access::REMOTE);
        table.deregister(stag).expect("registered");
        slots.insert(stag >> KEY_BITS);
    }
    assert!(slots.len() < 2 * REST, "slots are used up instead of reused");
}

#[test]
fn capacity_is_capped_and_may_be_zero() {
    let error = StagTable::new(0).register(PD, region(1).into(), 0, Access::REMOTE);
    assert_eq!(error, Err(MemError::TableFull { capacity: 0 }));
    assert_eq!(StagTable::new(u32::MAX).capacity, (1 << 20) - 1);
}

/// The entry holds the last owner of the mapping; afterwards its address is not mapped, unless
/// another test's memory is there by then.
#[test]
fn deregistering_gives_the_memory_up() {
    let gives_it_up = || {
        let table = StagTable::new(1);
        let memory = region(4096);
        let addr = memory.addr();
        let stag = table.register(PD, memory.into(), 0, Access::REMOTE).expect("room");
        assert!(is_mapped(addr));
        table.deregister(stag).expect("registered");
        !is_mapped(addr)
    };
    assert!((0..100).any(|_| gives_it_up()));
}

fn is_mapped(addr: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    maps.lines().any(|line| {
        let (first, last) = line.split_once(' ').expect("range").0.split_once('-').expect("-");
        let number = |text| usize::from_str_radix(text, 16).expect("hex");
        (number(first)..number(last)).contains(&addr)
    })
}

/// Places at full speed until told to stop; counts what was placed.
#[test]
fn a_changed_stag_stands_for_the_new_memory() {
    let table = StagTable::new(4);
    let (read, write) = (Access::REMOTE_READ, Access::REMOTE_WRITE);
    let stag = one(&table, 10, 0, read);
    let (other, new) = (PdId(2), region(20));
    assert_eq!(table.reregister(stag, other, new.clone().into(), 100, write), Ok(()));
    assert_eq!(refusal(&table, stag, (PD, read), (0, 10)), Some(AccessError::OtherDomain));
    assert_eq!(refusal(&table, stag, (other, read), (100, 10)), Some(AccessError::NoRight));
    assert_eq!(refusal(&table, stag, (other, write), (0, 10)), Some(AccessError::OutOfBounds));
    let placement = table.resolve(stag, other, write, 105, 2).expect("registered");
    placement.copy_in(0, b"hi").expect("room");
    drop(placement);
    assert_eq!(new.snapshot(5..7).as_deref(), Ok(&b"hi"[..]));
    // An invalidated one is registered again.
    table.invalidate_locally(stag).expect("valid");
    assert_eq!(table.reregister(stag, PD, region(5).into(), 0, read), Ok(()));
    assert_eq!(refusal(&table, stag, (PD, read), (0, 5)), None);
    let wraps = Err(MemError::BaseWraps { base: u64::MAX, len: 5 });
    assert_eq!(table.reregister(stag, PD, region(5).into(), u64::MAX, read), wraps);
    assert_eq!((refusal(&table, stag, (PD, read), (0, 5)), table.len()), (None, 1));
    table.deregister(stag).expect("registered");
    let unknown = Err(MemError::UnknownStag { stag });
    assert_eq!(table.reregister(stag, PD, region(5).into(), 0, read), unknown);
}

fn place(table: &StagTable, stag: u32, bytes: &[u8], stop: &AtomicBool) -> u32 {
    let mut placed = 0;
    while !stop.load(Ordering::Relaxed) {
        let write = Access::REMOTE_WRITE;
        if let Ok(placement) = table.resolve(stag, PD, write, 0, bytes.len() as u64) {
            placement.copy_in(0, bytes).expect("in range");
            placed += 1;
        }
    }
    placed
}

/// RFC 5040 §8.1.1 item 6: nothing changes any more once the right is revoked.
#[test]
fn nothing_is_placed_after_deregister_returns() {
    const LEN: usize = 1 << 18;
    let table = StagTable::new(8);
    let memory = region(LEN);
    let bytes = vec![0xFF; LEN];
    let mut placed = 0;
    for _ in 0..150 {
        let stag = table.register(PD, memory.clone().into(), 0, Access::REMOTE).expect("room");
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let placer = scope.spawn(|| place(&table, stag, &bytes, &stop));
            while memory.load_u64(LEN / 2) == Ok(0) {
                thread::yield_now();
            }
            table.deregister(stag).expect("registered");
            memory.copy_in(0, &vec![0; LEN]).expect("in range");
            let quiet = memory.snapshot(0..LEN).expect("in range");
            stop.store(true, Ordering::Relaxed);
            placed += placer.join().expect("no panic");
            assert!(quiet.iter().all(|&byte| byte == 0), "changed after deregister");
        });
        let later = memory.snapshot(0..LEN).expect("in range");
        assert!(later.iter().all(|&byte| byte == 0), "changed after deregister");
    }
    assert!(placed >= 150);
}

#[test]
fn the_next_key_is_another_one_whatever_the_step() {
    for key in [0, 1, 0xfff] {
        for random in [0, 1, 0xfff, 0x1000, u32::MAX - 1, u32::MAX] {
            assert_ne!(super::next_key(key, random), key, "{key:#x} {random:#x}");
        }
    }
}

/// Everything at once; what a thread reads through its own fresh STag is its own.
#[test]
fn threads_register_and_resolve_beside_each_other() {
    let table = StagTable::new(6);
    thread::scope(|scope| {
        for id in 0..3u8 {
            let (table, pd) = (&table, PdId(id.into()));
            scope.spawn(move || {
                for _ in 0..3000 {
                    let memory = region(16);
                    memory.copy_in(0, &[id; 16]).expect("in range");
                    let stag = table.register(pd, memory.into(), 0, Access::REMOTE).expect("room");
                    let mut found = [9; 16];
                    let placement = table.resolve(stag, pd, Access::REMOTE_READ, 0, 16);
                    placement.expect("valid").copy_out(0, &mut found).expect("in range");
                    assert_eq!(found, [id; 16]);
                    table.deregister(stag).expect("registered");
                    assert!(table.resolve(stag, pd, Access::REMOTE_READ, 0, 16).is_err());
                }
            });
        }
    });
    assert!(table.is_empty());
}
