//! Casts that come with their first message: what a node takes, and what it refuses.

use super::super::storage::CastAllowance;
use super::super::sweep::Sweep;
use super::stage::{Stage, begin, plan, signed_begin};
use super::{CastPolicy, CastRoot};
use crate::member::PlanParts;
use crate::protocol::{CastBegin, CastMessage, NODES_MAX, OnlyChunk};
use crate::schedule::Situation;
use crate::server::NodeStore;
use crate::server::at_once::check;
use crate::sign::{CastHeader, CastKey, ChunkHash, ChunkHashes, ChunkLen, RunSigner};
use crate::tree::{CastSource, ScanOptions, SourceReader, scan};
use outboard_secure::NodeId;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const CHUNK: u32 = 65_536;

/// A file's cast, as its source begins it.
pub(super) fn of_file(bytes: &[u8]) -> CastBegin {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("file");
    fs::write(&path, bytes).expect("written");
    let tree = scan(vec![CastSource::new(&path).expect("a name")], &ScanOptions::default());
    let (tree, chunk_len) = (tree.expect("a tree"), ChunkLen::new(CHUNK).expect("legal"));
    let (manifest, len) = (tree.manifest().bytes().to_vec(), tree.manifest().stream_len());
    let mut stream = Vec::new();
    let reader = SourceReader::new(tree, chunk_len, 1).expect("a reader");
    reader.read_chunk(0, &mut stream).expect("read");
    let header = CastHeader::new(&manifest, len, chunk_len).expect("legal");
    signed(&header, stream)
}

/// The same for a stream that need not be a tree's.
fn signed(header: &CastHeader, bytes: Vec<u8>) -> CastBegin {
    let key = CastKey::generate().expect("a key");
    let run = RunSigner::new(&key, header).push(ChunkHash::of(&bytes)).expect("one");
    CastBegin {
        key: key.public(),
        header: header.sign(&key),
        nodes: Vec::new(),
        only: Some(OnlyChunk { run: run.expect("of one"), bytes }),
        ..begin()
    }
}

fn changed(begin: CastBegin, change: impl FnOnce(&mut OnlyChunk)) -> CastBegin {
    let mut only = begin.only.clone().expect("one");
    change(&mut only);
    CastBegin { only: Some(only), ..begin }
}

fn names(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root).expect("there").map(|entry| entry.expect("an entry"));
    entries.map(|entry| entry.file_name().into_string().expect("a name")).collect()
}

fn say(stage: &mut Stage, begin: CastBegin) {
    stage.say(&CastMessage::Begin(Box::new(begin)));
}

#[test]
fn one_message_brings_a_file_and_one_answers_it() {
    for bytes in [&[7; 10_000][..], &[]] {
        let mut stage = Stage::new();
        say(&mut stage, of_file(bytes));
        stage.until(|stage| !stage.heard.is_empty());
        assert!(
            matches!(stage.heard[..], [CastMessage::Done { names: 1, .. }]),
            "{:?}",
            stage.heard
        );
        assert_eq!(fs::read(stage.root.path().join("file")).expect("published"), bytes);
        assert_eq!(names(stage.root.path()), ["file"]);
        let report = stage.node.report();
        assert_eq!((&report["casts"], &report["published"]), (&1.into(), &1.into()), "{report}");
        stage.say(&CastMessage::Report { version: 3 });
        stage.until(|stage| matches!(stage.heard.last(), Some(CastMessage::Held(_))));
        stage.say(&CastMessage::Over);
        stage.until(|stage| stage.node.report()["casts_now"] == 0);
    }
}

#[test]
fn a_chunk_that_is_not_what_was_signed_is_refused_and_leaves_nothing() {
    let forged = |begin| changed(begin, |only| only.bytes[9_000] ^= 1);
    let short = |begin| changed(begin, |only| only.bytes.truncate(9_000));
    let long = |begin| changed(begin, |only| only.bytes.push(0));
    let run = |begin| changed(begin, |only| only.run[40] ^= 1);
    let no_run = |begin| changed(begin, |only| only.run.clear());
    let of_other = |begin| CastBegin { key: of_file(b"other").key, ..begin };
    let many = |_| {
        let (begin, runs) = signed_begin();
        let only = OnlyChunk { run: runs[0].clone(), bytes: vec![0; 4096] };
        CastBegin { nodes: Vec::new(), only: Some(only), ..begin }
    };
    let you = |you| move |begin| CastBegin { you, ..begin };
    let named = |begin| {
        let name = vec![String::new(), "n[1-9]".into()];
        CastBegin { nodes: name, ..begin }
    };
    type Change<'c> = &'c dyn Fn(CastBegin) -> CastBegin;
    let nodes_max = u32::try_from(NODES_MAX).expect("few");
    let cases: [(Change<'_>, &str); 10] = [
        (&forged, "chunk 0"),
        (&short, "9000"),
        (&long, "bytes"),
        (&run, "not signed"),
        (&no_run, "no run"),
        (&of_other, "not signed"),
        (&many, "5 chunks as if it had one"),
        (&you(0), "as node 0"),
        (&you(nodes_max), "as node 2048"),
        (&named, "as node 1 of 2"),
    ];
    for (change, why) in cases {
        let mut stage = Stage::new();
        say(&mut stage, change(of_file(&[7; 10_000])));
        let end = stage.end();
        assert!(end.contains(why), "{end}, not {why}");
        assert_eq!(names(stage.root.path()), [""; 0], "{why}");
        assert!(stage.heard.is_empty(), "{why}: {:?}", stage.heard);
    }
}

#[test]
fn a_signed_stream_that_is_no_tree_is_told_and_leaves_nothing() {
    let stream = vec![9; 5000];
    let chunk_len = ChunkLen::new(CHUNK).expect("legal");
    let header = CastHeader::new(&stream[..300], 5000, chunk_len).expect("legal");
    let mut stage = Stage::new();
    say(&mut stage, signed(&header, stream));
    stage.until(|stage| matches!(stage.heard[..], [CastMessage::Failed { .. }]));
    assert_eq!(names(stage.root.path()), [""; 0]);
}

#[test]
fn what_the_node_does_not_allow_is_told() {
    let mut stage = Stage::new();
    say(&mut stage, CastBegin { destination: b"/var/other".to_vec(), ..of_file(b"short") });
    let is_refused = |said: &[CastMessage]| match said {
        [CastMessage::Failed { why }] => why.contains("roots"),
        _ => false,
    };
    stage.until(|stage| is_refused(&stage.heard));
    let mut stage = Stage::new();
    fs::write(stage.root.path().join("file"), b"there").expect("written");
    say(&mut stage, of_file(b"short"));
    stage.until(|stage| matches!(stage.heard[..], [CastMessage::Failed { .. }]));
    assert_eq!(fs::read(stage.root.path().join("file")).expect("there"), b"there");
    assert_eq!(names(stage.root.path()), ["file"]);
}

#[test]
fn no_plan_and_no_relay_follows() {
    let empty = PlanParts::split(1, Situation::fresh(0, 1)).remove(0);
    for message in [plan(2, 1), empty] {
        let mut stage = Stage::new();
        say(&mut stage, of_file(b"short"));
        stage.until(|stage| !stage.heard.is_empty());
        stage.say(&message);
        let end = stage.end();
        assert!(end.contains("not this cast's"), "{end}");
    }
    // Nor are there nodes to read from, or to be named.
    let mut stage = Stage::new();
    say(&mut stage, of_file(b"short"));
    stage.until(|stage| !stage.heard.is_empty());
    stage.say(&CastMessage::ReadFrom { holders: vec![1] });
    let end = stage.end();
    assert!(end.contains("of 0 nodes") || end.contains("node 1 of 0"), "{end}");
    let mut stage = Stage::new();
    let nodes = vec![String::new(), "n1".into()];
    say(&mut stage, CastBegin { nodes, you: 5, ..of_file(b"short") });
    let end = stage.end();
    assert!(end.contains("node 5 of 2"), "{end}");
    let mut stage = Stage::new();
    let begin = of_file(b"short");
    let header = CastHeader::verify(&begin.header, &begin.key).expect("signed");
    say(&mut stage, CastBegin { you: 2, ..begin });
    stage.until(|stage| !stage.heard.is_empty());
    let other = stage.connect();
    let why = stage.refused(other, &super::join(&header, 1));
    assert!(why.contains("no part here"), "{why}");
}

/// A receiver of a cast that this node has seen before, or not.
fn receiver(root: &Path, begin: &CastBegin) -> NodeStore {
    let roots = vec![CastRoot::at("/var/cast", root)];
    let policy = CastPolicy::default();
    let sweep = Sweep::start(&roots, policy.keep_broken);
    let allowed = CastAllowance { roots, policy, sweep };
    let hashes = ChunkHashes::new(&begin.header, begin.key).expect("signed");
    check(&hashes, begin.only.as_ref().expect("one")).expect("signed");
    let (source, demand) = (NodeId::of(&[7; 32]), Arc::new(|_, _| {}));
    NodeStore::open(&allowed, begin, Arc::new(hashes), source, demand).expect("opened")
}

#[test]
fn what_a_broken_cast_has_left_is_taken_up_if_it_is_sound() {
    for is_sound in [true, false] {
        let (root, begin) = (tempfile::tempdir().expect("a directory"), of_file(&[7; 10_000]));
        let only = begin.only.clone().expect("one");
        receiver(root.path(), &begin).take_only(&only.bytes).expect("kept");
        let left = names(root.path());
        assert_eq!(left.len(), 1, "hidden: {left:?}");
        if !is_sound {
            fs::write(root.path().join(&left[0]).join("tree/file"), [8; 10_000]).expect("there");
        }
        // What is there is not written again.
        let bytes = if is_sound { Vec::new() } else { only.bytes };
        let taken = receiver(root.path(), &begin).take_at_once(&OnlyChunk { bytes, ..only });
        assert_eq!(taken.expect("published").1.names, 1);
        assert_eq!(names(root.path()), ["file"]);
        assert_eq!(fs::read(root.path().join("file")).expect("there"), [7; 10_000]);
    }
}
