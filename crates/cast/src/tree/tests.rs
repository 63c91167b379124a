//! Manifests that are refused, walks, and changes at the source.

use super::*;
use crate::sign::ChunkLen;
use rustix::fs::XattrFlags;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

/// A file of this size, at a depth.
pub(crate) fn file(depth: u16, name: &[u8], size: u64) -> TreeEntry<'_> {
    let node = TreeNode::File { size, extents: None };
    TreeEntry { depth, name, mode: 0o644, modified_ns: 0, owner: 0, xattrs: vec![], node }
}

pub(crate) fn directory(depth: u16, name: &[u8]) -> TreeEntry<'_> {
    TreeEntry { node: TreeNode::Directory, mode: 0o755, ..file(depth, name, 0) }
}

pub(crate) fn link<'a>(depth: u16, name: &'a [u8], target: &'a [u8]) -> TreeEntry<'a> {
    TreeEntry { node: TreeNode::Symlink(target), ..file(depth, name, 0) }
}

fn sparse<'a>(name: &'a [u8], size: u64, extents: &[(u64, u64)]) -> TreeEntry<'a> {
    let extents = extents.iter().map(|&(offset, len)| DataExtent { offset, len }).collect();
    TreeEntry { node: TreeNode::File { size, extents: Some(extents) }, ..file(0, name, 0) }
}

/// A manifest's bytes, legal or not.
pub(crate) fn unchecked(entries: &[TreeEntry<'_>]) -> Vec<u8> {
    let mut builder = ManifestBuilder::new(TreeLimits::default());
    builder.owner(0, 0, || AccountNames::default().owner(0, 0));
    entries.iter().for_each(|entry| builder.push(entry).expect("few"));
    builder.into_bytes()
}

/// Manifests that no receiver takes, and why.
pub(crate) fn hostile() -> Vec<(Vec<TreeEntry<'static>>, ManifestFault)> {
    const LONG: &[u8] = &[b'a'; 256];
    let xattr = |name| vec![ExtendedAttribute { name, value: b"" }];
    let overlap = sparse(b"a", 9, &[(0, 5), (4, 1)]);
    let deep: Vec<_> = (0..257).map(|depth| directory(depth, b"d")).collect();
    let long_path = (0..17).map(|depth| directory(depth, &LONG[..255])).collect();
    vec![
        (vec![file(0, b"..", 0)], ManifestFault::Name),
        (vec![file(0, b".", 0)], ManifestFault::Name),
        (vec![file(0, b"", 0)], ManifestFault::Name),
        (vec![file(0, b"/etc/passwd", 0)], ManifestFault::Name),
        (vec![file(0, b"a/b", 0)], ManifestFault::Name),
        (vec![file(0, b"../a", 0)], ManifestFault::Name),
        (vec![file(0, b"a\0b", 0)], ManifestFault::Name),
        (vec![file(0, LONG, 0)], ManifestFault::Name),
        (vec![directory(0, b"d"), file(1, b"..", 0)], ManifestFault::Name),
        (vec![directory(0, b".outboard-cast-1")], ManifestFault::Hidden),
        (vec![file(0, b"a", 0), file(1, b"b", 0)], ManifestFault::NoDirectory),
        (vec![link(0, b"a", b"/etc"), file(1, b"passwd", 0)], ManifestFault::NoDirectory),
        (vec![directory(0, b"d"), file(2, b"b", 0)], ManifestFault::NoDirectory),
        (vec![file(1, b"b", 0)], ManifestFault::NoDirectory),
        (vec![file(0, b"a", 0), file(0, b"a", 0)], ManifestFault::Order),
        (vec![link(0, b"a", b"/etc"), directory(0, b"a")], ManifestFault::Order),
        (vec![file(0, b"b", 0), file(0, b"a", 0)], ManifestFault::Order),
        (deep, ManifestFault::TooDeep),
        (long_path, ManifestFault::TooDeep),
        (vec![TreeEntry { mode: 0o10644, ..file(0, b"a", 0) }], ManifestFault::Mode),
        (vec![TreeEntry { owner: 1, ..file(0, b"a", 0) }], ManifestFault::Owner),
        (vec![TreeEntry { xattrs: xattr(b""), ..file(0, b"a", 0) }], ManifestFault::Attribute),
        (vec![TreeEntry { xattrs: xattr(b"a\0"), ..file(0, b"a", 0) }], ManifestFault::Attribute),
        (vec![TreeEntry { xattrs: xattr(b"a"), ..link(0, b"a", b"b") }], ManifestFault::Attribute),
        (vec![link(0, b"a", b"")], ManifestFault::Target),
        (vec![link(0, b"a", b"b\0")], ManifestFault::Target),
        (vec![file(0, b"a", u64::MAX)], ManifestFault::Size(u64::MAX)),
        (vec![sparse(b"a", 9, &[(0, 0)])], ManifestFault::Extents),
        (vec![sparse(b"a", 9, &[(0, 10)])], ManifestFault::Extents),
        (vec![sparse(b"a", 9, &[(u64::MAX, 2)])], ManifestFault::Extents),
        (vec![overlap], ManifestFault::Extents),
        (vec![sparse(b"a", 9, &[(5, 1), (0, 1)])], ManifestFault::Extents),
        (vec![file(0, b"a", 1 << 46)], ManifestFault::TooMuch(1 << 46)),
        (
            (b'a'..b'd').map(|name| file(0, one_byte(name), i64::MAX as u64)).collect(),
            ManifestFault::TooMuch(1 << 46),
        ),
    ]
}

fn one_byte(byte: u8) -> &'static [u8] {
    const BYTES: &[u8] = b"abcd";
    let at = usize::from(byte - b'a');
    &BYTES[at..=at]
}

fn parse(bytes: Vec<u8>) -> Result<TreeManifest, ManifestFault> {
    TreeManifest::parse(bytes, &TreeLimits::default()).map_err(|error| error.fault)
}

#[test]
fn illegal_manifests_are_refused() {
    for (entries, fault) in hostile() {
        assert_eq!(parse(unchecked(&entries)).err(), Some(fault), "{entries:?}");
    }
}

#[test]
fn a_legal_manifest_cut_or_changed_anywhere_never_panics() {
    let entries = [
        directory(0, b"d"),
        file(1, b"a", 5),
        directory(1, b"b"),
        link(2, b"l", b"../../.."),
        sparse(b"e", 1 << 40, &[(1, 1), (1 << 30, 4096)]),
    ];
    let bytes = unchecked(&entries);
    let manifest = parse(bytes.clone()).expect("a legal manifest");
    assert_eq!((manifest.len(), manifest.tops()), (5, &[0, 4][..]));
    assert_eq!(manifest.path(3), b"d/b/l");
    for (index, entry) in (0..).zip(&entries) {
        assert_eq!(&manifest.entry(index), entry);
    }
    for len in 0..bytes.len() {
        assert!(parse(bytes[..len].to_vec()).is_err(), "{len}");
    }
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            let _ = parse(changed);
        }
    }
    assert_eq!(parse([&*bytes, b"x"].concat()).err(), Some(ManifestFault::Trailing(1)));
    assert_eq!(parse(vec![9]).err(), Some(ManifestFault::Version(9)));
    // Four thousand million entries are promised, and none is there.
    assert!(parse(vec![1, 0xff, 0xff, 0xff, 0x7f, 0]).is_err());
}

#[test]
fn limits_hold() {
    let limits = TreeLimits { entries_max: 1, extents_max: 2, ..TreeLimits::default() };
    let fault = |entries: &[_]| {
        TreeManifest::parse(unchecked(entries), &limits).err().map(|error| error.fault)
    };
    assert_eq!(fault(&[file(0, b"a", 1), file(0, b"b", 1)]), Some(ManifestFault::TooMany(1)));
    let many = sparse(b"a", 9, &[(0, 1), (2, 1), (4, 1)]);
    assert_eq!(fault(&[many]), Some(ManifestFault::TooManyExtents(2)));
    let limits = TreeLimits { manifest_len_max: 4, ..limits };
    let fault = TreeManifest::parse(vec![1; 5], &limits).err().map(|error| error.fault);
    assert_eq!(fault, Some(ManifestFault::TooLong { len: 5, max: 4 }));
}

#[test]
fn pieces_cover_the_stream_in_order() {
    let entries = [file(0, b"a", 10), file(0, b"b", 0), sparse(b"c", 99, &[(5, 3), (50, 7)])];
    let manifest = parse(unchecked(&entries)).expect("legal");
    let at = manifest.bytes().len() as u64;
    assert_eq!(manifest.stream_len(), at + 20);
    let piece = |entry, offset, len| StreamPiece::File { entry, offset, len };
    let pieces = |from, to| manifest.pieces(from..to).collect::<Vec<_>>();
    let all = [
        StreamPiece::Manifest { at: 0, len: manifest.bytes().len() },
        piece(0, 0, 10),
        piece(2, 5, 3),
        piece(2, 50, 7),
    ];
    assert_eq!(pieces(0, u64::MAX), all);
    assert_eq!(pieces(at + 9, at + 12), [piece(0, 9, 1), piece(2, 5, 2)]);
    assert_eq!(pieces(at + 12, at + 14), [piece(2, 7, 1), piece(2, 50, 1)]);
    assert_eq!(
        pieces(at - 1, at),
        [StreamPiece::Manifest { at: manifest.bytes().len() - 1, len: 1 }]
    );
    assert_eq!(pieces(at + 20, at + 30), []);
    assert!(all.iter().all(|piece| !piece.is_empty()));
}

fn scanned(root: &Path, options: &ScanOptions) -> Result<ScannedTree, TreeError> {
    scan(vec![CastSource::new(root)?], options)
}

fn paths(tree: &ScannedTree) -> Vec<String> {
    let manifest = tree.manifest();
    let path = |entry| String::from_utf8_lossy(&manifest.path(entry)).into_owned();
    (0..manifest.len()).map(path).collect()
}

#[test]
fn a_walk_is_sorted_and_leaves_out_what_it_is_told_to() {
    let outer = tempfile::tempdir().expect("a directory");
    let root = outer.path().join("src");
    for path in ["b", "a.b", "a", "build/x"] {
        fs::create_dir_all(root.join(path)).expect("made");
    }
    for path in ["a/z", "a/y.o", "b/k", "build/x/deep"] {
        fs::write(root.join(path), path).expect("written");
    }
    symlink("/nowhere", root.join("a/link")).expect("linked");
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe"), 0o600.into()).expect("a pipe");
    let mut options = ScanOptions::default();
    let tree = scanned(&root, &options).expect("scanned");
    let all = ["src", "src/a", "src/a/link", "src/a/y.o", "src/a/z", "src/a.b", "src/b", "src/b/k"];
    let all: Vec<_> = all.iter().copied().chain(["src/build", "src/build/x"]).collect();
    assert_eq!(paths(&tree), [&*all, &["src/build/x/deep"]].concat());
    assert_eq!((tree.skipped().count, tree.skipped().first.len()), (1, 1));
    options.exclude.add(b"*.o").expect("a pattern");
    options.exclude.add(b"src/b*/").expect("a pattern");
    let tree = scanned(&root, &options).expect("scanned");
    assert_eq!(paths(&tree), ["src", "src/a", "src/a/link", "src/a/z", "src/a.b"]);
    let same = scanned(&root.join("."), &options).expect("scanned");
    assert_eq!(same.manifest().bytes(), tree.manifest().bytes(), "the same tree, the same bytes");
}

#[test]
fn sources_keep_their_names_and_may_be_links() {
    let outer = tempfile::tempdir().expect("a directory");
    fs::write(outer.path().join("program-1.2"), "code").expect("written");
    symlink("program-1.2", outer.path().join("program")).expect("linked");
    let tree = scanned(&outer.path().join("program"), &ScanOptions::default()).expect("scanned");
    assert_eq!(paths(&tree), ["program"]);
    assert_eq!(tree.manifest().entry(0).extents(), [DataExtent { offset: 0, len: 4 }]);
    let nameless = CastSource::new(Path::new("/"));
    assert!(matches!(nameless, Err(TreeError::Nameless { .. })));
    let special = scanned(Path::new("/dev/null"), &ScanOptions::default());
    assert!(matches!(special, Err(TreeError::Special { .. })));
    let twice = vec![CastSource::new(outer.path()).expect("a name"); 2];
    let twice = scan(twice, &ScanOptions::default());
    assert!(matches!(twice, Err(TreeError::Unfit { fault: ManifestFault::Order, .. })));
    let absent = scanned(&outer.path().join("absent"), &ScanOptions::default());
    assert!(matches!(absent, Err(TreeError::Unreadable { .. })));
}

#[test]
fn holes_and_attributes_are_found() {
    let outer = tempfile::tempdir().expect("a directory");
    let path = outer.path().join("sparse");
    let mut sparse = File::create(&path).expect("made");
    sparse.set_len(1 << 30).expect("lengthened");
    sparse.seek(SeekFrom::Start(512 << 20)).expect("a place");
    sparse.write_all(&[7; 65536]).expect("written");
    let set = rustix::fs::fsetxattr(&sparse, "user.note", b"value", XattrFlags::empty());
    let tree = scanned(&path, &ScanOptions::default()).expect("scanned");
    let entry = tree.manifest().entry(0);
    assert_eq!(entry.extents(), [DataExtent { offset: 512 << 20, len: 65536 }]);
    if set.is_ok() {
        assert_eq!(entry.xattrs, [ExtendedAttribute { name: b"user.note", value: b"value" }]);
    } else {
        println!("skipped: extended attributes, which this file system lacks");
    }
    sparse.set_len(0).and_then(|()| sparse.set_len(4096)).expect("all a hole");
    let tree = scanned(&path, &ScanOptions::default()).expect("scanned");
    assert_eq!(tree.manifest().entry(0).extents(), []);
}

/// A change to a source, and whether every read or only the last look notices it.
type Change = (&'static str, fn(&Path), bool);

const CHANGES: [Change; 8] = [
    ("written", |root| fs::write(root.join("d/a"), vec![2; 9000]).expect("written"), true),
    (
        "written in place",
        |root| {
            let file = OpenOptions::new().write(true).open(root.join("d/a")).expect("open");
            file.write_all_at(b"x", 5).expect("written");
        },
        true,
    ),
    (
        "shortened",
        |root| {
            let file = OpenOptions::new().write(true).open(root.join("d/a")).expect("open");
            file.set_len(1).expect("cut");
        },
        true,
    ),
    (
        "replaced",
        |root| {
            fs::write(root.join("new"), vec![1; 9000]).expect("written");
            fs::rename(root.join("new"), root.join("d/a")).expect("renamed");
        },
        true,
    ),
    ("removed", |root| fs::remove_file(root.join("d/a")).expect("removed"), true),
    (
        "behind a link",
        |root| {
            fs::rename(root.join("d"), root.join("e")).expect("renamed");
            symlink("e", root.join("d")).expect("linked");
        },
        true,
    ),
    ("a new name", |root| fs::write(root.join("d/c"), "").expect("written"), false),
    (
        "a mode",
        |root| {
            let mode = fs::Permissions::from_mode(0o700);
            fs::set_permissions(root.join("d"), mode).expect("changed");
        },
        false,
    ),
];

#[test]
fn what_changes_while_it_is_cast_is_an_error() {
    for (what, change, shows_in_reads) in CHANGES {
        let outer = tempfile::tempdir().expect("a directory");
        let root = outer.path().join("src");
        fs::create_dir_all(root.join("d")).expect("made");
        fs::write(root.join("d/a"), vec![1; 9000]).expect("written");
        fs::write(root.join("d/b"), "same").expect("written");
        let tree = scanned(&root, &ScanOptions::default()).expect("scanned");
        let chunk_len = ChunkLen::new(4096).expect("a length");
        let reader = SourceReader::new(tree, chunk_len, 8).expect("open");
        let mut chunk = Vec::new();
        reader.read_chunk(0, &mut chunk).expect("unchanged");
        reader.check_unchanged().expect("unchanged");
        change(&root);
        // The file is open already where it was read, and opened anew where not.
        let fresh = SourceReader::new(scanned_again(&reader), chunk_len, 8);
        let read = fresh.and_then(|fresh| fresh.read_chunk(1, &mut chunk));
        assert_eq!(read.is_err(), shows_in_reads, "{what}: read by its name");
        let is_by_name = ["replaced", "removed", "behind a link"].contains(&what);
        let read = reader.read_chunk(1, &mut chunk);
        assert!(read.is_err() == shows_in_reads || is_by_name, "{what}: read while open");
        for result in [read, reader.check_unchanged()] {
            let is_changed = matches!(result, Ok(()) | Err(TreeError::Changed { .. }));
            assert!(is_changed, "{what}: {result:?}");
        }
        assert!(reader.check_unchanged().is_err(), "{what}: at the end");
    }
}

/// The same scan for a reader that has opened nothing yet.
fn scanned_again(reader: &SourceReader) -> ScannedTree {
    let tree = reader.tree();
    let bytes = tree.manifest().bytes().to_vec();
    let manifest = parse(bytes).expect("legal");
    tree.copy_with(manifest)
}
