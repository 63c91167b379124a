//! Names that exist in a view whatever its source says: the places where a sandbox mounts its own
//! toolchain, `/proc`, `/dev` and `/tmp`, with the directories that lead to them; and the places
//! where compilers look although nothing of theirs need be there.

use std::collections::BTreeMap;

/// What is pinned to a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pin {
    /// An empty file, for something to be mounted on.
    File,
    /// An empty directory, for something to be mounted on.
    Directory,
    /// A symbolic link.
    Symlink(Vec<u8>),
}

/// What a path means to the pins.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pinned<'a> {
    /// Exactly this.
    Here(&'a Pin),
    /// A directory that leads to a pin.
    Leads,
    /// Nothing.
    No,
}

/// All pins of a view.
#[derive(Debug, Default)]
pub(super) struct Pins {
    at: BTreeMap<Vec<u8>, Pin>,
    /// Patterns of paths that are absent unless the source shows them.
    absent: Vec<Vec<u8>>,
}

impl Pins {
    pub(super) fn new(pins: Vec<(Vec<u8>, Pin)>, absent: Vec<Vec<u8>>) -> Self {
        Self { at: pins.into_iter().collect(), absent }
    }

    pub(super) fn of(&self, path: &[u8]) -> Pinned<'_> {
        if let Some(pin) = self.at.get(path) {
            return Pinned::Here(pin);
        }
        if self.leads(path) { Pinned::Leads } else { Pinned::No }
    }

    /// Whether `path` is a directory above a pin. No name in it may be dropped from the kernel's
    /// caches together with the directory, because that would unmount what is mounted below.
    pub(super) fn leads(&self, path: &[u8]) -> bool {
        let beneath = join(path, b"");
        self.at.range(beneath.clone()..).next().is_some_and(|(at, _)| at.starts_with(&beneath))
    }

    /// The names that pins put into the directory `path`.
    pub(super) fn names_in(&self, path: &[u8]) -> BTreeMap<Vec<u8>, Pin> {
        let beneath = join(path, b"");
        let below = self.at.range(beneath.clone()..).take_while(|(at, _)| at.starts_with(&beneath));
        let mut names = BTreeMap::new();
        for (at, pin) in below {
            let rest = &at[beneath.len()..];
            match rest.iter().position(|&octet| octet == b'/') {
                Some(end) => names.insert(rest[..end].to_vec(), Pin::Directory),
                None => names.insert(rest.to_vec(), pin.clone()),
            };
        }
        names
    }

    /// Whether `path` is a directory above one that is known to be absent, so that a compiler gets
    /// as far as that. Anything else in it is as unknown as before.
    pub(super) fn leads_nowhere(&self, path: &[u8]) -> bool {
        !self.is_known_absent(path) && self.absent.iter().any(|pattern| is_above(path, pattern))
    }

    /// Whether nothing at `path` is no reason to send a job home.
    pub(super) fn is_known_absent(&self, path: &[u8]) -> bool {
        self.absent.iter().any(|pattern| is_beneath(path, pattern))
    }
}

/// Whether `path` is a directory above what the pattern says, its last name letter by letter: what
/// stars stand for is there for other reasons or not at all.
fn is_above(path: &[u8], pattern: &[u8]) -> bool {
    let Some(rest) = split(path).and_then(|(_, name)| {
        let depth = path.iter().filter(|&&octet| octet == b'/').count();
        let mut patterns = pattern.split(|&octet| octet == b'/').skip(depth);
        (patterns.next() == Some(name)).then(|| patterns.next())
    }) else {
        return false;
    };
    let mut patterns = pattern.split(|&octet| octet == b'/');
    let mut names = path.split(|&octet| octet == b'/');
    rest.is_some() && names.all(|name| patterns.next().is_some_and(|like| is_like(name, like)))
}

/// Whether `path` is what the pattern says, or beneath it. A star stands for any octets of one
/// name.
fn is_beneath(path: &[u8], pattern: &[u8]) -> bool {
    let mut names = path.split(|&octet| octet == b'/');
    pattern
        .split(|&octet| octet == b'/')
        .all(|pattern| names.next().is_some_and(|name| is_like(name, pattern)))
}

fn is_like(name: &[u8], pattern: &[u8]) -> bool {
    match pattern.iter().position(|&octet| octet == b'*') {
        None => name == pattern,
        Some(star) => {
            let (start, rest) = (&pattern[..star], &pattern[star + 1..]);
            name.starts_with(start)
                && (start.len()..=name.len()).any(|from| is_like(&name[from..], rest))
        }
    }
}

/// The path of `name` in the directory `dir`.
pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(dir.len() + 1 + name.len());
    path.extend_from_slice(dir);
    if !dir.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// A path's directory and its last name; `None` for the root.
pub(super) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|&octet| octet == b'/')?;
    let name = &path[slash + 1..];
    (!name.is_empty()).then(|| (if slash == 0 { &path[..1] } else { &path[..slash] }, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pins() -> Pins {
        let at = [
            (b"/usr/bin/gcc".to_vec(), Pin::File),
            (b"/usr/lib/gcc".to_vec(), Pin::Directory),
            (b"/tmp".to_vec(), Pin::Directory),
        ];
        Pins::new(at.to_vec(), vec![b"/etc".to_vec(), b"/lib/*/lib*.so*".to_vec()])
    }

    #[test]
    fn a_pin_makes_the_directories_that_lead_to_it() {
        let pins = pins();
        assert_eq!(pins.of(b"/usr/bin/gcc"), Pinned::Here(&Pin::File));
        assert_eq!(pins.of(b"/usr/bin"), Pinned::Leads);
        assert_eq!(pins.of(b"/"), Pinned::Leads);
        assert_eq!(pins.of(b"/usr/b"), Pinned::No);
        assert_eq!(pins.of(b"/usr/lib/gcc/x"), Pinned::No);
        assert_eq!(pins.names_in(b"/").into_keys().collect::<Vec<_>>(), [&b"tmp"[..], b"usr"]);
        assert_eq!(pins.names_in(b"/usr").into_keys().collect::<Vec<_>>(), [&b"bin"[..], b"lib"]);
    }

    #[test]
    fn directories_above_known_absent_ones_are_there() {
        let pins = pins();
        assert!(pins.leads_nowhere(b"/lib") && !pins.leads_nowhere(b"/lib/x86"));
        assert!(!pins.leads_nowhere(b"/lib/x86/libc.so.6") && !pins.leads_nowhere(b"/etc"));
        assert!(!pins.leads_nowhere(b"/library") && !pins.leads_nowhere(b"/lib/x86/y"));
    }

    #[test]
    fn known_absent_means_whole_names() {
        let pins = pins();
        assert!(pins.is_known_absent(b"/etc") && pins.is_known_absent(b"/etc/ld.so.cache"));
        assert!(!pins.is_known_absent(b"/etcetera") && !pins.is_known_absent(b"/"));
        assert!(pins.is_known_absent(b"/lib/x86/libc.so.6"));
        assert!(pins.is_known_absent(b"/lib/x86/lib.so"));
        assert!(!pins.is_known_absent(b"/lib/x86/y/libc.so"));
        assert!(!pins.is_known_absent(b"/lib/libc.so"));
    }

    #[test]
    fn paths_come_apart_where_they_were_joined() {
        for (dir, name, path) in [(&b"/"[..], &b"a"[..], &b"/a"[..]), (b"/a", b"b", b"/a/b")] {
            assert_eq!(join(dir, name), path);
            assert_eq!(split(path), Some((dir, name)));
        }
        assert_eq!(split(b"/"), None);
    }
}
