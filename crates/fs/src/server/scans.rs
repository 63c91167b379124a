//! Requests that look through files, as the service's loop sees them: begun, answered, and ended
//! with their client.

use super::backend::FsBackend;
use super::call::{FsCall, FsWork};
use super::entries::EntryKind;
use super::scan::{ScanOver, ScanTask};
use crate::protocol::parse_scan_args;
use outboard_active::Outcome;
use outboard_active::service::BackendCaller;
use outboard_cluster::hub::PeerId;
use outboard_offcode::engine::KillSwitch;
use outboard_offcode::executor::Request;
use std::sync::Arc;

/// Scans that run or wait, at most; of one client.
const SCANS_MAX: usize = 64;
const OF_ONE_MAX: usize = 8;
/// Bytes of an answer, at most.
const ANSWER_MAX: usize = 2 << 20;

impl FsBackend {
    pub(super) fn begin_scan(&mut self, caller: BackendCaller, request: Request) {
        let token = request.token;
        self.counters.scans += 1;
        let Some((args, files)) = parse_scan_args(&request.args) else {
            return self.fail(token, libc::EINVAL, "these are no files to look through");
        };
        let own = self.scanning.values().filter(|(peer, _)| *peer == caller.peer).count();
        let is_full = self.scanning.len() >= SCANS_MAX || own >= OF_ONE_MAX;
        let Some(scans) = self.scans.as_ref().filter(|_| !is_full) else {
            let why = "too many files are looked through already".to_owned();
            return self.answer(token, Outcome::Busy(why));
        };
        let kill = Arc::new(KillSwitch::default());
        let out_cap = (request.out_cap as usize).min(ANSWER_MAX);
        let (tenant, switch) = (request.tenant, Arc::clone(&kill));
        let task = ScanTask { token, tenant, args, files, out_cap, kill };
        if !scans.run(task) {
            let why = "this machine has no thread for it".to_owned();
            return self.answer(token, Outcome::Busy(why));
        }
        let (peer, work) = (caller.peer, FsWork::Scan);
        self.scanning.insert(token, (peer, switch));
        self.calls.insert(token, FsCall { peer, kind: EntryKind::Scan, request: None, work });
    }

    pub(super) fn take_scans(&mut self) {
        while let Some(over) = self.scans.as_ref().and_then(super::scan::ScanThreads::next) {
            let ScanOver { token, outcome, bytes } = over;
            self.counters.scanned_bytes += bytes;
            self.scanning.remove(&token);
            self.answer(token, outcome);
        }
    }

    /// A client is gone: nobody wants what is looked for for it.
    pub(super) fn scans_gone(&mut self, peer: PeerId) {
        for (_, kill) in self.scanning.values().filter(|(its, _)| *its == peer) {
            kill.kill();
        }
    }
}
