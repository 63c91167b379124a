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
        let its = |call: &&FsCall| matches!(call.work, FsWork::Scan(_));
        let all = self.calls.values().filter(its).count();
        let own = self.calls.values().filter(its).filter(|call| call.peer == caller.peer).count();
        let Some(scans) = self.scans.as_ref().filter(|_| all < SCANS_MAX && own < OF_ONE_MAX)
        else {
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
        let (peer, work) = (caller.peer, FsWork::Scan(switch));
        self.calls.insert(token, FsCall { peer, kind: EntryKind::Scan, request: None, work });
    }

    pub(super) fn take_scans(&mut self) {
        while let Some(over) = self.scans.as_ref().and_then(super::scan::ScanThreads::next) {
            let ScanOver { token, outcome, bytes } = over;
            self.counters.scanned_bytes += bytes;
            self.answer(token, outcome);
        }
    }

    /// A client is gone: nobody wants what is looked for for it.
    pub(super) fn scans_gone(&mut self, peer: PeerId) {
        for call in self.calls.values().filter(|call| call.peer == peer) {
            if let FsWork::Scan(kill) = &call.work {
                kill.kill();
            }
        }
    }
}
