//! Which inodes a change touches, by its entry and arguments.

use super::{
    FsAnswer, FsAttrArgs, FsCreateArgs, FsInode, FsLayout, FsLinkArgs, FsMakeArgs, FsNameArgs,
    FsRenameArgs, FsShareArgs, FsXattrArgs,
};

/// What a change touches, as far as its arguments say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TouchedInodes {
    /// Directories whose names change.
    pub dirs: Vec<FsInode>,
    /// An inode whose attributes change.
    pub inode: Option<FsInode>,
}

impl TouchedInodes {
    /// Those of an execution of an entry; none for entries that only look.
    #[must_use]
    pub fn of(entry: &str, args: &[u8]) -> Self {
        let names = |dirs: &[FsInode]| Self { dirs: dirs.to_vec(), inode: None };
        let inode = |inode| Self { dirs: Vec::new(), inode: Some(inode) };
        let touched = match entry {
            "make" => FsMakeArgs::split(args).map(|(args, _)| names(&[args.dir])),
            "create" => FsCreateArgs::split(args).map(|(args, _)| names(&[args.dir])),
            "unlink" | "rmdir" => FsNameArgs::split(args).map(|(args, _)| names(&[args.dir])),
            "rename" => FsRenameArgs::split(args).map(|(args, _)| names(&[args.from, args.to])),
            "link" => FsLinkArgs::split(args)
                .map(|(args, _)| Self { inode: Some(args.inode), ..names(&[args.dir]) }),
            "set" => FsAttrArgs::split(args).map(|(args, _)| inode(args.inode)),
            "set_xattr" | "remove_xattr" => {
                FsXattrArgs::split(args).map(|(args, _)| inode(args.inode))
            }
            "share" => FsShareArgs::split(args).map(|(args, _)| inode(args.to)),
            _ => None,
        };
        touched.unwrap_or_default()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dirs.is_empty() && self.inode.is_none()
    }

    /// The inodes whose attributes a change touches beside its directories: that of its arguments,
    /// and those that its answer names.
    pub fn inodes<'a>(&self, answer: &'a [u8]) -> impl Iterator<Item = FsInode> + use<'a> {
        let mut rest = answer;
        let answered = std::iter::from_fn(move || FsAnswer::take(&mut rest));
        let answered = answered.map(|answer| answer.inode);
        self.inode.into_iter().chain(answered).filter(|inode| inode.number != 0)
    }
}
