//! Regions that are backed by memfds and by files: how they are made, handed to another process,
//! mapped a second time, and what happens when pages are taken away.

#![allow(unexpected_cfgs)] // `outboard_bytewise`: see the crate

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use libc::c_int;
use outboard_mem::{MemError, Rights, SecondMapping, SharedRegion, Space};

const PAGE: usize = 4096;

/// A file on a disk, of `len` bytes, without a name.
fn file_of(len: u64) -> File {
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: the path is a string with its end, and the descriptor has no other owner.
    let file = unsafe {
        let fd = libc::open(c"/tmp".as_ptr(), flags, 0o600);
        assert!(fd >= 0, "a file in /tmp: {}", std::io::Error::last_os_error());
        File::from_raw_fd(fd)
    };
    file.set_len(len).expect("a length");
    file
}

/// A memfd of 100 bytes with these seals.
fn memfd_with(seals: c_int) -> OwnedFd {
    // SAFETY: the name is a string with its end, and the descriptor has no other owner.
    unsafe {
        let fd = libc::memfd_create(c"test".as_ptr(), libc::MFD_ALLOW_SEALING);
        assert!(fd >= 0 && libc::ftruncate(fd, 100) == 0);
        assert_eq!(libc::fcntl(fd, libc::F_ADD_SEALS, seals), 0);
        OwnedFd::from_raw_fd(fd)
    }
}

#[test]
fn a_memfd_keeps_its_length() {
    for space in [Space::Reserved, Space::OnDemand] {
        let region = SharedRegion::memfd(c"test", 5000, space).expect("memory");
        assert_eq!((region.len(), region.addr() % PAGE), (5000, 0));
        assert_eq!(region.snapshot(0..5000), Ok(vec![0; 5000]));
        let file = File::from(region.descriptor().expect("a descriptor"));
        for len in [0, 4999, 5001] {
            let refused = file.set_len(len).expect_err("sealed").raw_os_error();
            assert_eq!(refused, Some(libc::EPERM));
        }
    }
}

#[test]
fn a_reserved_memfd_has_its_memory_from_the_start() {
    let blocks = |space| {
        use std::os::unix::fs::MetadataExt;
        let region = SharedRegion::memfd(c"test", 64 * PAGE, space).expect("memory");
        File::from(region.descriptor().expect("a descriptor")).metadata().expect("stat").blocks()
    };
    assert_eq!((blocks(Space::Reserved), blocks(Space::OnDemand)), (64 * 8, 0));
}

#[test]
fn an_impossible_memfd_is_this_machines_error() {
    let len = usize::MAX;
    let error = SharedRegion::memfd(c"test", len, Space::OnDemand).expect_err("too much");
    assert_eq!(error, MemError::Map { len, errno: libc::ENOMEM });
}

/// Under a resource limit, because the kernel allocates page by page: without the limit it would
/// kill other processes of the machine before the allocation fails.
#[test]
fn more_than_the_machines_memory_is_refused_before_any_is_reserved() {
    let ended = child(|| {
        let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
        // SAFETY: the kernel reads one structure; a signal that is ignored runs no handler.
        let is_limited = unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) == 0
        };
        if !is_limited {
            return 1;
        }
        let expected = MemError::Reserve { len: 1 << 60, errno: libc::ENOMEM };
        let refused = SharedRegion::memfd(c"test", 1 << 60, Space::Reserved).err();
        c_int::from(refused != Some(expected)) * 2
    })();
    assert_eq!(ended, 0);
}

#[test]
fn a_memfd_of_no_bytes() {
    let region = SharedRegion::memfd(c"test", 0, Space::Reserved).expect("nothing");
    let again = SharedRegion::from_memfd(region.descriptor().expect("a descriptor"));
    assert!(region.is_empty() && again.expect("sealed").is_empty());
}

#[test]
fn only_a_memfd_of_fixed_length_that_can_be_written_is_taken() {
    let (shrink, grow, write) = (libc::F_SEAL_SHRINK, libc::F_SEAL_GROW, libc::F_SEAL_WRITE);
    let future = shrink | grow | libc::F_SEAL_FUTURE_WRITE;
    for seals in [0, shrink, grow, shrink | grow | write, future] {
        let error = SharedRegion::from_memfd(memfd_with(seals)).expect_err("refused");
        assert_eq!(error, MemError::Seals { found: Some(seals) });
        let text = error.to_string();
        assert!(text.contains(&format!("{seals:#x}")) && text.contains("F_SEAL_SHRINK"), "{text}");
    }
    // A file of a tmpfs has seals too; /tmp may be one.
    let error = SharedRegion::from_memfd(file_of(100)).expect_err("refused");
    assert!(matches!(error, MemError::Seals { .. }), "{error}");
    let region = SharedRegion::from_memfd(memfd_with(shrink | grow)).expect("sealed");
    assert_eq!(region.len(), 100);
}

#[test]
fn regions_of_one_memfd_have_the_same_bytes() {
    let one = SharedRegion::memfd(c"test", 5000, Space::OnDemand).expect("memory");
    let other = SharedRegion::from_memfd(one.descriptor().expect("a descriptor")).expect("sealed");
    one.copy_in(4998, b"ab").expect("in range");
    assert_eq!(other.snapshot(4998..5000).as_deref(), Ok(&b"ab"[..]));
    assert!(!one.is_same(&other) && one.is_sole());
    drop(one);
    assert_eq!(other.snapshot(4998..5000).as_deref(), Ok(&b"ab"[..]));
}

/// Starts a child process that runs `work`. The result waits for its end, and returns its exit
/// status, or minus the signal that ended it.
fn child(work: impl FnOnce() -> c_int) -> impl FnOnce() -> c_int {
    // SAFETY: the child ends without calling the test harness.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: takes no pointer.
        unsafe {
            libc::alarm(20);
            libc::_exit(work());
        }
    }
    move || {
        let mut status = -1;
        // SAFETY: the kernel writes one local number.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        if libc::WIFSIGNALED(status) { -libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
    }
}

#[test]
fn two_processes_count_in_one_memfd() {
    const EACH: u64 = 20_000;
    let region = SharedRegion::memfd(c"test", 64, Space::Reserved).expect("memory");
    let add = |region: &SharedRegion, step: u64| {
        (0..EACH).all(|_| region.fetch_update_u64(8, |old| old.wrapping_add(step)).is_ok())
    };
    let ended = child(|| {
        // A mapping of its own, as a process that was handed the descriptor has.
        let Ok(memfd) = region.descriptor() else { return 2 };
        let Ok(own) = SharedRegion::from_memfd(memfd) else { return 3 };
        c_int::from(!add(&own, 1 << 32))
    });
    assert!(add(&region, 1));
    assert_eq!(ended(), 0);
    assert_eq!(region.load_u64(8), Ok(EACH << 32 | EACH));
}

#[test]
fn a_file_is_written_through_its_region() {
    use std::os::unix::fs::FileExt;
    let file = file_of(3 * PAGE as u64);
    let (start, end) = (PAGE as u64, 2 * PAGE as u64 + 100);
    let region = SharedRegion::map_file(&file, start..end, Space::OnDemand).expect("mapped");
    assert_eq!(region.len(), PAGE + 100);
    region.copy_in(PAGE + 98, b"ab").expect("in range");
    assert!(region.copy_in(PAGE + 99, b"ab").is_err());
    let mut found = [0; 2];
    file.read_exact_at(&mut found, end - 2).expect("read");
    assert_eq!(&found, b"ab");
    file.write_all_at(b"c", start).expect("written");
    assert_eq!(region.snapshot(0..1).as_deref(), Ok(&b"c"[..]));
}

#[test]
fn reserving_lengthens_a_file_and_fills_its_holes() {
    use std::os::unix::fs::MetadataExt;
    let file = file_of(10);
    let region = SharedRegion::map_file(&file, 0..100_000, Space::Reserved).expect("space");
    let found = file.metadata().expect("stat");
    assert_eq!((region.len(), found.len()), (100_000, 100_000));
    assert!(found.blocks() * 512 >= 100_000, "{} blocks", found.blocks());
}

#[test]
fn what_is_not_there_is_not_mapped() {
    let file = file_of(5000);
    let map = |range| SharedRegion::map_file(&file, range, Space::OnDemand).map(|_| ());
    assert_eq!(map(0..5000), Ok(()));
    assert_eq!(map(4096..4096), Ok(()));
    #[allow(clippy::reversed_empty_ranges)] // that is what is tested
    for range in [0..5001, 0..u64::MAX, 8192..8192, 4096..0, u64::MAX..u64::MAX] {
        let error = MemError::FileRange { start: range.start, end: range.end, size: 5000 };
        assert_eq!(map(range), Err(error));
    }
    let page = PAGE;
    assert_eq!(map(1..2), Err(MemError::Pages { addr: 0, offset: 1, len: 1, page }));
    let directory = File::open("/tmp").expect("opened");
    let error = SharedRegion::map_file(directory, 0..1, Space::OnDemand).expect_err("refused");
    assert_eq!(error, MemError::NotRegular);
    let zero = File::open("/dev/zero").expect("opened");
    assert!(SharedRegion::map_file(zero, 0..1, Space::OnDemand).is_err());
    let own = File::open("/proc/self/exe").expect("opened");
    let error = SharedRegion::map_file(own, 0..1, Space::OnDemand).expect_err("read-only");
    assert_eq!(error, MemError::Map { len: 1, errno: libc::EACCES });
}

/// Where an access to missing memory fails rather than ending the process.
const FAULTS_FAIL: bool =
    cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) && !cfg!(outboard_bytewise);

#[test]
fn a_file_that_is_shortened_makes_accesses_fail() {
    if !FAULTS_FAIL {
        println!("skipped: an access to missing memory ends the process here");
        return;
    }
    let file = file_of(4 * PAGE as u64);
    let region = SharedRegion::map_file(&file, 0..4 * PAGE as u64, Space::Reserved).expect("space");
    region.copy_in(2 * PAGE, &[1; PAGE]).expect("in range");
    file.set_len(2 * PAGE as u64).expect("nothing forbids it");
    let missing = |at, len| MemError::Missing { addr: region.addr() + at, len };
    let mut into = [0; 10];
    assert_eq!(region.copy_out(2 * PAGE - 5, &mut into), Err(missing(2 * PAGE - 5, 10)));
    assert_eq!(region.copy_in(3 * PAGE, &[1; 100]), Err(missing(3 * PAGE, 100)));
    assert_eq!(region.fetch_update_u64(2 * PAGE, |old| old + 1), Err(missing(2 * PAGE, 8)));
    assert_eq!(region.copy_in(2 * PAGE - 5, &[1; 5]), Ok(()));
    file.set_len(4 * PAGE as u64).expect("as it was");
    assert_eq!(region.load_u64(2 * PAGE), Ok(0), "the pages are back, and empty");
}

/// Makes this process, which has one thread, root in a namespace with a file system of 64 KiB at
/// /tmp; false where that is not allowed.
fn with_small_tmp() -> bool {
    let (none, kind, data) = (c"none".as_ptr(), c"tmpfs".as_ptr(), c"size=65536".as_ptr());
    // SAFETY: strings with their ends; what changes is this process's alone.
    unsafe {
        let is_root = libc::geteuid() == 0;
        let spaces = libc::CLONE_NEWNS | if is_root { 0 } else { libc::CLONE_NEWUSER };
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let no_data = std::ptr::null();
        libc::unshare(spaces) == 0
            && libc::mount(none, c"/".as_ptr(), none, private, no_data) == 0
            && libc::mount(none, c"/tmp".as_ptr(), kind, 0, data.cast()) == 0
    }
}

#[test]
fn a_full_file_system_is_an_error_and_no_signal() {
    const SKIPPED: c_int = 77;
    let ended = child(|| {
        if !with_small_tmp() {
            return SKIPPED;
        }
        let file = file_of(0);
        let map = |len, space| SharedRegion::map_file(&file, 0..len, space);
        let expected = MemError::Reserve { len: 1 << 20, errno: libc::ENOSPC };
        if map(1 << 20, Space::Reserved).err() != Some(expected) {
            return 1;
        }
        // Without a reservation it is the access that fails.
        if file.set_len(1 << 20).is_err() {
            return 2;
        }
        let Ok(region) = map(1 << 20, Space::OnDemand) else { return 3 };
        let outcome = (0..1 << 20).step_by(PAGE).try_for_each(|at| region.copy_in(at, &[1]));
        c_int::from(FAULTS_FAIL && !matches!(outcome, Err(MemError::Missing { .. }))) * 4
    })();
    if ended == SKIPPED {
        println!("skipped: mounting a small file system needs root or a user namespace");
    } else {
        assert_eq!(ended, 0);
    }
}

/// Addresses of the test's own, without access.
struct Reservation(NonNull<u8>);

impl Reservation {
    const LEN: usize = 8 * PAGE;

    fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), Self::LEN, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Self(NonNull::new(start.cast()).expect("an address"))
    }

    fn page(&self, number: usize) -> NonNull<u8> {
        assert!(number * PAGE < Self::LEN);
        // SAFETY: inside the reservation.
        unsafe { self.0.add(number * PAGE) }
    }

    /// Its bytes as a region, which tells pages without access.
    fn region(&self) -> SharedRegion {
        // SAFETY: the reservation outlives the region, and only regions reach its bytes.
        unsafe { SharedRegion::from_raw(self.0.as_ptr(), Self::LEN) }
    }

    fn map(
        &self,
        page: usize,
        region: &SharedRegion,
        range: std::ops::Range<usize>,
        rights: Rights,
    ) -> Result<SecondMapping, MemError> {
        // SAFETY: the test's own reservation, which stays, and is reached through regions only.
        unsafe { region.map_again_at(self.page(page), range, rights) }
    }

    /// What `/proc/self/maps` says of the rights of a page; `None` for a hole.
    fn rights_of(&self, page: usize) -> Option<String> {
        let at = self.page(page).as_ptr().addr();
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the process's mappings");
        maps.lines().find_map(|line| {
            let (start, rest) = line.split_once('-')?;
            let (end, rest) = rest.split_once(' ')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            (number(start)?..number(end)?).contains(&at).then(|| rest[..4].to_owned())
        })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: our own mapping, whole.
        unsafe { libc::munmap(self.0.as_ptr().cast(), Self::LEN) };
    }
}

#[test]
fn a_second_mapping_has_the_bytes_of_the_first() {
    let (reservation, space) = (Reservation::new(), Space::OnDemand);
    let memfd = SharedRegion::memfd(c"test", 4 * PAGE, space).expect("memory");
    let file = SharedRegion::map_file(file_of(5 * PAGE as u64), 4096..5 * 4096, space);
    for region in [memfd, file.expect("mapped")] {
        let again = reservation.map(1, &region, PAGE..3 * PAGE, Rights::ReadWrite).expect("mapped");
        assert_eq!((again.addr(), again.len()), (reservation.page(1).as_ptr().addr(), 2 * PAGE));
        let seen = reservation.region();
        region.copy_in(2 * PAGE - 3, b"across").expect("in range");
        assert_eq!(seen.snapshot(2 * PAGE - 3..2 * PAGE + 3).as_deref(), Ok(&b"across"[..]));
        seen.store_u64(PAGE, 77).expect("writable");
        assert_eq!(region.load_u64(PAGE), Ok(77));
        assert!(!region.is_sole(), "its pages are reached another way");
        drop(region);
        assert_eq!(seen.load_u64(PAGE), Ok(77), "the second mapping keeps the pages");
    }
}

#[test]
fn a_second_mapping_may_be_for_reading_only() {
    let reservation = Reservation::new();
    let region = SharedRegion::memfd(c"test", PAGE, Space::OnDemand).expect("memory");
    let _again = reservation.map(0, &region, 0..PAGE, Rights::ReadOnly).expect("mapped");
    assert_eq!(reservation.rights_of(0).as_deref(), Some("r--s"));
    region.store_u64(8, 5).expect("the first stays writable");
    assert_eq!(reservation.region().load_u64(8), Ok(5));
    if FAULTS_FAIL {
        assert!(matches!(reservation.region().store_u64(8, 6), Err(MemError::Missing { .. })));
    }
}

#[test]
fn the_end_of_a_second_mapping_leaves_no_hole() {
    let reservation = Reservation::new();
    let region = SharedRegion::memfd(c"test", 3 * PAGE, Space::OnDemand).expect("memory");
    let rights = |page| reservation.rights_of(page).expect("no hole");
    for _ in 0..100 {
        let again = reservation.map(2, &region, 0..3 * PAGE, Rights::ReadWrite).expect("mapped");
        let found: Vec<String> = (0..8).map(rights).collect();
        assert_eq!(found.concat(), ["---p", "---p", "rw-srw-srw-s", "---p---p---p"].concat());
        drop(again);
        assert!((0..8).all(|page| rights(page) == "---p"));
        assert!(region.is_sole());
    }
    region.store_u64(0, 1).expect("the first is still there");
}

#[test]
fn what_cannot_be_mapped_again_changes_nothing() {
    let (reservation, rights) = (Reservation::new(), Rights::ReadWrite);
    let region = SharedRegion::memfd(c"test", 2 * PAGE + 1, Space::OnDemand).expect("memory");
    for range in [0..2 * PAGE + 1, 1..PAGE + 1, 0..0, PAGE..PAGE] {
        let error = reservation.map(0, &region, range.clone(), rights).expect_err("refused");
        assert!(matches!(error, MemError::Pages { page: PAGE, .. }), "{range:?}: {error}");
    }
    let error = reservation.map(0, &region, 0..3 * PAGE, rights).expect_err("refused");
    assert_eq!(error, MemError::OutOfBounds { offset: 0, len: 3 * PAGE, size: 2 * PAGE + 1 });
    // SAFETY: the test's own reservation, one byte into a page of it.
    let error = unsafe { region.map_again_at(reservation.0.add(1), 0..PAGE, rights) };
    assert!(matches!(error, Err(MemError::Pages { .. })));
    let private = SharedRegion::zeroed(PAGE).expect("memory");
    assert_eq!(private.descriptor().err(), Some(MemError::NotShared));
    let error = reservation.map(0, &private, 0..PAGE, rights).expect_err("refused");
    assert_eq!(error, MemError::NotShared);
    assert!((0..8).all(|page| reservation.rights_of(page).as_deref() == Some("---p")));
}

/// Compiles only if the types have none of the ways to a reference to their bytes: with one of
/// them, `Has<_>` would be ambiguous.
#[test]
fn no_reference_to_shared_bytes_can_be_had() {
    trait Has<Way> {
        fn checked() {}
    }
    impl<T: ?Sized> Has<()> for T {}
    impl<T: ?Sized + std::ops::Deref> Has<[(); 1]> for T {}
    impl<T: ?Sized + AsRef<[u8]>> Has<[(); 2]> for T {}
    impl<T: ?Sized + std::borrow::Borrow<[u8]>> Has<[(); 3]> for T {}
    impl<T: ?Sized + std::ops::Index<usize>> Has<[(); 4]> for T {}
    impl<T: ?Sized + std::ops::Index<std::ops::Range<usize>>> Has<[(); 5]> for T {}
    <SharedRegion as Has<_>>::checked();
    <outboard_mem::SharedSlice as Has<_>>::checked();
    <SecondMapping as Has<_>>::checked();
}

#[test]
fn a_descriptor_is_closed_with_its_region() {
    let region = SharedRegion::memfd(c"outboard-closed", PAGE, Space::OnDemand).expect("memory");
    let handed = region.descriptor().expect("a descriptor");
    let open = || {
        let all = std::fs::read_dir("/proc/self/fd").expect("descriptors");
        let names = all.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        names.filter(|name| name.to_string_lossy().contains("outboard-closed")).count()
    };
    assert_eq!(open(), 2, "{}", handed.as_raw_fd());
    drop((region, handed));
    assert_eq!(open(), 0);
}
