//! What the service does for itself: it reserves blocks, gives up inodes that have neither names
//! nor anybody who has them open, and cleans up behind an end that was not in order.

use super::backend::FsBackend;
use super::call::OwnWork;
use crate::protocol::{
    FsAnswer, FsBlocksRun, FsInitArgs, FsInode, FsInodeArgs, FsLayout, FsNameArgs, FsOrphan,
    FsRecord, FsRemoved, FsRenameArgs, FsStats, FsSweepArgs, FsTakeArgs, HOLD,
};
use outboard_active::Outcome;
use outboard_offcode::executor::Request;
use std::time::{Duration, Instant};

/// How long inodes that clients had open before the service started wait for these clients.
const ORPHANS_WAIT: Duration = Duration::from_secs(30);
/// How long an inode waits that could not be given up because of others' changes.
const AGAIN_WAIT: Duration = Duration::from_secs(1);
/// Blocks that are swept at a time.
const SWEEP: u64 = 1 << 18;

impl FsBackend {
    /// The service starts.
    pub(super) fn begin_housekeeping(&mut self) {
        self.orphans_at = Some(Instant::now() + ORPHANS_WAIT);
        self.orphans(0);
        self.sweep(0);
        self.reap();
    }

    /// Makes a file system in an empty region.
    pub(super) fn make(&mut self, blocks: u64, flags: u64) {
        let args = FsInitArgs { blocks, flags, first: 10, uid: 0, gid: 0, mode: 0o1777, zero: 0 };
        self.execute_own("init", args.bytes(), OwnWork::Make);
    }

    pub(super) fn keep_house(&mut self, now: Instant) {
        if self.orphans_at.is_some_and(|at| at <= now) {
            self.orphans_at = None;
            for (number, generation) in self.nameless.clone() {
                let inode = FsInode { number, generation };
                if !self.opens.is_open(inode) {
                    self.nameless.remove(&(number, generation));
                    self.release(inode);
                }
            }
        }
    }

    /// One of the service's own executions is over.
    pub(super) fn own_done(&mut self, work: OwnWork, outcome: Outcome) {
        match (work, outcome) {
            (OwnWork::Look { of }, outcome) => self.looked(of, outcome),
            (OwnWork::Verify { of }, outcome) => self.read_verified(of, &outcome),
            (OwnWork::Batch { of, removes }, outcome) => {
                self.done_of_batch((of, removes), outcome);
            }
            (OwnWork::Make, Outcome::Done { seq, .. }) => {
                self.store.want(seq);
                self.learn_tenants(1);
            }
            (OwnWork::Tenants { first }, Outcome::Done { result, .. }) => {
                self.tenants_told(first, &result);
            }
            (OwnWork::Quota(node), Outcome::Done { result, .. }) => {
                self.quota_set(node, word(&result));
            }
            (OwnWork::Reserve, Outcome::Done { result, seq }) => self.reserved(&result, seq),
            (OwnWork::Release(_), Outcome::Done { .. }) => self.reap(),
            (OwnWork::Reap, Outcome::Done { result, .. }) => {
                self.is_reaping = false;
                if word(&result) == 1 {
                    self.reap();
                }
            }
            (OwnWork::Orphans, Outcome::Done { result, .. }) => self.orphans_found(&result),
            (OwnWork::Sweep, Outcome::Done { result, .. }) => match word(&result) {
                0 => self.swept(),
                next => self.sweep(next),
            },
            (work, outcome) => self.own_failed(work, &outcome),
        }
    }

    fn own_failed(&mut self, work: OwnWork, outcome: &Outcome) {
        if let (OwnWork::Release(inode), Outcome::Conflict) = (work, outcome) {
            return self.release_later(inode);
        }
        if let (OwnWork::Reserve, Outcome::Conflict) = (work, outcome) {
            self.pool.not_reserved();
            return self.ask_for_blocks();
        }
        let why = outcome.failure().unwrap_or_default();
        tracing::error!(?work, why, "the file system's own work has failed");
        match work {
            OwnWork::Reserve => {
                self.pool.reserved(0, Vec::new());
                self.serve_waiting();
            }
            OwnWork::Reap => self.is_reaping = false,
            OwnWork::Make | OwnWork::Tenants { .. } | OwnWork::Quota(_) => self.give_up(&why),
            // Some blocks are lost to this start.
            OwnWork::Sweep => self.swept(),
            _ => {}
        }
    }

    fn swept(&mut self) {
        self.is_swept = true;
        self.ask_for_blocks();
    }

    pub(super) fn ask_for_blocks(&mut self) {
        if !self.is_swept {
            return;
        }
        if let Some(seq) = self.pool.awaited().filter(|_| !self.waiting.is_empty()) {
            self.store.want_on_disk(seq);
        }
        if let Some(want) = self.pool.ask() {
            let args = FsTakeArgs { want, goal: u64::MAX }.bytes();
            self.execute_own("take", args, OwnWork::Reserve);
        }
    }

    fn reserved(&mut self, result: &[u8], seq: u64) {
        let (mut rest, mut runs) = (result, Vec::new());
        while let Some(run) = FsBlocksRun::take(&mut rest) {
            runs.push(run);
        }
        let is_dry = runs.is_empty();
        self.pool.reserved(seq, runs);
        // Before long they are needed.
        self.store.want_on_disk(seq);
        let on_disk = self.store.on_disk();
        if is_dry || self.pool.durable(on_disk, self.store.held().as_deref()) {
            self.serve_waiting();
        }
    }

    /// Numbers of blocks as clients are told: reserved ones are free for them.
    pub(super) fn with_reserved(&self, stats: FsStats) -> FsStats {
        let blocks_free = (stats.blocks_free + self.pool.len()).min(stats.blocks);
        FsStats { blocks_free, ..stats }
    }

    fn sweep(&mut self, from: u64) {
        let args = FsSweepArgs { from, most: SWEEP }.bytes();
        self.execute_own("sweep", args, OwnWork::Sweep);
    }

    pub(super) fn reap(&mut self) {
        if !self.is_reaping {
            self.is_reaping = true;
            self.execute_own("reap", Vec::new(), OwnWork::Reap);
        }
    }

    fn orphans(&mut self, at: u64) {
        self.execute_own("orphans", at.to_le_bytes().to_vec(), OwnWork::Orphans);
    }

    fn orphans_found(&mut self, result: &[u8]) {
        let (mut rest, mut next) = (result, 0);
        while let Some(orphan) = FsOrphan::take(&mut rest) {
            let FsInode { number, generation } = orphan.inode;
            self.nameless.insert((number, generation));
            next = orphan.next;
        }
        if next != 0 {
            self.orphans(next);
        }
    }

    /// No client has an inode open any more.
    pub(super) fn closed(&mut self, inode: FsInode) {
        let key = (inode.number, inode.generation);
        if self.nameless.contains(&key) && !self.lingering.has(inode) {
            self.nameless.remove(&key);
            self.release(inode);
        }
    }

    pub(super) fn release(&mut self, inode: FsInode) {
        self.execute_own("release", FsInodeArgs { inode }.bytes(), OwnWork::Release(inode));
    }

    /// Others change so much that it could not be given up now.
    fn release_later(&mut self, inode: FsInode) {
        self.nameless.insert((inode.number, inode.generation));
        self.orphans_at.get_or_insert_with(|| Instant::now() + AGAIN_WAIT);
    }

    /// Has the module keep an inode that loses its last name: one that is replaced, and any other
    /// while a client has anything open.
    pub(super) fn hold_what_is_open(&self, request: &mut Request) {
        if request.entry == "rename" {
            if let Some((mut args, names)) = FsRenameArgs::split(&request.args) {
                args.flags |= HOLD;
                request.args = [args.bytes(), names.to_vec()].concat();
            }
        } else if self.opens.is_empty() {
            // Nothing is removed that anybody has.
            // The arguments of `unlink_many` begin as those of one name.
        } else if let Some((mut args, name)) = FsNameArgs::split(&request.args) {
            args.flags |= HOLD;
            request.args = [args.bytes(), name.to_vec()].concat();
        }
    }

    /// A name was removed, perhaps an inode's last one.
    pub(super) fn removed(&mut self, outcome: &Outcome) {
        let Outcome::Done { result, .. } = outcome else { return };
        let Some((FsAnswer { inode, record }, _)) = FsAnswer::split(result) else { return };
        let FsRecord { blocks, mode, nlink, holds, .. } = record;
        self.name_removed(&FsRemoved { inode, blocks, mode, nlink, holds, zero: 0 });
    }

    /// As [`Self::removed`]; what it stood for.
    pub(super) fn name_removed(&mut self, removed: &FsRemoved) {
        let inode = removed.inode;
        if inode.number == 0 {
            return;
        }
        if removed.mode == 0 {
            // Of one with many blocks not all are given back yet.
            if removed.blocks > 0 {
                self.reap();
            }
        } else if removed.nlink == 0 && removed.holds > 0 {
            self.nameless.insert((inode.number, inode.generation));
            let ended = self.lingering.add(inode, removed.blocks, Instant::now());
            self.linger_no_longer(ended);
        }
    }

    /// Inodes without names are given up unless they were opened meanwhile.
    pub(super) fn linger_no_longer(&mut self, inodes: Vec<FsInode>) {
        for inode in inodes {
            if !self.opens.is_open(inode) {
                self.closed(inode);
            }
        }
    }
}

fn word(result: &[u8]) -> u64 {
    result.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}
