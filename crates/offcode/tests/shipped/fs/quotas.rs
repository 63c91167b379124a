//! Who pays for inodes and blocks: limits, and that what comes back is as much as went.

use super::bytes::Change;
use super::*;

const E_DQUOT: i32 = 122;
const GROW: u32 = 1;
const RESIZE: u32 = 2;

impl Tree<'_> {
    fn set_quota(&mut self, id: u64, blocks: u64, inodes: u64) -> u64 {
        let number = self.run("set_quota", &args(&[id, 7, blocks, inodes], b"")).expect("set");
        word(&number, 0)
    }

    /// Blocks and inodes of each.
    fn tenants(&mut self) -> Vec<(u64, u64)> {
        let (mut all, mut first) = (Vec::new(), 1);
        loop {
            let found = self.run("tenants", &args(&[first], b"")).expect("tenants");
            if found.is_empty() {
                return all;
            }
            all.extend(found.chunks_exact(48).map(|one| (word(one, 16), word(one, 24))));
            first = all.len() as u64 + 1;
        }
    }

    /// Gives a file blocks at a place.
    fn fill(&mut self, inode: Id, at: u64, len: u64) -> Result<Found, i32> {
        let run = self.take(len, u64::MAX)[0];
        let extents = vec![(at, run.0, len)];
        let size = (at + len) * 4096;
        self.change(inode, &Change { size, which: GROW, extents, ..Change::default() })
    }
}

#[test]
fn whoever_made_it_pays_until_nobody_has_it() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    assert_eq!(tree.tenants(), []);
    // More than there is room for at first.
    for id in 1..=9 {
        assert_eq!(tree.set_quota(id, 10, 3), id);
    }
    assert_eq!(tree.set_quota(4, 20, 3), 4, "the same one");
    tree.tenant = 4;
    let file = tree.make(ROOT, FILE | 0o666, b"file", b"").expect("made").id;
    tree.fill(file, 0, 15).expect("room");
    assert_eq!(tree.tenants()[3], (15, 1));
    assert_eq!(tree.fill(file, 20, 6), Err(E_DQUOT));
    tree.fill(file, 10, 5).expect("instead of what it has");
    // Others write it, and have it as theirs: it stays whose it is.
    tree.tenant = 5;
    tree.fill(file, 30, 5).expect("up to the limit");
    assert_eq!(tree.fill(file, 40, 1), Err(E_DQUOT));
    tree.set(file, 6, (0, 9, 9)).expect("given away");
    assert_eq!((tree.tenants()[3], tree.tenants()[4]), ((20, 1), (0, 0)));
    let other = tree.make(ROOT, FILE | 0o666, b"other", b"").expect("made").id;
    tree.share((file, 0), (other, 0), 10).expect("shared");
    assert_eq!(tree.share((file, 0), (other, 10), 1), Err(E_DQUOT));
    assert_eq!((tree.tenants()[3], tree.tenants()[4]), ((20, 1), (10, 1)));
    let half = Change { size: 5 * 4096, which: RESIZE, ..Change::default() };
    tree.change(file, &half).expect("shorter");
    assert_eq!(tree.tenants()[3], (5, 1));
    ends(&mut tree, (file, other));
}

/// What loses its names costs nothing any more when nobody has it open.
fn ends(tree: &mut Tree<'_>, (file, other): (Id, Id)) {
    tree.tenant = 5;
    tree.make(ROOT, DIRECTORY | 0o755, b"dir", b"").expect("the second");
    tree.make(ROOT, LINK | 0o777, b"link", b"dir").expect("the third");
    assert_eq!(tree.make(ROOT, FILE | 0o644, b"more", b"").map(|made| made.id), Err(E_DQUOT));
    assert_eq!(tree.find(ROOT, b"more"), Err(E_NOENT));
    tree.link(ROOT, file, b"further").expect("a name costs nothing");
    tree.of_inode("hold", other).expect("held");
    // Over a name that somebody has open.
    let (from, to) = ((ROOT, &b"link"[..]), (ROOT, &b"other"[..]));
    tree.rename(from, to, HOLD).expect("renamed");
    assert_eq!(tree.tenants()[4], (10, 3));
    tree.of_inode("release", other).expect("released");
    tree.of_inode("release", other).expect("and by the one who removed it");
    assert_eq!(tree.tenants()[4], (0, 2));
    tree.remove("rmdir", ROOT, b"dir").expect("removed");
    tree.remove("unlink", ROOT, b"other").expect("removed");
    tree.remove("unlink", ROOT, b"further").expect("removed");
    assert_eq!((tree.tenants()[3], tree.tenants()[4]), ((5, 1), (0, 0)));
    // A limit below what there is takes nothing away.
    tree.set_quota(4, 1, 0);
    assert_eq!(tree.fill(file, 7, 1), Err(E_DQUOT));
    tree.fill(file, 0, 2).expect("no more than before");
    tree.remove("unlink", ROOT, b"file").expect("removed");
    assert_eq!(tree.tenants(), [(0, 0); 9]);
    tree.tenant = 10;
    assert_eq!(tree.make(ROOT, FILE, b"whose", b"").map(|made| made.id), Err(E_INVAL));
}
