//! Hashes of whole trees: equal if and only if all names, kinds, rights, targets of links and bytes
//! of files are. Times, owners, inodes' numbers, hard links, holes and extended attributes do not
//! count.
//!
//! It is a Merkle tree. What a name stands for has a hash of its content: a file's is BLAKE3 of its
//! bytes, a symbolic link's of its target, a device's of its numbers as `MAJOR:MINOR`, that of a
//! fifo or a socket of nothing, and a directory's of the lines of all that is in it, sorted by the
//! names' bytes. A line is `KIND RIGHTS HASH NAME` and a byte of 0: one letter of `dflpscb`, four
//! octal digits, 64 hexadecimal ones. The hash of the tree is BLAKE3 of such a line for its root,
//! with an empty name.
//!
//! `remote` has the server hash what files have in them, `local` does it for a directory of this
//! machine.

mod local;
mod remote;
#[cfg(test)]
mod tests;

pub use local::hash_local;
pub use remote::hash_tree;

use std::fmt;

/// Rights that every symbolic link has.
const LINK_RIGHTS: u32 = 0o777;

/// See this file's first lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeHash(pub [u8; 32]);

impl fmt::Display for TreeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from(self.0).to_hex())
    }
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HashedName {
    name: Vec<u8>,
    /// Kind and rights.
    mode: u32,
}

impl HashedName {
    fn is_directory(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }
}

/// A directory while the walk is in it.
#[derive(Debug)]
struct OpenDirectory {
    own: HashedName,
    /// Names with their lines.
    lines: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Makes a tree's hash of what a walk tells: a directory comes before what is in it.
#[derive(Debug, Default)]
struct TreeFold {
    open: Vec<OpenDirectory>,
    top: Option<TreeHash>,
}

fn line(about: &HashedName, content: TreeHash) -> Vec<u8> {
    let kind = about.mode & libc::S_IFMT;
    let rights = if kind == libc::S_IFLNK { LINK_RIGHTS } else { about.mode & 0o7777 };
    let letter = match kind {
        libc::S_IFDIR => 'd',
        libc::S_IFLNK => 'l',
        libc::S_IFIFO => 'p',
        libc::S_IFSOCK => 's',
        libc::S_IFCHR => 'c',
        libc::S_IFBLK => 'b',
        _ => 'f',
    };
    let head = format!("{letter} {rights:04o} {content} ");
    [head.as_bytes(), &about.name, b"\0"].concat()
}

/// The content's hash of what has no bytes: a device, a fifo, a socket.
fn hash_special(mode: u32, rdev: u64) -> TreeHash {
    let numbers = match mode & libc::S_IFMT {
        libc::S_IFCHR | libc::S_IFBLK => format!("{}:{}", libc::major(rdev), libc::minor(rdev)),
        _ => String::new(),
    };
    TreeHash(blake3::hash(numbers.as_bytes()).into())
}

impl OpenDirectory {
    fn hash(mut self) -> (HashedName, TreeHash) {
        self.lines.sort();
        let mut hasher = blake3::Hasher::new();
        for (_, line) in &self.lines {
            hasher.update(line);
        }
        (self.own, TreeHash(hasher.finalize().into()))
    }
}

impl TreeFold {
    /// A directory, so many names below the root.
    fn directory(&mut self, depth: usize, about: HashedName) {
        self.leave(depth);
        self.open.push(OpenDirectory { own: about, lines: Vec::new() });
    }

    /// Something else, and its content's hash.
    fn other(&mut self, depth: usize, about: HashedName, content: TreeHash) {
        self.leave(depth);
        self.put(about, content);
    }

    fn put(&mut self, mut about: HashedName, content: TreeHash) {
        match self.open.last_mut() {
            Some(dir) => {
                let line = line(&about, content);
                dir.lines.push((about.name, line));
            }
            None => {
                about.name.clear();
                self.top = Some(TreeHash(blake3::hash(&line(&about, content)).into()));
            }
        }
    }

    /// The walk comes to a name so deep: deeper directories are over.
    fn leave(&mut self, depth: usize) {
        while self.open.len() > depth
            && let Some(dir) = self.open.pop()
        {
            let (about, content) = dir.hash();
            self.put(about, content);
        }
    }

    /// The tree's hash; `None`: nothing was told.
    fn end(mut self) -> Option<TreeHash> {
        self.leave(0);
        self.top
    }
}
