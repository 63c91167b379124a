//! Who is told, who waits for whom, and when it ends.

use super::*;
use outboard_cluster::hub::PeerId;

const A: FsInode = FsInode { number: 7, generation: 1 };
const NAMES: LeaseOn = LeaseOn::Names(A);
const NOBODY: [u64; 0] = [];

fn peers<const COUNT: usize>() -> [PeerId; COUNT] {
    std::array::from_fn(|at| PeerId::from_number(u32::try_from(at).expect("few") + 1))
}

fn granted(table: &mut LeaseTable, peer: PeerId, now: Instant) {
    assert_eq!(table.grant(peer, NAMES, 5, now), None);
}

#[test]
fn a_change_waits_until_all_others_have_said_so() {
    let ([one, two, three], now) = (peers(), Instant::now());
    let mut table = LeaseTable::new(now, false);
    [one, two, three].into_iter().for_each(|peer| granted(&mut table, peer, now));
    let told = table.changed((one, 70), NAMES, 6, true);
    let mut asked: Vec<_> = told.iter().map(|recalled| recalled.peer).collect();
    asked.sort();
    assert_eq!(asked, [two, three]);
    assert!(table.is_waiting(70));
    assert_eq!(table.acknowledged(one, told[0].number), NOBODY, "another's notice");
    assert_eq!(table.acknowledged(told[0].peer, told[0].number), NOBODY);
    assert_eq!(table.acknowledged(told[0].peer, told[0].number), NOBODY, "twice");
    assert_eq!(table.acknowledged(told[1].peer, told[1].number), [70]);
    assert!(!table.is_waiting(70));
    assert_eq!(table.changed((one, 71), NAMES, 7, true), [], "nobody has one");
    assert_eq!(table.changed((two, 72), NAMES, 8, true).len(), 1, "its own it has kept");
}

#[test]
fn who_changes_it_next_waits_for_those_that_were_told_before() {
    let ([one, two, three], now) = (peers(), Instant::now());
    let mut table = LeaseTable::new(now, false);
    granted(&mut table, two, now);
    let told = table.changed((one, 70), NAMES, 6, true);
    assert_eq!(table.changed((three, 71), NAMES, 7, true), []);
    assert_eq!(table.changed((two, 72), NAMES, 8, true), [], "its own notice");
    assert_eq!((table.is_waiting(71), table.is_waiting(72)), (true, false));
    granted_anew(&mut table, two, now);
    assert_eq!(table.acknowledged(two, told[0].number), [70, 71]);
    assert_eq!(table.changed((one, 73), NAMES, 9, true).len(), 1, "a lease since then stays");
}

fn granted_anew(table: &mut LeaseTable, peer: PeerId, now: Instant) {
    assert_eq!(table.grant(peer, NAMES, 8, now), None);
}

#[test]
fn a_client_that_says_nothing_is_waited_for_until_its_lease_is_over() {
    let ([one, two], now) = (peers(), Instant::now());
    let mut table = LeaseTable::new(now, false);
    granted(&mut table, two, now);
    table.gone(two);
    let _told = table.changed((one, 70), NAMES, 6, true);
    assert_eq!(table.turn(now + LEASE - Duration::from_millis(1)), NOBODY);
    assert_eq!(table.deadline(), Some(now + LEASE));
    assert_eq!(table.turn(now + LEASE), [70]);
    assert_eq!((table.deadline(), table.len().1), (None, 0));
}

#[test]
fn leases_end_by_themselves() {
    let ([one, two], now) = (peers(), Instant::now());
    let mut table = LeaseTable::new(now, false);
    let step = LEASE + Duration::from_millis(1);
    let just_before = now + LEASE;
    let _none = table.turn(just_before);
    granted(&mut table, two, just_before);
    let _none = table.turn(now + step);
    assert_eq!(table.changed((one, 70), NAMES, 6, true).len(), 1, "it is in the former generation");
    granted_anew(&mut table, two, now + step);
    let _none = table.turn(now + 2 * step);
    let _none = table.turn(now + 3 * step);
    assert_eq!(table.changed((one, 71), NAMES, 7, true), []);
    assert_eq!(table.len(), (0, 0));
}

#[test]
fn what_was_looked_at_before_a_change_is_recalled_at_once() {
    let ([one, two], now) = (peers(), Instant::now());
    let mut table = LeaseTable::new(now, false);
    assert_eq!(table.changed((one, 70), NAMES, 6, true), []);
    let recalled = table.grant(two, NAMES, 5, now).expect("its answer is old");
    assert_eq!((recalled.peer, recalled.on), (two, NAMES));
    assert_eq!(table.grant(two, NAMES, 6, now), None);
}

#[test]
fn changes_wait_for_the_leases_of_the_service_before() {
    let ([one], now) = (peers(), Instant::now());
    let mut table = LeaseTable::new(now, true);
    assert_eq!(table.changed((one, 70), NAMES, 6, true), []);
    assert!(table.is_waiting(70));
    assert_eq!(table.deadline(), Some(now + LEASE));
    assert_eq!(table.turn(now + LEASE), [70]);
    assert_eq!(table.changed((one, 71), NAMES, 7, true), []);
    assert!(!table.is_waiting(71));
}

#[test]
fn a_client_with_more_leases_than_are_counted_is_told_everything() {
    let ([one, two], now) = (peers(), Instant::now());
    let mut table = LeaseTable::new(now, false);
    for number in 0..=INODES_MAX as u64 {
        let inode = FsInode { number: number + 100, generation: 1 };
        assert_eq!(table.grant(two, LeaseOn::Attributes(inode), 5, now), None);
    }
    assert_eq!(table.changed((one, 70), NAMES, 6, true).len(), 1);
    assert_eq!(table.changed((one, 71), NAMES, 7, true).len(), 1, "each time");
    assert_eq!(table.len().0, INODES_MAX);
}

#[test]
fn nobody_waits_for_a_client_that_has_ended() {
    let ([one, two], now) = (peers(), Instant::now());
    let mut table = LeaseTable::new(now, false);
    let other = LeaseOn::Attributes(A);
    granted(&mut table, two, now);
    assert_eq!(table.grant(two, other, 5, now), None);
    let _told = table.changed((one, 70), NAMES, 6, true);
    assert_eq!(table.keeps_nothing(two), [70], "it is waited for no longer");
    assert_eq!(table.changed((one, 71), other, 7, true), [], "nor told");
    assert!(!table.is_waiting(71));
}
