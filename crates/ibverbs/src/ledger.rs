//! Sends of a RoCE queue pair that are under way. On RoCE a completion says that the peer has the
//! data; iWARP's says that the local buffer may be reused. So behind Sends and Writes that are to
//! complete goes a Read of no bytes, which the peer answers when it has everything before, and they
//! complete when that does. The native queue pair knows requests by their numbers here.

use crate::abi::{
    IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR, IBV_WC_RETRY_EXC_ERR,
    IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR, ibv_wc_status,
};
use outboard_verbs::{Operation, Remote, SendOp, SendRequest, SgList, Stag, TerminateCode};
use std::collections::VecDeque;

/// The STag that a Read of no bytes names: no STag is looked up. Some hardware treats 0 as special.
const NOWHERE: Remote = Remote { stag: Stag(1), offset: 0 };

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: VecDeque<LedgerEntry>,
    /// Number of `entries[0]`.
    base: u64,
    /// Entries that are the program's.
    own: usize,
    /// A request that is to complete has no Read behind it yet.
    uncovered: bool,
    /// A request has failed: those behind it are flushed.
    failed: bool,
}

/// A request as the program knows it; `None`: a Read that the ledger added.
type LedgerEntry = Option<KnownRequest>;

/// The completion of a request as the program is to see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownRequest {
    pub(crate) wr_id: u64,
    pub(crate) operation: Operation,
    /// Bytes that it moves.
    pub(crate) bytes: u32,
    /// The program wants a completion for success as well.
    signaled: bool,
}

impl KnownRequest {
    fn of(request: &SendRequest) -> Self {
        let operation = request.op.operation();
        let bytes = match operation {
            Operation::FetchAdd | Operation::CompareSwap => 8,
            _ => u32::try_from(request.local.len()).unwrap_or(u32::MAX),
        };
        Self { wr_id: request.wr_id, operation, bytes, signaled: request.signaled }
    }
}

impl Ledger {
    /// Requests of the program's that are under way.
    pub(crate) fn len(&self) -> usize {
        self.own
    }

    /// Enters a request, and gives it the number and the flags to post it with. With `covers`, the
    /// peer can be asked.
    pub(crate) fn enter(&mut self, request: &mut SendRequest, covers: bool) {
        let known = KnownRequest::of(request);
        request.wr_id = self.push(Some(known));
        self.own += 1;
        if !covers {
            return;
        }
        let answered = request.op.awaits_response();
        self.uncovered |= request.signaled;
        request.signaled = answered && self.uncovered;
        self.uncovered &= !answered;
    }

    /// The Read to post behind what was entered, if one is needed.
    pub(crate) fn cover(&mut self) -> Option<SendRequest> {
        if !std::mem::take(&mut self.uncovered) {
            return None;
        }
        let number = self.push(None);
        Some(SendRequest::new(number, SendOp::Read { from: NOWHERE }, SgList::new()))
    }

    fn push(&mut self, entry: LedgerEntry) -> u64 {
        self.entries.push_back(entry);
        self.base + self.entries.len() as u64 - 1
    }

    /// Takes out the newest entries, which were not posted after all, and returns them. The
    /// remaining ones may need [`Ledger::cover`].
    pub(crate) fn withdraw(&mut self, count: usize) -> Vec<KnownRequest> {
        let at = self.entries.len().saturating_sub(count);
        let withdrawn: Vec<_> = self.entries.drain(at..).flatten().collect();
        self.own -= withdrawn.len();
        // A superfluous Read does no harm.
        self.uncovered = !self.entries.is_empty();
        withdrawn
    }

    /// True for a Read that the ledger added.
    pub(crate) fn is_cover(&self, number: u64) -> bool {
        let at = number.checked_sub(self.base).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.entries.get(at)).is_some_and(Option::is_none)
    }

    /// Drops everything; later completions of its requests are ignored.
    pub(crate) fn clear(&mut self) {
        self.base += self.entries.len() as u64;
        *self = Self { base: self.base, ..Self::default() };
    }

    /// The posted request with this number was answered: so were those before it.
    pub(crate) fn succeed(
        &mut self,
        number: u64,
        mut tell: impl FnMut(KnownRequest, ibv_wc_status),
    ) {
        while let Some(known) = self.pop(number) {
            if let Some(known) = known.filter(|known| known.signaled) {
                tell(known, IBV_WC_SUCCESS);
            }
        }
    }

    /// The posted request with this number failed; the peer had answered those before it.
    pub(crate) fn fail_alone(
        &mut self,
        number: u64,
        status: ibv_wc_status,
        mut tell: impl FnMut(KnownRequest, ibv_wc_status),
    ) {
        if let Some(before) = number.checked_sub(1) {
            self.succeed(before, &mut tell);
        }
        self.fail(number, status, tell);
    }

    /// The posted request with this number failed. The fate of those before it is unknown: the
    /// oldest gets `status`, the others are flushed.
    pub(crate) fn fail(
        &mut self,
        number: u64,
        status: ibv_wc_status,
        mut tell: impl FnMut(KnownRequest, ibv_wc_status),
    ) {
        while let Some(known) = self.pop(number) {
            let Some(known) = known else { continue };
            let first = !std::mem::replace(&mut self.failed, true);
            tell(known, if first { status } else { IBV_WC_WR_FLUSH_ERR });
        }
    }

    /// The oldest entry, up to this number.
    fn pop(&mut self, number: u64) -> Option<LedgerEntry> {
        if self.base > number {
            return None;
        }
        let entry = self.entries.pop_front()?;
        self.base += 1;
        self.own -= usize::from(entry.is_some());
        Some(entry)
    }
}

/// The status that hardware would give the oldest request when a connection ends: `refusal` is the
/// status from the peer's Terminate; without one, the peer was silent.
pub(crate) fn verdict(refusal: Option<TerminateCode>) -> ibv_wc_status {
    const RDMAP: u8 = 0;
    const DDP: u8 = 1;
    match refusal.map(|code| (code.layer, code.etype)) {
        None => IBV_WC_RETRY_EXC_ERR,
        // Remote protection errors, and tagged buffers that are not there.
        Some((RDMAP | DDP, 1)) => IBV_WC_REM_ACCESS_ERR,
        // Untagged buffers that are too short.
        Some((DDP, 2)) => IBV_WC_REM_INV_REQ_ERR,
        Some(_) => IBV_WC_REM_OP_ERR,
    }
}
