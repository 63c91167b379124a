//! Who may not does not, and what modes, owners and times come to be.

use super::*;

#[test]
fn who_may_not_does_not() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    let open = tree.make(ROOT, DIRECTORY | 0o1777, b"open", b"").expect("made").id;
    let shut = tree.make(ROOT, DIRECTORY | 0o700, b"shut", b"").expect("made").id;
    let shared = tree.make(ROOT, DIRECTORY | 0o2775, b"shared", b"").expect("made").id;
    let words = [shared.0, shared.1, pair(2 | 4, 0), pair(7, 50), 0, 0];
    tree.call("set", &words, &[]).expect("given");
    tree.make(shut, FILE | 0o666, b"file", b"").expect("made");
    tree.who = (7, 70);
    assert_eq!(tree.make(ROOT, FILE, b"file", b""), Err(E_ACCES));
    assert_eq!(tree.find(shut, b"file"), Err(E_ACCES));
    assert_eq!(tree.list(shut), Err(E_ACCES));
    let own = tree.make(open, FILE | 0o600, b"own", b"").expect("made");
    assert_eq!((own.uid, own.gid), (7, 70));
    let made = tree.make(shared, DIRECTORY | 0o755, b"made", b"").expect("made");
    assert_eq!((made.gid, made.mode & 0o2000), (50, 0o2000), "the group is inherited");
    assert_eq!(tree.make(open, 2 << 12, b"device", b""), Err(E_PERM));
    tree.who = (8, 50);
    assert_eq!(tree.remove("unlink", open, b"own"), Err(E_PERM), "sticky");
    assert_eq!(tree.rename((open, b"own"), (open, b"mine"), 0), Err(E_PERM));
    let mode = |mode| pair(1, mode);
    assert_eq!(tree.call("set", &[own.id.0, own.id.1, mode(0o777), 0, 0, 0], &[]), Err(E_PERM));
    tree.make(shared, FILE | 0o644, b"other", b"").expect("the group may write");
    tree.who = (7, 70);
    tree.call("set", &[own.id.0, own.id.1, mode(0o4711), 0, 0, 0], &[]).expect("its own");
    assert_eq!(tree.get(own.id).map(|found| found.mode & 0o7777), Ok(0o4711));
    let give = [own.id.0, own.id.1, pair(2, 0), pair(8, 0), 0, 0];
    assert_eq!(tree.call("set", &give, &[]), Err(E_PERM));
    tree.who = (0, 0);
    tree.call("set", &give, &[]).expect("user 0 may");
    let given = tree.get(own.id).expect("there");
    assert_eq!((given.uid, given.mode & 0o7777), (8, 0o711), "no longer set-uid");
}

#[test]
fn user_0_is_nobody_where_it_is_squashed() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 1);
    let mut tree = Tree::new(&mut sides);
    assert_eq!(tree.make(ROOT, FILE, b"file", b""), Err(E_ACCES));
}

