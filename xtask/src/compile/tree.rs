//! The files of a directory: contents and permissions, as a value that can be compared.
//!
//! Holds hashes, not contents: two builds of one project at one path are compared, one after the
//! other.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Files that build tools write for themselves, with times in them.
const OWN: &[&str] = &[".ninja_log", ".ninja_deps", ".ninja_lock"];
/// How many differences an error names.
const NAMED_MAX: usize = 8;

/// Files by their paths in the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tree(BTreeMap<PathBuf, File>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    mode: u32,
    len: u64,
    hash: u64,
}

impl Tree {
    /// Reads all files beneath `directory`.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn read(directory: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        let mut waiting = vec![PathBuf::new()];
        while let Some(inside) = waiting.pop() {
            let at = directory.join(&inside);
            let entries = fs::read_dir(&at).with_context(|| format!("reading {}", at.display()))?;
            for entry in entries {
                let path = inside.join(entry?.file_name());
                let meta = fs::symlink_metadata(directory.join(&path))?;
                if meta.is_dir() {
                    waiting.push(path);
                } else if !OWN.iter().any(|own| path.ends_with(own)) {
                    let file = File::read(&directory.join(&path), &meta)?;
                    files.insert(path, file);
                }
            }
        }
        Ok(Self(files))
    }

    /// The files that are new or different since `before`.
    pub(super) fn since(mut self, before: &Self) -> Self {
        self.0.retain(|path, file| before.0.get(path) != Some(file));
        self
    }

    /// The files that have one of these extensions.
    pub(super) fn only(mut self, endings: &[&str]) -> Self {
        let has =
            |path: &Path, ending: &&str| path.as_os_str().as_bytes().ends_with(ending.as_bytes());
        self.0.retain(|path, _| endings.iter().any(|ending| has(path, ending)));
        self
    }

    /// Removes these files from `directory`.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub(super) fn remove(&self, directory: &Path) -> Result<()> {
        let remove = |path: &PathBuf| {
            fs::remove_file(directory.join(path)).with_context(|| format!("removing {path:?}"))
        };
        self.0.keys().try_for_each(remove)
    }

    /// The number of files with this extension.
    pub(super) fn count(&self, ending: &str) -> usize {
        self.0
            .keys()
            .filter(|path| path.as_os_str().as_bytes().ends_with(ending.as_bytes()))
            .count()
    }

    /// Requires that `built` is equal.
    ///
    /// # Errors
    /// Names the files that are missing, new or different.
    pub(super) fn expect(&self, built: &Self) -> Result<()> {
        let missing = self.0.keys().filter(|path| !built.0.contains_key(*path));
        let missing = missing.map(|path| format!("{} is missing", path.display()));
        let new = built.0.iter().filter_map(|(path, file)| match self.0.get(path) {
            None => Some(format!("{} should not be there", path.display())),
            Some(own) if own.mode != file.mode => {
                Some(format!("{} has mode {:o}, not {:o}", path.display(), file.mode, own.mode))
            }
            Some(own) if own != file => Some(format!("{} differs", path.display())),
            Some(_) => None,
        });
        let found: Vec<String> = missing.chain(new).collect();
        if found.is_empty() {
            return Ok(());
        }
        let named = &found[..found.len().min(NAMED_MAX)];
        bail!("{} of {} files: {}", found.len(), self.0.len(), named.join("; "))
    }
}

impl File {
    fn read(path: &Path, meta: &Metadata) -> Result<Self> {
        let bytes = if meta.is_symlink() {
            fs::read_link(path)?.into_os_string().into_encoded_bytes()
        } else {
            fs::read(path).with_context(|| format!("reading {}", path.display()))?
        };
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        Ok(Self { mode: meta.mode(), len: bytes.len() as u64, hash: hasher.finish() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A directory of its own, removed when dropped.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let at =
                std::env::temp_dir().join(format!("outboard-tree-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&at);
            fs::create_dir_all(at.join("deep")).unwrap();
            Self(at)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.0.join(name), text).unwrap();
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_what_a_build_made_counts() {
        let scratch = Scratch::new("since");
        scratch.write("a.c", "source");
        let before = Tree::read(&scratch.0).unwrap();
        scratch.write("deep/a.o", "object");
        scratch.write(".ninja_log", "times");
        let made = Tree::read(&scratch.0).unwrap().since(&before);
        assert_eq!((made.0.len(), made.count(".o")), (1, 1));
    }

    #[test]
    fn one_byte_one_bit_and_one_file_are_differences() {
        let scratch = Scratch::new("differences");
        scratch.write("a.o", "object");
        scratch.write("b.o", "object");
        let whole = Tree::read(&scratch.0).unwrap();
        whole.expect(&whole).unwrap();
        scratch.write("a.o", "objekt");
        fs::set_permissions(scratch.0.join("b.o"), fs::Permissions::from_mode(0o755)).unwrap();
        scratch.write("c.o", "");
        let text = whole.expect(&Tree::read(&scratch.0).unwrap()).unwrap_err().to_string();
        for word in ["3 of 2", "a.o differs", "b.o has mode 100755", "c.o should not be"] {
            assert!(text.contains(word), "{text}");
        }
        fs::remove_file(scratch.0.join("a.o")).unwrap();
        let text = whole.expect(&Tree::read(&scratch.0).unwrap()).unwrap_err().to_string();
        assert!(text.contains("a.o is missing"), "{text}");
    }
}
