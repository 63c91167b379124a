//! Paths of what a walk tells: it says names and how deep they are, and which directories it goes
//! into.

use crate::protocol::FsInode;

/// The path to where a walk is.
#[derive(Clone, Debug)]
pub(super) struct PathTrail {
    path: Vec<u8>,
    /// Of each directory that the walk is in: where its path ends, and which it is.
    levels: Vec<(usize, FsInode)>,
    root_len: usize,
}

impl PathTrail {
    pub(super) fn new(root: &[u8]) -> Self {
        Self { path: root.to_vec(), levels: Vec::new(), root_len: root.len() }
    }

    /// The path of a name; `None`: the service says a depth that there cannot be.
    pub(super) fn to(&mut self, depth: u32, name: &[u8]) -> Option<&[u8]> {
        let depth = usize::try_from(depth).ok()?;
        if depth > self.levels.len() {
            return None;
        }
        self.levels.truncate(depth);
        match self.levels.last() {
            None => self.path.truncate(self.root_len),
            Some((end, _)) => {
                self.path.truncate(*end);
                if !self.path.ends_with(b"/") {
                    self.path.push(b'/');
                }
                self.path.extend_from_slice(name);
            }
        }
        Some(&self.path)
    }

    /// The walk goes into the directory whose path was asked for last.
    pub(super) fn enter(&mut self, dir: FsInode) {
        self.levels.push((self.path.len(), dir));
    }

    /// The innermost directory.
    pub(super) fn dir(&self) -> Option<FsInode> {
        self.levels.last().map(|(_, dir)| *dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_path_of_the_directory_that_they_are_in() {
        let dir = |number| FsInode { number, generation: 1 };
        let mut trail = PathTrail::new(b"r/");
        assert_eq!(trail.to(1, b"x"), None, "nothing was entered");
        assert_eq!(trail.to(0, b"r"), Some(&b"r/"[..]));
        trail.enter(dir(1));
        assert_eq!(trail.to(1, b"a"), Some(&b"r/a"[..]));
        trail.enter(dir(2));
        assert_eq!(trail.to(2, b"b"), Some(&b"r/a/b"[..]));
        assert_eq!((trail.dir(), trail.to(3, b"c")), (Some(dir(2)), None));
        assert_eq!(trail.to(1, b"d"), Some(&b"r/d"[..]));
        assert_eq!(trail.dir(), Some(dir(1)));
    }
}
