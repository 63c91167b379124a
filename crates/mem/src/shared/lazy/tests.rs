//! Pages that come when they are touched.

use super::*;
use crate::mapping::Rights;
use crate::reservation::Reservation;
use crate::shared::Space;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const PAGES: usize = 3000;

fn region() -> (SharedRegion, LazyFill) {
    let len = PAGES * page_size() - 100;
    let region = SharedRegion::memfd(c"lazy", len, Space::OnDemand).expect("memory");
    let fill = region.fill_lazily().expect("a kernel with userfaultfd");
    (region, fill)
}

fn bytes_of(offset: usize) -> Vec<u8> {
    (offset / page_size()).to_le_bytes().repeat(page_size() / 8)
}

/// Fills until it is told to stop; returns how many pages.
fn serve(fill: &LazyFill, stop: &AtomicBool) -> usize {
    let mut filled = 0;
    while !stop.load(Ordering::Relaxed) {
        match fill.next() {
            Some(offset) => {
                fill.fill(offset, &bytes_of(offset)).expect("filled");
                filled += 1;
            }
            None => thread::yield_now(),
        }
    }
    filled
}

#[test]
fn each_page_comes_once_whoever_touches_it_first() {
    let (region, fill) = region();
    let stop = AtomicBool::new(false);
    thread::scope(|threads| {
        let serving = threads.spawn(|| serve(&fill, &stop));
        let readers: Vec<_> = (0..4)
            .map(|reader| {
                let region = &region;
                threads.spawn(move || {
                    for page in 0..PAGES - 1 {
                        let page = if reader % 2 == 0 { page } else { PAGES - 2 - page };
                        let word = region.load_u64(page * page_size() + 8 * reader);
                        assert_eq!(word, Ok(page as u64));
                    }
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().expect("read"));
        stop.store(true, Ordering::Relaxed);
        let filled = serving.join().expect("served");
        assert!((PAGES - 1..=4 * PAGES).contains(&filled), "{filled}");
    });
}

#[test]
fn a_second_mapping_waits_too_and_cleared_pages_come_again() {
    let (region, fill) = region();
    let mut space = Reservation::new(1 << 30).expect("addresses");
    space.map_region(1 << 20, &region, 0..region.len(), Rights::ReadOnly).expect("mapped");
    let at = space.base().as_ptr().wrapping_add((1 << 20) + 7 * page_size());
    // SAFETY: the page is mapped as long as `space` lives, and nobody has a reference to it.
    let seen = unsafe { SharedRegion::from_raw(at, 8) };
    let stop = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| serve(&fill, &stop));
        assert_eq!(seen.load_u64(0), Ok(7));
        assert_eq!(region.load_u64(7 * page_size()), Ok(7));
        region.store_u64(7 * page_size(), 99).expect("there");
        assert_eq!(seen.load_u64(0), Ok(99));
        fill.clear().expect("cleared");
        assert_eq!(seen.load_u64(0), Ok(7));
        stop.store(true, Ordering::Relaxed);
    });
    drop(space);
    fill.fill(1, b"").expect_err("inside a page");
    fill.fill(PAGES * page_size(), b"").expect_err("behind the end");
}

#[test]
fn nobody_waits_for_a_filler_that_is_gone() {
    let (region, fill) = region();
    thread::scope(|threads| {
        let reader = threads.spawn(|| region.load_u64(0));
        let since = Instant::now();
        while fill.next().is_none() {
            assert!(since.elapsed() < Duration::from_secs(10), "nobody waits");
            thread::yield_now();
        }
        assert!(!reader.is_finished());
        drop(fill);
        assert_eq!(reader.join().expect("read"), Ok(0));
    });
    assert_eq!(region.load_u64(page_size()), Ok(0));
}

/// The region at an address of its own, read-only, as code that has only addresses sees it.
fn mapped_again(region: &SharedRegion, space: &mut Reservation) -> SharedRegion {
    space.map_region(1 << 20, region, 0..region.len(), Rights::ReadOnly).expect("mapped");
    // SAFETY: mapped as long as `space` lives, and nobody has a reference to it.
    unsafe { SharedRegion::from_raw(space.base().as_ptr().add(1 << 20), region.len()) }
}

fn wait_for_fault(fill: &LazyFill) -> usize {
    let since = Instant::now();
    loop {
        assert!(since.elapsed() < Duration::from_secs(10), "nobody waits");
        if let Some(offset) = fill.next() {
            return offset;
        }
        thread::yield_now();
    }
}

// Accesses that sanitizers can check end the process at a page that is missing.
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, outboard_bytewise))
))]
#[test]
fn a_page_that_failed_is_no_zero_page() {
    let (region, fill) = region();
    let mut space = Reservation::new(1 << 30).expect("addresses");
    let seen = mapped_again(&region, &mut space);
    let mut another = Reservation::new(1 << 30).expect("addresses");
    let (failed, good) = (5 * page_size(), 6 * page_size());
    thread::scope(|threads| {
        let readers = [&region, &seen].map(|way| threads.spawn(move || way.load_u64(failed)));
        assert_eq!((wait_for_fault(&fill), fill.has_failed()), (failed, false));
        fill.fail(failed).expect("few mappings");
        for reader in readers {
            let read = reader.join().expect("read");
            assert!(matches!(read, Err(MemError::Missing { .. })), "{read:?}");
        }
        // A later fill does not make it valid, and its neighbours are not touched.
        fill.fill(failed, &bytes_of(failed)).expect("filled");
        fill.fill(good, &bytes_of(good)).expect("filled");
        assert!(matches!(seen.load_u64(failed), Err(MemError::Missing { .. })));
        assert_eq!((seen.load_u64(good), region.load_u64(good)), (Ok(6), Ok(6)));
        // Nor does a mapping that is made afterwards.
        let late = mapped_again(&region, &mut another);
        assert!(matches!(late.load_u64(failed), Err(MemError::Missing { .. })));
        assert!(fill.has_failed());

        fill.drop_pages(failed..good).expect("dropped");
        assert!(!fill.has_failed());
        let again = threads.spawn(move || late.load_u64(failed));
        assert_eq!(wait_for_fault(&fill), failed);
        fill.fill(failed, &bytes_of(failed)).expect("filled");
        assert_eq!(again.join().expect("read"), Ok(5));
        assert_eq!((seen.load_u64(failed), region.load_u64(failed)), (Ok(5), Ok(5)));
        assert!(matches!(seen.store_u64(failed, 1), Err(MemError::Missing { .. })), "read-only");
        region.store_u64(failed, 1).expect("writable as before");
    });
    fill.fail(1).expect_err("inside a page");
    fill.fail(PAGES * page_size()).expect_err("behind the end");
}

#[test]
fn only_pages_that_were_dropped_come_again() {
    let (region, fill) = region();
    let page = page_size();
    (0..4).for_each(|at| fill.fill(at * page, &bytes_of(at * page)).expect("filled"));
    fill.drop_pages(page..3 * page).expect("dropped");
    for refused in [1..page, 0..page + 1, 0..(PAGES + 1) * page] {
        fill.drop_pages(refused.clone()).expect_err("no whole pages of it");
    }
    fill.drop_pages(page..page).expect("none");
    assert_eq!((region.load_u64(0), region.load_u64(3 * page)), (Ok(0), Ok(3)));
    thread::scope(|threads| {
        let reader = threads.spawn(|| region.load_u64(2 * page));
        assert_eq!(wait_for_fault(&fill), 2 * page);
        fill.fill(2 * page, &22_u64.to_ne_bytes()).expect("filled");
        assert_eq!(reader.join().expect("read"), Ok(22));
    });
    assert_eq!(region.load_u64(2 * page + 8), Ok(0), "zero bytes behind what was given");
}

#[test]
fn a_mapping_that_is_made_after_the_filler_has_gone_does_not_wait() {
    let (region, fill) = region();
    assert_eq!(region.fill_lazily().expect_err("one only"), MemError::Filled);
    fill.fill(0, &7_u64.to_ne_bytes()).expect("filled");
    drop(fill);
    let mut space = Reservation::new(1 << 30).expect("addresses");
    let seen = mapped_again(&region, &mut space);
    let (told, answer) = std::sync::mpsc::channel();
    thread::spawn({
        let page = page_size();
        move || {
            let _told = told.send((seen.load_u64(0), seen.load_u64(page)));
            drop(space);
        }
    });
    let read = answer.recv_timeout(Duration::from_secs(10)).expect("it waits for nobody");
    assert_eq!(read, (Ok(7), Ok(0)));
    assert_eq!(region.fill_lazily().expect_err("once only"), MemError::Filled);
}
