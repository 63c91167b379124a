//! What a node's administrator allows sources: where, how much, and which attributes.

use crate::receive::{AttributePolicy, OwnerWish, Ownership, SecurityXattrs, SpecialBits};
use outboard_secure::NodeId;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A directory below which files may be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CastRoot {
    /// Its path as sources name it: absolute.
    pub path: PathBuf,
    /// Where it is on this machine.
    pub directory: PathBuf,
    /// The identities that may publish, replace and merge there; `None`: all that have the key.
    pub owners: Option<Arc<[NodeId]>>,
}

impl CastRoot {
    /// A directory that sources name as this machine does.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { directory: path.clone(), path, owners: None }
    }

    /// A directory that sources know by another path.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>, directory: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), directory: directory.into(), owners: None }
    }
}

/// What sources may do besides; the defaults are for nodes that trust them with files alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CastPolicy {
    /// Bytes of one cast, its manifest and all data.
    pub bytes_max: u64,
    /// Casts of one identity at a time.
    pub casts_max: usize,
    /// Setuid and setgid bits.
    pub special_bits: SpecialBits,
    /// Attributes of the kernel's.
    pub security_xattrs: SecurityXattrs,
    /// Whether files may get the owners that a source names; the service must run as root.
    pub may_chown: bool,
    /// How long the remains of a broken cast are kept for the next one.
    pub keep_broken: Duration,
}

impl Default for CastPolicy {
    fn default() -> Self {
        Self {
            bytes_max: 1 << 46,
            casts_max: 16,
            special_bits: SpecialBits::Drop,
            security_xattrs: SecurityXattrs::Refuse,
            may_chown: false,
            keep_broken: Duration::from_secs(24 * 3600),
        }
    }
}

impl CastPolicy {
    /// The attributes that files get, or why not those that are asked for.
    pub(super) fn attributes(&self, wish: OwnerWish) -> Result<AttributePolicy, String> {
        let ownership = match wish {
            OwnerWish::Receiver => Ownership::Receiver,
            OwnerWish::Source if !self.may_chown => {
                return Err("sources choose no owners here: leave out --chown, or have this \
                            node's administrator set chown = true in [cast]"
                    .into());
            }
            OwnerWish::Source if !rustix::process::geteuid().is_root() => {
                return Err("this node's service cast does not run as root and can give files to \
                            no other user: leave out --chown, or have this node's administrator \
                            set as_root = true in [cast]"
                    .into());
            }
            OwnerWish::Source => Ownership::SameNames,
        };
        let Self { special_bits, security_xattrs, .. } = *self;
        Ok(AttributePolicy { ownership, special_bits, security_xattrs })
    }

    /// Refuses a cast that is too large.
    pub(super) fn admit_len(&self, stream_len: u64) -> Result<(), String> {
        let max = self.bytes_max;
        if stream_len <= max {
            return Ok(());
        }
        Err(format!(
            "the cast has {stream_len} bytes, this node takes {max} (bytes in its table [cast])"
        ))
    }

    /// Refuses one more cast of an identity that has `under_way`.
    pub(super) fn admit_cast(&self, under_way: usize) -> Result<(), String> {
        if under_way < self.casts_max {
            return Ok(());
        }
        Err(format!(
            "{under_way} casts of this identity are under way here: wait for one to end (casts in \
             this node's table [cast])"
        ))
    }
}

/// The root that a destination lies in, and its path from there.
pub(super) fn root_of<'r, 'p>(
    roots: &'r [CastRoot],
    path: &'p Path,
    identity: NodeId,
) -> Result<(&'r CastRoot, &'p Path), String> {
    let refused = || {
        let shown = roots.iter().map(|root| root.path.display().to_string());
        let shown = shown.collect::<Vec<_>>().join(", ");
        format!("{} is below none of this node's roots: {shown}", path.display())
    };
    let below = roots.iter().filter_map(|root| Some((root, path.strip_prefix(&root.path).ok()?)));
    // The innermost says who owns it.
    let (root, rest) =
        below.min_by_key(|(_, rest)| rest.components().count()).ok_or_else(refused)?;
    if !rest.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(refused());
    }
    if root.owners.as_ref().is_some_and(|owners| !owners.contains(&identity)) {
        return Err(format!(
            "{} is below {}, which belongs to other identities: have this node's administrator \
             add {identity} to its owners in [cast]",
            path.display(),
            root.path.display()
        ));
    }
    Ok((root, rest))
}

/// The names in a directory of this machine that lead to roots which are not an identity's. Asks
/// the disk.
///
/// # Errors
/// The directory itself is in such a root.
pub(super) fn reserved_names(
    roots: &[CastRoot],
    directory: &Path,
    identity: NodeId,
) -> Result<BTreeSet<Vec<u8>>, String> {
    // What is not there yet has no links on its way.
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let directory = real(directory);
    let is_others =
        |root: &CastRoot| root.owners.as_ref().is_some_and(|owners| !owners.contains(&identity));
    let known: Vec<_> = roots.iter().map(|root| (real(&root.directory), is_others(root))).collect();
    let around = known.iter().filter(|(root, _)| directory.starts_with(root));
    // The innermost says who owns it.
    let innermost = around.max_by_key(|(root, others)| (root.components().count(), !others));
    if let Some((root, true)) = innermost {
        let (here, root) = (directory.display(), root.display());
        return Err(format!("{here} is in {root}, which belongs to other identities"));
    }
    let others = known.iter().filter(|(_, others)| *others);
    let below = others.filter_map(|(root, _)| root.strip_prefix(&directory).ok()?.iter().next());
    Ok(below.map(|name| name.as_bytes().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_secure::Identity;

    fn identity() -> NodeId {
        Identity::generate().expect("an identity").node()
    }

    #[test]
    fn the_innermost_root_says_who_may_cast_there() {
        let (own, other) = (identity(), identity());
        let inner = CastRoot { owners: Some([own].into()), ..CastRoot::new("/data/own".into()) };
        let roots = [CastRoot::new("/data".into()), inner];
        let rest = |path: &str, identity| {
            let found = root_of(&roots, Path::new(path), identity);
            found.map(|(root, rest)| (root.path.clone(), rest.to_owned()))
        };
        let both = |root: &str, rest: &str| Ok((root.into(), rest.into()));
        assert_eq!(rest("/data/any/x", other), both("/data", "any/x"));
        assert_eq!(rest("/data/own/x", own), both("/data/own", "x"));
        for path in ["/data/own", "/data/own/x"] {
            let why = rest(path, other).expect_err("another's");
            assert!(why.contains("belongs to other identities"), "{why}");
            assert!(why.contains(&other.to_string()), "{why}");
        }
        for path in ["/data/../etc", "/data/own/../any", "/database", "/", "data/any"] {
            let why = rest(path, own).expect_err("outside");
            assert!(why.contains("none of this node's roots: /data, /data/own"), "{why}");
        }
    }

    #[test]
    fn names_that_lead_to_others_roots_are_reserved() {
        let (own, other) = (identity(), identity());
        let disk = tempfile::tempdir().expect("a directory");
        let at = |path: &str| disk.path().join(path);
        for path in ["data/own/deep", "else", "data/any/link"] {
            std::fs::create_dir_all(at(path)).expect("made");
        }
        std::os::unix::fs::symlink(at("data/any"), at("shortcut")).expect("a link");
        let of = |path: &str, directory: &str, owners: Option<NodeId>| CastRoot {
            owners: owners.map(|owner| [owner].into()),
            ..CastRoot::at(path, at(directory))
        };
        let roots = [
            of("/data", "data", None),
            of("/own", "data/own/deep", Some(own)),
            of("/link", "shortcut/link", Some(own)),
            of("/not", "data/not/yet", Some(own)),
        ];
        let names = |directory: &str, identity| reserved_names(&roots, &at(directory), identity);
        let found = names("data", other).expect("not in it");
        assert_eq!(found, ["any", "not", "own"].map(|name| name.as_bytes().to_owned()).into());
        assert_eq!(names("data/own", other), Ok([b"deep".to_vec()].into()));
        assert_eq!(names("else", other), Ok(BTreeSet::new()));
        assert_eq!(names("data", own), Ok(BTreeSet::new()));
        for inside in ["data/own/deep", "data/own/deep/x"] {
            std::fs::create_dir_all(at(inside)).expect("made");
            let why = names(inside, other).expect_err("another's");
            assert!(why.contains("belongs to other identities"), "{why}");
        }
    }

    #[test]
    fn what_is_too_much_is_refused_with_its_limit() {
        let policy = CastPolicy { bytes_max: 1000, casts_max: 2, ..CastPolicy::default() };
        assert_eq!(policy.admit_len(1000), Ok(()));
        let why = policy.admit_len(1001).expect_err("too long");
        assert!(why.contains("1001 bytes") && why.contains("takes 1000"), "{why}");
        assert_eq!(policy.admit_cast(1), Ok(()));
        let why = policy.admit_cast(2).expect_err("too many");
        assert!(why.contains("2 casts of this identity"), "{why}");
    }

    #[test]
    fn owners_are_chosen_where_the_administrator_and_the_system_allow_it() {
        let refusing = CastPolicy::default();
        let own = refusing.attributes(OwnerWish::Receiver).expect("always");
        assert_eq!(own, AttributePolicy::default());
        let why = refusing.attributes(OwnerWish::Source).expect_err("not allowed");
        assert!(why.contains("chown = true in [cast]"), "{why}");
        let allowing = CastPolicy { may_chown: true, ..refusing };
        match allowing.attributes(OwnerWish::Source) {
            Ok(policy) => {
                assert!(rustix::process::geteuid().is_root());
                assert_eq!(policy.ownership, Ownership::SameNames);
            }
            Err(why) => {
                assert!(!rustix::process::geteuid().is_root());
                assert!(why.contains("does not run as root"), "{why}");
            }
        }
    }
}
