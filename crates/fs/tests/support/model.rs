//! A tree of a model beside that of mounts: random changes of both, which must come to the same.

use rustix::fs::{CWD, RenameFlags, XattrFlags, getxattr, renameat_with, setxattr};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

/// Numbers that are the same in each run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap_or_default() % most
    }
}

/// A tree of a model: what each name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    File(Vec<u8>, u32),
    Dir,
    Link(String),
}

/// The names of a tree.
pub(crate) type Model = BTreeMap<String, Node>;

/// Does a random thing in a mount, and in the model what must come of it.
pub(crate) fn step(at: &Path, model: &mut Model, random: &mut Random) -> String {
    let name = |random: &mut Random| {
        let number = random.below(4);
        format!("{}/{number}{}", ["d", "e"][random.below(2)], "n".repeat(number * 9))
    };
    let (one, two) = (name(random), name(random));
    let (here, there) = (at.join(&one), at.join(&two));
    let known = model.get(&one).cloned();
    let text = format!("{one} {two}, which is {known:?}, in {at:?}");
    let (what, bytes) = (random.below(7), vec![b'b'; random.below(9000)]);
    let done = match (what, &known) {
        (0, _) => fs::create_dir(&here).map(|()| drop(model.insert(one, Node::Dir))),
        (1, _) => symlink(&two, &here).map(|()| drop(model.insert(one, Node::Link(two)))),
        (2, Some(Node::Dir)) => fs::remove_dir(&here).map(|()| drop(model.remove(&one))),
        (2, _) => fs::remove_file(&here).map(|()| drop(model.remove(&one))),
        (3, Some(node)) => {
            let node = node.clone();
            let renamed = renameat_with(CWD, &here, CWD, &there, RenameFlags::NOREPLACE);
            renamed.map_err(Into::into).map(|()| {
                model.remove(&one);
                model.insert(two, node);
            })
        }
        (4, Some(Node::File(bytes, _))) => {
            let mode = [0o600, 0o640, 0o755][random.below(3)];
            let node = Node::File(bytes.clone(), mode);
            let set = fs::set_permissions(&here, PermissionsExt::from_mode(mode));
            setxattr(&here, "user.mode", format!("{mode}").as_bytes(), XattrFlags::empty())
                .expect("set");
            set.map(|()| drop(model.insert(one, node)))
        }
        (_, None | Some(Node::File(..))) => {
            let mode = match &known {
                Some(Node::File(_, mode)) => *mode,
                _ => 0o644,
            };
            let written = File::create(&here).and_then(|mut file| file.write_all(&bytes));
            written.map(|()| drop(model.insert(one, Node::File(bytes, mode))))
        }
        _ => return text,
    };
    if let Err(error) = done {
        let told = [ErrorKind::AlreadyExists, ErrorKind::NotFound];
        assert!(told.contains(&error.kind()), "{what}: {text}: {error}");
        assert_eq!(error.kind() == ErrorKind::NotFound, known.is_none() && what == 2, "{text}");
    }
    text
}

/// A mount shows what the model has.
pub(crate) fn is_shown(at: &Path, model: &Model, text: &str) {
    for dir in ["d", "e"] {
        let mut shown: Vec<String> = fs::read_dir(at.join(dir))
            .expect("a directory")
            .map(|entry| {
                format!("{dir}/{}", entry.expect("a name").file_name().to_str().expect("text"))
            })
            .collect();
        shown.sort();
        let names = model.keys().filter(|name| name.starts_with(dir)).cloned();
        assert_eq!(shown, names.collect::<Vec<_>>(), "after: {text}; in {at:?}");
        for number in 0..4 {
            let name = format!("{dir}/{number}{}", "n".repeat(number * 9));
            let path = at.join(&name);
            let shown = fs::symlink_metadata(&path);
            match model.get(&name) {
                None => assert_eq!(
                    shown.map(drop).map_err(|error| error.kind()),
                    Err(ErrorKind::NotFound),
                    "after: {text}; {path:?}"
                ),
                Some(Node::Dir) => assert!(shown.expect(text).is_dir(), "{text}"),
                Some(Node::Link(target)) => {
                    let shown = fs::read_link(&path).expect(text);
                    assert_eq!(shown.to_str(), Some(&target[..]), "after: {text}");
                }
                Some(Node::File(bytes, mode)) => {
                    let shown = shown.expect(text);
                    let told = (shown.len(), shown.mode() & 0o7777);
                    assert_eq!(told, (bytes.len() as u64, *mode), "after: {text}; {path:?}");
                    assert_eq!(fs::read(&path).expect(text), *bytes, "after: {text}");
                    if *mode != 0o644 {
                        let mut value = [0; 16];
                        let len = getxattr(&path, "user.mode", &mut value).expect(text);
                        assert_eq!(value[..len], *format!("{mode}").as_bytes(), "after: {text}");
                    }
                }
            }
        }
    }
}
