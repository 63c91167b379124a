//! Attributes: owners, extended attributes, modes and times, given when all data is there and
//! before anything is published; and taken again when a cast is resumed.
//!
//! Marks each top-level directory and file as its identity's, see `seeds`. Gives no setuid or
//! setgid bit and no attribute but users' unless the policy says so, and never a device.

use super::error::ReceiveError;
use super::files::{StagedTree, TopPlace};
use super::options::{
    AttributePolicy, CastIdentity, Ownership, ReceiveOptions, SecurityXattrs, SpecialBits,
};
use super::seeds::mark;
use crate::tree::{
    AccountNames, MARK_XATTR, ParentCursor, TreeEntry, TreeManifest, TreeNode, open_beneath, shown,
    timespec,
};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Gives every staged entry its attributes, children before their directories.
pub(super) fn seal(tree: &StagedTree, options: &ReceiveOptions) -> Result<(), ReceiveError> {
    let (manifest, identity) = (tree.manifest(), &options.identity);
    let sealer = Sealer { manifest, rules: EntryRules::new(options.attributes), identity };
    let mut parents = ParentCursor::new(tree.fd(), manifest);
    for index in (0..manifest.len()).rev() {
        let parent = staged_parent(tree, &mut parents, index);
        if let Some(parent) = parent.map_err(|errno| sealer.failed(index, "directory", errno))? {
            if sealer.denies_reading(index) {
                tree.keep_readable(index);
            }
            sealer.seal(parent, index)?;
        }
        tree.step();
    }
    Ok(())
}

/// Gives the directories that files were merged into the attributes of the source's, children
/// before those that they lie in. Those are the ones that are still staged as well.
pub(super) fn seal_merged(tree: &StagedTree, options: &ReceiveOptions) -> Result<(), ReceiveError> {
    let (manifest, identity) = (tree.manifest(), &options.identity);
    let sealer = Sealer { manifest, rules: EntryRules::new(options.attributes), identity };
    let mut parents = ParentCursor::new(tree.fd(), manifest);
    for index in (0..manifest.len()).rev() {
        if !manifest.entry(index).is_directory() {
            continue;
        }
        let staged = staged_parent(tree, &mut parents, index);
        if staged.map_err(|errno| sealer.failed(index, "directory", errno))?.is_some() {
            let path = manifest.path(index);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let there = open_beneath(tree.destination().fd(), &path, flags, Mode::empty());
            sealer
                .seal_merged(&there.map_err(|errno| ReceiveError::write(&path, errno))?, index)?;
        }
        tree.step();
    }
    Ok(())
}

/// Gives a resumed tree's staged entries the modes they are filled with.
pub(super) fn unseal(tree: &StagedTree) -> Result<(), Errno> {
    let manifest = tree.manifest();
    let mut parents = ParentCursor::new(tree.fd(), manifest);
    for index in 0..manifest.len() {
        let entry = manifest.entry(index);
        let mode = match entry.node {
            TreeNode::Directory => Mode::RWXU,
            TreeNode::File { .. } => Mode::RUSR | Mode::WUSR,
            TreeNode::Symlink(_) => continue,
        };
        if let Some(parent) = staged_parent(tree, &mut parents, index)? {
            fs::chmodat(parent, entry.name, mode, AtFlags::empty())?;
        }
    }
    Ok(())
}

/// The directory that a staged entry lies in; `None` for an entry that was published.
fn staged_parent<'c>(
    tree: &StagedTree,
    parents: &'c mut ParentCursor<'_>,
    index: u32,
) -> Result<Option<BorrowedFd<'c>>, Errno> {
    let place = tree.place(tree.manifest().top_of(index));
    if place == TopPlace::Published {
        return Ok(None);
    }
    let name = tree.manifest().entry(index).name;
    let found = parents.of(index).and_then(|parent| {
        // A merge that was broken has moved some.
        if place == TopPlace::Merging {
            fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(parent)
    });
    match found {
        Err(Errno::NOENT) if place == TopPlace::Merging => Ok(None),
        found => found.map(Some),
    }
}

/// Which attributes an entry is published with.
#[derive(Debug)]
pub(super) struct EntryRules {
    policy: AttributePolicy,
    accounts: AccountNames,
}

impl EntryRules {
    /// May read this machine's table of users.
    pub(super) fn new(policy: AttributePolicy) -> Self {
        let accounts = match policy.ownership {
            Ownership::SameNames => AccountNames::of_this_machine(),
            _ => AccountNames::default(),
        };
        Self { policy, accounts }
    }

    /// Permission bits.
    pub(super) fn mode(&self, entry: &TreeEntry<'_>) -> u16 {
        match self.policy.special_bits {
            SpecialBits::Drop => entry.mode & 0o1777,
            SpecialBits::Keep => entry.mode & 0o7777,
        }
    }

    /// Permission bits of a directory that has `there`: setuid and setgid bits that are not taken
    /// from sources stay as they are.
    fn mode_over(&self, entry: &TreeEntry<'_>, there: u32) -> u32 {
        let kept = match self.policy.special_bits {
            SpecialBits::Drop => there & 0o6000,
            SpecialBits::Keep => 0,
        };
        u32::from(self.mode(entry)) | kept
    }

    /// User and group; `None` for the receiver's.
    pub(super) fn owner(
        &self,
        manifest: &TreeManifest,
        entry: &TreeEntry<'_>,
    ) -> Option<(u32, u32)> {
        let owner = manifest.owner(entry);
        match self.policy.ownership {
            Ownership::Receiver => None,
            Ownership::Given { uid, gid } => Some((uid, gid)),
            Ownership::SameNumbers => owner.map(|owner| (owner.uid, owner.gid)),
            Ownership::SameNames => owner.map(|owner| self.accounts.numbers(owner)),
        }
    }

    /// Whether it may have this extended attribute.
    pub(super) fn allows(&self, name: &[u8]) -> bool {
        let keeps_security = self.policy.security_xattrs == SecurityXattrs::Keep;
        let is_user = name.starts_with(b"user.") && name != MARK_XATTR;
        is_user || keeps_security && name.starts_with(b"security.")
    }
}

struct Sealer<'a> {
    manifest: &'a TreeManifest,
    rules: EntryRules,
    identity: &'a CastIdentity,
}

impl Sealer<'_> {
    fn seal(&self, parent: BorrowedFd<'_>, index: u32) -> Result<(), ReceiveError> {
        let entry = self.manifest.entry(index);
        let failed = |what| move |errno| self.failed(index, what, errno);
        self.set_owner(parent, &entry).map_err(failed("owner"))?;
        self.set_xattrs(parent, &entry).map_err(failed("extended attributes (--xattrs)"))?;
        // Changing the owner clears bits of the mode, hence this order.
        if !matches!(entry.node, TreeNode::Symlink(_)) {
            let mode = Mode::from_raw_mode(u32::from(self.rules.mode(&entry)));
            let changed = fs::chmodat(parent, entry.name, mode, AtFlags::empty());
            changed.map_err(failed("mode"))?;
        }
        let time = timespec(entry.modified_ns);
        let times = Timestamps { last_access: time, last_modification: time };
        let set = fs::utimensat(parent, entry.name, &times, AtFlags::SYMLINK_NOFOLLOW);
        set.map_err(failed("modification time"))
    }

    /// Through its descriptor: at the destination others may put something else under its name.
    /// Whose top-level directory it is stays as it is, and so do attributes that the source's has
    /// not.
    fn seal_merged(&self, directory: &OwnedFd, index: u32) -> Result<(), ReceiveError> {
        let entry = self.manifest.entry(index);
        let failed = |what| move |errno| self.failed(index, what, errno);
        let (whose, own) = (fs::fstat(directory).map_err(failed("owner"))?.st_uid, geteuid());
        if whose != own.as_raw() && !own.is_root() {
            // Only its owner can change what it has.
            return Ok(());
        }
        if let Some((uid, gid)) = self.owner(&entry).map_err(failed("owner"))? {
            fs::fchown(directory, Some(uid), Some(gid)).map_err(failed("owner"))?;
        }
        let mut allowed = entry.xattrs.iter().filter(|xattr| self.rules.allows(xattr.name));
        let given = allowed.try_for_each(|xattr| {
            fs::fsetxattr(directory, xattr.name, xattr.value, XattrFlags::empty())
        });
        given.map_err(failed("extended attributes (--xattrs)"))?;
        let there = fs::fstat(directory).map_err(failed("mode"))?.st_mode;
        let mode = Mode::from_raw_mode(self.rules.mode_over(&entry, there));
        fs::fchmod(directory, mode).map_err(failed("mode"))?;
        let time = timespec(entry.modified_ns);
        let times = Timestamps { last_access: time, last_modification: time };
        fs::futimens(directory, &times).map_err(failed("modification time"))
    }

    /// Whether the mode of a file denies its owner reading it.
    fn denies_reading(&self, index: u32) -> bool {
        let entry = self.manifest.entry(index);
        let mode = Mode::from_raw_mode(u32::from(self.rules.mode(&entry)));
        matches!(entry.node, TreeNode::File { .. }) && !mode.contains(Mode::RUSR)
    }

    fn set_owner(&self, parent: BorrowedFd<'_>, entry: &TreeEntry<'_>) -> Result<(), Errno> {
        let Some((uid, gid)) = self.owner(entry)? else { return Ok(()) };
        fs::chownat(parent, entry.name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
    }

    fn owner(&self, entry: &TreeEntry<'_>) -> Result<Option<(Uid, Gid)>, Errno> {
        match self.rules.owner(self.manifest, entry) {
            None => Ok(None),
            // The greatest number means "leave it as it is" to the kernel.
            Some((uid, gid)) if uid == u32::MAX || gid == u32::MAX => Err(Errno::INVAL),
            Some((uid, gid)) => Ok(Some((Uid::from_raw(uid), Gid::from_raw(gid)))),
        }
    }

    fn set_xattrs(&self, parent: BorrowedFd<'_>, entry: &TreeEntry<'_>) -> Result<(), Errno> {
        let mut allowed =
            entry.xattrs.iter().filter(|xattr| self.rules.allows(xattr.name)).peekable();
        let is_marked = entry.depth == 0 && !matches!(entry.node, TreeNode::Symlink(_));
        if allowed.peek().is_none() && !is_marked {
            return Ok(());
        }
        let file = open_beneath(parent, entry.name, OFlags::RDONLY, Mode::empty())?;
        if is_marked {
            mark(&file, self.identity);
        }
        allowed.try_for_each(|xattr| {
            fs::fsetxattr(&file, xattr.name, xattr.value, XattrFlags::empty())
        })
    }

    fn failed(&self, index: u32, what: &'static str, errno: Errno) -> ReceiveError {
        ReceiveError::Attribute { path: shown(&self.manifest.path(index)), what, errno }
    }
}
