//! Random operations on files, and random look-ups: after a submission the server's state is true.

use super::rig::{Rig, bytes, directory};
use crate::{FileNode, Listing};
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Paths of files: few, so that operations interact.
const DIRS: [&str; 3] = ["", "a", "a/b"];
const NAMES: [&str; 4] = ["a", "b", "x", "y"];

type Place = (usize, usize);

#[derive(Clone, Debug)]
enum Op {
    Write { at: Place, len: usize, fill: u8 },
    Overwrite { at: Place, fill: u8 },
    Truncate { at: Place },
    Replace { at: Place, len: usize, fill: u8 },
    MakeDirectory { at: Place },
    Rename { from: Place, to: Place },
    Remove { at: Place },
    Symlink { at: Place, to: usize },
    Link { at: Place },
    LinkInside { from: Place, to: Place },
    WriteLinked { which: usize, fill: u8 },
    Mode { at: Place },
    Find { at: Place },
    Read { at: Place },
    NoteWritten { at: Place },
    Submit,
}

fn place() -> impl Strategy<Value = Place> + Clone {
    (0..DIRS.len(), 0..NAMES.len())
}

fn op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![0..16_usize, 0..200_000_usize];
    let write = (place(), len, any::<u8>());
    let linked = (any::<usize>(), any::<u8>());
    prop_oneof![
        4 => write.clone().prop_map(|(at, len, fill)| Op::Write { at, len, fill }),
        3 => (place(), any::<u8>()).prop_map(|(at, fill)| Op::Overwrite { at, fill }),
        1 => place().prop_map(|at| Op::Truncate { at }),
        2 => write.prop_map(|(at, len, fill)| Op::Replace { at, len, fill }),
        4 => place().prop_map(|at| Op::MakeDirectory { at }),
        5 => (place(), place()).prop_map(|(from, to)| Op::Rename { from, to }),
        1 => place().prop_map(|at| Op::Remove { at }),
        1 => (place(), 0..NAMES.len()).prop_map(|(at, to)| Op::Symlink { at, to }),
        3 => place().prop_map(|at| Op::Link { at }),
        1 => (place(), place()).prop_map(|(from, to)| Op::LinkInside { from, to }),
        3 => linked.prop_map(|(which, fill)| Op::WriteLinked { which, fill }),
        1 => place().prop_map(|at| Op::Mode { at }),
        6 => place().prop_map(|at| Op::Find { at }),
        8 => place().prop_map(|at| Op::Read { at }),
        1 => place().prop_map(|at| Op::NoteWritten { at }),
        5 => Just(Op::Submit),
    ]
}

struct Model {
    rig: Rig,
    /// Other names of files, outside the root.
    outside: TempDir,
    links: usize,
}

impl Model {
    fn path(&self, (dir, name): Place) -> PathBuf {
        self.rig.path(DIRS[dir]).join(NAMES[name])
    }

    /// Operations on something absent or of another type simply fail.
    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Write { at, len, fill } => drop(fs::write(self.path(at), vec![fill; len])),
            Op::Overwrite { at, fill } => overwrite(&self.path(at), fill),
            Op::Truncate { at } => {
                let file = fs::OpenOptions::new().write(true).open(self.path(at));
                drop(file.and_then(|file| file.set_len(1)));
            }
            Op::Replace { at, len, fill } => {
                let hidden = self.rig.path("").join(".hidden");
                fs::write(&hidden, vec![fill; len]).unwrap();
                drop(fs::rename(hidden, self.path(at)));
            }
            Op::MakeDirectory { at } => drop(fs::create_dir(self.path(at))),
            Op::Rename { from, to } => drop(fs::rename(self.path(from), self.path(to))),
            Op::Remove { at } => {
                drop(fs::remove_file(self.path(at)));
                drop(fs::remove_dir_all(self.path(at)));
            }
            Op::Symlink { at, to } => drop(symlink(NAMES[to], self.path(at))),
            Op::LinkInside { from, to } => {
                self.submit();
                self.read(from);
                drop(fs::hard_link(self.path(from), self.path(to)));
            }
            Op::Mode { at } => {
                use std::os::unix::fs::PermissionsExt;
                let file = self.path(at);
                if fs::symlink_metadata(&file).is_ok_and(|meta| meta.is_file()) {
                    drop(fs::set_permissions(file, fs::Permissions::from_mode(0o700)));
                }
            }
            Op::Link { at } => self.link(at),
            Op::WriteLinked { which, fill } => {
                let name = (which % (self.links + 1)).to_string();
                overwrite(&self.outside.path().join(name), fill);
            }
            Op::Find { at } => drop(self.find(at)),
            Op::Read { at } => self.read(at),
            Op::NoteWritten { at } => {
                let path = self.path(at);
                self.rig.export.note_written(&path);
            }
            Op::Submit => self.submit(),
        }
    }

    fn find(&mut self, (dir, name): Place) -> Option<FileNode> {
        let path = self.rig.path("");
        self.rig.read_log();
        let mut at = path;
        for component in DIRS[dir].split('/').filter(|component| !component.is_empty()) {
            match self.rig.find_at(&at, component.as_bytes()) {
                crate::LookUp::Directory(_) => at.push(component),
                _ => return None,
            }
        }
        match self.rig.find_at(&at, NAMES[name].as_bytes()) {
            crate::LookUp::File(attr) => Some(FileNode::File(attr)),
            _ => None,
        }
    }

    fn read(&mut self, at: Place) {
        let path = self.path(at);
        if self.find(at).is_some() {
            self.rig.submit();
        }
        if self.find(at).is_some() {
            assert_eq!(self.rig.read_at(&path), fs::read(&path).unwrap());
        }
    }

    /// A hard link made later, to a file that was only listed: no watch reports it.
    fn link(&mut self, at: Place) {
        self.submit();
        self.read(at);
        self.links += 1;
        let other = self.outside.path().join(self.links.to_string());
        let path = self.path(at);
        if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file()) {
            drop(fs::hard_link(path, other));
        }
    }

    fn submit(&mut self) {
        self.rig.submit();
        let root = self.rig.path("");
        self.check(&root);
    }

    /// Checks that everything that the server knows is true.
    fn check(&self, dir: &Path) {
        let Listing::Names(known) = self.rig.replica.list(bytes(dir)) else { return };
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.filter(|name| name != ".hidden").collect();
        names.sort();
        let found: Vec<_> = known.iter().map(|(name, _)| &**name).collect();
        let expected: Vec<_> = names.iter().map(|name| bytes(name.as_ref())).collect();
        assert_eq!(found, expected, "names in {}", dir.display());
        for (name, (_, node)) in names.iter().zip(&known) {
            self.check_node(&dir.join(name), node);
        }
    }

    fn check_node(&self, path: &Path, node: &FileNode) {
        let meta = fs::symlink_metadata(path).unwrap();
        let attr = node.attr().unwrap();
        let shown = path.display();
        assert_eq!(
            (attr.dev, attr.ino, attr.mode),
            (meta.dev(), meta.ino(), meta.mode()),
            "{shown}"
        );
        match node {
            FileNode::Directory(_) => self.check(path),
            FileNode::Symlink { target, .. } => {
                assert_eq!(&**target, bytes(&fs::read_link(path).unwrap()), "{shown}");
            }
            _ => {
                let time = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
                assert_eq!((attr.size, attr.mtime_ns), (meta.size(), time), "{shown}");
                let contents = self.rig.replica.contents(attr.dev, attr.ino, attr.version);
                if let Some(bytes) = contents.and_then(|contents| self.rig.fetch(&contents)) {
                    assert!(bytes == fs::read(path).unwrap(), "old contents of {shown}");
                }
            }
        }
    }
}

/// Overwrites a file in place, without changing its length.
fn overwrite(path: &Path, fill: u8) {
    use std::os::unix::fs::FileExt;
    if let Ok(file) = fs::OpenOptions::new().write(true).open(path) {
        drop(file.write_all_at(&[fill], 0));
    }
}

fn run(rig: Rig, ops: &[Op]) {
    let mut model = Model { rig, outside: directory(), links: 0 };
    for dir in DIRS {
        fs::create_dir_all(model.rig.path(dir)).unwrap();
        fs::write(model.rig.path(dir).join("x"), "x").unwrap();
    }
    ops.iter().for_each(|op| model.apply(op));
    model.submit();
}

fn cases() -> u32 {
    if std::env::var_os("OUTBOARD_FULL").is_some() { 2_000 } else { 150 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_server_knows_nothing_that_is_not_so(ops in prop::collection::vec(op(), 1..80)) {
        run(Rig::new(), &ops);
    }

    #[test]
    fn nor_does_a_server_whose_client_cannot_watch(ops in prop::collection::vec(op(), 1..80)) {
        run(Rig::unwatched(), &ops);
    }
}
