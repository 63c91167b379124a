//! `--dry-run`: what a cast would send, and what it leaves out. Asks no node.

use super::report::{SKIPPED, left_out, left_out_json};
use super::{CastArgs, Failure, print, request};
use crate::quantity::shown;
use outboard_cast::sign::ChunkLen;
use outboard_cast::tree::{ScannedTree, TreeNode, scan};
use serde_json::{Value, json};
use std::path::Path;

/// What is in a tree.
#[derive(Debug, Default, PartialEq, Eq)]
struct TreeCounts {
    files: u64,
    directories: u64,
    links: u64,
    /// Bytes of data, without holes.
    data: u64,
    /// Bytes of holes, which are not sent.
    holes: u64,
}

impl TreeCounts {
    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.links += other.links;
        self.data += other.data;
        self.holes += other.holes;
    }

    fn to_json(&self) -> Value {
        json!({
            "files": self.files,
            "directories": self.directories,
            "links": self.links,
            "data_bytes": self.data,
            "hole_bytes": self.holes,
        })
    }
}

impl std::fmt::Display for TreeCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { files, directories, links, data, holes } = self;
        write!(f, "{files} files, {directories} directories, {links} links, {}", shown(*data))?;
        if *holes > 0 { write!(f, " ({} of holes are not sent)", shown(*holes)) } else { Ok(()) }
    }
}

/// Looks at the sources, and prints.
pub(super) fn run(args: &CastArgs) -> Result<(), Failure> {
    let (sources, destination) = request::paths(args)?;
    let tree = scan(request::named(sources)?, &request::scan_options(args)?)?;
    let chunk_len = match args.chunk {
        Some(chunk) => request::chunk_len(chunk)?,
        None => ChunkLen::for_cast(tree.manifest().stream_len()),
    };
    let tops = by_top(&tree);
    if args.json {
        print(&format!("{:#}", to_json(&tree, &tops, (destination, chunk_len))))
    } else {
        print(&lines(&tree, &tops, (destination, chunk_len)).join("\n"))
    }
}

/// What is below each source, by its name.
fn by_top(tree: &ScannedTree) -> Vec<(String, TreeCounts)> {
    let manifest = tree.manifest();
    let name = |top: &u32| String::from_utf8_lossy(manifest.entry(*top).name).into_owned();
    let mut tops: Vec<_> =
        manifest.tops().iter().map(|top| (name(top), TreeCounts::default())).collect();
    for entry in 0..manifest.len() {
        let counts = &mut tops[manifest.top_of(entry)].1;
        let found = manifest.entry(entry);
        match found.node {
            TreeNode::Directory => counts.directories += 1,
            TreeNode::Symlink(_) => counts.links += 1,
            TreeNode::File { size, .. } => {
                let data: u64 = found.extents().iter().map(|extent| extent.len).sum();
                counts.files += 1;
                counts.data += data;
                counts.holes += size.saturating_sub(data);
            }
        }
    }
    tops
}

fn sum(tops: &[(String, TreeCounts)]) -> TreeCounts {
    let mut all = TreeCounts::default();
    tops.iter().for_each(|(_, counts)| all.add(counts));
    all
}

fn lines(
    tree: &ScannedTree,
    tops: &[(String, TreeCounts)],
    (destination, chunk_len): (&Path, ChunkLen),
) -> Vec<String> {
    let len = tree.manifest().stream_len();
    let top = |(name, counts): &(String, TreeCounts)| {
        format!("{}: {counts}", destination.join(name).display())
    };
    let mut lines: Vec<String> = tops.iter().map(top).collect();
    lines.push(format!(
        "would send to each node: {} entries, {len} bytes ({} of them names and attributes) in {} \
         chunks of {} bytes",
        tree.manifest().len(),
        tree.manifest().bytes().len(),
        chunk_len.chunks_in(len),
        chunk_len.bytes(),
    ));
    lines.extend(left_out("excluded", tree.excluded()));
    lines.extend(left_out(SKIPPED, tree.skipped()));
    lines
}

fn to_json(
    tree: &ScannedTree,
    tops: &[(String, TreeCounts)],
    (destination, chunk_len): (&Path, ChunkLen),
) -> Value {
    let top = |(name, counts): &(String, TreeCounts)| {
        let mut value = counts.to_json();
        value["path"] = destination.join(name).to_string_lossy().into();
        value
    };
    let len = tree.manifest().stream_len();
    json!({
        "entries": tree.manifest().len(),
        "bytes": len,
        "manifest_bytes": tree.manifest().bytes().len(),
        "chunks": chunk_len.chunks_in(len),
        "chunk_bytes": chunk_len.bytes(),
        "all": sum(tops).to_json(),
        "sources": tops.iter().map(top).collect::<Vec<_>>(),
        "excluded": left_out_json(tree.excluded()),
        "skipped": left_out_json(tree.skipped()),
    })
}
