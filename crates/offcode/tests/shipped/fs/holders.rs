//! Inodes that somebody has open stay without names, and are found by who serves the tree next.

use super::*;

#[test]
fn what_has_a_holder_stays_without_names_until_it_is_released() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    let before = tree.stats();
    let file = tree.make(ROOT, FILE | 0o644, b"file", b"").expect("made").id;
    tree.link(ROOT, file, b"more").expect("linked");
    tree.remove_with("unlink", ROOT, b"file", HOLD).expect("removed");
    assert_eq!(tree.get(file).map(|found| (found.nlink, found.holds)), Ok((1, 0)), "it has a name");
    let found = tree.remove_with("unlink", ROOT, b"more", HOLD).expect("removed");
    assert_eq!((found.mode, found.nlink, found.holds), (FILE | 0o644, 0, 1));
    assert_eq!(tree.link(ROOT, file, b"again"), Err(E_NOENT));
    let link = tree.make(ROOT, LINK, b"link", b"to").expect("made").id;
    tree.remove_with("unlink", ROOT, b"link", HOLD).expect("removed");
    assert_eq!(tree.of_inode("target", link), Ok(b"to".to_vec()));
    let dir = tree.make(ROOT, DIRECTORY | 0o755, b"dir", b"").expect("made").id;
    let below = tree.make(ROOT, DIRECTORY | 0o755, b"below", b"").expect("made").id;
    tree.rename((ROOT, b"below"), (ROOT, b"dir"), HOLD).expect("replaced");
    tree.remove_with("rmdir", ROOT, b"dir", HOLD).expect("removed");
    assert_eq!(tree.make(dir, FILE, b"file", b""), Err(E_NOENT));
    tree.of_inode("hold", file).expect("once more");
    let all = BTreeMap::from([(file, 2), (link, 1), (dir, 1), (below, 1)]);
    assert_eq!((tree.orphans(), tree.stats().orphans), (all.clone(), 4));
    for (inode, holds) in all {
        for _ in 0..holds {
            assert!(tree.orphans().contains_key(&inode));
            tree.of_inode("release", inode).expect("held");
        }
        assert_eq!(tree.get(inode), Err(E_STALE));
    }
    assert_eq!((tree.orphans(), tree.stats().orphans), (BTreeMap::new(), 0));
    assert_eq!(tree.stats().inodes, before.inodes);
    assert_eq!(tree.remove_with("unlink", ROOT, b"file", 1), Err(E_INVAL), "no such flag");
    assert_eq!(tree.run("orphans", &args(&[16], b"")).map(|all| all.len()), Ok(0), "no place");
}

#[test]
fn inodes_can_be_made_until_there_is_no_room_about_as_many_as_was_said() {
    let mut sides = Sides::new(1 << 15);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    let said = tree.stats().inodes_free;
    let mut made = 0;
    let make = |made: u64| {
        let words = [&[0; 11][..], &[ROOT.0, ROOT.1, u64::from(FILE), 0]].concat();
        args(&words, format!("name-{made}").as_bytes())
    };
    while let Came::Done(_) = tree.sides.execute("fs.make", &make(made)) {
        made += 1;
    }
    assert!((said / 2..=said * 2).contains(&made), "{made} inodes, {said} were said");
    assert!(tree.stats().inodes_free < said / 4, "{:?}", tree.stats());
}

#[test]
fn a_path_is_walked_in_one_execution_as_far_as_it_goes() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    let one = tree.make(ROOT, DIRECTORY | 0o755, b"one", b"").expect("made").id;
    let two = tree.make(one, DIRECTORY | 0o711, b"two", b"").expect("made").id;
    let file = tree.make(two, FILE | 0o600, b"file", b"").expect("made").id;
    let link = tree.make(one, LINK, b"link", b"two").expect("made").id;
    let shut = tree.make(one, DIRECTORY | 0o700, b"shut", b"").expect("made").id;
    tree.who = (7, 70);
    let long = [b'x'; 256];
    let paths: [Walk<'_>; 10] = [
        (&[b"one", b"two", b"file"], &[one, two, file], 0),
        (&[b"one", b"two"], &[one, two], 0),
        (&[], &[], 0),
        (&[b"one", b"none", b"file"], &[one], E_NOENT),
        (&[b"one", b"two", b"file", b"x"], &[one, two, file], E_NOTDIR),
        (&[b"one", b"link", b"file"], &[one, link], 40),
        (&[b"one", b"link"], &[one, link], 0),
        (&[b"one", b"shut", b"x"], &[one, shut], E_ACCES),
        (&[b"one", b".."], &[one], E_INVAL),
        (&[b"one", &long], &[one], E_NAMETOOLONG),
    ];
    for (path, ids, error) in paths {
        let walked = walk(&mut tree, ROOT, path).expect("walked");
        assert_eq!(
            word(&walked, 0),
            pair(u32::try_from(ids.len()).expect("few"), 0) | (error as u64) << 32
        );
        let found: Vec<_> = walked[8..].chunks_exact(272).map(Found::new).collect();
        assert_eq!(found.iter().map(|found| found.id).collect::<Vec<_>>(), ids, "{path:x?}");
        for found in found {
            assert_eq!(tree.get(found.id), Ok(found));
        }
    }
    assert_eq!(walk(&mut tree, shut, &[b"x"]), Err(E_ACCES));
    assert_eq!(walk(&mut tree, file, &[b"x"]), Err(E_NOTDIR));
    for wrong in [[1_u8].as_slice(), &[2, 0, b'x'], &[]] {
        let words = [ROOT.0, ROOT.1, 1];
        assert_eq!(tree.call("walk", &words, &[wrong]), Err(E_INVAL));
    }
    assert_eq!(tree.call("walk", &[ROOT.0, ROOT.1, 257], &[]), Err(E_INVAL));
    let access = |tree: &mut Tree<'_>, inode: Id, want| {
        tree.call("access", &[inode.0, inode.1, want], &[]).map(|answer| Found::new(&answer).id)
    };
    assert_eq!(access(&mut tree, two, 1), Ok(two));
    assert_eq!(access(&mut tree, two, 4), Err(E_ACCES));
    assert_eq!(access(&mut tree, file, 0), Ok(file));
    assert_eq!(access(&mut tree, file, 8), Err(E_INVAL));
}

/// Names, which inodes are found, and the error number of the one that is not.
type Walk<'a> = (&'a [&'a [u8]], &'a [Id], i32);

fn walk(tree: &mut Tree<'_>, dir: Id, path: &[&[u8]]) -> Result<Vec<u8>, i32> {
    let names = path.iter().flat_map(|name| {
        let len = u16::try_from(name.len()).expect("short").to_le_bytes();
        len.into_iter().chain(name.iter().copied())
    });
    let names: Vec<u8> = names.collect();
    tree.call("walk", &[dir.0, dir.1, path.len() as u64], &[&names])
}
