//! The stop `cast`: a tree of files, cast to nodes on loopback that pass it on, and compared.

use super::nodes::TourNodes;
use super::{Guide, Trouble};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Nodes that receive.
pub(super) const NODES: usize = 4;
/// Bytes of the one large file.
const LARGE: usize = 64 << 20;
/// How many small files there are.
const SMALL: usize = 200;

pub(super) fn show(guide: &Guide) -> Result<Value, Trouble> {
    let tree = guide.place.directory("cast")?.join("tree");
    fill(&tree)?;
    guide.say(&format!(
        "   tree      {} small files and one of {} MB of pseudo-random bytes",
        SMALL,
        LARGE >> 20,
    ));
    let nodes = TourNodes::start(guide, NODES)?;
    guide.say(&format!(
        "   nodes     {NODES} on loopback: own processes, keys and directories, encryption"
    ));
    guide.goes_on()?;
    let report = nodes.cast(&tree)?;
    print(guide, &report);
    let differing: Vec<String> = nodes
        .directories()
        .filter(|directory| !is_equal(&tree, &directory.join("tree")))
        .map(|directory| directory.display().to_string())
        .collect();
    if !differing.is_empty() {
        return Err(Trouble::Failed(format!(
            "different from the source: {}",
            differing.join(", ")
        )));
    }
    guide.say(&format!("   compared  all {NODES} trees are equal to the source"));
    guide.say(CLOSE);
    Ok(json!({ "nodes": NODES, "small_files": SMALL, "equal": NODES, "report": report }))
}

const CLOSE: &str =
    "   All share this machine's processors: every byte is sent, checked and written by each of
   them in turn. On machines of their own it takes about as long as one copy: docs/cast.md,
   outboard cast --plan";

fn print(guide: &Guide, report: &Value) {
    let number = |name: &str| report[name].as_f64().unwrap_or(0.0);
    let chunks = number("chunks").max(1.0);
    guide.say(&format!(
        "   cast      {:.1} MB to each in {:.2} s, in {chunks:.0} chunks, by schedule {}",
        number("bytes") / 1e6,
        number("seconds"),
        report["schedule"].as_str().unwrap_or("?"),
    ));
    guide.say(&format!(
        "             the source sent each chunk {:.1} times, the nodes passed it on to the others",
        number("sent_chunks") / chunks,
    ));
}

/// Makes the tree. Its bytes are the same each time.
fn fill(tree: &Path) -> std::io::Result<()> {
    fs::create_dir_all(tree.join("small"))?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        // xorshift64 (Marsaglia 2003)
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    for at in 0..SMALL {
        fs::write(tree.join("small").join(at.to_string()), random())?;
    }
    let mut large = std::io::BufWriter::new(fs::File::create(tree.join("large"))?);
    for _ in 0..LARGE / 8 {
        large.write_all(&random())?;
    }
    large.flush()?;
    std::os::unix::fs::symlink("small/0", tree.join("link"))
}

/// Whether two trees have the same names, and the same bytes in files and links.
fn is_equal(one: &Path, other: &Path) -> bool {
    let known = |path: &Path| fs::symlink_metadata(path).map(|known| known.file_type());
    match (known(one), known(other)) {
        (Ok(here), Ok(there)) if here != there => false,
        (Ok(kind), Ok(_)) if kind.is_dir() => {
            let (here, there) = (names(one), names(other));
            here == there && here.iter().all(|name| is_equal(&one.join(name), &other.join(name)))
        }
        (Ok(kind), Ok(_)) if kind.is_symlink() => {
            fs::read_link(one).ok().is_some_and(|target| fs::read_link(other).ok() == Some(target))
        }
        (Ok(_), Ok(_)) => {
            fs::read(one).ok().is_some_and(|bytes| fs::read(other).ok() == Some(bytes))
        }
        _ => false,
    }
}

fn names(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<PathBuf> = entries.map(|entry| entry.file_name().into()).collect();
    names.sort_unstable();
    names
}
