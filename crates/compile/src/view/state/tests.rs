//! Views without a kernel. At this client every name is a file.

use super::super::places::Places;
use super::super::slot::CHANGED_MAX;
use super::super::source::FetchDone;
use super::*;

struct Everything;

impl FileSource for Everything {
    fn look_up(&self, dir: &[u8], _name: &[u8]) -> LookUp {
        let attr = Attr { ino: 7, mode: 0o644, size: 3, version: 1, ..SYNTHETIC };
        if dir == b"/" { LookUp::Directory(attr) } else { LookUp::File(attr) }
    }

    fn list(&self, _dir: &[u8]) -> Listing {
        Listing::Outside
    }

    fn fetch(&self, _request: FetchRequest, _done: FetchDone) {}

    fn contents(&self, _file: &FileVersion) -> Option<Arc<[u8]>> {
        None
    }
}

fn core() -> ViewCore {
    let limits = ViewLimits { slots: 2, quota: 1 << 30, uid: 1, gid: 1 };
    let pins = vec![(b"/usr/bin/gcc".to_vec(), PinnedNode::File)];
    let core = ViewCore::new(Arc::new(Everything), Pins::new(pins), limits);
    core.lock().slots.iter_mut().for_each(|slot| slot.start(Places::default()));
    core
}

/// The number of a path in a slot, looked up by a thread.
fn number(core: &ViewCore, slot: SlotId, path: &[u8], pid: u32) -> u64 {
    let slot = slot.to_string();
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    [slot.as_bytes()].into_iter().chain(names).fold(TOP, |parent, name| {
        match core.look_up(parent, name, pid) {
            ViewAnswer::Done(Ok(Some((number, _)))) => number,
            _ => panic!("{path:?}"),
        }
    })
}

#[test]
fn a_thread_that_looks_again_finds_a_copy_and_others_do_not() {
    let core = core();
    let shared = number(&core, 0, b"/p/a", 7);
    assert_eq!(core.copy_for(shared, 7, true).code(), Errno::ESTALE.code());
    assert_eq!(number(&core, 0, b"/p/a", 8), shared);
    assert_ne!(number(&core, 0, b"/p/a", 7), shared);
    assert_eq!(number(&core, 1, b"/p/a", 7), shared, "it has its copy");
}

#[test]
fn a_later_job_does_not_get_what_an_earlier_one_wanted() {
    let core = core();
    let shared = number(&core, 0, b"/p/a", 7);
    assert_eq!(core.copy_for(shared, 7, true).code(), Errno::ESTALE.code());
    for slot in 0..2 {
        core.lock().slots[slot].start(Places::default());
        assert_eq!(number(&core, slot, b"/p/a", 7), shared);
    }
}

#[test]
fn a_job_that_looks_for_too_many_names_beside_pins_is_refused() {
    let core = core();
    let bin = number(&core, 0, b"/usr/bin", 7);
    for name in 0..TOLD_MAX {
        core.look_up(bin, name.to_string().as_bytes(), 7);
    }
    let why = |core: &ViewCore| core.lock().slots[0].refused.clone().map(|refused| refused.why);
    assert_eq!(why(&core), Some(Why::TooMuch), "names in directories above pins count, too");
    assert!(
        matches!(core.look_up(bin, b"0", 7), ViewAnswer::Done(Ok(Some(_)))),
        "the kernel has this name already"
    );
    assert!(core.lock().slots[0].is_told_much(), "all names are dropped before the next job");
    let told = core.lock().inodes.dir(bin).map(|dir| dir.told.len());
    assert!(told < Some(TOLD_MAX), "{told:?}");
}

#[test]
fn a_job_that_changes_too_many_names_is_refused() {
    let core = core();
    let name = |number: usize| format!("n{number}").into_bytes();
    let dir = number(&core, 0, b"/p", 7);
    core.lock().inodes.dir_mut(dir).expect("a directory").attr.mode = 0o755;
    core.create(dir, &name(0), 0o644).expect("a file");
    for number in 1..CHANGED_MAX {
        core.rename((dir, &name(number - 1)), (dir, &name(number))).expect("renamed");
    }
    let cost = core.lock().slots[0].used;
    assert_eq!(cost, CHANGED_MAX as u64 * NAME_COST, "each name is paid for");
    let last = CHANGED_MAX - 1;
    assert!(core.rename((dir, &name(last)), (dir, &name(last + 1))).is_err());
    assert!(core.create(dir, b"other", 0o644).is_err() && core.make_dir(dir, b"d", 0o755).is_err());
    assert!(core.remove(dir, b"a", false).is_err(), "the client's");
    core.remove(dir, &name(last), false).expect("a name that it has changed already");
    assert_eq!(core.lock().slots[0].refused.as_ref().map(|at| at.why), Some(Why::TooMuch));
}

#[test]
fn a_job_makes_no_longer_paths_than_the_kernel_takes() {
    let core = core();
    let mut dir = number(&core, 0, b"/p", 7);
    core.lock().inodes.dir_mut(dir).expect("a directory").attr.mode = 0o755;
    let name = [b'x'; 255];
    for _ in 0..15 {
        dir = core.make_dir(dir, &name, 0o755).expect("a directory").0;
    }
    let made = core.make_dir(dir, &name, 0o755);
    assert_eq!(made.expect_err("it is too long").code(), Errno::ENAMETOOLONG.code());
}
