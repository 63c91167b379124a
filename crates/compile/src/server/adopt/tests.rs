//! Adopting compilers from honest and dishonest clients, without a network.

use super::*;
use crate::toolchain::{CompilerFamily, Hash, PartRole, PartSymlink};
use outboard_cluster::hub::Exposed;
use outboard_cluster::workers::Workers;
use outboard_store::Store;
use std::fs;
use std::sync::Arc;
use tempfile::TempDir;

/// A toolchain of these files, as a client describes it.
fn toolchain(files: &[(&str, &[u8])], links: &[(&str, &str)]) -> Toolchain {
    let part = |(path, bytes): &(&str, &[u8])| Part {
        path: path.into(),
        mode: 0o755,
        size: bytes.len() as u64,
        hash: Hash(*blake3::hash(bytes).as_bytes()),
        role: PartRole::Driver,
    };
    let link =
        |(path, target): &(&str, &str)| PartSymlink { path: path.into(), target: target.into() };
    let parts: Vec<_> = files.iter().map(part).collect();
    Toolchain {
        name: files[0].0.into(),
        driver: files[0].0.into(),
        kind: CompilerFamily::Gcc,
        hash: hash_of(&parts),
        parts,
        links: links.iter().map(link).collect(),
        install_dirs: Vec::new(),
        probes_absent: Vec::new(),
    }
}

/// Bytes of one read.
const PIECE: usize = 4 << 20;

struct Lab {
    adoptions: Adoptions,
    programs: Programs,
    store: Arc<Store>,
    disk: Workers,
    contents: TempDir,
}

impl Lab {
    fn new() -> Self {
        let contents = tempfile::tempdir().expect("a directory");
        let store = Store::open(contents.path(), 64 << 20).expect("a store");
        let (programs, adoptions) = (Programs::none(), Adoptions::new(true));
        let (store, disk) = (Arc::new(store), Workers::new("disk", 1));
        Self { adoptions, programs, store, disk, contents }
    }

    /// Plays the threads; returns the next range to read.
    fn work(&mut self) -> Option<RemoteRange> {
        let mut next = None;
        while let Some(work) = self.adoptions.poll_work() {
            let done = work.run(&self.store, &self.disk);
            next = self.adoptions.handle_work(done, &self.programs).or(next);
        }
        next
    }

    /// Begins to fetch a compiler, up to the first range of its first part.
    fn offered(&mut self, told: &Toolchain) -> Option<RemoteRange> {
        let hash = told.hash.0;
        assert!(self.adoptions.want(hash));
        let bytes = postcard::to_stdvec(told).expect("a description");
        self.adoptions.described(hash, &bytes, &self.programs);
        self.work();
        self.adoptions.offered(Some(exposed(told.parts[0].size)))
    }

    /// Files in the store that are not complete.
    fn unfinished(&self) -> Vec<u64> {
        let at = fs::read_dir(self.contents.path().join("00")).expect("a directory");
        let entries = at.map(|entry| entry.expect("an entry"));
        let hidden = entries.filter(|entry| entry.file_name().as_encoded_bytes()[0] == b'.');
        hidden.filter_map(|entry| Some(entry.metadata().ok()?.len())).collect()
    }

    /// Plays a client that has this compiler and these files; returns how many it exposes.
    fn serve(&mut self, wanted: Digest, told: &Toolchain, files: &[&[u8]]) -> usize {
        let mut handed_out = 0;
        self.adoptions.want(wanted);
        while let Some(message) = {
            self.work();
            self.adoptions.poll()
        } {
            match message {
                ToClient::Describe { toolchain } => {
                    let bytes = postcard::to_stdvec(told).expect("a description");
                    self.adoptions.described(toolchain, &bytes, &self.programs);
                }
                ToClient::NeedPart { part, .. } => {
                    handed_out += 1;
                    let bytes = files[part as usize];
                    let mut piece = self.adoptions.offered(Some(exposed(bytes.len() as u64)));
                    while let Some((_, at, len)) = piece {
                        let range = usize::try_from(at).expect("small")
                            ..usize::try_from(at + len).expect("small");
                        self.adoptions.read(bytes[range].to_vec());
                        piece = self.work();
                    }
                }
                _ => {}
            }
        }
        handed_out
    }
}

/// Memory as a client would expose it.
fn exposed(len: u64) -> Exposed {
    postcard::from_bytes(&postcard::to_stdvec(&(1_u32, 0_u64, len)).expect("plain")).expect("plain")
}

#[test]
fn a_compiler_comes_part_by_part_and_each_part_once() {
    let mut lab = Lab::new();
    let large = vec![7; 100_000];
    let files: [(&str, &[u8]); 3] =
        [("/c/gcc", b"driver"), ("/c/cc1", &large), ("/c/x", b"driver")];
    let client = toolchain(&files, &[("/c/cc", "gcc")]);
    let bytes = files.map(|(_, bytes)| bytes);
    let hash = client.hash.0;
    assert_eq!(lab.serve(hash, &client, &bytes), 2, "two parts are the same");
    assert_eq!(lab.adoptions.take_settled(), [hash]);
    assert_eq!(lab.adoptions.find(&hash).expect("it is here").path(), b"/c/gcc");
    let shown = lab.adoptions.shown();
    assert_eq!((shown.files.len(), shown.links.len()), (3, 1));
    // Another compiler, mostly of the same parts.
    let files: [(&str, &[u8]); 2] = [("/d/g++", b"other"), ("/c/cc1", &large)];
    let other = toolchain(&files, &[]);
    assert_eq!(lab.serve(other.hash.0, &other, &files.map(|(_, bytes)| bytes)), 1);
    assert_eq!(lab.adoptions.shown().files.len(), 4, "both at once");
}

#[test]
fn compilers_that_cannot_be_shown_at_once_take_turns() {
    let mut lab = Lab::new();
    let one = toolchain(&[("/c/gcc", b"one")], &[]);
    let two = toolchain(&[("/c/gcc", b"two")], &[]);
    lab.serve(one.hash.0, &one, &[b"one"]);
    lab.serve(two.hash.0, &two, &[b"two"]);
    assert!(lab.adoptions.find(&one.hash.0).is_none());
    assert_eq!(lab.serve(one.hash.0, &one, &[b"one"]), 0, "it is in the store");
    assert!(lab.adoptions.find(&one.hash.0).is_some() && lab.adoptions.find(&two.hash.0).is_none());
}

#[test]
fn a_lying_client_is_refused_and_not_asked_again() {
    let truth = toolchain(&[("/c/gcc", b"driver")], &[]);
    let lies = [
        toolchain(&[("/c/gcc", b"another")], &[]),
        Toolchain { hash: truth.hash, ..toolchain(&[("/c/gcc", b"another")], &[]) },
        Toolchain { driver: "/c/cc1".into(), ..truth.clone() },
        Toolchain {
            links: vec![PartSymlink { path: "/c".into(), target: "/d".into() }],
            ..truth.clone()
        },
        Toolchain {
            links: vec![PartSymlink { path: "/x/..".into(), target: "y".into() }],
            ..truth.clone()
        },
    ];
    for lie in &lies {
        let mut lab = Lab::new();
        assert_eq!(lab.serve(truth.hash.0, lie, &[b"driver"]), 0, "{lie:?}");
        assert_eq!(lab.adoptions.take_settled(), [truth.hash.0]);
        assert!(lab.adoptions.find(&truth.hash.0).is_none());
        assert!(!lab.adoptions.want(truth.hash.0));
    }
    for reserved in ["/proc/self/exe", "/dev/null", "/dev/shm/x", "c/gcc", "/"] {
        let lie = toolchain(&[(reserved, b"driver")], &[]);
        assert_eq!(Lab::new().serve(lie.hash.0, &lie, &[b"driver"]), 0, "{reserved}");
    }
}

#[test]
fn contents_with_another_hash_are_not_kept() {
    let mut lab = Lab::new();
    let client = toolchain(&[("/c/gcc", b"driver")], &[]);
    lab.serve(client.hash.0, &client, &[b"drivel"]);
    assert!(lab.adoptions.find(&client.hash.0).is_none());
    assert_eq!(lab.adoptions.take_settled(), [client.hash.0]);
}

/// A part of the greatest length, and many of them at once, must not fill the server's memory.
#[test]
fn a_part_is_on_the_disk_as_far_as_it_was_read() {
    let large: Vec<u8> = (0..=250).cycle().take(2 * PIECE + 1).collect();
    let client = toolchain(&[("/c/gcc", &large)], &[]);
    let mut lab = Lab::new();
    let mut next = lab.offered(&client);
    for number in 0..2 {
        let (at, end) = (number * PIECE, (number + 1) * PIECE);
        assert_eq!(next.map(|(_, at, len)| (at, len)), Some((at as u64, READ_MAX)));
        lab.adoptions.read(large[at..end].to_vec());
        next = lab.work();
        assert_eq!(lab.unfinished(), [end as u64]);
    }
    assert_eq!(next.map(|(_, at, len)| (at, len)), Some((2 * READ_MAX, 1)));
    lab.adoptions.read(large[2 * PIECE..].to_vec());
    assert_eq!(lab.work(), None);
    assert_eq!((lab.unfinished(), lab.adoptions.take_settled()), (vec![], vec![client.hash.0]));
    let kept = fs::read(&lab.adoptions.adopted[0].files[0]).expect("bytes");
    assert!(kept == large);
}

#[test]
fn a_compiler_that_is_given_up_leaves_no_file() {
    let large = vec![3; PIECE + 1];
    let client = toolchain(&[("/c/gcc", &large)], &[]);
    let mut lab = Lab::new();
    lab.offered(&client);
    lab.adoptions.read(large[..PIECE].to_vec());
    lab.work();
    assert_eq!(lab.unfinished().len(), 1);
    // A thread is at work on it.
    lab.adoptions.read(large[PIECE..].to_vec());
    let work = lab.adoptions.poll_work().expect("the last piece");
    lab.adoptions.refuse();
    let other = toolchain(&[("/d/gcc", b"other")], &[]);
    lab.offered(&other);
    let late = work.run(&lab.store, &lab.disk);
    assert_eq!(lab.adoptions.handle_work(late, &lab.programs), None);
    lab.adoptions.read(b"other".to_vec());
    lab.work();
    assert!(lab.adoptions.find(&other.hash.0).is_some(), "the late answer was not taken for its");
    outboard_testkit::eventually("a thread removes it", || lab.unfinished().is_empty());
}

#[test]
fn a_silent_clients_compiler_is_given_up() {
    let mut lab = Lab::new();
    assert!(lab.adoptions.want([1; 32]));
    (0..=SILENT_MAX).for_each(|_| lab.adoptions.tick());
    assert_eq!(lab.adoptions.take_settled(), [[1; 32]]);
    let mut without = Adoptions::new(false);
    assert!(!without.want([1; 32]));
}

#[test]
fn the_number_of_compilers_is_bounded() {
    let mut lab = Lab::new();
    let hash = |number: usize| *blake3::hash(&number.to_le_bytes()).as_bytes();
    // The first is being fetched and does not wait.
    for number in 0..=WAITING_MAX {
        assert!(lab.adoptions.want(hash(number)));
    }
    assert!(!lab.adoptions.want(hash(WAITING_MAX + 1)));
    assert!(lab.adoptions.want(hash(WAITING_MAX)), "it waits already");
    for number in 0..=2 * REFUSED_MAX {
        lab.adoptions.want(hash(number));
        lab.adoptions.refuse();
        assert!(lab.adoptions.refused.len() <= REFUSED_MAX);
    }
    let mut lab = Lab::new();
    for number in 0..=ADOPTED_MAX {
        let (path, bytes) = (format!("/opt/c{number}/bin/gcc"), number.to_le_bytes());
        let compiler = toolchain(&[(&path, &bytes)], &[]);
        lab.serve(compiler.hash.0, &compiler, &[&bytes]);
        assert!(lab.adoptions.find(&compiler.hash.0).is_some());
    }
    assert_eq!(lab.adoptions.adopted.len(), ADOPTED_MAX);
}

#[test]
fn a_part_that_is_installed_here_is_what_it_was() {
    let own = tempfile::tempdir().expect("a directory");
    let file = own.path().join("gcc");
    std::fs::copy("/usr/bin/gcc", &file).expect("a compiler");
    let bytes = std::fs::read(&file).expect("bytes");
    let client = toolchain(&[("/c/gcc", &bytes)], &[]);
    let mut lab = Lab::new();
    lab.programs.add(&file, std::time::Instant::now());
    assert_eq!(lab.serve(client.hash.0, &client, &[&bytes]), 0, "it is here");
    let mut late = Lab::new();
    late.programs.add(&file, std::time::Instant::now());
    std::fs::write(&file, "another").expect("replaced");
    let kept = |lab: &Lab| std::fs::read(&lab.adoptions.adopted[0].files[0]).expect("bytes");
    assert!(kept(&lab) == bytes);
    assert_eq!(late.serve(client.hash.0, &client, &[&bytes]), 1, "it is here no longer");
    assert!(kept(&late) == bytes);
}
