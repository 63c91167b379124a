//! Both halves on real files.

use super::rig::{Rig, bytes, directory};
use crate::{Answer, Change, Export, ExportError, HiddenNames, Listing, LookUp, Sizes};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

#[test]
fn what_a_directory_holds_is_known_after_asking_once() {
    let mut rig = Rig::new();
    rig.write("a.h", "int a;");
    fs::create_dir(rig.path("sub")).unwrap();
    assert!(matches!(rig.look_up("", "a.h"), LookUp::Outside), "nothing was read");
    rig.read_log();
    assert!(matches!(rig.look_up("", "a.h"), LookUp::Unknown(_)));
    let LookUp::File(attr) = rig.find("", "a.h") else { panic!() };
    let meta = fs::metadata(rig.path("a.h")).unwrap();
    assert_eq!((attr.dev, attr.ino, attr.mode), (meta.dev(), meta.ino(), meta.mode()));
    assert_eq!(attr.size, 6);
    assert_eq!(attr.mtime_ns, meta.mtime() * 1_000_000_000 + meta.mtime_nsec());
    assert_eq!(rig.look_up("", "b.h"), LookUp::Absent);
    assert!(matches!(rig.look_up("", "sub"), LookUp::Directory(_)));
    assert!(matches!(rig.look_up("sub", "c.h"), LookUp::Unknown(_)));
    assert_eq!(rig.find("sub", "c.h"), LookUp::Absent);
    assert_eq!(rig.read("", "a.h"), b"int a;");
    let counters = rig.export.counters();
    assert_eq!((counters.directories_now, counters.files_now), (2, 1));
    assert_eq!((counters.snapshots, counters.snapshots_bytes), (1, 6));
}

#[test]
fn a_submission_publishes_every_kind_of_change() {
    let mut rig = Rig::new();
    rig.write("a.h", "1");
    rig.write("b.h", "2");
    assert_eq!(rig.read("", "a.h"), b"1");
    assert_eq!(rig.submit().1, []);
    rig.write("a.h", "3");
    fs::remove_file(rig.path("b.h")).unwrap();
    rig.write("c.h", "4");
    let (_, changes) = rig.submit();
    assert_eq!(changes.len(), 3);
    assert_eq!(rig.read("", "a.h"), b"3");
    assert_eq!(rig.look_up("", "b.h"), LookUp::Absent);
    assert_eq!(rig.read("", "c.h"), b"4");
    let new = rig.path("new");
    fs::write(&new, "5").unwrap();
    fs::rename(new, rig.path("a.h")).unwrap();
    rig.submit();
    assert_eq!(rig.read("", "a.h"), b"5");
    assert_eq!(rig.look_up("", "new"), LookUp::Absent);
}

#[test]
fn a_directory_that_moves_takes_everything_along() {
    let mut rig = Rig::new();
    fs::create_dir_all(rig.path("a/b")).unwrap();
    rig.write("a/b/x.h", "x");
    assert_eq!(rig.read("a/b", "x.h"), b"x");
    fs::rename(rig.path("a"), rig.path("z")).unwrap();
    let (_, changes) = rig.submit();
    assert!(changes.iter().any(|change| matches!(change, Change::Beneath { .. })), "{changes:?}");
    assert_eq!(rig.look_up("", "a"), LookUp::Absent);
    assert_eq!(rig.read("z/b", "x.h"), b"x");
    fs::create_dir_all(rig.path("a/b")).unwrap();
    rig.submit();
    assert_eq!(rig.find("a/b", "x.h"), LookUp::Absent);
    rig.write("z/b/x.h", "y");
    rig.submit();
    assert_eq!(rig.read("z/b", "x.h"), b"y");
}

#[test]
fn the_same_looks_are_not_the_same_contents() {
    let mut rig = Rig::new();
    for round in 0..50 {
        rig.write("a.h", format!("{round:04}"));
        rig.submit();
        assert_eq!(rig.read("", "a.h"), format!("{round:04}").as_bytes());
    }
}

#[test]
fn hidden_names_are_withheld() {
    let mut rig = Rig::new();
    rig.write(".secret", "key");
    fs::create_dir(rig.path(".ssh")).unwrap();
    rig.write(".ssh/id", "key");
    assert_eq!(rig.find("", ".secret"), LookUp::Withheld);
    let root = rig.path("");
    assert_eq!(rig.find("", "x"), LookUp::Absent);
    let shown = rig.replica.list(bytes(&root));
    assert_eq!(shown, Listing::Names(vec![]));
    for path in [".ssh", ".secret", ".ssh/id"] {
        let path = rig.path(path);
        assert_eq!(rig.export.list(bytes(&path)), Answer::Withheld);
        assert_eq!(rig.export.offer(bytes(&path), 1), Answer::Withheld);
    }
    let length = rig.export.submit().length;
    rig.write(".secret", "other key");
    assert_eq!(rig.export.submit().length, length, "nothing is reported about it");
}

#[test]
fn hidden_names_are_exported_where_the_caller_says_so() {
    let mut rig = Rig::with(HiddenNames::Exported);
    rig.write(".config", "one");
    fs::create_dir_all(rig.path(".git/objects")).unwrap();
    assert_eq!(rig.read("", ".config"), b"one");
    assert_eq!(rig.find("", ".gitignore"), LookUp::Absent);
    assert!(matches!(rig.find(".git", "objects"), LookUp::Directory(_)));
    let Listing::Names(names) = rig.replica.list(bytes(&rig.path(""))) else { panic!("listed") };
    assert_eq!(
        names.iter().map(|(name, _)| &**name).collect::<Vec<_>>(),
        [&b".config"[..], b".git"]
    );
    rig.write(".config", "other");
    rig.write(".gitignore", "");
    rig.submit();
    assert_eq!(rig.read("", ".config"), b"other");
    assert!(matches!(rig.look_up("", ".gitignore"), LookUp::File(_)), "it is watched");
    let mut rig =
        Rig { export: Export::new(super::rig::SMALL, HiddenNames::Exported).unwrap(), ..rig };
    let below = rig.path(".git");
    assert!(rig.export.allow(&below).unwrap(), "a root may lie below such a name");
}

#[test]
fn nothing_outside_the_roots_is_answered() {
    let mut rig = Rig::new();
    fs::create_dir(rig.path("in")).unwrap();
    symlink("/etc", rig.path("in/etc")).unwrap();
    symlink("/etc/passwd", rig.path("in/passwd")).unwrap();
    symlink("../../..", rig.path("in/up")).unwrap();
    let LookUp::Symlink { target, .. } = rig.find("in", "etc") else { panic!() };
    assert_eq!(&*target, b"/etc");
    rig.find("in", "passwd");
    for path in ["in/etc", "in/passwd", "in/up", "in/../../x", "in/etc/passwd"] {
        let path = rig.path("").join(path);
        for answer in [rig.export.list(bytes(&path)), rig.export.offer(bytes(&path), 1)] {
            let refused = matches!(answer, Answer::Withheld | Answer::Changed(_));
            assert!(refused, "{answer:?} {}", path.display());
        }
    }
    for path in ["/etc", "/etc/passwd", "/", "", "etc", "/etc/", "//etc"] {
        assert_eq!(rig.export.list(path.as_bytes()), Answer::Withheld, "{path}");
        assert_eq!(rig.export.offer(path.as_bytes(), 0), Answer::Withheld, "{path}");
    }
    assert_eq!(rig.replica.look_up(b"/etc", b"passwd"), LookUp::Outside);
    assert_eq!(rig.replica.look_up(b"/", b"etc"), LookUp::Outside);
}

#[test]
fn names_are_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let mut rig = Rig::new();
    for name in [&b"new\nline"[..], b"\xff\xfe.h", b"a b\"'\\", b"a."] {
        let path = rig.path("").join(std::ffi::OsStr::from_bytes(name));
        fs::write(&path, name).unwrap();
        rig.submit();
        assert_eq!(rig.read_at(&path), name);
    }
}

#[test]
fn what_leads_to_a_root_is_seen_from_above() {
    let outside = directory();
    let base = outside.path().canonicalize().unwrap();
    fs::create_dir_all(base.join("real/deep/src")).unwrap();
    fs::create_dir_all(base.join("real/private")).unwrap();
    fs::write(base.join("real/deep/src/x.c"), "x").unwrap();
    symlink("real/deep", base.join("link")).unwrap();
    let mut rig = Rig::new();
    assert!(rig.export.allow(&base.join("link/src")).unwrap());
    assert!(!rig.export.allow(&base.join("link/src")).unwrap());
    assert!(!rig.export.allow(&base.join("real/deep/src")).unwrap(), "the same place");
    rig.read_log();
    let LookUp::Symlink { target, .. } = rig.replica.look_up(bytes(&base), b"link") else {
        panic!()
    };
    assert_eq!(&*target, b"real/deep");
    let real = base.join("real");
    assert!(matches!(rig.replica.look_up(bytes(&base), b"real"), LookUp::Directory(_)));
    assert!(matches!(rig.replica.look_up(bytes(&real), b"deep"), LookUp::Directory(_)));
    assert_eq!(rig.replica.look_up(bytes(&real), b"private"), LookUp::Outside);
    let Listing::Names(names) = rig.replica.list(bytes(&real)) else { panic!() };
    assert_eq!(names.len(), 1);
    assert_eq!(rig.read_at(&base.join("real/deep/src/x.c")), b"x");
    fs::remove_file(base.join("link")).unwrap();
    symlink("real/private", base.join("link")).unwrap();
    rig.submit();
    assert_eq!(rig.replica.look_up(bytes(&base), b"link"), LookUp::Outside, "it is another");
}

#[test]
fn roots_that_show_too_much_are_refused() {
    let mut rig = Rig::new();
    rig.write("file", "");
    fs::create_dir_all(rig.path("sub/.hidden/x")).unwrap();
    symlink(".hidden", rig.path("sub/shown")).unwrap();
    symlink("loop", rig.path("loop")).unwrap();
    let home = std::env::var("HOME").unwrap();
    for path in ["/home".to_owned(), ["", "home", "anybody"].join("/")] {
        let refused = rig.export.roots.open(&path.as_bytes().into()).unwrap_err();
        assert!(matches!(refused, ExportError::TooWide { .. }), "{refused}");
    }
    let mut refusal = |path: &Path| rig.export.allow(path).unwrap_err();
    for path in ["/", "/..", &home, "/proc/..", &format!("{home}/..")] {
        let error = refusal(Path::new(path));
        assert!(matches!(error, ExportError::TooWide { .. }), "{path}: {error}");
    }
    assert!(matches!(refusal(Path::new("/tmp")), ExportError::Everybodys { .. }));
    assert!(matches!(refusal(Path::new("sub")), ExportError::Relative { .. }));
    assert!(matches!(
        refusal(Path::new("/proc/self/fd")),
        ExportError::Refused { .. } | ExportError::Pseudo { .. }
    ));
    assert!(matches!(refusal(Path::new("/proc/sys")), ExportError::Pseudo { .. }));
    let root = rig.path("");
    fs::create_dir(root.join("shared")).unwrap();
    fs::set_permissions(root.join("shared"), fs::Permissions::from_mode(0o1777)).unwrap();
    let mut rig =
        Rig { export: Export::new(super::rig::SMALL, HiddenNames::Withheld).unwrap(), ..rig };
    let refused = rig.export.allow(&root.join("shared")).unwrap_err();
    assert!(matches!(refused, ExportError::Everybodys { .. }), "{refused}");
    rig.export.allow(&root).unwrap();
    let mut refusal = |path: &str| rig.export.allow(&root.join(path)).unwrap_err();
    assert!(matches!(refusal("sub/.hidden"), ExportError::Hidden { .. }));
    assert!(matches!(refusal("sub/.hidden/x"), ExportError::Hidden { .. }));
    assert!(matches!(refusal("sub/shown/x"), ExportError::Hidden { .. }));
    assert!(matches!(refusal("file"), ExportError::NotADirectory { .. }));
    assert!(matches!(refusal("loop"), ExportError::Refused { .. }));
    assert!(!rig.export.allow(&root.join("nowhere")).unwrap(), "its parent's listing tells");
    assert!(!rig.export.allow(&root.join("sub/../sub")).unwrap(), "it is beneath a root");
}

#[test]
fn where_nothing_is_nothing_is_shown_to_be_until_there_is_something() {
    let mut rig = Rig::new();
    let outside = directory();
    let base = outside.path().canonicalize().unwrap();
    let deep = base.join("a/b/include");
    assert!(rig.export.allow(&deep).unwrap());
    assert!(!rig.export.allow(&deep).unwrap(), "it is known");
    rig.submit();
    assert_eq!(rig.replica.look_up(bytes(&base), b"a"), LookUp::Absent);
    assert_eq!(rig.replica.look_up(bytes(&base), b"z"), LookUp::Outside);
    // The job of another client, which does not name the path.
    fs::create_dir(base.join("a")).unwrap();
    let (_, changes) = rig.submit();
    let dir: std::sync::Arc<[u8]> = bytes(&base).into();
    assert!(changes.contains(&Change::Name { dir, name: b"a"[..].into() }));
    assert_eq!(rig.replica.look_up(bytes(&base), b"a"), LookUp::Outside);
    assert!(rig.export.allow(&deep).unwrap());
    rig.submit();
    assert!(matches!(rig.replica.look_up(bytes(&base), b"a"), LookUp::Directory(_)));
    assert_eq!(rig.replica.look_up(bytes(&base.join("a")), b"b"), LookUp::Absent);
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("x.h"), "1").unwrap();
    assert!(rig.export.allow(&deep).unwrap());
    assert_eq!(rig.read_at(&deep.join("x.h")), b"1");
    // A path that a directory cannot contain must not be a negative entry for ever.
    fs::remove_dir_all(base.join("a")).unwrap();
    rig.submit();
    assert!(rig.export.allow(&deep).unwrap());
    rig.submit();
    assert_eq!(rig.replica.look_up(bytes(&base), b"a"), LookUp::Absent);
}

#[test]
fn a_root_that_goes_is_given_up() {
    let mut rig = Rig::new();
    fs::create_dir(rig.path("deep")).unwrap();
    let outside = directory();
    let base = outside.path().canonicalize().unwrap();
    fs::create_dir_all(base.join("a/b/c")).unwrap();
    fs::write(base.join("a/b/c/x"), "1").unwrap();
    rig.export.allow(&base.join("a/b/c")).unwrap();
    assert_eq!(rig.read_at(&base.join("a/b/c/x")), b"1");
    fs::rename(base.join("a"), base.join("z")).unwrap();
    rig.submit();
    assert_eq!(rig.replica.look_up(bytes(&base), b"a"), LookUp::Outside);
    fs::create_dir_all(base.join("a/b/c")).unwrap();
    assert!(rig.export.allow(&base.join("a/b/c")).unwrap());
    rig.submit();
    assert_eq!(rig.find_at(&base.join("a/b/c"), b"x"), LookUp::Absent);
}

#[test]
fn a_root_that_is_made_anew_is_another() {
    let mut rig = Rig::new();
    let outside = directory();
    let root = outside.path().canonicalize().unwrap().join("project");
    for round in 0..8 {
        // File systems reuse the inode number of a removed file.
        let text = format!("round {round}");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("x"), &text).unwrap();
        rig.export.refresh();
        rig.export.allow(&root).unwrap();
        rig.submit();
        assert_eq!(rig.read_at(&root.join("x")), text.as_bytes());
        fs::remove_dir_all(&root).unwrap();
    }
}

#[test]
fn special_and_unreadable_files() {
    let mut rig = Rig::new();
    let _socket = std::os::unix::net::UnixListener::bind(rig.path("socket")).unwrap();
    assert_eq!(rig.find("", "socket"), LookUp::Withheld);
    let path = rig.path("socket");
    assert_eq!(rig.export.offer(bytes(&path), 1), Answer::Withheld);
    rig.write("far-future", "x");
    let year_2300 = std::time::UNIX_EPOCH + std::time::Duration::from_secs(10_413_792_000);
    fs::File::open(rig.path("far-future")).unwrap().set_modified(year_2300).unwrap();
    rig.submit();
    assert_eq!(rig.find("", "far-future"), LookUp::Withheld);
    rig.write("unreadable", "x");
    fs::set_permissions(rig.path("unreadable"), fs::Permissions::from_mode(0o000)).unwrap();
    rig.submit();
    let version = rig.version("", "unreadable");
    let path = rig.path("unreadable");
    let answer = rig.export.offer(bytes(&path), version);
    let root = rustix_is_root();
    assert!(root || answer == Answer::Failed(13), "{answer:?}");
    fs::write(rig.path("large"), vec![0; (1 << 18) + 1]).unwrap();
    rig.submit();
    let version = rig.version("", "large");
    let path = rig.path("large");
    let answer = rig.export.offer(bytes(&path), version);
    assert_eq!(answer, Answer::TooLarge { len: (1 << 18) + 1, len_max: 1 << 18 });
}

/// To root every file is readable.
fn rustix_is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn sizes_are_checked() {
    for sizes in [Sizes { ring: 1, log: 1 << 20 }, Sizes { ring: 1 << 20, log: usize::MAX }] {
        assert!(matches!(
            Export::new(sizes, HiddenNames::Withheld),
            Err(ExportError::Sizes { .. })
        ));
    }
    let sizes = Sizes { ring: usize::MAX, log: 1 << 20 };
    assert!(Export::new(sizes, HiddenNames::Withheld).is_err());
}

#[test]
fn a_link_within_a_root_may_lead_to_another_root_later() {
    let mut rig = Rig::new();
    let outside = directory();
    let base = outside.path().canonicalize().unwrap();
    for name in ["one", "two"] {
        fs::create_dir(base.join(name)).unwrap();
        fs::write(base.join(name).join("x"), name).unwrap();
        let link = rig.path("current");
        drop(fs::remove_file(&link));
        symlink(base.join(name), &link).unwrap();
        assert!(rig.export.allow(&link).unwrap());
        assert!(!rig.export.allow(&link).unwrap());
        assert_eq!(rig.read_at(&base.join(name).join("x")), name.as_bytes());
    }
}

#[test]
fn a_directory_with_other_permissions_is_listed_again() {
    let mut rig = Rig::new();
    fs::create_dir_all(rig.path("sub/inc")).unwrap();
    rig.write("sub/inc/v.h", "v");
    assert_eq!(rig.read("sub/inc", "v.h"), b"v");
    let set = |rig: &Rig, mode: u32| {
        fs::set_permissions(rig.path("sub"), fs::Permissions::from_mode(mode)).unwrap();
    };
    for mode in [0, 0o755] {
        set(&rig, mode);
        rig.submit();
        // It can be opened by root only; everybody is asked again.
        let found = rig.look_up("sub/inc", "v.h");
        assert!(matches!(found, LookUp::Unknown(_)), "{mode:o}: {found:?}");
        let LookUp::Directory(attr) = rig.look_up("", "sub") else { panic!("{mode:o}") };
        assert_eq!(attr.mode & 0o777, mode);
    }
    assert_eq!(rig.read("sub/inc", "v.h"), b"v");
    set(&rig, 0o755);
    assert_eq!(rig.submit().1, [], "the same permissions");
    // The root has no listing above it.
    fs::set_permissions(rig.path(""), fs::Permissions::from_mode(0o711)).unwrap();
    rig.submit();
    assert!(matches!(rig.look_up("sub/inc", "v.h"), LookUp::Unknown(_)));
}
