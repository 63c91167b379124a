//! Views without a kernel: a client whose every name is a file.

use super::super::places::Places;
use super::super::source::Done;
use super::*;

struct Everything;

impl Source for Everything {
    fn look_up(&self, dir: &[u8], _name: &[u8]) -> Found {
        let attr = Attr { ino: 7, mode: 0o644, size: 3, ..SYNTHETIC };
        if dir == b"/" { Found::Directory { attr } } else { Found::File { attr, version: 1 } }
    }

    fn list(&self, _dir: &[u8]) -> Listing {
        Listing::Outside
    }

    fn ask(&self, _ask: Ask, _done: Done) {}

    fn contents(&self, _node: &NodeId) -> Option<Contents> {
        None
    }
}

fn core() -> Core {
    let limits = Limits { slots: 2, quota: 1 << 30, uid: 1, gid: 1 };
    let pins = vec![(b"/usr/bin/gcc".to_vec(), Pin::File)];
    let core = Core::new(Arc::new(Everything), Pins::new(pins, Vec::new()), limits);
    core.lock().slots.iter_mut().for_each(|slot| slot.start(Places::default()));
    core
}

/// The number of a path in a slot, looked up by a thread.
fn number(core: &Core, slot: SlotId, path: &[u8], pid: u32) -> u64 {
    let slot = slot.to_string();
    let names = path.split(|octet| *octet == b'/').filter(|name| !name.is_empty());
    [slot.as_bytes()].into_iter().chain(names).fold(TOP, |parent, name| {
        match core.look_up(parent, name, pid) {
            Step::Done(Ok(Some((number, _)))) => number,
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
