//! Walks through whole trees, some thousand names with each request: the module `find` makes them
//! next to the tree. And many names removed by one request.

use super::driver::CallEntry;
use super::error::FsError;
use super::{FsCaller, FsClient};
use crate::protocol::{
    BATCH_GOES_ON, BATCH_QUIET, BatchChange, FindArgs, FindSums, FsInode, FsLayout, FsNameArgs,
    WalkRecord, batch_of, errno_of_failure, parse_batch_done, parse_tree_walk,
};
use outboard_active::ModuleHash;

/// The module as it was built, and those that it imports.
const MODULES: [(&str, &[u8]); 6] = [
    ("alloc", include_bytes!("../../../../modules/built/alloc.wasm")),
    ("blocks", include_bytes!("../../../../modules/built/blocks.wasm")),
    ("table", include_bytes!("../../../../modules/built/table.wasm")),
    ("names", include_bytes!("../../../../modules/built/names.wasm")),
    ("inode", include_bytes!("../../../../modules/built/inode.wasm")),
    ("find", FIND),
];
const FIND: &[u8] = include_bytes!("../../../../modules/built/find.wasm");
/// Names that one execution looks at: it takes some milliseconds.
const MOST: u32 = 8192;

/// Names that one request removes: with names of 255 bytes all fit into its arguments.
const REMOVED_AT_ONCE: usize = 128;

/// A name that is to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedName {
    /// Where it is.
    pub dir: FsInode,
    /// The name.
    pub name: Vec<u8>,
    /// Whether it stands for a directory.
    pub is_directory: bool,
}

impl RemovedName {
    fn entry(&self) -> &'static str {
        if self.is_directory { "rmdir" } else { "unlink" }
    }

    fn args(&self, caller: &FsCaller) -> Vec<u8> {
        let args = FsNameArgs { who: caller.who, dir: self.dir, ..FsNameArgs::default() };
        [&args.bytes(), &self.name[..]].concat()
    }
}

/// A walk and how far it has come.
#[derive(Clone, Debug)]
pub struct TreeWalk {
    module: ModuleHash,
    args: FindArgs,
    program: Vec<u8>,
    levels: Vec<u8>,
    path: Vec<u8>,
    is_over: bool,
}

impl TreeWalk {
    /// A walk that begins at an inode, which somebody calls `path`. Of `args` those members count
    /// that say what is told and how deep it goes. The program is as `modules/find/find.h` says.
    #[must_use]
    pub fn new(root: FsInode, path: &[u8], program: Vec<u8>, args: &FindArgs) -> Self {
        // What begins with slashes and has nothing else is called by one.
        let end = path
            .iter()
            .rposition(|byte| *byte != b'/')
            .map_or_else(|| path.len().min(1), |at| at + 1);
        let begin = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let begin = if begin == end { 0 } else { begin };
        let word = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let args = FindArgs {
            root,
            most: MOST,
            levels: 0,
            program_len: word(program.len()),
            root_len: word(path.len()),
            name_at: word(begin),
            name_len: word(end - begin),
            ..*args
        };
        Self {
            module: ModuleHash::of(FIND),
            args,
            program,
            levels: Vec::new(),
            path: path.to_vec(),
            is_over: false,
        }
    }

    /// Whether there is nothing more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    fn bytes(&self, caller: &FsCaller) -> Vec<u8> {
        let args = FindArgs { who: caller.who, ..self.args };
        [&args.bytes(), &self.levels[..], &self.program, &self.path].concat()
    }
}

impl FsClient {
    /// Goes on with a walk by one request, and gives what is told to `tell`, in order; what was
    /// added up since the last record.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn walk_on(
        &self,
        caller: &FsCaller,
        walk: &mut TreeWalk,
        mut tell: impl FnMut(&WalkRecord<'_>),
    ) -> Result<FindSums, FsError> {
        const NO_WALK: FsError = FsError::Answer { entry: "walk" };
        let entry = CallEntry { module: Some(walk.module), entry: "walk" };
        let answer = self.ask(caller, entry, &walk.bytes(caller))?;
        let answer = parse_tree_walk(&answer, walk.args.flags).ok_or(NO_WALK)?;
        answer.records.iter().for_each(&mut tell);
        let (levels, path) = answer.cursor;
        (walk.levels, walk.path) = (levels.to_vec(), path.to_vec());
        walk.args.levels = answer.head.levels;
        walk.is_over = answer.head.is_over == 1;
        Ok(answer.head.rest)
    }

    /// Removes names, each as [`unlink`](Self::unlink) or [`rmdir`](Self::rmdir) does; of each the
    /// error number, 0 where it is removed.
    ///
    /// # Errors
    /// [`FsError`]: which of them are removed is not known.
    pub fn remove_all(
        &self,
        caller: &FsCaller,
        names: &[RemovedName],
    ) -> Result<Vec<i32>, FsError> {
        let mut errors = Vec::with_capacity(names.len());
        while errors.len() < names.len() {
            let some = REMOVED_AT_ONCE.min(names.len() - errors.len());
            let args: Vec<_> = names[errors.len()..][..some]
                .iter()
                .map(|name| (name.entry(), name.args(caller)))
                .collect();
            let changes: Vec<_> =
                args.iter().map(|(entry, args)| BatchChange { entry, args }).collect();
            let batch = batch_of(BATCH_GOES_ON | BATCH_QUIET, &changes);
            let answer = self.ask(caller, "batch", &batch)?;
            let done = parse_batch_done(&answer, some).filter(|done| !done.is_empty());
            let done = done.ok_or(FsError::Answer { entry: "batch" })?;
            errors.extend(done.iter().map(|(failure, _)| match failure {
                0 => 0,
                failure => errno_of_failure(*failure),
            }));
        }
        Ok(errors)
    }

    /// Has the client know the modules that walk, for servers that do not have them yet.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn know_walks(&self) -> Result<(), FsError> {
        let mut driven = self.driver.lock();
        for (name, bytes) in MODULES {
            driven.client.know(name, bytes)?;
        }
        Ok(())
    }
}
