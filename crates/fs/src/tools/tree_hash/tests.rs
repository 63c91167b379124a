//! What a tree's hash is, worked out by hand, and what changes it.

use super::super::ToldError;
use super::{TreeHash, hash_local};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// What is changed, and how.
type Change = (&'static str, fn(&Path));

fn hash(root: &Path) -> TreeHash {
    let mut none = |error: ToldError<'_>| panic!("{error:?}");
    hash_local(root, &mut none).expect("whole")
}

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
}

/// A directory with a file, a directory and a link in it.
fn fill(root: &Path) {
    fs::create_dir_all(root.join("b")).expect("made");
    fs::write(root.join("b.txt"), "bytes").expect("written");
    symlink("b.txt", root.join("a")).expect("made");
    set(&root.join("b.txt"), 0o640);
    set(&root.join("b"), 0o750);
    set(root, 0o755);
}

#[test]
fn a_tree_s_hash_is_that_of_its_lines() {
    let place = tempfile::tempdir().expect("a directory");
    let root = place.path().join("root");
    fill(&root);
    let of = |bytes: &[u8]| blake3::hash(bytes).to_hex();
    let (target, empty, bytes) = (of(b"b.txt"), of(b""), of(b"bytes"));
    let lines = format!("l 0777 {target} a\0d 0750 {empty} b\0f 0640 {bytes} b.txt\0");
    let whole = of(format!("d 0755 {} \0", of(lines.as_bytes())).as_bytes());
    assert_eq!(hash(&root).to_string(), whole.as_str());
    let one = of(format!("f 0640 {bytes} \0").as_bytes());
    assert_eq!(hash(&root.join("b.txt")).to_string(), one.as_str(), "a name alone does not count");
}

#[test]
fn whatever_changes_in_a_tree_changes_its_hash() {
    let place = tempfile::tempdir().expect("a directory");
    let changes: [Change; 7] = [
        ("a byte", |root| fs::write(root.join("b.txt"), "bytez").expect("written")),
        ("a name", |root| fs::rename(root.join("b"), root.join("c")).expect("renamed")),
        ("rights", |root| set(&root.join("b.txt"), 0o641)),
        ("the root's rights", |root| set(root, 0o750)),
        ("a target", |root| {
            fs::remove_file(root.join("a")).expect("removed");
            symlink("b.txu", root.join("a")).expect("made");
        }),
        ("a kind", |root| {
            fs::remove_dir(root.join("b")).expect("removed");
            fs::write(root.join("b"), "").expect("written");
            set(&root.join("b"), 0o750);
        }),
        ("something more", |root| fs::write(root.join("b/new"), "").expect("written")),
    ];
    let mut seen = Vec::new();
    for (what, change) in changes {
        let root = place.path().join(what);
        fill(&root);
        seen.push(hash(&root));
        assert_eq!(seen[0], hash(&root), "the same tree elsewhere");
        change(&root);
        assert!(!seen.contains(&hash(&root)), "{what}");
        seen.push(hash(&root));
    }
}
