//! Names that exist in every view whatever its source contains: the paths at which a sandbox mounts
//! its own toolchain, `/proc`, `/dev` and `/tmp`, with the directories that lead to them; and the
//! directories above paths that compilers look up by themselves.

use super::probes::OWN_PROBES;
use outboard_export::path::{join, split};
use std::collections::BTreeMap;

/// What a view has at a pinned path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinnedNode {
    /// An empty file that serves as a mount point.
    File,
    /// An empty directory that serves as a mount point.
    Directory,
    /// A symbolic link.
    Symlink(Vec<u8>),
}

/// How a path relates to the pins.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pinned<'a> {
    /// The path is this pin.
    Here(&'a PinnedNode),
    /// A directory that leads to a pin.
    Leads,
    /// Neither.
    No,
}

/// All pins of a view.
#[derive(Debug, Default)]
pub(super) struct Pins {
    at: BTreeMap<Vec<u8>, PinnedNode>,
}

impl Pins {
    pub(super) fn new(pins: Vec<(Vec<u8>, PinnedNode)>) -> Self {
        Self { at: pins.into_iter().collect() }
    }

    pub(super) fn of(&self, path: &[u8]) -> Pinned<'_> {
        if let Some(pin) = self.at.get(path) {
            return Pinned::Here(pin);
        }
        if self.leads(path) { Pinned::Leads } else { Pinned::No }
    }

    /// Whether `path` is a directory above a pin. A name in it must not be dropped from the
    /// kernel's caches together with the directory, because that would unmount the file systems
    /// mounted below.
    pub(super) fn leads(&self, path: &[u8]) -> bool {
        let beneath = join(path, b"");
        self.at.range(beneath.clone()..).next().is_some_and(|(at, _)| at.starts_with(&beneath))
    }

    /// The names that pins add to the directory `path`.
    pub(super) fn names_in(&self, path: &[u8]) -> BTreeMap<Vec<u8>, PinnedNode> {
        let beneath = join(path, b"");
        let below = self.at.range(beneath.clone()..).take_while(|(at, _)| at.starts_with(&beneath));
        let mut names = BTreeMap::new();
        for (at, pin) in below {
            let rest = &at[beneath.len()..];
            match rest.iter().position(|&byte| byte == b'/') {
                Some(end) => names.insert(rest[..end].to_vec(), PinnedNode::Directory),
                None => names.insert(rest.to_vec(), pin.clone()),
            };
        }
        names
    }

    /// Whether `path` is a directory above one of the compilers' own probes, so that a compiler can
    /// reach the probe. Other names in the directory remain unknown.
    pub(super) fn leads_nowhere(&self, path: &[u8]) -> bool {
        !self.is_own_probe(path) && own_probes().any(|pattern| is_above(path, pattern))
    }

    /// Whether compilers look up `path` by themselves and produce the same output without it.
    pub(super) fn is_own_probe(&self, path: &[u8]) -> bool {
        own_probes().any(|pattern| is_beneath(path, pattern))
    }
}

fn own_probes() -> impl Iterator<Item = &'static [u8]> {
    OWN_PROBES.iter().map(|(path, _)| path.as_bytes())
}

/// Whether `path` is a directory above the pattern, its last name literally equal: a directory that
/// a star stands for exists for other reasons or not at all.
fn is_above(path: &[u8], pattern: &[u8]) -> bool {
    let Some(rest) = split(path).and_then(|(_, name)| {
        let depth = path.iter().filter(|&&byte| byte == b'/').count();
        let mut patterns = pattern.split(|&byte| byte == b'/').skip(depth);
        (patterns.next() == Some(name)).then(|| patterns.next())
    }) else {
        return false;
    };
    let mut patterns = pattern.split(|&byte| byte == b'/');
    let mut names = path.split(|&byte| byte == b'/');
    rest.is_some() && names.all(|name| patterns.next().is_some_and(|like| is_like(name, like)))
}

/// Whether `path` matches the pattern or is beneath a match. A star stands for any bytes of one
/// name.
fn is_beneath(path: &[u8], pattern: &[u8]) -> bool {
    let mut names = path.split(|&byte| byte == b'/');
    pattern
        .split(|&byte| byte == b'/')
        .all(|pattern| names.next().is_some_and(|name| is_like(name, pattern)))
}

fn is_like(name: &[u8], pattern: &[u8]) -> bool {
    match pattern.iter().position(|&byte| byte == b'*') {
        None => name == pattern,
        Some(star) => {
            let (start, rest) = (&pattern[..star], &pattern[star + 1..]);
            name.starts_with(start)
                && (start.len()..=name.len()).any(|from| is_like(&name[from..], rest))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pins() -> Pins {
        let at = [
            (b"/usr/bin/gcc".to_vec(), PinnedNode::File),
            (b"/usr/lib/gcc".to_vec(), PinnedNode::Directory),
            (b"/tmp".to_vec(), PinnedNode::Directory),
        ];
        Pins::new(at.to_vec())
    }

    #[test]
    fn a_pin_makes_the_directories_that_lead_to_it() {
        let pins = pins();
        assert_eq!(pins.of(b"/usr/bin/gcc"), Pinned::Here(&PinnedNode::File));
        assert_eq!(pins.of(b"/usr/bin"), Pinned::Leads);
        assert_eq!(pins.of(b"/"), Pinned::Leads);
        assert_eq!(pins.of(b"/usr/b"), Pinned::No);
        assert_eq!(pins.of(b"/usr/lib/gcc/x"), Pinned::No);
        assert_eq!(pins.names_in(b"/").into_keys().collect::<Vec<_>>(), [&b"tmp"[..], b"usr"]);
        assert_eq!(pins.names_in(b"/usr").into_keys().collect::<Vec<_>>(), [&b"bin"[..], b"lib"]);
    }

    #[test]
    fn directories_above_own_probes_are_there() {
        let pins = pins();
        assert!(pins.leads_nowhere(b"/etc") && pins.leads_nowhere(b"/sys/devices"));
        assert!(!pins.leads_nowhere(b"/etc/ld.so.cache") && !pins.leads_nowhere(b"/library"));
        // For a directory that a star stands for, the client has to be asked.
        assert!(!pins.leads_nowhere(b"/usr/local/cuda-12"));
    }

    #[test]
    fn own_probes_are_whole_names() {
        let pins = pins();
        assert!(pins.is_own_probe(b"/etc/ld.so.cache") && pins.is_own_probe(b"/etc/os-release"));
        assert!(!pins.is_own_probe(b"/etc/os-release-of-ours") && !pins.is_own_probe(b"/etc"));
        assert!(pins.is_own_probe(b"/usr/lib/x86_64-linux-gnu/gconv/gconv-modules"));
        assert!(!pins.is_own_probe(b"/usr/lib/gconv"));
        assert!(pins.is_own_probe(b"/usr/local/cuda-12/bin"));
        assert!(!pins.is_own_probe(b"/usr/local/cuda-12/include"));
    }
}
