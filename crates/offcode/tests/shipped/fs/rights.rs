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

/// Of `set`.
const MODE: u32 = 1;
const UID: u32 = 2;
const GID: u32 = 4;
const E_MLINK: i32 = 31;

#[test]
fn further_groups_count_as_the_first_one_does() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    let dir = tree.make(ROOT, DIRECTORY | 0o770, b"dir", b"").expect("made").id;
    tree.set(dir, GID, (0, 0, 50)).expect("given");
    tree.who = (7, 70);
    assert_eq!(tree.list(dir).map(drop), Err(E_ACCES));
    tree.groups = (44..=56).rev().collect();
    let file = tree.make(dir, FILE | 0o6775, b"file", b"").expect("its group may");
    assert_eq!((file.gid, file.mode & 0o7777), (70, 0o6775));
    let found = tree.set(file.id, GID, (0, 0, 44)).expect("a group of its own");
    assert_eq!((found.gid, found.mode & 0o7777), (44, 0o775));
    assert_eq!(tree.set(file.id, GID, (0, 0, 43)), Err(E_PERM));
    let found = tree.set(file.id, MODE, (0o2711, 0, 0)).expect("its own");
    assert_eq!(found.mode & 0o7777, 0o2711, "it is in that group");
    tree.groups = vec![50];
    assert_eq!(tree.set(file.id, MODE, (0o2711, 0, 0)), Err(E_PERM), "it no longer is");
    let found = tree.set(file.id, MODE, (0o711, 0, 0)).expect("its own");
    assert_eq!(found.mode & 0o7777, 0o711);
    tree.set(file.id, UID | GID, (0, 7, 44)).expect("nothing changes");
    let words = [&[pair(7, 70), 14][..], &[0; 9], &[dir.0, dir.1, 0, 0]].concat();
    assert_eq!(tree.run("list", &args(&words, b"")), Err(E_INVAL), "too many groups");
}

/// Of `open` and `create`.
const WRITE: u32 = 2;
const READ: u32 = 4;
const EXCL: u32 = 8;

#[test]
fn what_an_opening_was_granted_holds_for_whoever_uses_it() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    let dir = tree.make(ROOT, DIRECTORY | 0o777, b"dir", b"").expect("made").id;
    let file = tree.make(dir, FILE | 0o200, b"file", b"").expect("made").id;
    tree.set(file, UID, (0, 7, 0)).expect("given");
    let open = |tree: &mut Tree<'_>, want| {
        tree.call("open", &[file.0, file.1, 1, pair(want, 0)], &[]).map(drop)
    };
    let read = |tree: &mut Tree<'_>| tree.call("read", &[file.0, file.1, 0, 9], &[]).map(drop);
    let resize = |tree: &mut Tree<'_>| {
        tree.call("change", &[file.0, file.1, 0, 0, 0, 9, pair(2, 0)], &[]).map(drop)
    };
    tree.who = (7, 70);
    assert_eq!((open(&mut tree, WRITE), open(&mut tree, READ)), (Ok(()), Err(E_ACCES)));
    assert_eq!(open(&mut tree, READ | WRITE), Err(E_ACCES));
    assert_eq!((read(&mut tree), open(&mut tree, 1)), (Ok(()), Err(E_INVAL)), "it is the owner");
    tree.who = (8, 80);
    assert_eq!((open(&mut tree, WRITE), resize(&mut tree)), (Err(E_ACCES), Err(E_ACCES)));
    tree.granted = WRITE;
    assert_eq!((resize(&mut tree), read(&mut tree)), (Ok(()), Err(E_ACCES)));
    tree.granted = READ;
    assert_eq!((resize(&mut tree), read(&mut tree)), (Err(E_ACCES), Ok(())));
    let seek = tree.call("seek", &[file.0, file.1, 0, 4], &[]);
    assert_eq!(seek.map(|place| word(&place, 0)), Ok(0));
    (tree.who, tree.granted) = ((7, 70), 0);
    let shut = tree.make(dir, DIRECTORY, b"shut", b"").expect("made").id;
    assert_eq!(tree.list(shut), Err(E_ACCES));
    tree.granted = READ;
    assert_eq!(tree.list(shut).map(|names| names.len()), Ok(0));
}

#[test]
fn what_is_there_already_is_opened_by_who_may() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    let dir = tree.make(ROOT, DIRECTORY | 0o777, b"dir", b"").expect("made").id;
    tree.who = (7, 70);
    let create = |tree: &mut Tree<'_>, name: &[u8], want| {
        let words = [dir.0, dir.1, 1, pair(0o444, want)];
        tree.call("create", &words, &[name]).map(|answer| Found::new(&answer))
    };
    let made = create(&mut tree, b"file", READ | WRITE).expect("its mode counts from now on");
    assert_eq!((made.uid, made.gid, made.mode), (7, 70, FILE | 0o444));
    assert_eq!(create(&mut tree, b"file", READ | EXCL), Err(E_EXIST));
    assert_eq!(create(&mut tree, b"file", WRITE), Err(E_ACCES));
    tree.who = (8, 80);
    assert_eq!(create(&mut tree, b"file", READ).map(|found| found.id), Ok(made.id));
    tree.make(dir, DIRECTORY | 0o777, b"other", b"").expect("made");
    assert_eq!(create(&mut tree, b"other", READ), Err(E_EXIST));
    assert_eq!(create(&mut tree, b"..", READ), Err(E_INVAL));
    assert_eq!(tree.find(dir, b"file").map(|found| found.id), Ok(made.id));
}

#[test]
fn a_directory_that_is_gone_has_no_names() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    let dir = tree.make(ROOT, DIRECTORY | 0o777, b"dir", b"").expect("made").id;
    tree.remove("rmdir", ROOT, b"dir").expect("removed");
    assert_eq!(tree.list(dir).map(|names| names.len()), Ok(0));
    assert_eq!(tree.find(dir, b"name"), Err(E_NOENT));
    assert_eq!(tree.make(dir, FILE | 0o644, b"name", b""), Err(E_NOENT));
    assert_eq!(tree.remove("unlink", dir, b"name"), Err(E_NOENT));
    assert_eq!(tree.get(dir), Err(E_STALE));
}

#[test]
fn set_group_bits_are_inherited_and_lost_as_linux_has_it() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    let shared = tree.make(ROOT, DIRECTORY | 0o2777, b"shared", b"").expect("made").id;
    tree.set(shared, GID, (0, 0, 50)).expect("given");
    tree.who = (7, 70);
    for (mode, comes) in [(0o2775, 0o775), (0o2765, 0o2765), (0o4711, 0o4711), (0o644, 0o644)] {
        let made = tree.make(shared, FILE | mode, b"file", b"").expect("made");
        assert_eq!((made.gid, made.mode & 0o7777), (50, comes), "{mode:o}");
        tree.remove("unlink", shared, b"file").expect("removed");
    }
    let made = tree.make(shared, DIRECTORY | 0o700, b"dir", b"").expect("made");
    assert_eq!((made.gid, made.mode & 0o7777), (50, 0o2700));
    let link = tree.make(shared, LINK | 0o600, b"link", b"to").expect("made");
    assert_eq!(link.mode & 0o7777, 0o777);
    tree.who = (0, 0);
    for (mode, comes) in [(0o6644, 0o2644), (0o6654, 0o654), (0o1777, 0o1777)] {
        let made = tree.make(ROOT, FILE | mode, b"file", b"").expect("made").id;
        let given = tree.set(made, UID, (0, 7, 0)).expect("given");
        assert_eq!(given.mode & 0o7777, comes, "{mode:o}");
        tree.remove("unlink", ROOT, b"file").expect("removed");
    }
    let kept = tree.set(shared, UID, (0, 7, 0)).expect("given");
    assert_eq!(kept.mode & 0o7777, 0o2777, "of a directory they stay");
}

#[test]
fn what_is_there_or_not_is_said_before_who_may_not() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    let file = tree.make(ROOT, FILE | 0o644, b"file", b"").expect("made").id;
    let dir = tree.make(ROOT, DIRECTORY | 0o777, b"dir", b"").expect("made").id;
    let own = tree.make(dir, DIRECTORY | 0o555, b"own", b"").expect("made").id;
    tree.set(own, UID, (0, 7, 0)).expect("given");
    tree.who = (7, 70);
    assert_eq!(tree.make(ROOT, DIRECTORY, b"file", b""), Err(E_EXIST));
    assert_eq!(tree.link(ROOT, file, b"dir"), Err(E_EXIST));
    assert_eq!(tree.link(ROOT, file, b"other"), Err(E_ACCES));
    assert_eq!(tree.remove("unlink", ROOT, b"none"), Err(E_NOENT));
    assert_eq!(tree.remove("unlink", ROOT, b"dir"), Err(E_ACCES));
    assert_eq!(tree.rename((ROOT, b"none"), (ROOT, b"x"), 0), Err(E_NOENT));
    assert_eq!(tree.rename((dir, b"own"), (ROOT, b"x"), EXCHANGE), Err(E_NOENT));
    assert_eq!(tree.rename((dir, b"own"), (ROOT, b"x"), 0), Err(E_ACCES));
    let other = tree.make(dir, DIRECTORY | 0o755, b"other", b"").expect("made").id;
    tree.rename((dir, b"own"), (dir, b"mine"), 0).expect("it stays below the same one");
    assert_eq!(tree.rename((dir, b"mine"), (other, b"mine"), 0), Err(E_ACCES), "its `..` changes");
    tree.set(own, MODE, (0o755, 0, 0)).expect("its own");
    tree.rename((dir, b"mine"), (other, b"mine"), 0).expect("it may now");
    assert_eq!(tree.rename((dir, b"other"), (dir, b"x"), 512), Err(E_INVAL), "no such flag");
}

#[test]
fn each_operation_sets_the_times_that_posix_names() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    let from = tree.make(ROOT, DIRECTORY | 0o755, b"from", b"").expect("made").id;
    let to = tree.make(ROOT, DIRECTORY | 0o755, b"to", b"").expect("made").id;
    let mut now = BEGIN_NS;
    let mut later = |tree: &mut Tree<'_>| {
        now += 1000;
        tree.sides.set_time(now);
        now
    };
    // Of bytes or names, and of anything.
    let times = |tree: &mut Tree<'_>, inode| {
        let found = tree.get(inode).expect("there");
        (found.mtime_ns, found.ctime_ns)
    };
    let made = later(&mut tree);
    let file = tree.make(from, FILE | 0o644, b"file", b"").expect("made");
    assert_eq!([file.atime_ns, file.mtime_ns, file.ctime_ns], [made; 3]);
    assert_eq!(times(&mut tree, from), (made, made));
    let linked = later(&mut tree);
    tree.link(to, file.id, b"link").expect("linked");
    assert_eq!(times(&mut tree, file.id), (made, linked));
    assert_eq!((times(&mut tree, from), times(&mut tree, to)), ((made, made), (linked, linked)));
    let moved = later(&mut tree);
    tree.rename((from, b"file"), (to, b"file"), 0).expect("moved");
    assert_eq!(times(&mut tree, file.id), (made, moved));
    assert_eq!((times(&mut tree, from), times(&mut tree, to)), ((moved, moved), (moved, moved)));
    let removed = later(&mut tree);
    tree.remove("unlink", to, b"link").expect("removed");
    assert_eq!(
        (times(&mut tree, file.id), times(&mut tree, to)),
        ((made, removed), (removed, removed))
    );
    let set = later(&mut tree);
    tree.set(file.id, MODE, (0o666, 0, 0)).expect("set");
    assert_eq!(times(&mut tree, file.id), (made, set));
    later(&mut tree);
    tree.set(file.id, 0, (0, 0, 0)).expect("nothing");
    assert_eq!(times(&mut tree, file.id), (made, set));
    assert_eq!(tree.set(file.id, 128, (0, 0, 0)), Err(E_INVAL));
    tree.who = (7, 70);
    // To now: who may write; to another moment: the owner.
    let touched = later(&mut tree);
    tree.set(file.id, 32 | 64, (0, 0, 0)).expect("it may write");
    assert_eq!(times(&mut tree, file.id), (touched, touched));
    assert_eq!(tree.set(file.id, 8 | 16, (0, 0, 0)), Err(E_PERM));
    assert_eq!(tree.set(from, 32 | 64, (0, 0, 0)), Err(E_ACCES));
    tree.who = (0, 0);
    let found = tree.set(file.id, 8 | 16, (0, 0, 0)).expect("user 0");
    assert_eq!((found.atime_ns, found.mtime_ns, found.ctime_ns), (0, 0, touched));
}

/// Has an inode as many names as one can have, without making them.
fn fill(tree: &mut Tree<'_>, inode: Id) {
    let region = tree.sides.region();
    let at = |offset: u64| usize::try_from(offset).expect("inside");
    let inodes = word(&region, 64 + 24);
    let record = word(&region, at(inodes) + 64) + 256 * inode.0;
    let holds = word(&region, at(record) + 24) & !0xffff_ffff;
    tree.sides.write(record + 24, &(holds | 65_000).to_le_bytes());
}

#[test]
fn nothing_has_more_names_than_it_can() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    let mut make = |dir, mode, name: &[u8]| tree.make(dir, mode, name, b"").expect("made").id;
    let file = make(ROOT, FILE, b"file");
    let full = make(ROOT, DIRECTORY | 0o755, b"full");
    make(full, DIRECTORY | 0o755, b"below");
    make(full, FILE, b"file");
    make(ROOT, DIRECTORY | 0o755, b"dir");
    fill(&mut tree, file);
    fill(&mut tree, full);
    assert_eq!(tree.link(ROOT, file, b"more"), Err(E_MLINK));
    assert_eq!(tree.make(full, DIRECTORY, b"more", b""), Err(E_MLINK));
    assert_eq!(tree.rename((ROOT, b"dir"), (full, b"more"), 0), Err(E_MLINK));
    assert_eq!(tree.rename((ROOT, b"dir"), (full, b"file"), EXCHANGE), Err(E_MLINK));
    tree.make(full, FILE, b"more", b"").expect("files do not count");
    tree.rename((ROOT, b"dir"), (full, b"below"), EXCHANGE).expect("one comes, one goes");
    tree.rename((ROOT, b"dir"), (full, b"below"), 0).expect("one comes, one is gone");
    assert_eq!(tree.get(full).map(|found| found.nlink), Ok(65_000));
    assert_eq!(tree.get(ROOT).map(|found| found.nlink), Ok(3));
}
