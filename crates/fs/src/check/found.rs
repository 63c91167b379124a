//! What a check finds, and where: places are numbers until all names are known. Decides nothing.

use std::collections::HashMap;

/// Findings that are told one by one; all are counted.
const TOLD_MAX: usize = 1000;
/// Directories above each other that a path goes through, at most.
const DEPTH_MAX: usize = 4096;

/// What a finding is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FoundAt {
    /// The metadata as a whole.
    Region,
    /// An inode.
    Inode(u64),
    /// A name of a directory.
    Name(u64, Vec<u8>),
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsDamage {
    /// The path, if it is something's that has one.
    pub path: Option<Vec<u8>>,
    /// What is wrong.
    pub what: String,
}

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct Findings {
    told: Vec<(FoundAt, String)>,
    count: u64,
    /// Where an inode is: the directory, and the name there.
    names: HashMap<u64, (u64, Vec<u8>)>,
}

impl Findings {
    pub(super) fn add(&mut self, at: FoundAt, what: impl Into<String>) {
        self.count += 1;
        if self.told.len() < TOLD_MAX {
            self.told.push((at, what.into()));
        }
    }

    /// Of the metadata as a whole.
    pub(super) fn of_region(&mut self, what: impl Into<String>) {
        self.add(FoundAt::Region, what);
    }

    /// Of an inode.
    pub(super) fn of_inode(&mut self, number: u64, what: impl Into<String>) {
        self.add(FoundAt::Inode(number), what);
    }

    /// An inode's first name.
    pub(super) fn name(&mut self, number: u64, dir: u64, name: &[u8]) {
        self.names.entry(number).or_insert_with(|| (dir, name.to_vec()));
    }

    /// All of them with their paths, and how many there are with those that are not told.
    pub(super) fn end(self, root: u64) -> (Vec<FsDamage>, u64) {
        let Self { told, count, names } = self;
        let damage = told.into_iter().map(|(at, what)| match at {
            FoundAt::Region => FsDamage { path: None, what },
            FoundAt::Inode(number) => match path_of(&names, root, number) {
                Some(path) => FsDamage { path: Some(path), what },
                None => FsDamage { path: None, what: format!("inode {number}: {what}") },
            },
            FoundAt::Name(dir, name) => {
                let above = path_of(&names, root, dir).unwrap_or_else(|| b"?".to_vec());
                FsDamage { path: Some(joined(above, &name)), what }
            }
        });
        (damage.collect(), count)
    }
}

fn joined(mut path: Vec<u8>, name: &[u8]) -> Vec<u8> {
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

fn path_of(names: &HashMap<u64, (u64, Vec<u8>)>, root: u64, mut number: u64) -> Option<Vec<u8>> {
    let mut parts = Vec::new();
    while number != root {
        let (dir, name) = names.get(&number).filter(|_| parts.len() < DEPTH_MAX)?;
        parts.push(&name[..]);
        number = *dir;
    }
    Some(parts.iter().rev().fold(b"/".to_vec(), |path, name| joined(path, name)))
}
