//! Derivation against another implementation's figures; files that are refused, and files that
//! several make at once.

use super::*;
use crate::identity::{Identity, NodeId};
use crate::revoked::{Revoked, RevokedError};
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;

/// A directory of its own, gone when the test is over.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let mut random = [0; 8];
        secret::fill_random(&mut random).expect("random numbers");
        let name = format!("outboard-keys-{:016x}", u64::from_be_bytes(random));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a directory");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file with these contents and that mode.
    fn put(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
        path
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("it is there");
        entries
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn name(text: &str) -> ServiceName {
    text.parse().expect("a name")
}

const COUNTING: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
/// HKDF-SHA256 of the 32 bytes that count up from 0, by Python's hmac module.
const COMPILE: &str = "09d140d5695ef08f8a76304111cf1d12a392f170cd25b4b9f3db37229222e69c";

fn counting() -> ClusterKey {
    ClusterKey(Secret::parse(COUNTING).expect("64 digits"))
}

#[test]
fn a_service_key_comes_back_from_its_line_and_no_other_key_does() {
    let cluster = ClusterKey::generate().expect("random numbers");
    let key = cluster.service(&name("cast"));
    let back = ServiceKey::from_line(&key.to_line()).expect("its own line");
    assert_eq!((back.name(), back.bytes()), (key.name(), key.bytes()));
    let other = key.to_line().replace("service", "cluster");
    assert!(ServiceKey::from_line(&other).is_none());
    assert!(ServiceKey::from_line(&format!("{} more", &*key.to_line())).is_none());
}

#[test]
fn a_services_key_is_hkdf_of_the_clusters() {
    let line = counting().service(&name("compile")).to_line();
    assert_eq!(*line, format!("outboard-service-key-1 compile {COMPILE}"));
}

#[test]
fn services_and_clusters_have_keys_of_their_own() {
    let (cluster, other) = (counting(), ClusterKey::generate().expect("random numbers"));
    let keys = [&cluster, &other].into_iter().flat_map(|cluster| {
        ["compile", "cast", "c", "compil"].map(|it| *cluster.service(&name(it)).bytes())
    });
    assert_eq!(keys.collect::<BTreeSet<_>>().len(), 8);
}

#[test]
fn nothing_printed_shows_a_key() {
    let service = counting().service(&name("compile"));
    let printed = format!("{:?} {service:?}", counting());
    assert!(printed.contains("compile"), "{printed}");
    for digits in [&COUNTING[..8], &COMPILE[..8], "0, 1, 2", "9, 209"] {
        assert!(!printed.contains(digits), "{printed}");
    }
}

#[test]
fn the_first_use_makes_the_file_and_the_second_reads_it() {
    let directory = Directory::new();
    let path = directory.file("new/key");
    let made = ClusterKey::load_or_create(&path).expect("it can be made");
    let read = ClusterKey::load_or_create(&path).expect("it can be read");
    assert_eq!(made.0.bytes(), read.0.bytes());

    let text = fs::read_to_string(&path).expect("text");
    let digits = text.strip_prefix("outboard-cluster-key-1 ").expect("its label");
    assert_eq!(digits.len(), 65, "64 digits and the line's end");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&directory.file("new")), 0o700);
}

#[test]
fn of_many_first_uses_at_once_all_get_one_key() {
    let directory = Directory::new();
    let path = directory.file("key");
    let start = Barrier::new(16);
    let keys: BTreeSet<[u8; 32]> = thread::scope(|scope| {
        let first_use = || {
            start.wait();
            *ClusterKey::load_or_create(&path).expect("a key").0.bytes()
        };
        let users: Vec<_> = (0..16).map(|_| scope.spawn(first_use)).collect();
        users.into_iter().map(|user| user.join().expect("no panic")).collect()
    });
    assert_eq!(keys.len(), 1);
    assert_eq!(directory.names(), ["key"], "nothing temporary is left");
}

#[test]
fn an_exported_key_is_read_back_and_nothing_is_overwritten() {
    let directory = Directory::new();
    let path = directory.file("compile.key");
    let key = counting().service(&name("compile"));
    key.export(&path).expect("it can be made");
    let read = ServiceKey::load(&path).expect("it can be read");
    assert_eq!((read.name(), read.bytes()), (key.name(), key.bytes()));

    let again = counting().service(&name("cast")).export(&path);
    assert!(matches!(again, Err(KeyFileError::Exists { .. })), "{again:?}");
    assert_eq!(ServiceKey::load(&path).expect("as before").name(), key.name());
    assert_eq!(directory.names(), ["compile.key"]);
}

#[test]
fn an_identity_stays_the_same() {
    let directory = Directory::new();
    let path = directory.file("identity");
    let made = Identity::load_or_create(&path).expect("it can be made");
    assert_eq!(Identity::load_or_create(&path).expect("it can be read").node(), made.node());
    assert_eq!(Identity::load(&path).expect("it can be read").node(), made.node());
    assert_ne!(Identity::generate().expect("random numbers").node(), made.node());
}

/// The public key of private bytes that count up from 0 is `8f40c5ad…285f`, by RFC 7748 §5
/// written out in Python; its BLAKE3 hash is the Python package's.
#[test]
fn an_identity_is_the_hash_of_its_public_key() {
    let directory = Directory::new();
    let path = directory.put("identity", &format!("outboard-identity-1 {COUNTING}\n"), 0o600);
    let node = Identity::load(&path).expect("it can be read").node();
    assert_eq!(node.to_string(), "c3309364d8d884a9dd60de78c767d361");
}

#[test]
fn a_file_with_rights_for_others_is_refused() {
    let directory = Directory::new();
    let text = format!("outboard-cluster-key-1 {COUNTING}\n");
    for mode in [0o600, 0o400, 0o700] {
        let path = directory.put("key", &text, mode);
        assert_eq!(ClusterKey::load(&path).expect("its own").0.bytes(), counting().0.bytes());
        fs::remove_file(path).expect("it is ours");
    }
    for mode in [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o666] {
        let path = directory.put("key", &text, mode);
        match ClusterKey::load(&path) {
            Err(error @ KeyFileError::Exposed { .. }) => {
                let message = error.to_string();
                assert!(message.contains(&format!("{mode:03o}")), "{message}");
                assert!(message.contains("chmod 600"), "{message}");
            }
            other => panic!("{mode:o} gives {other:?}"),
        }
        let kept = ClusterKey::load_or_create(&path);
        assert!(matches!(kept, Err(KeyFileError::Exposed { .. })), "{kept:?}");
    }
}

#[test]
fn a_file_of_somebody_else_is_refused() {
    let directory = Directory::new();
    let path = directory.put("key", &format!("outboard-cluster-key-1 {COUNTING}\n"), 0o600);
    // Only root can give files away, and reads whatever is anybody's.
    if std::os::unix::fs::chown(&path, Some(1), None).is_err() {
        return;
    }
    let refused = ClusterKey::load(&path);
    assert!(matches!(refused, Err(KeyFileError::Owner { owner: 1, .. })), "{refused:?}");
}

#[test]
fn what_is_no_key_file_is_refused_and_not_shown() {
    let directory = Directory::new();
    let cluster = "outboard-cluster-key-1";
    let cases = [
        (String::new(), None),
        (COUNTING.to_owned(), None),
        (format!("outboard-cluster-key-2 {COUNTING}"), None),
        (format!("{cluster} {}", &COUNTING[1..]), Some(Holding::ClusterKey)),
        (format!("{cluster} {COUNTING}0"), Some(Holding::ClusterKey)),
        (format!("{cluster}  {COUNTING}"), Some(Holding::ClusterKey)),
        (format!("{cluster} {COUNTING}\n{COUNTING}"), Some(Holding::ClusterKey)),
        (format!("{cluster} {}", COUNTING.replace('0', "x")), Some(Holding::ClusterKey)),
        (format!("outboard-service-key-1 compile {COUNTING}"), Some(Holding::ServiceKey)),
        (format!("outboard-identity-1 {COUNTING}"), Some(Holding::Identity)),
    ];
    for (text, holding) in cases {
        let path = directory.put("key", &text, 0o600);
        match ClusterKey::load(&path) {
            Err(error @ KeyFileError::Format { expected: Holding::ClusterKey, found, .. }) => {
                assert_eq!(found, holding, "{text}");
                assert!(!error.to_string().contains("0203"), "{error}");
            }
            other => panic!("{text:?} gives {other:?}"),
        }
    }
}

#[test]
fn a_file_that_only_starts_like_a_key_is_refused() {
    let directory = Directory::new();
    let text = format!("outboard-cluster-key-1 {COUNTING}{}", " ".repeat(2000) + "x");
    let refused = ClusterKey::load(&directory.put("key", &text, 0o600));
    assert!(matches!(refused, Err(KeyFileError::TooLong { len_max: 1024, .. })), "{refused:?}");
}

#[test]
fn a_service_key_file_names_its_service() {
    let directory = Directory::new();
    for line in ["", COUNTING, &format!("Compile {COUNTING}"), &format!("a b {COUNTING}")] {
        let path = directory.put("key", &format!("outboard-service-key-1 {line}"), 0o600);
        let refused = ServiceKey::load(&path);
        assert!(matches!(refused, Err(KeyFileError::Format { .. })), "{line:?} gives {refused:?}");
    }
}

#[test]
fn what_is_no_file_is_refused() {
    let directory = Directory::new();
    let missing = ClusterKey::load(&directory.file("key"));
    assert!(matches!(missing, Err(KeyFileError::Missing { .. })), "{missing:?}");
    let not_a_file = ClusterKey::load(&directory.0);
    assert!(matches!(not_a_file, Err(KeyFileError::NotAFile { .. })), "{not_a_file:?}");
    let nowhere = ClusterKey::load_or_create(Path::new("/dev/null/key"));
    assert!(matches!(nowhere, Err(KeyFileError::Write { .. })), "{nowhere:?}");
    // A link to nothing is not followed to make a file elsewhere.
    symlink(directory.file("elsewhere"), directory.file("link")).expect("a link");
    let dangling = ClusterKey::load_or_create(&directory.file("link"));
    assert!(matches!(dangling, Err(KeyFileError::Missing { .. })), "{dangling:?}");
    assert_eq!(directory.names(), ["link"]);
}

#[test]
fn a_list_of_revoked_nodes_grows_in_its_file() {
    let directory = Directory::new();
    let path = directory.put("revoked", "# nobody yet", 0o644);
    let nodes = [1, 2, 3].map(|it| NodeId::of(&[it; 32]));
    for node in &nodes[..2] {
        Revoked::append(&path, *node, "lost\nand not found").expect("it is ours");
    }
    let list = Revoked::load(&path).expect("a list");
    assert_eq!(nodes.map(|node| list.contains(node)), [true, true, false]);

    let fresh = directory.file("fresh");
    Revoked::append(&fresh, nodes[2], "").expect("it can be made");
    assert!(Revoked::load(&fresh).expect("a list").contains(nodes[2]));
}

#[test]
fn a_list_that_is_missing_spoilt_or_open_to_others_is_refused() {
    let directory = Directory::new();
    let missing = Revoked::load(&directory.file("none"));
    let is_missing = matches!(missing, Err(RevokedError::File(KeyFileError::Missing { .. })));
    assert!(is_missing, "{missing:?}");
    let open = Revoked::load(&directory.put("open", "", 0o664));
    let is_exposed = matches!(open, Err(RevokedError::File(KeyFileError::Exposed { .. })));
    assert!(is_exposed, "{open:?}");
    let binary = directory.file("binary");
    fs::write(&binary, [0xff, 0xfe]).expect("a file");
    let spoilt = Revoked::load(&binary);
    assert!(matches!(spoilt, Err(RevokedError::NotText { .. })), "{spoilt:?}");
}
