//! Requests that change names, and among them those that open files: from their arrival to their
//! grant.

use super::backend::FsBackend;
use super::call::{FsCall, FsWork};
use super::entries::EntryKind;
use super::opens::TooManyOpen;
use crate::protocol::{
    FsAnswer, FsCreateArgs, FsInode, FsLayout, FsOpenArgs, MAY_MAP, MAY_READ, MAY_WRITE,
    TouchedInodes,
};
use outboard_active::Outcome;
use outboard_active::service::BackendCaller;
use outboard_offcode::executor::Request;
use outboard_secure::NodeId;
use std::time::Instant;

/// What a request to create a file wants of it.
pub(super) fn wanted(request: &Request) -> u32 {
    FsCreateArgs::split(&request.args).map_or(0, |(args, _)| args.want)
}

impl FsBackend {
    /// What a request that opens a file is granted of what it wants.
    pub(super) fn rights_of(&mut self, token: u64, inode: FsInode, want: u32) -> u32 {
        const BOTH: u32 = MAY_READ | MAY_WRITE;
        let opening = self.opens.asked_by(token).filter(|_| want & BOTH == BOTH);
        // Those who had locks before the service started may have mapped what they have locked.
        let may_map = opening.is_some_and(|opening| {
            !self.locks.is_in_grace() && self.mapping.grant(opening, inode, Instant::now())
        });
        want & BOTH | if may_map { MAY_MAP } else { 0 }
    }

    /// A request that changes names or attributes, as it is to be executed.
    pub(super) fn begin_change(
        &mut self,
        caller: BackendCaller,
        kind: EntryKind,
        mut request: Request,
    ) -> Request {
        self.counters.changes += 1;
        let touched = TouchedInodes::of(&request.entry, &request.args);
        let work = match kind {
            EntryKind::Create => {
                FsWork::Create { touched, node: caller.node, want: wanted(&request) }
            }
            _ => FsWork::Change(touched),
        };
        let call = FsCall { peer: caller.peer, kind, request: None, work };
        self.calls.insert(request.token, call);
        if kind == EntryKind::Remove {
            self.hold_what_is_open(&mut request);
        }
        request
    }

    /// A file was made, or was there: its client has it open.
    pub(super) fn created(
        &mut self,
        token: u64,
        (node, want): (NodeId, u32),
        outcome: Outcome,
    ) -> Outcome {
        match outcome {
            Outcome::Done { mut result, seq } => {
                if let Some((answer, _)) = FsAnswer::split(&result) {
                    self.opens.made(token, answer.inode, Instant::now());
                    let rights = self.rights_of(token, answer.inode, want);
                    self.grants.grant(node, answer.inode, rights).put(&mut result);
                }
                Outcome::Done { result, seq }
            }
            outcome => outcome,
        }
    }

    /// A request that opens a file has come: what others remove from now on is kept for it.
    pub(super) fn asks_to_open(
        &mut self,
        caller: BackendCaller,
        request: &Request,
    ) -> Result<(), TooManyOpen> {
        let args = &request.args;
        let (opening, inode) = match request.entry.as_str() {
            "open" => match FsOpenArgs::split(args) {
                Some((args, _)) => (args.opening, Some(args.inode)),
                None => return Ok(()),
            },
            "create" => match FsCreateArgs::split(args) {
                Some((args, _)) => (args.opening, None),
                None => return Ok(()),
            },
            _ => return Ok(()),
        };
        if let Some(ended) = self.opens.ask(request.token, (caller.peer, opening), inode)? {
            self.closed(ended);
        }
        Ok(())
    }
}
