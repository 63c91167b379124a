//! The private part and mapped regions, what is refused, and what has no access.

use super::*;
use crate::shared::Space;

const PAGE: usize = 65536;

#[test]
fn only_the_private_part_is_copied() {
    let mut reservation = Reservation::new(16 * PAGE).expect("addresses");
    reservation.map_private(PAGE, 2 * PAGE).expect("memory");
    reservation.copy_in(PAGE, b"first").expect("inside");
    reservation.copy_in(3 * PAGE - 4, b"last").expect("inside");
    let mut read = [0; 5];
    reservation.copy_out(PAGE, &mut read).expect("inside");
    assert_eq!(&read, b"first");
    for (at, len) in [(0, 1), (PAGE - 1, 2), (3 * PAGE - 3, 4), (3 * PAGE, 1), (usize::MAX, 2)] {
        let outside = reservation.copy_out(at, &mut vec![0; len]);
        assert!(matches!(outside, Err(MemError::OutOfBounds { .. })), "{at} {len}");
    }
    reservation.copy_in(3 * PAGE, b"").expect("no byte is outside");
    reservation.map_private(1, PAGE).expect_err("inside a page");
    reservation.map_private(15 * PAGE, 2 * PAGE).expect_err("behind the end");
}

#[test]
fn a_region_is_seen_there_and_goes_with_the_reservation() {
    let region = SharedRegion::memfd(c"test", 3 * PAGE + 100, Space::OnDemand).expect("memory");
    region.copy_in(PAGE, b"seen").expect("inside");
    let mut reservation = Reservation::new(16 * PAGE).expect("addresses");
    let all = 0..region.len();
    reservation.map_region(8 * PAGE, &region, all, Rights::ReadOnly).expect("mapped");
    assert!(!region.is_sole(), "its pages are reached another way");
    // SAFETY: the page is mapped, and as long as `seen` lives nobody changes it.
    let seen = unsafe { SharedRegion::from_raw(reservation.base().as_ptr().add(9 * PAGE), 4) };
    assert_eq!(seen.snapshot(0..4).expect("there"), b"seen");
    drop(seen);
    let beyond = reservation.map_region(14 * PAGE, &region, 0..3 * PAGE, Rights::ReadOnly);
    assert!(matches!(beyond, Err(MemError::OutOfBounds { .. })), "{beyond:?}");
    let behind = 0..region.len() + 1;
    reservation.map_region(0, &region, behind, Rights::ReadOnly).expect_err("behind its end");
    drop(reservation);
    assert!(region.is_sole());
}

// Accesses that sanitizers can check end the process at a page that is missing.
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, outboard_bytewise))
))]
#[test]
fn the_rest_has_no_access() {
    let mut reservation = Reservation::new(4 * PAGE).expect("addresses");
    reservation.map_private(PAGE, PAGE).expect("memory");
    let region = SharedRegion::memfd(c"test", PAGE, Space::OnDemand).expect("memory");
    reservation.map_region(2 * PAGE, &region, 0..PAGE, Rights::ReadOnly).expect("mapped");
    let at = |offset: usize| {
        // SAFETY: missing pages are an error of such a region; nothing else is there.
        unsafe { SharedRegion::from_raw(reservation.base().as_ptr().add(offset), 8) }
    };
    assert!(matches!(at(0).load_u64(0), Err(MemError::Missing { .. })));
    assert!(matches!(at(3 * PAGE).load_u64(0), Err(MemError::Missing { .. })));
    assert_eq!(at(2 * PAGE).load_u64(0), Ok(0));
    assert!(matches!(at(2 * PAGE).store_u64(0, 1), Err(MemError::Missing { .. })));
    assert_eq!(region.load_u64(0), Ok(0));
}

#[test]
fn words_and_zeroes_stay_in_the_private_part() {
    let mut reservation = Reservation::new(8 * PAGE).expect("addresses");
    assert!(matches!(reservation.load_u64(0), Err(MemError::OutOfBounds { .. })), "none yet");
    reservation.map_private(PAGE, 2 * PAGE).expect("memory");
    let last = 3 * PAGE - 8;
    reservation.store_u64(last, 0x0123_4567_89ab_cdef).expect("inside");
    assert_eq!(reservation.load_u64(last), Ok(0x0123_4567_89ab_cdef));
    let mut byte = [0];
    reservation.copy_out(last, &mut byte).expect("inside");
    assert_eq!(byte[0], 0x0123_4567_89ab_cdef_u64.to_ne_bytes()[0]);
    for at in [PAGE - 8, 3 * PAGE, usize::MAX - 7] {
        assert!(matches!(reservation.store_u64(at, 1), Err(MemError::OutOfBounds { .. })), "{at}");
    }
    assert!(matches!(reservation.load_u64(PAGE + 4), Err(MemError::Unaligned { .. })));

    reservation.copy_in(PAGE, &vec![7; 2 * PAGE]).expect("inside");
    reservation.zero(PAGE + 1..3 * PAGE - 1).expect("inside");
    let mut all = vec![1; 2 * PAGE];
    reservation.copy_out(PAGE, &mut all).expect("inside");
    assert_eq!((all[0], all[2 * PAGE - 1]), (7, 7));
    assert!(all[1..2 * PAGE - 1].iter().all(|byte| *byte == 0));
    for range in [PAGE - 1..PAGE + 1, 3 * PAGE - 1..3 * PAGE + 1] {
        reservation.zero(range).expect_err("in part outside");
    }
    reservation.copy_out(PAGE, &mut all).expect("inside");
    assert_eq!((all[0], all[2 * PAGE - 1]), (7, 7), "nothing is changed");
    #[allow(clippy::reversed_empty_ranges)] // what is tested
    reservation.zero(2 * PAGE..PAGE).expect_err("it ends before it starts");
}

#[test]
fn nothing_is_mapped_over_anything() {
    let region = SharedRegion::memfd(c"test", 2 * PAGE, Space::OnDemand).expect("memory");
    let mut reservation = Reservation::new(16 * PAGE).expect("addresses");
    reservation.map_private(PAGE, 2 * PAGE).expect("memory");
    let mut map = |at| reservation.map_region(at, &region, 0..2 * PAGE, Rights::ReadOnly);
    for at in [0, PAGE, 2 * PAGE] {
        assert!(matches!(map(at), Err(MemError::Occupied { .. })), "{at}");
    }
    map(3 * PAGE).expect("beside it");
    for at in [2 * PAGE, 3 * PAGE, 4 * PAGE] {
        assert!(matches!(map(at), Err(MemError::Occupied { .. })), "{at}");
    }
    map(5 * PAGE).expect("beside it");
    // Else a region that is mapped read-only would become writable.
    for at in [3 * PAGE, 8 * PAGE] {
        let second = reservation.map_private(at, PAGE);
        assert!(matches!(second, Err(MemError::Occupied { .. })), "{at}");
    }
    let mut without = Reservation::new(4 * PAGE).expect("addresses");
    without.map_region(0, &region, 0..PAGE, Rights::ReadOnly).expect("mapped");
    assert!(matches!(without.map_private(0, PAGE), Err(MemError::Occupied { .. })));
    without.map_private(PAGE, PAGE).expect("a refused one is none");
}

#[test]
fn a_region_that_ends_inside_a_page_is_mapped_to_the_page_s_end() {
    let page = page_size();
    let region = SharedRegion::memfd(c"test", page + 8, Space::OnDemand).expect("memory");
    region.store_u64(page, u64::MAX).expect("inside");
    let mut reservation = Reservation::new(16 * page).expect("addresses");
    reservation.map_region(page, &region, 0..page + 8, Rights::ReadOnly).expect("mapped");
    // SAFETY: the two pages are mapped as long as `seen` lives, the third is missing.
    let seen = unsafe { SharedRegion::from_raw(reservation.base().as_ptr().add(page), 3 * page) };
    assert_eq!(seen.load_u64(page), Ok(u64::MAX));
    assert_eq!(seen.snapshot(page + 8..2 * page), Ok(vec![0; page - 8]));
    // Accesses that sanitizers can check end the process there.
    #[cfg(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        not(any(miri, outboard_bytewise))
    ))]
    assert!(matches!(seen.load_u64(2 * page), Err(MemError::Missing { .. })));
    for empty in [0..0, page..page] {
        let refused = reservation.map_region(8 * page, &region, empty, Rights::ReadOnly);
        assert!(matches!(refused, Err(MemError::Pages { .. })), "{refused:?}");
    }
    reservation
        .map_region(
            8 * page,
            &SharedRegion::zeroed(page).expect("memory"),
            0..page,
            Rights::ReadOnly,
        )
        .expect_err("no descriptor");
}

#[test]
fn copies_on_several_threads_are_no_undefined_behaviour() {
    let mut reservation = Reservation::new(4 * PAGE).expect("addresses");
    reservation.map_private(0, PAGE).expect("memory");
    std::thread::scope(|threads| {
        for value in [1_u8, 2] {
            let reservation = &reservation;
            threads.spawn(move || {
                for _ in 0..2000 {
                    reservation.copy_in(0, &[value; 999]).expect("inside");
                    let mut seen = [0; 999];
                    reservation.copy_out(0, &mut seen).expect("inside");
                    assert!(seen.iter().all(|byte| [1, 2].contains(byte)));
                }
            });
        }
    });
}
