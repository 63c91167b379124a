//! Trees arrive as they were, whatever is in them and in whatever order chunks come.

use super::*;
use crate::tree::XattrScope;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use rustix::fs::XattrFlags;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::time::{Duration, Instant};

/// What a generated name stands for.
#[derive(Clone, Debug)]
enum Made {
    File(Vec<u8>, u32),
    Sparse(u64, Vec<u8>),
    Link(Vec<u8>),
    Directory(BTreeMap<Vec<u8>, Self>, u32),
}

/// Any bytes that a name can have, newlines and what is no UTF-8 among them.
fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("no byte of a name", |byte| !b"/\0".contains(byte));
    vec(byte, 1..12).prop_filter("not a name", |name| name != b"." && name != b"..")
}

fn any_node() -> impl Strategy<Value = Made> {
    let mode = prop::sample::select(vec![0o644, 0o755, 0o444, 0o600, 0o4755, 0o2711]);
    let directory_mode = prop::sample::select(vec![0o755, 0o700, 0o1777, 0o555]);
    let target = vec(1..=255_u8, 1..20);
    let leaf = prop_oneof![
        (vec(any::<u8>(), 0..9000), mode).prop_map(|(bytes, mode)| Made::File(bytes, mode)),
        (0..2_000_000_u64, vec(any::<u8>(), 0..100)).prop_map(|(at, end)| Made::Sparse(at, end)),
        target.prop_map(Made::Link),
    ];
    leaf.prop_recursive(4, 24, 6, move |node| {
        (btree_map(any_name(), node, 0..6), directory_mode.clone())
            .prop_map(|(nodes, mode)| Made::Directory(nodes, mode))
    })
}

fn make(path: &Path, node: &Made) {
    match node {
        Made::File(bytes, mode) => {
            fs::write(path, bytes).expect("written");
            fs::set_permissions(path, Permissions::from_mode(*mode)).expect("its mode");
        }
        Made::Sparse(at, end) => {
            let file = File::create(path).expect("made");
            file.set_len(*at).expect("lengthened");
            file.write_all_at(end, *at).expect("written");
        }
        Made::Link(target) => symlink(OsStr::from_bytes(target), path).expect("linked"),
        Made::Directory(nodes, mode) => {
            fs::create_dir(path).expect("made");
            nodes.iter().for_each(|(name, node)| make(&path.join(OsStr::from_bytes(name)), node));
            fs::set_permissions(path, Permissions::from_mode(*mode)).expect("its mode");
        }
    }
}

/// As it arrives: without setuid and setgid.
fn expected(root: &Path) -> Listing {
    let mut listing = listing(root);
    listing.values_mut().for_each(|(mode, ..)| *mode &= !0o6000);
    listing
}

fn cases() -> u32 {
    if std::env::var_os("OUTBOARD_FULL").is_some() { 500 } else { 40 }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_tree_arrives_in_any_order(
        nodes in btree_map(any_name(), any_node(), 0..6),
        seed in any::<u64>(),
    ) {
        let place = Place::new();
        make(&place.outer.path().join("tree"), &Made::Directory(nodes, 0o755));
        let root = place.outer.path().join("tree");
        let cast = TestCast::of(&[&root], 4096);
        let receiver = cast.begin(&place.to(), options());
        for chunk in shuffled(cast.chunks.len(), seed) {
            prop_assert_eq!(cast.put(&receiver, chunk).expect("put"), PutOutcome::Written);
            prop_assert_eq!(cast.put(&receiver, chunk).expect("put"), PutOutcome::Duplicate);
        }
        prop_assert_eq!(names(&place.to()).len(), 1);
        let report = receiver.publish().expect("published");
        prop_assert_eq!(report, PublishReport { names: 1, left_behind: None });
        prop_assert_eq!(listing(&place.to().join("tree")), expected(&root));
        prop_assert_eq!(names(&place.to()), ["tree"]);
    }
}

#[test]
fn odd_names_links_and_empty_things_arrive() {
    let place = Place::new();
    for name in ["a\nb", " ", "*", "-rf", "\u{1f980}"] {
        place.write(name, name.as_bytes());
    }
    File::create(place.src().join(OsStr::from_bytes(b"\xff\xfe"))).expect("made");
    fs::create_dir(place.src().join("empty")).expect("made");
    for (name, target) in [("up", "../../../.."), ("root", "/etc/passwd"), ("none", "nowhere")] {
        symlink(target, place.src().join(name)).expect("linked");
    }
    place.cast().receive(&place.to(), options()).expect("received");
    place.assert_published();
}

#[test]
fn several_sources_and_single_files_arrive() {
    let place = Place::new();
    place.write("a", b"one");
    place.write("b", b"");
    let (a, b) = (place.src().join("a"), place.src().join("b"));
    let report = TestCast::of(&[&b, &a], 4096).receive(&place.to(), options()).expect("received");
    assert_eq!(report.names, 2);
    assert_eq!(listing(&place.to().join("a")), listing(&a));
    assert_eq!(listing(&place.to().join("b")), listing(&b));
}

/// CAP_NET_RAW, permitted and effective (`struct vfs_cap_data` of linux/capability.h).
const NET_RAW: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 64];
    let len = rustix::fs::getxattr(path, name, &mut *value).ok()?;
    value.truncate(len);
    Some(value)
}

/// A source with a file that has a capability; `None` where this user may give none.
fn capable() -> Option<Place> {
    let place = Place::new();
    place.write("ping", b"a program");
    let file = File::open(place.src().join("ping")).expect("open");
    let set = rustix::fs::fsetxattr(&file, "security.capability", &NET_RAW, XattrFlags::empty());
    if set.is_err() {
        println!("skipped: file capabilities, which only root gives");
    }
    set.ok().map(|()| place)
}

fn keeping() -> ReceiveOptions {
    let mut options = options();
    options.attributes.security_xattrs = SecurityXattrs::Keep;
    options
}

#[test]
fn file_capabilities_arrive_where_they_are_asked_for_and_kept() {
    let Some(place) = capable() else { return };
    let how = ScanOptions { xattrs: XattrScope::UserAndSecurity, ..ScanOptions::default() };
    let cast = TestCast::scanned(&[&place.src()], 4096, &how);
    let error = cast.receive(&place.to(), options()).expect_err("not kept");
    assert!(matches!(error, ReceiveError::SecurityXattr { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("ping") && text.contains("as_root = true"), "{text}");
    assert!(names(&place.to()).is_empty(), "nothing is left");
    cast.receive(&place.to(), keeping()).expect("kept");
    let there = place.to().join("src/ping");
    assert_eq!(attribute(&there, "security.capability").as_deref(), Some(&NET_RAW[..]));
    place.assert_published();
}

#[test]
fn a_source_sends_the_kernels_attributes_only_when_asked() {
    let Some(place) = capable() else { return };
    place.cast().receive(&place.to(), keeping()).expect("received");
    assert_eq!(attribute(&place.to().join("src/ping"), "security.capability"), None);
    place.assert_published();
}

#[test]
fn attributes_can_be_left_out() {
    let place = Place::new();
    place.write("a", b"contents");
    let file = File::open(place.src().join("a")).expect("open");
    if rustix::fs::fsetxattr(&file, "user.note", b"v", XattrFlags::empty()).is_err() {
        println!("skipped: extended attributes, which this file system lacks");
        return;
    }
    let how = ScanOptions { xattrs: XattrScope::Without, ..ScanOptions::default() };
    let cast = TestCast::scanned(&[&place.src()], 4096, &how);
    cast.receive(&place.to(), options()).expect("received");
    assert_eq!(attribute(&place.to().join("src/a"), "user.note"), None);
    place.assert_published();
}

#[test]
fn users_attributes_arrive_and_times_to_the_nanosecond() {
    let place = Place::new();
    place.write("d/a", b"contents");
    let file = File::open(place.src().join("d/a")).expect("open");
    let directory = File::open(place.src().join("d")).expect("open");
    let set = |file: &File| rustix::fs::fsetxattr(file, "user.note", b"\0v", XattrFlags::empty());
    if set(&file).is_err() || set(&directory).is_err() {
        println!("skipped: extended attributes, which this file system lacks");
        return;
    }
    let early = std::time::UNIX_EPOCH - Duration::new(3, 1);
    file.set_modified(early).expect("its time");
    place.cast().receive(&place.to(), options()).expect("received");
    place.assert_published();
    for path in ["src/d/a", "src/d"] {
        let mut value = [0; 2];
        rustix::fs::getxattr(place.to().join(path), "user.note", &mut value).expect("there");
        assert_eq!(&value, b"\0v");
    }
}

#[test]
fn a_large_sparse_file_takes_seconds_and_stays_sparse() {
    const SIZE: u64 = 20 << 30;
    let place = Place::new();
    let mut file = File::create(place.src().join("sparse")).expect("made");
    file.write_all(&[1; 1 << 20]).expect("written");
    for at in [7 << 30, SIZE - (2 << 20)] {
        file.write_all_at(&[2; 2 << 20], at).expect("written");
    }
    let started = Instant::now();
    let cast = TestCast::of(&[&place.src()], 1 << 20);
    assert_eq!(cast.chunks.len(), 6, "5 MiB and the manifest");
    cast.receive(&place.to(), options()).expect("received");
    println!("20 GiB with 5 MiB of data: {:?}", started.elapsed());
    let copy = File::open(place.to().join("src/sparse")).expect("open");
    let metadata = copy.metadata().expect("metadata");
    assert_eq!(metadata.len(), SIZE);
    assert!(metadata.blocks() * 512 < 6 << 20, "{} blocks", metadata.blocks());
    let mut bytes = [0; 2];
    for (at, expected) in [(0, [1, 1]), ((7 << 30) - 1, [0, 2]), (SIZE - 2, [2, 2])] {
        copy.read_exact_at(&mut bytes, at).expect("read");
        assert_eq!(bytes, expected, "at {at}");
    }
}

#[test]
fn ten_thousand_small_files_take_few_chunks() {
    let place = Place::new();
    for directory in 0..100_u8 {
        fs::create_dir(place.src().join(format!("{directory}"))).expect("made");
        for file in 0..100_u8 {
            let bytes = vec![directory; usize::from(file)];
            fs::write(place.src().join(format!("{directory}/{file}")), bytes).expect("written");
        }
    }
    let started = Instant::now();
    let cast = TestCast::of(&[&place.src()], 1 << 20);
    assert!(cast.chunks.len() <= 2, "{}", cast.chunks.len());
    let scanned = started.elapsed();
    cast.receive(&place.to(), options()).expect("received");
    println!("10,000 files: {scanned:?} to read, {:?} in all", started.elapsed());
    place.assert_published();
}

#[test]
fn what_is_held_is_read_back_before_and_after_publishing() {
    let place = Place::new();
    place.write("a", &[1; 10_000]);
    place.write("b/c", &[2; 5_000]);
    let cast = place.cast();
    let receiver = cast.begin(&place.to(), options());
    let (reader, mut bytes) = (receiver.read_back(), Vec::new());
    let read = |bytes: &mut Vec<u8>, chunk: usize| {
        reader.read_chunk(u32::try_from(chunk).expect("few"), bytes).expect("held");
        assert_eq!(bytes, &cast.chunks[chunk], "{chunk}");
    };
    for chunk in (0..cast.chunks.len()).rev() {
        let index = u32::try_from(chunk).expect("few");
        let absent = reader.read_chunk(index, &mut bytes);
        assert!(matches!(absent, Err(ReceiveError::NotHeld { .. })), "{absent:?}");
        cast.put(&receiver, chunk).expect("put");
        (chunk..cast.chunks.len()).for_each(|held| read(&mut bytes, held));
    }
    receiver.publish().expect("published");
    (0..cast.chunks.len()).for_each(|chunk| read(&mut bytes, chunk));
    drop(receiver);
    (0..cast.chunks.len()).for_each(|chunk| read(&mut bytes, chunk));
    fs::write(place.to().join("src/a"), "short").expect("written");
    let changed = reader.read_chunk(1, &mut bytes);
    assert!(matches!(changed, Err(ReceiveError::Disturbed { .. })), "{changed:?}");
}

/// Root may open any file, but none that is gone: the receiver has kept it open.
#[test]
fn a_file_of_mode_0_is_read_back_after_publishing() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can read a file of mode 0 at the source");
        return;
    }
    let place = Place::new();
    place.write("closed", &[1; 5_000]);
    fs::set_permissions(place.src().join("closed"), Permissions::from_mode(0o000))
        .expect("changed");
    let cast = place.cast();
    let receiver = cast.begin(&place.to(), options());
    cast.put_all(&receiver, 1).expect("put");
    receiver.publish().expect("published");
    fs::remove_file(place.to().join("src/closed")).expect("removed");
    let (reader, mut bytes) = (receiver.read_back(), Vec::new());
    for chunk in 0..cast.chunks.len() {
        let index = u32::try_from(chunk).expect("few");
        reader.read_chunk(index, &mut bytes).expect("kept open");
        assert_eq!(bytes, cast.chunks[chunk]);
    }
}

#[test]
fn threads_put_and_read_at_once() {
    let place = Place::new();
    for name in 0..40_u8 {
        place.write(&format!("{name}"), &vec![name; 3000 * usize::from(name)]);
    }
    let cast = place.cast();
    let receiver = cast.begin(&place.to(), options());
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (cast, receiver) = (&cast, &receiver);
            scope.spawn(move || cast.put_all(receiver, seed).expect("put"));
        }
        scope.spawn(|| {
            let (reader, mut bytes) = (receiver.read_back(), Vec::new());
            while reader.bitmap().held() < reader.bitmap().chunks() {
                for (chunk, expected) in (0..).zip(&cast.chunks) {
                    match reader.read_chunk(chunk, &mut bytes) {
                        Ok(()) => assert_eq!(&bytes, expected, "{chunk}"),
                        Err(ReceiveError::NotHeld { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        });
    });
    receiver.publish().expect("published");
    place.assert_published();
}
