//! Extended attributes, against a map.

use super::*;
use crate::check_cases;
use proptest::prelude::*;

const CREATE: u32 = 1;
const REPLACE: u32 = 2;
const E_2BIG: i32 = 7;
const E_NOSPC: i32 = 28;
const E_RANGE: i32 = 34;
const E_NODATA: i32 = 61;
const E_OPNOTSUPP: i32 = 95;

impl Tree<'_> {
    fn xattr(
        &mut self,
        entry: &str,
        inode: Id,
        flags: u32,
        (name, value): (&[u8], &[u8]),
    ) -> Result<Vec<u8>, i32> {
        let words = [inode.0, inode.1, pair(flags, len_of(name)), u64::from(len_of(value))];
        self.call(entry, &words, &[name, value])
    }

    fn set_xattr(&mut self, inode: Id, flags: u32, name: &[u8], value: &[u8]) -> Result<(), i32> {
        self.xattr("set_xattr", inode, flags, (name, value)).map(drop)
    }

    fn get_xattr(&mut self, inode: Id, name: &[u8]) -> Result<Vec<u8>, i32> {
        self.xattr("get_xattr", inode, 0, (name, b""))
    }

    fn remove_xattr(&mut self, inode: Id, name: &[u8]) -> Result<(), i32> {
        self.xattr("remove_xattr", inode, 0, (name, b"")).map(drop)
    }

    fn list_xattr(&mut self, inode: Id) -> Vec<Vec<u8>> {
        let list = self.xattr("list_xattr", inode, 0, (b"", b"")).expect("a list");
        let names = list.split_inclusive(|byte| *byte == 0);
        let mut names: Vec<_> = names.map(|name| name[..name.len() - 1].to_vec()).collect();
        names.sort();
        names
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set(u8, u32, usize, u8),
    Remove(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![3 => 0..20_usize, 2 => 0..3000_usize, 1 => 60_000..65_540_usize];
    let flags = prop_oneof![3 => Just(0), 1 => Just(CREATE), 1 => Just(REPLACE)];
    prop_oneof![
        3 => (0..5_u8, flags, len, any::<u8>())
            .prop_map(|(name, flags, len, with)| Step::Set(name, flags, len, with)),
        1 => (0..5_u8).prop_map(Step::Remove),
    ]
}

fn name(number: u8) -> Vec<u8> {
    [b"user.".as_slice(), &vec![b'a' + number; 1 + 62 * usize::from(number)]].concat()
}

fn room_of(name: &[u8], value: &[u8]) -> usize {
    8 + (name.len() + value.len()).next_multiple_of(8)
}

fn set(
    model: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    name: Vec<u8>,
    value: Vec<u8>,
    flags: u32,
) -> Result<(), i32> {
    if value.len() > 65536 {
        return Err(E_2BIG);
    }
    match (model.contains_key(&name), flags) {
        (true, CREATE) => return Err(E_EXIST),
        (false, REPLACE) => return Err(E_NODATA),
        _ => {}
    }
    let others = model.iter().filter(|(other, _)| **other != name);
    let room: usize = others.map(|(name, value)| room_of(name, value)).sum();
    if room + room_of(&name, &value) > 66048 {
        return Err(E_NOSPC);
    }
    model.insert(name, value);
    Ok(())
}

#[test]
fn attributes_are_what_the_model_has_and_go_with_their_inode() {
    let operations = prop::collection::vec(step(), 1..25);
    let begin = |sides: &mut Sides| Tree::init(sides, 0);
    check_cases(REGION, operations, begin, |sides, steps| {
        let mut tree = Tree::new(sides);
        tree.make(ROOT, FILE, b"other", b"").expect("made");
        let before = tree.stats().heap;
        let file = tree.make(ROOT, FILE | 0o644, b"file", b"").expect("made").id;
        let mut model = BTreeMap::new();
        for step in steps {
            match *step {
                Step::Set(number, flags, len, with) => {
                    let value = vec![with; len];
                    let came = tree.set_xattr(file, flags, &name(number), &value);
                    assert_eq!(came, set(&mut model, name(number), value, flags), "{step:?}");
                }
                Step::Remove(number) => {
                    let expected = model.remove(&name(number)).map(drop).ok_or(E_NODATA);
                    assert_eq!(tree.remove_xattr(file, &name(number)), expected, "{step:?}");
                }
            }
            assert_eq!(tree.list_xattr(file), model.keys().cloned().collect::<Vec<_>>());
        }
        for number in 0..5 {
            let expected = model.get(&name(number)).cloned().ok_or(E_NODATA);
            assert_eq!(tree.get_xattr(file, &name(number)), expected);
        }
        tree.remove("unlink", ROOT, b"file").expect("removed");
        assert_eq!(tree.stats().heap, before, "all memory came back");
    });
}

#[test]
fn who_may_not_set_or_read_an_attribute_does_not() {
    let mut sides = Sides::new(REGION);
    Tree::init(&mut sides, 0);
    let mut tree = Tree::new(&mut sides);
    let file = tree.make(ROOT, FILE | 0o644, b"file", b"").expect("made").id;
    let link = tree.make(ROOT, LINK, b"link", b"file").expect("made").id;
    let open = tree.make(ROOT, DIRECTORY | 0o1777, b"open", b"").expect("made").id;
    for name in [b"user.a".as_slice(), b"trusted.a", b"security.a"] {
        tree.set_xattr(file, 0, name, b"value").expect("user 0");
    }
    let first = tree.get(file).expect("there").ctime_ns;
    tree.sides.set_time(BEGIN_NS + 3);
    tree.set_xattr(file, 0, b"user.b", b"").expect("user 0");
    assert_eq!(tree.get(file).expect("there").ctime_ns, first + 3);
    assert_eq!(tree.get_xattr(file, b"trusted.a"), Ok(b"value".to_vec()));
    assert_eq!(tree.list_xattr(file).len(), 4);
    assert_eq!(tree.set_xattr(link, 0, b"user.a", b"x"), Err(E_PERM));
    assert_eq!(tree.get_xattr(link, b"user.a"), Err(E_NODATA));
    tree.set_xattr(link, 0, b"trusted.a", b"x").expect("any inode");
    for (wrong, why) in [
        (b"".as_slice(), E_RANGE),
        (&[b'u'; 256], E_RANGE),
        (b"user.", E_INVAL),
        (b"user.a\0", E_INVAL),
        (b"user", E_OPNOTSUPP),
        (b"system.posix_acl_access", E_OPNOTSUPP),
        (b"other.a", E_OPNOTSUPP),
    ] {
        assert_eq!(tree.set_xattr(file, 0, wrong, b""), Err(why), "{wrong:?}");
        assert_eq!(tree.get_xattr(file, wrong), Err(why), "{wrong:?}");
    }
    assert_eq!(tree.set_xattr(file, 4, b"user.a", b""), Err(E_INVAL));
    let words = [file.0, file.1, pair(0, 7), 0];
    assert_eq!(tree.call("set_xattr", &words, &[b"user.a"]), Err(E_INVAL), "too short");
    tree.who = (7, 70);
    assert_eq!(tree.set_xattr(file, 0, b"user.a", b"x"), Err(E_ACCES));
    assert_eq!(tree.remove_xattr(file, b"user.a"), Err(E_ACCES));
    assert_eq!(tree.set_xattr(file, 0, b"security.a", b"x"), Err(E_PERM));
    assert_eq!(tree.set_xattr(file, 0, b"trusted.a", b"x"), Err(E_PERM));
    assert_eq!(tree.set_xattr(open, 0, b"user.a", b"x"), Err(E_PERM), "sticky");
    assert_eq!(tree.get_xattr(file, b"user.a"), Ok(b"value".to_vec()));
    assert_eq!(tree.get_xattr(file, b"security.a"), Ok(b"value".to_vec()));
    assert_eq!(tree.get_xattr(file, b"trusted.a"), Err(E_NODATA));
    assert_eq!(tree.list_xattr(file).len(), 3);
    tree.who = (0, 0);
    tree.set(file, 1, (0o600, 0, 0)).expect("set");
    tree.who = (7, 70);
    assert_eq!(tree.get_xattr(file, b"user.a"), Err(E_ACCES));
}
