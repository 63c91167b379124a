//! Many names of a directory by one execution: as if each had been removed by itself, up to the
//! first that cannot be.

use super::*;

/// What a name stood for: the inode, whether it is gone, its names and its holders.
type Removed = (Id, bool, u32, u32);

impl Tree<'_> {
    /// What the directory is then, and what was removed.
    fn unlink_many(
        &mut self,
        dir: Id,
        names: &[&[u8]],
        flags: u32,
    ) -> Result<(Found, Vec<Removed>), i32> {
        let words = [dir.0, dir.1, pair(flags, u32::try_from(names.len()).expect("few"))];
        let name = |name: &&[u8]| {
            [&u16::try_from(name.len()).expect("short").to_le_bytes()[..], name].concat()
        };
        let bytes: Vec<u8> = names.iter().flat_map(name).collect();
        let answer = self.call("unlink_many", &words, &[&bytes])?;
        let removed = |one: &[u8]| {
            let (kind, holds) = (word(one, 24), word(one, 32));
            let nlink = u32::try_from(kind >> 32).expect("32 bits");
            ((word(one, 0), word(one, 8)), low(kind) == 0, nlink, low(holds))
        };
        Ok((Found::new(&answer), answer[272..].chunks_exact(40).map(removed).collect()))
    }
}

#[test]
fn names_are_removed_up_to_the_first_that_cannot_be() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    let empty = tree.stats();
    let dir = tree.make(ROOT, DIRECTORY | 0o1777, b"d", b"").expect("made").id;
    let make = |tree: &mut Tree<'_>, name: &[u8]| {
        tree.make(dir, FILE | 0o600, name, b"").expect("made").id
    };
    let [a, b] = [make(&mut tree, b"a"), make(&mut tree, b"b")];
    tree.link(dir, b, b"b2").expect("linked");
    tree.make(dir, DIRECTORY | 0o700, b"sub", b"").expect("made");
    let held = make(&mut tree, b"held");
    tree.of_inode("hold", held).expect("held");
    tree.sides.set_time(BEGIN_NS + 5);
    let (found, removed) = tree.unlink_many(dir, &[b"a", b"b", b"none", b"held"], 0).expect("some");
    assert_eq!(removed, [(a, true, 0, 0), (b, false, 1, 0)]);
    assert_eq!((found.size, found.mtime_ns), (3, BEGIN_NS + 5));
    let before = tree.get(dir).expect("there");
    let (found, removed) = tree.unlink_many(dir, &[b"sub", b"held"], 0).expect("none");
    assert_eq!((found, removed.len()), (before, 0), "a directory is none of them");
    let (_, removed) = tree.unlink_many(dir, &[b"held", b"b2", b"b2"], HOLD).expect("some");
    assert_eq!(removed, [(held, false, 0, 2), (b, false, 0, 1)]);
    for inode in [held, held, b] {
        tree.of_inode("release", inode).expect("released");
    }
    tree.remove("rmdir", dir, b"sub").expect("empty");
    tree.remove("rmdir", ROOT, b"d").expect("empty");
    assert_eq!(tree.stats(), empty);
}

#[test]
fn who_may_not_remove_one_name_does_not_remove_it_among_many() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    let dir = tree.make(ROOT, DIRECTORY | 0o1777, b"d", b"").expect("made").id;
    tree.make(dir, FILE | 0o666, b"theirs", b"").expect("made");
    tree.who = (7, 70);
    tree.make(dir, FILE | 0o600, b"own", b"").expect("made");
    let (_, removed) = tree.unlink_many(dir, &[b"own", b"theirs"], 0).expect("one");
    assert_eq!(removed.len(), 1, "the directory is sticky");
    assert_eq!(tree.unlink_many(ROOT, &[b"d"], 0).map(drop), Err(E_ACCES));
    tree.make(dir, FILE | 0o600, b"own", b"").expect("made");
    let words = [dir.0, dir.1, pair(0, 2)];
    assert_eq!(tree.call("unlink_many", &words, &[b"\x03\0own"]), Err(E_INVAL), "one less");
    assert!(tree.find(dir, b"own").is_ok(), "all or nothing");
    assert_eq!(tree.unlink_many(dir, &[b"x".as_slice(); 9], 0).map(drop), Err(E_INVAL));
    assert_eq!(tree.unlink_many(dir, &[b"x"], 1).map(drop), Err(E_INVAL));
    assert!(tree.find(dir, b"theirs").is_ok());
}
