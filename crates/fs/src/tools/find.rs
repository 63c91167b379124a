//! find: what an expression says of a tree, told in find's order, and removed where it says so.

use super::expression::{FindAction, FindExpression};
use super::remove::TreeRemover;
use super::resolve::ResolvedPath;
use super::trail::PathTrail;
use super::{ToldError, ToldFailure, ToolError};
use crate::client::{FsCaller, FsClient, FsError, TreeWalk};
use crate::protocol::{
    FIND_ATTRIBUTES, FIND_IS_ENTERED, FIND_IS_ERROR, FIND_IS_MATCH, FindArgs, FindAttributes,
    FsInode, WalkRecord,
};

/// A name that an action is for.
#[derive(Clone, Copy, Debug)]
pub struct FindTold<'a> {
    /// What is to be done.
    pub action: FindAction,
    /// Its path.
    pub path: &'a [u8],
    /// Its attributes.
    pub attributes: &'a FindAttributes,
}

/// What is told is given to.
pub struct FindTeller<'a> {
    /// Takes names.
    pub told: &'a mut dyn FnMut(&FindTold<'_>) -> Result<(), ToolError>,
    /// Takes what could not be done.
    pub failed: &'a mut dyn FnMut(ToldError<'_>),
}

impl std::fmt::Debug for FindTeller<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FindTeller").finish_non_exhaustive()
    }
}

/// A name whose turn comes behind what is in it.
struct HeldName {
    depth: u32,
    actions: u32,
    path: Vec<u8>,
    attributes: FindAttributes,
    dir: Option<(FsInode, Vec<u8>)>,
}

struct Finding<'a, 't> {
    expression: &'a FindExpression,
    trail: PathTrail,
    /// Where the walk's root has its name.
    parent: Option<(FsInode, Vec<u8>)>,
    held: Vec<HeldName>,
    remover: TreeRemover<'a>,
    teller: FindTeller<'t>,
}

/// Walks through what a path stands for, which is shown as `shown`.
///
/// # Errors
/// [`ToolError`]: it ends there.
pub fn find(
    client: &FsClient,
    caller: &FsCaller,
    (root, shown): (&ResolvedPath, &[u8]),
    expression: &FindExpression,
    teller: FindTeller<'_>,
) -> Result<(), ToolError> {
    let args = FindArgs {
        flags: FIND_ATTRIBUTES,
        min_depth: expression.min_depth,
        max_depth: expression.max_depth,
        ..FindArgs::default()
    };
    let program = expression.program.clone();
    let mut walk = TreeWalk::new(root.found.inode, shown, program, &args);
    let mut finding = Finding {
        expression,
        trail: PathTrail::new(shown),
        parent: root.parent.clone(),
        held: Vec::new(),
        remover: TreeRemover::new(client, *caller),
        teller,
    };
    let fault = |error| ToolError::Fs { path: shown.to_vec(), error };
    while !walk.is_over() {
        let mut over = Ok(());
        let tell = |record: &WalkRecord<'_>| {
            if over.is_ok() {
                over = finding.take(record);
            }
        };
        client.walk_on(caller, &mut walk, tell).map_err(fault)?;
        over?;
        finding.remover.flush(finding.teller.failed).map_err(fault)?;
    }
    finding.release(0)?;
    finding.remover.flush(finding.teller.failed).map_err(fault)
}

impl Finding<'_, '_> {
    fn take(&mut self, record: &WalkRecord<'_>) -> Result<(), ToolError> {
        if record.what & FIND_IS_ERROR != 0 {
            let (path, errno) = (record.name, record.error.into());
            (self.teller.failed)(ToldError { path, errno, what: ToldFailure::NotEntered });
            return Ok(());
        }
        self.release(record.depth)?;
        let no_walk =
            || ToolError::Fs { path: Vec::new(), error: FsError::Answer { entry: "walk" } };
        let path = self.trail.to(record.depth, record.name).ok_or_else(no_walk)?.to_vec();
        let dir = match record.depth {
            0 => self.parent.clone(),
            _ => self.trail.dir().map(|dir| (dir, record.name.to_vec())),
        };
        let is_entered = record.what & FIND_IS_ENTERED != 0;
        if is_entered {
            self.trail.enter(record.attributes.inode);
        }
        if record.what & FIND_IS_MATCH == 0 {
            return Ok(());
        }
        let (depth, actions, attributes) = (record.depth, record.actions, record.attributes);
        let name = HeldName { depth, actions, path, attributes, dir };
        match is_entered && self.expression.is_depth_first {
            true => self.held.push(name),
            false => self.act(name)?,
        }
        Ok(())
    }

    /// The walk has come to a name so deep: what is held no higher has its turn.
    fn release(&mut self, depth: u32) -> Result<(), ToolError> {
        while self.held.last().is_some_and(|name| name.depth >= depth) {
            if let Some(name) = self.held.pop() {
                self.act(name)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, name: HeldName) -> Result<(), ToolError> {
        let HeldName { actions, path, attributes, dir, .. } = name;
        let all = self.expression.actions.iter().enumerate();
        for (_, action) in all.filter(|(place, _)| actions >> place & 1 != 0) {
            if *action == FindAction::Delete {
                let is_directory = attributes.mode & libc::S_IFMT == libc::S_IFDIR;
                match &dir {
                    Some((dir, name)) => self.remover.remove((*dir, name), is_directory, &path),
                    None => self.fail_root(&path),
                }
            }
            let told = FindTold { action: *action, path: &path, attributes: &attributes };
            (self.teller.told)(&told)?;
        }
        Ok(())
    }

    /// The root of a file system stays.
    fn fail_root(&mut self, path: &[u8]) {
        let (errno, what) = (libc::EBUSY, ToldFailure::NotRemoved);
        (self.teller.failed)(ToldError { path, errno, what });
    }
}
