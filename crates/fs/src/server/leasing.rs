//! What requests mean for leases: what a client may keep of an answer, what a change makes stale,
//! and when it is answered.

use super::backend::FsBackend;
use super::call::{FsCall, FsWork};
use super::entries::EntryKind;
use super::leases::{LeaseOn, RecalledLease};
use crate::protocol::{
    FsAnswer, FsGrant, FsInode, FsLayout, FsListArgs, FsNameArgs, FsNotice, FsWalkArgs, MAY_READ,
    StalePart, TouchedInodes, parse_list, parse_walk,
};
use outboard_active::Outcome;
use outboard_active::service::{BackendCaller, BackendStep};
use outboard_cluster::hub::PeerId;
use outboard_offcode::executor::Request;
use std::time::Instant;

/// How an entry answers with inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookAnswer {
    One,
    Walk,
    List,
}

/// A look at something that its client keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookWork {
    how: LookAnswer,
    /// Names that were asked for, or the place in a directory.
    count: u64,
    /// The last commit when it began.
    since: u64,
    /// Whether its client keeps what it is told.
    keeps: bool,
    /// What its client is granted of the directory.
    grant: Option<FsGrant>,
}

impl TouchedInodes {
    /// Of these, and of the inodes that the answer names, the leases.
    fn leases(&self, outcome: &Outcome) -> Vec<LeaseOn> {
        let answer = match outcome {
            Outcome::Done { result, .. } => &result[..],
            _ => &[],
        };
        let names =
            self.dirs.iter().flat_map(|dir| [LeaseOn::Names(*dir), LeaseOn::Attributes(*dir)]);
        let mut all: Vec<LeaseOn> =
            names.chain(self.inodes(answer).map(LeaseOn::Attributes)).collect();
        all.sort();
        all.dedup();
        all
    }
}

impl FsBackend {
    /// A client looks at something: if it keeps that, its leases begin.
    pub(super) fn begin_look(&mut self, caller: BackendCaller, request: &mut Request) {
        let keeps = self.leases.is_keeper(caller.peer);
        let grant = self.begin_list(caller, request);
        if !keeps && grant.is_none() {
            return;
        }
        let args = &request.args;
        let (how, count, dir) = match request.entry.as_str() {
            "get" => (LookAnswer::One, 0, None),
            "find" => (LookAnswer::One, 0, FsNameArgs::split(args).map(|(args, _)| args.dir)),
            "walk" => match FsWalkArgs::split(args) {
                Some((args, _)) => (LookAnswer::Walk, args.count.into(), Some(args.dir)),
                None => return,
            },
            "list" => match FsListArgs::split(args) {
                Some((args, _)) => (LookAnswer::List, args.at, Some(args.dir)),
                None => return,
            },
            _ => return,
        };
        let since = self.region.seq();
        if let Some(dir) = dir.filter(|_| keeps) {
            self.grant(caller.peer, LeaseOn::Names(dir), since);
        }
        let work = FsWork::Look(LookWork { how, count, since, keeps, grant });
        let call = FsCall { peer: caller.peer, kind: EntryKind::Look, request: None, work };
        self.calls.insert(request.token, call);
    }

    /// What a listing is granted, if it asks for that; there is room for it.
    fn begin_list(&self, caller: BackendCaller, request: &mut Request) -> Option<FsGrant> {
        let named = (request.entry == "list").then(|| FsListArgs::split(&request.args)).flatten();
        let (args, _) = named.filter(|(args, _)| args.want == MAY_READ)?;
        request.out_cap = request.out_cap.checked_sub(u32::try_from(FsGrant::LEN).ok()?)?;
        Some(self.grants.grant(caller.node, args.dir, MAY_READ))
    }

    /// What a client has looked at is answered.
    pub(super) fn looked_at(
        &mut self,
        token: u64,
        peer: PeerId,
        look: LookWork,
        mut outcome: Outcome,
    ) {
        let mut found = Vec::new();
        if let Outcome::Done { result, .. } = &mut outcome {
            found = if look.keeps { answered(look, result) } else { Vec::new() };
            if let Some(grant) = look.grant {
                // Of a directory that is not there nothing is granted: it may be a file later.
                let grant = if result.is_empty() { FsGrant::default() } else { grant };
                grant.put(result);
            }
        }
        // The answer comes first: what is stale in it is recalled behind it.
        self.answer(token, outcome);
        if look.how == LookAnswer::Walk
            && let Some((_, above)) = found.split_last()
        {
            above.iter().for_each(|dir| self.grant(peer, LeaseOn::Names(*dir), look.since));
        }
        found.iter().for_each(|one| self.grant(peer, LeaseOn::Attributes(*one), look.since));
    }

    /// A client is told an inode's record by an answer that is not about names.
    pub(super) fn grant_record(&mut self, peer: PeerId, inode: FsInode, since: u64) {
        if self.leases.is_keeper(peer) {
            self.grant(peer, LeaseOn::Attributes(inode), since);
        }
    }

    fn grant(&mut self, peer: PeerId, on: LeaseOn, since: u64) {
        if let Some(recalled) = self.leases.grant(peer, on, since, Instant::now()) {
            self.tell_recalled(recalled, StalePart::Attr);
        }
    }

    /// A change was executed: others must not keep what it has changed.
    pub(super) fn recall_touched(
        &mut self,
        (peer, token): (PeerId, u64),
        touched: &TouchedInodes,
        outcome: &Outcome,
    ) {
        if matches!(outcome, Outcome::Failed { .. } | Outcome::Refused(_) | Outcome::Busy(_)) {
            return;
        }
        let seq = self.region.seq();
        let leases = touched.leases(outcome);
        for on in &leases {
            let recalled = self.leases.changed((peer, token), *on, seq, true);
            recalled.into_iter().for_each(|one| self.tell_recalled(one, StalePart::Attr));
        }
        if self.leases.is_keeper(peer) {
            leases.into_iter().for_each(|on| self.grant(peer, on, seq));
            // Who makes a directory knows its names.
            let made = made_dir(outcome).filter(|_| touched.inode.is_none());
            made.into_iter().for_each(|dir| self.grant(peer, LeaseOn::Names(dir), seq));
        }
    }

    /// Names of a directory were removed, with what they stood for.
    pub(super) fn recall_removed(
        &mut self,
        (peer, token): (PeerId, u64),
        touched: &TouchedInodes,
        inodes: impl Iterator<Item = FsInode>,
    ) {
        let seq = self.region.seq();
        let nothing = Outcome::Done { result: Vec::new(), seq };
        let leases = touched.leases(&nothing).into_iter().chain(inodes.map(LeaseOn::Attributes));
        for on in leases {
            let recalled = self.leases.changed((peer, token), on, seq, true);
            recalled.into_iter().for_each(|one| self.tell_recalled(one, StalePart::Attr));
        }
    }

    /// A file's bytes were changed. Nobody waits for that alone: whoever opens the file asks.
    pub(super) fn recall_bytes(
        &mut self,
        (peer, token): (PeerId, u64),
        inode: FsInode,
        waits: bool,
    ) {
        let seq = self.region.seq();
        let on = LeaseOn::Attributes(inode);
        let recalled = self.leases.changed((peer, token), on, seq, waits);
        recalled.into_iter().for_each(|one| self.tell_recalled(one, StalePart::Data));
        self.grant_record(peer, inode, seq);
    }

    fn tell_recalled(&mut self, recalled: RecalledLease, part: StalePart) {
        let RecalledLease { number, peer, on } = recalled;
        let (inode, what) = match on {
            LeaseOn::Names(dir) => (dir, StalePart::Names),
            LeaseOn::Attributes(inode) => (inode, part),
        };
        let bytes = FsNotice::Invalidate { number, inode, what }.encode();
        self.counters.recalls += 1;
        self.notify(BackendStep::Notice { peer, bytes });
    }

    /// Whether a request that is over waits for clients; then it is answered later.
    pub(super) fn waits_for_leases(
        &mut self,
        token: u64,
        outcome: Outcome,
        is_synced: bool,
    ) -> Option<Outcome> {
        if !self.leases.is_waiting(token) {
            return Some(outcome);
        }
        match self.calls.get_mut(&token) {
            Some(call) => {
                (call.request, call.work) = (None, FsWork::Recalling { outcome, is_synced });
                None
            }
            None => Some(outcome),
        }
    }

    /// Requests that waited for clients and do not any more.
    pub(super) fn recalled(&mut self, tokens: Vec<u64>) {
        for token in tokens {
            let Some(call) = self.calls.get_mut(&token) else { continue };
            if !matches!(call.work, FsWork::Recalling { .. }) {
                // It is still being executed.
                continue;
            }
            let work = std::mem::replace(&mut call.work, FsWork::None);
            if let FsWork::Recalling { outcome, is_synced } = work {
                self.conclude(token, outcome, is_synced);
            }
        }
    }
}

/// The directory that a change of names answers with.
fn made_dir(outcome: &Outcome) -> Option<FsInode> {
    let Outcome::Done { result, .. } = outcome else { return None };
    let (FsAnswer { inode, record }, _) = FsAnswer::split(result)?;
    (record.mode & libc::S_IFMT == libc::S_IFDIR).then_some(inode)
}

/// The inodes of an answer, in its order.
fn answered(look: LookWork, result: &[u8]) -> Vec<FsInode> {
    match look.how {
        LookAnswer::One => FsAnswer::split(result).map(|(one, _)| one.inode).into_iter().collect(),
        LookAnswer::Walk => {
            let names = usize::try_from(look.count).unwrap_or(usize::MAX);
            let walked = parse_walk(result, names).map(|(found, _)| found).unwrap_or_default();
            walked.iter().map(|one| one.inode).collect()
        }
        LookAnswer::List => {
            let names = parse_list(result, look.count).unwrap_or_default();
            names.iter().map(|name| name.head.inode).collect()
        }
    }
}
