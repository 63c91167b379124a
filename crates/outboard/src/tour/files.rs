//! The stop `fs`: a tree in a file system of a node on loopback, searched, copied and hashed where
//! it is.

use super::nodes::TourNodes;
use super::{Guide, Trouble};
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

/// Directories of the tree, and files of each.
const DIRECTORIES: usize = 16;
const FILES: usize = 32;
/// Lines of a file; one of so many files has the line that is looked for.
const LINES: usize = 400;
const EVERY: usize = 40;
/// What is looked for.
const WANTED: &str = "lost [a-z]+ [0-9]{3}";

pub(super) fn show(guide: &Guide) -> Result<Value, Trouble> {
    let tree = guide.place.directory("fs")?.join("tree");
    let bytes = fill(&tree)?;
    let nodes = TourNodes::with_store(guide)?;
    guide.say("   node      on loopback, with a file system of 256 MiB, encryption");
    let visit = Visit { nodes: &nodes, root: root_of(&nodes)? };
    let imported = visit.import(guide, &tree)?;
    let figures = visit.look(guide, bytes)?;
    guide.goes_on()?;
    let copy_ms = visit.copy(guide, &tree)?;
    guide.say(CLOSE);
    Ok(json!({ "import": imported, "search": figures, "copy_ms": copy_ms, "equal": 2 }))
}

const CLOSE: &str =
    "   Code that runs next to the files does this. Programs use them through a mount, which needs
   FUSE: docs/fs.md, outboard fs mount --help";

/// Makes a tree of text; how many bytes it has.
fn fill(tree: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for number in 0..DIRECTORIES * FILES {
        let directory = tree.join(format!("part-{}", number / FILES));
        fs::create_dir_all(&directory)?;
        let line = |at| format!("line {at} of file {number}, as dull as those around it\n");
        let mut text: String = (0..LINES).map(line).collect();
        if number % EVERY == EVERY - 1 {
            text.push_str(&format!("lost luggage {}\n", 100 + number));
        }
        bytes += text.len() as u64;
        fs::write(directory.join(format!("file-{number}.txt")), text)?;
    }
    Ok(bytes)
}

/// The root of the node's file system, as commands name it.
fn root_of(nodes: &TourNodes) -> Result<String, Trouble> {
    let address = nodes.addresses().next();
    let address = address.ok_or_else(|| Trouble::Failed("there is no node".into()))?;
    Ok(format!("{address}:/"))
}

/// The node, and where its file system is.
struct Visit<'a> {
    nodes: &'a TourNodes,
    root: String,
}

impl Visit<'_> {
    /// What a command prints, and how long it takes, in milliseconds.
    fn timed(&self, words: &[&str]) -> Result<(String, f64), Trouble> {
        let begun = Instant::now();
        let told = self.nodes.told(&[&["fs"], words].concat())?;
        Ok((told, begun.elapsed().as_secs_f64() * 1e3))
    }

    fn import(&self, guide: &Guide, tree: &Path) -> Result<Value, Trouble> {
        let (tree, target) = (tree.to_string_lossy(), format!("{}tree", self.root));
        let (told, _) = self.timed(&["import", "--json", &tree, &target])?;
        let report: Value = serde_json::from_str(&told)
            .map_err(|error| Trouble::failed("the report of the import", error))?;
        let number = |name: &str| report[name].as_f64().unwrap_or(0.0);
        let (names, bytes, seconds) = (number("names"), number("bytes") / 1e6, number("seconds"));
        guide.say(&format!("   import    {names} names, {bytes:.1} MB in {seconds:.2} s"));
        Ok(report)
    }

    /// Lines and names that are found at the server.
    fn look(&self, guide: &Guide, bytes: u64) -> Result<Value, Trouble> {
        let tree = format!("{}tree", self.root);
        let (lines, grep_ms) = self.timed(&["grep", "-rhE", WANTED, &tree])?;
        let (found, crossed) = (lines.lines().count(), lines.len());
        guide.say(&format!(
            "   grep      {WANTED}: {found} lines in {grep_ms:.0} ms; {crossed} bytes cross the \
             link, not {:.1} MB",
            bytes as f64 / 1e6
        ));
        let words = ["find", &tree, "-name", "*-7?.txt", "-size", "+8k"];
        let (names, find_ms) = self.timed(&words)?;
        let names = names.lines().count();
        guide.say(&format!(
            "   find      {names} of {} files by name and size in {find_ms:.0} ms",
            DIRECTORIES * FILES
        ));
        Ok(json!({ "lines": found, "grep_ms": grep_ms, "names": names, "find_ms": find_ms }))
    }

    /// Copies the tree at the server, and compares hashes; how long the copy takes.
    fn copy(&self, guide: &Guide, tree: &Path) -> Result<f64, Trouble> {
        let [there, copy] = ["tree", "copy"].map(|name| format!("{}{name}", self.root));
        let (_, copy_ms) = self.timed(&["cp", "-a", &there, &copy])?;
        let tree = tree.to_string_lossy();
        let (hashes, hash_ms) = self.timed(&["tree-hash", &tree, &there, &copy])?;
        let hashes: Vec<&str> = hashes.lines().filter_map(|line| line.get(..64)).collect();
        if hashes.len() != 3 || hashes.iter().any(|hash| *hash != hashes[0]) {
            return Err(Trouble::Failed(format!("trees differ from their source: {hashes:?}")));
        }
        guide.say(&format!(
            "   cp        the tree once more in {copy_ms:.0} ms: both share their blocks"
        ));
        guide.say(&format!(
            "   compared  the source and both trees have the hash {}... ({hash_ms:.0} ms)",
            &hashes[0][..12]
        ));
        Ok(copy_ms)
    }
}
