//! What clients may execute on a file system's region, and what the service does around it: a
//! table.

/// What the service does around an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// Nothing: it only looks.
    Look,
    /// The service counts its reserved blocks among the free ones.
    Stats,
    /// It changes metadata.
    Change,
    /// It may take the last name of an inode that somebody has open.
    Remove,
    /// It opens a file, which is made unless it is there.
    Create,
    /// The service adds the bytes, and the grant of one that opens a file.
    Read,
    /// The service takes the bytes.
    Write,
    /// The service waits for the disk; the module is not asked.
    Sync,
    /// The service says which runs it had before; the module is not asked.
    Runs,
    /// Several of those that change metadata.
    Batch,
    /// The service locks; the module is not asked.
    Lock,
    /// The service looks through files.
    Scan,
}

const ENTRIES: &[(&str, EntryKind)] = &[
    ("get", EntryKind::Look),
    ("find", EntryKind::Look),
    ("walk", EntryKind::Look),
    ("list", EntryKind::Look),
    ("target", EntryKind::Look),
    ("access", EntryKind::Look),
    ("stats", EntryKind::Stats),
    ("get_xattr", EntryKind::Look),
    ("list_xattr", EntryKind::Look),
    ("seek", EntryKind::Look),
    ("make", EntryKind::Change),
    ("create", EntryKind::Create),
    ("link", EntryKind::Change),
    ("set", EntryKind::Change),
    ("set_xattr", EntryKind::Change),
    ("remove_xattr", EntryKind::Change),
    ("share", EntryKind::Change),
    ("unlink", EntryKind::Remove),
    ("rmdir", EntryKind::Remove),
    ("rename", EntryKind::Remove),
    ("read", EntryKind::Read),
    ("open", EntryKind::Read),
    ("change", EntryKind::Write),
    ("sync", EntryKind::Sync),
    ("runs", EntryKind::Runs),
    ("batch", EntryKind::Batch),
    ("scan", EntryKind::Scan),
    ("lock", EntryKind::Lock),
    ("unlock", EntryKind::Lock),
    ("test_lock", EntryKind::Lock),
    ("cancel_lock", EntryKind::Lock),
];

/// Entries of clients that do not say for whom they are.
const FOR_NOBODY: &[&str] = &[
    "get",
    "target",
    "stats",
    "sync",
    "runs",
    "batch",
    "lock",
    "unlock",
    "test_lock",
    "cancel_lock",
];

/// Whether an entry's arguments begin with for whom it is.
pub(super) fn has_who(entry: &str) -> bool {
    EntryKind::of(entry).is_some() && !FOR_NOBODY.contains(&entry)
}

impl EntryKind {
    /// What an entry is to clients; `None`: it is the service's own, or none.
    pub(super) fn of(entry: &str) -> Option<Self> {
        ENTRIES.iter().find(|(name, _)| *name == entry).map(|(_, kind)| *kind)
    }

    /// Whether it changes the region.
    pub(super) fn writes(self) -> bool {
        matches!(self, Self::Change | Self::Create | Self::Remove | Self::Write | Self::Batch)
    }
}
