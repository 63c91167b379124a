//! Directories, files and links come, go and move as a model says.

use super::*;
use crate::check_cases;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// The nth inode as the directory, kind, name.
    Make(usize, u32, u8),
    /// Flags.
    Unlink(usize, u8, u32),
    Rmdir(usize, u8, u32),
    Link(usize, usize, u8),
    Rename((usize, u8), (usize, u8), u32),
    Hold(usize),
    Release(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let inode = || 0..12_usize;
    let name = || 0..5_u8;
    let kind = prop_oneof![1 => Just(FILE), 2 => Just(DIRECTORY), 1 => Just(LINK)];
    let flags =
        prop_oneof![3 => Just(0), 1 => Just(NOREPLACE), 1 => Just(EXCHANGE), 1 => Just(3_u32)];
    let hold = || prop_oneof![Just(0), Just(HOLD)];
    let flags = (flags, hold()).prop_map(|(flags, hold)| flags | hold);
    prop_oneof![
        6 => (inode(), kind, name()).prop_map(|(dir, kind, name)| Step::Make(dir, kind, name)),
        2 => (inode(), name(), hold()).prop_map(|(dir, name, hold)| Step::Unlink(dir, name, hold)),
        2 => (inode(), name(), hold()).prop_map(|(dir, name, hold)| Step::Rmdir(dir, name, hold)),
        2 => (inode(), inode(), name()).prop_map(|(dir, node, name)| Step::Link(dir, node, name)),
        6 => ((inode(), name()), (inode(), name()), flags)
            .prop_map(|(from, to, flags)| Step::Rename(from, to, flags)),
        1 => inode().prop_map(Step::Hold),
        1 => inode().prop_map(Step::Release),
    ]
}

/// An inode as the model has it.
#[derive(Clone, Debug)]
struct Node {
    id: Id,
    kind: u32,
    links: u32,
    holds: u32,
    parent: usize,
    names: BTreeMap<Vec<u8>, usize>,
}

impl Node {
    fn new(id: Id, kind: u32, parent: usize) -> Self {
        let links = if kind == DIRECTORY { 2 } else { 1 };
        Self { id, kind, links, holds: 0, parent, names: BTreeMap::new() }
    }

    fn is_dir(&self) -> bool {
        self.kind == DIRECTORY
    }

    fn is_gone(&self) -> bool {
        self.links == 0 && self.holds == 0
    }
}

/// All inodes that ever were, by the order in which they were made.
#[derive(Debug)]
struct Model {
    nodes: Vec<Node>,
}

fn name(number: u8) -> Vec<u8> {
    // Short and long ones.
    vec![b'a' + number; 1 + usize::from(number) * usize::from(number) * 15]
}

impl Model {
    fn new() -> Self {
        Self { nodes: vec![Node::new(ROOT, DIRECTORY, 0)] }
    }

    fn pick(&self, index: usize) -> usize {
        index % self.nodes.len()
    }

    fn dir(&self, index: usize) -> Result<&Node, i32> {
        let dir = &self.nodes[index];
        match dir {
            dir if dir.is_gone() => Err(E_NOENT),
            dir if !dir.is_dir() => Err(E_NOTDIR),
            dir if dir.links == 0 => Err(E_NOENT),
            dir => Ok(dir),
        }
    }

    fn entry(&self, dir: usize, name: &[u8]) -> Result<usize, i32> {
        self.dir(dir)?.names.get(name).copied().ok_or(E_NOENT)
    }

    fn vacant(&self, dir: usize, name: &[u8]) -> Result<(), i32> {
        if self.dir(dir)?.names.contains_key(name) { Err(E_EXIST) } else { Ok(()) }
    }

    fn is_above(&self, node: usize, mut dir: usize) -> bool {
        while dir != 0 && dir != node {
            dir = self.nodes[dir].parent;
        }
        dir == node
    }

    fn unname(&mut self, dir: usize, node: usize, flags: u32) {
        if self.nodes[node].is_dir() {
            self.nodes[node].links = 0;
            self.nodes[dir].links -= 1;
        } else {
            self.nodes[node].links -= 1;
        }
        if self.nodes[node].links == 0 && flags & HOLD != 0 {
            self.nodes[node].holds += 1;
        }
    }

    fn remove(&mut self, dir: usize, name: &[u8], entry: &str, flags: u32) -> Result<(), i32> {
        let node = self.entry(dir, name)?;
        match (entry == "rmdir", self.nodes[node].is_dir()) {
            (true, false) => return Err(E_NOTDIR),
            (false, true) => return Err(E_ISDIR),
            _ if !self.nodes[node].names.is_empty() => return Err(E_NOTEMPTY),
            _ => {}
        }
        self.nodes[dir].names.remove(name);
        self.unname(dir, node, flags);
        Ok(())
    }

    fn link(&mut self, dir: usize, node: usize, name: Vec<u8>) -> Result<(), i32> {
        self.vacant(dir, &name)?;
        match &self.nodes[node] {
            node if node.is_gone() => return Err(E_STALE),
            node if node.is_dir() => return Err(E_PERM),
            _ => {}
        }
        if self.nodes[node].links == 0 {
            return Err(E_NOENT);
        }
        self.nodes[node].links += 1;
        self.nodes[dir].names.insert(name, node);
        Ok(())
    }

    fn check_move(&self, from: usize, node: usize, to: usize) -> Result<(), i32> {
        let is_loop = from != to && self.nodes[node].is_dir() && self.is_above(node, to);
        if is_loop { Err(E_INVAL) } else { Ok(()) }
    }

    fn move_dir(&mut self, from: usize, node: usize, to: usize) {
        if self.nodes[node].is_dir() && from != to {
            self.nodes[node].parent = to;
            self.nodes[from].links -= 1;
            self.nodes[to].links += 1;
        }
    }

    fn rename(
        &mut self,
        (from, from_name): (usize, Vec<u8>),
        (to, to_name): (usize, Vec<u8>),
        flags: u32,
    ) -> Result<(), i32> {
        let (hold, flags) = (flags & HOLD, flags & !HOLD);
        if flags == NOREPLACE | EXCHANGE {
            return Err(E_INVAL);
        }
        self.dir(from)?;
        self.dir(to)?;
        let node = self.entry(from, &from_name)?;
        let there = self.entry(to, &to_name).ok();
        match there {
            Some(_) if flags == NOREPLACE => return Err(E_EXIST),
            None if flags == EXCHANGE => return Err(E_NOENT),
            Some(there) if there == node => return Ok(()),
            _ => self.check_move(from, node, to)?,
        }
        if flags == EXCHANGE {
            let there = there.ok_or(E_NOENT)?;
            self.check_move(to, there, from)?;
            self.move_dir(from, node, to);
            self.move_dir(to, there, from);
            self.nodes[from].names.insert(from_name, there);
            self.nodes[to].names.insert(to_name, node);
            return Ok(());
        }
        if let Some(there) = there {
            match (self.nodes[node].is_dir(), self.nodes[there].is_dir()) {
                (true, false) => return Err(E_NOTDIR),
                (false, true) => return Err(E_ISDIR),
                _ if !self.nodes[there].names.is_empty() => return Err(E_NOTEMPTY),
                _ => self.unname(to, there, hold),
            }
        }
        self.move_dir(from, node, to);
        self.nodes[from].names.remove(&from_name);
        self.nodes[to].names.insert(to_name, node);
        Ok(())
    }

    fn hold(&mut self, index: usize) -> Result<(), i32> {
        let node = &mut self.nodes[index];
        if node.is_gone() {
            return Err(E_STALE);
        }
        node.holds += 1;
        Ok(())
    }

    fn release(&mut self, index: usize) -> Result<(), i32> {
        let node = &mut self.nodes[index];
        if node.is_gone() {
            return Err(E_STALE);
        }
        node.holds = node.holds.checked_sub(1).ok_or(E_INVAL)?;
        Ok(())
    }
}

fn perform(tree: &mut Tree<'_>, model: &mut Model, step: &Step) {
    let id = |model: &Model, index: usize| model.nodes[model.pick(index)].id;
    match *step {
        Step::Make(dir, kind, number) => {
            let (at, name) = (model.pick(dir), name(number));
            let target: &[u8] = if kind == LINK { b"../target" } else { b"" };
            let made = tree.make(id(model, dir), kind | 0o640, &name, target);
            let expected = model.vacant(at, &name);
            assert_eq!(made.map(|_| ()), expected, "{step:?}");
            if let Ok(made) = made {
                let node = model.nodes.len();
                model.nodes.push(Node::new(made.id, kind, at));
                model.nodes[at].links += u32::from(kind == DIRECTORY);
                model.nodes[at].names.insert(name, node);
            }
        }
        Step::Unlink(dir, number, flags) | Step::Rmdir(dir, number, flags) => {
            let entry = if matches!(step, Step::Rmdir(..)) { "rmdir" } else { "unlink" };
            let removed = tree.remove_with(entry, id(model, dir), &name(number), flags);
            let expected = model.remove(model.pick(dir), &name(number), entry, flags);
            assert_eq!(removed.map(|_| ()), expected, "{step:?}");
        }
        Step::Link(dir, node, number) => {
            let linked = tree.link(id(model, dir), id(model, node), &name(number));
            let expected = model.link(model.pick(dir), model.pick(node), name(number));
            assert_eq!(linked.map(|_| ()), expected, "{step:?}");
        }
        Step::Rename((from, from_name), (to, to_name), flags) => {
            let (from_id, to_id) = (id(model, from), id(model, to));
            let names = (name(from_name), name(to_name));
            let renamed = tree.rename((from_id, &names.0), (to_id, &names.1), flags);
            let (from, to) = ((model.pick(from), names.0), (model.pick(to), names.1));
            assert_eq!(renamed.map(|_| ()), model.rename(from, to, flags), "{step:?}");
        }
        Step::Hold(index) => {
            let held = tree.of_inode("hold", id(model, index)).map(|_| ());
            assert_eq!(held, model.hold(model.pick(index)), "{step:?}");
        }
        Step::Release(index) => {
            let released = tree.of_inode("release", id(model, index)).map(|_| ());
            assert_eq!(released, model.release(model.pick(index)), "{step:?}");
        }
    }
}

/// Every inode and every directory, as the model has them.
fn check(tree: &mut Tree<'_>, model: &Model) {
    let orphans = model.nodes.iter().filter(|node| node.links == 0 && node.holds > 0);
    let orphans: BTreeMap<_, _> = orphans.map(|node| (node.id, node.holds)).collect();
    assert_eq!(tree.stats().orphans, orphans.len() as u64);
    assert_eq!(tree.orphans(), orphans);
    for node in &model.nodes {
        let found = tree.get(node.id);
        if node.is_gone() {
            assert_eq!(found, Err(E_STALE));
            continue;
        }
        let found = found.expect("it is there");
        assert_eq!((found.mode & 0o170_000, found.nlink), (node.kind, node.links), "{node:?}");
        if !node.is_dir() {
            continue;
        }
        assert_eq!(found.parent, model.nodes[node.parent].id.0, "{node:?}");
        let listed = tree.list(node.id).expect("a directory");
        let ids: BTreeMap<_, _> =
            listed.into_iter().map(|(name, found)| (name, found.id)).collect();
        let expected = node.names.iter().map(|(name, node)| (name.clone(), model.nodes[*node].id));
        assert_eq!(ids, expected.collect());
        assert_eq!(found.size, node.names.len() as u64);
        for (name, id) in ids {
            assert_eq!(tree.find(node.id, &name).map(|found| found.id), Ok(id));
        }
    }
}

/// Removes all that there is, from below.
fn clear(tree: &mut Tree<'_>, dir: Id) {
    for (name, found) in tree.list(dir).expect("a directory") {
        let is_dir = found.mode & 0o170_000 == DIRECTORY;
        if is_dir {
            clear(tree, found.id);
        }
        tree.remove(if is_dir { "rmdir" } else { "unlink" }, dir, &name).expect("removed");
    }
}

#[test]
fn what_comes_goes_and_moves_is_where_the_model_has_it() {
    let operations = prop::collection::vec(step(), 1..80);
    let begin = |sides: &mut Sides| Tree::init(sides, 0);
    check_cases(REGION, operations, begin, |sides, steps| {
        let mut tree = Tree::new(sides);
        let mut model = Model::new();
        for step in steps {
            perform(&mut tree, &mut model, step);
        }
        check(&mut tree, &model);
        for node in &model.nodes {
            for _ in 0..node.holds {
                tree.of_inode("release", node.id).expect("held");
            }
        }
        clear(&mut tree, ROOT);
        // Only what the table of names has grown by is left.
        assert_eq!((tree.stats().inodes, tree.stats().orphans), (1, 0));
    });
}

#[test]
fn no_directory_comes_to_be_below_itself() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    let mut make =
        |dir, name: &[u8]| tree.make(dir, DIRECTORY | 0o755, name, b"").expect("made").id;
    let (one, other) = (make(ROOT, b"one"), make(ROOT, b"other"));
    let (below, deep) = (make(one, b"below"), make(other, b"deep"));
    assert_eq!(tree.rename((ROOT, b"one"), (below, b"x"), 0), Err(E_INVAL));
    assert_eq!(tree.rename((ROOT, b"one"), (one, b"x"), 0), Err(E_INVAL));
    tree.rename((ROOT, b"other"), (below, b"other"), 0).expect("moved");
    assert_eq!(tree.rename((ROOT, b"one"), (deep, b"x"), 0), Err(E_INVAL), "it is deep below now");
    assert_eq!(tree.rename((one, b"below"), (other, b"deep"), EXCHANGE), Err(E_INVAL));
    tree.rename((below, b"other"), (ROOT, b"other"), 0).expect("moved back");
    tree.rename((ROOT, b"one"), (deep, b"one"), 0).expect("it is no longer below");
    assert_eq!(tree.rename((other, b"deep"), (below, b"x"), 0), Err(E_INVAL));
    assert_eq!(tree.get(one).map(|found| found.parent), Ok(deep.0));
}

#[test]
fn wrong_names_and_stale_numbers_are_refused() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    for (wrong, why) in [
        (&b""[..], E_NOENT),
        (b".", E_INVAL),
        (b"..", E_INVAL),
        (b"a/b", E_INVAL),
        (b"a\0", E_INVAL),
        (&[b'x'; 256], E_NAMETOOLONG),
    ] {
        assert_eq!(tree.make(ROOT, FILE, wrong, b""), Err(why), "{wrong:?}");
        assert_eq!(tree.find(ROOT, wrong), Err(why), "{wrong:?}");
        assert_eq!(tree.rename((ROOT, b"a"), (ROOT, wrong), 0), Err(why), "{wrong:?}");
    }
    let first = tree.make(ROOT, FILE, &[0xff; 255], b"").expect("any bytes").id;
    tree.remove("unlink", ROOT, &[0xff; 255]).expect("removed");
    let second = tree.make(ROOT, FILE, b"again", b"").expect("made").id;
    assert_eq!(second, (first.0, first.1 + 1), "the number is used again");
    assert_eq!(tree.get(first), Err(E_STALE));
    assert_eq!(tree.link(ROOT, first, b"more"), Err(E_STALE));
    for stale in [(0, 0), (1, 2), (9999, 1), (u64::MAX, u64::MAX)] {
        assert_eq!(tree.get(stale), Err(E_STALE), "{stale:?}");
        assert_eq!(tree.make(stale, FILE, b"name", b""), Err(E_NOENT));
    }
    let link = tree.make(ROOT, LINK | 0o777, b"link", &[b't'; 4095]).expect("made").id;
    assert_eq!(tree.of_inode("target", link), Ok(vec![b't'; 4095]));
    assert_eq!(tree.of_inode("target", second), Err(E_INVAL));
    assert_eq!(tree.make(ROOT, LINK, b"empty", b""), Err(E_NOENT));
    // A place in the middle of a record is none.
    assert_eq!(tree.call("list", &[1, 1, 16, 0], &[]).map(|listed| listed.len()), Ok(0));
}
