//! Files that changed while their attributes did not. Kernels with fine time stamps never show
//! that, so these tests set the recorded state of a file as they need it.

use super::rig::{Rig, bytes};
use crate::fsys::FileStamp;
use crate::path::Path;
use crate::record::FileNode;
use crate::watch::{Hint, Notices};
use std::fs;

impl Rig {
    fn root(&self) -> Path {
        bytes(&self.path("")).into()
    }

    /// The version of a file in the root, as recorded by the client.
    fn known(&self, name: &str) -> u64 {
        let node = self.export.known.node(&self.root(), name.as_bytes());
        let Some(FileNode::File(attr)) = node else { panic!("{node:?}") };
        attr.version
    }

    /// Sets the recorded stamp of a file to its present one.
    fn disguise(&mut self, name: &str) {
        let file = fs::File::open(self.path(name)).unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        let inode = self.export.known.inodes.get_mut(&(stat.st_dev, stat.st_ino)).unwrap();
        inode.stamp = FileStamp::of(&stat);
        let node =
            FileNode::File(crate::Attr { version: inode.version, ..crate::fsys::attr_of(&stat) });
        let root = self.root();
        self.export.known.set(&root, name.as_bytes(), Some(node));
    }
}

#[test]
fn nothing_is_opened_through_a_link() {
    use rustix::fd::AsFd;
    let rig = Rig::new();
    fs::create_dir(rig.path("real")).unwrap();
    rig.write("real/x", "1");
    std::os::unix::fs::symlink("real", rig.path("link")).unwrap();
    std::os::unix::fs::symlink("real/x", rig.path("x")).unwrap();
    let dir = crate::fsys::open_path(&rig.root()).unwrap();
    let flags = rustix::fs::OFlags::RDONLY;
    let open = |path: &str| crate::fsys::open_beneath(dir.as_fd(), path.as_bytes(), flags).is_ok();
    assert!(open("real/x") && open(""));
    for path in ["link/x", "x", "../x", "/", "real/../real/x/.."] {
        assert!(!open(path), "{path}");
    }
    assert!(crate::fsys::open_path(bytes(&rig.path("link/."))).is_err());
}

#[test]
fn a_notice_is_enough_for_a_new_version() {
    let mut rig = Rig::new();
    rig.write("x", "1");
    let before = rig.version("", "x");
    rig.submit();
    assert_eq!(rig.version("", "x"), before);
    drop(fs::OpenOptions::new().write(true).open(rig.path("x")).unwrap());
    rig.submit();
    assert_ne!(rig.version("", "x"), before, "it may have been written");
}

#[test]
fn what_is_young_is_hashed_again() {
    let young = || {
        let mut rig = Rig::unwatched();
        rig.write("x", "1");
        assert_eq!(rig.read("", "x"), b"1");
        (rig.export.racy.len() == 1).then_some(rig)
    };
    // If the machine stalls between a write and its look, nothing is young any more.
    let mut rig = (0..100).find_map(|_| young()).expect("it is read at once");
    rig.write("x", "2");
    rig.disguise("x");
    rig.submit();
    assert_eq!(rig.read("", "x"), b"2");
    std::thread::sleep(std::time::Duration::from_millis(30));
    rig.submit();
    assert!(rig.export.racy.is_empty(), "it is old enough");
}

#[test]
fn an_inode_that_another_file_gets_is_another_file() {
    let mut rig = Rig::new();
    rig.write("z", "1");
    let before = rig.version("", "z");
    fs::rename(rig.path("z"), rig.path("a")).unwrap();
    rig.disguise("a");
    let root = rig.root();
    rig.export.known.set(&root, b"a", None);
    rig.submit();
    assert_ne!(rig.known("a"), before);
}

#[test]
fn all_names_of_a_file_have_its_version() {
    let mut rig = Rig::unwatched();
    rig.write("x", "1");
    fs::hard_link(rig.path("x"), rig.path("y")).unwrap();
    let before = rig.version("", "x");
    assert_eq!(rig.version("", "y"), before);
    let root = rig.root();
    rig.export.look_once(&root, b"x", Hint { touched: true, ..Hint::default() });
    assert_ne!(rig.known("x"), before);
    assert_eq!(rig.known("x"), rig.known("y"));
}

#[test]
fn what_the_kernel_lost_is_forgotten() {
    let mut rig = Rig::new();
    rig.write("x", "1");
    assert_eq!(rig.read("", "x"), b"1");
    let before = rig.export.submit();
    rig.export.apply(Notices { overflow: true, ..Notices::default() });
    let (after, changes) = rig.submit();
    assert!(after.epoch > before.epoch && rig.replica.has_reached(before));
    assert_eq!(changes[0], crate::Change::Everything);
    assert!(matches!(rig.look_up("", "x"), crate::LookUp::Unknown(_)));
    assert_eq!(rig.read("", "x"), b"1");
}
